"""How much disk and CPU does the flight recorder need, and how long does it take to read it back?

5,000 pods change 50 times a second: of 20 events 16 are a change of the status, 2 change all of a
pod's own fields, one deletes a pod and one creates it again. The recorder goes by the clock of the
benchmark, so that minutes of events take seconds; a day is the checkpoints that its bounds ask for,
and the bytes of so many events. The writer's CPU is that of its process, in turns with and without
a recorder's process, which reads the ring as it does in operation.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, show_bytes, show_s
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import directory
from shmcache.engine.recorder_process import RecorderLoop
from shmcache.recorder.disk import reel_numbers
from shmcache.recorder.history import FlightRecord
from shmcache.recorder.rebuilding import RebuiltCache
from shmcache.recorder.recorder import FlightRecorder
from shmcache.recorder.shelf import RecorderLimits

PODS, RATE, DAY_S = 5_000, 50, 24 * 3600
LOOK_S = 0.25
LIMIT, WRITER_LIMIT_US = 1 << 30, 2.0


def run(quick: bool) -> list[Row]:
    minutes = 1 if quick else 40
    with directory() as name, tempfile.TemporaryDirectory() as place:
        rows = _bytes(name, os.path.join(place, "record"), minutes * 60)
    with directory() as name, tempfile.TemporaryDirectory() as place:
        rows.append(_writer(name, os.path.join(place, "record"), quick=quick))
    return rows


class Changing:
    """A cache of pods that change."""

    def __init__(self, name: str, count: int = PODS) -> None:
        self.writer = shmcache.Writer(name, ["pods"])
        self.pods = list(objects.pods(count))
        self._rng = random.Random(7)
        self._gone: list[int] = []
        self.number = 0
        self.writer.apply("pods", self.pods)

    def next(self) -> tuple[str, Any, str]:
        """One event: the key, the object (None: deleted) and the version."""
        self.number += 1
        kind, at = self.number % 20, self._rng.randrange(len(self.pods))
        if kind == 1 and self._gone:
            at = self._gone.pop()
        pod = self.pods[at]
        if kind == 0:
            self._gone.append(at)
            return objects.key_of(pod), None, str(objects.FIRST_UPDATE_VERSION + self.number)
        change = objects.update if kind < 4 else objects.status_update
        self.pods[at] = pod = change(pod, self.number)
        return objects.key_of(pod), pod, objects.version_of(pod)

    def apply(self, event: tuple[str, Any, str]) -> None:
        key, pod, version = event
        if pod is None:
            self.writer.delete("pods", key, version)
        else:
            self.writer.put("pods", key, pod, version)


# ---- bytes ---------------------------------------------------------------------------------------


def _bytes(name: str, place: str, seconds: int) -> list[Row]:
    scene = Changing(name)
    clock = [time.time()]
    with shmcache.attach(name) as cache:
        recorder = FlightRecorder(
            cache, place, RecorderLimits(), clock=lambda: clock[0],
            wall_ns=lambda: int(clock[0] * 1e9),
        )  # fmt: skip
        recorder.step()
        checkpoint, used = recorder.standing.bytes, 0.0
        for _ in range(int(seconds / LOOK_S)):
            for _ in range(round(RATE * LOOK_S) + (scene.number % 2)):
                scene.apply(scene.next())
            clock[0] += LOOK_S
            begun = time.process_time()
            recorder.step()
            used += time.process_time() - begun
        clock[0] += 1
        recorder.close()
    reels = len(reel_numbers(place))
    changes = recorder.standing.bytes - reels * checkpoint
    day = _day(changes / scene.number, checkpoint)
    rows = [
        Row(
            question=f"{PODS:,} pods, {RATE} events a second: disk for 24 hours",
            ours=show_bytes(day),
            peer="",
            ratio=day / LIMIT,
            must=f"≤ {show_bytes(LIMIT)}",
            met=day <= LIMIT,
            note=f"an event {changes / scene.number:.0f} bytes, a checkpoint "
            f"{show_bytes(checkpoint)}; {scene.number:,} events measured, in {reels} reels",
        ),
        Row(
            question="CPU of the recorder for an event",
            ours=show_s(used / scene.number),
            peer="",
            note=f"{used / scene.number * RATE:.2%} of a core at {RATE} events a second",
        ),
        _read_back(place, clock[0]),
    ]
    scene.writer.close()
    return rows


def _day(event: float, checkpoint: float) -> float:
    """Bytes of 24 hours, and of the reel before them, which SHELF2 keeps for its state."""
    limits = RecorderLimits()
    reel, step = 0.0, event * RATE
    while not limits.is_full(int(reel), int(checkpoint), reel / step):
        reel += step
    reels = DAY_S / (reel / step) + 1
    return reels * (reel + checkpoint)


def _read_back(place: str, now: float) -> Row:
    begun = time.perf_counter()
    with RebuiltCache() as rebuilt:
        rebuilt.show(FlightRecord(place).at_time(int((now - 30) * 1e9)))
        count = len(rebuilt.cache["pods"])
    took = time.perf_counter() - begun
    return Row(
        question="a state read back, as a cache",
        ours=show_s(took),
        peer="",
        note=f"{count:,} pods; the reel had {os.path.getsize(_last(place)):,} bytes",
    )


def _last(place: str) -> str:
    return FlightRecord(place).reels[-1].path


# ---- the writer ----------------------------------------------------------------------------------


def _writer(name: str, place: str, *, quick: bool) -> Row:
    """In turns; each turn has the same events."""
    events, turns = (1_000, 4) if quick else (10_000, 20)
    scene = Changing(name)
    costs: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * turns):
        recorded = turn % 2 == 1
        batch = [scene.next() for _ in range(events)]
        for _ in _recorded(name, place) if recorded else iter([None]):
            costs[recorded].append(_apply(scene, batch))
    scene.writer.close()
    without, beside = (statistics.median(costs[each]) / events * 1e6 for each in (False, True))
    return Row(
        question="CPU of the writer's process for an event, with the recorder less without it",
        ours=f"{beside - without:+.2f} µs",
        peer=f"without {without:.1f} µs",
        ratio=(beside - without) / WRITER_LIMIT_US,
        must=f"≤ {WRITER_LIMIT_US:g} µs",
        met=beside - without <= WRITER_LIMIT_US,
        note=f"medians of {turns} turns of {events:,} events",
    )


def _apply(scene: Changing, batch: list[tuple[str, Any, str]]) -> float:
    """CPU seconds of this process, at a pace that the recorder follows."""
    begun, used = time.perf_counter(), 0.0
    for number, event in enumerate(batch):
        at = time.process_time()
        scene.apply(event)
        used += time.process_time() - at
        if number % 50 == 49:
            time.sleep(max(0.0, begun + number / 5_000 - time.perf_counter()))
    return used


def _recorded(name: str, place: str) -> Iterator[None]:
    with Children(_record, [(name, place)]) as children:
        children.receive()
        yield
        children.send("end")
        children.receive()


def _record(pipe: Pipe, name: str, place: str) -> None:
    over = threading.Event()
    with shmcache.attach(name) as cache:
        loop = RecorderLoop(cache, place, RecorderLimits(), 0o600)
        thread = threading.Thread(target=loop.run, args=(over,))
        thread.start()
        pipe.ready()
        over.set()
        thread.join()
        pipe.answer(None)


if __name__ == "__main__":
    harness.main(__doc__, run)
