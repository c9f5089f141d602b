"""Attaching to a cache and reading it: the latest state, snapshots, deltas, waiting.

A reader maps DATA read-only and claims one seat in SEATS; a dead reader's seat is given back by
the kernel. Objects are views: they stay whole while they are held, or raise StaleObjectError when
the writer had to reuse their memory - to keep an object for long, `.to_dict()` it.

After fork, handles of the parent refuse to work in the child (ForkedError): attach there.
"""

from __future__ import annotations

import os
import time

from shmcache import _hot, _native, waiting
from shmcache._native import check, ffi, lib
from shmcache.errors import BusyError, ClosedError, SegmentNotFound
from shmcache.follow import Cursor
from shmcache.mapping import Attached
from shmcache.resources import CachedResource
from shmcache.segments import Place, boot_id
from shmcache.snapshot import Snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from shmcache.informer import Informer

_POLL_SECONDS = 0.02  # for a cache that does not exist yet: there is nothing to sleep on


def attach(
    name: str | None = None, *, timeout: float | None = None, trusted_uids: Iterable[int] = ()
) -> Cache:
    """The cache `name` (or of the environment's SHMCACHE_NAME), full from the first look-up on.

    Waits up to `timeout` seconds for a cache that does not exist yet; None does not wait.
    """
    if name is None:
        name = os.environ.get("SHMCACHE_NAME", "")
        if not name:
            raise ValueError("attach() needs a name, or SHMCACHE_NAME in the environment")
    place = Place(name, tuple(trusted_uids))
    deadline = time.monotonic() + (timeout or 0)
    while True:
        try:
            return Cache(place)
        except SegmentNotFound:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_SECONDS)


class _Attachment:
    """The seat and the maps under it; given back when the last view has gone."""

    __slots__ = ("_handle", "_idle", "_users", "name", "segments")

    def __init__(self, place: Place) -> None:
        self.name = place.name
        self.segments = Attached(place, boot_id())
        made = ffi.new("struct shmc_reader **")
        try:
            status = lib.shmc_reader_create(self.segments.data, self.segments.seats, made)
            if status == _native.BUSY:
                raise BusyError(
                    f"cache {place.name!r}: all seats are taken: end some readers, or start the "
                    "writer with more (seats=)"
                )
            check(status, f"attaching to cache {place.name!r}")
        except BaseException:
            self.segments.close()
            raise
        self.segments.guarded = True  # by the core, which closes the seat's descriptor in a child
        self._handle: list[_native.ReaderHandle] = [made[0]]
        self._users: list[None] = []  # calls under way that gave the GIL away
        self._idle = False

    def use(self) -> _native.ReaderHandle:
        """The handle, which stays until leave()."""
        self._users.append(None)
        if self._idle:
            self.leave()
            raise ClosedError(f"cache {self.name!r} is closed")
        return self._handle[0]

    def leave(self) -> None:
        """Ends a use; the last one gives back what was released meanwhile."""
        self._users.pop()
        if self._idle and not self._users:
            self._give_back()

    def release(self) -> None:
        """Leaves the seat and unmaps, once nobody uses the handle. Called by `_hot`."""
        self._idle = True
        if not self._users:
            self._give_back()

    def _give_back(self) -> None:
        try:
            handle = self._handle.pop()  # two threads may come here: one gets it
        except IndexError:
            return
        lib.shmc_reader_destroy(handle)
        self.segments.close()


