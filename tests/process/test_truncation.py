"""Invariant tested: whatever a worker does to SEATS, also truncating it at any moment, the writer
and every other worker continue, and the writer's next duties restore everything (G9)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from workers import PATIENCE, Worker, eventually

import shmcache
from shmcache.errors import ShmCacheError, StaleObjectError
from shmcache.memory.companions import queue_files
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
SEATS = 8
SIZE = 4096 + SEATS * 256
TOO_LONG = 1 << 47


@pytest.fixture
def writer(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, ["pods"], arena_max="16MiB", seats=SEATS, ring_slots=64) as made:
        made.put("pods", "a", {"n": 0})
        yield made
        made.check()


def seats_of(writer: shmcache.Writer) -> Path:
    location = writer.place.location
    (found,) = (n for n in location.names(writer.place.stem) if n.endswith(".seats"))
    return Path(location.file(found))


def follower(pipe: Connection, name: str) -> None:
    """Sleeps for each change and reports it; keeps a view of the first state, whole or gone."""
    with shmcache.attach(name) as cache:
        first, cursor = cache["pods"]["a"], cache.follow()
        pipe.send("ready")
        while cache.wait(cursor, timeout=PATIENCE):
            with contextlib.suppress(StaleObjectError):
                assert first["n"] == 0
            with cache.snapshot() as at:
                now = int(at["pods"]["a"]["n"])
                cursor.resume(at)
            pipe.send(now)


@pytest.mark.parametrize("size", [0, 1, 64, 4096, 4096 + 256, SIZE - 1])
def test_a_truncated_seats_file_harms_neither_writer_nor_workers(
    writer: shmcache.Writer, size: int
) -> None:
    with Worker("fork", follower, writer.name) as worker:
        assert "ready" == worker.hear()
        for number in (1, 2):
            os.truncate(seats_of(writer), size)
            writer.put("pods", "a", {"n": number})
            assert number == worker.hear()
            eventually(lambda: seats_of(writer).stat().st_size == SIZE, "it is not mended")
        writer._tend()
        shmcache.attach(writer.name).close()


def test_an_oversized_seats_file_is_cut_and_stops_no_process(name: str) -> None:
    """Extending the file is free, and no address space can hold it."""
    with shmcache.Writer(name, ["pods"], arena_max="16MiB", seats=SEATS) as writer:
        os.truncate(seats_of(writer), TOO_LONG)
        shmcache.attach(name).close()
        eventually(lambda: seats_of(writer).stat().st_size == SIZE, "it is not mended")
        os.truncate(seats_of(writer), TOO_LONG)
        writer.leave()
    for _ in range(2):  # no process could mend it: a fresh instance, and no trace of the old
        with shmcache.Writer(name, ["pods"], arena_max="16MiB", seats=SEATS) as writer:
            assert seats_of(writer).stat().st_size == SIZE
            os.truncate(seats_of(writer), TOO_LONG)
    assert [] == SharedMemory().names(PREFIX + name)


@pytest.mark.parametrize("seed", range(8))
def test_a_scribbled_seats_file_costs_the_next_writer_nothing(name: str, seed: int) -> None:
    """It resumes, and seated readers are still served; with seed 0 every byte is zero."""
    with shmcache.Writer(name, ["pods"], arena_max="16MiB", seats=SEATS, ring_slots=64) as writer:
        writer.put("pods", "a", {"n": 0})
        with Worker("fork", follower, name) as worker:
            assert "ready" == worker.hear()
            seats = seats_of(writer)
            writer.leave()
            seats.write_bytes(random.Random(seed).randbytes(SIZE) if seed else bytes(SIZE))
            with shmcache.Writer(
                name, ["pods"], arena_max="16MiB", seats=SEATS, ring_slots=64
            ) as second:
                assert ["pods"] == list(second.inherited)
                second.put("pods", "a", {"n": 1})
                assert 1 == worker.hear()
                shmcache.attach(name).close()
                second.check()


def test_an_oversized_queue_file_is_opened(writer: shmcache.Writer) -> None:
    with shmcache.attach(writer.name) as cache:
        cache.queue("q").add("key")
        (file,) = queue_files(writer.place)
        os.truncate(writer.place.location.file(file), TOO_LONG)
        with Worker("spawn", waiting_keys, writer.name) as worker:
            assert 1 == worker.hear()


def waiting_keys(pipe: Connection, name: str) -> None:
    with shmcache.attach(name) as cache:
        pipe.send(len(cache.queue("q")))


def attaching(pipe: Connection, name: str, times: int) -> None:
    """Attaches repeatedly; refusals are valid answers."""
    attached = refused = 0
    for _ in range(times):
        try:
            shmcache.attach(name).close()
            attached += 1
        except ShmCacheError:
            refused += 1
    pipe.send((attached, refused))


def test_workers_attach_despite_a_vandal(writer: shmcache.Writer) -> None:
    with Worker("fork", vandal, str(seats_of(writer))) as worker:
        assert "ready" == worker.hear()
        with Worker("spawn", attaching, writer.name, 300) as other:
            assert 300 == sum(other.hear())
        assert "ended" == worker.ask("stop")
    writer._tend()
    shmcache.attach(writer.name).close()


def vandal(pipe: Connection, path: str) -> None:
    """Truncates, wipes and scribbles without end."""
    rng = random.Random(7)
    fd = os.open(path, os.O_RDWR)
    pipe.send("ready")
    while not pipe.poll(0):
        match rng.randrange(3):
            case 0:
                os.ftruncate(fd, rng.choice([0, 100, 4096, 5000, TOO_LONG]))
            case 1:
                os.pwrite(fd, bytes(256), rng.randrange(SIZE - 256))
            case _:
                os.pwrite(fd, rng.randbytes(64), rng.randrange(SIZE - 64))
    os.ftruncate(fd, 0)
    os.close(fd)
    pipe.send("ended")


def test_a_writer_publishes_and_recovers_despite_a_vandal(writer: shmcache.Writer) -> None:
    with Worker("fork", vandal, str(seats_of(writer))) as worker:
        assert "ready" == worker.hear()
        for number in range(20_000):
            writer.put("pods", f"k{number % 50}", {"n": number})
        assert "ended" == worker.ask("stop")
    writer._tend()
    assert 1 <= writer.stats()["mended"]

    with shmcache.attach(writer.name) as cache:
        assert 51 == len(cache["pods"])
        with Worker("fork", follower, writer.name) as worker:
            assert "ready" == worker.hear()
            writer.put("pods", "a", {"n": 1})
            assert 1 == worker.hear()


def test_all_sleepers_run_again_after_their_doorbells_were_wiped(writer: shmcache.Writer) -> None:
    """The file has its length, the header is whole: only the doorbells and interests are gone."""
    with Worker("fork", follower, writer.name) as worker:
        assert "ready" == worker.hear()
        with seats_of(writer).open("r+b") as file:
            file.seek(4096)
            file.write(bytes(SEATS * 256))
        eventually(lambda: writer.stats()["mended"] == 1, "the damage went unnoticed")
        writer.put("pods", "a", {"n": 1})
        assert 1 == worker.hear()


# ---- the signal belongs to others as well ------------------------------------------------------

FAULT = """
import faulthandler, mmap, os, sys, tempfile, shmcache
{before}
writer = shmcache.Writer(sys.argv[1], ["pods"])
with tempfile.TemporaryFile() as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
    file.truncate(0)
    memory[0]
