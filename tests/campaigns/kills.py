"""A campaign of kills: writers die at random instants, most of them inside a commit, readers die
and are stopped, and four readers check every object, batch, delta and promise all the time.

    python tests/campaigns/kills.py --kills 2000 --seed 7       (make kills)

The counts on the board, in shared memory that survives every death, must show that the hard cases
did happen: a run in which nothing was revoked, lapped or reused has failed.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from workers import Worker, eventually

import shmcache
from shmcache._native import check, ffi, lib, struct_values
from shmcache.errors import Lapped, StaleObjectError
from shmcache.memory.segments import Place

READERS = 4
KEYS = 400
OPTIONS: dict[str, Any] = {
    "arena_max": "64MiB",
    "ring_slots": 256,
    "garbage_max": "512KiB",
    "seats": 16,
}
PODS = shmcache.Resource("pods", {"third": "third", "tags": "tags[*]"})
PHASE = 96  # of the superblock

COMMITTED, REVOKED, REUSED, RELISTS = range(4)  # by the writers
CHECKED, LAPPED, STALE, COMPARED = range(4, 8)  # by the readers


class Board:
    """A row of counters in memory of its own; each word has one writer at a time."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, 4096)
        self._words = memoryview(self._map).cast("Q")

    def get(self, at: int, reader: int = 0) -> int:
        return self._words[at + 8 * reader]

    def put(self, at: int, value: int) -> None:
        self._words[at] = value

    def add(self, at: int, more: int = 1, reader: int = 0) -> None:
        self._words[at + 8 * reader] += more

    def total(self, at: int) -> int:
        return sum(self.get(at, reader) for reader in range(READERS))


def made(key: int, number: int) -> dict[str, Any]:
    """An object that proves itself: its key and number determine everything in it."""
    return {
        "key": key,
        "n": number,
        "third": f"third-{number % 3}",
        "tags": [f"tag-{number % 7}", f"key-{key % 5}"],
        "text": f"{number:08d}" * (1 + (key * 7 + number) % 60),
        "shared": {"spec": [1, 2.5, None, True, {"a": f"shared-{key % 4}-text"}]},
    }


def key_of(key: int) -> str:
    return f"namespace-{key % 3}/object-{key}"


def prove(obj: Any) -> int:
    """Checks an object, and returns its number."""
    plain = obj.to_dict()
    assert plain == made(plain["key"], plain["n"]), f"torn: {plain}"
    return int(plain["n"])


# ---- the writer ---------------------------------------------------------------------------------


def writing(pipe: Connection, name: str, fd: int, seed: int) -> None:
    """Takes the cache over and writes without end, until it is killed."""
    board, rng = Board(fd), random.Random(seed)
    writer = shmcache.Writer(name, [PODS, "clock"], **OPTIONS)
    if "--check" in sys.argv or rng.random() < 0.25:
        writer.check()
    number = 0
    for _, clock in writer.objects("clock"):
        number = int(clock["n"])
    assert number >= board.get(COMMITTED), "a commit was lost"
    pipe.send((bool(writer.inherited), number))
    base = dict.fromkeys(("revoked", "reused_bytes", "relists"), 0)
    while True:
        number += 1
        with writer.batch():
            _batch(writer, rng, number)
            writer.put("clock", "now", {"n": number})
        board.put(COMMITTED, number)
        stats = writer.stats()
        for at, what in ((REVOKED, "revoked"), (REUSED, "reused_bytes"), (RELISTS, "relists")):
            board.add(at, stats[what] - base[what])
            base[what] = stats[what]


def _batch(writer: shmcache.Writer, rng: random.Random, number: int) -> None:
    size = rng.randrange(1, 40) if rng.random() < 0.6 else rng.randrange(100, 300)
    for key in rng.sample(range(KEYS), size):
        if rng.random() < 0.15:
            writer.delete("pods", key_of(key))
        else:
            writer.put("pods", key_of(key), made(key, number), str(number))


# ---- the readers --------------------------------------------------------------------------------


