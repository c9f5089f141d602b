"""An open watch of a FakeSource: what it has to say by now, and how a test spoils it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from shmcache.protocol.items import GARBAGE, Item
from shmcache.protocol.options import ListOptions
from shmcache.source.base import FailureKind, SourceFailed, SourceFailure
from shmcache.testing import statuses

if TYPE_CHECKING:
    from shmcache.testing.fake_source import FakeSource

BOOKMARK_PERIOD = 60.0
LAST_BOOKMARK = 2.0  # seconds before its time is over


class FakeWatch:
    """One watch. take() gives what is there, and never waits."""

    def __init__(self, source: FakeSource, options: ListOptions, silence: float) -> None:
        self.options = options
        self.ended = False
        """Whether the server ended it cleanly, and everything before was taken."""
        self._source = source
        self._silence = silence
        self._spoken = now = source.clock()
        self._ends = now + (options.timeout_seconds or 1800)
        self._bookmark = min(now + BOOKMARK_PERIOD, self._ends - LAST_BOOKMARK)
        self._ready: deque[Item] = deque()
        self._closing = self._dead = False
        self._broken: SourceFailure | None = None
        self._version = source.version
        self._begin(options.resource_version)

    def _begin(self, version: str) -> None:
        if version not in {"", "0"} and not self.options.send_initial_events:
            self._version = int(version)
            return
        source = self._source
        if version and int(version) > source.version:
            self.end_with(statuses.too_large(int(version), source.version))
            return
        for key, raw in sorted(source.objects.items()):
            self._ready.append(source.item("ADDED", key, raw))
        if self.options.allow_bookmarks and source.watch_list and source.end_bookmark:
            self._ready.append(source.bookmark(source.version, ends_initial=True))

    # ---- the client's side -----------------------------------------------------------------------

    def take(self) -> list[Item]:
        """The items since; empty: nothing yet, or `ended`. SourceFailed: broken, or too silent."""
        now = self._source.clock()
        if not self._dead:
            self._catch_up(now)
        items = [self._ready.popleft() for _ in range(min(len(self._ready), self._source.batch))]
        if items:
            self._spoken = now
        elif self._broken:
            self.hang_up()
            raise SourceFailed(self._broken)
        elif self._closing and not self._dead:
            self.ended = True
            self.hang_up()
        elif now >= self._spoken + self._silence:
            self.hang_up()
            text = f"no byte for {now - self._spoken:.0f} s"
            raise SourceFailed(SourceFailure(FailureKind.SILENT, text))
        return items

    def next_time(self) -> float:
        """When it will have something to say by itself, or have been silent for too long."""
        silent = self._spoken + self._silence
        if self._dead:
            return silent
        return min(self._ends, silent, self._bookmark if self._gives_bookmarks() else silent)

    def hang_up(self) -> None:
        """The client, or the end, closes it."""
        if self in self._source.watches:
            self._source.watches.remove(self)

    # ---- how it is spoilt ------------------------------------------------------------------------

    def close(self) -> None:
        """The server ends it cleanly, after what has happened up to now."""
        self._catch_up(self._source.clock())
        self._closing = True

    def cut(self, failure: SourceFailure) -> None:
        """The connection breaks; what was not taken yet is lost."""
        self._ready.clear()
        self._broken = failure
        self._closing = True

    def kill(self) -> None:
        """Half-open: nothing comes any more, nor does it end."""
        self._ready.clear()
        self._dead = True

    def say(self, *items: Item) -> None:
        """These items come next, true or not; unless it has ended."""
        self._catch_up(self._source.clock())
        if not (self._closing or self._dead):
            self._ready.extend(items)

    def babble(self, line: bytes = b'{"type":"ADD') -> None:
        """A line that is not an event."""
        self.say(Item(GARBAGE, "", None, None, None, None, line))

    def end_with(self, failure: SourceFailure) -> None:
        """An ERROR event, then the end (R-AS-04)."""
        self._ready.append(statuses.as_event(failure))
        self._closing = True

    # ---- acts of the server itself ---------------------------------------------------------------

    def _catch_up(self, now: float) -> None:
        if self._closing:
            return
        changes = self._source.since(self._version)
        if changes is None:
            self.end_with(statuses.expired())
            return
        for change in changes:
            self._version = change.version
            if change.announced:
                self._ready.append(self._source.item(change.type, change.key, change.raw))
        if now >= self._bookmark and self._gives_bookmarks():
            self._bookmark = _next_bookmark(now, self._ends)
            self._version = max(self._version, self._source.version)
            self._ready.append(self._source.bookmark(self._version))
        if now >= self._ends:
            self._closing = True

    def _gives_bookmarks(self) -> bool:
        """A version that the server has not reached yet gets none (R-AS-06)."""
        source = self._source
        return source.bookmarks and self.options.allow_bookmarks and self._version <= source.version


def _next_bookmark(now: float, ends: float) -> float:
    last = ends - LAST_BOOKMARK
    return min(now + BOOKMARK_PERIOD, last) if now < last else ends + 1
