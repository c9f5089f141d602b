"""What does a writer at full speed in another process do to a reader's get?

The reader times every get by itself (the clock's cost is subtracted), while the writer pauses and
while it puts status-only updates as fast as it can, in turns. LMDB under the same load is next to
it: a get of the raw bytes in a transaction of its own, as required to see the newest value.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from benchmarks import harness
from benchmarks.harness import Row, at_most, percentile, show_ns
from benchmarks.peers.lmdb_store import LmdbStore, open_environment
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, Corpus, SharedStore, directory, fill, open_writer

POOL = 1_000
GETS = 20_000
SETTLE_S = 0.05
CORPUS = Corpus("pods", 10_000)
RUNNING, COUNT = 0, 1
FIRST = 2 * objects.FIRST_UPDATE_VERSION
Put = Callable[[int], object]


def run(quick: bool) -> list[Row]:
    turns = 3 if quick else 21
    bodies = CORPUS.bodies()
    keys = list(bodies)
    random.Random(5).shuffle(keys)
    rows = []
    with directory() as name, _writing(_write_shared, name) as state:
        store = SharedStore(name)
        rows.append(_row("get", store.pods.get, store.ready(keys), state, turns, 3.0))
        store.close()
    stored = LmdbStore(bodies.items())
    with _writing(_write_lmdb, stored.path) as state:
        get = stored.get_newest
        rows.append(_row("LMDB get", get, stored.ready(keys), state, turns, None))
    stored.close()
    return rows


def _row(
    name: str,
    get: Callable[[Any], object],
    keys: Sequence[Any],
    state: Any,
    turns: int,
    limit: float | None,
) -> Row:
    quiet, busy, rates = [], [], []
    for turn in range(turns + 1):
        pair = _timed(get, keys), _with_writer(get, keys, state)
        if turn:  # the first turn warms up
            quiet.append(pair[0])
            busy.append(pair[1][0])
            rates.append(pair[1][1])
    ratio = statistics.median(
        percentile(b, 99) / percentile(q, 99) for b, q in zip(busy, quiet, strict=True)
    )
    return Row(
        question=f"{name} next to a writer at full speed, p50 / p99, {CORPUS}",
        ours=_show(busy),
        peer=f"quiet {_show(quiet)}",
        note=f"{statistics.median(rates) / 1e3:.0f} k updates/s",
        **({"ratio": ratio} if limit is None else at_most(limit, ratio)),
    )


def _with_writer(
    get: Callable[[Any], object], keys: Sequence[Any], state: Any
) -> tuple[list[int], float]:
    """The times of the gets while the writer runs, and its updates a second."""
    state[RUNNING] = 1
    time.sleep(SETTLE_S)
    before, start = state[COUNT], time.monotonic()
    took = _timed(get, keys)
    rate = (state[COUNT] - before) / (time.monotonic() - start)
    state[RUNNING] = 0
    time.sleep(SETTLE_S)
    return took, rate


def _timed(get: Callable[[Any], object], keys: Sequence[Any]) -> list[int]:
    """Nanoseconds of each get, the median cost of the clock subtracted."""
    clock = time.perf_counter_ns
    ticks = []
    took = []
    for key in keys[:GETS]:
        start = clock()
        get(key)
        end = clock()
        took.append(end - start)
        ticks.append(clock() - end)
    tick = int(statistics.median(ticks))
    return [each - tick for each in took]


def _show(turns: list[list[int]]) -> str:
    return " / ".join(
        show_ns(statistics.median(percentile(turn, percent) for turn in turns))
        for percent in (50, 99)
    )


@contextmanager
def _writing(target: Callable[..., None], where: str) -> Iterator[Any]:
    """A process that writes whenever state[RUNNING] is set, and counts in state[COUNT]."""
    state = multiprocessing.get_context("spawn").RawArray("q", 2)
    with Children(target, [(where, state)]) as children:
        children.receive()
        yield state
        state[RUNNING] = -1


def _write(pipe: Pipe, state: Any, put: Put) -> None:
    pipe.answer("ready")
    while state[RUNNING] >= 0:
        if state[RUNNING]:
            put(state[COUNT])
            state[COUNT] += 1
        else:
            time.sleep(0.001)


def _write_shared(pipe: Pipe, name: str, state: Any) -> None:
    with open_writer(name) as writer:
        fill(writer, CORPUS.objects())
        changed = [objects.status_update(pod, n) for n, pod in enumerate(objects.pods(POOL))]
        changed += [objects.status_update(pod, n + 1) for n, pod in enumerate(changed)]
        keys = [objects.key_of(pod) for pod in changed]

        def put(n: int) -> None:
            chosen = n % len(changed)
            writer.put(RESOURCE, keys[chosen], changed[chosen], str(FIRST + n))

        _write(pipe, state, put)


def _write_lmdb(pipe: Pipe, path: str, state: Any) -> None:
    environment = open_environment(path)
    pods = list(objects.pods(POOL))
    keys = [objects.key_of(pod).encode() for pod in pods]

    def put(n: int) -> None:
        chosen = n % POOL
        with environment.begin(write=True) as transaction:
            transaction.put(keys[chosen], orjson.dumps(pods[chosen]))

    _write(pipe, state, put)


if __name__ == "__main__":
    harness.main(__doc__, run)
