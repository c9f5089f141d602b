"""Attaching to a cache and reading it: the latest state, snapshots, deltas, waiting.

A reader maps DATA read-only and claims one seat in SEATS; a dead reader's seat is given back by
the kernel. Objects are views: they stay whole while they are held, or raise StaleObjectError when
the writer had to reuse their memory - to keep an object for long, `.to_dict()` it.

A Cache and its resources follow their cache by themselves: to the next instance when the writer was
restarted, and into a child of fork(), which attaches for itself at the first use. Views, snapshots
and cursors belong to the instance and the process that they came from.
"""

from __future__ import annotations

import os
import time
from _thread import RLock

from shmcache import _hot, waiting
from shmcache._native import lib
from shmcache.attachment import Attachment
from shmcache.errors import SegmentNotFound
from shmcache.follow import Cursor
from shmcache.notice import Notice
from shmcache.resources import CachedResource
from shmcache.segments import Place
from shmcache.snapshot import Snapshot
from shmcache.succession import Succession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self, Unpack

    from shmcache.informer import Informer
    from shmcache.queue import QueueOptions, WorkQueue


def attach(
    name: str | None = None, *, timeout: float | None = None, trusted_uids: Iterable[int] = ()
) -> Cache:
    """The cache `name` (or of the environment's SHMCACHE_NAME), full from the first look-up on.

    Sleeps up to `timeout` seconds until there is such a cache; None does not wait.
    """
    if name is None:
        name = os.environ.get("SHMCACHE_NAME", "")
        if not name:
            raise ValueError("attach() needs a name, or SHMCACHE_NAME in the environment")
    place = Place(name, tuple(trusted_uids))
    return Cache(place) if not timeout else _await_cache(place, time.monotonic() + timeout)


def _await_cache(place: Place, deadline: float) -> Cache:
    with Notice(place) as notice:
        while True:
            notice.arm()
            try:
                return Cache(place)
            except SegmentNotFound:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            notice.wait(left)


