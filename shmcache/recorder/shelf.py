"""The reels of one directory: which one is written, which ones may go.

SHELF1  A reel begins with a checkpoint, the whole state. No older reel goes before the
checkpoint of a newer one is on the medium, and the newest whole one never goes.
SHELF2  All reels together hold at most `bytes`; the oldest go first. A reel goes for its age
when the next one is older than `keep`, so that all of the last `keep` seconds is known.
SHELF3  One recorder at a time writes in a directory: it holds the directory's lock.
SHELF4  A reel whose checkpoint did not get whole is removed by the next recorder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from shmcache.recorder.disk import Disk, reel_numbers, reel_path
from shmcache.recorder.ending import begun_at
from shmcache.settings import format_size

KEEP = 24 * 3600.0
BYTES = 1 << 30
MIN_KEEP, MIN_BYTES = 60.0, 1 << 20
_LEAST_REEL = 1 << 20
_REELS = 8


class NoRoom(OSError):
    """The bounds of the recorder do not allow a state as large as this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderLimits:
    """Bounds of a recorder's directory."""

    keep: float = KEEP
    """Seconds."""
    bytes: int = BYTES

    def is_full(self, changes: int, checkpoint: int, age: float) -> bool:
        """Whether a reel with so many bytes of each, begun so long ago, is to be the last one's."""
        most = min(max(2 * checkpoint, _LEAST_REEL), max(1, self.bytes // _REELS))
        return changes > 0 and (changes >= most or age >= self.keep / _REELS)


class Shelf:
    """The files of a directory. For one thread."""

    def __init__(self, directory: str, limits: RecorderLimits, disk: Disk) -> None:
        """BlockingIOError if another recorder writes there."""
        self.directory = directory
        self.limits = limits
        self.disk = disk
        disk.make_directory(directory)
        self._lock = disk.lock(directory)
        try:
            self._sizes = {number: self._size(number) for number in reel_numbers(directory)}
            self._begun = {number: begun_at(self.path(number)) for number in self._sizes}
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Another recorder may write. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def numbers(self) -> list[int]:
        """Of the reels, in their order."""
        return sorted(self._sizes)

    @property
    def bytes(self) -> int:
        """The size of all reels."""
        return sum(self._sizes.values())

    @property
    def oldest_ns(self) -> int:
        """Since when everything that happened can be read back, at best."""
        return self._begun[self.numbers[0]] if self._sizes else 0

    def path(self, number: int) -> str:
        """The file of a reel."""
        return reel_path(self.directory, number)

    def next_number(self) -> int:
        """Of a new reel."""
        return max(self._sizes, default=0) + 1

    def note(self, number: int, size: int, begun_ns: int) -> None:
        """A reel's size, and when it began."""
        self._sizes[number] = size
        self._begun[number] = begun_ns

    def remove(self, number: int) -> None:
        """Removes a reel."""
        try:
            self.disk.unlink(self.path(number))
        except FileNotFoundError:
            pass  # somebody tidied up
        self._sizes.pop(number, None)
        self._begun.pop(number, None)

    def prune(self, current: int, more: int, now_ns: int) -> None:
        """SHELF2, before `more` bytes are written. `current` is the newest whole reel.

        NoRoom if the newest whole reel and the bytes that come exceed the bound by themselves.
        """
        earlier = [number for number in self.numbers if number < current]
        for number, after in zip(earlier, [*earlier[1:], current], strict=False):
            old = now_ns - self._begun.get(after, now_ns) > self.limits.keep * 1e9
            if old or self.bytes + more > self.limits.bytes:
                self.remove(number)
        if self.bytes + more > self.limits.bytes:
            raise NoRoom(
                f"the objects of the cache alone need more than recorder_bytes, "
                f"{format_size(self.limits.bytes)}: raise it, or record fewer resources"
            )

    def _size(self, number: int) -> int:
        try:
            return os.stat(self.path(number)).st_size
        except FileNotFoundError:
            return 0
