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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from shmcache import states
from shmcache.backoff import Backoff
from shmcache.engine.budget import Budget, Weights
from shmcache.engine.content import Content
from shmcache.engine.counters import Counters
from shmcache.engine.describing import described
from shmcache.engine.feed import Feed, Parts
from shmcache.engine.opening import Opener
from shmcache.engine.pace import Pace
from shmcache.engine.plans import Plan
from shmcache.engine.standing import Standing, versions_of
from shmcache.engine.timing import Timing
from shmcache.engine.transforms import Transforming
from shmcache.errors import CacheFull
from shmcache.reflector import Reflector, ReflectorSettings
from shmcache.source.base import SourceFailed
from shmcache.writer import Writer

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
DESCRIBE_SECONDS = 30.0
"""Until readers are told what a resource is, if that failed."""


class Kept:
    """One plan being carried out: its standing, its budget, its feeds."""

    def __init__(self, writer: Writer, plan: Plan) -> None:
        self.plan = plan
        self.budget = Budget(plan.name, plan.budget)
        self.transform = plan.load_transform()
        self.feeds: list[Feed] = []
        self.turn = threading.Lock()
        """Of its feeds, when they publish."""
        self._refused = 0
        self._lock = threading.Lock()
        self.describe_at = 0.0
        """When readers are to be told what it is; never again once they were."""
        self.word = 0.0
        """When its server was last heard in an earlier life; 0: never."""
        self.standing = Standing(plan.max_age, partial(self._publish, writer), time.monotonic)

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

    def end(self, writer: Writer) -> None:
        """Nobody follows the server any more: what readers see is of the past."""
        if self.standing.current[0] != states.ABSENT:
            writer.set_state(self.plan.name, states.STALED, reason="its reflector has ended")


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
        self._timing = timing or Timing()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._kept = [Kept(writer, plan) for plan in plans]

    # ---- its life ----------------------------------------------------------------------------

    def start(self) -> None:
        """Returns at once; what comes, comes."""
        for kept in self._kept:
            if kept.plan.name not in self._writer.inherited:
                kept.standing.begin()
        for kept in self._kept:
            self._run(f"shmcache-{kept.plan.name}", partial(self._carry_out, kept))
        self._run("shmcache-look", self._look)

    def stop(self, timeout: float = 10.0) -> bool:
        """Ends every feed: watches are cut, what came is stored. Whether all ended in time."""
        self._stop.set()
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
            for kept in self._kept:
                kept.standing.look()

    def _describe(self, kept: Kept) -> None:
        """Tells readers what the resource is, once its source has found out.

        By a feed's thread: should the server be asked again, and not answer, nobody else waits.
        """
        kept.describe_at = math.inf
        try:
            self._writer.describe(kept.plan.name, **described(self._opener, kept.plan))
        except (CacheFull, SourceFailed) as error:
            logger.warning("%s: readers are not told its kind yet: %s", kept.plan.name, error)
            kept.describe_at = time.monotonic() + DESCRIBE_SECONDS

    def _give_up(self, error: Exception) -> None:
        if self._stop.is_set():
            return
        self.failed = error
        logger.critical("this process cannot go on: %s", error)
        self.ended.set()

    # ---- one plan ------------------------------------------------------------------------------

    def _carry_out(self, kept: Kept) -> None:
        try:
            self._begin(kept)
        except Exception as error:  # of a feed that could not even be put together
            logger.exception("%s: cannot be begun", kept.plan.name)
            self._give_up(error)

    def _begin(self, kept: Kept) -> None:
        namespaces = self._namespaces(kept)
        kept.standing.join(namespaces)
        versions = self._go_on(kept, namespaces)
        feeds = [Feed(self._parts(kept, name, versions.get(name))) for name in namespaces]
        with self._lock:
            kept.feeds = feeds
            if self._stop.is_set():
                return
        for feed in feeds[1:]:
            self._run(f"shmcache-{feed.parts.label}", feed.run)
        feeds[0].run()

    def _go_on(self, kept: Kept, namespaces: Sequence[str]) -> dict[str, str]:
        """Where the feeds of an earlier life ended, if the cache was taken over from one."""
        found = self._writer.inherited.get(kept.plan.name)
        if found is None:
            return {}
        versions = versions_of(found.version, found.marks, namespaces)
        if versions:
            kept.word = found.contact_ns / 1e9
            kept.standing.go_on(found.state, found.reason, kept.word, versions)
            logger.info("%s: goes on with %d objects at %s", kept.plan.name, found.count, versions)
        return versions

    def _namespaces(self, kept: Kept) -> tuple[str, ...]:
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

    def _parts(self, kept: Kept, namespace: str, version: str | None) -> Parts:
        plan = kept.plan
        weights = Weights(kept.budget)
        if version is not None:
            weights.go_on(self._sizes(plan, namespace))
        transforming = None
        if kept.transform is not None:
            transforming = Transforming(
                plan.name, kept.transform, keep_managed_fields=plan.keep_managed_fields
            )
        return Parts(
            label=f"{plan.name} in {namespace}" if namespace else plan.name,
            namespace=namespace,
            source=self._opener.open(plan, namespace),
            content=Content(
                self._writer,
                plan.name,
                weights,
                version,
                namespace=namespace,
                transforming=transforming,
                advance=partial(kept.standing.advance, namespace),
                marks=kept.standing.marks,
                turn=kept.turn,
            ),
            word=(kept.word or None) if version is not None else None,
            standing=kept.standing,
            pace=self._pace,
            backoff=self._delays(),
            make_machine=partial(Reflector, self._settings(plan)),
            tell=partial(self._tell, kept),
            give_up=self._give_up,
        )

    def _sizes(self, plan: Plan, namespace: str) -> Iterator[tuple[str, int]]:
        """What is there of it, by its JSON as it is stored: near what the server sent of it."""
        prefix = namespace and namespace + "/"
        for key, obj in self._writer.objects(plan.name) if plan.budget else ():
            if key.startswith(prefix):
                yield key, len(obj.json())

    def _settings(self, plan: Plan) -> ReflectorSettings:
        return ReflectorSettings(
            label_selector=plan.labels,
            field_selector=plan.fields,
            stale_after=plan.max_age,
            silence=self._timing.silence,
            end_bookmark_wait=self._timing.end_bookmark_wait,
            backoff=self._timing.backoff,
        )

    # ---- telling -----------------------------------------------------------------------------

    def _tell(self, kept: Kept, counters: Counters, at: float) -> None:
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
            refused=counters.refused + kept.newly_refused(self._writer),
        )
        if kept.standing.current[0] == states.SYNCED and time.monotonic() >= kept.describe_at:
            self._describe(kept)
        if not self.ready.is_set():
            self._check_ready()

    def _check_ready(self) -> None:
        if all(kept.standing.is_settled() for kept in self._kept):
            self.ready.set()


def check_transforms(plans: Iterable[Plan]) -> None:
    """PlanError if one of them cannot be imported."""
    for plan in plans:
        plan.load_transform()
