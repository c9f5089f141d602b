"""Invariant tested: every opened thing is given back - descriptors, maps, threads, names, seats,
locks - however its use ended, also in children of fork() and exec()."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from workers import PATIENCE, Worker, eventually, hear_all, seat_of

import shmcache
from shmcache.errors import (
    BusyError,
    ClosedError,
    CorruptSegment,
    ForkedError,
    Lapped,
    UnsupportedValue,
)
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

MANY = 30


def held() -> tuple[int, int, int, list[str]]:
    """Descriptors, maps of shmcache, threads, and names."""
    gc.collect()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = sum("shmcache-v" in line for line in maps)
    names = SharedMemory().names(f"{PREFIX}test-{os.getpid()}-")
    return len(os.listdir("/proc/self/fd")), mapped, threading.active_count(), names


def no_more_than(before: tuple[int, int, int, list[str]]) -> bool:
    """A thread or a descriptor of an earlier test may end at any time."""
    fds, mapped, threads, names = held()
    return fds <= before[0] and mapped <= before[1] and threads <= before[2] and names == before[3]


def settled(before: tuple[int, int, int, list[str]]) -> None:
    eventually(lambda: no_more_than(before), f"{before} before, {held()} after")


def use(cache: shmcache.Cache) -> list[Any]:
    """Opens something of every kind; the returned objects hold pins."""
    cursor = cache.follow(start=0)
    at = cache.snapshot()
    cache.wait(cache.latest, 0)
    return [at, at["pods"].list(), cursor.take(), cache["pods"].get("a"), iter(cache["pods"])]


def test_attaching_repeatedly_leaves_nothing(writer: shmcache.Writer) -> None:
    writer.put("pods", "a", {"x": [1, {"y": 2}]})
    with shmcache.attach(writer.name) as cache:  # created once per process
        use(cache)
    before, seats = held(), set()

    for number in range(MANY):
        cache = shmcache.attach(writer.name)
        kept = use(cache)
        seats.add(cache.seat)
        if number % 3:
            cache.close()
        del cache, kept

    settled(before)
    assert not any(seat_of(writer, seat)["in_use"] for seat in seats)


def test_a_view_that_outlives_its_cache_keeps_the_seat_until_it_is_freed(
    writer: shmcache.Writer,
) -> None:
    writer.put("pods", "a", {"x": 1})
    cache = shmcache.attach(writer.name)
    seat, view = cache.seat, cache["pods"]["a"]
    before = held()

    cache.close()
    with pytest.raises(ClosedError):
        view["x"]
    del view, cache
    gc.collect()

    assert not seat_of(writer, seat)["in_use"]
    assert before[0] > held()[0]
    assert before[1] > held()[1]


def test_writing_repeatedly_leaves_nothing(name: str) -> None:
    shmcache.Writer(name, ["pods"]).close()
    before = held()
    for number in range(MANY):
        writer = shmcache.Writer(name, [shmcache.Resource("pods", {"f": lambda _: "v"})])
        with shmcache.attach(name) as cache:
            writer.put("pods", "a", {"n": number})
            assert number == cache["pods"]["a"]["n"]
        writer.close()
    settled(before)


def test_failures_leave_nothing(writer: shmcache.Writer) -> None:
    """Refused writers, refused values, no free seat, a broken segment."""
    writer.put("pods", "a", {"x": 1})
    path = writer.place.location.file(
        next(file for file in writer.place.instances() if file.endswith(".data"))
    )

    def fail() -> None:
        with pytest.raises(BusyError):
            shmcache.Writer(writer.name)
        with pytest.raises(ValueError, match="declared already"):
            shmcache.Writer(writer.name + "-2", ["a", "a"])
        with pytest.raises(UnsupportedValue):
            writer.put("pods", "b", {"x": {1}})
        with open(path, "r+b") as file:
            file.write(b"X")
            file.flush()
            with pytest.raises(CorruptSegment):
                shmcache.attach(writer.name)
            file.seek(0)
            file.write(b"S")

    fail()
    before = held()
    for _ in range(MANY):
        fail()
    settled(before)
    with shmcache.attach(writer.name) as cache:
        assert {"x": 1} == cache["pods"]["a"]


def test_a_refused_seat_leaves_nothing(name: str) -> None:
    with shmcache.Writer(name, seats=1), shmcache.attach(name):
        before = held()
        for _ in range(MANY):
            with pytest.raises(BusyError):
                shmcache.attach(name)
        settled(before)


# ---- children -----------------------------------------------------------------------------------


WARNINGS = [
    "-W",
    "error",
    "-W",
    "ignore::DeprecationWarning",
]  # Python's, about fork with threads
FORKING = """
import os, sys, shmcache
writer = shmcache.Writer(sys.argv[1], ["pods"])
writer.put("pods", "a", {"x": 1})
cache = shmcache.attach(sys.argv[1])
view, at, cursor = cache["pods"]["a"], cache.snapshot(), cache.follow(start=0)
deltas = cursor.take()
pid = os.fork()
if pid == 0:
    sys.exit(7)  # as an ordinary process: everything is collected
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert view == {"x": 1} == at["pods"]["a"] == deltas[0].new == cache["pods"]["a"]
writer.put("pods", "b", {})
assert cache.wait(cursor, 60) and [delta.key for delta in cursor.take()] == ["b"]
try:
    shmcache.Writer(sys.argv[1])
