"""Durable consumers: a named point in the changes of a resource, which outlives its process.

    acknowledged point ──▸ deltas from there ──▸ events ──▸ acknowledge ──▸ file
            └─ lapped, RELIST, another DATA, another selection ──▸ difference ──▸ events

The file (cursorfile.py) has the point in the ring and the identity of each object that the consumer
has. Where the ring does not lead on, the events are the difference between those objects and the
cache: so a consumer misses no object and no end of one, however long it was away.

CONSUME1  An event is decided by the objects that the consumer has, after the events before it; not
          by the object before a change. An event that comes twice is the same event.
CONSUME2  The point moves behind a delta when its last event is acknowledged; it moves behind a
          difference when all of that is. Until then a successor meets the same gap, and receives
          the rest of it: acknowledged events are among the objects that the consumer has.
CONSUME3  take() begins at the first event that is not acknowledged, so at most one batch waits.
CONSUME4  No difference is taken to a resource that is not listed: it would end everything.
"""

from __future__ import annotations

import os
from itertools import islice

from shmcache.errors import ClosedError, ForkedError, Lapped, StaleObjectError
from shmcache.handlers.cursorfile import CursorFile
from shmcache.handlers.tombstone import Tombstone
from shmcache.reader import waiting
from shmcache.reader.sharding import metadata_of, uid_of
from shmcache.states import has_content

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Any, Literal, Self

    from shmcache import _hot
    from shmcache.handlers.cursorfile import Identity, RingPoint
    from shmcache.reader.cache import Cache

    Wants = Callable[[str, Any], bool]

BATCH = 512
_PAGE = 256
_ABSENT = object()


class ConsumedEvent:
    """One change, as a durable consumer receives it."""

    __slots__ = ("_done", "_identity", "_point", "initial", "key", "new", "old", "type", "unknown")

    type: Literal["ADDED", "MODIFIED", "LEFT", "DELETED"]
    """LEFT: the object exists, and is not selected any more. DELETED: it does not exist."""
    key: str
    old: Any
    """The object before; a Tombstone if that is gone; None for an added object."""
    new: Any
    """The object now; None for a deleted one."""
    initial: bool
    """Added, and part of the first content of this consumer: no news."""
    unknown: bool
    """The change was found by the difference: states in between were missed."""

    def __init__(
        self,
        kind: Literal["ADDED", "MODIFIED", "LEFT", "DELETED"],
        key: str,
        old: Any,
        new: Any,
        point: RingPoint | None,
        *,
        initial: bool = False,
        unknown: bool = False,
    ) -> None:
        self.type = kind
        self.key = key
        self.old = old
        self.new = new
        self.initial = initial
        self.unknown = unknown
        self._point = point
        self._done = False
        self._identity = _identity(new) if kind in {"ADDED", "MODIFIED"} else None

    @property
    def object(self) -> Any:
        """The object now, or as it was last."""
        return self.old if self.new is None else self.new

    def __repr__(self) -> str:
        return f"<shmcache.ConsumedEvent {self.type} {self.key}>"


