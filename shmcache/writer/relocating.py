"""A writer's names: whether they still lead to what it writes, and what it does if they do not.

Somebody may remove files under a running writer: an administrator, a cleaner of old files, systemd
at a logout (RemoveIPC). Attached readers continue, but nobody finds the cache any more. So the
writer checks its names every two seconds:

    lock gone                      a new one is made and taken: BusyError there means another writer
    pointer gone, or no pointer    it is written again
    DATA or SEATS gone             a file cannot be named again: DATA is copied into a new instance,
                                   which is named; readers of the old one move there (succession.py)
    another cache is named there   FencedError: nothing there is touched, this writer ends

A step that fails (no room for the copy) leaves everything as it was and is tried again.
"""

from __future__ import annotations

import logging
import os
from time import monotonic
from typing import TYPE_CHECKING

from shmcache import _native
from shmcache._native import check, lib
from shmcache.errors import (
    BusyError,
    CacheFull,
    FencedError,
    LayoutMismatch,
    SegmentNotFound,
    ShmCacheError,
    UntrustedSegment,
)
from shmcache.memory.mapping import FreshSegments
from shmcache.reasons import reason_at

if TYPE_CHECKING:
    from shmcache.writer.handle import Handle

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
RETRY_SECONDS = 5.0


class Names:
    """Looks after the names of one writer, by its tending thread."""

    def __init__(self) -> None:
        self._next = monotonic() + LOOK_SECONDS
        self._said = ""

    def look(self, handle: Handle) -> bool:
        """If it is time to: whether the writer may go on. Its lock is held, no batch is open."""
        if monotonic() < self._next:
            return True
        self._next = monotonic() + LOOK_SECONDS
        try:
            _mend(handle)
        except FencedError as error:
            _fence(handle)
            logger.error("%s", error)  # noqa: TRY400 - the text says all
            return False
        except (ShmCacheError, OSError) as error:
            self._next = monotonic() + RETRY_SECONDS
            why = reason_at(error)
            if why != self._said:
                self._said = why
                logger.warning("cache %s: its names cannot be restored yet: %s", handle.name, why)
        else:
            self._said = ""
        return True


def _mend(handle: Handle) -> None:
    segments, place = handle.mapped, handle.place
    lost = []
    if place.location.identity(place.lock) != place.guard(handle.lock_fd):
        _relock(handle)
        lost.append(place.lock)
    if not _named(handle):  # also where it leads nowhere yet: what fails below removes no lock then
        place.publish(segments.current, handle.settings.mode)
        lost.append(place.pointer)
    gone = [
        name
        for name, fd in zip(place.files(segments.current), segments.descriptors, strict=True)
        if place.location.identity(name) != place.guard(fd)
    ]
    if gone:
        _move(handle)
    elif lost:
        lib.shmc_writer_renamed(handle.opened)
    if lost or gone:
        missing = ", ".join([*lost, *gone])
        logger.warning("cache %s: somebody removed %s: restored", handle.name, missing)


def _named(handle: Handle) -> bool:
    """Whether the pointer names our instance; False: it names none. FencedError: another's."""
    ours, place = handle.mapped.current, handle.place
    try:
        found = place.current()
    except (SegmentNotFound, LayoutMismatch):
        return False  # not a cache of this layout
    except UntrustedSegment as error:
        raise FencedError(f"cache {handle.name!r}: its name is another's now: {error}") from error
    if found.data == ours.data:
        return str(found) == str(ours)
    if any(place.location.identity(name) is None for name in place.files(found)):
        return False
    raise FencedError(f"cache {handle.name!r}: another cache has its name: this writer ends")


def _relock(handle: Handle) -> None:
    """Takes the lock of the file that has the name now; creates it if it is missing."""
    try:
        fd = handle.place.take_lock()
    except (BusyError, UntrustedSegment) as error:
        raise FencedError(f"its lock was removed, and is another's now: {error}") from error
    try:
        _named(handle)  # a writer may have been here meanwhile, and left
        check(lib.shmc_close_in_child(fd), "guarding the writer's lock")
    except BaseException:
        os.close(fd)
        raise
    old, handle.lock_fd = handle.lock_fd, fd
    lib.shmc_keep_in_child(old)
    os.close(old)
    settings = handle.mapped.settings
    settings.guard = handle.place.guard(fd)
    lib.shmc_writer_relocked(handle.opened, settings)


def _move(handle: Handle) -> None:
    """Copies the whole cache into files that have names, and ends the old files for readers."""
    place, wanted, segments = handle.place, handle.settings, handle.mapped
    lock = handle.lock_fd
    fresh = FreshSegments(place, wanted, lock)
    try:
        status = lib.shmc_writer_copy(handle.opened, fresh.data, fresh.settings)
        if status == _native.NO_SPACE:
            refusal = fresh.limits.refusal()
            size = os.fstat(segments.descriptors[0]).st_blocks * 512
            raise CacheFull(f"copying {place.name}: {refusal}") if refusal else place.full(size)
        check(status, f"copying cache {place.name!r}")
        place.publish(fresh.current, wanted.mode)
    except BaseException:
        fresh.close()
        place.discard(fresh.current, lock)
        raise
    status = lib.shmc_writer_switch(handle.opened, fresh.data, fresh.seats, fresh.settings)
    if status:
        raise FencedError(str(_native.failure(status, f"cache {place.name!r}: moving")))
    segments.exchange(fresh)
    check(lib.shmc_data_end(fresh.data), "ending the old instance")
    check(lib.shmc_seats_end(fresh.seats), "ending the old instance")
    fresh.close()
    place.unlink_instances(keep=segments.current)


def _fence(handle: Handle) -> None:
    """Ends this instance: readers look for the cache that has the name now."""
    segments = handle.mapped
    lib.shmc_data_end(segments.data)
    lib.shmc_seats_end(segments.seats)
