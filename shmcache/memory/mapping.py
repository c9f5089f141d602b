"""DATA and SEATS of one cache in this process: mapped, and their descriptors.

A writer builds fresh ones, or goes on with those of the writer before it; a reader attaches to
the current ones. The maps stay where they are
until close(); code that uses addresses into them keeps this object alive.
"""

from __future__ import annotations

import os

from shmcache import _native
from shmcache._native import check, ffi, lib
from shmcache.errors import CacheFull, LayoutMismatch, SegmentNotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache.memory.segments import Current, Place
    from shmcache.settings import WriterSettings

_ATTEMPTS = 100  # each is lost only to a writer that started in between


class Segments:
    """The two mapped segments."""

    __slots__ = ("data", "instance", "seats")

    def __init__(self, data: _native.SegmentHandle, seats: _native.SegmentHandle) -> None:
        self.data, self.seats = data, seats
        self.instance = 0


def _random_word() -> int:
    return int.from_bytes(os.urandom(8), "little") or 1


class Owned(Segments):
    """The segments of a writer: both mapped for writing, with the settings of its core."""

    __slots__ = ("_fds", "current", "limits", "place", "settings")

    def __init__(
        self, place: Place, wanted: WriterSettings, lock_fd: int, current: Current | None = None
    ) -> None:
        """`lock_fd` holds the writer's lock; without `current` the instances are new ones."""
        super().__init__(_native.new_segment(), _native.new_segment())
        from shmcache.memory.limits import GrowthLimits
        from shmcache.memory.segments import Current, boot_id

        self._fds: list[int] = []
        self.place = place
        self.limits = GrowthLimits()
        self.settings = ffi.new(
            "struct shmc_writer_settings *",
            {
                "max_size": int(wanted.arena_max),
                "ring_slots": wanted.ring_slots,
                "ring_bytes": int(wanted.ring_bytes),
                "garbage_bytes": int(wanted.garbage_max),
                "seed": _random_word(),
                "boot_id": boot_id(),
                "guard": place.guard(lock_fd),
            },
        )
        self.current = current or Current(_random_word(), _random_word(), self.settings.max_size)
        self.settings.instance = self.instance = self.current.data
        self.settings.seats_instance = self.current.seats

    def _map_own(self, fd: int, size: int, doing: str) -> _native.SegmentHandle:
        """Mapped for writing, to grow within the limits."""
        self._fds.append(fd)
        segment = _native.map_segment(fd, size, writable=True, doing=doing)
        own: Any = segment
        own.limits = self.limits.handle
        return segment

    def close(self) -> None:
        """Unmaps both and closes their descriptors; nothing may look at them any more."""
        lib.shmc_segment_unmap(self.data)
        lib.shmc_segment_unmap(self.seats)
        while self._fds:
            os.close(self._fds.pop())

    @property
    def descriptors(self) -> tuple[int, int]:
        """Of DATA and of SEATS."""
        data, seats = self._fds
        return data, seats

    def exchange(self, other: Owned) -> None:
        """Each is the other's instance from now on: the core has exchanged what they map."""
        self.current, other.current = other.current, self.current
        self.settings, other.settings = other.settings, self.settings
        self.instance, other.instance = other.instance, self.instance
        self._fds, other._fds = other._fds, self._fds


class FreshSegments(Owned):
    """A new, empty DATA and SEATS, which nobody finds before publish()."""

    __slots__ = ()

    def __init__(self, place: Place, wanted: WriterSettings, lock_fd: int) -> None:
        super().__init__(place, wanted, lock_fd)
        try:
            self._build_data(wanted.mode)
            self._build_seats(wanted.seats, wanted.mode)
        except BaseException:
            self.close()
            place.discard(self.current, lock_fd)
            raise

    def _build_data(self, mode: int) -> None:
        doing = f"creating DATA of cache {self.place.name!r}"
        fd = self.place.create("data", self.current.data, mode)
        self.data = self._map_own(fd, self.settings.max_size, doing)
        status = lib.shmc_data_extend(self.data, self.settings)
        self._check_room(status, lib.shmc_data_memory(self.settings), doing)
        check(lib.shmc_data_format(self.data, self.settings), doing)

    def _build_seats(self, count: int, mode: int) -> None:
        doing = f"creating SEATS of cache {self.place.name!r}"
        size = lib.shmc_seats_size(count)
        fd = self.place.create("seats", self.current.seats, mode)
        self.seats = self._map_own(fd, size, doing)
        self._check_room(lib.shmc_segment_extend(self.seats, size), size, doing)
        check(lib.shmc_seats_format(self.seats, count, self.current.seats), doing)

    def _check_room(self, status: int, needed: int, doing: str) -> None:
        if status == _native.NO_SPACE:
            refusal = self.limits.refusal()
            raise CacheFull(f"{doing}: {refusal}") if refusal else self.place.full(needed)
        check(status, doing)


