"""Following the ring of deltas: a position of one's own, and batches from there on.

The writer never waits for a cursor. One that falls behind the window is told so by Lapped, whose
position is where to go on after the difference to a snapshot was taken.
"""

from __future__ import annotations

from shmcache import _hot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.snapshot import Snapshot

DEFAULT_BATCH = 512


class Cursor:
    """A consumer's place in the ring. Not thread-safe: one consumer, one cursor."""

    __slots__ = ("_reader", "generation", "instance", "position", "resources")

    def __init__(
        self, reader: _hot.Reader, resources: frozenset[int] | None, start: int | None
    ) -> None:
        root = reader.root()
        self._reader = reader
        self.resources = resources
        self.instance = root.instance
        self.position = root.head if start is None else start
        self.generation = root.generation if self.position == root.head else 0

    def ready(self) -> bool:
        """Whether deltas (or the news that it was lapped) are behind the position now."""
        root = self._reader.root()
        if root.head != self.position:
            return True
        self.generation = root.generation
        return False

    def take(self, count: int = DEFAULT_BATCH) -> list[_hot.Delta]:
        """The next deltas of its resources, at most `count`; empty at the head. Raises Lapped.

        Lapped leaves the position where it was: take the difference to a snapshot, then resume().
        """
        deltas, self.position = self._reader.take(self.position, count, self.resources)
        return deltas

    def resume(self, snapshot: Snapshot) -> None:
        """Goes on behind what the snapshot shows; to be called after the difference was taken."""
        self.position = snapshot.head
        self.generation = snapshot.generation

    def __repr__(self) -> str:
        return f"<shmcache.Cursor at {self.position}>"
