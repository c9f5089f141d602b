"""Files of queues and controllers that lie next to a cache's own: their names, and their removal.

A file that a process uses is held by a lock of that process, and stays.
"""

from __future__ import annotations

import fcntl
import os
import struct

from shmcache import _native
from shmcache._native import lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.memory.segments import Place

QUEUE, HALF_QUEUE = ".queue", ".newqueue"
SEPARATOR = "@"
"""Between the names of a cache and of a controller; no cache has it in its name."""
ROW_LOCK = 64
ROWS = 128
"""Processes of a controller, each with a lock: bytes ROW_LOCK + n of its board."""


def queue_files(place: Place) -> list[str]:
    """The files of all queues of a cache, finished or not."""
    start = place.stem + "."
    return [
        file
        for file in place.location.names(start)
        if file.endswith((QUEUE, HALF_QUEUE)) and "." not in file[len(start) :].rpartition(".")[0]
    ]


def queue_names(place: Place) -> list[str]:
    """The names of the queues of a cache."""
    start = place.stem + "."
    return [
        file.removeprefix(start).removesuffix(QUEUE).replace("+", ".").replace("=", "/")
        for file in queue_files(place)
        if file.endswith(QUEUE) and place.location.is_of(file, place.trusted)
    ]


def remove_unused(place: Place) -> int:
    """Removes the queues of a cache that no process uses; how many."""
    removed = 0
    for file in queue_files(place):
        try:
            fd = place.location.open(file, writable=True)
        except OSError:
            continue  # it is gone already, or not ours, or not a file
        try:
            if lib.shmc_lock_byte(fd, lib.SHMC_QUEUE_OPEN) == _native.OK and not is_used(fd):
                removed += place.clear(file)
        finally:
            os.close(fd)
    return removed


def is_used(fd: int) -> bool:
    """Whether a process has a seat; the caller holds the lock of opening."""
    segment = _native.new_segment()  # nothing is mapped: every byte is tried
    return bool(lib.shmc_queue_used(segment, fd))


def board_names(place: Place) -> list[str]:
    """The controllers that have or had processes at this cache."""
    start = place.stem + SEPARATOR
    return [
        file.removeprefix(start).removesuffix(".board")
        for file in place.names(start)
        if file.endswith(".board")
    ]


def remove_boards(place: Place) -> None:
    """Removes the boards of a cache that is no more, but those that somebody works at."""
    location = place.location
    for file in location.names(place.stem + SEPARATOR):
        try:
            fd = location.open(file, writable=True)
        except OSError:
            continue  # it is gone already, or not ours, or not a file
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, ROW_LOCK, ROWS, 0)
        try:
            found = struct.unpack_from("h", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, lock))[0]
        except OSError:
            continue  # a FIFO
        finally:
            os.close(fd)
        if found == fcntl.F_UNLCK:
            place.clear(file)
