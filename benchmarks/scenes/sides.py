"""The sides of footprint.py: the ways to know the objects, and their cost as the kernel reports
it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.scenes.lean import Child
from benchmarks.scenes.shared import directory

AT_ONCE = 2
"""Workers that start and fill at the same time, after the first one."""
REDIS_S = 30


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in bytes."""

    anonymous: int
    files: int
    tables: int
    peak: int  # of its own pages; those of shared files are counted once, at the files

    @classmethod
    def of(cls, pid: int) -> Memory:
        rollup = _fields(f"/proc/{pid}/smaps_rollup")
        status = _fields(f"/proc/{pid}/status")
        beside = status["RssFile"] + status["RssShmem"]
        anonymous = rollup["Pss_Anon"]
        return cls(
            anonymous=anonymous,
            files=rollup["Pss_File"],
            tables=status["VmPTE"],
            peak=max(anonymous, status["VmHWM"] - beside) + status["VmPTE"],
        )


def _fields(path: str) -> dict[str, int]:
    found = {}
    for line in Path(path).read_text().splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith(" kB"):
            found[name] = int(rest.split()[0]) << 10
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """Of a side with this many workers, in bytes."""

    workers: int
    net: int
    gross: int
    peak: int


class Side:
    """Processes of one way to know `count` objects, and their shared files in memory."""

    def __init__(self, stack: contextlib.ExitStack, count: int, place: str = "") -> None:
        self._stack = stack
        self._count = count
        self._place = place
        self._imported: dict[int, Memory | None] = {}
        self.workers = 0
        self.took: list[float] = []
        """Seconds of each worker from the start of its process until it had read all."""

    def start(self, target: str, *arguments: Any) -> Child:
        """A process that is full now; its memory after its imports was noted."""
        child = self._begun(target, *arguments)
        child.receive()
        return child

    def _begun(self, target: str, *arguments: Any) -> Child:
        child = self._stack.enter_context(Child(target, *arguments))
        self.watch(child.receive())
        child.send("go")
        return child

    def work(self, target: str, count: int, *arguments: Any) -> None:
        """Adds workers, which have read a field of every object."""
        while count > 0:
            some = []
            for _ in range(min(count, AT_ONCE)):
                began = time.monotonic()
                some.append((began, self._begun(target, *arguments)))
            for _, child in some:
                child.receive()
                child.send("read")
            for began, child in some:
                self.worked(child.receive(), time.monotonic() - began)
            count -= len(some)

    def watch(self, pid: int, *, new: bool = False) -> None:
        """Counts a process from now on; a new one had no memory before."""
        self._imported[pid] = None if new else Memory.of(pid)

    def worked(self, count: int, seconds: float) -> None:
        if count != self._count:
            raise RuntimeError(f"a worker has read {count} objects of {self._count}")
        self.workers += 1
        self.took.append(seconds)

    def cost(self) -> Cost:
        now = {pid: Memory.of(pid) for pid in self._imported}
        before = [found for found in self._imported.values() if found]
        files = _blocks(self._place)
        own = sum(each.anonymous + each.tables for each in now.values())
        return Cost(
            workers=self.workers,
            net=own + files - sum(each.anonymous + each.tables for each in before),
            gross=own + files + sum(each.files for each in now.values()),
            # a forked child's mark counts its share of the master's pages: not taken
            peak=files
            + sum(each.peak + each.files for pid, each in now.items() if self._imported[pid])
            + sum(
                each.anonymous + each.tables + each.files
                for pid, each in now.items()
                if not self._imported[pid]
            ),
        )


def _blocks(place: str) -> int:
    """The memory of all files of a directory."""
    if not place:
        return 0
    return sum(path.stat().st_blocks * 512 for path in Path(place).iterdir() if path.is_file())


# ---- the scenes ----------------------------------------------------------------------------------

Grow = Callable[[int], None]
"""Adds that many workers."""
Scene = Callable[[contextlib.ExitStack, str, int], tuple[Side, Grow]]
"""Sets a side up before a server with that many objects, without workers."""


def shared(stack: contextlib.ExitStack, url: str, count: int) -> tuple[Side, Grow]:
    name = stack.enter_context(directory())
    side = Side(stack, count, name)
    side.start("benchmarks.scenes.knowing:reflector", name, url)
    return side, lambda more: side.work("benchmarks.scenes.knowing:worker", more, name)


def each_its_own(kind: str) -> Scene:
    def scene(stack: contextlib.ExitStack, url: str, count: int) -> tuple[Side, Grow]:
        side = Side(stack, count)
        return side, lambda more: side.work("benchmarks.peers.holding:hold", more, kind, url, count)

    return scene


def preloaded(stack: contextlib.ExitStack, url: str, count: int) -> tuple[Side, Grow]:
    side = Side(stack, count)
    master = side.start("benchmarks.peers.holding:hold_and_fork", url)

    def grow(more: int) -> None:
        began = time.monotonic()
        master.send(more)
        for pid, read in master.receive():
            side.watch(pid, new=True)
            side.worked(read, (time.monotonic() - began) / more)

    return side, grow


def lmdb(stack: contextlib.ExitStack, url: str, count: int) -> tuple[Side, Grow]:
    place = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-lmdb-", dir="/dev/shm"))
    side = Side(stack, count, place)
    side.start("benchmarks.peers.sharing:fill_lmdb", url, place)
    return side, lambda more: side.work("benchmarks.peers.sharing:read_lmdb", more, place)


def redis(stack: contextlib.ExitStack, url: str, count: int) -> tuple[Side, Grow]:
    place = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-redis-"))
    socket = f"{place}/redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", place]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    stack.callback(server.wait, REDIS_S)
    stack.callback(server.terminate)
    deadline = time.monotonic() + REDIS_S
    while not Path(socket).exists():
        if time.monotonic() > deadline or server.poll() is not None:
            raise RuntimeError("redis-server has not started")
        time.sleep(0.01)
    side = Side(stack, count)
    side.watch(server.pid)
    side.start("benchmarks.peers.sharing:fill_redis", url, place)
    return side, lambda more: side.work("benchmarks.peers.sharing:read_redis", more, place)


# ---- growing -------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Found:
    """One side: its cost by workers, its times to be full, and the reason of its end."""

    name: str
    count: int
    costs: dict[int, Cost] = dataclasses.field(default_factory=dict)
    first_s: float = 0.0  # from nothing until the first worker has read all
    further_s: float = 0.0  # the same of a further one, from the start of its process
    stopped: str = ""

    @property
    def most(self) -> Cost:
        return self.costs[max(self.costs)]


def grown(scene: Scene, found: Found, url: str, workers: list[int], limit: int) -> Found:
    """Adds workers while the side, by its own growth so far, stays below `limit` bytes."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        side, grow = scene(stack, url, found.count)
        for wanted in workers:
            while side.workers < wanted and not found.stopped:
                if found.costs and found.most.gross / side.workers * wanted > limit:
                    found.stopped = f"stopped before {wanted}: half of the machine's memory"
                    break
                grow(min(wanted - side.workers, 1 if not side.workers else AT_ONCE))
                found.first_s = found.first_s or time.monotonic() - began
                cost = side.cost()
                if cost.gross > limit:
                    found.stopped = f"stopped at {cost.workers}: half of the machine's memory"
                if side.workers == wanted or found.stopped:
                    found.costs[side.workers] = cost
        found.further_s = (
            side.took[min(1, len(side.took) - 1)] if side.took else 0.0
        )  # the second one starts alone, too
    return found


def half_of_the_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
