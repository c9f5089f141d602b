"""Waiting for a state of one object: each state that is published is seen, in its order.

    present state ──▸ deltas of the key ──▸ predicate ──▸ over
                        └─ lapsed, RELIST, another DATA ──▸ the latest state

UNTIL1  A wait has seen the state of a root, and then each delta of its key from that root's head
        on: nothing lies between the two.
UNTIL2  A delta is seen before the position moves behind it; a read that the writer made stale is
        repeated from that position, so a predicate may see one state twice, and skips none.
UNTIL3  Where the ring does not lead on, the latest state is compared with the last one that was
        seen: an object that ended meanwhile is reported as deleted (`unknown`), never passed over.
"""

from __future__ import annotations

from shmcache.callables import check_callable, is_coroutine_function
from shmcache.errors import Lapped, ObjectDeleted, StaleObjectError
from shmcache.handlers.tombstone import Tombstone
from shmcache.reader import waiting
from shmcache.reader.sharding import uid_of
from shmcache.states import has_content

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from shmcache import _hot
    from shmcache.reader.awaiting import Predicate, Reached
    from shmcache.reader.cache import Cache

    class Follower(Protocol):
        """Anything that sleeps at a generation of a reader."""

        @property
        def reader(self) -> _hot.Reader | None:
            """The reader of the last look."""

        @property
        def generation(self) -> int:
            """The generation whose deltas were all dealt with."""


BATCH = 512  # deltas taken at once


class KeyWait:
    """One wait for a key: the predicate, the last state that it saw, and its outcome."""

    __slots__ = ("absent", "alive", "error", "found", "key", "over", "predicate", "since", "uid")

    def __init__(self, key: object, predicate: Predicate, *, absent: bool) -> None:
        if not isinstance(key, str):
            raise TypeError(f"the key must be a str such as 'prod/web-0', not {key!r}")
        check_callable(predicate, "predicate")
        if is_coroutine_function(predicate):
            raise TypeError("predicate must be a plain function: it only looks at the object")
        self.key = key
        self.predicate = predicate
        self.absent = absent
        self.since = 0
        self.alive = False
        self.uid: str | None = None
        self.over = False
        self.found: Reached = None
        self.error: BaseException | None = None

    def result(self) -> Reached:
        """The state that was reached; None if the time was over before."""
        if self.error is not None:
            raise self.error
        return self.found

    def fail(self, error: BaseException) -> None:
        """The wait ends with this error."""
        if not self.over:
            self.over, self.error = True, error

    # ---- states, in their order ------------------------------------------------------------------

    def present(self, root: _hot.Root, number: int) -> None:
        """The first state, or the latest one after a lapse (UNTIL3)."""
        obj = root.get(number, self.key)
        if obj is None:
            if self.alive:
                self._ended(Tombstone(self.key, self.uid, None), root, unknown=True)
            elif self.absent:
                self._ask(None, root)
            return
        if self.alive and uid_of(obj) != self.uid:
            self._ended(Tombstone(self.key, self.uid, None), root, unknown=True)
        self._there(obj, root)

    def changed(self, delta: _hot.Delta, root: _hot.Root) -> None:
        """One delta of the key (UNTIL2)."""
        old, new = delta.old, delta.new
        if new is None or delta.recreated:
            unknown = delta.recreated or delta.unknown_final_state
            self.alive = True
            self._ended(old, root, unknown=unknown)
        if new is not None:
            self._there(new, root)

    def _there(self, obj: Any, root: _hot.Root) -> None:
        if not self.over:
            self.alive, self.uid = True, uid_of(obj)
            self._ask(obj, root)

    def _ended(self, last: Any, root: _hot.Root, *, unknown: bool) -> None:
        if self.over:
            return
        if self.absent:
            self._ask(None, root, last)
        else:
            self.fail(ObjectDeleted(self.key, last, unknown))
        self.alive = False

    def _ask(self, obj: Any, root: _hot.Root, last: Any = None) -> None:
        try:
            reached = self.predicate(obj)
        except StaleObjectError as error:
            if not root.valid:
                raise  # the writer needed the memory: the same again
            self.fail(error)
        except BaseException as error:  # noqa: BLE001 - the waiter's own: it is raised there
            self.fail(error)
        else:
            if reached:
                self.over = True
                self.found = obj if obj is not None else self._stone(last)

    def _stone(self, last: Any) -> Tombstone:
        uid = self.uid if last is None else uid_of(last)
        return Tombstone(self.key, uid, None)


