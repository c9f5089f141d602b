"""Invariant tested: a consumer that finds nothing to deliver sleeps, whatever state its resource is
in, and ends when it is stopped.

Each kind of consumer meets each state. Two measures, since a busy machine hides either: how often
the consumer looked at the cache, and the CPU time of the process per second of the clock.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import shmcache
from shmcache import states
from shmcache.errors import ClosedError
from shmcache.queue.feeder import Feeder
from shmcache.reader.cache import Cache

PATIENCE = 60.0
WATCHED_SECONDS = 0.15
LOOKS = 40
"""A consumer that spins looks thousands of times in that."""
CPU_SHARE = 0.5
"""Of one core, in idle seconds; a consumer that spins takes a whole one where it can have it."""

Stop = Callable[[], None]
Consumer = Callable[[Cache], Stop]


def pod(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "prod", "uid": f"uid-of-{name}", "resourceVersion": "1"}
    return {"metadata": metadata}


# ---- consumers -----------------------------------------------------------------------------------


def _threads(**options: Any) -> Consumer:
    def start(cache: Cache) -> Stop:
        registration = pods_of(cache).add_handler(on_add=lambda *_: None, **options)
        cache.start()

        def stop() -> None:
            assert registration.remove(wait=True, timeout=PATIENCE)

        return stop

    return start


def _foreground(cache: Cache) -> Stop:
    pods_of(cache).add_handler(on_add=lambda *_: None)
    thread = threading.Thread(target=cache.run, daemon=True)
    thread.start()

    def stop() -> None:
        cache.close()
        join(thread)

    return stop


def _on_a_loop(main: Callable[[Cache, asyncio.Event], Any]) -> Consumer:
    def start(cache: Cache) -> Stop:
        ready = threading.Event()
        found: list[Any] = []

        async def run() -> None:
            ended = asyncio.Event()
            found.extend([asyncio.get_running_loop(), ended])
            ready.set()
            await main(cache, ended)

        thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
        thread.start()
        assert ready.wait(PATIENCE)

        def stop() -> None:
            loop, ended = found
            loop.call_soon_threadsafe(ended.set)
            join(thread)

        return stop

    return start


async def _coroutine_handler(cache: Cache, ended: asyncio.Event) -> None:
    async def on_add(_obj: Any, _initial: bool) -> None: ...

    registration: Any = pods_of(cache).add_handler(on_add=on_add)
    cache.start()
    await ended.wait()
    await registration.removed()


async def _events(cache: Cache, ended: asyncio.Event) -> None:
    async def iterate() -> None:
        async for _ in pods_of(cache).events():
            pass

    task = asyncio.create_task(iterate())
    await ended.wait()
    task.cancel()
    await asyncio.wait([task])


def _ended_by_close(wait: Callable[[Cache], object]) -> Consumer:
    """A call that sleeps until the cache is closed."""

    def start(cache: Cache) -> Stop:
        def run() -> None:
            with suppress(ClosedError):
                wait(cache)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def stop() -> None:
            cache.close()
            join(thread)

        return stop

    return start


def _durable(cache: Cache) -> None:
    with TemporaryDirectory() as directory, pods_of(cache).consumer("idle", directory) as consumer:
        for _ in consumer:
            pass


def _wait_until(cache: Cache) -> None:
    pods_of(cache).wait_until("prod/never", lambda obj: obj is not None)


async def _wait_until_async(cache: Cache, ended: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(
        pods_of(cache).wait_until_async("prod/never", lambda obj: obj is not None)
    )
    await ended.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    with suppress(asyncio.CancelledError, ClosedError):
        waiting.result()


def _feeder(cache: Cache) -> Stop:
    queue = cache.queue("idle")
    feeder = Feeder(cache, queue, [("pods", lambda event: [event.key])])
    thread = threading.Thread(target=feeder.run, daemon=True)
    thread.start()

    def stop() -> None:
        feeder.stop()
        join(thread)
        if not queue.closed:
            queue.close()

    return stop


def _controller(*, asynchronous: bool) -> Consumer:
    def reconcile(_key: str, _cache: Any) -> None: ...

    async def reconcile_async(_key: str, _cache: Any) -> None: ...

    def start(cache: Cache) -> Stop:
        declare = shmcache.controller("pods", concurrency=2)
        worker = declare(reconcile_async if asynchronous else reconcile).start(cache)

        def stop() -> None:
            worker.stop()
            assert worker.join(PATIENCE)

        return stop

    return start


CONSUMERS: dict[str, Consumer] = {
    "thread": _threads(),
    "thread-labels": _threads(labels="app=web"),
    "thread-shard": _threads(shard=(0, 2)),
    "thread-namespace": _threads(namespace="prod"),
    "thread-resync": _threads(resync=1.0),
    "foreground": _foreground,
    "coroutine": _on_a_loop(_coroutine_handler),
    "events": _on_a_loop(_events),
    "durable": _ended_by_close(_durable),
    "wait-until": _ended_by_close(_wait_until),
    "wait-until-on-a-loop": _on_a_loop(_wait_until_async),
    "feeder": _feeder,
    "controller": _controller(asynchronous=False),
    "coroutine-controller": _controller(asynchronous=True),
}


def pods_of(cache: Cache) -> shmcache.CachedResource:
    """Where every consumer looks."""
    return cache["pods"]


def join(thread: threading.Thread) -> None:
    thread.join(PATIENCE)
    assert not thread.is_alive()


# ---- states --------------------------------------------------------------------------------------


class Scene:
    """A cache, its writers, and the events before and after a consumer starts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.writer = self.write("pods", "nodes")

    def write(self, *resources: str) -> shmcache.Writer:
        return shmcache.Writer(
            self.name, list(resources), arena_max="16MiB", ring_slots=256, seats=16
        )

    def list_pods(self) -> None:
        self.writer.apply("pods", [pod("a"), pod("b")])
        self.writer.set_state("pods", states.SYNCED, "1")

    def succeed(self, *resources: str) -> None:
        """Another instance, with content of the nodes alone."""
        self.writer.close()
        self.writer = self.write(*resources)
        self.writer.set_state("nodes", states.SYNCED, "2")


