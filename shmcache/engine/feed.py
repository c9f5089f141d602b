"""One feed: carries out what its reflector wants, against its source and its content.

A feed is a resource, or one namespace of it. It has a thread of its own, so that whatever happens
to it happens to nobody else. Nothing is decided here but what the reflector cannot know: that the
cache has no room, that the process is to end, and that this code itself failed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from shmcache import states
from shmcache.engine.comparing import Disagreement
from shmcache.engine.content import Content
from shmcache.engine.counters import Counters
from shmcache.engine.evidence import Refusal
from shmcache.engine.gate import Gate
from shmcache.engine.joint import JointContent, JointState
from shmcache.engine.proof import Claim
from shmcache.engine.rate_limit import Pace
from shmcache.engine.repairing import is_beyond_repair, names_of
from shmcache.engine.resource_state import ResourceState
from shmcache.engine.stamps import StampAges
from shmcache.errors import CacheFull, ClosedError, CorruptSegment, FencedError, ShmCacheError
from shmcache.protocol.items import GARBAGE, Item
from shmcache.reflector import events
from shmcache.reflector.backoff import Backoff
from shmcache.reflector.events import Action, Event
from shmcache.reflector.retrying import is_refusal
from shmcache.source.base import FailureKind, Source, SourceFailed

logger = logging.getLogger(__name__)

FATAL = (FencedError, CorruptSegment, ClosedError)
"""After these this cache cannot be written any more."""
CLAIM_SECONDS, CLAIM_MAX_SECONDS = 1.0, 600.0
"""How long after the first claim without an answer the next one comes, and the longest wait."""
SLOW_SECONDS = 5.0
"""A server cuts a slow watch, and the rest of what it has sent is read meanwhile."""
EARLY_SECONDS = 1.0
"""A watch that ends so long before its time did not end by its time."""


class Machine(Protocol):
    """The reflector, as the engine uses it."""

    def step(self, event: Event, now: float) -> Sequence[Action]:
        """The actions that an event calls for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a feed."""

    label: str
    """For log lines: the resource, and the namespace."""
    namespace: str
    source: Source
    content: Content | JointContent
    standing: ResourceState | JointState
    pace: Pace
    gate: Gate
    """Of the server, for all feeds."""
    claim: Callable[[SourceFeed], Claim | None]
    """The claim that its content is the server's; None if it cannot be proved."""
    prove: Callable[[Claim], None]
    repair: Callable[[SourceFeed, list[Disagreement]], int]
    """Repairs keys, and says how many; SourceFailed, Refusal. In the feed's thread."""
    backoff: Backoff
    """Of restarts after a bug."""
    make_machine: Callable[[], Machine]
    tell: Callable[[Counters, float], None]
    """Takes what the feed did since the last call, and the time of contact; 0.0: none since."""
    upstream_silence: Callable[[], float] | None = None
    """For how long the source's server has not heard its own, where that is too long; else 0."""
    give_up: Callable[[Exception], None]
    """Takes the error after which this cache cannot be written any more."""


