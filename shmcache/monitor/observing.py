"""A cache from outside: writer, resources, workers and memory, read from shared memory.

Any process that may attach sees everything, whichever process did it: `top`, `inspect` and the
metrics use this. Kernel locks show which processes live; the rest their owners wrote (G35).
"""

from __future__ import annotations

import os
import time

from shmcache._native import BUSY, CORRUPT, STALE, check, ffi, lib, struct_values
from shmcache.errors import ShmCacheError
from shmcache.memory.segments import Place
from shmcache.reader import holding
from shmcache.recorder import standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache.controllers.numbers import Numbers
    from shmcache.reader.cache import Cache
    from shmcache.reader.freshness import Status

HEARTBEAT_SECONDS = 2.0
"""A living writer tends its cache several times a second; one that is silent for longer hangs."""
_SURVEYS = 20
_WHAT = 256


class ObservedWriter:
    """The process that writes the cache, as far as others can know."""

    __slots__ = ("alive", "closed", "heartbeat", "incarnation", "pid")

    pid: int
    alive: bool
    """Somebody holds the writer's lock."""
    heartbeat: float | None
    """Seconds since it tended the cache last; None if it never did."""
    closed: bool
    """It ended in order."""
    incarnation: int

    def __init__(self, info: Any, *, alive: bool) -> None:
        self.pid = int(info.writer_pid)
        self.alive = alive
        beat = int(info.heartbeat_ns)
        self.heartbeat = max(0, time.monotonic_ns() - beat) / 1e9 if beat else None
        self.closed = bool(info.closed)
        self.incarnation = int(info.incarnation)

    @property
    def beats(self) -> bool:
        """Whether it lives and does its duties."""
        return self.alive and self.heartbeat is not None and self.heartbeat < HEARTBEAT_SECONDS


class ObservedWorker:
    """A process that is attached: who holds the lock of a seat."""

    __slots__ = ("asleep", "attached", "busy", "command", "cut", "lag", "lapped", "oldest_pin",
                 "own", "pid", "pins", "private", "seat", "taken")  # fmt: skip

    lag: int | None
    """Deltas that its slowest consumer has not dealt with yet; None if it follows nothing."""
    cut: int
    """Clients of `serve` that were cut, or whose watches ended, because they read too slowly."""
    attached: float
    """Seconds since it took the seat."""
    private: int | None
    """Bytes of memory that only this process has; None where we may not look."""

    def __init__(self, info: Any, head: int) -> None:
        self.seat = int(info.index)
        self.pid = int(info.pid)
        self.own = self.pid == os.getpid()
        self.asleep = bool(info.asleep)
        self.busy = int(info.busy)
        self.taken = int(info.taken)
        self.lapped = int(info.lapped)
        self.cut = int(info.cut)
        self.pins = int(info.pins)
        self.oldest_pin = int(info.oldest_pin)
        self.attached = max(0, time.monotonic_ns() - int(info.claimed_ns)) / 1e9
        self.lag = None
        if info.cursor:
            rests = self.asleep and not self.busy
            self.lag = 0 if rests else max(0, head - (int(info.cursor) - 1))
        self.command = _command(self.pid)
        self.private = _private_bytes(self.pid)


class Observed:
    """One look at a cache. Figures of different sources are of slightly different moments."""

    __slots__ = ("generation", "head", "instance", "memory", "name", "recorder", "resources",
                 "ring_slots", "seats", "stats", "tail", "workers", "writer")  # fmt: skip

    resources: dict[str, Status]
    workers: list[ObservedWorker]
    seats: int
    memory: dict[str, int]
    """bytes: size of DATA in memory; maximum; used; free; limbo; pinned by old views."""
    stats: dict[str, int]
    """The writer's counts (struct shmc_stats), as of its last turn of duties."""

    def __init__(self, cache: Cache, place: Place) -> None:
        held = holding.attachment(cache.reader)
        info = ffi.new("struct shmc_data_info *")
        held.use()
        try:
            lib.shmc_data_info(held.segments.data, info)
            self.name = cache.name
            self.instance = f"{int(info.instance):016x}"
            self.generation = int(info.latest)
            self.head, self.tail = int(info.head), int(info.tail)
            self.ring_slots = int(info.ring_slots)
            self.writer = ObservedWriter(info, alive=_alive(place, info))
            self.stats = struct_values(ffi.addressof(info, "stats"))
            self.memory = _memory(info, self.stats)
            self.seats, self.workers = _workers(held.segments, place, self.head)
        finally:
            held.leave()
        self.resources = {name: cache[name].status for name in cache.resources}
        self.recorder = standing.read(place)
        """The condition of its flight recorder; None without one."""


