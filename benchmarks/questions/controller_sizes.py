"""What does a controller of a million objects cost, against ten of a hundred thousand?

A declared controller with two processes; they run before there is any content. The first list is
published at once, and the time counts until every object was reconciled: it contains the feeder,
the queue and a reconcile that reads its object. The peer is the same with a tenth of the objects,
ten times.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, at_most
from benchmarks.scenes.objects import Object
from benchmarks.scenes.shared import directory
from shmcache import states
from shmcache.controllers.board import Board
from shmcache.controllers.declaring import Controller
from shmcache.controllers.numbers import Numbers
from shmcache.memory.companions import queue_files
from shmcache.memory.segments import Place

OBJECTS, FEWER = 1_000_000, 10_000
"""Of a full run, and of a quick one."""
PARTS = 10
PROCESSES = 2
BYTES_LIMIT = 200
LOOK_S = 0.01
READY_S = 120.0


def run(quick: bool) -> list[Row]:
    count = FEWER if quick else OBJECTS
    ours, most = first_content(count)
    peer = sum(first_content(count // PARTS)[0] for _ in range(PARTS))
    size = most / count
    limit: dict[str, Any] = {"must": f"≤ {BYTES_LIMIT}", "met": size <= BYTES_LIMIT}
    return [
        Row(
            question=f"a controller of {count:,} objects, {PROCESSES} processes, first content",
            ours=harness.show_s(ours),
            peer=f"ten of {count // PARTS:,}: {harness.show_s(peer)}",
            **at_most(1.3, ours / peer),
        ),
        Row(
            question="reconciles a second in it",
            ours=f"{count / ours:,.0f}",
            peer=f"{count / peer:,.0f}",
        ),
        Row(
            question="most bytes of its queue an object",
            ours=f"{size:.0f}",
            peer="",
            **({} if quick else limit),  # of few keys it is the part that a queue keeps
        ),
    ]


def objects(count: int) -> Iterator[tuple[str, Object, str]]:
    for number in range(count):
        namespace, name = f"namespace-{number % 20}", f"web-{number:07d}"
        metadata = {"name": name, "namespace": namespace, "resourceVersion": "1"}
        yield f"{namespace}/{name}", {"metadata": metadata, "spec": {"replicas": 3}}, "1"


def reconcile(key: str, cache: shmcache.Cache) -> None:
    assert cache["deployments"][key]["spec"]["replicas"] == 3


def declared() -> Controller:
    return shmcache.controller("deployments", name="sizes", processes=PROCESSES)(reconcile)


def serve(name: str) -> None:
    declared().run(name)


def first_content(count: int) -> tuple[float, int]:
    """Seconds from the first content until all of it is reconciled; the most bytes of the queue."""
    with directory() as name, shmcache.Writer(name, ["deployments"], arena_max="2GiB") as writer:
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(name,))
        process.start()
        try:
            return _measured(name, writer, count)
        finally:
            process.terminate()
            process.join()


def _measured(name: str, writer: shmcache.Writer, count: int) -> tuple[float, int]:
    with shmcache.attach(name) as cache:
        board = Board(cache.place, "sizes")
        try:
            _wait(lambda: Numbers(board).concurrent >= PROCESSES)
            with writer.begin_replace("deployments", version="1") as staged:
                for each in objects(count):
                    staged.put(*each)
                start = time.monotonic()  # from here on it is published
            sizes = [0]
            writer.set_state("deployments", states.SYNCED, "1")
            while Numbers(board).reconciles < count:
                time.sleep(LOOK_S)
                sizes.append(_queue_bytes(name))
            return time.monotonic() - start, max(sizes)
        finally:
            board.close()


def _queue_bytes(name: str) -> int:
    place = Place(name)
    return sum(os.stat(place.location.file(file)).st_blocks * 512 for file in queue_files(place))


def _wait(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_S
    while not fact():
        assert time.monotonic() < deadline, "the controller is not ready"
        time.sleep(LOOK_S)


if __name__ == "__main__":
    harness.main(__doc__, run)
