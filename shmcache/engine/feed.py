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

from shmcache import events, states
from shmcache.backoff import Backoff
from shmcache.engine.content import Content
from shmcache.engine.counters import Counters
from shmcache.engine.pace import Pace
from shmcache.engine.standing import Standing
from shmcache.errors import CacheFull, ClosedError, CorruptSegment, FencedError
from shmcache.events import Action, Event
from shmcache.protocol.items import GARBAGE, Item
from shmcache.source.base import FailureKind, Source, SourceFailed

logger = logging.getLogger(__name__)


class Machine(Protocol):
    """The reflector, as the engine uses it."""

    def step(self, event: Event, now: float) -> Sequence[Action]:
        """What is to be done about an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a feed is put together from."""

    label: str
    """For log lines: the resource, and the namespace."""
    namespace: str
    source: Source
    content: Content
    standing: Standing
    pace: Pace
    backoff: Backoff
    """Of beginning anew after a bug."""
    make_machine: Callable[[], Machine]
    tell: Callable[[Counters, float], None]
    """Is told what was done since it was told last, and when everything that came was stored."""
    word: float | None = None
    """When the server was last heard, in an earlier life that this one goes on with."""
    give_up: Callable[[Exception], None]
    """Is told that this cache cannot be written any more."""


class Feed:
    """Drives one machine until it is told to stop."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._stop = threading.Event()
        self._stream: Iterator[list[Item]] | None = None
        self._open: AbstractContextManager[Iterator[list[Item]]] | None = None
        self._answer: Event | None = None
        self._counters = Counters()  # since the last tell()
        self._heard = 0.0
        self._begun = 0.0  # the content that is being staged
        self._misfits = False
        self._refused = 0

    # ---- life ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends run() soon, from any thread; nothing more is asked of the server."""
        self._stop.set()
        self.parts.source.cancel()

    def run(self) -> None:
        """The feed's thread: returns when it is stopped."""
        parts = self.parts
        while not self._stop.is_set():
            try:
                self._live()
            except (FencedError, CorruptSegment, ClosedError) as error:
                parts.give_up(error)
                return
            except Exception as error:
                self._counters.crashes += 1
                logger.exception("%s: a bug; it begins anew", parts.label)
                parts.standing.report(parts.namespace, states.RETRYING, f"a bug: {error!r}")
                self._stop.wait(parts.backoff.next(time.monotonic()))
            finally:
                self._hang_up()
                parts.content.cancel()

    def _live(self) -> None:
        machine = self.parts.make_machine()
        self._answer = None
        event: Event = events.Started(self.parts.content.version, self.parts.word)
        while not self._stop.is_set():
            try:
                for action in machine.step(event, time.monotonic()):
                    self._carry_out(action)
            except CacheFull as error:
                self._answer = self._does_not_fit(error)
            self._tell()
            event = self._next()

    def _tell(self) -> None:
        """After what came was stored: readers see the one with the other."""
        at = 0.0
        if self._heard and not self.parts.content.staging and not self._misfits:
            at, self._heard = self._heard, 0.0
            at = self.parts.standing.heard(self.parts.namespace, at)
        counters, self._counters = self._counters, Counters()
        refused = self.parts.content.refused
        counters.refused, self._refused = refused - self._refused, refused
        self.parts.tell(counters, at)

    # ---- what happens next -------------------------------------------------------------------

    def _next(self) -> Event:
        answer, self._answer = self._answer, None
        if answer is not None:
            return answer
        if self._stream is None:
            raise RuntimeError(f"{self.parts.label}: nothing is under way")
        try:
            items = next(self._stream)
        except StopIteration:
            self._hang_up()
            return events.Closed()
        except SourceFailed as failed:
            self._hang_up()
            return self._failed(failed)
        self._count(items)
        changes = sum(1 for item in items if item.key)
        bookmarks = sum(1 for item in items if item.type == "BOOKMARK")
        self._counters.events += changes
        self._counters.bookmarks += bookmarks
        if changes + bookmarks < len(items):
            self._complain(items)
        return events.Received(items)

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
            logger.warning("%s: %s", self.parts.label, failed)
        return events.Failed(failed.failure)

    def _count(self, items: list[Item]) -> None:
        self._heard = time.monotonic()
        self._counters.bytes += sum(len(item.raw) for item in items)

    # ---- what is to be done --------------------------------------------------------------------

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
            case events.BeginReplace():
                self._begun = time.monotonic()
                parts.content.begin()
            case events.Stage(items):
                parts.content.stage(items)
            case events.FinishReplace(version):
                self._finish(version)
            case events.CancelReplace():
                parts.content.cancel()
            case events.Apply(items, version):
                parts.content.apply(items, version)
            case events.Advance(version):
                parts.content.advance(version)
            case events.Report(state, reason):
                parts.standing.report(parts.namespace, state, reason)
            case events.Log(level, message):
                logger.log(level, "%s: %s", parts.label, message)

    def _list(self, action: events.List) -> Event:
        if not action.options.continue_token:  # further pages come one by one, as the server can
            self.parts.pace.wait(self._stop)
        self._counters.lists += 1
        try:
            with self.parts.source.page(action.options) as page:
                for items in page:
                    self._count(items)
                    self.parts.content.stage(items)
                return events.Listed(page.meta)
        except SourceFailed as failed:
            return self._failed(failed)

    def _watch(self, action: events.Watch) -> Event:
        self.parts.pace.wait(self._stop)
        self._counters.watches += 1
        opened = self.parts.source.watch(action.options, silence=action.silence)
        try:
            self._stream = iter(opened.__enter__())
        except SourceFailed as failed:
            return self._failed(failed)
        self._open = opened
        return events.Opened()

    def _hang_up(self) -> None:
        opened, self._open, self._stream = self._open, None, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def _finish(self, version: str) -> None:
        content = self.parts.content
        relist = content.version is not None
        count = content.finish(version)
        self._counters.relists += relist
        if self._misfits:
            self._misfits = False
            self.parts.standing.exceeded(self.parts.namespace, "")
        logger.info(
            "%s: %s%d objects at version %s in %.2f s",
            self.parts.label,
            "listed again, " if relist else "",
            count,
            version,
            time.monotonic() - self._begun,
        )

    def _does_not_fit(self, error: CacheFull) -> Event:
        """The last good content stays, and says so, until a whole new one fits."""
        self._hang_up()
        self.parts.content.cancel()
        self._counters.exceeded += 1
        if not self._misfits:
            self._misfits = True
            logger.error("%s: %s", self.parts.label, error)
        self.parts.standing.exceeded(self.parts.namespace, str(error))
        return events.Rejected(str(error))