class Cache:
    """One process's attachment to a cache. Thread-safe; close() ends it, views end with it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._reader = self._attach()
        self._numbers: tuple[_hot.Reader, dict[str, int]] = (self._reader, {})
        self._locks: dict[int, RLock] = {}
        self._known: dict[str, CachedResource] = {}
        self._informer: Informer | None = None
        self._queues: dict[str, WorkQueue] = {}

    def _attach(self) -> _hot.Reader:
        return Attachment(self._place, Succession(self._place)).reader()

    # ---- which instance ------------------------------------------------------------------------

    @property
    def reader(self) -> _hot.Reader:
        """Through which the cache is read now: in a child of fork() another one than the parent's.

        When the writer was restarted, that of the new instance, as soon as it holds what the old
        one held; while there is none, the old one goes on.
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
        """The reader, and the resource's number there. KeyError if it has none of the name."""
        reader = self.reader
        at, numbers = self._numbers
        if at is not reader or resource not in numbers:
            names = reader.root().names()
            numbers = {name: number for number, name in enumerate(names) if name}
            self._numbers = (reader, numbers)
        if resource in numbers:
            return reader, numbers[resource]
        known = ", ".join(numbers) or "none"
        raise KeyError(f"cache {self.name!r} has {known}, not {resource!r}")

    @property
    def name(self) -> str:
        """Of the cache; a directory's is its absolute path."""
        return self._place.name

    @property
    def place(self) -> Place:
        """Where its files are."""
        return self._place

    @property
    def instance(self) -> int:
        """Of the DATA segment: positions in the ring of another instance mean nothing here."""
        return self.reader.root().instance

    @property
    def latest(self) -> int:
        """The generation published last. It only rises, but for a writer that starts anew."""
        return self.reader.latest

    @property
    def seat(self) -> int:
        """This process's seat, for display."""
        held = waiting.attachment(self.reader)
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
        """The resource, always in its latest state. KeyError if the cache has none of the name."""
        found = self._known.get(resource)
        if found is None:
            found = self._known[resource] = CachedResource.of(self, resource)
        return found

    def __iter__(self) -> Iterator[str]:
        """The resources' names."""
        return iter(self.resources)

    def __contains__(self, resource: object) -> bool:
        return resource in self.resources

    def __repr__(self) -> str:
        if self.closed:
            return f"<shmcache.Cache {self.name!r}: closed>"
        return f"<shmcache.Cache {self.name!r}: {', '.join(self.resources) or 'no resources'}>"

    # ---- one state, and what follows ---------------------------------------------------------

    def snapshot(self, *, max_age: float | None = None, busy: bool = False) -> Snapshot:
        """One state of all resources and indices. A context manager; keep it for short.

        With `max_age`, CacheTooOld unless each resource's server was heard that recently; see
        CachedResource.too_old() for bounds below 90 s.
        """
        for name in self.resources if max_age is not None else ():
            error = self[name].too_old(max_age or 0, busy=busy)
            if error is not None:
                raise error
        return Snapshot(self.reader.root())

    def follow(self, resources: Iterable[str] | None = None, *, start: int | None = None) -> Cursor:
        """A cursor over the deltas of these resources (None: all) from `start` on.

        `start` is a position in the ring, as Snapshot.head; None is now: only what comes.
        """
        names = [resources] if isinstance(resources, str) else resources
        return Cursor(self, None if names is None else tuple(names), start)

    def wait(
        self,
        since: Cursor | int,
        timeout: float | None = None,
        resources: Iterable[str] | None = None,
    ) -> bool:
        """Sleeps until something was published after `since`; False if `timeout` seconds passed.

        `since` is a generation, or a cursor: then until it may have something to take. With
        `resources`, only changes of these count (others may wake, rarely). Signals are handled.
        """
        if isinstance(since, Cursor):
            cursor = since
            if cursor.ready():
                return True
            names = cursor.names if resources is None else resources
            since, reader = cursor.generation, cursor.reader
        else:
            names, reader = resources, self.reader
            if since > reader.latest:
                return True  # of an instance before this one
        interest = waiting.EVERYTHING if names is None else self._interest(names)
        if waiting.cooperative() is not None:
            return waiting.sleep(reader, interest, 0, since, timeout)
        called, start = waiting.calls(reader), time.monotonic()
        found = reader.wait(interest, 0, since, timeout, None)
        if found:
            return True  # what the news waits for is as short as it can be
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
        """wait() for one resource, on the reader that `since` is of.

        Does not begin if `unless()`, and wake() surely ends it then.
        """
        try:
            interest = self._interest(resource)
        except KeyError:  # the new instance does not have it, yet
            interest = waiting.EVERYTHING
        return waiting.sleep(reader, interest, 0, since, timeout, unless=unless)

    def wake(self) -> None:
        """Ends every wait() of this process now, as if its time were over; from any thread."""
        waiting.attachment(self.reader).called += 1
        self.nudge()

    def nudge(self) -> None:
        """Lets every sleeper look whether it is to end; the others sleep on."""
        held = waiting.attachment(self.reader)
        handle = held.use()
        lib.shmc_wake_self(handle)
        held.leave()

    def _interest(self, resources: Iterable[str]) -> int:
        names = [resources] if isinstance(resources, str) else resources
        return waiting.bits(self.locate(name)[1] for name in names)

    # ---- handlers ------------------------------------------------------------------------------

    @property
    def informer(self) -> Informer:
        """What runs the registrations; made when first asked for."""
        found = self._informer or self._make_informer()
        found.here()
        return found

    def _make_informer(self) -> Informer:
        from shmcache.informer import Informer

        with self._locks.setdefault(os.getpid(), RLock()):
            if self._informer is None:
                self._informer = Informer(self)
            return self._informer

    def look(self, resource: str) -> tuple[_hot.Root, int]:
        """The latest state, and the resource's number there: -1 if a new instance has none."""
        try:
            reader, number = self.locate(resource)
        except KeyError:
            reader, number = self.reader, -1
        return reader.root(), number

    def start(self) -> None:
        """Calls the handlers from now on, each registration in a thread. May be repeated."""
        self.informer.start()

    def run(self) -> None:
        """start(), until close() or SIGTERM or SIGINT; then ends in order. In the main thread."""
        from shmcache.foreground import run

        run(self)

    # ---- work ----------------------------------------------------------------------------------

    def queue(self, name: str, **options: Unpack[QueueOptions]) -> WorkQueue:
        """The work queue of this name, shared by all processes that ask for it: see WorkQueue.

        Options count for the first call in a process. close() of the cache closes it, too.
        """
        with self._locks.setdefault(os.getpid(), RLock()):
            found = self._queues.get(name)
            if found is None or found.closed:
                from shmcache.queue import WorkQueue

                found = self._queues[name] = WorkQueue(self._place, name, **options)
            return found

    # ---- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the attachment: all that came from it raises ClosedError from now on. Idempotent."""
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
            lib.shmc_wake_self(handle)  # who sleeps is told
        finally:
            held.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