class Consumer:
    """A durable consumer of one resource: see CachedResource.consumer(). For one thread."""

    def __init__(self, cache: Cache, resource: str, file: CursorFile, wants: Wants) -> None:
        self._cache = cache
        self._resource = resource
        self._file = file
        self._wants = wants
        self._pid = os.getpid()
        self._batch: list[ConsumedEvent] = []
        self._given = 0  # events of the batch that the last take() returned, or the loop gave
        self._after: dict[str, Identity | None] = {}  # of the batch: what the consumer has then
        self._point = file.point
        self._root: _hot.Root | None = None
        self._difference: Iterator[ConsumedEvent] | None = None
        self._closed = False
        self.lapses = 0
        """How often the ring did not lead on, and it received a difference."""
        self.reader: _hot.Reader | None = None
        self.generation = 0

    # ---- for the user ----------------------------------------------------------------------------

    def take(self, limit: int = BATCH, timeout: float | None = None) -> list[ConsumedEvent]:
        """The next events, at least one; empty if `timeout` seconds passed (0 does not sleep).

        Unacknowledged events come again, first. Events are views, like all objects.
        """
        found: list[ConsumedEvent] = []

        def there() -> bool:
            found[:] = self._next(limit)
            return bool(found)

        waiting.until(there, self._where, timeout)
        return found

    async def take_async(
        self, limit: int = BATCH, timeout: float | None = None
    ) -> list[ConsumedEvent]:
        """take() on asyncio."""
        import asyncio

        from shmcache.handlers.aio import bell_of

        waiting.check_seconds("timeout", timeout)
        bell = bell_of(self._cache.informer)
        end = asyncio.timeout(timeout)
        try:
            async with end:
                while not (found := self._next(limit)):
                    await bell.wait(self)
                return found
        except TimeoutError:
            if not end.expired():
                raise
            return self._next(limit)

    def acknowledge(self, event: ConsumedEvent | None = None) -> None:
        """This event of the last take(), and all before it, are dealt with (None: all of them).

        They do not come again, in any process. OSError if the file cannot be written: they are not
        acknowledged then.
        """
        self._check()
        batch = self._batch
        if event is None:
            count = min(self._given, len(batch))
        else:
            count = next((n for n, one in enumerate(batch, 1) if one is event), 0)
            if not count:
                raise ValueError(f"{event!r} is not an event of the last take()")
        if not count:
            return  # all of them were acknowledged before
        changes = {one.key: one._identity for one in batch[:count]}  # noqa: SLF001
        point = batch[count - 1]._point  # noqa: SLF001
        if count == len(batch) and self._difference is None:
            point = self._point  # also behind changes of no interest
        self._file.append(changes, point)
        batch[count - 1]._done = True  # noqa: SLF001
        del batch[:count]
        self._given = max(0, self._given - count)
        if not batch:
            self._after.clear()

    def __iter__(self) -> Iterator[ConsumedEvent]:
        """Each event, for ever; an event is acknowledged before the next one is taken."""
        while True:
            for event in self.take():
                self._given = 1  # acknowledge() is about this one
                yield event
                if not event._done:  # noqa: SLF001 - else the caller did it
                    self.acknowledge(event)

    async def __aiter__(self) -> AsyncIterator[ConsumedEvent]:
        """Each event on asyncio, acknowledged as in a plain loop."""
        while True:
            for event in await self.take_async():
                self._given = 1
                yield event
                if not event._done:  # noqa: SLF001 - else the caller did it
                    self.acknowledge(event)

    def close(self) -> None:
        """Lets another process go on. Unacknowledged events come again there. Idempotent."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if not self._batch and not self._cache.closed:
            self._store()
        self._file.close()
        self._batch, self._root, self._difference = [], None, None
        if self.reader is not None and not self.reader.closed:
            self.reader.forget(id(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._file.known)} objects"
        return f"<shmcache.Consumer {self._file.path} of {self._resource}: {state}>"

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ForkedError("the consumer belongs to the parent process: open one here")
        if self._closed:
            raise ClosedError(f"the consumer of {self._file.path} is closed")

    def _where(self) -> tuple[_hot.Reader, int, int]:
        try:
            reader, number = self._cache.locate(self._resource)
        except KeyError:  # the new instance does not have it, yet
            return self._cache.reader, waiting.EVERYTHING, 0
        return reader, waiting.bits((number,)), 0

    # ---- batches ---------------------------------------------------------------------------------

    def _next(self, limit: int) -> list[ConsumedEvent]:
        """The next events, if there are any now (CONSUME3)."""
        self._check()
        if limit < 1:
            raise ValueError(f"take(limit=) must be at least 1, not {limit!r}")
        if self._cache.closed:
            raise ClosedError(f"cache {self._cache.name!r} is closed")
        if self._batch:
            if self._root is not None and self._root.valid:
                return self._give(limit)
            self._again()
        while True:
            try:
                done = self._fill(limit)
            except StaleObjectError:
                self._again()  # the writer needed the memory
                continue
            if self._batch:
                return self._give(limit)
            if done:
                self._store()
                self._root = None  # a sleeper holds nothing back
                return []

    def _give(self, limit: int) -> list[ConsumedEvent]:
        given = self._batch[:limit]
        self._given = len(given)
        return given

    def _again(self) -> None:
        """Everything that is not acknowledged, from the latest state."""
        self._batch, self._root, self._difference = [], None, None
        self._given = 0
        self._after.clear()
        self._point = self._file.point

    def _fill(self, limit: int) -> bool:
        """Events of one look, if it finds some; whether there is nothing further now."""
        if self._difference is not None and self._root is not None:
            return self._fill_difference(self._root, limit)
        root, number = self._cache.look(self._resource)
        self._root = root
        listed = number >= 0 and has_content(root.record(number))
        deltas = self._deltas(root, number, limit)
        if deltas is None:
            if not listed:
                self.reader, self.generation = root.reader, root.generation
                return True  # CONSUME4
            self.lapses += self._file.point is not None
            self._difference = self._missing(root, number)
            return self._fill_difference(root, limit)
        found, end = deltas
        point = (root.instance, end)
        for delta in found:
            if delta.kind == "RELIST":
                point = (root.instance, delta.number)
                break
            self._batch += self._of_delta(delta, root.instance)
        self._point = point
        over = point[1] == root.head
        if over and not self._batch:
            self.reader, self.generation = root.reader, root.generation
        root.reader.note(id(self), self._point[1], bool(self._batch) or not over, len(found), 0)
        return over

    def _deltas(
        self, root: _hot.Root, number: int, limit: int
    ) -> tuple[list[_hot.Delta], int] | None:
        """The deltas from its point on; None if the ring does not lead on from there."""
        if self._point is None or self._point[0] != root.instance:
            return None  # else the resource has had a number in this instance
        try:
            found, end = root.take(self._point[1], limit, (number,))
        except Lapped:
            return None
        return None if found and found[0].kind == "RELIST" else (found, end)

    def _fill_difference(self, root: _hot.Root, limit: int) -> bool:
        """The next part of a difference; behind its last event the ring goes on."""
        assert self._difference is not None
        if not root.valid:
            raise StaleObjectError("the difference")
        self._batch = list(islice(self._difference, limit))
        if len(self._batch) < limit:
            self._difference = None
            self._point = (root.instance, root.head)  # acknowledged with the last event: CONSUME2
        return False

    def _store(self) -> None:
        """The point behind changes of no interest: from there the ring leads on for longer."""
        if self._point is not None and self._point != self._file.point:
            self._file.append({}, self._point)

    # ---- events ----------------------------------------------------------------------------------

    def _has(self, key: str) -> Identity | None:
        """The identity of the object that the consumer has after the events so far (CONSUME1)."""
        found: Any = self._after.get(key, _ABSENT)
        return self._file.known.get(key) if found is _ABSENT else found

    def _of_delta(self, delta: _hot.Delta, instance: int) -> list[ConsumedEvent]:
        key = str(delta.key)
        before, behind = (instance, delta.number), (instance, delta.number + 1)
        return self._changed(
            key,
            delta.old,
            delta.new,
            before,
            behind,
            initial=False,
            unknown=delta.unknown_final_state,
        )

    def _changed(
        self,
        key: str,
        old: Any,
        new: Any,
        before: RingPoint | None,
        behind: RingPoint | None,
        *,
        initial: bool,
        unknown: bool,
    ) -> list[ConsumedEvent]:
        """The events between the object that the consumer has and this one; two of two uids."""
        had, events = self._has(key), []
        now = new is not None and self._wants(key, new)
        if had is not None and new is not None and had[0] != uid_of(new):
            point = behind if not now else before
            events.append(ConsumedEvent("DELETED", key, old, None, point, unknown=True))
            had = None
        if had is not None and now:
            made = ConsumedEvent("MODIFIED", key, old, new, behind, unknown=unknown)
            events.append(made)
        elif had is not None:
            kind: Literal["LEFT", "DELETED"] = "DELETED" if new is None else "LEFT"
            events.append(ConsumedEvent(kind, key, old, new, behind, unknown=unknown))
        elif now:
            events.append(ConsumedEvent("ADDED", key, None, new, behind, initial=initial))
        if events:
            self._after[key] = events[-1]._identity  # noqa: SLF001
        return events

    def _missing(self, root: _hot.Root, number: int) -> Iterator[ConsumedEvent]:
        """The difference: ends first, then the objects in the order of their keys."""
        stone: Tombstone | None
        for key, identity in list(self._file.known.items()):
            if root.get(number, key) is None:
                stone = Tombstone(key, *identity)
                yield from self._changed(key, stone, None, None, None, initial=False, unknown=True)
        after, initial = None, not self._file.whole
        while True:
            page = root.scan(number, after=after, limit=_PAGE)
            for key, new in page:
                had = self._has(key)
                if had is not None and had == _identity(new) and self._same(key, new):
                    continue
                stone = None if had is None else Tombstone(key, *had)
                yield from self._changed(key, stone, new, None, None, initial=initial, unknown=True)
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def _same(self, key: str, new: Any) -> bool:
        """Whether an object of the same identity is still selected, and known to be unchanged."""
        return _identity(new)[1] is not None and self._wants(key, new)


def _identity(obj: Any) -> Identity:
    version = metadata_of(obj).get("resourceVersion")
    return uid_of(obj), version if isinstance(version, str) else None
