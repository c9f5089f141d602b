"""How much memory: the shared data against the JSON, the writer's tables, an attached worker?

DATA is the memory of values and trees. Private memory is measured from outside Python: private
pages and page tables of a process that has imported everything, before and after. A process that
fills a cache streams its objects, so that it holds only its own tables.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, at_most, show_bytes, show_ns
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import (
    RESOURCE,
    Corpus,
    SharedStore,
    directory,
    fill,
    open_writer,
    recorded,
)

STREAM_BATCH = 50
UPDATE_BATCH = 100
ATTACHES = 7
MIB = 1 << 20
Stats = dict[str, Any]


def run(quick: bool) -> list[Row]:
    updates = 20_000 if quick else 1_000_000
    pods, found = Corpus("pods", 10_000), recorded()
    rows = _shares(pods, updates)
    rows += _workers(pods, 3 if quick else ATTACHES)
    for corpus, limit in (
        (Corpus("unlike", 1_000 if quick else 3_000), 1.4),
        (Corpus("own-token", 1_000 if quick else 10_000), None),
    ):
        rows.append(data_row(corpus, measured(corpus), limit))
    if found is not None:
        rows.append(data_row(found, measured(found), 0.35))
    if not quick:
        pods = Corpus("pods", 100_000)
        rows += [*_shares(pods, 0), *_workers(pods, ATTACHES)]
    else:
        rows += harness.not_asked("the same of 100,000 pods")
    return rows


def _shares(corpus: Corpus, updates: int) -> list[Row]:
    """Data against JSON, tables against data, data after updates against fresh data."""
    found = measured(corpus, updates)
    fresh, tables = _data_bytes(found["fresh"]), found["tables"]
    rows = [
        data_row(corpus, found, 0.35),
        Row(
            question=f"the writer's private tables / DATA, {corpus}",
            ours=show_bytes(tables),
            peer=f"DATA {show_bytes(fresh)}",
            note=f"it says {show_bytes(found['fresh']['private_bytes'])}",
            **at_most(0.5, tables / fresh),
        ),
    ]
    if updates:
        after, early = found["after"], found["early"]
        rows.append(
            Row(
                question=f"DATA after {updates:,} updates / fresh, {corpus}",
                ours=show_bytes(_data_bytes(after)),
                peer=f"fresh {show_bytes(fresh)}",
                note=f"old versions in the ring {show_bytes(after['ring_bytes'])}; high water "
                f"{show_bytes(after['high_water_bytes'])}, after a tenth of the updates "
                f"{show_bytes(early['high_water_bytes'])}, "
                f"fresh {show_bytes(found['fresh']['high_water_bytes'])}",
                **at_most(1.25, _data_bytes(after) / fresh),
            )
        )
    return rows


def data_row(corpus: Corpus, found: dict[str, Any], limit: float | None) -> Row:
    fresh, text = _data_bytes(found["fresh"]), found["json"]
    verdict: dict[str, Any] = {"ratio": fresh / text}
    if limit is not None:
        verdict = at_most(limit, fresh / text)
    values, trees = found["fresh"]["value_bytes"], found["fresh"]["tree_bytes"]
    return Row(
        question=f"DATA / JSON, {corpus}",
        ours=show_bytes(fresh),
        peer=f"JSON {show_bytes(text)}",
        note=f"values {show_bytes(values)}, trees {show_bytes(trees)}",
        **verdict,
    )


def _data_bytes(stats: Stats) -> int:
    return int(stats["value_bytes"] + stats["tree_bytes"])


def measured(corpus: Corpus, updates: int = 0) -> dict[str, Any]:
    """Fills a cache in another process: its statistics, the JSON's size, its private memory."""
    with _stream(corpus) as path, directory() as name:
        with Children(_fill_and_update, [(name, path, updates)]) as children:
            found: dict[str, Any] = children.receive()[0]
        found["json"] = sum(len(line) - 1 for line in _lines(path))
        return found


