"""The state that all processes of a controller share: a small file next to its queue.

    header     the layout, starts (FEED3), and the names of the resources that were written
    errors     which errors were logged, and how often each has happened
    rows       one for each process: counts, runners (the key that each is in), versions written by
               bucket of keys, deletions
    tenure     until when this machine may work, and on which keys (tenure.py)

A row is written by the holder of its lock alone (byte ROW_LOCK + n; the kernel drops it at
death), and read by all, so that no stopped or killed process can keep others waiting. UPDATE_LOCK
is held for a few stores when the file is new, when a controller starts, or when a resource is
first written.

    BOARD1  What is written for a key before done() is seen by who gets the key next: the queue's
        hand-over, or the fall of the dead worker's lock, orders the two. Versions of other keys
        of the bucket may come late, which nobody relies on.
    BOARD2  A bucket errs to the safe side: it says the newest version of all keys in it. Its time
        is stored before the version: who dies between the two leaves an old version, long seen.
    BOARD3  A runner is filled before the reconcile and emptied before done(). So the holder of a
        key that finds it in another runner knows that a worker ended in the middle of it. That
        holder empties the runner when it has dealt with that; no process begins in a row with a
        filled runner, as long as there is another row.
    BOARD4  Garbage in the file costs waits or log lines, and never more: everything that is read is
        a number that is compared, or a text that is compared. One that was truncated is made long
        again by the process that faults (process.c), and is new then.

The file stays when all have left: who starts next must know what was written last. It goes with the
cache, or when the last one leaves and there is no cache.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from shmcache import _native
from shmcache._native import ffi, lib
from shmcache.controllers.rows import RESOURCES, ROW, RUNNERS, OwnRow, Row
from shmcache.errors import BusyError, LayoutMismatch, SegmentNotFound, UntrustedSegment
from shmcache.memory.companions import ROW_LOCK, ROWS, SEPARATOR
from shmcache.memory.segments import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAGIC = 0x34_64_72_61_6F_62_73  # "sboard4"
ERRORS = 1024

_NAMES, _NAME = 4096, 256  # of resources
_ERRORS = _NAMES + RESOURCES * _NAME  # each: its digest, count, last time
_ROWS = _ERRORS + ERRORS * 32
TENURE = _ROWS + ROWS * ROW  # until when this machine may work, and on which slots
SIZE = TENURE + 4096

UPDATE_LOCK, TENURE_LOCK = 0, 1


def bucket_of(key: str) -> int:
    """Which of the buckets a key is in, the same in every process."""
    return zlib.crc32(key.encode())


class Board:
    """The file, mapped. Thread-safe; a child of fork() has to open one of its own."""

    def __init__(self, place: Place, controller: str) -> None:
        self.file = f"{place.stem}{SEPARATOR}{controller}.board"
        self._where = place
        self._resources: dict[str, int] = {}
        self._fd = self._open()
        doing = "opening a controller's board"
        self._segment = _native.map_segment(self._fd, SIZE, writable=True, doing=doing)
        _native.check(lib.shmc_guard(self._segment), doing)
        mapped: Any = self._segment
        self.map: Any = ffi.buffer(mapped.base, SIZE)
        self.words = memoryview(self.map).cast("Q")
        with self._updating():
            self._check()

    def _open(self) -> int:
        location = self._where.location
        try:
            fd = location.create(self.file, 0o600)
        except FileExistsError:
            try:
                fd = self._where.open_shared(self.file)
            except SegmentNotFound:
                return self._open()  # it was removed in between
        try:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise UntrustedSegment(f"{location.file(self.file)} belongs to another user")
            _native.check(lib.shmc_close_in_child(fd), "opening a controller's board")
            os.ftruncate(fd, SIZE)  # new pages are zeros, and cost nothing until they are used
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check(self) -> None:
        if self.words[0] == 0:
            self.words[1] = SIZE
            self.words[0] = MAGIC
        if (self.words[0], self.words[1]) != (MAGIC, SIZE):
            raise LayoutMismatch(
                f"{self._where.location.file(self.file)} is of another version: remove it when "
                "no process of that version runs any more"
            )

    @contextmanager
    def _updating(self) -> Iterator[None]:
        """Alone among all processes that have the file open."""
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, UPDATE_LOCK, 1, 0)
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLKW, lock)
        try:
            yield
        finally:
            _native.check(lib.shmc_unlock_byte(self._fd, UPDATE_LOCK), "updating a board")

    def close(self) -> None:
        """Leaves. The last one takes the file along if the cache is gone. Idempotent."""
        if self._fd < 0:
            return
        gone = self._where.location.identity(self._where.pointer) is None
        if gone and not any(self.held(number) for number in range(ROWS)):
            self._where.location.unlink(self.file)
        self.words.release()
        self.map = memoryview(b"")
        lib.shmc_unguard(self._segment)
        lib.shmc_segment_unmap(self._segment)
        lib.shmc_keep_in_child(self._fd)
        os.close(self._fd)
        self._fd = -1

    # ---- numbers and texts -----------------------------------------------------------------------

    def text(self, at: int, room: int) -> str:
        """A text: its length, then its bytes."""
        length = min(self.words[at // 8], room - 8)
        found: bytes = self.map[at + 8 : at + 8 + length]
        return found.decode(errors="replace")

    def set_text(self, at: int, room: int, text: str) -> None:
        """Stores a text; one that has no room is cut."""
        found = text.encode()[: room - 8]
        self.words[at // 8] = 0
        self.map[at + 8 : at + 8 + len(found)] = found
        self.words[at // 8] = len(found)

    # ---- rows ------------------------------------------------------------------------------------

    def take_row(self, concurrency: int) -> OwnRow:
        """A row that nobody holds, once. BusyError if there are too many processes."""
        if concurrency > RUNNERS:
            raise ValueError(f"a process works on {RUNNERS} keys at a time at most")
        for clean in (True, False):
            for number in range(ROWS):
                mine = OwnRow(self, number, _ROWS + number * ROW)
                if clean and any(mine.runners()):
                    continue
                if lib.shmc_lock_byte(self._fd, ROW_LOCK + number) == _native.OK:
                    self.words[2] = max(self.words[2], number + 1)
                    mine.enter(concurrency)
                    return mine
        raise BusyError(f"a controller has {ROWS} processes at most")

    def leave_row(self, number: int) -> None:
        """Nobody holds it any more."""
        _native.check(lib.shmc_unlock_byte(self._fd, ROW_LOCK + number), "leaving a board")

    def held(self, number: int) -> bool:
        """Whether a process holds a row that it did not take through this board."""
        return lib.shmc_probe_byte(self._fd, ROW_LOCK + number) == _native.BUSY

    @property
    def rows(self) -> list[Row]:
        """All that were ever taken."""
        count = min(self.words[2], ROWS)
        return [Row(self, number, _ROWS + number * ROW) for number in range(count)]

    # ---- the tenure ------------------------------------------------------------------------------

    def take_tenure(self) -> bool:
        """Whether this process writes the tenure from now on: one at a time does."""
        return lib.shmc_lock_byte(self._fd, TENURE_LOCK) == _native.OK

    def leave_tenure(self) -> None:
        """Another process may."""
        _native.check(lib.shmc_unlock_byte(self._fd, TENURE_LOCK), "leaving a board")

    @property
    def lived_in(self) -> list[Row]:
        """The rows that processes hold now, but for those of this board."""
        return [row for row in self.rows if self.held(row.number)]

    # ---- starts ----------------------------------------------------------------------------------

    @property
    def wanted(self) -> int:
        """How many starts wanted all keys."""
        return self.words[3]

    @property
    def finished(self) -> int:
        """The latest start whose keys were all added."""
        return self.words[4]

    def finish(self, start: int) -> None:
        """The keys of a start were all added. By the process that feeds."""
        self.words[4] = start

    def want_all(self) -> None:
        """A controller starts: all keys are reconciled once more."""
        with self._updating():
            self.words[3] += 1

    # ---- resources, errors -----------------------------------------------------------------------

    def resource(self, name: str) -> int:
        """The number of a resource, the same in all processes. ValueError if there are too many."""
        found = self._resources.get(name)
        if found is not None:
            return found
        with self._updating():
            for number in range(RESOURCES):
                at = _NAMES + number * _NAME
                if not self.words[at // 8]:
                    self.set_text(at, _NAME, name)
                if self.text(at, _NAME) == name:
                    self._resources[name] = number
                    return number
        raise ValueError(
            f"a controller writes at most {RESOURCES:,} resources, not {name!r} as well"
        )

    def resources(self, known: list[str]) -> list[str]:
        """The names of all resources, by number: `known` ones, and what was added since."""
        more = []
        for number in range(len(known), RESOURCES):
            at = _NAMES + number * _NAME
            if not self.words[at // 8]:
                break
            more.append(self.text(at, _NAME))
        return [*known, *more] if more else known

    def happened(self, error: int, forget_seconds: float) -> int:
        """Counts an error; how often it has happened since it last rested so long.

        Two that happen at once may be counted as one: who logs by it logs at most once too often.
        """
        now = time.monotonic_ns()
        for step in range(ERRORS):
            at = (_ERRORS + (error + step) % ERRORS * 32) // 8
            if self.words[at] in {0, error}:
                rested = now - self.words[at + 2] > forget_seconds * 1e9
                count = 1 if rested else self.words[at + 1] + 1
                self.words[at], self.words[at + 1], self.words[at + 2] = error, count, now
                return count
        return 1
