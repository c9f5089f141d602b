"""Keys pass through a queue while workers, feeders and the reflector are killed.

    python tests/process/queue_campaign.py --keys 100000 --seconds 600      SEED=

Invariant tested: every object is reconciled at its last version, no key is ever with two workers,
nothing is lost. Workers write what they do into memory that all share, with a word for each key:
who works on it now (a second one there is an overlap), and the last version that was reconciled.
Each worker process also runs a feeder; whichever holds the lock dies like the others.
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
from typing import Any

import shmcache
from shmcache.errors import QueueShutDown, ShmCacheError
from shmcache.feeding import Event, Feeder

CONTEXT = multiprocessing.get_context("fork")
PATIENCE = 120.0
RING = 4096
BATCH = 64


class Board:
    """What workers did: for each key its holder, its last version; and counts of all."""

    OVERLAPS, HEAD, SIZE = 0, 64, 24

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
        """The key is ours. Whoever stands there and lives works on it, too."""
        before = self._get(self._at(number))
        if before not in {0, pid} and alive(before):
            self._set(self.OVERLAPS, self._get(self.OVERLAPS) + 1)
        self._set(self._at(number), pid)

    def leave(self, number: int, pid: int, version: int) -> None:
        """And it is so still."""
        if self._get(self._at(number)) != pid:
            self._set(self.OVERLAPS, self._get(self.OVERLAPS) + 1)
        self._set(self._at(number) + 8, version)
        self._set(self._at(number) + 16, self._get(self._at(number) + 16) + 1)
        self._set(self._at(number), 0)

    def version(self, number: int) -> int:
        return self._get(self._at(number) + 8)

    @property
    def overlaps(self) -> int:
        return self._get(self.OVERLAPS)

    @property
    def reconciles(self) -> int:
        """Of all keys: each is counted by who holds it."""
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


def by_key(event: Event) -> list[str]:
    return [event.key]


def work(name: str, slots: int, board: Board, seed: int) -> None:
    """One worker process, until it is killed or the queue is shut down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    dice = random.Random(seed)
    cache = shmcache.attach(name, timeout=PATIENCE)
    queue = cache.queue("work", slots=slots, rate=None, base_delay=0.001)
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
        version = 0 if found is None else int(found["n"])
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


class Writers:
    """The objects, and the process's worth of a reflector that is killed by being left open."""

    def __init__(self, name: str, keys: int, dice: random.Random) -> None:
        self.name = name
        self.last = [0] * keys
        self._dice = dice
        self._n = 0
        self.writer = self._open()
        self.restarts = 0

    def _open(self) -> shmcache.Writer:
        return shmcache.Writer(self.name, ["pods"], arena_max="1GiB", ring_slots=RING)

    def change(self) -> None:
        """Some objects, those at the end the most."""
        items = []
        for _ in range(BATCH):
            number = self._dice.randrange(len(self.last))
            self._n += 1
            self.last[number] = self._n
            items.append((key_of(number), {"n": self._n}, str(self._n)))
        self.writer.put_many("pods", items)

    def fill(self) -> None:
        for first in range(0, len(self.last), 1000):
            items = []
            for number in range(first, min(first + 1000, len(self.last))):
                self._n += 1
                self.last[number] = self._n
                items.append((key_of(number), {"n": self._n}, str(self._n)))
            self.writer.put_many("pods", items)

    def restart(self) -> None:
        """A new instance with what the old one had: the queue's feeders find their way."""
        self.restarts += 1
        self.writer.close()
        self.writer = self._open()
        self.writer.put_many(
            "pods",
            [(key_of(number), {"n": n}, str(n)) for number, n in enumerate(self.last) if n],
        )


def start(name: str, slots: int, board: Board, dice: random.Random) -> Any:
    process = CONTEXT.Process(target=work, args=(name, slots, board, dice.getrandbits(32)))
    process.start()
    return process


def campaign(
    name: str, *, keys: int, seconds: float, workers: int, seed: int, restarts: bool
) -> dict[str, int]:
    """Runs it; raises AssertionError with what is wrong. Returns what happened."""
    dice = random.Random(seed)
    board = Board(keys)
    slots = 1 << max(6, keys.bit_length() - 1)  # fewer than keys: it is full some of the time
    writers = Writers(name, keys, dice)
    pool = [start(name, slots, board, dice) for _ in range(workers)]
    kills = 0
    stop = time.monotonic() + seconds
    try:
        writers.fill()
        turn = 0
        while time.monotonic() < stop:
            turn += 1
            writers.change()
            time.sleep(dice.random() / 100)
            if dice.random() < 0.15:
                at = dice.randrange(workers)
                pool[at].kill()
                pool[at].join()
                kills += 1
                pool[at] = start(name, slots, board, dice)
            if restarts and turn % 200 == 0:
                writers.restart()
        missing = await_all(writers, board)
        with shmcache.attach(name) as cache, cache.queue("work") as queue:
            stats = queue.stats()
            queue.shut_down()
            for process in pool:
                process.join(PATIENCE)
        assert not board.overlaps, f"{board.overlaps} overlaps"
        assert not missing, f"{len(missing)} objects are not reconciled: {missing[:5]}, {stats}"
        assert kills, "nobody was killed: that proves nothing"
        assert stats["returned"] or kills < 50, f"no key was taken back: {stats}"
        codes = {process.exitcode for process in pool}
        assert codes == {0}, f"a worker ended with {codes}"
    finally:
        for process in pool:
            process.kill()
            process.join()
        writers.writer.close()
    return {
        "kills": kills,
        "restarts": writers.restarts,
        "reconciles": board.reconciles,
        "returned": int(stats["returned"]),
        "full": int(stats["full"]),
        "rebuilds": int(stats["rebuilds"]),
    }


def await_all(writers: Writers, board: Board) -> list[tuple[str, int, int]]:
    """Until every object was reconciled at its last version; those that are not, in the end."""
    deadline = time.monotonic() + PATIENCE
    while True:
        missing = [
            (key_of(number), board.version(number), last)
            for number, last in enumerate(writers.last)
            if last and board.version(number) != last
        ]
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"SEED={seed}", flush=True)
    try:
        found = campaign(
            f"campaign-{os.getpid()}",
            keys=options.keys,
            seconds=options.seconds,
            workers=options.workers,
            seed=seed,
            restarts=True,
        )
    except (AssertionError, ShmCacheError) as error:
        print(f"FAILED (SEED={seed}): {error}")
        return 1
    print(", ".join(f"{count:,} {what}" for what, count in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
