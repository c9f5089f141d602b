"""How long from publish until a sleeping Python consumer runs, against a raw sem_t wake?

The writer waits until all sleepers have had time to fall asleep, puts one already encoded value
into a batch, notes the time, and commits; a consumer notes the time when `wait` returns. The peer
is a C program that does the same with one process-shared sem_t per sleeper. Both run in turns.
And with nobody asleep: what do 64 claimed seats cost the writer at each commit?
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import shmcache
from benchmarks import harness, objects
from benchmarks.children import Children, Pipe
from benchmarks.harness import Row, at_most, percentile, show_ns
from benchmarks.peers import semaphore
from benchmarks.shared import RESOURCE, directory, fill_variants, open_writer, variants
from shmcache import _hot
from shmcache._native import check, lib

GAP_US = 500
WAIT_S = 10.0
SEATS = 64
SEAT_PROCESSES = 4
SCAN_LIMIT_NS = 100
LIMITS = {1: 3.0, 4: 2.0}
PERCENTILES = (1, 5, *range(10, 91, 5), 95, 98, 99, 99.5, 99.9)
LINE = 16  # words: a cache line and its neighbour


def run(quick: bool) -> list[Row]:
    turns, rounds = (3, 300) if quick else (5, 1_000)
    rows: list[Row] = []
    with semaphore.compiled() as program:
        for sleepers, limit in LIMITS.items():
            rows.append(_wake(program, sleepers, limit, turns, rounds))
    rows.append(_nobody_asleep(9 if quick else 21))
    return rows


class Publisher:
    """A writer that puts two encoded values under one key, by turns."""

    def __init__(self, name: str, writer: Any) -> None:
        fill_variants(writer, 1)
        self._writer = writer
        self._cache = shmcache.attach(name)
        self._key, self._views = variants(self._cache)[0]
        self._version = objects.FIRST_UPDATE_VERSION  # even: the first put changes the key

    def put(self) -> None:
        self._version += 1
        view = self._views[self._version & 1]
        self._writer.put(RESOURCE, self._key, view, str(self._version))

    def publish(self, posted: Any) -> int:
        """Puts, notes the time, commits: by the calls that put() makes, to note it in between."""
        self._version += 1
        view = self._views[self._version & 1]
        handle, address = self._writer._handle, self._writer._address  # noqa: SLF001
        check(lib.shmc_begin(handle), "begin")
        _hot.put(address, 0, self._key, view, str(self._version), None)
        start = time.monotonic_ns()
        posted.value = start
        check(lib.shmc_commit(handle, start), "commit")
        return start

    def put_all(self, nothing: list[None]) -> None:
        for _ in nothing:
            self.put()

    def close(self) -> None:
        self._cache.close()


@contextmanager
def publisher() -> Iterator[tuple[str, Publisher]]:
    with directory() as name, open_writer(name) as writer:
        made = Publisher(name, writer)
        try:
            yield name, made
        finally:
            made.close()


def _wake(program: Path, sleepers: int, limit: float, turns: int, rounds: int) -> Row:
    context = multiprocessing.get_context("spawn")
    posted, done = context.RawValue("q", 0), context.RawArray("Q", LINE * sleepers)
    ours: list[list[int]] = []
    peer: list[list[int]] = []
    costs: list[int] = []
    with publisher() as (name, writer):
        each = [(name, posted, done, LINE * index) for index in range(sleepers)]
        with Children(_sleeper, each) as children:
            children.receive()
            for turn in range(turns):
                peer.append(semaphore.wake(program, sleepers, rounds, GAP_US).took)
                children.send(rounds)
                costs += _publish(writer, posted, done, range(turn * rounds, (turn + 1) * rounds))
                ours.append([took for answer in children.receive() for took in answer])
    ratio = statistics.median(
        percentile(a, 50) / percentile(b, 50) for a, b in zip(ours, peer, strict=True)
    )
    return Row(
        question=f"publish to Python consumer runs, {sleepers} asleep, p50 / p99",
        ours=_show(ours),
        peer=f"sem_t in C {_show(peer)}",
        note=f"such a commit costs the writer {show_ns(statistics.median(costs))}",
        data={"sleepers": sleepers, "ours": _distribution(ours), "sem_t in C": _distribution(peer)},
        **at_most(limit, ratio),
    )


def _distribution(turns: list[list[int]]) -> list[tuple[float, float]]:
    """(percentile, microseconds), for a picture."""
    every = [took for turn in turns for took in turn]
    return [(each, percentile(every, each) / 1e3) for each in PERCENTILES]


def _publish(writer: Publisher, posted: Any, done: Any, rounds: range) -> list[int]:
    """Publishes once in each round, when all sleep again; what each commit cost."""
    costs = []
    for number in rounds:
        while any(done[index] < number for index in range(0, len(done), LINE)):
            time.sleep(50e-6)
        time.sleep(GAP_US * 1e-6)
        start = writer.publish(posted)
        costs.append(time.monotonic_ns() - start)
    return costs


def _sleeper(pipe: Pipe, name: str, posted: Any, done: Any, index: int) -> None:
    clock = time.monotonic_ns
    cache = shmcache.attach(name)
    cursor = cache.follow()
    rounds = pipe.ready()
    while True:
        took = []
        for _ in range(rounds):
            while not cache.wait(cursor, WAIT_S):
                pass
            took.append(clock() - posted.value)
            cursor.take(16)
            done[index] += 1
        pipe.answer(took)
        rounds = pipe.next()


def _show(turns: list[list[int]]) -> str:
    return " / ".join(
        show_ns(statistics.median(percentile(turn, percent) for turn in turns))
        for percent in (50, 99)
    )


def _nobody_asleep(rounds: int) -> Row:
    """The same commits to a cache with 64 claimed seats and to one with none, in turns."""
    number = 5_000
    nothing = [None] * number
    with publisher() as (name, crowded), publisher() as (_, alone):
        each = [(name, SEATS // SEAT_PROCESSES)] * SEAT_PROCESSES
        with Children(_sit, each) as children:
            children.receive()
            times = harness.measure(
                {
                    "crowded": (crowded.put_all, lambda: nothing),
                    "alone": (alone.put_all, lambda: nothing),
                },
                number,
                rounds,
            )
    pairs = zip(times["crowded"].rounds, times["alone"].rounds, strict=True)
    scan = statistics.median(a - b for a, b in pairs)
    return Row(
        question=f"nobody asleep, {SEATS} seats claimed: what they add to a commit",
        ours=show_ns(scan),
        peer="",
        must=f"≤ {SCAN_LIMIT_NS} ns",
        met=scan <= SCAN_LIMIT_NS,
        note=f"commit {show_ns(times['crowded'].ns)}, without seats {show_ns(times['alone'].ns)}",
    )


def _sit(pipe: Pipe, name: str, seats: int) -> None:
    """Claims seats, and never sleeps in them."""
    claimed = [shmcache.attach(name) for _ in range(seats)]
    cursors = [cache.follow() for cache in claimed]
    pipe.ready()
    del cursors


if __name__ == "__main__":
    harness.main(__doc__, run)