def _fill_and_update(pipe: Pipe, name: str, path: str, updates: int) -> None:
    warm = [orjson.loads(line) for line in next(_batches(path))]  # grows the allocators
    del warm
    before = harness.private_bytes()
    with open_writer(name) as writer:
        for batch in _batches(path):
            writer.apply(RESOURCE, [orjson.loads(line) for line in batch])
        gc.collect()
        found = {"tables": harness.private_bytes() - before, "fresh": writer.stats()}
        if updates:
            pods = [orjson.loads(line) for line in _lines(path)]
            _update(writer, pods, 0, updates // 10)
            found["early"] = writer.stats()
            _update(writer, pods, updates // 10, updates)
            found["after"] = writer.stats()
        pipe.answer(found)


def _update(writer: Any, pods: list[objects.Object], first: int, end: int) -> None:
    """Nine status-only updates to each pod, all of them in the pod's own fields."""
    for start in range(first, end, UPDATE_BATCH):
        changed = []
        for n in range(start, start + UPDATE_BATCH):
            pod = pods[n * 7_919 % len(pods)]
            change = objects.update if n % 10 == 0 else objects.status_update
            changed.append(change(pod, n, in_place=True))
        writer.apply(RESOURCE, changed)


def _workers(corpus: Corpus, attaches: int) -> list[Row]:
    """A worker's cost, and the time of attaching, each in processes of their own."""
    with _stream(corpus) as path, directory() as name, open_writer(name) as writer:
        fill(writer, (orjson.loads(line) for line in _lines(path)))
        with Children(_read_everything, [(name, path)]) as children:
            private = children.receive()[0]
        with Children(_decode_everything, [(path,)]) as children:
            decoded = children.receive()[0]
        attached = []
        for _ in range(attaches):
            with Children(_attach, [(name,)]) as children:
                attached += children.receive()
    took = statistics.median(attached)
    return [
        Row(
            question=f"private memory of a worker that read a field of all, {corpus}",
            ours=show_bytes(private),
            peer=f"a dict of its own {show_bytes(decoded)}",
            ratio=private / decoded,
            must="≤ 1 MiB",
            met=private <= MIB,
        ),
        Row(
            question=f"attach, {corpus}",
            ours=f"{show_ns(took)} ({show_ns(min(attached))} to {show_ns(max(attached))})",
            peer="",
            must="≤ 2 ms",
            met=took <= 2e6,
        ),
    ]


def _read_everything(pipe: Pipe, name: str, path: str) -> None:
    keys = [objects.key_of(orjson.loads(line)) for line in _lines(path)]
    gc.collect()
    before = harness.private_bytes()
    store = SharedStore(name)
    store.get_field(keys)
    gc.collect()
    pipe.answer(harness.private_bytes() - before)


def _decode_everything(pipe: Pipe, path: str) -> None:
    before = harness.private_bytes()
    gc.disable()
    kept = {objects.key_of(pod): pod for pod in map(orjson.loads, _lines(path))}
    pipe.answer(harness.private_bytes() - before)
    del kept


def _attach(pipe: Pipe, name: str) -> None:
    start = time.perf_counter_ns()
    cache = shmcache.attach(name)
    took = time.perf_counter_ns() - start
    cache.close()
    pipe.answer(took)


@contextlib.contextmanager
def _stream(corpus: Corpus) -> Iterator[str]:
    """The path of a file with one JSON text in each line."""
    with tempfile.NamedTemporaryFile(prefix="bench-pods-") as file:
        for thing in corpus.objects():
            file.write(orjson.dumps(thing) + b"\n")
        file.flush()
        yield file.name


def _lines(path: str) -> Iterator[bytes]:
    with Path(path).open("rb") as file:
        yield from file


def _batches(path: str) -> Iterator[list[bytes]]:
    lines = _lines(path)
    while batch := list(itertools.islice(lines, STREAM_BATCH)):
        yield batch


if __name__ == "__main__":
    harness.main(__doc__, run)
