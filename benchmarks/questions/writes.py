"""What does it cost to make a decoded object visible, with three indices, against decoding it?

Every object is decoded immediately before it is put, in the same loop; both are timed there, so
that the peer sees the same machine and the put finds the object warm. Times are CPU time of the
thread, its clock's own cost subtracted. "decode and free" also counts taking the decoded object
apart again. Updates run in a cache whose ring holds as many old versions as it may, as in one that
has run for long. An update changes the node, a label, an annotation and the whole status.
"""

from __future__ import annotations

import gc
import itertools
import random
import statistics
import time
from typing import Any

import orjson

from benchmarks import harness
from benchmarks.harness import Row, at_most, show_ns, timing
from benchmarks.scenes import objects
from benchmarks.scenes.objects import Object
from benchmarks.scenes.shared import BATCH, RESOURCE, Corpus, directory, open_writer, recorded

Ready = tuple[str, bytes, str]
"""Key, JSON and version of an object that will be put."""

LOOP = 250
NUMBERS = itertools.count()


def run(quick: bool) -> list[Row]:
    corpora = [Corpus("pods", 10_000)]
    if not quick:
        corpora += [Corpus("pods", 100_000), *filter(None, [recorded()])]
    rows: list[Row] = []
    gc.disable()
    try:
        for corpus in corpora:
            rows += _questions(corpus, 4 if quick else 20)
    finally:
        gc.enable()
    if quick:
        rows += harness.not_asked("the same of 100,000 pods, and of recorded ones")
    return rows


def _questions(corpus: Corpus, rounds: int) -> list[Row]:
    pods = list(corpus.objects())
    new = [_ready(pod) for pod in pods]
    chosen = random.Random(3).choices(pods, k=rounds * LOOP)
    del pods
    rows: list[Row] = []
    with directory() as name, open_writer(name) as writer:
        added = [put_batch(writer, new[at : at + BATCH]) for at in range(0, len(new), BATCH)]
        rows.append(_row(f"new, batches of {BATCH}", corpus, added[-rounds:], 1.5))
        _fill_window(writer, chosen)
        for question, change, limit in (
            ("one status-only update alone", objects.status_update, 0.6),  # before the others,
            ("one update alone", objects.update, 1.0),  # which change more than the status
        ):
            singles = [
                _singles(writer, [_ready(change(pod, next(NUMBERS))) for pod in some])
                for some in (chosen[turn::rounds] for turn in range(rounds))
            ]
            rows.append(_row(question, corpus, singles, limit))
    return rows


def _fill_window(writer: Any, pods: list[Object]) -> None:
    """Updates until the ring is full: from then on every commit also frees something."""
    before = -1
    while (held := writer.stats()["ring_bytes"]) > before:
        before = held
        chosen = random.Random(held).choices(pods, k=BATCH)
        writer.apply(RESOURCE, [objects.status_update(pod, next(NUMBERS)) for pod in chosen])


def _ready(pod: Object) -> Ready:
    return objects.key_of(pod), objects.encode([pod])[0], objects.version_of(pod)


def put_batch(writer: Any, ready: list[Ready]) -> tuple[float, float, float]:
    """Nanoseconds per object: put, decode, decode and free."""
    loads, clock = orjson.loads, time.thread_time_ns
    start = clock()
    decoded = [(key, loads(body), version) for key, body, version in ready]
    between = clock()
    writer.put_many(RESOURCE, decoded)
    end = clock()
    del decoded
    freed = clock() - end
    count = len(ready)
    return (end - between) / count, (between - start) / count, (between - start + freed) / count


def _singles(writer: Any, ready: list[Ready]) -> tuple[float, float, float]:
    """The same for objects that are put one at a time, a commit each."""
    loads, clock, put = orjson.loads, time.thread_time_ns, writer.put
    decoding = putting = freeing = 0
    for key, body, version in ready:
        start = clock()
        decoded = loads(body)
        between = clock()
        put(RESOURCE, key, decoded, version)
        end = clock()
        del decoded
        freed = clock()
        decoding += between - start
        putting += end - between
        freeing += freed - end
    count, tick = len(ready), _clock_cost()
    both = (decoding + freeing) / count - 2 * tick
    return putting / count - tick, decoding / count - tick, both


def _clock_cost() -> float:
    clock = time.thread_time_ns
    start = clock()
    for _ in range(1_000):
        clock()
    return (clock() - start) / 1_000


def _row(
    question: str, corpus: Corpus, rounds: list[tuple[float, float, float]], limit: float
) -> Row:  # fmt: skip
    put, decode, both = zip(*rounds, strict=True)
    ratio = statistics.median(a / b for a, b in zip(put, decode, strict=True))
    return Row(
        question=f"dict to visible: {question}, {corpus}",
        ours=str(timing(put)),
        peer=f"orjson.loads {timing(decode)}",
        note=f"decode and free {show_ns(statistics.median(both))}",
        **at_most(limit, ratio),
    )


if __name__ == "__main__":
    harness.main(__doc__, run)
