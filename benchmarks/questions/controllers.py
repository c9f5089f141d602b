"""What do two processes of a controller gain over one, when each reconcile is 1 ms of Python?

The peer is the machine: the same loop in two bare processes against one, without keys, queue or
cache, in turns with ours. The same table has two threads of one process, for the hopeful. A
controller's time is from the first added key until the last counted reconcile; its processes run
before. The cost of a key is measured with a reconcile that does nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, at_least
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import directory
from shmcache import states
from shmcache.controllers.board import Board
from shmcache.controllers.declaring import Controller
from shmcache.controllers.numbers import Numbers

RECONCILE_MS = 1.0
KEYS, FEWER = 1_000, 100
"""Of a full run, and of a quick one."""
LOOK_S = 0.002
NOTHING, NOTHING_KEYS = "nothing", 20
"""The controller whose reconcile does nothing, and its keys for each key of the others."""
COST_LIMIT_NS = 25_000
READY_S = 60.0


def work(steps: int) -> int:
    """Python that needs the interpreter, and nothing else."""
    found = 0
    for number in range(steps):
        found = (found * 31 + number) % 65_537
    return found


def reconcile(_key: str, _cache: object) -> None:
    work(int(os.environ["SHMCACHE_BENCH_STEPS"]))


def nothing(_key: str, _cache: object) -> None: ...


SETTINGS = {"one": (1, 1), "two": (2, 1), "threads": (1, 2), NOTHING: (1, 1)}
"""Processes, and keys at a time in each."""


def declared(name: str) -> Controller:
    processes, concurrency = SETTINGS[name]
    declare = shmcache.controller("pods", name=name, processes=processes, concurrency=concurrency)
    return declare(nothing if name == NOTHING else reconcile)


def serve(name: str, cache: str) -> None:
    declared(name).run(cache)


def calibrate() -> int:
    """The number of steps that take a millisecond here, alone."""
    steps = 20_000
    rounds = []
    for _ in range(20):
        start = time.thread_time_ns()
        work(steps)
        rounds.append(time.thread_time_ns() - start)
    return int(steps * RECONCILE_MS * 1e6 / statistics.median(rounds))


def run(quick: bool) -> list[Row]:
    steps = calibrate()
    os.environ["SHMCACHE_BENCH_STEPS"] = str(steps)
    turns, count = (2, FEWER) if quick else (11, KEYS)
    with ExitStack() as stack:
        cache = stack.enter_context(_cache())
        ways: dict[str, Callable[[], float]] = {
            name: stack.enter_context(
                _controller(name, cache, count * (NOTHING_KEYS if name == NOTHING else 1))
            )
            for name in SETTINGS
        }
        ways["bare one"] = stack.enter_context(_bare(1, steps, count))
        ways["bare two"] = stack.enter_context(_bare(2, steps, count))
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(turns + 1):
            for name, way in ways.items():
                taken = way()
                if turn:  # the first round warms up
                    seconds[name].append(taken)
    return _rows(seconds, count)


def _rows(seconds: dict[str, list[float]], count: int) -> list[Row]:
    def gain(slow: str, fast: str) -> list[float]:
        return [a / b for a, b in zip(seconds[slow], seconds[fast], strict=True)]

    bare, ours, threads = (
        gain(*pair) for pair in (("bare one", "bare two"), ("one", "two"), ("one", "threads"))
    )
    ratio = statistics.median(a / b for a, b in zip(ours, bare, strict=True))
    each = harness.timing([took / count / NOTHING_KEYS * 1e9 for took in seconds[NOTHING]])
    return [
        Row(
            question="reconciles of 1 ms of Python, 2 processes against 1",
            ours=f"{harness.show(statistics.median(ours))} ×",
            peer=f"two bare processes {harness.show(statistics.median(bare))} ×",
            **at_least(0.95, ratio),
        ),
        Row(
            question="the same, 2 threads of one process against 1",
            ours=f"{harness.show(statistics.median(threads))} ×",
            peer="",
        ),
        Row(
            question="cost of a key besides its reconcile, one process",
            ours=str(each),
            peer="",
            ratio=each.ns / COST_LIMIT_NS,
            must=f"≤ {harness.show_ns(COST_LIMIT_NS)}",
            met=each.ns <= COST_LIMIT_NS,
        ),
    ]


@contextmanager
def _cache() -> Iterator[str]:
    """A cache without events: keys are added to the queue itself."""
    with directory() as name, shmcache.Writer(name, ["pods"], arena_max="64MiB") as writer:
        writer.set_state("pods", states.SYNCED, "1")
        yield name


@contextmanager
def _controller(name: str, cache: str, count: int) -> Iterator[Callable[[], float]]:
    """Runs a controller's processes; returns the seconds for all keys."""
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(name, cache))
    process.start()
    keys = [f"prod/web-{number}" for number in range(count)]
    wanted = SETTINGS[name][0] * SETTINGS[name][1]
    with shmcache.attach(cache) as attached:
        controller = declared(name)
        queue = controller.queue(attached)
        board = Board(attached.place, name)

        def once(given: list[str] = keys) -> float:
            before, start = Numbers(board).reconciles, time.monotonic()
            queue.add_many(given)
            while Numbers(board).reconciles < before + len(given):
                time.sleep(LOOK_S)
            return time.monotonic() - start

        deadline = time.monotonic() + READY_S
        while Numbers(board).concurrent < wanted:
            assert time.monotonic() < deadline, f"{name}: not ready"
            time.sleep(LOOK_S)
        once(["prod/first"])
        try:
            yield once
        finally:
            queue.close()
            board.close()
            process.terminate()
            process.join()


@contextmanager
def _bare(processes: int, steps: int, count: int) -> Iterator[Callable[[], float]]:
    """The same loop, as often, without anything else."""
    share = count // processes
    with Children(_spin, [(share, steps)] * processes) as children:
        children.receive()

        def once() -> float:
            start = time.monotonic()
            children.send("go")
            children.receive()
            return time.monotonic() - start

        yield once
        children.send("end")


def _spin(pipe: Pipe, share: int, steps: int) -> None:
    told: Any = pipe.ready()
    while told == "go":
        for _ in range(share):
            work(steps)
        pipe.answer("done")
        told = pipe.next()


if __name__ == "__main__":
    harness.main(__doc__, run)
