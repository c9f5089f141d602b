"""Invariant tested: handlers in real processes - forked, stopped, killed, ended without cleanup -
agree with the cache, hold no other process up, and leave nothing behind (G13, G16, G19)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from workers import METHODS, PATIENCE, Command, Method, Worker, await_sleep, eventually, seat_of

import shmcache
from shmcache import states

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

STRESS_SECONDS = float(os.environ.get("STRESS_SECONDS") or 2)


def pod(name: str, version: int, uid: str | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "p", "uid": uid or f"uid-of-{name}"}
    return {"metadata": metadata | {"resourceVersion": str(version), "labels": {"x": name[-1]}}}


def state_of(pods: Any) -> dict[str, str]:
    return {view["metadata"]["name"]: view["metadata"]["resourceVersion"] for view in pods.list()}


class Believer:
    """Handlers that record the events they receive, and every inconsistency."""

    def __init__(self) -> None:
        self.objects: dict[str, str] = {}
        self.wrong: list[str] = []

    def on_add(self, obj: Any, _: bool) -> None:
        self._put(obj, there=False)

    def on_update(self, _: Any, new: Any) -> None:
        self._put(new, there=True)

    def on_delete(self, obj: Any, _: bool) -> None:
        if self.objects.pop(obj["metadata"]["name"], None) is None:
            self.wrong.append(f"{obj} is deleted unseen")

    def _put(self, obj: Any, *, there: bool) -> None:
        name, version = obj["metadata"]["name"], obj["metadata"]["resourceVersion"]
        if (name in self.objects) != there:
            self.wrong.append(f"{name}: known {not there}")
        self.objects[name] = version

    def register(self, pods: shmcache.CachedResource, **options: Any) -> Any:
        return pods.add_handler(self.on_add, self.on_update, self.on_delete, **options)


@pytest.fixture
def small(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, ["pods"], arena_max="64MiB", ring_slots=64) as writer:
        writer.set_state("pods", states.SYNCED)
        yield writer
        writer.check()


# ---- fork ----------------------------------------------------------------------------------------


def forked(pipe: Connection, cache: shmcache.Cache, registration: Any, believer: Any) -> None:
    """A child with registrations of its parent: it starts them for itself."""
    pipe.send((registration.has_synced, registration.active))
    believer.objects.clear()
    cache.start()
    assert registration.wait_synced(PATIENCE)
    pipe.send(sorted(believer.objects))
    pipe.recv()
    eventually(lambda: believer.objects == state_of(cache["pods"]), "the child does not receive it")
    pipe.send((sorted(believer.objects), believer.wrong))


@pytest.mark.parametrize("started", [False, True])
def test_g19_registrations_of_a_parent_wait_for_start_in_each_child(
    small: shmcache.Writer, started: bool
) -> None:
    """gunicorn --preload: a module registers, each worker starts."""
    small.apply("pods", [pod("a", 1)])
    with shmcache.attach(small.name) as cache:
        believer = Believer()
        registration = believer.register(cache["pods"])
        if started:
            cache.start()
            assert registration.wait_synced(PATIENCE)
        with (
            Worker("fork", forked, cache, registration, believer) as one,
            Worker("fork", forked, cache, registration, believer) as two,
        ):
            for child in (one, two):
                assert (False, True) == child.hear()
                assert ["a"] == child.hear()
            small.apply("pods", [pod("b", 2)])
            for child in (one, two):
                assert (["a", "b"], []) == child.ask("go on")
        if started:
            eventually(
                lambda: sorted(believer.objects) == ["a", "b"], "the parent does not receive it"
            )
        assert [] == believer.wrong


def asked(pipe: Connection, registration: Any, question: str) -> None:
    pipe.send(getattr(registration, question))


@pytest.mark.parametrize(
    ("question", "parents", "childs"),
    [("active", False, True), ("has_synced", True, False), ("handled", 1, 0),
     ("counts", {"ADDED": 1, "MODIFIED": 0, "DELETED": 0},
      {"ADDED": 0, "MODIFIED": 0, "DELETED": 0})],
)  # fmt: skip
def test_g19_nothing_of_a_parents_loop_is_a_childs(
    small: shmcache.Writer, question: str, parents: object, childs: object
) -> None:
    """At the first question, be it any: the loop of the child is still to come."""

    async def on_add(_: Any, __: bool) -> None:
        pass

    async def run() -> None:
        cache.start()
        assert await registration.synced()

    small.apply("pods", [pod("a", 1)])
    with shmcache.attach(small.name) as cache:
        registration: Any = cache["pods"].add_handler(on_add)
        asyncio.run(run())
        assert getattr(registration, question) == parents
        with Worker("fork", asked, registration, question) as child:
            assert child.hear() == childs


def in_the_middle(pipe: Connection, cache: shmcache.Cache) -> None:
    """The child is free of all locks that the parent's threads held."""
    believer = Believer()
    registration = believer.register(cache["pods"])
    cache.start()
    assert registration.wait_synced(PATIENCE)
    assert registration.remove(wait=True, timeout=PATIENCE)
    cache.close()
    pipe.send(believer.wrong)


