"""Attaching to a cache and reading it: the latest state, snapshots, deltas, waiting.

A reader maps DATA read-only and claims one seat in SEATS; the kernel releases the seat of a dead
reader. Objects are views: they stay whole while they are held, or raise StaleObjectError if the
writer had to reuse their memory. To keep an object for long, copy it with `.to_dict()`.

A Cache and its resources follow their cache: to the next instance after a restart of the writer,
and into a child of fork(), which attaches again at its first use. Views, snapshots and cursors
belong to the instance and the process that they came from.
"""

from __future__ import annotations

import os
import time
from _collections_abc import Iterable
from _thread import RLock

from shmcache import _hot
from shmcache._native import lib
from shmcache.errors import SegmentNotFound
from shmcache.memory.inotify import Notice
from shmcache.memory.segments import Place
from shmcache.reader import asking, holding, waiting
from shmcache.reader.attachment import Attachment
from shmcache.reader.cursor import Cursor
from shmcache.reader.resources import CachedResource
from shmcache.reader.snapshot import Snapshot
from shmcache.reader.succession import Succession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Self, Unpack

    from shmcache.handlers.informer import Informer
    from shmcache.models.lister import Wrapping
    from shmcache.queue.workqueue import QueueOptions, WorkQueue
    from shmcache.reader.past import PastSnapshot


_MAX_SECONDS = 1e9  # every wait of the system takes it


def attach(
    name: str | None = None,
    *,
    context: str | None = None,
    timeout: float | None = None,
    trusted_uids: Iterable[int] = (),
    models: Any = None,
) -> Cache:
    """Attaches to a cache; its stored objects can be read at once.

    `name`: the name of the cache, or a directory if it has a slash; by default SHMCACHE_NAME of the
    environment. `context`: the cache of this context, where one reflector has several; the name is
    then `shmcache` by default, as that of `shmcache run`. `timeout`: the seconds to sleep until
    there is such a cache; None does not wait.
    `trusted_uids`: owners besides root and this user whose files are accepted. `models`: a client
    library, such as "kubernetes", as whose models all objects read: see CachedResource.models().

    SegmentNotFound if no such cache exists, UntrustedSegment for files of other users, BusyError if
    all seats are taken.
    """
    if name is None:
        name = os.environ.get("SHMCACHE_NAME", "" if context is None else "shmcache")
        if not name:
            raise ValueError("attach() needs the name of a cache, or SHMCACHE_NAME to be set")
    if context is not None:
        from shmcache.memory.contexts import context_name

        name = context_name(name, context)
    seconds = _seconds(timeout)
    place = Place(name, _uids(trusted_uids))
    makes = _wrapping(models)
    found = Cache(place) if not seconds else _await_cache(place, time.monotonic() + seconds)
    found.makes = makes
    return found


def _wrapping(models: Any) -> Wrapping | None:
    if models is None:
        return None
    from shmcache.models.lister import wrapping

    return wrapping(models)


def _seconds(timeout: object) -> float:
    if timeout is None:
        return 0.0
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"attach(timeout=) must be a number of seconds or None, not {timeout!r}")
    if not timeout <= _MAX_SECONDS:
        raise ValueError(f"attach(timeout=) must be at most {_MAX_SECONDS:g} s, not {timeout!r}")
    return max(0.0, float(timeout))


def _uids(trusted: object) -> tuple[int, ...]:
    if isinstance(trusted, Iterable) and not isinstance(trusted, str | bytes):
        found = tuple(trusted)
        if all(isinstance(uid, int) and not isinstance(uid, bool) for uid in found):
            return found
    raise TypeError(f"attach(trusted_uids=) must be a list of numeric uids, not {trusted!r}")


def _await_cache(place: Place, deadline: float) -> Cache:
    with Notice(place) as notice:
        while True:
            notice.arm()
            try:
                return Cache(place)
            except SegmentNotFound:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise SegmentNotFound(place.missing(waited=True)) from None
            notice.wait(left)