def observe(cache: Cache) -> Observed:
    """A look at the cache that is attached."""
    return Observed(cache, cache.place)


def _alive(place: Place, info: Any) -> bool:
    """Whether the writer's lock is held; without access to its file, by what the writer states."""
    try:
        return place.writer_alive()
    except OSError:
        beat = int(info.heartbeat_ns)
        return not info.closed and time.monotonic_ns() - beat < HEARTBEAT_SECONDS * 1e9


def _memory(info: Any, stats: dict[str, int]) -> dict[str, int]:
    return {
        "bytes": int(info.memory),
        "maximum": int(info.max_size),
        "used": stats["reachable_bytes"],
        "values": stats["value_bytes"],
        "trees": stats["tree_bytes"],
        "retained": stats["ring_bytes"],
        "limbo": stats["limbo_bytes"],
        "free": stats["free_bytes"],
        "private": stats["private_bytes"],
    }


def _workers(segments: Any, place: Place, head: int) -> tuple[int, list[ObservedWorker]]:
    """How many seats there are, and who sits: by the locks, through a description of its own."""
    seats: list[ObservedWorker] = []
    info = ffi.new("struct shmc_seat_info *")
    fd = place.open_seats(segments.current.seats)
    try:
        index = 0
        while lib.shmc_seat_info(segments.seats, index, info) == 0:
            if info.in_use and lib.shmc_probe_byte(fd, index) == BUSY:
                seats.append(ObservedWorker(info, head))
            index += 1
    finally:
        os.close(fd)
    return index, seats


def _command(pid: int) -> str:
    """The command of a process; "" where it is invisible (another pid namespace)."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read(4096).decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    return " ".join([os.path.basename(arguments[0]), *arguments[1:]]).strip()


def _private_bytes(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
            kib = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    except (OSError, ValueError):
        return None
    return kib << 10


def queues(cache: Cache) -> dict[str, dict[str, Any]]:
    """The counts of the cache's work queues, by their names; see WorkQueue.stats()."""
    from shmcache.memory.companions import queue_names

    found: dict[str, dict[str, Any]] = {}
    for name in queue_names(cache.place):
        from shmcache.queue.workqueue import WorkQueue

        try:
            queue = WorkQueue(cache.place, name)
        except (ShmCacheError, OSError, ValueError):
            continue  # all its seats are taken, it is being rebuilt, or it is another user's
        try:
            found[name] = dict(queue.stats())
        finally:
            queue.close()
    return found


def controllers(cache: Cache) -> dict[str, Numbers]:
    """The numbers of the cache's controllers, by their names."""
    from shmcache.controllers.board import Board
    from shmcache.memory.companions import board_names

    found: dict[str, Numbers] = {}
    for name in board_names(cache.place):
        from shmcache.controllers.numbers import Numbers

        try:
            board = Board(cache.place, name)
        except (ShmCacheError, OSError):
            continue  # another user's, or another version's
        try:
            found[name] = Numbers(board)
        finally:
            board.close()
    return found


# ---- the whole state -----------------------------------------------------------------------------


class Survey:
    """Everything that the latest state consists of: walked, compared, added up."""

    __slots__ = ("fault", "resources", "seconds", "total")

    fault: str
    """The first fact that does not hold; "" if all do."""
    total: dict[str, int]
    resources: dict[str, dict[str, int]]
    """Bytes of all that a resource leads to: what equal objects share counts once, and once more in
    each other resource that shares it."""
    seconds: float


def survey(cache: Cache) -> Survey:
    """A walk through all of it. ShmCacheError if the writer never left the memory alone so long.

    Takes a few milliseconds for each MB, without the GIL.
    """
    found = Survey()
    held = holding.attachment(cache.reader)
    names = cache.resources
    total = ffi.new("struct shmc_survey *")
    rows = ffi.new("struct shmc_survey_row[]", max(1, len(names)))
    what = ffi.new("char[]", _WHAT)
    start = time.monotonic()
    handle = held.use()
    status = STALE
    try:
        for _ in range(_SURVEYS):
            status = lib.shmc_survey(handle, total, rows, len(names), what, _WHAT)
            if status != STALE:
                break
    finally:
        held.leave()
    if status == STALE:
        raise ShmCacheError(f"cache {cache.name!r}: its writer needs memory faster than we look")
    if status != CORRUPT:
        check(status, f"surveying cache {cache.name!r}")
    found.seconds = time.monotonic() - start
    found.fault = ffi.string(what).decode() if status == CORRUPT else ""
    found.total = struct_values(total)
    found.resources = {
        name: struct_values(ffi.addressof(rows, number)) for number, name in enumerate(names)
    }
    return found
