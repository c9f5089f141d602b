"""What does it cost a machine that W of its processes know 10,000 pods?

Everybody fills from the same dumb server (canned.py; managedFields stripped everywhere), and every
worker reads one field of every object before anything is measured. Memory is asked of the kernel,
from outside, for every process of a side: its anonymous pages and its page tables, shared ones in
proportion, and the blocks of all files in memory (segments, LMDB's map), once.

    net     that, less the same processes right after their imports
    gross   that, with interpreters, imports, and the pages of libraries
    peak    gross, with each process at its own high-water mark

A side grows worker by worker while its memory, by its own growth so far, stays below half of the
machine's; where it ends is shown as such. A quick run asks for fewer workers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import canned, harness
from benchmarks.children import Children, Pipe
from benchmarks.harness import Row, show_bytes
from benchmarks.lean import Child
from benchmarks.peers import holding
from benchmarks.scene import serving
from benchmarks.shared import Corpus, directory
from shmcache.testing import ApiServer

PODS = holding.COUNT
WORKERS = (1, 2, 4, 8, 16, 32)
AT = 8
"""Workers of the rows with a verdict."""
MIB = 1 << 20
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
    """Processes of one way to know the pods, and the files in memory that they share."""

    def __init__(self, stack: contextlib.ExitStack, place: str = "") -> None:
        self._stack = stack
        self._place = place
        self._imported: dict[int, Memory | None] = {}
        self.workers = 0

    def start(self, target: str, *arguments: Any) -> Child:
        """A process that has imported and been looked at, and is full now."""
        child = self._stack.enter_context(Child(target, *arguments))
        self.watch(child.receive())
        child.send("go")
        child.receive()
        return child

    def work(self, target: str, *arguments: Any) -> None:
        """A worker more, which has read a field of every object."""
        child = self.start(target, *arguments)
        child.send("read")
        self.worked(child.receive())

    def watch(self, pid: int, *, new: bool = False) -> None:
        """Counts a process from now on; one that is new had nothing before."""
        self._imported[pid] = None if new else Memory.of(pid)

    def worked(self, count: int) -> None:
        if count != PODS:
            raise RuntimeError(f"a worker has read {count} objects of {PODS}")
        self.workers += 1

    def cost(self) -> Cost:
        now = {pid: Memory.of(pid) for pid in self._imported}
        before = [found for found in self._imported.values() if found]
        files = _blocks(self._place)
        own = sum(each.anonymous + each.tables for each in now.values())
        return Cost(
            workers=self.workers,
            net=own + files - sum(each.anonymous + each.tables for each in before),
            gross=own + files + sum(each.files for each in now.values()),
            # a forked child's mark counts what it shares with its master: not taken
            peak=files
            + sum(each.peak + each.files for pid, each in now.items() if self._imported[pid])
            + sum(
                each.anonymous + each.tables + each.files
                for pid, each in now.items()
                if not self._imported[pid]
            ),
        )


def _blocks(place: str) -> int:
    """What all files of a directory take in memory."""
    if not place:
        return 0
    return sum(path.stat().st_blocks * 512 for path in Path(place).iterdir() if path.is_file())


# ---- the sides -----------------------------------------------------------------------------------

Grow = Callable[[], None]
"""Adds one worker."""
Scene = Callable[[contextlib.ExitStack, str], tuple[Side, Grow]]
"""Sets a side up before a server, without workers."""


def shared(stack: contextlib.ExitStack, url: str) -> tuple[Side, Grow]:
    name = stack.enter_context(directory())
    side = Side(stack, name)
    side.start("benchmarks.knowing:reflector", name, url)
    return side, lambda: side.work("benchmarks.knowing:worker", name)


def each_its_own(kind: str) -> Scene:
    def scene(stack: contextlib.ExitStack, url: str) -> tuple[Side, Grow]:
        side = Side(stack)
        return side, lambda: side.work("benchmarks.peers.holding:hold", kind, url)

    return scene


def preloaded(stack: contextlib.ExitStack, url: str) -> tuple[Side, Grow]:
    side = Side(stack)
    master = side.start("benchmarks.peers.holding:hold_and_fork", url)

    def grow() -> None:
        master.send(1)
        for pid, count in master.receive():
            side.watch(pid, new=True)
            side.worked(count)

    return side, grow


def lmdb(stack: contextlib.ExitStack, url: str) -> tuple[Side, Grow]:
    place = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-lmdb-", dir="/dev/shm"))
    side = Side(stack, place)
    side.start("benchmarks.peers.sharing:fill_lmdb", url, place)
    return side, lambda: side.work("benchmarks.peers.sharing:read_lmdb", place)


def redis(stack: contextlib.ExitStack, url: str) -> tuple[Side, Grow]:
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
    side = Side(stack)
    side.watch(server.pid)
    side.start("benchmarks.peers.sharing:fill_redis", url, place)
    return side, lambda: side.work("benchmarks.peers.sharing:read_redis", place)


OURS = "shmcache"
SIDES: dict[str, tuple[Scene, bool]] = {
    # name: (scene, slow to fill)
    OURS: (shared, False),
    "urllib3 + orjson, dicts": (each_its_own("Dicts"), False),
    "urllib3 + orjson, collector tuned": (each_its_own("TunedDicts"), False),
    "dicts filled before fork": (preloaded, False),
    "raw JSON bytes": (each_its_own("RawBytes"), False),
    "msgspec, six fields": (each_its_own("Projection"), False),
    "msgspec, six short fields": (each_its_own("ShortProjection"), False),
    "LMDB, raw JSON": (lmdb, False),
    "Redis, raw JSON": (redis, False),
    "lightkube": (each_its_own("Lightkube"), False),
    "SharedInformer": (each_its_own("Informer"), True),
    "kubernetes_asyncio": (each_its_own("AsyncClient"), True),
    "kr8s": (each_its_own("Kr8s"), True),
}
MUST_NET = {
    "urllib3 + orjson, dicts": 45, "SharedInformer": 180, "raw JSON bytes": 12,
    "msgspec, six fields": 3, "LMDB, raw JSON": 1.7,
}  # fmt: skip
MUST_GROSS = {"urllib3 + orjson, dicts": 13, "SharedInformer": 50, "LMDB, raw JSON": 1}


@dataclasses.dataclass(slots=True)
class Found:
    """One side: what it cost by workers, when the first one was full, and where it was stopped."""

    costs: dict[int, Cost] = dataclasses.field(default_factory=dict)
    full_s: float = 0.0
    stopped: str = ""


def run(quick: bool) -> list[Row]:
    found = {}
    with serving(PODS, canned.PAGED) as server, _api_server() as slow:
        for name, (scene, is_slow) in SIDES.items():
            limit = (2 if is_slow else AT) if quick else WORKERS[-1]
            url = slow if name == "kr8s" else server.url  # kr8s asks for discovery
            found[name] = _measured(scene, url, limit)
            print(f"  {name}: {_said(found[name])}", flush=True)
    return [*_rows(found), *_unlike()]


@contextlib.contextmanager
def _api_server() -> Iterator[str]:
    with Children(_serve_all, [()]) as children:
        yield children.receive()[0]


def _serve_all(pipe: Pipe) -> None:
    with ApiServer() as server:
        for pod in canned.ordered(PODS):
            del pod["metadata"]["resourceVersion"]  # the server's to give
            server.create("pods", pod)
        pipe.answer(server.url)
        pipe.next()


def _measured(scene: Scene, url: str, limit: int) -> Found:
    found, half = Found(), _half_of_the_machine()
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        side, grow = scene(stack, url)
        for workers in (each for each in WORKERS if each <= limit):
            last = found.costs.get(side.workers)
            if last and last.gross / side.workers * workers > half:
                found.stopped = f"stopped before {workers}: half of the machine's memory"
                break
            while side.workers < workers:
                grow()
                found.full_s = found.full_s or time.monotonic() - began
            found.costs[workers] = side.cost()
    return found


def _half_of_the_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


# ---- the rows ------------------------------------------------------------------------------------


def _said(found: Found) -> str:
    costs = ", ".join(f"{each.workers}: {show_bytes(each.net)}" for each in found.costs.values())
    return f"{costs}; full after {found.full_s:.2g} s {found.stopped}".rstrip()


def _rows(found: dict[str, Found]) -> list[Row]:
    ours = found[OURS]
    rows = [_side_row(name, each, ours) for name, each in found.items()]
    for what, limits in (("net", MUST_NET), ("gross", MUST_GROSS)):
        rows += [_verdict(what, name, limit, ours, found[name]) for name, limit in limits.items()]
    few, many = min(ours.costs.values(), key=_workers), max(ours.costs.values(), key=_workers)
    further = (many.net - few.net) / (many.workers - few.workers)
    rows.append(
        Row(
            question=f"each further worker, net, of {many.workers}",
            ours=show_bytes(further),
            peer="",
            must="≤ 1 MiB",
            met=further <= MIB,
        )
    )
    return rows


def _workers(cost: Cost) -> int:
    return cost.workers


def _side_row(name: str, found: Found, ours: Found) -> Row:
    at = AT if AT in found.costs else max(found.costs)
    cost = found.costs[at]
    return Row(
        question=f"{PODS:,} pods in {at} workers: {name}",
        ours=show_bytes(ours.costs[at].net),
        peer="" if name == OURS else show_bytes(cost.net),
        ratio=None if name == OURS else cost.net / ours.costs[at].net,
        note="; ".join(
            filter(
                None,
                [
                    f"gross {show_bytes(cost.gross)}, peak {show_bytes(cost.peak)}",
                    f"the first worker has read all {found.full_s:.2g} s after the start",
                    found.stopped,
                ],
            )
        ),
        data={
            "side": name,
            "stopped": found.stopped,
            "costs": [dataclasses.asdict(each) for each in found.costs.values()],
        },
    )


def _verdict(what: str, name: str, limit: float, ours: Found, peer: Found) -> Row:
    question = f"{what} memory of {AT} workers, against {name}"
    if AT not in peer.costs:
        return Row(
            question=question, ours="", peer="not asked in a quick run", must=f"≥ {limit:g} ×"
        )
    mine, its = getattr(ours.costs[AT], what), getattr(peer.costs[AT], what)
    return Row(
        question=question,
        ours=show_bytes(mine),
        peer=show_bytes(its),
        **harness.at_least(limit, its / mine),
    )


def _unlike() -> list[Row]:
    """Where nothing but keys can be shared: all that it takes, against one copy of the JSON."""
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(directory())
        side = Side(stack, name)
        writer = side.start("benchmarks.knowing:writer", name, "unlike", PODS)
        for _ in range(AT):
            side.work("benchmarks.knowing:worker", name)
        cost = side.cost()
        writer.send("size")
        text: int = writer.receive()
    return [
        Row(
            question=f"net memory of {AT} workers, {Corpus('unlike', PODS)}",
            ours=show_bytes(cost.net),
            peer=f"JSON once {show_bytes(text)}",
            ratio=cost.net / text,
            must=f"≤ 1.4 × JSON + {AT} MiB",
            met=cost.net <= 1.4 * text + AT * MIB,
        )
    ]


if __name__ == "__main__":
    harness.main(__doc__, run)