class Cache:
    """One process's attachment to a cache. Thread-safe; close() ends it, views end with it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._attachment = attachment = _Attachment(place)
        self._address = _native.address(attachment.use())
        attachment.leave()
        self._reader = _hot.Reader(self._address, attachment, attachment.release)
        self._ids: dict[str, int] = {}
        self._known: dict[str, CachedResource] = {}
        self._informer: Informer | None = None

    @property
    def name(self) -> str:
        """Of the cache; a directory's is its absolute path."""
        return self._place.name

    @property
    def instance(self) -> int:
        """Of the DATA segment: positions in the ring of another instance mean nothing here."""
        return self._reader.root().instance

    @property
    def latest(self) -> int:
        """The generation published last. It only rises."""
        return self._reader.latest

    @property
    def seat(self) -> int:
        """This process's seat, for display."""
        handle = self._use()
        try:
            return int(lib.shmc_reader_seat(handle))
        finally:
            self._attachment.leave()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._reader.closed

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of all resources, in the order of their declaration."""
        return tuple(self._reader.root().names())

    def __getitem__(self, resource: str) -> CachedResource:
        """The resource, always in its latest state. KeyError if the cache has none of the name."""
        found = self._known.get(resource)
        if found is None:
            found = CachedResource(self._reader, self._id(resource))
            found.cache = self
            self._known[resource] = found
        return found

    def __contains__(self, resource: object) -> bool:
        return resource in self.resources

    def __repr__(self) -> str:
        if self.closed:
            return f"<shmcache.Cache {self.name!r}: closed>"
        return f"<shmcache.Cache {self.name!r}: {', '.join(self.resources) or 'no resources'}>"

    def _id(self, resource: str) -> int:
        if resource not in self._ids:
            self._ids = {name: number for number, name in enumerate(self._reader.root().names())}
        try:
            return self._ids[resource]
        except KeyError:
            known = ", ".join(self._ids) or "none"
            raise KeyError(f"cache {self.name!r} has {known}, not {resource!r}") from None

    def _use(self) -> _native.ReaderHandle:
        """The handle; self._attachment.leave() is due."""
        handle: _native.ReaderHandle = waiting.attachment(self._reader).use()
        return handle

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
        return Snapshot(self, self._reader.root())

    def follow(self, resources: Iterable[str] | None = None, *, start: int | None = None) -> Cursor:
        """A cursor over the deltas of these resources (None: all) from `start` on.

        `start` is a position in the ring, as Snapshot.head; None is now: only what comes.
        """
        return Cursor(self._reader, self._wanted(resources), start)

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
            if since.ready():
                return True
            wanted = since.resources if resources is None else self._wanted(resources)
            since = since.generation
        else:
            wanted = self._wanted(resources)
        interest = waiting.EVERYTHING if wanted is None else waiting.bits(wanted)
        return waiting.sleep(self._reader, interest, 0, since, timeout)

    def sleep(
        self, resource: str, since: int, timeout: float | None, unless: Callable[[], bool]
    ) -> bool:
        """wait() for one resource. Does not begin if `unless()`, and wake() surely ends it then."""
        interest = 1 << (self._id(resource) & 63)
        return waiting.sleep(self._reader, interest, 0, since, timeout, unless=unless)

    def wake(self) -> None:
        """Ends every wait() of this process now, as if its time were over; from any thread."""
        lib.shmc_wake_self(self._use())
        self._attachment.leave()

    def _wanted(self, resources: Iterable[str] | None) -> frozenset[int] | None:
        if resources is None:
            return None
        return frozenset(map(self._id, [resources] if isinstance(resources, str) else resources))

    # ---- handlers ------------------------------------------------------------------------------

    @property
    def informer(self) -> Informer:
        """What runs the registrations; made when first asked for."""
        if self._informer is None:
            from shmcache.informer import Informer

            self._informer = Informer(self)
        self._informer.here()
        return self._informer

    def look(self, resource: str) -> tuple[_hot.Root, int]:
        """The latest state, and the resource's number there."""
        return self._reader.root(), self._id(resource)

    def start(self) -> None:
        """Calls the handlers from now on, each registration in a thread. May be repeated."""
        self.informer.start()

    def run(self) -> None:
        """start(), until close() or SIGTERM or SIGINT; then ends in order. In the main thread."""
        from shmcache.foreground import run

        run(self)

    # ---- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the attachment: all that came from it raises ClosedError from now on. Idempotent."""
        if self._reader.closed:
            return
        if self._informer is not None:
            self._informer.stop()
        handle = self._attachment.use()
        try:
            self._reader.close()
            lib.shmc_wake_self(handle)  # who sleeps is told
        finally:
            self._attachment.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