def test_g19_a_fork_while_threads_wait_and_run_handlers_blocks_no_process(
    small: shmcache.Writer,
) -> None:
    with shmcache.attach(small.name) as cache:
        gate = threading.Event()
        entered = threading.Event()

        def stuck(_obj: Any, _initial: bool) -> None:
            entered.set()
            gate.wait(PATIENCE)

        cache["pods"].add_handler(stuck)
        idle = Believer()
        idle.register(cache["pods"])
        cache.start()
        small.apply("pods", [pod("a", 1)])
        assert entered.wait(PATIENCE)
        for version in range(20):
            small.apply("pods", [pod("b", version)])  # its other thread runs while this one forks
            with Worker("fork", in_the_middle, cache) as child:
                # stuck() of the parent is registered there too: it receives the event, and waits
                assert [] == child.hear()
        gate.set()


# ---- stopped, killed, ended ----------------------------------------------------------------------


def informer(pipe: Connection, name: str) -> None:
    with shmcache.attach(name) as cache:
        believer = Believer()
        registration = believer.register(cache["pods"])
        cache.start()
        assert registration.wait_synced(PATIENCE)
        pipe.send(cache.seat)
        while pipe.recv() is not None:
            expected = state_of(cache["pods"])
            eventually(lambda: believer.objects == expected, "not everything was delivered")  # noqa: B023
            pipe.send((believer.objects, believer.wrong, registration.lapses))


@pytest.mark.parametrize("method", METHODS)
def test_g13_a_worker_that_was_stopped_for_long_receives_the_difference(
    small: shmcache.Writer, method: Method
) -> None:
    """SIGSTOP, SIGCONT: the writer is not delayed, and the final states agree."""
    small.apply("pods", [pod(f"n{n}", 1) for n in range(20)])
    with Worker(method, informer, small.name) as worker:
        seat = worker.hear()
        assert ([], 0) == worker.ask("state")[1:]
        await_sleep(small, [seat])
        worker.stop()
        for version in range(2, 500):
            small.apply("pods", [pod(f"n{version % 30}", version)])
            if version % 7 == 0:
                small.delete("pods", f"p/n{version % 20}")
        worker.send_signal(signal.SIGCONT)

        objects, wrong, lapses = worker.ask("state")
        assert [] == wrong
        assert 1 <= lapses
        with shmcache.attach(small.name) as cache:
            assert state_of(cache["pods"]) == objects


def test_a_killed_informer_leaves_no_seat_and_no_pin(small: shmcache.Writer) -> None:
    with Worker("fork", informer, small.name) as worker:
        seat = worker.hear()
        assert seat_of(small, seat)["in_use"]
        worker.kill()
        eventually(lambda: not seat_of(small, seat)["in_use"], "its seat is kept")
    small.apply("pods", [pod("a", 1)])
    small.drop_window()
    small.reclaim()
    assert 0 == small.stats()["limbo_bytes"]


WITHOUT_A_WORD = """
import sys, shmcache
cache = shmcache.attach(sys.argv[1])
for _ in range(3):
    cache["pods"].add_handler(lambda obj, initial: None).name
cache.start()
assert all(one.wait_synced(60) for one in cache.informer.registrations)
print(cache.seat)
"""


def test_an_interpreter_ends_with_handlers_running_and_nothing_closed(
    small: shmcache.Writer,
) -> None:
    small.apply("pods", [pod("a", 1)])
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_WORD, small.name],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (0, "") == (ended.returncode, ended.stderr)
    eventually(lambda: not seat_of(small, int(ended.stdout))["in_use"], "its seat is kept")


FOREGROUND = """
import sys, shmcache
cache = shmcache.attach(sys.argv[1])
cache["pods"].add_handler(lambda obj, initial: print(obj["metadata"]["name"], flush=True))
cache.run()
print("ended", cache.closed, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_ends_in_order_on_a_signal(small: shmcache.Writer, number: int) -> None:
    small.apply("pods", [pod("a", 1)])
    with Command(
        [sys.executable, "-c", FOREGROUND, small.name], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "a" == process.stdout.readline().strip()
        process.send_signal(number)
        assert "ended True" == process.stdout.readline().strip()
        assert 0 == process.wait(PATIENCE)


# ---- idle ----------------------------------------------------------------------------------------


def switches(pid: int) -> int:
    """How often the process's threads gave up the processor to wait."""
    found = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("voluntary_ctxt_switches"):
                    found += int(line.split()[1])
    return found


def idle(pipe: Connection, name: str) -> None:
    with shmcache.attach(name) as cache:
        for _ in range(3):
            cache["pods"].add_handler(lambda _obj, _initial: None)
        cache.start()
        pipe.send(all(one.wait_synced(PATIENCE) for one in cache.informer.registrations))
        pipe.recv()


