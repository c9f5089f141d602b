"""Keys pass through a queue while workers, feeders and the reflector are killed.

    python tests/campaigns/queue_campaign.py --keys 1000000 --seconds 600      SEED=

Invariant tested: every object is reconciled at its last version, no key is ever with two workers,
and none is lost. Workers record their work in shared memory, with a word for each key: the worker
that has it now (a second one is an overlap), and the last version that was reconciled. Each worker
process also runs a feeder; the one that holds the lock dies like the others.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import random
import signal
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import shmcache
from shmcache.errors import QueueShutDown, ShmCacheError
from shmcache.memory.segments import Place
from shmcache.queue.feeder import Feeder, SourceEvent
from shmcache.queue.workqueue import WorkQueue

if TYPE_CHECKING:
    from shmcache.queue.workqueue import QueueOptions

CONTEXT = multiprocessing.get_context("fork")
PATIENCE = 120.0
KEPT = 65_536
"""Slots that keep their memory."""
RING = 4096
BATCH = 64


class Board:
    """For each key its holder, its last reconciled and written versions, and the number of its
    reconciles; and totals."""

    OVERLAPS, NEXT, HEAD, SIZE = 0, 8, 64, 32

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self._map = mmap.mmap(-1, self.HEAD + self.SIZE * keys)

    def _at(self, number: int) -> int:
        return self.HEAD + self.SIZE * number

    def _get(self, at: int) -> int:
        return int(struct.unpack_from("<Q", self._map, at)[0])

    def _set(self, at: int, value: int) -> None:
        struct.pack_into("<Q", self._map, at, value)

    def enter(self, number: int, pid: int) -> None:
        """Enters this process as the key's holder. A living process that is entered already is an
        overlap."""
        before = self._get(self._at(number))
        if before not in {0, pid} and alive(before):
            self._set(self.OVERLAPS, self._get(self.OVERLAPS) + 1)
        self._set(self._at(number), pid)

    def leave(self, number: int, pid: int, version: int) -> None:
        """Leaves the key, which must still be held by this process."""
        if self._get(self._at(number)) != pid:
            self._set(self.OVERLAPS, self._get(self.OVERLAPS) + 1)
        self._set(self._at(number) + 8, version)
        self._set(self._at(number) + 16, self._get(self._at(number) + 16) + 1)
        self._set(self._at(number), 0)

    def version(self, number: int) -> int:
        return self._get(self._at(number) + 8)

    def write(self, number: int) -> int:
        """The version that the key's object gets next: noted before the put."""
        version = self._get(self.NEXT) + 1
        self._set(self.NEXT, version)
        self._set(self._at(number) + 24, version)
        return version

    def written(self, number: int) -> int:
        return self._get(self._at(number) + 24)

    @property
    def overlaps(self) -> int:
        return self._get(self.OVERLAPS)

    @property
    def reconciles(self) -> int:
        """The total over all keys; only the holder of a key counts for it."""
        return sum(self._get(self._at(number) + 16) for number in range(self.keys))


def alive(pid: int) -> bool:
    """Neither gone nor a zombie, whose memory and locks are gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def key_of(number: int) -> str:
    return f"ns-{number % 7}/object-{number}"


def number_of(key: str) -> int:
    return int(key.rpartition("-")[2])


def by_key(event: SourceEvent) -> list[str]:
    return [event.key]


def work(name: str, slots: int | None, board: Board, seed: int) -> None:
    """One worker process, until it is killed or the queue is shut down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    dice = random.Random(seed)
    cache = shmcache.attach(name, timeout=PATIENCE)
    options: QueueOptions = {"rate": None, "base_delay": 0.001}
    if slots is not None:
        options["slots"] = slots
    queue = cache.queue("work", **options)
    feeder = Feeder(cache, queue, [("pods", by_key)])
    threading.Thread(target=feeder.run, daemon=True).start()
    pid = os.getpid()
    while True:
        try:
            key = queue.get()
        except QueueShutDown:
            os._exit(0)
        assert key is not None
        number = number_of(key)
        board.enter(number, pid)
        found = cache["pods"].get(key)
        if found is None:  # nothing is deleted here: this is a new writer's memory, not filled yet
            board.leave(number, pid, board.version(number))
            queue.add_rate_limited(key)
            queue.done(key)
            continue
        version = int(found["n"])
        chance = dice.random()
        if chance < 0.02:
            time.sleep(0.001)
        board.leave(number, pid, version)
        if chance < 0.1:
            queue.add_rate_limited(key)
        elif chance < 0.2:
            queue.add_after(key, dice.random() / 50)
        else:
            queue.forget(key)
        queue.done(key)


def write(name: str, board: Board, seed: int) -> None:
    """The writing process, until it is killed, or ends in order after SIGTERM."""
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    dice = random.Random(seed)
    with shmcache.Writer(name, ["pods"], arena_max="1GiB", ring_slots=RING) as writer:
        for first in range(0, board.keys, 1000):  # existing objects do not change
            if ending.is_set():
                return
            some = range(first, min(first + 1000, board.keys))
            put(writer, [(number, board.written(number) or board.write(number)) for number in some])
        while not ending.is_set():
            chosen = [dice.randrange(board.keys) for _ in range(BATCH)]
            put(writer, [(number, board.write(number)) for number in chosen])
            time.sleep(dice.random() / 100)


