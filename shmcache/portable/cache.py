"""Reading a portable cache: attach(), the latest state, snapshots, lists, indices and waits."""

from __future__ import annotations

import os
import time
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, Self

from shmcache import states
from shmcache.errors import CacheTooOld, ClosedError, ObjectDeleted
from shmcache.handlers.tombstone import Tombstone
from shmcache.portable.feed import PrivateFeed, PrivateWanted
from shmcache.portable.handlers import PrivateEvents, PrivateRegistration, sleep_until
from shmcache.portable.missing import lacking
from shmcache.portable.objects import View
from shmcache.portable.store import PrivateState, PrivateStore, PrivateTable, find_store
from shmcache.protocol import versions
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.reader.sharding import uid_of

Labels = LabelSelector | Mapping[str, str] | str
Fields = FieldSelector | str
Views = list[View]
Strings = list[str]
Items = list[tuple[str, View]]

_warned = False


def attach(
    name: str | None = None,
    *,
    context: str | None = None,
    timeout: float | None = None,
    trusted_uids: Iterable[int] = (),  # noqa: ARG001 - files have owners, this cache has none
    models: Any = None,
) -> PrivateCache:
    """Attaches to a cache of this process; waits `timeout` seconds for it at most."""
    global _warned  # noqa: PLW0603 - once for a process
    if models is not None:
        lacking("attach(models=)")
    if name is None:
        name = os.environ.get("SHMCACHE_NAME", "" if context is None else "shmcache")
        if not name:
            raise ValueError("attach() needs the name of a cache, or SHMCACHE_NAME to be set")
    if context is not None:
        name = f"{name}-{context}"
    found = PrivateCache(find_store(name, max(0.0, timeout or 0.0)))
    if not _warned:
        _warned = True
        warnings.warn(
            "this cache is private to its process: caches are shared on Linux only",
            RuntimeWarning,
            stacklevel=2,
        )
    return found


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


class PrivateSnapshot:
    """One state of all resources. A context manager."""

    def __init__(self, state: PrivateState) -> None:
        self._state: PrivateState | None = state

    def _open(self) -> PrivateState:
        if self._state is None:
            raise ClosedError("the snapshot is closed")
        return self._state

    @property
    def generation(self) -> int:
        """The number of the state."""
        return self._open().generation

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of all resources."""
        return tuple(self._open().tables)

    @property
    def resource_versions(self) -> dict[str, str | None]:
        """The resourceVersion of each resource."""
        return {name: table.version for name, table in self._open().tables.items()}

    def __getitem__(self, resource: str) -> PrivateResource:
        """The resource as it was."""
        table = _named(self._open(), resource)
        return PrivateResource(table.name, lambda: self._open().tables[table.name], None)

    def __contains__(self, resource: object) -> bool:
        return resource in self._open().tables

    def close(self) -> None:
        """Idempotent."""
        self._state = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PrivateCache:
    """This process's view of one of its caches. Thread-safe."""

    def __init__(self, store: PrivateStore) -> None:
        self.store = store
        self.closed = False
        self._registrations: list[PrivateRegistration] = []
        self._started = False

    @property
    def name(self) -> str:
        """The name of the cache."""
        return self.store.name

    @property
    def latest(self) -> int:
        """The last published generation."""
        return self.state().generation

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of all resources, in the order of their declaration."""
        return tuple(self.state().tables)

    def state(self) -> PrivateState:
        """The latest state. ClosedError after close()."""
        if self.closed:
            raise ClosedError(f"the cache {self.name} is closed")
        return self.store.state

    def __getitem__(self, resource: str) -> PrivateResource:
        """The resource, always in its latest state. KeyError if the cache does not have it."""
        name = _named(self.state(), resource).name
        return PrivateResource(name, lambda: self.state().tables[name], self)

    def __iter__(self) -> Iterator[str]:
        return iter(self.resources)

    def __contains__(self, resource: object) -> bool:
        return resource in self.state().tables

    def snapshot(
        self,
        *,
        max_age: float | None = None,
        busy: bool = False,
        consistent: Iterable[str] = (),
        timeout: float = 0.0,  # noqa: ARG002 - nothing is asked
    ) -> PrivateSnapshot:
        """One state of all resources and indices."""
        if consistent:
            lacking("snapshot(consistent=...)")
        for name in self.resources if max_age is not None else ():
            error = self[name].too_old(max_age or 0, busy=busy)
            if error is not None:
                raise error
        return PrivateSnapshot(self.state())

    def wait(
        self, since: int, timeout: float | None = None, resources: Iterable[str] | None = None
    ) -> bool:
        """Sleeps until a publication after `since`; False if `timeout` seconds have passed."""
        before = None if resources is None else {name: self[name]._table for name in resources}  # noqa: SLF001

        def news() -> bool:
            state = self.store.state
            if before is not None:
                return any(state.tables[name] is not table for name, table in before.items())
            return self.closed or state.generation > since

        return self.store.wait(news, timeout) and not self.closed

    # ---- handlers ------------------------------------------------------------------------------

    def register(
        self,
        resource: str,
        functions: tuple[Any, Any, Any],
        wanted: PrivateWanted,
        *,
        resync: float | None,
        name: str | None,
    ) -> PrivateRegistration:
        """A registration, which runs from start() on."""
        made = PrivateRegistration(
            self.store, resource, functions, wanted, resync=resync, name=name
        )
        self._registrations.append(made)
        if self._started:
            made.start()
        return made

    def start(self) -> None:
        """Starts to call handlers, each registration in a thread. May be repeated."""
        self.state()
        self._started = True
        for registration in self._registrations:
            registration.start()

    def run(self) -> None:
        """start(), then runs until close() or ctrl-C."""
        self.start()
        try:
            while not self.store.wait(lambda: self.closed, 0.5):
                pass
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Ends its handlers and waits; reads raise ClosedError from now on. Idempotent."""
        self.closed = True
        for registration in self._registrations:
            registration.remove()
        with self.store.changed:
            self.store.changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> NoReturn:
        if name in {"at", "follow", "queue", "snapshot_async"}:
            lacking(f"Cache.{name}()")
        raise AttributeError(f"a Cache has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<shmcache.portable.Cache {self.name!r}>"


def _named(state: PrivateState, typed: str) -> PrivateTable:
    """The resource of this name, or of one of kubectl's for it: po, deploy, Pod."""
    table = state.tables.get(typed)
    if table is not None:
        return table
    from shmcache.protocol import naming
    from shmcache.protocol.describing import known_as

    kinds = {name: known_as(name, {}) for name in state.tables}
    try:
        found = naming.resolve(typed, kinds)
    except (naming.UnknownName, naming.AmbiguousName) as error:
        raise KeyError(str(error)) from None
    if len(found) != 1:
        raise KeyError(f"{typed!r} means several resources: {', '.join(found)}")
    return state.tables[found[0]]


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
    from itertools import islice

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
