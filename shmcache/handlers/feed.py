"""One registration's way along the ring: the events that it has yet to receive, in order.

    position ──▸ deltas ──▸ selected ──▸ delivered
        └─ lapped, RELIST, another DATA ──▸ pieces ──▸ difference ──▸ delivered

A feed tells everything before its position and nothing behind it; the position moves on when what
was yielded has been dealt with, so a feed that is abandoned in the middle begins with it again.
While it delivers a difference, the feed has several positions at once: each piece of the keys has
its own. A new registration is one piece that has received nothing (G11).
"""

from __future__ import annotations

from shmcache.errors import ForkedError, StaleObjectError
from shmcache.handlers.tombstone import Tombstone
from shmcache.reader.sharding import bounds, shard_hash, uid_of
from shmcache.states import has_content

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from shmcache import _hot
    from shmcache.handlers.delivered import Batch, Known, Rows

    Keyed = _hot.Delta | Tombstone
    FeedEvent = tuple[int, Keyed, Any, Any, bool]
    """Kind, the holder of the key, old, new, and `initial` of an ADD or `unknown` of a DELETE."""
    Match = Callable[[Any], bool]

ADD, UPDATE, DELETE, _RECREATE = range(4)  # kinds in the tuple that a delta yields
REPLAY_PAGE = 256
KIND_NAMES = ("ADDED", "MODIFIED", "DELETED")


class Piece:
    """The keys after < key <= upto (None: unbounded), delivered up to the position `since`."""

    __slots__ = ("after", "since", "upto")

    def __init__(self, after: str | None, upto: str | None, since: int) -> None:
        self.after = after
        self.upto = upto
        self.since = since


