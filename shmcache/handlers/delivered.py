"""The objects that this process has delivered of one resource: shared by its registrations.

Registrations stand at different positions of the ring. Where the ring does not lead on, each
receives the difference between its knowledge and the latest state, from one map (pydelivered.c).
"""

from __future__ import annotations

from threading import Lock

from shmcache import _hot
from shmcache.errors import Lapped, ShmCacheError
from shmcache.states import has_content

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.handlers.feed import Feed, Piece
    from shmcache.reader.cache import Cache

    Rows = list[tuple[str, bool, bool, str | None, str | None]]

BITS = 16  # of a life: one for each registration that selects by content
BATCH = 512  # deltas taken at once
_ENDED_MIN = 64  # ended lives that are not worth a look at who needs them


class Batch:
    """The state of the ring as one look found it, and its deltas for a feed.

    `deltas` is None if the feed must take the difference against `root`: `rows`, for each of its
    pieces. Positions of deltas are their numbers plus `offset`; `end` is the first one behind.
    `unlisted`: this state holds no content of the resource, so nothing can be delivered from it.
    """

    __slots__ = ("deltas", "end", "head", "offset", "record", "root", "rows", "unlisted")

    def __init__(self, root: _hot.Root, record: int, offset: int) -> None:
        self.root = root
        self.record = record
        self.offset = offset
        self.head = root.head + offset
        self.end = self.head
        self.deltas: list[_hot.Delta] | None = None
        self.rows: list[Rows] = []
        self.unlisted = False


class Known:
    """One map, and the feeds that stand in it. Thread-safe."""

    def __init__(self, cache: Cache, resource: str) -> None:
        self.map = _hot.Delivered()
        self.resource = resource
        self._cache = cache
        self._lock = Lock()
        self._feeds: list[Feed] = []
        self._bits = set(range(BITS))
        self._trim_at = _ENDED_MIN

    def join(self, feed: Feed) -> None:
        """From now on what this feed needs is kept."""
        with self._lock:
            self._feeds.append(feed)

    def leave(self, feed: Feed) -> None:
        """Drops entries that only this feed needed."""
        with self._lock:
            if feed in self._feeds:
                self._feeds.remove(feed)
                self._give_bit(feed.bit)

    def take_bit(self) -> int | None:
        """A bit for a feed that selects by content; None if all are taken."""
        with self._lock:
            return self._bits.pop() if self._bits else None

    def _give_bit(self, bit: int) -> None:
        if bit >= 0:
            self.map.free_bit(bit)
            self._bits.add(bit)

    @property
    def empty(self) -> bool:
        """Whether no feed is left."""
        return not self._feeds

    def take(self, feed: Feed) -> Batch:
        """The next batch for a feed, with the map at the end of it or later."""
        with self._lock:
            root, number = self._cache.look(self.resource)
            known = self.map
            if number < 0 or (
                known.instance not in {0, root.instance} and not self._listed(root, number)
            ):
                return self._nothing(feed, root, number)
            known.advance(root, number)
            batch = Batch(root, number, known.offset)
            at = feed.position - batch.offset
            if feed.pieces is None and at >= root.tail:
                self._fill(batch, feed, at)
            if batch.deltas is None:
                batch.rows = [self._missing(feed, piece) for piece in feed.behind()]
            feed.end = batch.end
            if known.ended > self._trim_at:
                self._trim(root.tail + batch.offset)
            return batch

    def follow(self, feed: Feed) -> tuple[_hot.Root, list[_hot.Delta], int, int] | None:
        """take() in one call, for a feed of all shards that has delivered everything so far.

        The root, deltas, offset and end, as in a Batch; noted on the seat. None: see take().
        """
        reader = feed.reader
        if reader is None or feed.pieces is not None or not feed.synced or feed.shard is not None:
            return None
        with self._lock:
            found = self.map.follow(reader, feed.position, id(feed), BATCH, self._trim_at)
            if found is not None:
                feed.end = found[3]
            return found

    def enter(self, root: _hot.Root, record: int) -> int:
        """The map at a root's state; what positions are more than the numbers of deltas there."""
        with self._lock:
            self.map.advance(root, record)
            return self.map.offset

    @staticmethod
    def _listed(root: _hot.Root, number: int) -> bool:
        """Whether the resource is whole in a new instance: before, nothing of it is delivered."""
        return has_content(root.record(number))

    @staticmethod
    def _nothing(feed: Feed, root: _hot.Root, number: int) -> Batch:
        batch = Batch(root, number, 0)
        batch.deltas = []
        batch.head = batch.end = feed.position
        batch.unlisted = True
        return batch

    def _fill(self, batch: Batch, feed: Feed, at: int) -> None:
        try:
            deltas, end = batch.root.take(at, BATCH, (batch.record,), feed.shard)
        except Lapped:
            return
        batch.deltas = deltas
        batch.end = end + batch.offset

    def _missing(self, feed: Feed, piece: Piece) -> Rows:
        if piece.since == 0:
            return []  # it receives the state itself
        first, last = feed.hashes
        return self.map.difference(piece.since, feed.bit, first, last, piece.after, piece.upto)

    def _trim(self, tail: int) -> None:
        spans = [
            (since, feed.end)
            for feed in self._feeds
            for since in (feed.position, *(piece.since for piece in feed.pieces or ()))
        ]
        self.map.trim(spans, tail)
        self._trim_at = max(_ENDED_MIN, 2 * self.map.ended)


class KnownResources:
    """The maps of one process: one for each resource that has a handler."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._maps: dict[str, list[Known]] = {}

    def find(self, resource: str, *, by_content: bool) -> tuple[Known, int]:
        """The map for a new feed, and its bit, -1 if it does not select by content."""
        maps = self._maps.setdefault(resource, [])
        for known in maps:
            bit = known.take_bit() if by_content else -1
            if bit is not None:
                return known, bit
        maps.append(Known(self._cache, resource))
        bit = maps[-1].take_bit() if by_content else -1
        if bit is None:
            raise ShmCacheError(f"{resource}: a new map has no bits")
        return maps[-1], bit

    def drop_empty(self) -> None:
        """Frees the maps that nobody uses any more."""
        for resource, maps in list(self._maps.items()):
            kept = [known for known in maps if not known.empty]
            if kept:
                self._maps[resource] = kept
            else:
                del self._maps[resource]

    @property
    def bytes(self) -> int:
        """Memory taken by all maps."""
        return sum(known.map.bytes for maps in self._maps.values() for known in maps)
