"""The condition of a recorder: as text for people, in numbers for metrics, in one small file.

The recorder's process writes the file next to the cache's own; every process that may attach reads
it.

    STAND1  The lock of the file shows whether the recorder lives; the rest is what it reported.
        Readers of the file, who may be other users, can hold a shared lock of it: that shows
        nothing, and the next recorder makes another file.
    STAND2  A text is whole, or its checksum is wrong and it is read again.
"""

from __future__ import annotations

import errno
import os
import time

from shmcache import _native
from shmcache.errors import LayoutMismatch, SegmentNotFound, UntrustedSegment
from shmcache.reasons import reason_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache.memory.segments import Place

RECORDING, FULL, FAILING = "recording", "full", "failing"
STATES = (RECORDING, FULL, FAILING)
SIZE = 4096
_LONGEST_REASON = 1024
_TRIES = 50


class RecorderStatus:
    """The condition of a recorder."""

    __slots__ = ("alive", "bytes", "directory", "events", "gaps", "oldest_ns", "pid", "position",
                 "reason", "recorded_ns", "reels", "state")  # fmt: skip

    def __init__(self, directory: str = "") -> None:
        self.directory = directory
        self.state = RECORDING
        """recording; full: no room on the disk, or within its bounds; failing: see `reason`."""
        self.reason = ""
        self.pid = os.getpid()
        self.recorded_ns = 0
        """All changes up to this time (wall clock) are on the medium."""
        self.position = 0
        """All changes of the ring before this position are."""
        self.oldest_ns = 0
        self.bytes = 0
        self.reels = 0
        self.events = 0
        """Changes that were recorded since the process began."""
        self.gaps = 0
        """How often changes were missed and a difference took their place, since then."""
        self.alive = True

    @property
    def records(self) -> bool:
        """Whether it lives, and its disk takes what it writes."""
        return self.alive and self.state == RECORDING

    @property
    def behind(self) -> float | None:
        """Seconds since the last acknowledged look at the ring; None before the first one."""
        return max(0, time.time_ns() - self.recorded_ns) / 1e9 if self.recorded_ns else None

    @property
    def reach(self) -> float | None:
        """How many seconds back the record leads; None without one."""
        return max(0, time.time_ns() - self.oldest_ns) / 1e9 if self.oldest_ns else None

    def text(self) -> bytes:
        """For the file."""
        import json
        import zlib

        found = {name: getattr(self, name) for name in self.__slots__ if name != "alive"}
        found["reason"] = self.reason[:_LONGEST_REASON]
        body = json.dumps(found).encode()
        return b"%08x%s\n" % (zlib.crc32(body), body)


def standing_of(error: OSError) -> tuple[str, str]:
    """State and reason of a failure."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or error.errno is None
    return (FULL if full else FAILING), reason_at(error)


class StandingFile:
    """The file, in the recorder's process."""

    def __init__(self, place: Place, mode: int) -> None:
        """BlockingIOError if another recorder of this cache lives."""
        self._fd = _open(place, mode)
        status = _native.lib.shmc_lock_byte(self._fd, 0)
        if status != _native.OK and not _is_held(self._fd):  # by readers alone (STAND1)
            os.close(self._fd)
            place.location.unlink(place.recorder)
            self._fd = place.location.create(place.recorder, 0o600)
            status = _native.lib.shmc_lock_byte(self._fd, 0)
            os.fchmod(self._fd, mode)
        if status != _native.OK:
            os.close(self._fd)
            raise BlockingIOError(errno.EAGAIN, "another recorder of this cache is running")

    def write(self, standing: RecorderStatus) -> None:
        """OSError if there is no room."""
        text = standing.text()
        os.pwrite(self._fd, text.ljust(SIZE, b" "), 0)

    def close(self) -> None:
        """The last report stays, and nobody holds the lock. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open(place: Place, mode: int) -> int:
    try:
        return place.open_own_file(place.recorder, mode)
    except (SegmentNotFound, LayoutMismatch):
        place.location.unlink(place.recorder)
        return place.location.create(place.recorder, mode)


def _is_held(fd: int) -> bool:
    """Whether a recorder holds the lock: only who may write the file can have it alone."""
    import fcntl
    import struct

    lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    found: int = struct.unpack_from("h", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, lock))[0]
    return found == fcntl.F_WRLCK


def read(place: Place) -> RecorderStatus | None:
    """The condition of the recorder of a cache; None without one."""
    try:
        fd = place.open_recorder()
    except (SegmentNotFound, UntrustedSegment, PermissionError):
        return None
    try:
        for _ in range(_TRIES):
            found = _parsed(os.pread(fd, SIZE, 0))
            if found is not None:
                standing = RecorderStatus()
                for name, value in found.items():
                    setattr(standing, name, value)
                standing.alive = _is_held(fd)
                return standing
    finally:
        os.close(fd)
    return None


def _parsed(data: bytes) -> dict[str, Any] | None:
    import json
    import zlib  # late, as json: most caches have no recorder

    text = data.rstrip()
    try:
        if int(text[:8], 16) != zlib.crc32(text[8:]):
            return None
        found = json.loads(text[8:])
    except ValueError:
        return None
    return {name: found[name] for name in RecorderStatus.__slots__ if name in found}
