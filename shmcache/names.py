"""A writer's names: whether they still lead to what it writes, and what it does if they do not.

Somebody may remove files under a running writer: an administrator, a cleaner of old files, systemd
at a logout (RemoveIPC). Who is attached reads on, but nobody finds the cache any more. So the
writer looks at its names every two seconds:

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
from shmcache.mapping import Fresh

if TYPE_CHECKING:
    from shmcache.mapping import Owned
    from shmcache.writer import Writer

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
RETRY_SECONDS = 5.0


class Names:
    """Looks after the names of one writer, by its tending thread."""

    def __init__(self) -> None:
        self._next = monotonic() + LOOK_SECONDS
        self._said = ""

    def look(self, writer: Writer) -> bool:
        """If it is time to: whether the writer may go on. Its lock is held, no batch is open."""
        if monotonic() < self._next:
            return True
        self._next = monotonic() + LOOK_SECONDS
        try:
            _mend(writer)
        except FencedError as error:
            _fence(writer)
            logger.error("%s", error)  # noqa: TRY400 - the text says all
            return False
        except (ShmCacheError, OSError) as error:
            self._next = monotonic() + RETRY_SECONDS
            if str(error) != self._said:
                self._said = str(error)
                logger.warning(
                    "cache %s: its names cannot be made anew yet: %s", writer.name, error
                )
        else:
            self._said = ""
        return True


def _mend(writer: Writer) -> None:
    segments, place = _segments(writer), writer.place
    lost = []
    if place.location.identity(place.lock) != place.guard(writer._lock_fd):  # noqa: SLF001
        _relock(writer)
        lost.append(place.lock)
    if not _named(writer):  # also where it leads nowhere yet: what fails below removes no lock then
        place.publish(segments.current, writer.settings.mode)
        lost.append(place.pointer)
    gone = [
        name
        for name, fd in zip(place.files(segments.current), segments.descriptors, strict=True)
        if place.location.identity(name) != place.guard(fd)
    ]
    if gone:
        _move(writer)
    elif lost:
        lib.shmc_writer_renamed(writer._handle)  # type: ignore[arg-type] # noqa: SLF001
    if lost or gone:
        missing = ", ".join([*lost, *gone])
        logger.warning("cache %s: somebody removed %s: made anew", writer.name, missing)


def _segments(writer: Writer) -> Owned:
    assert writer._segments is not None  # noqa: SLF001
    return writer._segments  # noqa: SLF001


def _named(writer: Writer) -> bool:
    """Whether the pointer names our instance; False: it names none. FencedError: another's."""
    ours, place = _segments(writer).current, writer.place
    try:
        found = place.current()
    except (SegmentNotFound, LayoutMismatch):
        return False  # what stands there is no cache of this layout
    except UntrustedSegment as error:
        raise FencedError(f"cache {writer.name!r}: its name is another's now: {error}") from error
    if found.data == ours.data:
        return str(found) == str(ours)
    if any(place.location.identity(name) is None for name in place.files(found)):
        return False
    raise FencedError(f"cache {writer.name!r}: another cache stands at its name: this writer ends")


def _relock(writer: Writer) -> None:
    """The lock of the file that has the name now, made if there is none."""
    try:
        fd = writer.place.take_lock()
    except (BusyError, UntrustedSegment) as error:
        raise FencedError(f"its lock was removed, and is another's now: {error}") from error
    try:
        _named(writer)  # a writer may have been here meanwhile, and left
        check(lib.shmc_close_in_child(fd), "guarding the writer's lock")
    except BaseException:
        os.close(fd)
        raise
    old, writer._lock_fd = writer._lock_fd, fd  # noqa: SLF001
    lib.shmc_keep_in_child(old)
    os.close(old)
    settings = _segments(writer).settings
    settings.guard = writer.place.guard(fd)
    lib.shmc_writer_relocked(writer._handle, settings)  # type: ignore[arg-type] # noqa: SLF001


def _move(writer: Writer) -> None:
    """All that the writer has, in files that have names; whoever reads the old ones is told."""
    place, wanted, segments = writer.place, writer.settings, _segments(writer)
    lock = writer._lock_fd  # noqa: SLF001
    fresh = Fresh(place, wanted, lock)
    try:
        status = lib.shmc_writer_copy(writer._handle, fresh.data, fresh.settings)  # type: ignore[arg-type] # noqa: SLF001
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
    status = lib.shmc_writer_switch(writer._handle, fresh.data, fresh.seats, fresh.settings)  # type: ignore[arg-type] # noqa: SLF001
    if status:
        raise FencedError(str(_native.failure(status, f"cache {place.name!r}: moving")))
    segments.exchange(fresh)
    check(lib.shmc_data_end(fresh.data), "ending the old instance")
    check(lib.shmc_seats_end(fresh.seats), "ending the old instance")
    fresh.close()
    place.unlink_instances(keep=segments.current)


def _fence(writer: Writer) -> None:
    """Nothing is published any more, and who reads here looks for what is at the name now."""
    segments = _segments(writer)
    lib.shmc_data_end(segments.data)
    lib.shmc_seats_end(segments.seats)
