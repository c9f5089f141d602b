"""From the server's bytes to data that workers can read: what do a watch event and a list cost?

Ours begins with the bytes of a socket: the chunked framing, one chunk for each event, in pieces of
a read; it ends with a published generation, in a cache with three indices. The peer is one process
that does `orjson.loads` and `dict[key] = object`; it receives whole lines, without framing. Both
run in turns, in one thread, timed in its CPU time; the collector is off. "by read" publishes the
events of one read of 64 KiB as one generation, "one by one" every event for itself. Recorded pods
have managedFields: ours skips them, the peer decodes and keeps them. "an update" moves the pod to
another node, and changes a label, an annotation and the whole status.
"""

from __future__ import annotations

import gc
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from benchmarks import harness
from benchmarks.harness import Row, at_most, timing
from benchmarks.scenes import objects
from benchmarks.scenes.objects import Object
from benchmarks.scenes.shared import RESOURCE, Corpus, directory, open_writer, recorded
from shmcache import _hot

EVENTS = 500
READ = 65_536
NUMBERS = itertools.count()
VERSIONED = b'{"kind":"Pod","apiVersion":"v1",'

Change = Callable[[Object, int], Object]


def run(quick: bool) -> list[Row]:
    corpora = [Corpus("pods", 2_000)] if quick else [Corpus("pods", 10_000), recorded()]
    rows: list[Row] = []
    gc.disable()
    try:
        for corpus in corpora:
            if corpus is not None:
                rows += _watch(corpus, 4 if quick else 20)
                rows += _lists(corpus, 3 if quick else 7)
    finally:
        gc.enable()
    if quick:
        rows += harness.not_asked("the same of 10,000 pods, and of recorded ones")
    return rows


def _cpu(work: Callable[..., None], *given: Any) -> int:
    before = time.thread_time_ns()
    work(*given)
    return time.thread_time_ns() - before


# ---- a watch ---------------------------------------------------------------------------------


def _line(pod: Object) -> bytes:
    return b'{"type":"MODIFIED","object":' + VERSIONED + orjson.dumps(pod)[1:] + b"}\n"


def _pieces(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


def _watch(corpus: Corpus, rounds: int) -> Iterator[Row]:
    pods = list(corpus.objects())
    chosen = random.Random(3).choices(pods, k=rounds * EVENTS)
    for question, change, limit in (
        ("a status-only update", objects.status_update, 0.5),
        ("an update", objects.update, 0.5),
    ):
        for how, single in (("by read", False), ("one by one", True)):
            timed = _watched(pods, chosen, change, rounds, single=single)
            name = f"bytes to visible: {question}, {how}, {corpus}"
            yield _row(name, timed, "orjson.loads into a dict", limit)


def _watched(
    pods: list[Object], chosen: list[Object], change: Change, rounds: int, *, single: bool
) -> list[tuple[float, float]]:
    """Nanoseconds per event by round: ours, the peer's."""
    cache = {objects.key_of(pod): orjson.loads(orjson.dumps(pod)) for pod in pods}
    timed: list[tuple[float, float]] = []
    with directory() as name, open_writer(name) as writer:
        writer.apply_items(RESOURCE, _items(_body(pods)))
        _fill_window(writer, pods, change)
        for turn in range(rounds):
            lines = [_line(change(pod, next(NUMBERS))) for pod in chosen[turn::rounds]]
            framed = b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in lines)
            pieces = [b"%x\r\n%b\r\n" % (len(line), line) for line in lines] if single else (
                _pieces(framed, READ)
            )  # fmt: skip
            theirs = _cpu(_peer_events, cache, lines)
            ours = _cpu(_our_events, writer, pieces)
            timed.append((ours / len(lines), theirs / len(lines)))
    return timed


def _fill_window(writer: Any, pods: list[Object], change: Change) -> None:
    """Updates until the ring is full: from then on every commit also frees something."""
    before = -1
    while (held := writer.stats()["ring_bytes"]) > before:
        before = held
        chosen = random.Random(held).choices(pods, k=EVENTS)
        body = b"".join(_line(change(pod, next(NUMBERS))) for pod in chosen)
        writer.apply_items(RESOURCE, _hot.Frames().feed(body))


def _our_events(writer: Any, pieces: list[bytes]) -> None:
    chunks, frames = _hot.Chunks(), _hot.Frames()
    for piece in pieces:
        items = frames.feed(chunks.feed(piece))
        if items:
            writer.apply_items(RESOURCE, items, version=items[-1].version)


def _peer_events(cache: dict[str, Object], lines: list[bytes]) -> None:
    loads = orjson.loads
    for line in lines:
        event = loads(line)
        pod = event["object"]
        metadata = pod["metadata"]
        cache[f"{metadata['namespace']}/{metadata['name']}"] = pod


# ---- lists -----------------------------------------------------------------------------------


def _body(pods: list[Object]) -> bytes:
    items = b",".join(objects.encode(pods))
    return (
        b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%b]}'
        % (items)
    )


def _items(body: bytes) -> list[Any]:
    return _hot.ItemScanner(kind="Pod", api_version="v1").feed(body)


def _lists(corpus: Corpus, rounds: int) -> Iterator[Row]:
    pods = list(corpus.objects())
    body = _body(pods)
    pieces = _pieces(body, READ)
    first, again = [], []
    for _ in range(rounds):
        held: list[object] = []  # the result is freed after the clock has stopped
        theirs = _cpu(_peer_list, held, pieces) / len(pods)
        held.clear()
        with directory() as name, open_writer(name) as writer:
            first.append((_cpu(_our_list, writer, pieces) / len(pods), theirs))
            again.append((_cpu(_our_list, writer, pieces) / len(pods), theirs))
    peer = "the whole body by orjson.loads into a dict"
    yield _row(f"first list to visible, per object, {corpus}", first, peer, 1.2)
    yield _row(f"a relist in which nothing changed, per object, {corpus}", again, peer, 1.0)


def _our_list(writer: Any, pieces: list[bytes]) -> None:
    scanner = _hot.ItemScanner(kind="Pod", api_version="v1")
    with writer.begin_replace(RESOURCE, "1") as staged:
        for piece in pieces:
            staged.apply_items(scanner.feed(piece))
        scanner.finish()


def _peer_list(held: list[object], pieces: list[bytes]) -> None:
    found = orjson.loads(b"".join(pieces))
    cache: dict[str, Object] = {}
    held.append(cache)
    for pod in found["items"]:
        metadata = pod["metadata"]
        cache[f"{metadata['namespace']}/{metadata['name']}"] = pod


def _row(question: str, timed: list[tuple[float, float]], peer: str, limit: float) -> Row:
    ours, theirs = zip(*timed, strict=True)
    ratio = statistics.median(a / b for a, b in timed)
    return Row(
        question=question,
        ours=str(timing(ours)),
        peer=f"{peer} {timing(theirs)}",
        **at_most(limit, ratio),
    )


if __name__ == "__main__":
    harness.main(__doc__, run)
