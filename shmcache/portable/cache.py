"""A portable cache: attach(), the latest state, snapshots, waits, its handlers' life."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, Self

from shmcache.errors import ClosedError
from shmcache.portable.feed import PrivateWanted
from shmcache.portable.handlers import PrivateRegistration
from shmcache.portable.missing import lacking
from shmcache.portable.resource import PrivateResource
from shmcache.portable.store import PrivateState, PrivateStore, PrivateTable, find_store

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
        names = None
        if resources is not None:
            names = [_named(self.state(), name).name for name in resources]

        def news() -> bool:
            state = self.store.state
            if names is not None:
                return any(state.tables[name].generation > since for name in names)
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
