"""The engine: a thread for each feed, and one that looks at the time.

A plan has one feed, or one for each of its namespaces; which of them it is can be known only when
the server has been asked, so each plan begins with a scout. No plan ever waits for another one.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from shmcache import states
from shmcache.engine.budget import Budget, Weights
from shmcache.engine.config.timing import Timing
from shmcache.engine.confirming import ResourceConfirmer
from shmcache.engine.content import Content
from shmcache.engine.counters import Counters
from shmcache.engine.describing import described
from shmcache.engine.desk import Desk
from shmcache.engine.feed import Parts, SourceFeed
from shmcache.engine.gate import Gate
from shmcache.engine.instant_writer import InstantWriter
from shmcache.engine.joint import JointContent, JointState, resumed, share_of
from shmcache.engine.open_etcd import EtcdOpener, last_written
from shmcache.engine.open_source import KubeOpener, Opener
from shmcache.engine.own_reader import OwnReader
from shmcache.engine.plans import Plan
from shmcache.engine.proof import Prover
from shmcache.engine.proving import PlanProof
from shmcache.engine.rate_limit import Pace
from shmcache.engine.resource_state import ResourceState, versions_of
from shmcache.engine.switching import SwitchingSource
from shmcache.engine.transforms import Transforming
from shmcache.engine.verifying import PlanVerifier
from shmcache.errors import CacheFull, ShmCacheError
from shmcache.reflector.backoff import Backoff
from shmcache.reflector.machine import Reflector, ReflectorSettings
from shmcache.source.base import SourceFailed
from shmcache.writer.status import CAUGHT_UP
from shmcache.writer.writer import Writer

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
SHORT_WATCHES = 20
"""Of relays that are started again and again: each watch goes on at the next one."""
DESCRIBE_SECONDS = 30.0
"""At least so long passes between two attempts to describe a resource."""


class RunningPlan:
    """One plan being carried out: its standing, its budget, its feeds."""

    def __init__(self, writer: Writer, plan: Plan) -> None:
        self.plan = plan
        self.budget = Budget(plan.name, plan.budget)
        self.transform = plan.load_transform()
        self.feeds: list[SourceFeed] = []
        self.turn = threading.Lock()
        """Of its feeds, when they publish."""
        self._refused = 0
        self._lock = threading.Lock()
        self.describe_at = 0.0
        """When its description is to be stored (next)."""
        self._described = -DESCRIBE_SECONDS
        self._watches = 0
        self.standing = ResourceState(plan.max_age, partial(self._publish, writer), time.monotonic)

    def _publish(self, writer: Writer, state: int, reason: str) -> bool:
        """Whether readers see it. Without memory for it they may not yet: it is tried again."""
        try:
            writer.set_state(self.plan.name, state, reason=reason)
        except (CacheFull, MemoryError) as error:
            logger.warning(
                "%s: no room to say that it is %s: %s", self.plan.name, states.NAMES[state], error
            )
            return False
        logger.info(
            "%s: %s%s", self.plan.name, states.NAMES[state], f" ({reason})" if reason else ""
        )
        return True

    def newly_refused(self, writer: Writer) -> int:
        """Objects that the writer refused since this was asked last, by whichever feed."""
        with self._lock:
            before, self._refused = self._refused, writer.refused(self.plan.name)
            return self._refused - before

    def watched(self, watches: int) -> None:
        """Watches have begun; one more than there are feeds means that one has begun again."""
        self._watches += watches
        if watches and self._watches > len(self.feeds):
            self.describe_at = min(self.describe_at, self._described + DESCRIBE_SECONDS)

    def described(self, at: float) -> None:
        """Its description is being stored."""
        self._described, self.describe_at = at, math.inf

    def end(self, writer: Writer) -> None:
        """Nobody follows the server any more: what readers see is of the past."""
        if self.standing.current[0] != states.ABSENT:
            writer.set_state(self.plan.name, states.STALED, reason="its reflector has ended")


def _feeds_of(kept: RunningPlan) -> list[SourceFeed]:
    return kept.feeds


class Engine:
    """Keeps a writer's resources as their plans say, from start() until stop()."""

    def __init__(
        self,
        writer: Writer,
        plans: Sequence[Plan],
        opener: Opener,
        *,
        default_namespaces: tuple[str, ...] = (),
        pace: Pace | None = None,
        timing: Timing | None = None,
    ) -> None:
        """The writer has declared the plans' resources: who attaches finds them.

        `default_namespaces` are for plans that name none.
        """
        self.ready = threading.Event()
        """Every first list is stored, or the server has no such resource."""
        self.failed: Exception | None = None
        """Why it cannot go on."""
        self.ended = threading.Event()
        """It failed, or was stopped."""
        self._writer = writer
        self._opener = opener
        self._default_namespaces = default_namespaces
        self._pace = pace or Pace(20.0)
        self._gate = Gate()
        self._timing = timing or Timing()
        self._stop = threading.Event()
        self._prover = Prover(self._pace, self._stop)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._kept = [RunningPlan(writer, plan) for plan in plans]
        self._prove_at = time.monotonic() + self._timing.proof_interval
        self._proving = 0
        self._instants = InstantWriter(writer.place, writer.mode)
        self._own = OwnReader(writer.place)
        self._confirmers = {kept.plan.name: self._confirmer(kept) for kept in self._kept}
        self._proofs = {
            name: PlanProof(one.shown.plan, opener, writer, one.shown)
            for name, one in self._confirmers.items()
        }
        verifiers = {
            kept.plan.name: PlanVerifier(
                self._proofs[kept.plan.name], partial(_feeds_of, kept), self._prover.ask
            )
            for kept in self._kept
        }
        self._desk = Desk(writer.place, self._confirmers, verifiers)

    # ---- its life ----------------------------------------------------------------------------

    def start(self) -> None:
        """Returns at once; what comes, comes."""
        for kept in self._kept:
            if kept.plan.name not in self._writer.inherited:
                kept.standing.begin()
        for group in self._together():
            self._run(f"shmcache-{group[0].plan.name}", partial(self._carry_out, group))
        self._run("shmcache-look", self._look)
        self._run("shmcache-prove", self._prover.run)
        if self._desk.open():
            self._run("shmcache-desk", self._desk.run)

    def stop(self, timeout: float = 10.0) -> bool:
        """Ends every feed: watches are cut, what came is stored. Whether all ended in time."""
        self._stop.set()
        self._desk.close()
        for confirmer in self._confirmers.values():
            confirmer.end()
        self._prover.end()
        with self._lock:
            for kept in self._kept:
                for feed in kept.feeds:
                    feed.stop()
        deadline = time.monotonic() + timeout
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        if self.failed is None:
            for kept in self._kept:
                kept.end(self._writer)
        self._own.close()
        self._instants.close()
        self.ended.set()
        return not any(thread.is_alive() for thread in self._threads)

    def standings(self) -> dict[str, tuple[int, str]]:
        """State and reason of each resource."""
        return {kept.plan.name: kept.standing.current for kept in self._kept}

    def _run(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._note_instant()
            self._prove_next(time.monotonic())
            for kept in self._kept:
                kept.standing.look()

    def _prove_next(self, now: float) -> None:
        """Each feed makes a claim once in `proof_interval`; they are spread over it (PROOF4)."""
        feeds = [feed for kept in self._kept for feed in kept.feeds]
        if not self._timing.proof_interval or not feeds or now < self._prove_at:
            return
        self._prove_at = now + self._timing.proof_interval / len(feeds)
        self._proving += 1
        feeds[self._proving % len(feeds)].claim_soon()

    def _note_instant(self) -> None:
        try:
            self._instants.note(self._writer.position())
        except ShmCacheError as error:  # feeds notice it, too, and end this process
            logger.debug("the times of changes are not noted: %s", error)

    def _describe(self, kept: RunningPlan) -> None:
        """Stores what the resource is, for readers.

        By a feed's thread: should the server be asked, and not answer, no other resource waits.
        """
        kept.described(time.monotonic())
        try:
            self._writer.describe(kept.plan.name, **described(self._opener, kept.plan))
        except (CacheFull, SourceFailed) as error:
            logger.warning("%s: its description is not stored yet: %s", kept.plan.name, error)
            kept.describe_at = time.monotonic() + DESCRIBE_SECONDS

    def _give_up(self, error: Exception) -> None:
        if self._stop.is_set():
            return
        self.failed = error
        logger.critical("this process cannot go on: %s", error)
        self.ended.set()

    def _confirmer(self, kept: RunningPlan) -> ResourceConfirmer:
        return ResourceConfirmer(
            kept.plan,
            self._opener,
            self._own.cache,
            partial(_feeds_of, kept),
            partial(self._writer.refused, kept.plan.name),
        )

    # ---- one plan ------------------------------------------------------------------------------

    def _together(self) -> list[list[RunningPlan]]:
        """The plans by the feeds that they have, or share."""
        if isinstance(self._opener, EtcdOpener):
            known = {kept.plan.name: kept for kept in self._kept}
            groups = self._opener.groups([kept.plan for kept in self._kept])
            return [[known[plan.name] for plan in group] for group in groups]
        return [[kept] for kept in self._kept]

    def _carry_out(self, group: list[RunningPlan]) -> None:
        try:
            if isinstance(self._opener, EtcdOpener):
                self._begin_joint(group, self._opener)
            else:
                self._begin(group[0])
        except Exception as error:  # of a feed that could not even be put together
            logger.exception("%s: cannot be begun", group[0].plan.name)
            self._give_up(error)

    def _begin_joint(self, group: list[RunningPlan], opener: EtcdOpener) -> None:
        """One feed for all plans of the group (joint.py)."""
        found = [self._writer.inherited.get(kept.plan.name) for kept in group]
        version = resumed([each.version if each else None for each in found])
        marks = {each.marks for each in found if each is not None}
        if version is not None and len(marks) != 1:
            version = None  # listed at different times, by different histories
        source = opener.open_joint(
            [kept.plan for kept in group], history=marks.pop() if version is not None else ""
        )
        if version is not None:
            source.last = last_written(self._writer, [kept.plan for kept in group])
        contents: dict[str, Content] = {}
        for kept, each in zip(group, found, strict=True):
            kept.standing.join(("",))
            if version is not None and each is not None:
                contact = each.contact_ns / 1e9
                kept.standing.go_on(each.state, each.reason, contact, {"": version})
            contents[kept.plan.name] = self._content(kept, "", version)
        content = JointContent(self._writer, contents, version, source.history.text)
        standings = [kept.standing for kept in group]
        feed = SourceFeed(
            Parts(
                label=source.what,
                namespace="",
                source=source,
                content=content,
                standing=standings[0] if len(standings) == 1 else JointState(standings),
                pace=self._pace,
                gate=self._gate,
                claim=lambda _: None,  # ClusterHistory proves what a claim would
                prove=self._prover.submit,
                repair=self._proofs[group[0].plan.name].repair,
                backoff=self._delays(),
                make_machine=partial(Reflector, opener.settings(self._timing)),
                tell=partial(self._tell_joint, group, content),
                give_up=self._give_up,
            )
        )
        with self._lock:
            for kept in group:
                kept.feeds = [feed]
            if self._stop.is_set():
                return
        feed.run()

    def _tell_joint(
        self, group: list[RunningPlan], content: JointContent, counters: Counters, at: float
    ) -> None:
        if len(group) == 1:
            self._tell(group[0], counters, at)
            return
        for number, kept in enumerate(group):
            counts = content.take_counts(kept.plan.name)
            self._tell(kept, share_of(counters, counts, first=number == 0), at)

    def _begin(self, kept: RunningPlan) -> None:
        namespaces = self._namespaces(kept)
        kept.standing.join(namespaces)
        versions = self._go_on(kept, namespaces)
        feeds = [SourceFeed(self._parts(kept, name, versions.get(name))) for name in namespaces]
        for feed in feeds:
            if isinstance(feed.parts.source, SwitchingSource):
                feed.parts.source.moved = feed.distrust  # CONFIRM11
        with self._lock:
            kept.feeds = feeds
            if self._stop.is_set():
                return
        for feed in feeds[1:]:
            self._run(f"shmcache-{feed.parts.label}", feed.run)
        feeds[0].run()

    def _go_on(self, kept: RunningPlan, namespaces: Sequence[str]) -> dict[str, str]:
        """Where the feeds of an earlier life ended, if the cache was taken over from one."""
        found = self._writer.inherited.get(kept.plan.name)
        if found is None:
            return {}
        versions = versions_of(found.version, found.marks, namespaces)
        if versions:
            contact = found.contact_ns / 1e9
            kept.standing.go_on(found.state, found.reason, contact, versions)
            at = ", ".join(f"{one} in {name}" if name else one for name, one in versions.items())
            logger.info("%s: goes on with %d objects at %s", kept.plan.name, found.count, at)
        return versions

    def _namespaces(self, kept: RunningPlan) -> tuple[str, ...]:
        """Where to look; ("",) is everywhere. Asks the server until it answers, if it must."""
        wanted = kept.plan.namespaces or self._default_namespaces
        if not wanted:
            return ("",)
        kept.standing.join(("",))
        delays = self._delays()
        while not self._stop.is_set():
            self._pace.wait(self._stop)
            try:
                if self._opener.is_namespaced(kept.plan):
                    return wanted
            except SourceFailed as failed:
                status = failed.failure.status
                absent = status is not None and status.code == 404
                state = states.ABSENT if absent else states.RETRYING
                kept.standing.report("", state, str(failed))
                self._check_ready()
                self._stop.wait(delays.next(time.monotonic()))
            else:
                if kept.plan.namespaces:
                    logger.warning("%s has no namespaces: all of it is cached", kept.plan.name)
                break
        return ("",)

    def _delays(self) -> Backoff:
        return Backoff(self._timing.backoff, random.Random())

    def _parts(self, kept: RunningPlan, namespace: str, version: str | None) -> Parts:
        plan = kept.plan
        source = self._opener.open(plan, namespace)
        silence = None
        if isinstance(source, SwitchingSource):
            source.used, silence = partial(kept.standing.upstream, namespace), source.silence
        return Parts(
            label=f"{plan.name} in {namespace}" if namespace else plan.name,
            namespace=namespace,
            source=source,
            upstream_silence=silence,
            content=self._content(kept, namespace, version),
            standing=kept.standing,
            pace=self._pace,
            gate=self._gate,
            claim=self._proofs[plan.name].claim,
            prove=self._prover.submit,
            repair=self._proofs[plan.name].repair,
            backoff=self._delays(),
            make_machine=partial(Reflector, self._settings(plan)),
            tell=partial(self._tell, kept),
            give_up=self._give_up,
        )

    def _content(self, kept: RunningPlan, namespace: str, version: str | None) -> Content:
        plan = kept.plan
        weights = Weights(kept.budget)
        if version is not None:
            weights.go_on(self._sizes(plan, namespace))
        transforming = None
        if kept.transform is not None:
            transforming = Transforming(
                plan.name, kept.transform, keep_managed_fields=plan.keep_managed_fields
            )
        return Content(
            self._writer,
            plan.name,
            weights,
            version,
            namespace=namespace,
            transforming=transforming,
            advance=partial(kept.standing.advance, namespace),
            marks=kept.standing.marks,
            turn=kept.turn,
        )

    def _sizes(self, plan: Plan, namespace: str) -> Iterator[tuple[str, int]]:
        """Each stored object with the size of its JSON, which is close to the bytes received."""
        prefix = namespace and namespace + "/"
        for key, obj in self._writer.objects(plan.name) if plan.budget else ():
            if key.startswith(prefix):
                yield key, len(obj.json())

    def _settings(self, plan: Plan) -> ReflectorSettings:
        opener = self._opener
        return ReflectorSettings(
            label_selector=plan.labels,
            field_selector=plan.fields,
            silence=self._timing.silence,
            short_watches=SHORT_WATCHES if isinstance(opener, KubeOpener) and opener.several else 0,
            end_bookmark_wait=self._timing.end_bookmark_wait,
            backoff=self._timing.backoff,
        )

    # ---- telling -----------------------------------------------------------------------------

    def _tell(self, kept: RunningPlan, counters: Counters, at: float) -> None:
        self._writer.note(
            kept.plan.name,
            contact_ns=int(at * 1e9),
            lists=counters.lists,
            watches=counters.watches,
            events=counters.events,
            bookmarks=counters.bookmarks,
            errors=counters.errors + counters.exceeded + counters.crashes,
            relists=counters.relists,
            bytes=counters.bytes,
            repaired=counters.repairs,
            stored=counters.stored,
            storing_ns=counters.storing_ns,
            stored_1ms=counters.stored_1ms,
            stored_10ms=counters.stored_10ms,
            stored_100ms=counters.stored_100ms,
            cut=counters.cut,
            stamp_ns=counters.stamp_ns,
            stamped_ns=counters.stamped_ns,
            refused=counters.refused + kept.newly_refused(self._writer),
            behind_ns=kept.standing.behind_ns or CAUGHT_UP,
        )
        kept.watched(counters.watches)
        if kept.standing.current[0] == states.SYNCED and time.monotonic() >= kept.describe_at:
            self._describe(kept)
        if not self.ready.is_set():
            self._check_ready()

    def _check_ready(self) -> None:
        if all(kept.standing.is_settled() for kept in self._kept):
            self.ready.set()
