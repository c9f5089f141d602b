"""What does a queue of a million keys cost, against ten of a hundred thousand?

One process adds the keys of a first content, two workers take and end them. Then as many keys wait
in a delay of ten minutes: how long does a change of one of them take until a worker has it, against
the same with a thousand keys.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack
from typing import Any

from benchmarks import harness
from benchmarks.harness import Row, at_most, percentile, show_ns
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import directory
from shmcache.errors import QueueShutDown
from shmcache.memory.companions import queue_files
from shmcache.memory.segments import Place
from shmcache.queue.workqueue import INITIAL_PRIORITY, WorkQueue

KEYS, FEWER = 1_000_000, 50_000
"""Of a full run, and of a quick one."""
PARTS = 10
WORKERS = 2
BYTES_LIMIT = 200
FEW = 1_000
DELAY_S = 600.0
GAP_S = 0.002


def run(quick: bool) -> list[Row]:
    count = FEWER if quick else KEYS
    rounds = 100 if quick else 1_000
    whole, parts = [], []
    for _ in range(2 if quick else 3):
        whole.append(_first_content(count))
        parts.append(sum(_first_content(count // PARTS) for _ in range(PARTS)))
    size = _memory(count)
    many, few = _delayed(count, rounds), _delayed(FEW, rounds)
    return [
        Row(
            question=f"{count:,} keys through {WORKERS} workers, against {PARTS} queues",
            ours=harness.show_s(statistics.median(whole)),
            peer=harness.show_s(statistics.median(parts)),
            **at_most(1.3, statistics.median(whole) / statistics.median(parts)),
        ),
        Row(
            question=f"bytes of shared memory a key, with {count:,} that wait",
            ours=f"{size:.0f}",
            peer="",
            ratio=size / BYTES_LIMIT,
            must=f"≤ {BYTES_LIMIT}",
            met=size <= BYTES_LIMIT,
        ),
        Row(
            question=f"a change of one of {count:,} delayed keys, p50, against {FEW:,}",
            ours=show_ns(percentile(many, 50)),
            peer=show_ns(percentile(few, 50)),
            **at_most(2.0, percentile(many, 50) / percentile(few, 50)),
        ),
    ]


def keys(count: int) -> list[str]:
    return [f"namespace-{n % 20}/deployment-{n:07d}" for n in range(count)]


def _first_content(count: int) -> float:
    """Seconds from the first add until the last key is done."""
    names = keys(count)
    with ExitStack() as stack:
        name = stack.enter_context(directory())
        queue = stack.enter_context(WorkQueue(Place(name), "bench"))
        children = stack.enter_context(Children(_worker, [(name,)] * WORKERS))
        children.receive()
        start = time.perf_counter()
        children.send("go")
        queue.add_many(names, INITIAL_PRIORITY)
        queue.shut_down()
        worked = sum(children.receive())
        took = time.perf_counter() - start
        assert worked == count
    return took


def _memory(count: int) -> float:
    """Bytes a key when all wait: the whole file, its empty parts included."""
    with directory() as name, WorkQueue(Place(name), "bench") as queue:
        queue.add_many(keys(count))
        place = Place(name)
        (file,) = queue_files(place)
        return os.stat(place.location.file(file)).st_blocks * 512 / count


def _worker(pipe: Pipe, name: str) -> None:
    with WorkQueue(Place(name), "bench") as queue:
        pipe.ready()
        worked = 0
        try:
            while True:
                queue.done(queue.get() or "")
                worked += 1
        except QueueShutDown:
            pipe.answer(worked)


def _delayed(count: int, rounds: int) -> list[int]:
    """How long changes of delayed keys took, each until a sleeping worker had it."""
    names = keys(count)
    with ExitStack() as stack:
        name = stack.enter_context(directory())
        queue = stack.enter_context(WorkQueue(Place(name), "bench"))
        for key in names:
            queue.add_after(key, DELAY_S)
        children = stack.enter_context(Children(_sleeper, [(name, rounds)]))
        children.receive()
        began = []
        for number in range(rounds):
            time.sleep(GAP_S)
            began.append(time.monotonic_ns())
            queue.add(names[number * 7919 % count])
        (came,) = children.receive()
    return [end - start for start, end in zip(began, came, strict=True)]


def _sleeper(pipe: Pipe, name: str, rounds: int) -> None:
    with WorkQueue(Place(name), "bench") as queue:
        pipe.answer("ready")
        came: list[Any] = []
        while len(came) < rounds:
            key = queue.get()
            came.append(time.monotonic_ns())
            queue.add_after(key or "", DELAY_S)
            queue.done(key or "")
        pipe.answer(came)


if __name__ == "__main__":
    harness.main(__doc__, run)