class Inherited(Owned):
    """The DATA and SEATS that a writer left, mapped for writing. The writer's lock is held.

    LayoutMismatch if they are not as this writer's settings want them; what is in them nobody has
    looked at yet.
    """

    __slots__ = ()

    def __init__(self, place: Place, wanted: WriterSettings, lock_fd: int) -> None:
        super().__init__(place, wanted, lock_fd, place.current())
        try:
            self._take(wanted.seats, wanted.mode)
        except BaseException:
            self.close()
            raise

    def _take(self, seat_count: int, mode: int) -> None:
        doing = f"going on with cache {self.place.name!r}"
        size = self.settings.max_size
        if self.current.max_size != size:
            raise LayoutMismatch(f"{doing}: arena_max was {self.current.max_size}, and is {size}")
        data = self.place.open_own("data", self.current.data, mode)
        self.data = self._map_own(data, size, doing)
        seats = self.place.open_own("seats", self.current.seats, mode)
        wanted = lib.shmc_seats_size(seat_count)
        self.seats = self._map_own(seats, wanted, doing)
        if os.fstat(seats).st_size != wanted:
            raise LayoutMismatch(f"{doing}: it has another number of seats")


class Attached(Segments):
    """The current DATA (read-only) and SEATS (a description of our own) of a cache.

    `owner` has all that was opened, also the reader of reader/attachment.py, and gives it back in
    close(), or when `opened` goes, whatever interrupted it before (OWNED1, OWNED2, OWNED4).
    """

    __slots__ = ("current", "opened", "owner")

    def __init__(self, place: Place, boot_id: bytes) -> None:
        self.opened, self.owner = _native.new_attachment()
        parts = (ffi.addressof(self.owner, part) for part in ("data", "seats"))
        super().__init__(*parts)
        try:
            self.current = self._open(place)
            self._check(place, boot_id)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Gives the seat, the maps and the descriptors back; nothing may look at them any more.

        May be called twice, and by a forked child.
        """
        lib.shmc_attachment_end(self.owner)

    def _open(self, place: Place) -> Current:
        for _ in range(_ATTEMPTS):
            current = place.current()
            try:
                self._map_both(place, current)
            except SegmentNotFound:  # a new writer removed it after we read its name
                self.close()
            else:
                return current
        raise SegmentNotFound(
            f"cache {place.name!r} names segments that are gone: start its writer again"
        )

    def _map_both(self, place: Place, current: Current) -> None:
        doing, owner = f"attaching to cache {place.name!r}", self.owner
        fds = (ffi.addressof(owner, "data_fd"), ffi.addressof(owner, "seats_fd"))
        place.open_both(current, *fds)
        _native.map_into(self.data, owner.data_fd, current.max_size, writable=False, doing=doing)
        found = os.fstat(owner.seats_fd).st_size or 1  # an empty one is refused below
        size = min(found, lib.shmc_seats_size(lib.SHMC_SEATS_MAX))  # it may be made longer
        _native.map_into(self.seats, owner.seats_fd, size, writable=True, doing=doing)

    def _check(self, place: Place, boot_id: bytes) -> None:
        doing = f"attaching to cache {place.name!r}"
        found = ffi.new("uint64_t *")
        check(lib.shmc_data_check_header(self.data, boot_id, found), doing)
        if found[0] != self.current.data:
            raise LayoutMismatch(f"{doing}: DATA is another instance than its name says")
        self.instance = int(found[0])
        check(lib.shmc_seats_check_header(self.seats, found), doing)
        if found[0] != self.current.seats:
            raise LayoutMismatch(f"{doing}: SEATS is another instance than its name says")