def put(writer: shmcache.Writer, versions: list[tuple[int, int]]) -> None:
    items = [(key_of(number), {"n": n}, str(n)) for number, n in versions]
    writer.put_many("pods", items)


def start(target: Any, *arguments: Any) -> Any:
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


def campaign(
    name: str,
    *,
    keys: int,
    seconds: float,
    workers: int,
    seed: int,
    restarts: bool,
    grows: bool = False,
) -> dict[str, int]:
    """Runs it; raises AssertionError with the first error. Returns the totals.

    `grows`: memory of slots comes and goes with the keys; else there are fewer slots than keys, and
    the queue is full some of the time.
    """
    dice = random.Random(seed)
    board = Board(keys)
    slots = None if grows else 1 << max(6, keys.bit_length() - 1)

    def worker() -> Any:
        return start(work, name, slots, board, dice.getrandbits(32))

    def writing() -> Any:
        return start(write, name, board, dice.getrandbits(32))

    writer, pool = writing(), [worker() for _ in range(workers)]
    counts = {"kills": 0, "writers killed": 0, "restarts": 0}
    stop = time.monotonic() + seconds
    try:
        while time.monotonic() < stop:
            time.sleep(dice.random() / 15)
            at = dice.randrange(workers)
            pool[at].kill()
            pool[at].join()
            counts["kills"] += 1
            pool[at] = worker()
            if restarts and dice.random() < 0.1:
                in_order = dice.random() < 0.3
                writer.terminate() if in_order else writer.kill()
                writer.join(PATIENCE)
                counts["restarts" if in_order else "writers killed"] += 1
                writer = writing()
        filled(name, keys)
        writer.kill()  # its last state stays
        writer.join()
        missing = await_all(name, board)
        with shmcache.attach(name) as cache, cache.queue("work") as queue:
            stats = queue.stats()
            left = await_shrunk(queue) if grows else {"slots": 0}
            queue.shut_down()
            for process in pool:
                process.join(PATIENCE)
        assert not board.overlaps, f"{board.overlaps} overlaps"
        assert not missing, f"{len(missing)} objects are not reconciled: {missing[:5]}, {stats}"
        assert left["slots"] <= KEPT, f"{left['slots']} slots still have memory: {left}"
        assert counts["kills"], "no process was killed: that proves nothing"
        assert stats["returned"] or counts["kills"] < 50, f"no key was taken back: {stats}"
        codes = {process.exitcode for process in pool}
        assert codes == {0}, f"a worker ended with {codes}"
    finally:
        for process in [writer, *pool]:
            process.kill()
            process.join()
    return counts | {
        "reconciles": board.reconciles,
        "returned": int(stats["returned"]),
        "full": int(stats["full"]),
        "slots": int(stats["slots"]),
        "slots left": int(left["slots"]),
        "rebuilds": int(stats["rebuilds"]),
    }


def await_shrunk(queue: WorkQueue) -> dict[str, int | float]:
    """The numbers of the queue when nothing is to be done any more.

    The last start added a key for each object: patience begins again whenever fewer of them wait.
    """
    fewest, deadline = sys.maxsize, 0.0
    while (stats := queue.stats())["slots"] > KEPT:
        waiting = int(stats["depth"] + stats["delayed"] + stats["in_progress"])
        if waiting < fewest:
            fewest, deadline = waiting, time.monotonic() + PATIENCE
        if time.monotonic() > deadline:
            break
        queue.tend()
        time.sleep(0.05)
    return stats


def filled(name: str, keys: int) -> None:
    """Waits until the current writer has put all objects."""
    deadline = time.monotonic() + PATIENCE
    with shmcache.attach(name, timeout=PATIENCE) as cache:
        while len(cache["pods"]) != keys:
            assert time.monotonic() < deadline, "the writer does not get ready"
            time.sleep(0.05)


def await_all(name: str, board: Board) -> list[tuple[str, int, int]]:
    """Waits until every object is reconciled at its last version; fails with those that are not."""
    deadline = time.monotonic() + PATIENCE
    with shmcache.attach(name, timeout=PATIENCE) as cache:
        last = {number_of(key): int(found["n"]) for key, found in cache["pods"].items()}
    assert len(last) == board.keys, f"{len(last)} objects are left of {board.keys}"
    while True:
        missing = [
            (key_of(number), board.version(number), version)
            for number, version in last.items()
            if board.version(number) != version
        ]
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--full", action="store_true", help="fewer slots than keys")
    options = parser.parse_args()
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"SEED={seed}", flush=True)
    name = f"campaign-{os.getpid()}"
    try:
        found = campaign(
            name,
            keys=options.keys,
            seconds=options.seconds,
            workers=options.workers,
            seed=seed,
            restarts=True,
            grows=not options.full,
        )
    except (AssertionError, ShmCacheError) as error:
        print(f"FAILED (SEED={seed}): {error}")
        return 1
    finally:
        Place(name).remove()
    print(", ".join(f"{count:,} {what}" for what, count in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
