"""What a takeover costs: a writer is killed, and the next one goes on; and growth to a million.

A takeover is the whole of Writer(): the lock, the maps, the walk that verifies everything, the
private tables. A restart is that of `shmcache run`: from the start of the process to an open watch
at the stored version, against a server on this machine, which is asked for no list. Growth compares
1,000,000 objects of 1 KB and one index with 1,000: a look-up with a dict's of the same size, a
commit and a snapshot with those of the small one. All times are of the clock on the wall.
"""

from __future__ import annotations

import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import shmcache
from benchmarks import harness, objects, shared
from benchmarks.children import Children
from benchmarks.harness import Row
from shmcache.segments import Place
from shmcache.testing import ApiServer

PODS = shmcache.Resource("pods", shared.INDICES)
SMALL = shmcache.Resource("things", {"node": "spec.nodeName"})
ARENA = "16GiB"
NAME = "bench-takeover"


def run(quick: bool) -> list[Row]:
    try:
        rows = [takeover(10_000 if quick else 100_000), restart(1_000 if quick else 20_000)]
        return rows + growth(100_000 if quick else 1_000_000)
    finally:
        Place(NAME).unlink()


# ---- a takeover --------------------------------------------------------------------------------


def fill(pipe: Any, count: int) -> None:
    """A writer that holds `count` pods until it is killed."""
    writer = shmcache.Writer(NAME, [PODS], arena_max=ARENA)
    for batch in batches(objects.pods(count)):
        writer.apply("pods", batch)
    pipe.send(writer.stats())
    signal.pause()


def batches(all_of_them: Any, size: int = 500) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for one in all_of_them:
        batch.append(one)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def takeover(count: int) -> Row:
    with Children(fill, [(count,)]) as children:
        stats = children.receive()[0]
        for process in children._processes:  # noqa: SLF001 - killed, not asked to end
            process.kill()
            process.join()
    walls, cpus = [], []
    for _ in range(5):
        start, cpu = time.perf_counter(), time.process_time()
        writer = shmcache.Writer(NAME, [PODS], arena_max=ARENA)
        walls.append(time.perf_counter() - start)
        cpus.append(time.process_time() - cpu)
        assert writer.inherited["pods"].count == count
        writer.leave()
    Place(NAME).unlink()
    wall = statistics.median(walls)
    return Row(
        question=f"takeover of {count:,} pods, verified",
        ours=f"{wall:.2f} s",
        peer=f"{stats['reachable_bytes'] / 1e6 / wall:,.0f} MB/s",
        must="≤ 1.5 s",
        met=wall <= 1.5,
        note=f"{stats['blocks']:,} values in {stats['reachable_bytes'] / 1e6:.0f} MB; CPU "
        f"{statistics.median(cpus):.2f} s",
    )


# ---- a restart of the reflector ------------------------------------------------------------------


def restart(count: int) -> Row:
    with ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=1))
        place = stack.enter_context(tempfile.TemporaryDirectory())
        for pod in objects.pods(count):
            pod["metadata"].pop("resourceVersion", None)
            server.create("pods", pod)
        kubeconfig = server.kubeconfig(str(Path(place) / "kubeconfig"))
        command = [sys.executable, "-m", "shmcache", "run", "pods", "--name", NAME]
        command += ["--kubeconfig", kubeconfig, "--log-level", "error", "--arena-max", "4GiB"]
        start_reflector(stack, command, lambda: synced(count)).kill()
        asked, seconds = lists(server), []
        for _ in range(3):
            before = watches(server)
            start = time.perf_counter()
            process = start_reflector(stack, command, partial(watched, server, before))
            seconds.append(time.perf_counter() - start)
            process.kill()
            process.wait()
        assert lists(server) == asked, "a restarted reflector listed"
    Place(NAME).unlink()
    took = statistics.median(seconds)
    return Row(
        question=f"restart of the reflector to watching again, {count:,} pods",
        ours=f"{took:.2f} s",
        peer="0 lists",
        must="≤ 2 s",
        met=took <= 2.0,
    )