class Feed:
    """The events of one registration. Used by one consumer at a time."""

    def __init__(
        self,
        known: Known,
        bit: int = -1,
        *,
        match: Match | None = None,
        namespace: str | None = None,
        shard: tuple[int, int] | None = None,
    ) -> None:
        self.known = known
        self.bit = bit
        self.shard = shard
        self.hashes = bounds(shard)
        self.position = 0
        self.end = 0
        self.pieces: list[Piece] | None = [Piece(None, None, 0)]
        self.generation = 0
        self.reader: _hot.Reader | None = None
        self.root: _hot.Root | None = None
        self.synced = False
        self._whole = False  # objects added from here on are news
        self.lapses = 0
        self.resumed = False  # it began where another process had come to
        self._match = match
        self._prefix = namespace + "/" if namespace else None
        self._plain = match is None and not namespace and shard is None
        self._noted_on: _hot.Reader | None = None  # the reader whose seat has this position
        self._ended: dict[str, str | None] = {}  # key, uid: only their end was delivered
        known.join(self)

    def close(self) -> None:
        """Releases everything kept for it."""
        self.known.leave(self)
        if self._noted_on is not None:
            self._noted_on.forget(id(self))

    def begin(self) -> None:
        """Starts from the beginning: delivers everything once more."""
        self.pieces = [Piece(None, None, 0)]
        self.synced = self._whole = self.resumed = False

    def resume(self, root: _hot.Root, record: int, position: int) -> None:
        """Continues after a position of this root's instance."""
        self.pieces = None
        self.position = self.known.enter(root, record) + position
        self.resumed = self._whole = True

    @property
    def whole(self) -> bool:
        """Whether the whole first content was there at its last delivery."""
        return self._whole

    # ---- the stream ------------------------------------------------------------------------------

    def drain(self) -> Iterator[FeedEvent]:
        """Everything there is to deliver now. An event counts as delivered at the next step."""
        there = False
        while not there:
            try:
                found = self.known.follow(self)
                if found is None:
                    there = yield from self._look()
                    continue
                root, deltas, offset, end = found
                self.root = root
                if self._plain:
                    for delta in deltas:
                        yield delta.told(True)
                        self.position = delta.number + offset + 1
                else:
                    yield from self._selected(deltas, offset, end)
                there = self._reached(root, offset, end, root.head + offset)
            except StaleObjectError:
                continue  # the writer needed the memory: the same again, from the latest state

    def _look(self) -> Generator[FeedEvent, None, bool]:
        """The events that one look finds; returns whether these are all."""
        batch = self.known.take(self)
        self.root = batch.root
        self._note(batch.root.reader, batch.offset, batch.deltas)
        if batch.unlisted:
            self.generation, self.reader = batch.root.generation, batch.root.reader
            return True  # a later generation may list it: the caller sleeps until there is one
        if batch.deltas is None:
            yield from self._difference(batch)
        elif self._plain:
            yield from self._deltas(batch.deltas, batch.offset, batch.end)
        else:
            yield from self._selected(batch.deltas, batch.offset, batch.end)
        if self.pieces is None and batch.end == batch.head:
            self._note_whole(batch)
        return self._reached(batch.root, batch.offset, batch.end, batch.head)

    def revoked(self) -> bool:
        """Whether the last yielded event cannot be read any more: the writer needed its memory."""
        return self.root is not None and not self.root.valid

    def rest(self) -> None:
        """Releases the last yielded event: a sleeper holds nothing back."""
        self.root = None

    def _reached(self, root: _hot.Root, offset: int, end: int, head: int) -> bool:
        """Whether everything was delivered."""
        if self.pieces is not None or end != head:
            return False
        self.position = end
        self.generation, self.reader = root.generation, root.reader
        self.synced = self._whole
        self._note(root.reader, offset, [])
        return True

    def _note(self, reader: _hot.Reader, offset: int, deltas: list[_hot.Delta] | None) -> None:
        """On the seat, for display: where it is, and whether there is something to do."""
        self._noted_on = reader
        position = self.position - offset
        busy = deltas is None or bool(deltas)
        self._noted_on.note(id(self), position, busy, len(deltas or ()), 0)

    def _note_whole(self, batch: Batch) -> None:
        if not self._whole and batch.record >= 0:
            self._whole = has_content(batch.root.record(batch.record))

    def _lapse(self, position: int) -> None:
        self.position = position
        self.pieces = [Piece(None, None, position)]

    # ---- along the ring --------------------------------------------------------------------------

    def _deltas(self, deltas: list[_hot.Delta], offset: int, end: int) -> Iterator[FeedEvent]:
        """For a feed without a selection."""
        behind = offset + 1
        for delta in deltas:
            event = delta.told(self._whole)
            if event[0] <= DELETE:
                yield event
            elif event[0] == _RECREATE:
                yield from self._recreated(delta)
            else:
                self._lapse(delta.number + offset)
                return
            self.position = delta.number + behind
        self.position = end

    def _recreated(self, delta: _hot.Delta) -> Iterator[FeedEvent]:
        old, new = delta.old, delta.new
        if self._tells_end(delta, old):
            yield DELETE, delta, old, None, True
            self._ended[str(delta.key)] = uid_of(old)
        if self._wants(new):
            yield ADD, delta, None, new, not self._whole
        self._ended.pop(str(delta.key), None)

    def _tells_end(self, delta: _hot.Delta, old: Any) -> bool:
        """Whether the end of an object that another one replaced is yet to be delivered."""
        return self._wants(old) and not self._end_delivered(str(delta.key), uid_of(old))

    def _end_delivered(self, key: str, uid: str | None) -> bool:
        return key in self._ended and self._ended[key] == uid

    def _wants(self, obj: Any) -> bool:
        if self.shard is not None:
            first, last = self.hashes
            if not first <= shard_hash(uid_of(obj)) <= last:
                return False
        return self._match is None or self._match(obj)

    def _selected(self, deltas: list[_hot.Delta], offset: int, end: int) -> Iterator[FeedEvent]:
        """For a selection: objects that enter it are added, objects that leave it deleted."""
        for delta in deltas:
            if delta.kind == "RELIST":
                self._lapse(delta.number + offset)
                return
            position = delta.number + offset
            key = str(delta.key)
            if self._prefix is None or key.startswith(self._prefix):
                if delta.recreated:
                    yield from self._recreated(delta)
                    self._remember(key, position + 1, delivered=self._wants(delta.new))
                else:
                    yield from self._transition(delta, key, position + 1)
            self.position = position + 1
        self.position = end

    def _transition(self, delta: _hot.Delta, key: str, position: int) -> Iterator[FeedEvent]:
        old, new = delta.old, delta.new
        match = self._match
        was = old is not None and (match is None or match(old))
        now = new is not None and (match is None or match(new))
        if was and now:
            yield UPDATE, delta, old, new, False
        elif now:
            yield ADD, delta, None, new, not self._whole
            self._remember(key, position, delivered=True)
        elif was:
            yield DELETE, delta, old, None, delta.unknown_final_state
            self._remember(key, position, delivered=False)

    def _remember(self, key: str, position: int, *, delivered: bool) -> None:
        if self.bit < 0:
            return
        if delivered:
            self.known.map.set_bit(key, self.bit, position)
        else:
            self.known.map.clear_bit(key, self.bit)

    # ---- by difference ---------------------------------------------------------------------------

    def _difference(self, batch: Batch) -> Iterator[FeedEvent]:
        """Missing events, in the order of keys; if interrupted, the pieces show how far it came."""
        pieces = self.behind()
        if any(piece.since for piece in pieces):
            self.lapses += 1
            position = self.position - batch.offset
            batch.root.reader.note(id(self), position, True, 0, 1)
        for piece, rows in zip(list(pieces), batch.rows, strict=True):
            yield from self._piece(batch, piece, rows, pieces)
        self.pieces = None
        self.position = self.end = batch.head
        self._note_whole(batch)

    def behind(self) -> list[Piece]:
        """The pieces of a feed that delivers a difference."""
        if self.pieces is None:
            self._lapse(self.position)
        return self.pieces or []

    def _piece(
        self, batch: Batch, piece: Piece, rows: Rows, pieces: list[Piece]
    ) -> Iterator[FeedEvent]:
        events = self._compared(batch, rows) if piece.since else self._replayed(batch, piece)
        done: Piece | None = None
        for key, event in events:
            if event is not None:
                yield event
                continue
            self._ended.pop(key, None)  # all of this key was delivered
            if done is None:
                done = Piece(piece.after, key, batch.head)
                pieces.insert(0, done)
            done.upto = piece.after = key
        piece.since = batch.head

    def _compared(self, batch: Batch, rows: Rows) -> Iterator[tuple[str, FeedEvent | None]]:
        """The missing events of each key, and None after them."""
        for number, row in enumerate(rows, 1):
            key = row[0]
            if self._prefix is None or key.startswith(self._prefix):
                for event in self._missing(batch, row):
                    yield key, event
            if number == len(rows) or rows[number][0] != key:  # else deleted, and added again
                yield key, None

    def _replayed(self, batch: Batch, piece: Piece) -> Iterator[tuple[str, FeedEvent | None]]:
        """The same for a feed that has delivered nothing: page by page, from the state."""
        after = piece.after
        while True:
            page = batch.root.scan(
                batch.record, prefix=self._prefix, after=after, limit=REPLAY_PAGE
            )
            for key, new in page:
                if batch.root.reader.forked:
                    raise ForkedError("a handler forked: its child receives nothing after that")
                if self._wants(new):
                    yield key, (ADD, Tombstone(key, None, None), None, new, True)
                    self._remember(key, batch.head, delivered=True)
                yield key, None
            if len(page) < REPLAY_PAGE:
                return
            after = page[-1][0]

    def _missing(
        self,
        batch: Batch,
        row: tuple[str, bool, bool, str | None, str | None],
    ) -> Iterator[FeedEvent]:
        key, alive, delivered, uid, version = row
        if not alive:
            if not self._end_delivered(key, uid):
                stone = Tombstone(key, uid, version)
                yield DELETE, stone, stone, None, True
            self._remember(key, batch.head, delivered=False)
            self._ended[key] = uid
            return
        new = batch.root.get(batch.record, key)
        now = self._match is None or self._match(new)
        stone = Tombstone(key, uid, None)
        if delivered and now:
            yield UPDATE, stone, stone, new, False
        elif delivered:
            yield DELETE, stone, stone, None, True
            self._remember(key, batch.head, delivered=False)
        elif now:
            yield ADD, stone, None, new, not self._whole
            self._remember(key, batch.head, delivered=True)

    # ---- the local cache once more ---------------------------------------------------------------

    def replay(self, after: str, limit: int) -> tuple[list[FeedEvent], str | None]:
        """Some objects delivered so far, as updates without a change, and the key to go on after.

        None behind the last one. Returns nothing while something new waits, and
        the key is the same: drain() comes first. So it is where the writer needed the memory.
        """
        try:
            return self._page(after, limit)
        except StaleObjectError:
            return [], after

    def _page(self, after: str, limit: int) -> tuple[list[FeedEvent], str | None]:
        batch = self.known.take(self)
        if batch.deltas is None or batch.deltas:
            return [], after
        if batch.unlisted:
            return [], None
        self.root = batch.root
        found = batch.root.scan(batch.record, prefix=self._prefix, after=after or None, limit=limit)
        rows: list[FeedEvent] = [
            (UPDATE, Tombstone(key, None, None), new, new, False)
            for key, new in found
            if self._wants(new)
        ]
        return rows, found[-1][0] if len(found) == limit else None
