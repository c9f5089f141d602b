"""What does a takeover cost: a writer is killed, and the next one goes on?

A takeover is the whole of Writer(): the lock, the maps, the walk that verifies everything, the
private tables. A restart is that of `shmcache run`, killed by SIGKILL: from the start of the next
process to an open watch, against a server on this machine, which receives no list request. Both are
wall-clock times.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, directory, fill, open_writer
from shmcache.testing import ApiServer

TURNS, FEWER = 5, 2
"""Of a full run, and of a quick one."""
TAKEOVER_S = 1.5
RESTART_S = 2.0
READY_S = 300


def run(quick: bool) -> list[Row]:
    count, turns = (2_000, FEWER) if quick else (100_000, TURNS)
    return [_takeover(count, turns), _restart(count, turns)]


# ---- a takeover --------------------------------------------------------------------------------


def _takeover(count: int, turns: int) -> Row:
    with directory() as name:
        with Children(_fill_and_stay, [(name, count)]) as children:
            ((pid, stats),) = children.receive()
            os.kill(pid, signal.SIGKILL)
        walls, cpus = [], []
        for _ in range(turns):
            start, cpu = time.perf_counter(), time.process_time()
            writer = open_writer(name)
            walls.append(time.perf_counter() - start)
            cpus.append(time.process_time() - cpu)
            assert writer.inherited[RESOURCE].count == count, "not all of it was taken over"
            writer.leave()
    rate = stats["reachable_bytes"] / 1e6 / statistics.median(walls)
    return Row(
        question=f"takeover of {count:,} pods, verified",
        ours=_seconds(walls),
        peer="",
        note=f"{stats['blocks']:,} values in {harness.show_bytes(stats['reachable_bytes'])}, "
        f"{rate:,.0f} MB/s; CPU {statistics.median(cpus):.2f} s; the first, after the kill, "
        f"{walls[0]:.2f} s",
        **_within(TAKEOVER_S, walls),
    )


def _fill_and_stay(pipe: Pipe, name: str, count: int) -> None:
    """A writer that holds `count` pods until it is killed."""
    writer = open_writer(name)
    fill(writer, objects.pods(count))
    pipe.answer((os.getpid(), writer.stats()))
    signal.pause()


def _seconds(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"


def _within(limit: float, times: list[float]) -> dict[str, Any]:
    return {"must": f"≤ {limit:g} s", "met": statistics.median(times) <= limit}


# ---- a restart of the reflector ------------------------------------------------------------------


def _restart(count: int, turns: int) -> Row:
    with ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=1))
        name = stack.enter_context(directory())
        place = stack.enter_context(tempfile.TemporaryDirectory())
        for pod in objects.pods(count):
            del pod["metadata"]["resourceVersion"]
            server.create(RESOURCE, pod)
        kubeconfig = server.kubeconfig(str(Path(place) / "kubeconfig"))
        command = [sys.executable, "-m", "shmcache", "run", RESOURCE, "--cache", name]
        command += ["--kubeconfig", kubeconfig, "--log-level", "error", "--arena-max", "4GiB"]
        _kill(_start(stack, command, lambda: _synced(name, count)))
        listed, walls = _lists(server), []
        for _ in range(turns):
            before = _watches(server)
            start = time.perf_counter()
            process = _start(stack, command, partial(_watched, server, before))
            walls.append(time.perf_counter() - start)
            _kill(process)
        lists = _lists(server) - listed
        assert _synced(name, count), "the cache has changed"
    return Row(
        question=f"restart of the reflector to watching again, {count:,} pods",
        ours=_seconds(walls),
        peer=f"{lists} lists",
        must=f"≤ {RESTART_S:g} s, 0 lists",
        met=statistics.median(walls) <= RESTART_S and lists == 0,
    )


def _start(
    stack: ExitStack, command: list[str], done: Callable[[], bool]
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, cwd=harness.ROOT)
    stack.callback(process.kill)
    deadline = time.monotonic() + READY_S
    while not done():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("shmcache run does not come up")
        time.sleep(0.002)
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _synced(name: str, count: int) -> bool:
    try:
        with shmcache.attach(name) as cache:
            return len(cache[RESOURCE]) == count and bool(cache[RESOURCE].status.synced)
    except (shmcache.SegmentNotFound, KeyError):
        return False


def _lists(server: ApiServer) -> int:
    return sum(
        one.verb == "list" or "sendInitialEvents" in one.query
        for one in server.log
        if one.resource == RESOURCE
    )


def _watched(server: ApiServer, before: int) -> bool:
    return _watches(server) > before


def _watches(server: ApiServer) -> int:
    return int(server.requests["watch", RESOURCE])


if __name__ == "__main__":
    harness.main(__doc__, run)