class KeyWatch:
    """The waits of one resource that share a position in the ring. For one thread at a time."""

    def __init__(self, cache: Cache, resource: str) -> None:
        self.cache = cache
        self.resource = resource
        self.waits: dict[str, list[KeyWait]] = {}
        self.reader: _hot.Reader | None = None
        self.generation = 0
        self._instance = 0
        self._position = 0

    def join(self, wait: KeyWait) -> None:
        """Shows the present state; deltas after it follow with look() (UNTIL1)."""
        while True:
            root, number = self.cache.look(self.resource)
            try:
                if number >= 0:
                    wait.present(root, number)
                break
            except StaleObjectError:
                continue
        wait.since = root.head
        if not self.waits:
            self._instance, self._position = root.instance, root.head
            self.reader, self.generation = root.reader, root.generation
        self.waits.setdefault(wait.key, []).append(wait)

    def leave(self, wait: KeyWait) -> None:
        """Forgets a wait, however it ended."""
        here = self.waits.get(wait.key, [])
        if wait in here:
            here.remove(wait)
        if not here:
            self.waits.pop(wait.key, None)
        if not self.waits and self.reader is not None:
            self.reader.forget(id(self))

    def look(self) -> bool:
        """Shows the next deltas; whether these were all there are now."""
        root, number = self.cache.look(self.resource)
        try:
            lapsed = self._advance(root, number)
        except StaleObjectError:
            return False
        if self._instance == root.instance:
            root.reader.note(id(self), self._position, self._position != root.head, 0, int(lapsed))
            if self._position != root.head:
                return False
        self.reader, self.generation = root.reader, root.generation
        return True

    def _advance(self, root: _hot.Root, number: int) -> bool:
        """One step along the ring, or over a gap of it; whether it was a gap."""
        if root.instance != self._instance:
            if number >= 0 and has_content(root.record(number)):  # else: until it is listed there
                self._lapse(root, number)
                return True
            return False
        try:
            deltas, end = root.take(self._position, BATCH, (number,))
        except Lapped:
            self._lapse(root, number)
            return True
        for delta in deltas:
            if delta.kind == "RELIST":
                self._lapse(root, number)
                return True
            for wait in self.waits.get(str(delta.key), ()):
                if delta.number >= wait.since and not wait.over:
                    wait.changed(delta, root)
            self._position = delta.number + 1
        self._position = end
        return False

    def _lapse(self, root: _hot.Root, number: int) -> None:
        for waits in self.waits.values():
            for wait in waits:
                if not wait.over:
                    wait.present(root, number)
                wait.since = root.head
        self._instance, self._position = root.instance, root.head


def wait_until(
    cache: Cache,
    resource: str,
    key: str,
    predicate: Predicate,
    timeout: float | None,
    *,
    absent: bool,
) -> Reached:
    """See AwaitableResource.wait_until()."""
    waiting.check_seconds("timeout", timeout)
    wait = KeyWait(key, predicate, absent=absent)
    watch = KeyWatch(cache, resource)
    watch.join(wait)

    def over() -> bool:
        while not wait.over and not watch.look():
            pass
        return wait.over

    def where() -> tuple[_hot.Reader, int, int]:
        try:
            reader, number = cache.locate(resource)
        except KeyError:  # the new instance does not have it, yet
            return cache.reader, waiting.EVERYTHING, 0
        return reader, waiting.bits((number,)), 0

    try:
        waiting.until(over, where, timeout)
    finally:
        watch.leave(wait)
    return wait.result()