def _absent(_: Scene) -> None: ...


def _unlisted(scene: Scene) -> None:
    scene.succeed("pods", "nodes")


def _missing(scene: Scene) -> None:
    scene.succeed("nodes")


def _retrying(scene: Scene) -> None:
    scene.writer.set_state("pods", states.RETRYING, "1")


def _replaced(scene: Scene) -> None:
    scene.succeed("pods", "nodes")
    scene.list_pods()


def _writerless(scene: Scene) -> None:
    scene.writer.close()


STATES: dict[str, Callable[[Scene], None]] = {
    "absent": _absent,
    "unlisted": _unlisted,
    "missing": _missing,
    "retrying": _retrying,
    "replaced": _replaced,
    "without-a-writer": _writerless,
}


@pytest.fixture
def scene(name: str) -> Iterator[Scene]:
    made = Scene(name)
    yield made
    if not made.writer.closed:
        made.writer.close()


@contextmanager
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often any consumer looked at the cache."""
    count = [0]
    before = Cache.look

    def look(self: Cache, resource: str) -> Any:
        count[0] += 1
        return before(self, resource)

    with monkeypatch.context() as patched:
        patched.setattr(Cache, "look", look)
        yield count


def check_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """At last: a consumer may have begun just now."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with looks(monkeypatch) as count:
            cpu, clock = time.process_time(), time.monotonic()
            time.sleep(WATCHED_SECONDS)
            share = (time.process_time() - cpu) / (time.monotonic() - clock)
        if count[0] <= LOOKS and share <= CPU_SHARE:
            return
        assert time.monotonic() < deadline, f"{count[0]} looks, {share:.0%} of a core"


ORDERS = ("state-first", "consumer-first")
CASES = [
    (consumer, state, order)
    for consumer in CONSUMERS
    for state in STATES
    for order in ORDERS
    if (state, order) != ("missing", "state-first") or consumer == "feeder"  # others: an error
]


@pytest.mark.parametrize(("consumer", "state", "order"), CASES)
def test_a_consumer_with_nothing_to_deliver_sleeps_and_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, consumer: str, state: str, order: str
) -> None:
    if state != "absent":
        scene.list_pods()
    with shmcache.attach(scene.name) as cache:
        first = pods_of(cache).add_handler(on_add=lambda *_: None, name="first")
        cache.start()
        assert state == "absent" or first.wait_synced(PATIENCE)
        if order == "state-first":
            STATES[state](scene)
            move(cache, state)
        stop = CONSUMERS[consumer](cache)
        if order == "consumer-first":
            time.sleep(0.02)
            STATES[state](scene)
            move(cache, state)
        check_idle(monkeypatch)
        stop()
        if not cache.closed:
            assert first.remove(wait=True, timeout=PATIENCE)


def move(cache: Cache, state: str) -> None:
    """Waits until this process reads the next instance."""
    if state in {"unlisted", "missing", "replaced"}:
        deadline = time.monotonic() + PATIENCE
        before = cache.instance
        while cache["nodes"].version != "2":
            assert time.monotonic() < deadline, before
            time.sleep(0.005)


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_close_ends_every_consumer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, consumer: str
) -> None:
    scene.list_pods()
    cache = shmcache.attach(scene.name)
    stop = CONSUMERS[consumer](cache)
    check_idle(monkeypatch)
    cache.close()
    check_idle(monkeypatch)
    stop()
