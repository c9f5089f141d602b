"""Declaring a controller: what it reads, what makes its keys dirty, how many work on them.

    @shmcache.controller("deployments.apps", owns=["replicasets.apps"], processes=4)
    def reconcile(key, cache):
        ...                                # None | Requeue(after=...) ; raises -> tried again

    if __name__ == "__main__":
        sys.exit(reconcile.run("shmcache"))

A declaration starts nothing and attaches to nothing: the module can be imported anywhere, forked,
and its reconcile called as the function that it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from shmcache.callables import check_callable, is_coroutine_function
from shmcache.controllers.predicates import Predicate
from shmcache.controllers.rows import PROCESSES, RUNNERS
from shmcache.controllers.sources import (
    Mapper,
    Owns,
    Sources,
    Type,
    Watches,
    check_predicates,
)
from shmcache.lease.settings import LeaseSettings
from shmcache.reader.sharding import bounds

if TYPE_CHECKING:
    from shmcache.controllers.numbers import Numbers
    from shmcache.controllers.worker import Worker
    from shmcache.queue.workqueue import WorkQueue
    from shmcache.reader.cache import Cache

LABEL_LENGTH = 63
"""Of a label's value, at most."""
Reconcile = Callable[[str, Any], Any]
WatchSpecs = Mapping[str, Mapper] | Watches | Iterable[Watches]

_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-")


def _named(function: Any) -> Any:
    """The function, or the class, that a partial or an object with __call__ was made of."""
    while isinstance(function, partial):
        function = function.func
    return function if hasattr(function, "__qualname__") else type(function)


class Controller:
    """A declared controller. Callable as the function that it was made of."""

    def __init__(
        self,
        function: Reconcile,
        sources: Sources,
        *,
        name: str,
        processes: int,
        concurrency: int,
        time_limit: float | None,
        sync_timeout: float,
        catch_up: float,
        settle: float,
        recover: Callable[[str, Any], object] | None,
        leader: LeaseSettings | None,
        machines: LeaseSettings | None,
    ) -> None:
        if not name or not _NAME.issuperset(name) or len(name) > 100:
            raise ValueError(
                f"a controller's name must have letters a-z, digits, '.' or '-', not {name!r}"
            )
        if not 1 <= processes <= PROCESSES or not 1 <= concurrency <= RUNNERS:
            raise ValueError(
                f"processes must be 1 to {PROCESSES}, and concurrency 1 to {RUNNERS}, "
                f"not {processes!r} and {concurrency!r}"
            )
        self.asynchronous = is_coroutine_function(function)
        check_callable(function, f"the reconcile of {name}")
        if recover is not None:
            check_callable(recover, "recover")
            if is_coroutine_function(recover) and not self.asynchronous:
                raise TypeError("recover is a coroutine function, and the reconcile is not")
        self.function = function
        self.sources = sources
        self.name = name
        self.processes = processes
        self.concurrency = concurrency
        self.time_limit = time_limit
        self.sync_timeout = sync_timeout
        self.catch_up = catch_up
        self.settle = settle
        self.recover = recover
        self.leader = leader
        self.machines = machines
        named: Any = _named(function)
        self.__module__ = named.__module__
        self.__qualname__ = named.__qualname__
        self.__name__ = named.__name__
        self.__doc__ = named.__doc__

    def __call__(self, key: str, cache: Any) -> Any:
        """Calls the function: nothing else happens."""
        return self.function(key, cache)

    def __reduce__(self) -> str:
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is not self:
            raise TypeError(
                f"{self!r} is not {self.__module__}.{self.__qualname__}: cannot be sent"
            )
        return str(self.__qualname__)

    def __repr__(self) -> str:
        return f"<shmcache controller {self.name}: {self.processes} x {self.concurrency}>"

    @property
    def shared(self) -> bool:
        """Whether a Lease decides on which machine a key is reconciled."""
        return self.leader is not None or self.machines is not None

    def queue(self, cache: Cache) -> WorkQueue:
        """Its work queue, shared by all its processes: to add keys, or to look at its stats()."""
        return cache.queue(self.name, rate=None, keep=True, workers=2 * PROCESSES)

    def numbers(self, cache: Cache | str) -> Numbers:
        """The counts of all processes: see Numbers, and its text() for Prometheus."""
        from shmcache.controllers.board import Board
        from shmcache.controllers.numbers import Numbers
        from shmcache.memory.segments import Place

        board = Board(Place(cache) if isinstance(cache, str) else cache.place, self.name)
        try:
            return Numbers(board)
        finally:
            board.close()

    def run(self, cache: str | None = None, **options: Any) -> int:
        """run_controllers() with this one alone."""
        from shmcache.controllers.running import run_controllers

        return run_controllers(self, cache=cache, **options)

    def start(self, cache: Cache, *, resume: bool = False) -> Worker:
        """Works in threads of this process, next to its other work; stop() and join() end it.

        For processes that something else supervises. The time limit of a plain function has no
        effect here. NotCached if the cache lacks a resource. All objects are reconciled, also by
        processes that run already; with `resume` only those that changed since the last run.
        """
        from shmcache.controllers.worker import Worker

        if self.shared:
            raise ValueError(
                f"controller {self.name!r} has a Lease, which the processes of run() keep: run it, "
                "or declare it without and start it within shmcache.leader()"
            )
        worker = Worker(self, cache)
        if not resume:
            worker.part.board.want_all()
        worker.start()
        return worker


