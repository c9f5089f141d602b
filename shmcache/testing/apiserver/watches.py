"""WATCH: initial events, what happened since, what happens now, bookmarks, and a clean end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from shmcache.protocol import failures, framing, watching
from shmcache.protocol.accept import FULL, PARTIAL
from shmcache.protocol.kinds import Kind
from shmcache.protocol.options import ListOptions
from shmcache.testing.apiserver.selecting import RequestScope
from shmcache.testing.apiserver.store import ObjectStore
from shmcache.testing.apiserver.stored import Stored, StoredChange
from shmcache.testing.apiserver.tables import Table


class Sink(Protocol):
    """Where lines go: the connection, through the faults that a test has requested."""

    async def lines(self, lines: list[bytes]) -> None:
        """Writes them as one, and flushes."""
        ...


class WatchTiming(NamedTuple):
    """When a watch ends, and how often it gets a bookmark, in seconds."""

    lifetime: float
    bookmarks: float = watching.BOOKMARK_SECONDS


class ServedWatch:
    """One watch request that was accepted; `run` serves it until its end.

    It holds a position in the resource's changes, not a queue: a slow client costs nothing, and
    one whose position was forgotten is ended cleanly, as by the real server (R-AS-10).
    """

    def __init__(
        self,
        store: ObjectStore,
        kind: Kind,
        scope: RequestScope,
        asked: ListOptions,
        timing: WatchTiming,
        *,
        watch_list: bool = True,
    ) -> None:
        self.kind = kind
        self.shape = FULL
        self.bookmarks = asked.allow_bookmarks
        self.cached = True
        """Whether it is served from a watch cache, which says it otherwise when it is too old."""
        self.broken: failures.Failure | None = None
        """The error that is all it shows."""
        self.beginning = watching.beginning(asked, watch_list=watch_list)
        self.wake = asyncio.Event()
        """Set when something was written, or a bookmark is due."""
        self.begun: Callable[[], None] = lambda: None
        """Called when what is written from now on will be shown."""
        self._bookmark_now = False
        self._end_now = False
        self._store = store
        self._scope = scope
        self._timing = timing
        self._table: Table = store.table(kind.key)
        self._position = 0
        self._after = self.beginning.after or 0
        self._version = 0

    def send_bookmark(self) -> None:
        """Has a bookmark sent as soon as all is sent that was written (in the loop's thread)."""
        self._bookmark_now = True
        self.wake.set()

    def end(self) -> None:
        """Ends the watch when it has shown everything (in the loop's thread)."""
        self._end_now = True
        self.wake.set()

    async def run(self, sink: Sink, refused: failures.Failure | None = None) -> None:
        """Everything until the end of the watch; `refused` is all it shows then."""
        try:
            if refused is not None:
                raise refused
            first = self._begin()
            self.begun()
        except failures.Failure as failure:
            await sink.lines([framing.event(watching.ERROR, framing.encode(failure.status))])
            return
        if first:
            await sink.lines(first)
        await self._follow(sink)

    def _begin(self) -> list[bytes]:
        with self._store.lock:
            if not self.beginning.initial:
                after = self.beginning.after
                past = after is not None and after < self._store.version
                self._position = self._place(after or 0) if past else self._table.end
                return []
            self._version, objects = self._store.listing(self.kind.key)
            self._position = self._table.end
        lines = [
            self.show(watching.ADDED, stored) for stored in objects if self._scope.matches(stored)
        ]
        if self.beginning.end_bookmark:
            lines.append(self.bookmark(self._version, end=True))
        return lines

    def _place(self, after: int) -> int:
        try:
            return self._table.position(after)
        except failures.Failure:
            if self.cached:
                raise
            raise failures.expired(failures.WATCH_TOO_OLD) from None

    def show(self, event: str, stored: Stored) -> bytes:
        """The line of an object that is there."""
        return framing.event(event, stored.whole(self.kind, self.shape))

    def line(self, event: str, change: StoredChange) -> bytes:
        """The line of what happened."""
        return change.line(event, self.kind, self.shape)

    def bookmark(self, version: int, *, end: bool) -> bytes:
        """The line of a bookmark."""
        kind, api_version = self.kind.kind, self.kind.api_version
        if self.shape.name == PARTIAL.name:
            meta = self.shape.api_version
            return framing.bookmark("PartialObjectMetadata", meta, version, end=end)
        custom, zero = self.kind.custom, self.kind.zero
        return framing.bookmark(kind, api_version, version, end=end, custom=custom, zero=zero)

    async def _follow(self, sink: Sink) -> None:
        now = asyncio.get_running_loop().time
        end = now() + self._timing.lifetime
        due = watching.next_bookmark(now(), end, self._timing.bookmarks)
        while now() < end:
            self.wake.clear()
            with self._store.lock:
                closed, self._version = self._table.closed, self._store.version
                ended = closed or self._end_now
                changes = self._table.since(self._position)
            if changes is None:
                return
            self._position += len(changes)
            lines = list(self._lines(changes))
            if self.bookmarks and (self._bookmark_now or now() >= due or closed):
                due = watching.next_bookmark(now(), end, self._timing.bookmarks)
                self._bookmark_now = False
                if self._version >= self._after:
                    lines.append(self.bookmark(self._version, end=False))
            if lines:
                await sink.lines(lines)
            if ended:
                return
            await self._sleep(min(end, due if self.bookmarks else end) - now())

    def _lines(self, changes: list[StoredChange]) -> Iterator[bytes]:
        for change in changes:
            if change.version > self._after:
                event = self._scope.event(change)
                if event is not None:
                    yield self.line(event, change)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self.wake.wait()
        except TimeoutError:
            return