class SourceFeed:
    """Drives one machine until stop()."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._stop = threading.Event()
        self._stream: Iterator[list[Item]] | None = None
        self._open: AbstractContextManager[Iterator[list[Item]]] | None = None
        self._answer: Event | None = None
        self._counters = Counters()  # since the last tell()
        self._complaint = ""
        self._now = 0.0  # of the step whose actions are carried out
        self._contact = 0.0  # since the last tell(); 0.0: none
        self._behind = self._received = False
        self._read_behind = -SLOW_SECONDS  # when a read left events behind that had arrived
        self._lasts_until = 0.0  # the open watch, if nobody cuts it
        self._stamps = StampAges()
        self._cause = ""  # of the wait that made the last probe ours
        self._begun = 0.0  # the content that is being staged
        self._misfits = False
        self._refused = 0
        self._unproved: str | None = None
        """The version at which the feed resumed, until it makes a claim (proof.py); None: done."""
        self._claim_at = 0.0
        self._claim_wait = CLAIM_SECONDS
        self._claiming = threading.Lock()  # guards the next two: answers come from another thread
        self._claim_number = 0
        self._resumes = self._settled = 0
        """How often the feed resumed, and the last time whose history was found to be the cache's;
        guarded, too."""
        self._awaited = False
        self._doubt = ""
        self._wrong: dict[str, Disagreement] = {}  # also guarded; see repairing.py

    # ---- life ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends run() soon, from any thread; nothing more is asked of the server."""
        self._stop.set()
        self.parts.gate.wake()
        self.parts.source.cancel()

    def run(self) -> None:
        """The feed's thread: returns when it is stopped."""
        parts = self.parts
        while not self._stop.is_set():
            try:
                self._live()
            except FATAL as error:
                parts.give_up(error)
                return
            except Exception as error:
                self._counters.crashes += 1
                logger.exception("%s: unexpected error; restarting this feed", parts.label)
                parts.standing.report(parts.namespace, states.RETRYING, f"a bug: {error!r}")
                self._stop.wait(parts.backoff.next(time.monotonic()))
            finally:
                self._hang_up()
                parts.content.cancel()

    def _live(self) -> None:
        machine = self.parts.make_machine()
        self._answer = None
        event: Event = events.Started(self.parts.content.version)
        while not self._stop.is_set():
            self._now = time.monotonic()
            self._received = not isinstance(event, events.Opened)
            try:
                for action in machine.step(event, self._now):
                    self._carry_out(action)
                self._time(event)
            except CacheFull as error:
                self._answer = self._does_not_fit(error)
            self._tell()
            self._claim()
            event = self._next()

    def _time(self, event: Event) -> None:
        """After everything that came was stored, unless it only waits for the rest of a list."""
        if isinstance(event, events.Received) and not self.parts.content.staging:
            objects = sum(1 for item in event.items if item.key)
            self._counters.time(objects, time.monotonic() - self._now)
            if (stamp := self._stamps.look(event.items)) is not None:  # STAMP1
                self._counters.stamp_ns = int(stamp.seconds * 1e9)
                self._counters.stamped_ns = int(stamp.at * 1e9)

    def _tell(self) -> None:
        """After everything that came was stored: readers see both together."""
        at, self._contact = self._contact, 0.0
        if at and not self._misfits:
            at = self.parts.standing.contact(self.parts.namespace, at)
        else:
            at = 0.0
        counters, self._counters = self._counters, Counters()
        refused = self.parts.content.refused
        counters.refused, self._refused = refused - self._refused, refused
        self.parts.tell(counters, at)

    # ---- proof ---------------------------------------------------------------------------------

    @property
    def claim_number(self) -> int:
        """The number of the claim that is being made; answers name it (PROOF6)."""
        return self._claim_number

    def doubt(self, number: int, message: str) -> None:
        """The claim of this number was disproved. From any thread."""
        with self._claiming:
            if number != self._claim_number:
                return
            self._disprove(message)
        self.parts.source.interrupt()

    def contradicted(self, message: str) -> None:
        """Evidence of the server contradicts the content. From any thread."""
        with self._claiming:
            self._disprove(message)
        self.parts.source.interrupt()

    def disagree(self, found: list[Disagreement], version: str) -> None:
        """Evidence of the server at a version contradicts these keys. From any thread.

        They are repaired before anything else is read; the open watch is cut for that, as it may
        bring nothing for a minute (REPAIR2).
        """
        text = f"at version {version} the server disagrees about {names_of(found)}"
        with self._claiming:
            if is_beyond_repair(found):
                self._disprove(text)
            else:
                logger.error("%s: %s", self.parts.label, text)
                self._wrong.update((one.key, one) for one in found)
            self.parts.source.interrupt()

    def _disprove(self, message: str) -> None:
        """Readers know at once, and the feed lists again.

        The open watch is cut then, as it may bring nothing for a minute.
        """
        self._doubt = message
        self.parts.standing.disproved(self.parts.namespace, message)

    def claim_again(self, number: int) -> None:
        """The claim of this number was neither proved nor disproved. From any thread.

        The next wait is twice as long: a server may never answer at an exact version, and each
        claim reads all keys, and lists them (PROOF5).
        """
        with self._claiming:
            if number != self._claim_number:
                return
            self._claim_at = time.monotonic() + self._claim_wait
            self._claim_wait = min(2 * self._claim_wait, CLAIM_MAX_SECONDS)
            self._unproved = self.parts.content.version

    @property
    def unproved(self) -> int | None:
        """The number of the last resume while the server's history is unknown since; else None.

        It is known when the server has been found to have what the content has. From any thread.
        Of a joint content, etcd itself states the identity of its history.
        """
        resumes, joint = self._resumes, isinstance(self.parts.content, JointContent)
        return resumes if resumes > self._settled and not joint else None

    def settle(self, number: int) -> None:
        """After this resume the server had all objects as the content has them. From any thread."""
        with self._claiming:
            self._settled = max(self._settled, number)

    def distrust(self) -> None:
        """A server stated an earlier version: its history may be another one. From any thread."""
        self._resume()
        self.claim_soon()

    def _resume(self) -> None:
        with self._claiming:
            self._resumes += 1

    def claim_soon(self) -> None:
        """Has it claim once more, when its version moves next. From any thread."""
        with self._claiming:
            if self._unproved is None:
                self._unproved = self.parts.content.version

    def _number_claim(self) -> bool:
        """PROOF6: answers to earlier claims do not count any more; False if one disproved ours."""
        with self._claiming:
            self._claim_number += 1
            return not self._doubt

    def _void_claims(self) -> None:
        """The content that they were about is gone."""
        with self._claiming:
            self._claim_number += 1
            self._doubt = ""
            self._wrong.clear()

    def _repaired(self) -> Event | None:
        """After the repair of what disagree() has named; None if that is nothing."""
        with self._claiming:
            if self._doubt or self.parts.content.staging:
                return None
            found, self._wrong = list(self._wrong.values()), {}
        if not found:
            return None
        self._hang_up()
        try:
            self._counters.repairs += self.parts.repair(self, found)
        except (SourceFailed, Refusal, ShmCacheError) as error:
            if isinstance(error, FATAL):
                raise
            with self._claiming:
                self._disprove(f"{names_of(found)} could not be repaired: {error}")
            return events.Doubted(self._doubt)
        return events.Repaired()

    def _claim(self) -> None:
        """Once after a resume, as soon as the version has moved: an old one may be compacted."""
        content = self.parts.content
        moved = self._unproved is not None and content.version not in {None, self._unproved}
        if (
            moved
            and self._now >= self._claim_at
            and self._stream is not None
            and not content.staging
        ):
            self._unproved = None
            claim = self.parts.claim(self) if self._number_claim() else None
            if claim is not None:
                self.parts.prove(claim)

    # ---- the next event ----------------------------------------------------------------------

    def _next(self) -> Event:
        answer, self._answer = self._answer, None
        if answer is not None:
            return answer
        if self._stream is None:
            raise RuntimeError(f"{self.parts.label}: nothing is under way")
        repaired = self._repaired()
        if repaired is not None:
            return repaired
        try:
            items = None if self._is_doubted() else next(self._stream)
        except StopIteration:
            self._hang_up()
            return self._repaired() or self._doubted() or self._closed()
        except SourceFailed as failed:
            self._hang_up()
            return self._repaired() or self._doubted() or self._broken(failed)
        if items is None:
            return events.Doubted(self._doubt)
        self._complaint = ""
        if self.parts.source.behind:
            self._read_behind = time.monotonic()
        if not self._counters.count(items):
            self._complain(items)
        return events.Received(items)

    def _closed(self) -> Event:
        self._note_cut()
        return events.Closed()

    def _broken(self, failed: SourceFailed) -> Event:
        if failed.failure.kind is not FailureKind.CANCELLED:
            self._note_cut()
        return self._failed(failed)

    def _note_cut(self) -> None:
        """Counts a watch that ended before its time while this feed was behind its events.

        A server does not say that it cuts a watch for being slow: it just ends it.
        """
        now = time.monotonic()
        slow = now - self._read_behind < SLOW_SECONDS
        if slow and now < self._lasts_until - EARLY_SECONDS:
            self._counters.cut += 1
            logger.warning("%s: a watch was cut while it was behind its events", self.parts.label)

    def _is_doubted(self) -> bool:
        """Whether to list again: not while that is under way."""
        return bool(self._doubt) and not self.parts.content.staging

    def _doubted(self) -> Event | None:
        """After the end of a watch: whether doubt() has cut it."""
        return events.Doubted(self._doubt) if self._is_doubted() else None

    def _complain(self, items: list[Item]) -> None:
        """Of errors that a watch says in its middle: no request failed, but they are failures."""
        for item in items:
            if item.type in {"ERROR", GARBAGE}:
                self._counters.errors += 1
                text = item.raw[:300].decode(errors="backslashreplace").rstrip()
                logger.warning("%s: the watch says %s: %s", self.parts.label, item.type, text)

    def _failed(self, failed: SourceFailed) -> Event:
        if failed.failure.kind is not FailureKind.CANCELLED:
            self._counters.errors += 1
            repeated = str(failed) == self._complaint
            self._complaint = str(failed)
            level = logging.DEBUG if repeated else logging.WARNING
            logger.log(level, "%s: %s", self.parts.label, failed)
        return events.Failed(failed.failure)

    # ---- actions ------------------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        parts = self.parts
        match action:
            case events.List():
                self._answer = self._list(action)
            case events.Watch():
                self._answer = self._watch(action)
            case events.Hangup():
                self._hang_up()
            case events.Sleep(seconds):
                self._stop.wait(seconds)
                self._answer = events.Elapsed()
            case events.Await(seconds, cause, again):
                self._cause, self._unproved, self._awaited = cause, parts.content.version, True
                self._resume()
                version = parts.gate.wait(cause, seconds, self._stop, again=again)
                self._answer = events.Answering(version)
            case events.Probe():
                self._answer = self._probe(action)
            case events.Contact():
                self._note_contact()
            case events.Report(state, reason):
                parts.standing.report(parts.namespace, state, reason)
            case events.Log(level, message):
                logger.log(level, "%s: %s", parts.label, message)
            case _:
                self._store(action)

    def _note_contact(self) -> None:
        """CONTACT6: not while events that have arrived are still to be read.

        A watch just accepted does not end that: a server cuts slow readers, and sends the rest.
        """
        behind = self.parts.source.behind
        if self._behind and not behind and not self._received:
            return
        if behind != self._behind:
            self._behind = behind
            self.parts.standing.behind(self.parts.namespace, behind=behind)
        if not behind:
            silence = self.parts.upstream_silence
            self._contact = self._now if silence is None else self._now - silence()

    def _store(self, action: Action) -> None:
        content = self.parts.content
        match action:
            case events.BeginReplace():
                self._begun = time.monotonic()
                content.begin()
            case events.Stage(items):
                content.stage(items)
            case events.FinishReplace(version):
                self._finish(version)
            case events.CancelReplace():
                content.cancel()
            case events.Apply(items, version):
                content.apply(items, version)
            case events.Advance(version):
                content.advance(version)
            case _:
                raise AssertionError(f"{action} is not an action")

    def _list(self, action: events.List) -> Event:
        if not action.options.continue_token:  # further pages come one by one, as the server can
            self.parts.pace.wait(self._stop)
        self._counters.lists += 1
        try:
            with self.parts.source.page(action.options) as page:
                for items in page:
                    self._counters.bytes += sum([len(item.raw) for item in items])
                    self._complaint = ""
                    self.parts.content.stage(items)
                return events.Listed(page.meta)
        except SourceFailed as failed:
            return self._failed(failed)

    def _probe(self, action: events.Probe) -> Event:
        parts = self.parts
        parts.pace.wait(self._stop)
        began = time.monotonic()
        try:
            version = parts.source.probe(action.options)
        except SourceFailed as failed:
            alone = is_refusal(failed.failure) or failed.failure.at_once
            parts.gate.failed(self._cause, alone=alone)
            return self._failed(failed)
        shared = version if parts.source.speaks_for_all else ""
        parts.gate.answered(self._cause, began, shared)
        return events.Probed(version)

    def _watch(self, action: events.Watch) -> Event:
        self.parts.pace.wait(self._stop)
        self._counters.watches += 1
        self._lasts_until = time.monotonic() + (action.options.timeout_seconds or 0)
        opened = self.parts.source.watch(action.options, silence=action.silence)
        try:
            self._stream = iter(opened.__enter__())
        except SourceFailed as failed:
            return self._repaired() or self._failed(failed)
        self._open = opened
        if self._awaited:  # the server may have been restored since the wait began
            self._awaited = False
            self._resume()
        return events.Opened()

    def _hang_up(self) -> None:
        opened, self._open, self._stream = self._open, None, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def _finish(self, version: str) -> None:
        content = self.parts.content
        relist = content.version is not None
        count = content.finish(version)
        self._void_claims()
        self._counters.relists += relist
        self.settle(self._resumes)
        self._unproved = None
        if self._misfits:
            self._misfits = False
            self.parts.standing.exceeded(self.parts.namespace, "")
        logger.info(
            "%s: %s%d object%s at version %s in %.2f s",
            self.parts.label,
            "listed again, " if relist else "",
            count,
            "" if count == 1 else "s",
            version,
            time.monotonic() - self._begun,
        )

    def _does_not_fit(self, error: CacheFull) -> Event:
        """The last good content stays, with the state exceeded, until a whole new one fits."""
        self._hang_up()
        self.parts.content.cancel()
        self._counters.exceeded += 1
        if not self._misfits:
            self._misfits = True
            logger.error("%s: %s", self.parts.label, error)
        self.parts.standing.exceeded(self.parts.namespace, str(error))
        return events.Rejected(str(error))