def controller(
    resource: str,
    *,
    owns: str | Owns | Iterable[str | Owns] = (),
    watches: WatchSpecs = (),
    predicates: Iterable[Predicate] = (),
    processes: int = 1,
    concurrency: int = 1,
    name: str | None = None,
    kind: str | None = None,
    shard: tuple[int, int] | None = None,
    time_limit: float | None = None,
    sync_timeout: float = 120.0,
    catch_up: float = 5.0,
    settle: float = 1.0,
    recover: Callable[[str, Any], object] | None = None,
    leader: str | LeaseSettings | None = None,
    machines: str | LeaseSettings | None = None,
) -> Callable[[Reconcile], Controller]:
    """Makes a controller of reconcile(key, cache), which may be a coroutine function.

    Keys are those of `resource` (namespace/name). `owns`: resources whose objects name their owner;
    `watches`: {resource: function(obj, cache) -> keys}. `predicates` are asked of events of the
    resource itself; Owns and Watches have their own. `kind` is that of a custom resource, learned
    from its objects otherwise. `shard` (i, n): only the i-th of n parts of the keys.

    A reconcile that takes longer than `time_limit` seconds is cancelled, if it is a coroutine; of a
    function, its process ends and another one gets the key. `catch_up`: how long a key waits
    for the cache to show its own writes, before other keys go first. When a worker died in a key,
    recover(key, cache) returns as soon as the cache agrees with the server; without it, the key
    waits for `settle` seconds.

    For several machines, each with its cache: with `leader`, the name of a Lease or its settings,
    one of them works; with `machines`, all do, each on its share of the keys.
    """
    bounds(shard)  # ValueError for anything but a shard
    check_predicates(predicates := tuple(predicates))
    specs: Iterable[Watches]
    if isinstance(watches, Mapping):
        specs = [Watches(watched, keys) for watched, keys in watches.items()]
    else:
        specs = [watches] if isinstance(watches, Watches) else watches
    lease, group = _settings(leader), _settings(machines)
    if lease is not None and group is not None:
        raise ValueError(
            "leader= and machines= exclude each other: one machine works, or all share the keys"
        )
    if group is not None and len(group.name) > LABEL_LENGTH:
        raise ValueError(f"the name of machines= must have at most {LABEL_LENGTH} letters")
    listed = [owns] if isinstance(owns, str | Owns) else owns
    owned = tuple(Owns(one) if isinstance(one, str) else one for one in listed)
    sources = Sources(Type(resource, kind), predicates, owned, tuple(specs), shard)

    def declare(function: Reconcile) -> Controller:
        return Controller(
            function,
            sources,
            name=name or resource.replace("/", "-"),
            processes=processes,
            concurrency=concurrency,
            time_limit=time_limit,
            sync_timeout=sync_timeout,
            catch_up=catch_up,
            settle=settle,
            recover=recover,
            leader=lease,
            machines=group,
        )

    return declare


def _settings(lease: str | LeaseSettings | None) -> LeaseSettings | None:
    return LeaseSettings(lease) if isinstance(lease, str) else lease
