"""The changes of all resources since the last look, for the page's live stream.

LIVE1  A look takes at most TAKE deltas: where more have come, only the newest are shown, and the
    number of the others is stated. The work of a look has a bound, whatever the writer does.
LIVE2  A change is counted or shown, never both, and never neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shmcache.errors import Lapped, StaleObjectError

if TYPE_CHECKING:
    from shmcache._hot import Delta, Reader
    from shmcache.reader.cache import Cache

TAKE = 512


class LiveChanges(NamedTuple):
    """The result of a look."""

    deltas: list[tuple[str, Delta]]
    """Resource and change, in the order of the ring."""
    skipped: int
    """Changes that came before these and are not shown."""


class Changes:
    """Follows the ring from now on. For the loop's thread."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._reader: Reader | None = None
        self._position = 0
        self.rest()

    def rest(self) -> None:
        """Forgets the past: the next look begins at the latest state."""
        root = self._cache.reader.root()
        self._reader, self._position = root.reader, root.head

    def look(self) -> LiveChanges:
        """The changes since the last look."""
        reader = self._cache.reader
        if reader is not self._reader:  # another instance: its past is not ours
            self.rest()
            return LiveChanges([], 0)
        root = reader.root()
        skipped = max(root.head - self._position - TAKE, 0)
        try:
            deltas, _ = root.take(self._position + skipped, TAKE)
        except (Lapped, StaleObjectError):
            deltas, skipped = [], root.head - self._position
        self._position = root.head
        names = root.names()
        shown = [(names[one.resource], one) for one in deltas if one.kind != "RELIST"]
        return LiveChanges(shown, skipped)
