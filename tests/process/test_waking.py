"""Invariant tested: a sleeper is woken by the event that it waits for, by signals and by its time
limit, and by nothing else; no wake-up is lost (G7)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from workers import METHODS, PATIENCE, Method, Worker, await_sleep, eventually, hear_all, seat_of

import shmcache

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

RESOURCES = [f"r{n}" for n in range(66)]
"""More than the 64 bits of an interest."""
ROUNDS = 25 * int(os.environ.get("SHMCACHE_EXAMPLES") or 40)


@pytest.fixture
def writer(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, RESOURCES, arena_max="64MiB", ring_slots=1024) as made:
        yield made
        made.check()


def sleeper(pipe: Connection, name: str, resources: list[str] | None) -> None:
    """Reports its seat; then sleeps, reports the deltas that it took, and so on."""
    with shmcache.attach(name) as cache:
        cursor = cache.follow(resources)
        pipe.send(cache.seat)
        while True:
            if cache.wait(cursor):
                taken = [(delta.resource, delta.key) for delta in cursor.take()]
                if taken:
                    pipe.send(taken)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_sleeper_wakes_for_its_resource_only(writer: shmcache.Writer, method: Method) -> None:
    with (
        Worker(method, sleeper, writer.name, ["r1"]) as one,
        Worker(method, sleeper, writer.name, ["r2", "r3"]) as two,
        Worker(method, sleeper, writer.name, None) as everything,
    ):
        workers = [one, two, everything]
        seats = hear_all(workers)
        await_sleep(writer, seats)
        wakes = writer.stats()["wakes"]

        writer.put("r1", "a", {})
        assert [(1, "a")] == one.hear() == everything.hear()
        await_sleep(writer, seats)
        assert wakes + 2 == writer.stats()["wakes"]

        with writer.batch():
            writer.put("r2", "b", {})
            writer.put("r3", "c", {})
        assert [(2, "b"), (3, "c")] == two.hear() == everything.hear()
        await_sleep(writer, seats)
        assert wakes + 4 == writer.stats()["wakes"]

        writer.put("r9", "d", {})
        assert [(9, "d")] == everything.hear()
        await_sleep(writer, seats)
        assert wakes + 5 == writer.stats()["wakes"]
        assert one.silent()
        assert two.silent()


def test_a_resource_that_shares_a_bit_may_wake_and_loses_nothing(writer: shmcache.Writer) -> None:
    """r0 and r64 are the same bit of an interest."""
    with Worker("fork", sleeper, writer.name, ["r0"]) as worker:
        seat = worker.hear()
        await_sleep(writer, [seat])
        writer.put("r64", "a", {})
        writer.put("r0", "b", {})
        assert [(0, "b")] == worker.hear()
        await_sleep(writer, [seat])


def test_a_batch_without_changes_wakes_no_reader(writer: shmcache.Writer) -> None:
    writer.put("r1", "a", {"x": 1}, "1")
    with Worker("fork", sleeper, writer.name, None) as worker:
        seat = worker.hear()
        await_sleep(writer, [seat])
        wakes = writer.stats()["wakes"]

        writer.put("r1", "a", {"x": 1}, "1")
        writer.delete("r1", "absent")
        with pytest.raises(ZeroDivisionError), writer.batch():
            writer.put("r1", "b", {})
            raise ZeroDivisionError

        assert wakes == writer.stats()["wakes"]
        assert seat_of(writer, seat)["asleep"]
        assert worker.silent()


def echo(pipe: Connection, name: str, resource: str, rounds: int) -> None:
    """Sleeps for each change and reports it: a lost wake-up shows as silence."""
    with shmcache.attach(name) as cache:
        cursor = cache.follow([resource])
        pipe.send("ready")
        seen = 0
        while seen < rounds:
            assert cache.wait(cursor, PATIENCE), "a wake-up was lost"
            for delta in cursor.take():
                assert delta.new is not None
                seen = delta.new["n"]
                pipe.send(seen)


@pytest.mark.slow
def test_no_wake_up_is_lost_in_many_rounds(writer: shmcache.Writer) -> None:
    """Ping-pong without a pause: each put hits another moment of falling asleep."""
    with (
        Worker("fork", echo, writer.name, "r1", ROUNDS) as one,
        Worker("fork", echo, writer.name, "r2", ROUNDS) as two,
    ):
        assert ["ready", "ready"] == hear_all([one, two])
        for n in range(1, ROUNDS + 1):
            writer.put("r1", "a", {"n": n})
            writer.put("r2", "a", {"n": n})
            assert [n, n] == hear_all([one, two])


# ---- signals ------------------------------------------------------------------------------------


class _FromHandler(Exception):
    pass


def interrupted(pipe: Connection, name: str, raises: bool) -> None:
    """Sleeps for ever; reports what its handler did, and how the sleep ended."""

    def handle(number: int, _: Any) -> None:
        pipe.send(("handler", number))
        if raises:
            raise _FromHandler(number)

    signal.signal(signal.SIGUSR1, handle)
    signal.siginterrupt(signal.SIGUSR1, False)  # as some libraries do
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with shmcache.attach(name) as cache:
        pipe.send(cache.seat)
        try:
            pipe.send(("woken", cache.wait(cache.latest)))
        except (_FromHandler, KeyboardInterrupt) as error:
            pipe.send((type(error).__name__, cache["r1"].get("a")))


def send_until_heard(worker: Worker, writer: shmcache.Writer, seat: int, number: int) -> Any:
    await_sleep(writer, [seat])
    worker.send_signal(number)
    return worker.hear()


def test_a_signals_handler_runs_and_the_sleep_goes_on(writer: shmcache.Writer) -> None:
    with Worker("fork", interrupted, writer.name, False) as worker:
        seat = worker.hear()
        for _ in range(5):
            heard = send_until_heard(worker, writer, seat, signal.SIGUSR1)
            assert ("handler", signal.SIGUSR1) == heard
        await_sleep(writer, [seat])
        writer.put("r1", "a", {})
        assert ("woken", True) == worker.hear()


def test_a_handlers_exception_ends_the_sleep(writer: shmcache.Writer) -> None:
    with Worker("fork", interrupted, writer.name, True) as worker:
        seat = worker.hear()
        heard = send_until_heard(worker, writer, seat, signal.SIGUSR1)
        assert ("handler", signal.SIGUSR1) == heard
        assert ("_FromHandler", None) == worker.hear()
        eventually(lambda: not seat_of(writer, seat)["in_use"], "the seat is kept")


def test_ctrl_c_ends_the_sleep(writer: shmcache.Writer) -> None:
    with Worker("fork", interrupted, writer.name, False) as worker:
        seat = worker.hear()
        heard = send_until_heard(worker, writer, seat, signal.SIGINT)
        assert ("KeyboardInterrupt", None) == heard


def test_a_time_limit_holds_under_a_storm_of_signals(cache: shmcache.Cache) -> None:
    handled: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: handled.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.005)
    try:
        for _ in range(20):  # a busy machine may deliver the storm as one signal
            limit, start = 0.2, time.monotonic()
            handled.clear()
            assert not cache.wait(cache.latest, limit)
            assert limit <= time.monotonic() - start
            if len(handled) > 1:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert len(handled) > 1


def test_threads_with_their_own_interests_share_a_seat(writer: shmcache.Writer) -> None:
    """One doorbell for a process: each thread receives its own resource, again and again."""
    with shmcache.attach(writer.name) as cache:
        heard: list[list[str]] = [[] for _ in range(4)]

        def listen(number: int) -> None:
            cursor = cache.follow([RESOURCES[number]], start=0)
            while len(heard[number]) < 50:
                assert cache.wait(cursor, PATIENCE), "a wake-up was lost"
                heard[number] += [str(delta.key) for delta in cursor.take()]

        threads = [threading.Thread(target=listen, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for n in range(50):
            for number in range(4):
                writer.put(RESOURCES[number], f"k{n}", {})
        for thread in threads:
            thread.join(PATIENCE)

        assert [[f"k{n}" for n in range(50)]] * 4 == heard
        assert not seat_of(writer, cache.seat)["asleep"]