class Mirror:
    """The state built from the deltas: equal to each snapshot at the same position."""

    def __init__(self, cache: shmcache.Cache, board: Board, number: int) -> None:
        self._cache, self._board, self._number = cache, board, number
        self._cursor = cache.follow(["pods"])
        self._known: dict[str, int] = {}
        self._resync()

    def _resync(self) -> None:
        while True:
            with self._cache.snapshot() as at, suppress(StaleObjectError):
                self._known = {key: prove(obj) for key, obj in at["pods"].items()}
                self._cursor.resume(at)
                return

    def step(self) -> None:
        try:
            for delta in self._cursor.take():
                if delta.kind == "RELIST":
                    raise Lapped(0)
                self._apply(delta)
        except (Lapped, StaleObjectError) as error:
            self._board.add(LAPPED if isinstance(error, Lapped) else STALE, 1, self._number)
            self._resync()
        with self._cache.snapshot() as at, suppress(StaleObjectError):
            if self._cursor.position == at.head:
                there = {key: prove(obj) for key, obj in at["pods"].items()}
                assert there == self._known, "a delta was lost"
                self._board.add(COMPARED, 1, self._number)

    def _apply(self, delta: Any) -> None:
        known = self._known.get(delta.key)
        assert (delta.old is None) == (known is None), f"lost: {delta.kind} {delta.key}"
        if delta.old is not None:
            assert prove(delta.old) == known, f"lost: {delta.key}"
        if delta.kind == "DELETED":
            del self._known[delta.key]
        else:
            self._known[delta.key] = prove(delta.new)


def clock_of(cache: shmcache.Cache) -> int:
    """The number of the last commit; a reader that was stopped between lookup and read repeats
    both."""
    while True:
        with suppress(StaleObjectError):
            return int(cache["clock"]["now"]["n"])


def reading(pipe: Connection, name: str, fd: int, number: int, seed: int) -> None:
    """Checks every read, and holds old states for a while, until it is killed or asked to end."""
    board, rng = Board(fd), random.Random(seed)
    with shmcache.attach(name) as cache:
        mirror = Mirror(cache, board, number)
        held: list[tuple[shmcache.Snapshot, int]] = []
        pipe.send("ready")
        while not pipe.poll(0):
            published = board.get(COMMITTED)
            assert clock_of(cache) >= published, "stale after publish"
            mirror.step()
            _look(cache, board, number, rng, held)
            # four readers without a pause would leave the writer no CPU
            time.sleep(rng.random() * 0.004)
        held.clear()
    pipe.send("whole")


def _look(
    cache: shmcache.Cache,
    board: Board,
    number: int,
    rng: random.Random,
    held: list[tuple[shmcache.Snapshot, int]],
) -> None:
    try:
        at = cache.snapshot()
        clock = at["clock"]["now"]["n"]
        newest = [prove(obj) for obj in at["pods"].list(limit=rng.randrange(1, 60))]
        assert all(one <= clock for one in newest), "of a batch that does not exist"
        tag = f"tag-{rng.randrange(7)}"
        assert all(tag in obj["tags"] for obj in at["pods"].by_index("tags", tag))
        board.add(CHECKED, len(newest), number)
        held.append((at, clock))
        for old, then in held:
            assert old["clock"]["now"]["n"] == then, "a held state changed"
            for obj in old["pods"].list(limit=10):
                prove(obj)
    except StaleObjectError:
        board.add(STALE, 1, number)
        held.clear()
    if len(held) > 3:
        held.pop(rng.randrange(3))


# ---- the campaign -------------------------------------------------------------------------


@dataclass
class Outcome:
    kills: int = 0
    inside: int = 0
    readers_killed: int = 0
    readers_stopped: int = 0