class Cache:
    """One process's attachment to a cache. Thread-safe. Views end when it is closed."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._reader = self._attach()
        self._numbers: tuple[_hot.Reader, dict[str, int]] = (self._reader, {})
        self._locks: dict[int, RLock] = {}
        self._known: dict[str, CachedResource] = {}
        self._informer: Informer | None = None
        self._queues: dict[str, WorkQueue] = {}
        self.makes: Wrapping | None = None  # of attach(models=)

    def _attach(self) -> _hot.Reader:
        return Attachment(self._place, Succession(self._place)).reader()

    # ---- which instance ------------------------------------------------------------------------

    @property
    def reader(self) -> _hot.Reader:
        """The reader of the current instance; a child of fork() has another one than its parent.

        After a restart of the writer the reader of the old instance stays until the new instance
        holds the content of the old one.
        """
        reader = self._reader
        if reader.spent:
            with self._locks.setdefault(os.getpid(), RLock()):  # a child finds its own, open
                self._move()
            reader = self._reader
        return reader

    def _move(self) -> None:
        old = self._reader
        if not old.spent:
            return  # another thread was first
        owner: Attachment | None = old.owner  # type: ignore[assignment]
        if old.forked:
            found: _hot.Reader | None = self._attach()
        else:
            found = owner.succession.find(old) if owner and owner.succession else None
        if found is not None and self._reader is old:
            self._reader = found
            old.release()  # it goes with its last view

    def locate(self, resource: str) -> tuple[_hot.Reader, int]:
        """The reader, and the resource's number there. KeyError if it has no such resource.

        Besides its name in the cache, a resource has the server's names for it: po, Pod.
        """
        reader = self.reader
        at, numbers = self._numbers
        if at is not reader or resource not in numbers:
            numbers = self._number(reader.root(), resource)
        return reader, numbers[resource]

    def _number(self, root: _hot.Root, resource: str) -> dict[str, int]:
        """The numbers of a state's resources, kept for its instance. KeyError as in locate()."""
        numbers = {name: number for number, name in enumerate(root.names()) if name}
        if resource not in numbers:
            numbers[resource] = numbers[self._resolve(root, resource)]
        self._numbers = (root.reader, numbers)
        return numbers

    def _resolve(self, root: _hot.Root, typed: str) -> str:
        from shmcache.reader.resolving import one

        try:
            return one(root, typed)
        except KeyError as error:
            raise KeyError(f"cache {self.name!r}: {error.args[0]}") from None

    @property
    def name(self) -> str:
        """The name of the cache; for a directory its absolute path."""
        return self._place.name

    @property
    def place(self) -> Place:
        """The place of its files."""
        return self._place

    @property
    def instance(self) -> int:
        """The number of the DATA segment; positions in the ring of another instance are invalid."""
        return self.reader.root().instance

    @property
    def latest(self) -> int:
        """The last published generation. It only rises, except for a new instance."""
        return self.reader.latest

    @property
    def seat(self) -> int:
        """This process's seat, for display."""
        held = holding.attachment(self.reader)
        found = int(lib.shmc_reader_seat(held.use()))
        held.leave()
        return found

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._reader.closed

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of all resources, in the order of their declaration."""
        return tuple(name for name in self.reader.root().names() if name)

    def __getitem__(self, resource: str) -> CachedResource:
        """The resource, always in its latest state. KeyError if the cache does not have it.

        The name is that in the cache, or kubectl's: pods, po, deployments.apps, deploy.
        """
        found = self._known.get(resource)
        if found is None:
            if not isinstance(resource, str):
                raise TypeError(f"the name of a resource must be a str, not {resource!r}")
            found = CachedResource.of(self, resource)
            if self.makes is not None:
                from shmcache.models.lister import ModelResource

                found = ModelResource(found, self.makes)  # type: ignore[assignment]
            self._known[resource] = found
        return found

    def __iter__(self) -> Iterator[str]:
        """The resources' names."""
        return iter(self.resources)

    def __contains__(self, resource: object) -> bool:
        if resource in self.resources:
            return True
        try:
            self.locate(str(resource))
        except KeyError:
            return False
        return True

    def __getattr__(self, name: str) -> Any:
        hint = ""
        if not name.startswith("_") and name in self.resources:
            hint = f': resources are items, cache["{name}"]'
        raise AttributeError(f"a Cache has no attribute {name!r}{hint}", name=name, obj=self)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.resources)

    def __repr__(self) -> str:
        if self.closed:
            return f"<shmcache.Cache {self.name!r}: closed>"
        return f"<shmcache.Cache {self.name!r}: {', '.join(self.resources) or 'no resources'}>"

    # ---- one state, and what follows ---------------------------------------------------------

    def snapshot(
        self,
        *,
        max_age: float | None = None,
        busy: bool = False,
        consistent: Iterable[str] = (),
        timeout: float = asking.TIMEOUT,
    ) -> Snapshot:
        """One state of all resources and indices. A context manager; keep it for short.

        `max_age`: CacheTooOld unless the last contact of each resource with its server is at most
        so many seconds ago; CachedResource.too_old() explains `busy`, for bounds below 90 s.
        `consistent`: of these resources the state is at least as new as this call, as the reflector
        confirms within `timeout` seconds; otherwise UnconfirmedError.
        """
        at = asking.confirm(self, self._questions(consistent), timeout) if consistent else None
        for name in self.resources if max_age is not None else ():
            error = self[name].too_old(max_age or 0, busy=busy)
            if error is not None:
                raise error
        return Snapshot(self.reader.root() if at is None else at, self.makes)

    def at(
        self,
        version: str | None = None,
        *,
        seconds_ago: float | None = None,
        generation: int | None = None,
    ) -> PastSnapshot:
        """A past state: at a resourceVersion, some seconds ago, or of a generation. Exact.

        At a version each resource shows all its changes up to it. `seconds_ago`: the last state
        that the reflector noted by then, about one a second. PastUnknown if the ring does not lead
        back so far (ring_slots makes it longer).
        """
        from shmcache.reader.past import at

        return at(self, version, seconds_ago=seconds_ago, generation=generation)

    async def snapshot_async(
        self,
        consistent: Iterable[str],
        *,
        timeout: float = asking.TIMEOUT,
    ) -> Snapshot:
        """snapshot(consistent=...) for asyncio."""
        at = await asking.confirm_async(self, self._questions(consistent), timeout)
        return Snapshot(at, self.makes)

    def _questions(self, resources: Iterable[str]) -> list[asking.Question]:
        names = [resources] if isinstance(resources, str) else resources
        return [asking.Question(self[name].name) for name in names]

    def follow(self, resources: Iterable[str] | None = None, *, start: int | None = None) -> Cursor:
        """A cursor over the deltas of these resources (None: all) from `start` on.

        `start` is a position in the ring, such as Snapshot.head; None starts at the next change.
        """
        names = [resources] if isinstance(resources, str) else resources
        if names is not None and not isinstance(names, Iterable):
            raise TypeError(f"follow(resources=) must be names of resources, not {resources!r}")
        return Cursor(self, None if names is None else tuple(names), start)

    def wait(
        self,
        since: Cursor | int,
        timeout: float | None = None,
        resources: Iterable[str] | None = None,
    ) -> bool:
        """Sleeps until a publication after `since`; False if `timeout` seconds have passed.

        `since`: a generation, or a cursor; then it sleeps until the cursor may have deltas.
        `resources`: only changes of these count (others wake it rarely). Signal handlers run.
        """
        if isinstance(since, Cursor):
            cursor = since
            if cursor.ready():
                return True
            names = cursor.names if resources is None else resources
            since, reader = cursor.generation, cursor.reader
        else:
            names, reader = resources, self.reader
            if not isinstance(since, int):
                raise TypeError(f"wait(since=) must be a generation or a cursor, not {since!r}")
            if since > reader.latest:
                return True  # a generation of an earlier instance
        interest = waiting.EVERYTHING if names is None else self._interest(names)
        if waiting.cooperative() is not None:
            return waiting.sleep(reader, interest, 0, since, timeout)
        called, start = waiting.calls(reader), time.monotonic()
        found = reader.wait(interest, 0, since, timeout, None)
        if found:
            return True  # the shortest way, since the news waits for it
        left = None if timeout is None else timeout - (time.monotonic() - start)
        over = found is False and (
            (left is not None and left <= 0) or waiting.calls(reader) != called
        )
        return not over and waiting.sleep(reader, interest, 0, since, left)

    def sleep(
        self,
        resource: str,
        reader: _hot.Reader,
        since: int,
        timeout: float | None,
        unless: Callable[[], bool],
    ) -> bool:
        """wait() for one resource, on the reader that `since` belongs to.

        Does not begin if `unless()` is true; a wake() after that ends it.
        """
        try:
            interest = self._interest(resource)
        except KeyError:  # the new instance does not have it, yet
            interest = waiting.EVERYTHING
        return waiting.sleep(reader, interest, 0, since, timeout, unless=unless)

    def wake(self) -> None:
        """Ends every wait() of this process now, as if its timeout had passed; from any thread."""
        holding.attachment(self.reader).called += 1
        self.nudge()

    def nudge(self) -> None:
        """Makes every sleeper check whether it has to end; the others sleep on."""
        held = holding.attachment(self.reader)
        handle = held.use()
        lib.shmc_wake_self(handle)
        held.leave()

    def _interest(self, resources: Iterable[str]) -> int:
        names = [resources] if isinstance(resources, str) else resources
        return waiting.bits(self.locate(name)[1] for name in names)

    # ---- handlers ------------------------------------------------------------------------------

    @property
    def informer(self) -> Informer:
        """The informer that runs the registrations; made at its first use."""
        found = self._informer or self._make_informer()
        found.here()
        return found

    def _make_informer(self) -> Informer:
        from shmcache.handlers.informer import Informer

        with self._locks.setdefault(os.getpid(), RLock()):
            if self._informer is None:
                self._informer = Informer(self)
            return self._informer

    def look(self, resource: str) -> tuple[_hot.Root, int]:
        """The latest state, and the resource's number in that state; -1 if it is not there.

        A resource that is added just after that state comes with a later generation: a sleeper that
        waits for one misses nothing.
        """
        reader = self.reader
        at, numbers = self._numbers  # before the state, which has all that they have
        root = reader.root()
        if at is not reader or resource not in numbers:
            try:
                numbers = self._number(root, resource)
            except KeyError:
                return root, -1
        return root, numbers[resource]

    def start(self) -> None:
        """Starts to call handlers, each registration in a thread. May be repeated."""
        self.informer.start()

    def run(self) -> None:
        """start(), then runs until close(), SIGTERM or SIGINT. Only in the main thread."""
        from shmcache.handlers.foreground import run

        run(self)

    # ---- work ----------------------------------------------------------------------------------

    def queue(self, name: str, **options: Unpack[QueueOptions]) -> WorkQueue:
        """The work queue of this name, shared by all processes that open it: see WorkQueue.

        Options count at the first call in a process. close() of the cache closes the queue, too.
        """
        with self._locks.setdefault(os.getpid(), RLock()):
            found = self._queues.get(name)
            if found is None or found.closed:
                from shmcache.queue.workqueue import WorkQueue

                found = self._queues[name] = WorkQueue(self._place, name, **options)
            return found

    # ---- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the attachment: its views and handles raise ClosedError from now on. Idempotent."""
        reader = self._reader
        if reader.closed:
            return
        if self._informer is not None:
            self._informer.stop()
        for queue in self._queues.values():
            queue.close()
        held: Attachment | None = reader.owner  # type: ignore[assignment]
        if held is None:
            return
        handle = held.use()
        try:
            reader.close()
            lib.shmc_wake_self(handle)  # sleepers find the reader closed
        finally:
            held.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
