"""Following the ring of deltas: a position, and batches from there on.

The writer never waits for a cursor. A cursor that falls behind the window raises Lapped; its
position is the one to continue from after the difference to a snapshot.
"""

from __future__ import annotations

from shmcache.errors import Lapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache import _hot
    from shmcache.reader.cache import Cache
    from shmcache.reader.snapshot import Snapshot

DEFAULT_BATCH = 512


class Cursor:
    """Takes deltas from a position in the ring. Not thread-safe: one consumer, one cursor."""

    __slots__ = ("_cache", "generation", "instance", "names", "position", "reader", "resources")

    def __init__(self, cache: Cache, names: tuple[str, ...] | None, start: int | None) -> None:
        self._cache = cache
        self.names = names
        self._enter(cache.reader)
        root = self.reader.root()
        self.instance = root.instance
        self.position = root.head if start is None else start
        self.generation = root.generation if self.position == root.head else 0

    def _enter(self, reader: _hot.Reader) -> None:
        self.reader = reader
        self.resources: frozenset[int] | None = None
        if self.names is not None:
            self.resources = frozenset(self._cache.locate(name)[1] for name in self.names)

    def _moved(self) -> bool:
        """Whether the cache has moved to another instance, where positions are invalid."""
        return not self.reader.forked and self._cache.reader is not self.reader

    def ready(self) -> bool:
        """Whether deltas, or Lapped, follow its position now."""
        reader = self.reader
        root = reader.root()
        if self._cache.reader is not reader or root.head != self.position:
            return True
        self.generation = root.generation
        self.reader.note(id(self), self.position, False, 0, 0)
        return False

    def take(self, count: int = DEFAULT_BATCH) -> list[_hot.Delta]:
        """The next deltas of its resources, at most `count`; empty at the head. Raises Lapped.

        Lapped does not move the position: take the difference to a snapshot, then resume().
        """
        if self._moved():
            root = self._cache.reader.root()
            error = Lapped(root.head)
            error.root = root
            raise error
        start = self.position
        try:
            deltas, self.position = self.reader.take(start, count, self.resources)
        except Lapped:
            self.reader.note(id(self), start, True, 0, 1)
            raise
        taken = len(deltas)
        self.reader.note(id(self), start if taken else self.position, taken > 0, taken, 0)
        return deltas

    def resume(self, snapshot: Snapshot) -> None:
        """Continues after the state of the snapshot; call it after taking the difference."""
        if snapshot.instance != self.instance:
            self._enter(self._cache.reader)
            self.instance = snapshot.instance
        self.position = snapshot.head
        self.generation = snapshot.generation

    def __del__(self) -> None:
        reader = getattr(self, "reader", None)
        if reader is not None:
            reader.forget(id(self))

    def __repr__(self) -> str:
        return f"<shmcache.Cursor at {self.position}>"