except shmcache.BusyError:
    print("good")
del view, at, deltas, cursor
cache.close()
writer.close()
"""


def test_a_child_that_ends_normally_harms_no_other_process(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", *WARNINGS, "-c", FORKING, name],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (0, "good\n", "") == (done.returncode, done.stdout, done.stderr)


def idler(pipe: Connection) -> None:
    """A child that lives on, with everything it inherited."""
    pipe.send(sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in descriptors()))
    pipe.recv()


def descriptors() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        if os.path.exists(f"/proc/self/fd/{fd}"):
            yield fd


def test_a_child_that_lives_on_keeps_no_lock_and_no_seat(name: str) -> None:
    with shmcache.Writer(name, ["pods"], seats=2) as writer:
        cache, other = shmcache.attach(name), shmcache.attach(name)
        with Worker("fork", idler) as child:
            links = child.hear()
            assert not [link for link in links if link.endswith(".lock") and name in link]
            assert 1 == len(
                [link for link in links if link.endswith(".seats") and name in link]
            )  # no seat's own
            cache.close()
            shmcache.attach(name).close()
            other.close()
            writer.close()
            with shmcache.Writer(name, ["pods"], seats=1) as successor:
                successor.put("pods", "a", {})
                shmcache.attach(name).close()


def test_a_started_program_inherits_nothing(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    writer.put("pods", "a", {})
    listed = subprocess.run(
        ["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True, check=True
    )
    assert cache["pods"]["a"] == {}
    assert PREFIX not in listed.stdout


def test_forks_while_other_threads_work_cause_no_hang(writer: shmcache.Writer) -> None:
    """Locks of threads that the child lacks may stay locked there for ever."""
    writer.put_many("pods", [(f"k{n}", {"n": n}, None) for n in range(200)])
    cache = shmcache.attach(writer.name)
    stop, rounds = threading.Event(), [0, 0, 0]

    def read(number: int) -> None:
        cursor = cache.follow()
        while not stop.is_set():
            with cache.snapshot() as at:
                assert len(at["pods"].list()) >= 200
            cache.wait(cursor, 0.0002)
            try:
                cursor.take(10_000)
            except Lapped:
                cursor.resume(cache.snapshot())
            rounds[number] += 1

    def write() -> None:
        while not stop.is_set():
            with writer.batch():
                writer.put("pods", f"k{rounds[2] % 300}", {"n": rounds[2]})
            rounds[2] += 1

    threads = [threading.Thread(target=read, args=(n,)) for n in range(2)]
    threads.append(threading.Thread(target=write))
    for thread in threads:
        thread.start()
    eventually(lambda: min(rounds) > 2, "the threads do nothing")
    try:
        for _ in range(MANY):
            assert 0 == in_child(lambda: child_of_threads(cache, writer))
        eventually(lambda: min(rounds) > MANY // 4, "a thread hangs")
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    cache.close()


def child_of_threads(cache: shmcache.Cache, writer: shmcache.Writer) -> None:
    assert cache["pods"].get("k1") is not None  # attached again
    with cache.snapshot() as at:
        assert len(at["pods"]) >= 200
    assert cache.wait(0, 1)
    for refused in (
        lambda: writer.put("pods", "x", {}),
        writer.check,
    ):
        with pytest.raises(ForkedError):
            refused()
    with shmcache.attach(writer.name) as own:
        assert len(own["pods"]) >= 200
    cache.close()
    writer.close()


def in_child(what: Any) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        signal.alarm(int(PATIENCE))
        try:
            what()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - shown, and seen by its status
            sys.excepthook(*sys.exc_info())
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def seated(pipe: Connection, name: str) -> None:
    with shmcache.attach(name) as cache:
        pipe.send(cache.seat)
        pipe.recv()
        pipe.send(cache["pods"]["a"]["x"])


def test_seats_are_distinct_and_all_are_released(writer: shmcache.Writer) -> None:
    writer.put("pods", "a", {"x": 1})
    workers = [Worker("fork", seated, writer.name) for _ in range(10)]
    try:
        assert list(range(10)) == sorted(hear_all(workers))
        assert [1] * 10 == [worker.ask("go on") for worker in workers]
        eventually(
            lambda: not any(seat_of(writer, seat)["in_use"] for seat in range(10)),
            "a seat is kept",
        )
    finally:
        for worker in workers:
            worker.__exit__()