"""


@pytest.mark.parametrize("before", ["", "faulthandler.enable()"])
def test_a_fault_elsewhere_ends_the_process_as_before(name: str, before: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULT.format(before=before), name],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert -signal.SIGBUS == done.returncode
    assert ("Bus error" in done.stderr) == bool(before)


def test_threads_that_fault_together_all_continue(writer: shmcache.Writer) -> None:
    """Sleepers of one process, on one page, while it is truncated at any moment."""
    found: list[int] = []

    def sleep(cache: shmcache.Cache) -> None:
        cursor = cache.follow()
        started.release()
        while not found_all.is_set() and cache.wait(cursor, timeout=PATIENCE):
            with cache.snapshot() as at, contextlib.suppress(StaleObjectError):
                found.append(int(at["pods"]["a"]["n"]))
                cursor.resume(at)

    started, found_all = threading.Semaphore(0), threading.Event()
    with shmcache.attach(writer.name) as cache:
        threads = [threading.Thread(target=sleep, args=(cache,)) for _ in range(4)]
        for thread in threads:
            thread.start()
            started.acquire()
        for number in range(1, 11):
            os.truncate(seats_of(writer), 0)
            writer.put("pods", "a", {"n": number})
        eventually(lambda: found.count(10) >= 4, "a thread sleeps on")
        found_all.set()
        writer.put("pods", "a", {"n": 11})
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
