"""Invariant tested: a process that dies or stops at any moment delays no other one and keeps
nothing (G2, G9, G10)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

import pytest
from workers import METHODS, Method, Worker, eventually, hear_all, seat_of

import shmcache
from shmcache.errors import BusyError, Lapped, SegmentNotFound, StaleObjectError
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

KILLS = int(os.environ.get("SHMCACHE_EXAMPLES") or 40)
BIG = 100_000
MIB = 1 << 20


def big(number: int) -> dict[str, Any]:
    return {"n": number, "text": f"{number:09d}" * (BIG // 9)}


@pytest.fixture
def small(name: str) -> Iterator[shmcache.Writer]:
    """Little room, few seats, and pins are revoked at 2 MiB of garbage."""
    with shmcache.Writer(
        name, ["pods", "nodes"], arena_max="16MiB", ring_slots=64, garbage_max="2MiB", seats=4
    ) as made:
        yield made
        made.check()


# ---- readers that die ---------------------------------------------------------------------------


def holder(pipe: Connection, name: str) -> None:
    """Holds a snapshot, a view and deltas until it is killed."""
    cache = shmcache.attach(name)
    at, deltas = cache.snapshot(), cache.follow(start=0).take()
    pipe.send(cache.seat)
    pipe.recv()
    pipe.send((at["pods"]["a"]["n"], len(deltas)))


@pytest.mark.parametrize("method", METHODS)
def test_pins_of_a_killed_reader_are_released(small: shmcache.Writer, method: Method) -> None:
    small.put("pods", "a", big(1))
    with Worker(method, holder, small.name) as worker:
        seat = worker.hear()
        assert 1 <= seat_of(small, seat)["pins"]
        small.delete("pods", "a")
        small.drop_window()
        small.reclaim()
        assert BIG < small.stats()["limbo_bytes"]

        worker.kill()

        eventually(lambda: small.stats()["limbo_bytes"] == 0, "the pin of the dead goes")
        info = seat_of(small, seat)
        assert (0, 0) == (info["in_use"], info["pins"])


def test_a_full_seat_table_is_busy_and_each_kill_frees_a_seat(small: shmcache.Writer) -> None:
    small.put("pods", "a", big(1))
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker("fork", holder, small.name)) for _ in range(4)]
        assert {0, 1, 2, 3} == set(hear_all(workers))
        with pytest.raises(BusyError, match="seats"):
            shmcache.attach(small.name)

        for worker in workers[1:3]:
            worker.kill()
        with shmcache.attach(small.name) as one, shmcache.attach(small.name) as two:
            assert 1 == one["pods"]["a"]["n"] == two["pods"]["a"]["n"]
            with pytest.raises(BusyError):
                shmcache.attach(small.name)
        assert (1, 1) == workers[0].ask("go on")


def reader_of_everything(pipe: Connection, name: str) -> None:
    """Uses every read as fast as it can, until it is killed somewhere in between."""
    pipe.send("ready")
    kept: list[Any] = []
    while True:
        with shmcache.attach(name) as cache:
            cursor = cache.follow()
            for _ in range(50):
                at = cache.snapshot()
                kept = [*kept[-20:], at, at["pods"].list(), cache["nodes"].get("a")]
                cache.wait(cursor, 0.0001)
                try:
                    kept.append(cursor.take())
                except Lapped:
                    cursor.resume(cache.snapshot())


@pytest.mark.slow
def test_readers_killed_at_random_moments_keep_nothing(
    small: shmcache.Writer, rng: random.Random
) -> None:
    number = 0
    for _ in range(KILLS // 4):
        with Worker("fork", reader_of_everything, small.name) as worker:
            assert worker.hear() == "ready"
            for _ in range(rng.randrange(1, 200)):
                number += 1
                small.put("pods", f"k{number % 3}", big(number))
                small.put("nodes", "a", {"n": number})
            worker.kill()
    small.drop_window()
    eventually(
        lambda: small._tend() and small.stats()["limbo_bytes"] == 0, "a dead reader keeps a pin"
    )
    eventually(
        lambda: not any(seat_of(small, seat)["in_use"] for seat in range(4)), "a seat is kept"
    )
    small.check()


# ---- readers that stop --------------------------------------------------------------------------


def slow_reader(pipe: Connection, name: str) -> None:
    """Has a view and deltas, and is stopped; reports what became of them."""
    with shmcache.attach(name) as cache:
        view, cursor = cache["pods"]["a"], cache.follow()
        pipe.send(cache.seat)
        pipe.recv()
        known: Any
        taken: Any
        try:
            known = view.to_dict() == big(0)
        except StaleObjectError:
            known = "stale"
        try:
            taken = [delta.new is not None and delta.new["n"] for delta in cursor.take(1000)]
        except Lapped:
            taken = "lapped"
            with cache.snapshot() as at:
                state = at["pods"]["a"]["n"]
                cursor.resume(at)
        else:
            state = None
        pipe.send((known, taken, state))
        assert cache.wait(cursor)
        pipe.send([delta.new["n"] for delta in cursor.take() if delta.new is not None])


@pytest.mark.parametrize("more", [0, 40], ids=["little", "too much"])
def test_a_stopped_reader_costs_bounded_memory_and_learns_what_it_lost(
    small: shmcache.Writer, more: int
) -> None:
    """Its view stays unless its generation alone exceeds the garbage limit."""
    small.put("pods", "a", big(0))
    for number in range(more):
        small.put("nodes", f"n{number}", big(number))
    with Worker("fork", slow_reader, small.name) as worker:
        worker.hear()
        worker.stop()

        for number in range(more):
            small.delete("nodes", f"n{number}")
        for number in range(1, 401):  # 40 times the garbage limit
            small.put("pods", "a", big(number))
            assert small.stats()["limbo_bytes"] <= 2 * MIB + 4 * BIG

        stats = small.stats()
        assert (stats["revoked"] > 0) == (more > 0)
        assert stats["file_bytes"] <= 8 * MIB
        worker.tell("look")
        worker.send_signal(18)  # SIGCONT
        assert ("stale" if more else True, "lapped", 400) == worker.hear()
        small.put("pods", "a", big(401))
        assert [401] == worker.hear()


def test_a_reader_stopped_for_fewer_changes_misses_nothing(small: shmcache.Writer) -> None:
    small.put("pods", "a", big(0))
    with Worker("fork", slow_reader, small.name) as worker:
        worker.hear()
        worker.stop()
        for number in range(1, 5):
            small.put("pods", "a", big(number))
        worker.tell("look")
        worker.send_signal(18)
        assert (True, [1, 2, 3, 4], None) == worker.hear()
        small.put("pods", "a", big(5))
        assert [5] == worker.hear()


# ---- writers ------------------------------------------------------------------------------------


def owner(pipe: Connection, name: str) -> None:
    """Writes one state, reports it, then writes without end."""
    writer = shmcache.Writer(name, ["pods", "nodes"], ring_slots=64, arena_max="64MiB")
    number = 0
    while True:
        with writer.batch():
            for key in range(20):
                writer.put("pods", f"k{key}", {"n": number, "text": "x" * (number % 500)})
            writer.put("nodes", "a", {"n": number})
        if number == 0:
            pipe.send("ready")
            pipe.recv()
        number += 1


def numbers_in(cache: shmcache.Cache) -> int:
    """The one number that every object shows."""
    with cache.snapshot() as at:
        return numbers_at(at)


def numbers_at(at: shmcache.Snapshot) -> int:
    numbers = {view["n"] for name in ("pods", "nodes") for view in at[name].list()}
    assert (20, 1) == (len(at["pods"]), len(at["nodes"]))
    (number,) = numbers
    return int(number)


def test_a_writer_killed_at_any_moment_leaves_a_whole_state(name: str, rng: random.Random) -> None:
    seen = []
    for _ in range(max(3, KILLS // 4)):
        with Worker("fork", owner, name) as worker, ExitStack() as stack:
            worker.hear()
            cache = stack.enter_context(shmcache.attach(name))
            worker.tell("go on")
            until = cache.latest + rng.randrange(1, 60)
            while cache.latest < until:
                cache.wait(cache.latest, 0.001)
            worker.kill()

            seen.append(numbers_in(cache))
            late = stack.enter_context(shmcache.attach(name))  # the dead one's cache is readable
            assert seen[-1] == numbers_in(late)
            dead = cache.instance
            held = [stack.enter_context(reader.snapshot()) for reader in (cache, late)]
            with shmcache.Writer(name, ["pods"]) as successor:
                successor.put("pods", "new", {})
                with shmcache.attach(name) as fresh:
                    assert ["new"] == list(fresh["pods"])
                    assert fresh.instance != dead
                assert [seen[-1]] * 2 == [numbers_at(at) for at in held]
    assert max(seen) > 0
    assert [] == SharedMemory().names(PREFIX + name)


def test_a_stopped_writer_keeps_its_lock_and_serves_its_readers(name: str) -> None:
    with Worker("fork", owner, name) as worker:
        worker.hear()
        worker.tell("go on")
        worker.stop()
        with shmcache.attach(name) as cache:
            number = numbers_in(cache)
            for _ in range(3):
                with pytest.raises(BusyError, match=str(worker.pid)):
                    shmcache.Writer(name, ["pods"])
            assert number == numbers_in(cache)
            worker.send_signal(18)
            assert cache.wait(cache.latest, 60), "it does not resume"
            assert number <= numbers_in(cache)


def rival(pipe: Connection, name: str) -> None:
    pipe.recv()
    try:
        writer = shmcache.Writer(name, ["pods"])
    except BusyError:
        pipe.send("busy")
    else:
        writer.put("pods", "a", {"pid": os.getpid()})
        pipe.send("mine")
        pipe.recv()
        writer.close()


def test_one_of_many_writers_that_start_at_once_wins(name: str) -> None:
    for _ in range(5):
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker("fork", rival, name)) for _ in range(6)]
            for worker in workers:
                worker.tell("go")
            heard = hear_all(workers)
            assert sorted(heard) == ["busy"] * 5 + ["mine"]
            winner = workers[heard.index("mine")]
            with shmcache.attach(name) as cache:
                assert winner.pid == cache["pods"]["a"]["pid"]
            winner.kill()
    with shmcache.Writer(name):
        pass
    with pytest.raises(SegmentNotFound):
        shmcache.attach(name)


def begetter(pipe: Connection, name: str) -> None:
    """Dies before its cache is published: for example after creating a segment."""
    from shmcache.memory.segments import Place

    def die(*_: Any) -> None:
        pipe.send("dying")
        os.kill(os.getpid(), 9)

    Place.publish = die  # type: ignore[method-assign, assignment]
    shmcache.Writer(name, ["pods"])


def test_files_of_a_writer_that_died_during_its_start_are_cleaned_up(name: str) -> None:
    with Worker("fork", begetter, name) as worker:
        assert "dying" == worker.hear()
        worker.process.join()
        assert 3 == len(SharedMemory().names(PREFIX + name))  # lock, DATA, SEATS
        with pytest.raises(SegmentNotFound):
            shmcache.attach(name)
        with shmcache.Writer(name, ["pods"]):
            assert 4 == len(SharedMemory().names(PREFIX + name))
    assert [] == SharedMemory().names(PREFIX + name)