def wakes_in(seconds: float, workers: list[Worker]) -> list[float]:
    """Wake-ups of each process in one second."""
    before, start = [switches(worker.pid) for worker in workers], time.monotonic()
    threading.Event().wait(seconds)
    took = time.monotonic() - start
    after = [switches(worker.pid) for worker in workers]
    return [(b - a) / took for a, b in zip(before, after, strict=True)]


@pytest.mark.slow
def test_idle_workers_do_not_wake(small: shmcache.Writer) -> None:
    small.apply("pods", [pod("a", 1)])
    workers = [Worker("spawn", idle, small.name) for _ in range(8)]
    try:
        assert all(worker.hear() for worker in workers)
        seats = [seat for seat in range(64) if seat_of(small, seat)["in_use"]]
        await_sleep(small, seats)
        rates = [wakes_in(1.5, workers)]
        while max(rates[-1]) > 1.0 and len(rates) < 40:  # on a busy machine they fall asleep late
            rates.append(wakes_in(1.5, workers))
        assert max(rates[-1]) <= 1.0, rates
    finally:
        for worker in workers:
            worker.__exit__()


# ---- everything together ----------------------------------------------------------------------


def hammered(pipe: Connection, name: str, seed: int) -> None:
    """Threads whose handlers come and go at random; at the end all remaining ones must agree."""
    rng = random.Random(seed)
    with shmcache.attach(name) as cache:
        pods = cache["pods"]
        cache.start()
        ended = threading.Event()
        believers: list[tuple[Believer, Any, dict[str, Any]]] = []
        wrong: list[str] = []

        def come_and_go(own: random.Random) -> None:
            active: list[tuple[Believer, Any, dict[str, Any]]] = []
            while not ended.is_set():
                options: dict[str, Any] = own.choice(
                    [{}, {}, {"labels": "x=1"}, {"shard": (own.randrange(3), 3)}]
                )
                believer = Believer()
                active.append((believer, believer.register(pods, **options), options))
                if len(active) > 4:
                    gone, registration, _ = active.pop(own.randrange(4))
                    registration.remove(wait=own.random() < 0.5, timeout=PATIENCE)
                    wrong.extend(gone.wrong)
                ended.wait(own.random() * 0.02)
            believers.extend(active)

        threads = [
            threading.Thread(target=come_and_go, args=(random.Random(rng.random()),))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        pipe.send("running")
        pipe.recv()
        ended.set()
        for thread in threads:
            thread.join(PATIENCE)
        pipe.send("still")
        pipe.recv()
        pipe.send(_verdict(pods, believers, wrong))


def _verdict(
    pods: Any, believers: list[tuple[Believer, Any, dict[str, Any]]], wrong: list[str]
) -> tuple[dict[str, str], list[str], int]:
    lapses = 0
    for believer, registration, options in believers:
        expected = {
            view["metadata"]["name"]: view["metadata"]["resourceVersion"]
            for view in pods.list(labels=options.get("labels"), shard=options.get("shard"))
        }
        eventually(lambda: believer.objects == expected, f"{options} disagrees")  # noqa: B023
        wrong += believer.wrong
        lapses += registration.lapses
        if registration.errors:
            wrong.append(f"{registration.errors} errors")
    return state_of(pods), wrong, lapses


def fall_behind(worker: Worker, writer: shmcache.Writer, rng: random.Random, version: int) -> int:
    """Stops a worker for more changes than the ring holds; returns the last version."""
    worker.stop()
    for _ in range(300):
        version += 1
        writer.apply("pods", [pod(f"n{rng.randrange(40)}", version)])
    worker.send_signal(signal.SIGCONT)
    return version


@pytest.mark.slow
def test_g13_many_threads_processes_and_handlers_agree_at_the_end(
    small: shmcache.Writer, rng: random.Random
) -> None:
    """TestHammerController, across processes: the ring is so small that workers fall behind it."""
    methods: list[Method] = ["fork", "spawn", "forkserver"]
    workers = [Worker(method, hammered, small.name, rng.getrandbits(32)) for method in methods]
    try:
        for worker in workers:
            assert "running" == worker.hear()
        deadline = time.monotonic() + STRESS_SECONDS
        version = 0
        while time.monotonic() < deadline:
            for _ in range(rng.choice([1, 5, 200])):
                version += 1
                name = f"n{rng.randrange(40)}"
                if rng.random() < 0.2:
                    small.delete("pods", f"p/{name}")
                else:
                    uid = f"other-{version}" if rng.random() < 0.05 else None
                    small.apply("pods", [pod(name, version, uid)])
            if rng.random() < 0.05:
                version = fall_behind(rng.choice(workers), small, rng, version)
        for worker in workers:
            assert "still" == worker.ask("stop")
        fall_behind(workers[0], small, rng, version)  # whose handlers stay: one lapse is certain
        verdicts = [worker.ask("verdict") for worker in workers]
        with shmcache.attach(small.name) as cache:
            assert all(state_of(cache["pods"]) == found for found, _, _ in verdicts)
        assert [[], [], []] == [wrong for _, wrong, _ in verdicts]
        assert any(lapses for _, _, lapses in verdicts)
    finally:
        for worker in workers:
            worker.__exit__()
