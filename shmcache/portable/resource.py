"""One resource of a portable cache: look-ups, lists, indices, freshness, waits."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from shmcache import states
from shmcache.errors import CacheTooOld, ClosedError, ObjectDeleted
from shmcache.handlers.tombstone import Tombstone
from shmcache.portable.feed import PrivateFeed, PrivateWanted
from shmcache.portable.handlers import PrivateEvents, PrivateRegistration, sleep_until
from shmcache.portable.missing import lacking
from shmcache.portable.objects import View
from shmcache.portable.store import PrivateTable
from shmcache.protocol import versions
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.reader.sharding import uid_of

if TYPE_CHECKING:
    from shmcache.portable.cache import PrivateCache

Labels = LabelSelector | Mapping[str, str] | str
Fields = FieldSelector | str
Views = list[View]
Strings = list[str]
Items = list[tuple[str, View]]


class PrivateResource:
    """A read-only mapping of keys to views, ordered by key, with indices."""

    def __init__(
        self, name: str, table: Callable[[], PrivateTable], cache: PrivateCache | None
    ) -> None:
        self.name = name
        self._find = table
        self._of = cache

    @property
    def _table(self) -> PrivateTable:
        return self._find()

    @property
    def cache(self) -> PrivateCache:
        """The cache whose latest state it shows."""
        if self._of is None:
            raise ValueError(f"{self.name}: a snapshot does not move: wait on the cache's resource")
        return self._of

    # ---- a mapping -----------------------------------------------------------------------------

    def __getitem__(self, key: str) -> View:
        return self._table.objects[key]

    def __contains__(self, key: object) -> bool:
        return key in self._table.objects

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._table.order()))

    def __len__(self) -> int:
        return len(self._table.objects)

    def keys(self) -> Strings:
        """All keys, in order."""
        return list(self._table.order())

    def values(self) -> Views:
        """All objects, in the order of their keys."""
        return self.list()

    def items(self) -> Items:
        """All keys and objects, in order."""
        return self.range()

    def get(
        self,
        key: str,
        default: Any = None,
        *,
        namespace: str | None = None,
        max_age: float | None = None,
        fallback: Callable[[], Any] | None = None,
        busy: bool = False,
        consistent: bool = False,
        timeout: float = 0.0,  # noqa: ARG002 - nothing is asked
    ) -> Any:
        """The object of a key, or the default."""
        if consistent:
            lacking("get(consistent=True)")
        error = None if max_age is None else self.too_old(max_age, busy=busy)
        if error is not None:
            return _instead(error, fallback)
        whole = key if namespace is None else f"{namespace}/{key}"
        return self._table.objects.get(whole, default)

    # ---- lists ---------------------------------------------------------------------------------

    def list(
        self,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
        *,
        after: str | None = None,
        limit: int = 0,
        shard: tuple[int, int] | None = None,
        max_age: float | None = None,
        fallback: Callable[[], Any] | None = None,
        busy: bool = False,
        consistent: bool = False,
        timeout: float = 0.0,  # noqa: ARG002 - nothing is asked
    ) -> Views:
        """The selected objects of one state, in key order."""
        if consistent:
            lacking("list(consistent=True)")
        error = None if max_age is None else self.too_old(max_age, busy=busy)
        if error is not None:
            found: Views = _instead(error, fallback)
            return found
        wanted, table = PrivateWanted(namespace, labels, fields, shard), self._table
        selected = (
            table.objects[key]
            for key in _bounded(table.order(), after=after)
            if wanted.selects(key, table.objects[key])
        )
        return _first(selected, limit)

    def range(
        self,
        start: str | None = None,
        stop: str | None = None,
        *,
        after: str | None = None,
        limit: int = 0,
    ) -> Items:
        """(key, object) with start <= key < stop, in order; at most `limit`, after `after`."""
        table = self._table
        keys = _bounded(table.order(), start, stop, after)
        return _first(((key, table.objects[key]) for key in keys), limit)

    @property
    def indices(self) -> tuple[str, ...]:
        """The names of the indices, in the order of their declaration."""
        return tuple(self._table.specs)

    def by_index(
        self, index: str, value: str, *, after: str | None = None, limit: int = 0
    ) -> Views:
        """The objects with this value in an index, in key order."""
        table = self._table
        keys = _bounded(table.map_of(index).get(value, []), after=after)
        return _first((table.objects[key] for key in keys), limit)

    def index_keys(
        self, index: str, value: str, *, after: str | None = None, limit: int = 0
    ) -> Strings:
        """The keys of by_index(), without the objects."""
        keys = self._table.map_of(index).get(value, [])
        return _first(_bounded(keys, after=after), limit)

    def index_values(
        self, index: str, *, prefix: str | None = None, after: str | None = None, limit: int = 0
    ) -> Strings:
        """The distinct values of an index, in order."""
        values = sorted(self._table.map_of(index), key=str.encode)
        some = (one for one in _bounded(values, after=after) if one.startswith(prefix or ""))
        return _first(some, limit)

    def owned_by(self, uid: str) -> Views:
        """The objects with an owner of this UID, in key order."""
        return [
            obj
            for obj in self.list()
            if any(one.get("uid") == uid for one in obj["metadata"].get("ownerReferences", ()))
        ]

    # ---- freshness -----------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """Whether its first list is stored."""
        return self._table.synced

    @property
    def status(self) -> PrivateStatus:
        """State, version and age, now."""
        return PrivateStatus(self._table)

    @property
    def age(self) -> float | None:
        """Seconds since the last contact with the server; None if unknown."""
        return self.status.age

    def too_old(self, max_age: float, *, busy: bool = False) -> CacheTooOld | None:  # noqa: ARG002
        """The error of a read that accepts this age at most; None if the read may go on."""
        age = self.age
        if age is not None and age <= max_age:
            return None
        text = "unknown" if age is None else f"{age:.1f} s"
        return CacheTooOld(f"{self.name}: the age is {text}, at most {max_age:g} s are accepted")

    # ---- waits ---------------------------------------------------------------------------------

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Sleeps until the first list is stored; False if `timeout` seconds passed."""
        return self._wait(lambda: self.synced, timeout)

    async def wait_synced_async(self, timeout: float | None = None) -> bool:
        """wait_synced() on asyncio."""
        return await sleep_until(self.cache.store, lambda: self.synced, timeout)

    def wait_for(self, version: str, timeout: float | None = None) -> bool:
        """Sleeps until the content is at least at this resourceVersion: read your own write."""
        return self._wait(self._reached(version), timeout)

    async def wait_for_async(self, version: str, timeout: float | None = None) -> bool:
        """wait_for() on asyncio."""
        return await sleep_until(self.cache.store, self._reached(version), timeout)

    def wait_deleted(
        self, key: str, uid: str, timeout: float | None = None, *, version: str | None = None
    ) -> bool:
        """Sleeps until the key has no object of this UID (it may have another one)."""
        return self._wait(self._gone(key, uid, version), timeout)

    async def wait_deleted_async(
        self, key: str, uid: str, timeout: float | None = None, *, version: str | None = None
    ) -> bool:
        """wait_deleted() on asyncio."""
        return await sleep_until(self.cache.store, self._gone(key, uid, version), timeout)

    def wait_until(
        self,
        key: str,
        predicate: Callable[[Any], object],
        timeout: float | None = None,
        *,
        absent: bool = False,
    ) -> View | Tombstone | None:
        """Sleeps until the predicate is true of an object, and returns that state of it.

        The predicate sees the present state, then each state that is published. None: `timeout`
        seconds passed. A deletion ends the wait with ObjectDeleted, unless `absent`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with PrivateFeed(self.cache.store, self.name, PrivateWanted(), changes_only=True) as feed:
            reached, found = _reached_by(predicate, key, feed.table.objects.get(key), absent=absent)
            while not reached:
                change = feed.take(None if deadline is None else deadline - time.monotonic())
                if change is None:
                    if self.cache.closed:
                        raise ClosedError(f"the cache {self.cache.name} is closed")
                    return None
                if change.key == key:
                    if change.new is None and not absent:
                        raise ObjectDeleted(key, change.old, change.unknown)
                    reached, found = _reached_by(predicate, key, change.new, absent=absent)
            return found

    def _wait(self, fact: Callable[[], bool], timeout: float | None) -> bool:
        return self.cache.store.wait(fact, timeout)

    def _reached(self, version: str) -> Callable[[], bool]:
        if not versions.is_version(version):
            raise ValueError(f"{version!r} is not a resourceVersion")

        def reached() -> bool:
            found = self._table.version
            return found is not None and int(found) >= int(version)

        return reached

    def _gone(self, key: str, uid: str, version: str | None) -> Callable[[], bool]:
        reached = self._reached(version) if version is not None else None

        def gone() -> bool:
            found = self._table.objects.get(key)
            return (reached is None or reached()) and (found is None or uid_of(found) != uid)

        return gone

    # ---- handlers ------------------------------------------------------------------------------

    def add_handler(
        self,
        on_add: Callable[[Any, bool], object] | None = None,
        on_update: Callable[[Any, Any], object] | None = None,
        on_delete: Callable[[Any, bool], object] | None = None,
        *,
        labels: Labels | None = None,
        fields: Fields | None = None,
        namespace: str | None = None,
        resync: float | None = None,
        shard: tuple[int, int] | None = None,
        name: str | None = None,
    ) -> PrivateRegistration:
        """Calls these for every change, after one on_add for each existing object."""
        wanted = PrivateWanted(namespace, labels, fields, shard)
        return self.cache.register(
            self.name, (on_add, on_update, on_delete), wanted, resync=resync, name=name
        )

    def events(
        self,
        *,
        labels: Labels | None = None,
        fields: Fields | None = None,
        namespace: str | None = None,
        shard: tuple[int, int] | None = None,
    ) -> PrivateEvents:
        """`async for event in pods.events()`: the events of a registration, on asyncio."""
        return PrivateEvents(
            self.cache.store, self.name, PrivateWanted(namespace, labels, fields, shard)
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name in _ONLY_SHARED:
            lacking(f"CachedResource.{name}()")
        raise AttributeError(f"a resource has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<shmcache.portable.Resource {self.name}: {len(self)} objects>"


_ONLY_SHARED = frozenset(
    ("consumer", "explain", "frame", "get_async", "group_by", "list_async", "models", "owner_of",
     "record", "scan", "scan_index", "wait_until_async")
)  # fmt: skip
"""Methods of a CachedResource that this one does not have."""


class PrivateStatus:
    """A resource and its source at one moment."""

    def __init__(self, table: PrivateTable) -> None:
        now = time.monotonic()
        self.state = states.NAMES[table.state]
        self.reason = table.reason
        self.since = now - table.since
        self.synced = table.synced
        self.version = table.version
        self.age = None if table.contact is None else max(0.0, now - table.contact)
        self.objects = len(table.objects)

    def __repr__(self) -> str:
        return f"<shmcache.portable.Status: {self.state}, {self.objects} objects>"


def _bounded(
    keys: list[str], start: str | None = None, stop: str | None = None, after: str | None = None
) -> Strings:
    """Keys in their order, from `start` or after `after`, and before `stop`."""
    low = bisect_left(keys, start.encode(), key=str.encode) if start is not None else 0
    if after is not None:
        low = max(low, bisect_right(keys, after.encode(), key=str.encode))
    high = bisect_left(keys, stop.encode(), key=str.encode) if stop is not None else len(keys)
    return keys[low:high]


def _first(found: Iterable[Any], limit: int) -> list[Any]:
    if limit < 0:
        raise ValueError(f"limit must be at least 0, not {limit}")
    return list(islice(found, limit or None))


def _instead(error: Exception, fallback: Callable[[], Any] | None) -> Any:
    if fallback is None:
        raise error
    return fallback()


def _reached_by(
    predicate: Callable[[Any], object], key: str, obj: View | None, *, absent: bool
) -> tuple[bool, View | Tombstone | None]:
    """Whether a state is the wanted one, and what wait_until() returns for it."""
    if obj is None:
        return bool(absent and predicate(None)), Tombstone(key, None, None)
    return bool(predicate(obj)), obj
