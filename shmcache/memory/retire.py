"""Telling the readers of an instance that nothing is published there any more."""

from __future__ import annotations

import os

from shmcache import _native
from shmcache._native import lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmcache.memory.segments import Place

_SUPERBLOCK = 4096


def end_instances(place: Place, files: Iterable[str]) -> None:
    """Ends the instances of these files: first marks all DATA as over, then wakes all sleepers.

    An instance that was never finished has no readers.
    """
    files = list(files)
    for file in files:
        if file.endswith(".data"):
            _tell(place, file, _SUPERBLOCK, lib.shmc_data_end)
    for file in files:
        if file.endswith(".seats"):
            _tell(place, file, lib.shmc_seats_size(lib.SHMC_SEATS_MAX), lib.shmc_seats_end)


def _tell(place: Place, file: str, most: int, end: object) -> None:
    """Maps what there is of a file, which may be longer than it was made."""
    try:
        fd = place.location.open(file, writable=True)
    except FileNotFoundError:
        return
    except OSError:
        return  # a link, a directory: whatever somebody put there is no instance
    try:
        status = os.fstat(fd)
        found = status.st_size if status.st_uid == os.geteuid() else 0  # nor is another user's
        if found > 0:
            size = min(most, found)
            segment = _native.map_segment(fd, size, writable=True, doing=f"ending {file}")
            end(segment)  # type: ignore[operator]  # CORRUPT: it was never finished
            lib.shmc_segment_unmap(segment)
    finally:
        os.close(fd)