class Campaign:
    """Writers and readers of one cache, and their fates."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.rng = name, random.Random(seed)
        self.outcome = Outcome()
        self._fd = os.memfd_create("board", 0)
        os.ftruncate(self._fd, 4096)
        self.board = Board(self._fd)
        self._phase: memoryview | None = None
        self.readers: list[Worker] = []
        self._stopped: list[tuple[Worker, float]] = []

    def run(self, kills: int) -> Outcome:
        """The whole campaign; AssertionError names the first failure."""
        try:
            while self.outcome.kills < kills or self._too_tame(kills):
                self._life()
            self._end()
        finally:
            for reader in self.readers:
                with suppress(ProcessLookupError):
                    reader.send_signal(signal.SIGCONT)
                reader.__exit__()
        self._prove_it_was_hard()
        return self.outcome

    def _too_tame(self, kills: int) -> bool:
        """On a machine that is slow to kill, or whose readers keep up, it takes a few more
        kills."""
        few = self.outcome.inside * 2 < self.outcome.kills or not all(self.counts().values())
        return few and self.outcome.kills < 4 * kills

    def _life(self) -> None:
        seed = self.rng.getrandbits(32)
        with Worker("fork", writing, self.name, self._fd, seed) as writer:
            inherited, _ = writer.hear()
            if self.outcome.kills:
                assert inherited, "a cache was not taken over"
            else:
                self._map_phase()
                eventually(lambda: self.board.get(COMMITTED), "nothing is written")
                self.readers = [self._reader(number) for number in range(READERS)]
            self._trouble_readers()
            self._await_instant(writer)
            writer.send_signal(signal.SIGKILL)
            writer.kill()
            assert self._phase is not None
            self.outcome.inside += self._phase[0] != 0
            self.outcome.kills += 1

    def _map_phase(self) -> None:
        place = Place(self.name)
        fd = place.open_data(place.current().data)
        self._phase = memoryview(
            mmap.mmap(fd, 4096, prot=mmap.PROT_READ)
        ).cast("Q")[PHASE // 8 : PHASE // 8 + 1]  # fmt: skip
        os.close(fd)

    def _await_instant(self, writer: Worker) -> None:
        """Waits for some commits; then anywhere, or, mostly, for a commit in progress."""
        until = self.board.get(COMMITTED) + self.rng.randrange(1, 12)
        eventually(
            lambda: self.board.get(COMMITTED) >= until or not writer.silent(),
            "the writer does not continue",
        )
        if not writer.silent():
            writer.hear()  # raises the error that it died of
        assert self._phase is not None
        if self.outcome.inside * 2 <= self.outcome.kills or self.rng.random() < 0.85:
            deadline = time.monotonic() + 5
            while self._phase[0] == 0 and time.monotonic() < deadline:
                pass
        else:
            time.sleep(self.rng.random() * 0.002)

    def _reader(self, number: int) -> Worker:
        seed = self.rng.getrandbits(32)
        made = Worker("fork", reading, self.name, self._fd, number, seed)
        assert made.hear() == "ready"
        return made

    def _trouble_readers(self) -> None:
        """Kills one, or stops it for a few lives of the writer; all others must be well."""
        now = time.monotonic()
        for worker, until in list(self._stopped):
            if now >= until:
                worker.send_signal(signal.SIGCONT)
                self._stopped.remove((worker, until))
        stopped = [worker for worker, _ in self._stopped]
        for number, reader in enumerate(self.readers):
            if reader in stopped:
                continue
            if not reader.silent():
                reader.hear()  # raises the error that it found
            what = self.rng.random()
            if what < 0.13:
                reader.kill()
                reader.__exit__()
                self.readers[number] = self._reader(number)
                self.outcome.readers_killed += 1
            elif what < 0.28 and len(stopped) < READERS - 1:
                reader.stop()
                self._stopped.append((reader, now + self.rng.random()))
                stopped.append(reader)
                self.outcome.readers_stopped += 1

    def _end(self) -> None:
        """All readers are whole; without them and the window nothing is held, nothing leaked."""
        for worker, _ in self._stopped:
            worker.send_signal(signal.SIGCONT)
        for reader in self.readers:
            reader.tell("end")
        for reader in self.readers:
            assert reader.hear() == "whole"
            reader.__exit__()
        self.readers = []
        with shmcache.Writer(self.name, [PODS, "clock"], **OPTIONS) as writer:
            assert writer.inherited
            writer.check()
            writer.drop_window()
            eventually(lambda: writer.stats()["limbo_bytes"] == 0, "limbo does not fall to 0")
            writer.check()
            stats = writer.stats()
            assert stats["high_water_bytes"] == stats["reachable_bytes"] + stats["free_bytes"]
            assert not self._seats_in_use(writer), "a seat was leaked"

    def _seats_in_use(self, writer: shmcache.Writer) -> int:
        seats = writer._handle.mapped.seats
        info, used = ffi.new("struct shmc_seat_info *"), 0
        for seat in range(OPTIONS["seats"]):
            check(lib.shmc_seat_info(seats, seat, info), "looking at a seat")
            used += struct_values(info)["in_use"]
        return used

    def _prove_it_was_hard(self) -> None:
        counts = self.counts()
        assert all(counts.values()), f"nothing of one kind happened: {counts}"
        assert self.outcome.inside * 2 >= self.outcome.kills, self.outcome

    def counts(self) -> dict[str, int]:
        board = self.board
        return {
            "commits": board.get(COMMITTED),
            "revoked": board.get(REVOKED),
            "reused bytes": board.get(REUSED),
            "objects checked": board.total(CHECKED),
            "lapped": board.total(LAPPED),
            "stale": board.total(STALE),
            "mirrors compared": board.total(COMPARED),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 0))
    options = parser.parse_args()
    seed = options.seed or random.SystemRandom().getrandbits(32)
    name = f"kills-{os.getpid()}"
    campaign, start = Campaign(name, seed), time.monotonic()
    print(f"SEED={seed}", flush=True)  # noqa: T201
    try:
        outcome = campaign.run(options.kills)
    finally:
        took = f"{time.monotonic() - start:.0f} s"
        print(campaign.outcome, campaign.counts(), took, flush=True)  # noqa: T201
        Place(name).unlink()
    inside = f"{outcome.inside} of {outcome.kills} writers died inside a commit"
    print(f"passed: {inside}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
