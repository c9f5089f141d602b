"""The file of a work queue: made by the first process that asks for it, found by the others.

    shmcache-v6-pods.deployments+apps.queue      queue "deployments.apps" of the cache "pods"

It is next to the cache's files and belongs to the user that made it; the writer never touches it.
It is made whole under another name and then linked, so that nobody finds half of one. Opening takes
turns by a kernel lock. The last process to leave removes it if no key is left in it.
"""

from __future__ import annotations

import errno
import os
import time

from shmcache import _hot, _native
from shmcache._native import check, ffi, lib
from shmcache.errors import BusyError, CorruptSegment, LayoutMismatch, SegmentNotFound
from shmcache.memory.companions import HALF_QUEUE, QUEUE, is_used

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.memory.segments import Place

    Settings = tuple[int, int, int]
    """Slots, tickets of a priority (0: as many as are useful) and seats of a queue to be made."""

MAX_NAME = 100
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/")
_PATIENCE = 10.0
_TURN = 0.002  # seconds between two checks for our turn to open
_HEAL = 2.0  # seconds in which a user of a queue with a damaged header rewrites it


def check_name(name: str) -> str:
    """The name itself, or a ValueError that describes valid names."""
    if not isinstance(name, str):
        raise TypeError(f"a queue's name must be a str, not {name!r}")
    if not name or len(name) > MAX_NAME or not _ALLOWED.issuperset(name):
        raise ValueError(
            f"a queue's name must have 1 to {MAX_NAME} letters, digits, '.', '_', '-' or '/', "
            f"not {name!r}"
        )
    return name


def file_of(place: Place, name: str) -> str:
    """The file's name: without dots of its own, so that it belongs to one cache only."""
    return f"{place.stem}.{name.replace('.', '+').replace('/', '=')}{QUEUE}"


def _longest() -> int:
    """No queue's file is made longer."""
    backed = ffi.new("uint64_t *")
    return int(lib.shmc_queue_size(lib.SHMC_QUEUE_SLOTS_MAX, 0, lib.SHMC_SEATS_MAX, backed))


