"""What does a key of work cost: in one process, over processes, asleep, and after a kill?

One producer adds keys of 30 bytes, each once; four workers take one, end it, take the next one. The
peers are multiprocessing.Queue (which has no `done`: theirs is a get only), and Redis lists over a
Unix socket, with a list of keys in progress. Hand-over to a sleeper is measured as in wake.py,
against a sem_t in C; a kill from SIGKILL until another process has the key.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import harness
from benchmarks.harness import Row, at_least, at_most, percentile, show_ns
from benchmarks.peers import redis_lists, semaphore
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import directory
from shmcache.errors import QueueShutDown
from shmcache.memory.segments import Place
from shmcache.queue.workqueue import WorkQueue

WORKERS = 4
CYCLE_LIMIT_NS = 3_000
KILL_LIMIT_S = 1.0
WAKE_LIMIT = 3.0
GAP_US = 500
END = "end"


def run(quick: bool) -> list[Row]:
    turns = 2 if quick else 5
    rows = [_one_process(5 if quick else 21)]
    rows += _throughput(20_000 if quick else 50_000, turns)
    rows.append(_hand_over(turns, 200 if quick else 1_000))
    rows.append(_killed(3 if quick else 15))
    return rows


@contextlib.contextmanager
def opened() -> Iterator[tuple[str, WorkQueue]]:
    with directory() as name, WorkQueue(Place(name), "bench") as queue:
        yield name, queue


def keys(count: int) -> list[str]:
    return [f"namespace-{n % 20}/deployment-{n:07d}" for n in range(count)]


# ---- one process -------------------------------------------------------------------------


def _one_process(rounds: int) -> Row:
    names = keys(2_000)
    with opened() as (_, queue):

        def cycle(given: list[str]) -> None:
            for key in given:
                queue.add(key)
                queue.get()
                queue.done(key)

        found = harness.measure({"ours": (cycle, lambda: names)}, len(names), rounds)["ours"]
    return Row(
        question="add + get + done in one process",
        ours=str(found),
        peer="",
        ratio=found.ns / CYCLE_LIMIT_NS,
        must=f"≤ {show_ns(CYCLE_LIMIT_NS)}",
        met=found.ns <= CYCLE_LIMIT_NS,
    )


# ---- keys a second -----------------------------------------------------------------------


def _throughput(count: int, turns: int) -> list[Row]:
    names = keys(count)
    ours, mp, redis = [], [], []
    with contextlib.ExitStack() as stack:
        socket = stack.enter_context(redis_lists.server()) if redis_lists.is_here() else ""
        for _ in range(turns):
            ours.append(count / _ours(names))
            mp.append(count / _multiprocessing(names))
            if socket:
                fewer = names[: max(1_000, count // 10)]
                redis.append(len(fewer) / _redis(socket, fewer))
    rows = []
    peers = (("multiprocessing.Queue", mp, 5.0), ("Redis lists", redis, 10.0))
    for peer, found, limit in peers:
        question = f"keys a second, 1 producer, {WORKERS} workers, against {peer}"
        if not found:
            rows.append(Row(question=question, ours="", peer=redis_lists.MISSING))
            continue
        ratio = statistics.median(a / b for a, b in zip(ours, found, strict=True))
        rows.append(
            Row(
                question=question,
                ours=f"{statistics.median(ours):,.0f}",
                peer=f"{statistics.median(found):,.0f}",
                **at_least(limit, ratio),
            )
        )
    return rows


def _ours(names: list[str]) -> float:
    with opened() as (name, queue), Children(_ours_worker, [(name,)] * WORKERS) as children:
        children.receive()
        children.send("go")
        start = time.perf_counter()
        for key in names:
            queue.add(key)
        queue.shut_down()
        worked = sum(children.receive())
        took = time.perf_counter() - start
        assert worked == len(names)
        return took


def _ours_worker(pipe: Pipe, name: str) -> None:
    with WorkQueue(Place(name), "bench") as queue:
        pipe.ready()
        worked = 0
        try:
            while True:
                key = queue.get()
                queue.done(key or "")
                worked += 1
        except QueueShutDown:
            pipe.answer(worked)


def _multiprocessing(names: list[str]) -> float:
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    results: Any = context.SimpleQueue()
    barrier = context.Barrier(WORKERS + 1)
    workers = [
        context.Process(target=_multiprocessing_worker, args=(queue, results, barrier), daemon=True)
        for _ in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    for key in names:
        queue.put(key)
    for _ in workers:
        queue.put(END)
    worked = sum(results.get() for _ in workers)
    took = time.perf_counter() - start
    for worker in workers:
        worker.join()
    assert worked == len(names)
    return took


def _multiprocessing_worker(queue: Any, results: Any, barrier: Any) -> None:
    worked = 0
    barrier.wait()
    while queue.get() != END:
        worked += 1
    results.put(worked)


def _redis(socket: str, names: list[str]) -> float:
    client = redis_lists.connect(socket)
    client.flushall()
    with Children(_redis_worker, [(socket,)] * WORKERS) as children:
        children.receive()
        children.send("go")
        start = time.perf_counter()
        for key in names:
            redis_lists.add(client, key)
        for _ in range(WORKERS):
            redis_lists.add(client, END)
        worked = sum(children.receive())
        took = time.perf_counter() - start
        assert worked == len(names)
        return took


def _redis_worker(pipe: Pipe, socket: str) -> None:
    client = redis_lists.connect(socket)
    pipe.ready()
    worked = 0
    while (key := redis_lists.get(client)) != END:
        redis_lists.done(client, key)
        worked += 1
    pipe.answer(worked)


# ---- asleep ------------------------------------------------------------------------------


def _hand_over(turns: int, rounds: int) -> Row:
    woken = multiprocessing.get_context("spawn").RawValue("Q", 0)
    ours: list[list[int]] = []
    peer: list[list[int]] = []
    with (
        semaphore.compiled() as program,
        opened() as (name, queue),
        Children(_sleeper, [(name, woken)]) as children,
    ):
        children.receive()
        for turn in range(turns):
            peer.append(semaphore.wake(program, 1, rounds, GAP_US).took)
            children.send(rounds)
            added = _add_slowly(queue, woken, range(turn * rounds, (turn + 1) * rounds))
            (came,) = children.receive()
            ours.append([end - start for start, end in zip(added, came, strict=True)])
    ratio = statistics.median(
        percentile(a, 50) / percentile(b, 50) for a, b in zip(ours, peer, strict=True)
    )
    return Row(
        question="add to a sleeping worker's next line, p50 / p99",
        ours=_show(ours),
        peer=f"sem_t in C {_show(peer)}",
        **at_most(WAKE_LIMIT, ratio),
    )


def _add_slowly(queue: WorkQueue, woken: Any, numbers: range) -> list[int]:
    """Adds a key whenever the worker has had time to fall asleep; returns when each add began.

    Sleeps at once afterwards, see waking.py.
    """
    clock, pause, add, began = time.monotonic_ns, time.sleep, queue.add, []
    pause(GAP_US / 1e6)
    for number in numbers:
        key = f"key-{number}"
        start = clock()
        add(key)
        pause(GAP_US / 1e6)
        began.append(start)
        while woken.value <= number:
            pause(GAP_US / 1e6)
    return began


def _sleeper(pipe: Pipe, name: str, woken: Any) -> None:
    clock = time.monotonic_ns
    with WorkQueue(Place(name), "bench") as queue:
        pipe.answer("ready")
        while True:
            rounds = pipe.next()
            came = []
            for _ in range(rounds):
                key = queue.get()
                came.append(clock())
                queue.done(key or "")
                woken.value += 1
            pipe.answer(came)


def _show(found: list[list[int]]) -> str:
    middle = statistics.median(percentile(turn, 50) for turn in found)
    last = statistics.median(percentile(turn, 99) for turn in found)
    return f"{show_ns(middle)} / {show_ns(last)}"


# ---- a kill ------------------------------------------------------------------------------


def _killed(rounds: int) -> Row:
    took = []
    for number in range(rounds):
        with opened() as (name, queue), Children(_holder, [(name,)]) as children:
            queue.add("key")
            (pid,) = children.receive()
            time.sleep(number / rounds / 2)  # anywhere between two checks
            start = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            assert queue.get(timeout=60) == "key"
            took.append(time.monotonic() - start)
            queue.done("key")
    worst = max(took)
    return Row(
        question="worker killed until its key is in other hands, the worst",
        ours=f"{harness.show_s(worst)} (median {harness.show_s(statistics.median(took))})",
        peer="",
        ratio=worst / KILL_LIMIT_S,
        must=f"≤ {KILL_LIMIT_S:g} s",
        met=worst <= KILL_LIMIT_S,
    )


def _holder(pipe: Pipe, name: str) -> None:
    queue = WorkQueue(Place(name), "bench")
    queue.get()
    pipe.answer(os.getpid())
    signal.pause()


if __name__ == "__main__":
    harness.main(__doc__, run)
