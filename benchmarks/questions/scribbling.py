"""How long can a hostile worker hold up one call of the writer?

A worker may write anything into SEATS. This one holds the lock of every seat, fills each with open
pins of all generations between the floor and the latest, and shows each as asleep and waiting for
everything, again and again, as fast as it can, while the writer puts one changed pod after the
other. The longest put counts, and the longest turn of the writer's duties; the latter also while
the worker holds 20,000 locks on SEATS, which the kernel searches one by one at each try of a
seat's lock. The CPU time of the writer's thread counts: delays by the scheduler of a busy machine
do not.
"""

from __future__ import annotations

import fcntl
import gc
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from benchmarks import harness
from benchmarks.harness import Row, at_most, show_ns
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, Corpus, directory
from shmcache import Writer

LIMIT_NS = 5_000_000
MIB = 1 << 20
SETTINGS = [(16, 128), (64, 128), (128, 128), (64, 1024), (256, 1024)]
"""garbage_max in MiB, and seats, of which 1,024 is the limit; a quick run asks the first."""
LOCKS = 20_000
TURNS = 100
TIMES = 2  # as much garbage as is allowed comes so often

LATEST, FLOOR = 192, 256  # of struct shmc_super
HIGH = 32  # of struct shmc_seats_header: the writer reads the seats below it
SEATS, SEAT, PINS = 4096, 256, 128  # where seats begin, the size of one, where its pins begin
INTEREST, IN_USE, PROGRESS = 8, 24, 32  # of struct shmc_seat, whose first word has bit 0: asleep
PIN_OPEN = 1 << 63


class Found(NamedTuple):
    puts: list[int]  # sorted
    turns: list[int]
    revoked: int
    scribbled: int


def run(quick: bool) -> list[Row]:
    pods = list(Corpus("pods", 500 if quick else 2_000).objects())
    rows = []
    for garbage, seats in SETTINGS[:1] if quick else SETTINGS:
        found = _attacked(pods, garbage * MIB, seats, locks=1)
        setting = f"SEATS ({seats} seats) is scribbled on, garbage_max {garbage} MiB"
        note = f"{found.revoked} pins revoked; scribbled {found.scribbled} times"
        rows.append(_row(f"worst single put while {setting}", found.puts, note))
        rows.append(_row(f"worst turn of duties while {setting}", found.turns))
    if not quick:
        found = _attacked(pods, 16 * MIB, 1024, locks=LOCKS)
        setting = f"SEATS (1024 seats) is scribbled on, and has {LOCKS:,} locks"
        rows.append(_row(f"worst single put while {setting}", found.puts))
        rows.append(_row(f"worst turn of duties while {setting}", found.turns))
    return rows


def _row(question: str, times: list[int], note: str = "") -> Row:
    return Row(
        question=question,
        ours=show_ns(times[-1]),
        peer=f"limit {show_ns(LIMIT_NS)}",
        note=f"median {show_ns(times[len(times) // 2])}" + (note and f"; {note}"),
        **at_most(1, times[-1] / LIMIT_NS),
    )


def _attacked(pods: list[objects.Object], garbage: int, seats: int, locks: int) -> Found:
    settings: dict[str, Any] = {"arena_max": 1024 * MIB, "garbage_max": garbage, "seats": seats}
    with directory() as name, Writer(name, [RESOURCE], **settings) as writer:
        writer.apply(RESOURCE, pods)
        [data] = Path(name).glob("*data")
        [ours] = Path(name).glob("*seats")
        with Children(_scribble, [(str(data), str(ours), seats, locks)]) as children:
            children.receive()
            puts = _puts(writer, pods, garbage)
            turns = sorted(_turn(writer) for _ in range(TURNS))
            children.send("end")
            [scribbled] = children.receive()
        writer.check()
        return Found(puts, turns, writer.stats()["revoked"], scribbled)


def _turn(writer: Writer) -> int:
    """The time of one turn of its duties, each of which is due."""
    time.sleep(0.1)
    start = time.thread_time_ns()
    writer._tend()  # noqa: SLF001
    return time.thread_time_ns() - start


def _puts(writer: Writer, pods: list[objects.Object], garbage: int) -> list[int]:
    """The times of each put, sorted, while the limit of garbage is met again and again.

    They count once DATA has its full size: the first use of memory costs the same in peace.
    """
    times: list[int] = []
    number, upto = 0, 0
    gc.collect()
    gc.disable()  # a collection of this process's own pods takes as long as all else
    while True:
        changed = objects.update(pods[number % len(pods)], number)
        start = time.thread_time_ns()
        writer.put(RESOURCE, objects.key_of(changed), changed)
        times.append(time.thread_time_ns() - start)
        number += 1
        if number % 1000:
            continue
        stats = writer.stats()
        made = stats["reused_bytes"] + stats["limbo_bytes"]
        if not upto and stats["revoked"] and stats["reused_bytes"] > garbage:
            upto = made + TIMES * garbage
            times.clear()
        if upto and made > upto:
            gc.enable()
            return sorted(times)


def _scribble(pipe: Pipe, data: str, seats_file: str, seats: int, locks: int) -> None:
    done = 0
    with open(data, "rb") as shown, open(seats_file, "r+b") as ours:
        source = mmap.mmap(shown.fileno(), 4096, prot=mmap.PROT_READ)
        memory = mmap.mmap(ours.fileno(), 0)
        # a lock on each seat: else the writer takes the seats back, since nobody sits there
        _lock(ours, 0, seats)
        for number in range(1, locks):  # apart from each other, or the kernel joins them
            _lock(ours, seats + 2 * (locks - number), 1)
        pipe.answer(os.getpid())
        while not pipe.asked():
            _fill_pins(source, memory, seats)
            done += 1
    pipe.answer(done)


def _lock(file: BinaryIO, at: int, length: int) -> None:
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, at, length, 0)
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)


def _fill_pins(source: mmap.mmap, memory: mmap.mmap, seats: int) -> None:
    """Open pins of generations from the floor to the latest, one for each word."""
    [floor], [latest] = (struct.unpack_from("<Q", source, at) for at in (FLOOR, LATEST))
    step = max(1, (latest - floor) // (seats * 16))
    pin = max(1, floor)
    struct.pack_into("<Q", memory, HIGH, seats)
    for seat in range(seats):
        words = range(pin, pin + 16 * step, step)
        at = SEATS + seat * SEAT
        struct.pack_into("<16Q", memory, at + PINS, *(word | PIN_OPEN for word in words))
        for everything in (INTEREST, IN_USE, PROGRESS):
            struct.pack_into("<Q", memory, at + everything, (1 << 64) - 1)
        struct.pack_into("<I", memory, at, 1)
        pin += 16 * step


if __name__ == "__main__":
    harness.main(__doc__, run)