class QueueFile:
    """One open queue: its map, its two descriptions, its handle. Closed once nobody uses it."""

    __slots__ = ("_fds", "_handle", "_pid", "_segment", "_users", "file", "keep", "place")

    def __init__(self, place: Place, name: str, settings: Settings) -> None:
        self.place = place
        self.file = file_of(place, check_name(name))
        self._fds: list[int] = []
        self._segment = _native.new_segment()
        self._handle: list[object] = []
        self._users: list[None] = []
        self._pid = os.getpid()
        self.keep = False  # if empty, as long as there is the cache: it has positions of feeders
        try:
            self._open(settings)
        except BaseException:
            self._unmap()
            raise

    # ---- opening ---------------------------------------------------------------------------------

    def _open(self, settings: Settings) -> None:
        deadline = time.monotonic() + _PATIENCE
        heal: float | None = None
        while True:
            lock = self._take_turn(settings, deadline)
            try:
                self._attach(lock)
            except (CorruptSegment, LayoutMismatch):
                if not is_used(lock):
                    self.place.location.unlink(self.file)  # nobody's: another one is made
                else:
                    heal = heal or time.monotonic() + _HEAL
                    if time.monotonic() > heal:
                        raise
                self._unmap()
                time.sleep(_TURN)
            else:
                check(lib.shmc_unlock_byte(lock, lib.SHMC_QUEUE_OPEN), "opening a queue")
                return

    def _take_turn(self, settings: Settings, deadline: float) -> int:
        """A description that holds the lock of opening, of the file that has the name now."""
        location = self.place.location
        while True:
            try:
                fd = self._description()
            except SegmentNotFound:
                self._make(settings)
                continue
            status = lib.shmc_lock_byte(fd, lib.SHMC_QUEUE_OPEN)
            found = os.fstat(fd)
            if status == _native.OK and location.identity(self.file) == (
                found.st_dev,
                found.st_ino,
            ):
                return fd
            self._close_one()
            if status not in (_native.OK, _native.BUSY):
                check(status, f"opening queue {self.file}")
            if time.monotonic() > deadline:
                raise BusyError(
                    f"queue {self.file}: another process is opening it and does not continue"
                )
            time.sleep(_TURN)

    def _description(self) -> int:
        """One more of the file; a child of fork() closes it before it could keep a lock alive."""
        fd = self.place.open_shared(self.file)
        self._fds.append(fd)
        check(lib.shmc_close_in_child(fd), f"opening queue {self.file}")
        return fd

    def _close_one(self) -> None:
        fd = self._fds.pop()
        lib.shmc_keep_in_child(fd)
        os.close(fd)

    def _attach(self, lock: int) -> None:
        doing = f"opening queue {self.file}"
        seat = self._description()
        size = min(os.fstat(seat).st_size or 1, _longest())  # somebody may have made it longer
        self._segment = _native.map_segment(seat, size, writable=True, doing=doing)
        made = ffi.new("struct shmc_queue **")
        status = lib.shmc_queue_open(self._segment, seat, lock, made)
        if status == _native.BUSY:
            raise BusyError(f"queue {self.file}: all its seats are taken (workers= of its maker)")
        check(status, doing)
        self._handle.append(made[0])

    def _make(self, settings: Settings) -> None:
        """Makes the file, unless another process is faster."""
        slots, _, seats = settings
        backed = ffi.new("uint64_t *")
        size = int(lib.shmc_queue_size(*settings, backed))
        if not size:
            raise ValueError(
                "a queue must have a power of two of slots from 64 to "
                f"{lib.SHMC_QUEUE_SLOTS_MAX:,}, and 1 to 1,024 workers, not {slots!r} and {seats!r}"
            )
        half = f"{self.file[: -len(QUEUE)]}-{os.urandom(8).hex()}{HALF_QUEUE}"
        location = self.place.location
        fd = location.create(half, self.place.shared_mode())
        try:
            self._format(fd, size, int(backed[0]), settings)
            os.link(location.file(half), location.file(self.file))
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise self.place.full(int(backed[0])) from error
            raise
        finally:
            os.close(fd)
            location.unlink(half)

    def _format(self, fd: int, size: int, backed: int, settings: Settings) -> None:
        doing = f"making queue {self.file}"
        os.posix_fallocate(fd, 0, backed)
        os.ftruncate(fd, size)
        segment = _native.map_segment(fd, size, writable=True, doing=doing)
        try:
            random = int.from_bytes(os.urandom(8), "little") or 1
            seed = int.from_bytes(os.urandom(8), "little")
            check(lib.shmc_queue_format(segment, *settings, random, seed), doing)
        finally:
            lib.shmc_segment_unmap(segment)

    # ---- using -----------------------------------------------------------------------------------

    def hot(self) -> _hot.Queue:
        """The handle that workers call; once. After it is closed and all calls ended, we leave."""
        return _hot.Queue(_native.address(self._handle[0]), self, self.release)

    def use(self) -> object:
        """The handle, which stays until leave()."""
        self._users.append(None)
        return self._handle[0]

    def leave(self) -> None:
        """Ends a use; the last one frees everything released meanwhile."""
        self._users.pop()

    def named(self) -> bool:
        """Whether the name still leads to this file."""
        found = os.fstat(self._fds[0])
        return self.place.location.identity(self.file) == (found.st_dev, found.st_ino)

    def is_idle(self) -> bool:
        """Whether no key waits, is in progress, or comes later."""
        idle = self._is_empty(self.use())
        self.leave()
        return idle

    def release(self) -> None:
        """Leaves the queue. Called by `_hot` when nobody is in a call any more."""
        try:
            handle = self._handle.pop()
        except IndexError:
            return
        while self._users:  # a call of the control plane, which is short
            time.sleep(_TURN)
        forked = self._pid != os.getpid()
        empty = not forked and self._is_empty(handle)
        lib.shmc_queue_close(handle)
        if empty and not (self.keep and self._cached()):
            self._remove_if_last()
        self._unmap()

    def _cached(self) -> bool:
        """Whether the cache is there, whose end removes its queues."""
        return self.place.location.identity(self.place.pointer) is not None

    def _is_empty(self, handle: object) -> bool:
        stats = ffi.new("struct shmc_queue_stats *")
        lib.shmc_queue_stats(handle, stats)
        return not (stats.depth or stats.delayed or stats.in_progress)

    def _remove_if_last(self) -> None:
        """Only while nobody can come: the name goes under the lock of opening."""
        lock = self._fds[0]
        if lib.shmc_lock_byte(lock, lib.SHMC_QUEUE_OPEN) == _native.OK and not is_used(lock):
            found = os.fstat(lock)
            if self.place.location.identity(self.file) == (found.st_dev, found.st_ino):
                self.place.location.unlink(self.file)

    def _unmap(self) -> None:
        lib.shmc_segment_unmap(self._segment)
        if self._pid != os.getpid():
            self._fds.clear()  # the core has closed them in this child
        while self._fds:
            self._close_one()