def start_reflector(
    stack: ExitStack, command: list[str], done: Callable[[], bool]
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, cwd=harness.ROOT)
    stack.callback(process.kill)
    deadline = time.monotonic() + 120
    while not done():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("shmcache run does not come up")
        time.sleep(0.001)
    return process


def synced(count: int) -> bool:
    try:
        with shmcache.attach(NAME) as cache:
            return len(cache["pods"]) == count and cache["pods"].status.synced
    except (shmcache.SegmentNotFound, KeyError):
        return False


def lists(server: ApiServer) -> int:
    return sum(
        one.verb == "list" or "sendInitialEvents" in one.query
        for one in server.log
        if one.resource == "pods"
    )


def watched(server: ApiServer, before: int) -> bool:
    return watches(server) > before


def watches(server: ApiServer) -> int:
    return int(server.requests["watch", "pods"])


# ---- growth ------------------------------------------------------------------------------------


def thing(number: int) -> dict[str, Any]:
    """About 1 KB of JSON, with a uid and a text of its own."""
    return {
        "metadata": {
            "name": f"thing-{number:07d}",
            "namespace": f"namespace-{number % 50}",
            "uid": f"{number:08d}-0000-4000-8000-000000000000",
            "resourceVersion": str(number),
        },
        "spec": {"nodeName": f"node-{number % 1000}", "text": f"{number:07d} " * 90},
        "status": {"phase": "Running"},
    }


def key_of(number: int) -> str:
    return f"namespace-{number % 50}/thing-{number:07d}"


def growth(count: int) -> list[Row]:
    small, large = sizes(1_000), sizes(count)
    against_dict = large["get"] / large["dict"]
    commit, snapshot = large["commit"] / small["commit"], large["snapshot"] / small["snapshot"]
    show = harness.show_ns
    return [
        Row(question=f"get among {count:,} objects of 1 KB", ours=show(large["get"]),
            peer=f"dict: {show(large['dict'])}", **harness.at_most(2, against_dict)),
        Row(question=f"commit of one among {count:,}", ours=show(large["commit"]),
            peer=f"among 1,000: {show(small['commit'])}", **harness.at_most(3, commit)),
        Row(question=f"snapshot of {count:,}", ours=show(large["snapshot"]),
            peer=f"of 1,000: {show(small['snapshot'])}", ratio=snapshot, must="constant",
            met=snapshot <= 1.5),
    ]  # fmt: skip


def sizes(count: int) -> dict[str, float]:
    """Nanoseconds each; keys and objects in an order that no cache knows."""
    rng = random.Random(1)
    with shmcache.Writer(NAME, [SMALL], arena_max=ARENA, fresh=True) as writer:
        for batch in batches(map(thing, range(count)), 2_000):
            writer.apply("things", batch)
        known = {key_of(number): number for number in range(count)}
        with shmcache.attach(NAME) as cache:
            things, keys = cache["things"], rng.choices(list(known), k=20_000)
            loops: dict[str, tuple[harness.Loop, Callable[[], list[str]]]] = {
                "get": (lambda given: [things.get(key) for key in given], lambda: keys),
                "dict": (lambda given: [known.get(key) for key in given], lambda: keys),
                "snapshot": (partial(snapshots, cache), lambda: keys),
            }
            found = harness.measure(loops, len(keys), 5)
        times = []
        for number in rng.choices(range(count), k=2_000):
            changed = thing(number)
            changed["status"]["phase"] = f"phase {rng.random()}"
            start = time.thread_time_ns()
            writer.put("things", key_of(number), changed, "2")
            times.append(time.thread_time_ns() - start)
    return {name: timing.ns for name, timing in found.items()} | {
        "commit": statistics.median(times)
    }


def snapshots(cache: shmcache.Cache, given: list[str]) -> None:
    for _ in given:
        cache.snapshot().close()


if __name__ == "__main__":
    harness.main(__doc__, run)
