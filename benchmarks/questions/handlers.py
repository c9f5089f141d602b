"""What do handlers cost: for each delta, for each registration, when they fell behind, when idle?

A delta's way to its handler is timed over existing deltas, with handlers that do nothing; the call
of such a handler is subtracted. Delivery of a difference is timed from the moment when the ring has
lost deltas until everything missed is delivered. Idle workers are processes whose threads' wake-ups
the kernel counts. An event on asyncio is timed from before the commit until the coroutine runs, in
turns with a loop whose coroutine waits for a bare eventfd.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, percentile, show_bytes, show_ns, timing
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, directory, fill, open_writer
from shmcache import _hot
from shmcache._native import check, lib
from shmcache.handlers.delivered import KnownResources
from shmcache.handlers.feed import Feed
from shmcache.handlers.registration import Registration, Wanted

COUNT = 10_000
CHANGED = 100
DELTAS = 4_000
DELTA_NS = 2_000
BYTES = 100
DIFFERENCE_NS = 20_000_000
WORKERS = 8
WAKES = 1.0
MORE = 20


def run(quick: bool) -> list[Row]:
    rounds = 3 if quick else 15
    with directory() as name, open_writer(name) as writer:
        pods = list(objects.pods(COUNT))
        fill(writer, pods)
        cache = shmcache.attach(name)
        rows = [
            _delta(writer, cache, pods, rounds),
            _memory(cache),
            _more_registrations(cache),
            _difference(writer, cache, pods, rounds),
            _idle(name, *((2, 1.0) if quick else (WORKERS, 10.0))),
            _event(writer, cache, pods, rounds, 40 if quick else 200),
        ]
        cache.close()
    return rows


def _limit(value: float, limit: float, show: Callable[[float], str]) -> dict[str, Any]:
    return {"must": f"≤ {show(limit)}", "met": value <= limit}


def _nothing(*_: object) -> None:
    pass


def _registration(cache: shmcache.Cache) -> Registration:
    return Registration(
        cache.informer,
        Wanted(
            RESOURCE,
            (_nothing, _nothing, _nothing),
            match=None,
            namespace=None,
            resync=None,
            shard=None,
            name=None,
        ),
    )


def _caught_up(cache: shmcache.Cache) -> Feed:
    """A feed that has delivered everything."""
    known, bit = KnownResources(cache).find(RESOURCE, by_content=False)
    feed = Feed(known, bit)
    for _ in feed.drain():
        pass
    feed.rest()
    return feed


# ---- a delta -------------------------------------------------------------------------------------


def _delta(writer: Any, cache: shmcache.Cache, pods: list[Any], rounds: int) -> Row:
    feed, registration = _caught_up(cache), _registration(cache)
    took, calls = [], []
    for turn in range(rounds):
        changed = [objects.status_update(pods[n], turn * DELTAS + n + 1) for n in range(DELTAS)]
        writer.apply(RESOURCE, changed)
        start = time.thread_time_ns()
        for function, arguments in registration._calls(feed, feed.drain()):  # noqa: SLF001
            function(*arguments)  # as its thread does
        took.append((time.thread_time_ns() - start) / DELTAS)
        start = time.thread_time_ns()
        for _ in range(DELTAS):
            _nothing(None, None)
        calls.append((time.thread_time_ns() - start) / DELTAS)
        feed.rest()
    feed.close()
    call = statistics.median(calls)
    ours = timing([one - call for one in took])
    return Row(
        question="a delta to its handler, beyond the handler",
        ours=str(ours),
        peer="",
        note=f"a handler that does nothing {show_ns(call)}",
        **_limit(ours.ns, DELTA_NS, show_ns),
    )


# ---- memory --------------------------------------------------------------------------------------


def _memory(cache: shmcache.Cache) -> Row:
    feed = _caught_up(cache)
    taken = feed.known.map.bytes / COUNT
    keys = statistics.mean(len(key) for key in cache[RESOURCE])
    feed.close()
    return Row(
        question=f"map of delivered objects, an object, {COUNT:,} pods",
        ours=f"{taken:.0f} B",
        peer="",
        note=f"keys of {keys:.0f} B among it; once for all registrations of a resource",
        **_limit(taken, BYTES, lambda size: f"{size:.0f} B"),
    )


def _more_registrations(cache: shmcache.Cache) -> Row:
    """The first one pays for the map; the question is about the others."""
    with Children(_registering, [(cache.name,)]) as children:
        first, more, bare = children.receive()[0]
    return Row(
        question=f"private memory of one more registration, {COUNT:,} pods delivered",
        ours=show_bytes(more),
        peer=f"a bare thread {show_bytes(bare)}",
        note=f"the first one {show_bytes(first)}",
    )


def _registering(pipe: Pipe, name: str) -> None:
    with shmcache.attach(name) as cache:
        cache.start()
        len(cache[RESOURCE].list())
        before = harness.private_bytes()
        cache[RESOURCE].add_handler(_nothing).wait_synced()
        first = harness.private_bytes()
        for _ in range(MORE):
            cache[RESOURCE].add_handler(_nothing).wait_synced()
        more = harness.private_bytes() - first
        ended = threading.Event()
        for _ in range(MORE):
            threading.Thread(target=ended.wait, daemon=True).start()
        bare = harness.private_bytes() - first - more
        ended.set()
        pipe.answer((first - before, more / MORE, bare / MORE))


# ---- fallen behind -------------------------------------------------------------------------------


def _difference(writer: Any, cache: shmcache.Cache, pods: list[Any], rounds: int) -> Row:
    feed = _caught_up(cache)
    took = []
    for turn in range(rounds):
        base = (rounds + turn) * DELTAS
        chosen = range(turn, COUNT, COUNT // CHANGED)
        writer.apply(RESOURCE, [objects.status_update(pods[n], base + n) for n in chosen])
        writer.drop_window()  # the ring has lost deltas
        start = time.thread_time_ns()
        delivered = sum(1 for _ in feed.drain())
        took.append(float(time.thread_time_ns() - start))
        feed.rest()
        if delivered != CHANGED or feed.lapses != turn + 1:
            raise RuntimeError(f"{delivered} were delivered, {feed.lapses} times by difference")
    feed.close()
    ours = timing(took)
    return Row(
        question=f"delivery of a difference, {COUNT:,} pods, {CHANGED} changed",
        ours=str(ours),
        peer="",
        **_limit(ours.ns, DIFFERENCE_NS, show_ns),
    )


# ---- idle ----------------------------------------------------------------------------------------


def _idle(name: str, workers: int, seconds: float) -> Row:
    with Children(_resting, [(name, seconds)] * workers) as children:
        rates = [rate for rate, _ in children.receive()]
    worst = max(rates)
    return Row(
        question=f"wake-ups of {workers} idle workers with 3 registrations, the worst one",
        ours=f"{worst:.2f} a second",
        peer="",
        **_limit(worst, WAKES, lambda rate: f"{rate:g} a second"),
    )


def _resting(pipe: Pipe, name: str, seconds: float) -> None:
    with shmcache.attach(name) as cache:
        for _ in range(3):
            cache[RESOURCE].add_handler(_nothing)
        cache.start()
        for registration in cache.informer.registrations:
            registration.wait_synced()
        time.sleep(0.2)  # they fall asleep
        before = _switches()
        time.sleep(seconds)  # the wake-up at its own end is one
        pipe.answer(((_switches() - before - 1) / seconds, None))


def _switches() -> int:
    """How often the threads of this process have gone to sleep."""
    found = 0
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status", encoding="ascii") as file:
            lines = (line for line in file if line.startswith("voluntary_ctxt_switches"))
            found += sum(int(line.split()[1]) for line in lines)
    return found


# ---- asyncio -------------------------------------------------------------------------------------


def _event(writer: Any, cache: shmcache.Cache, pods: list[Any], turns: int, count: int) -> Row:
    ours: list[float] = []
    peer: list[float] = []
    ratios: list[float] = []

    async def main() -> None:
        stream = aiter(cache[RESOURCE].events())
        for _ in range(COUNT):
            await anext(stream)
        bell = _Eventfd()
        for turn in range(turns):
            base = 10_000_000 + turn * count
            changes = [objects.status_update(pods[n], base + n) for n in range(count)]
            async_for = await _rounds(_one_event(stream), changes, _Commit(writer))
            eventfd = await _rounds(_one_write(bell), changes, bell)
            ours.append(percentile(async_for, 50))
            peer.append(percentile(eventfd, 50))
            ratios.append(ours[-1] / peer[-1])
        bell.close()

    asyncio.run(main())
    ratio = statistics.median(ratios)
    return Row(
        question="publish to `async for` runs, one event, p50",
        ours=str(timing(ours)),
        peer=f"asyncio + eventfd {timing(peer)}",
        note="from a thread: the commit is part of ours, a write of the peer's",
        **harness.at_most(2, ratio),
    )


async def _rounds(
    stream: AsyncIterator[None], changes: list[Any], publisher: _Commit | _Eventfd
) -> list[float]:
    """Each change is published by another thread while the coroutine sleeps."""
    took: list[float] = []
    started = [0]
    go = threading.Semaphore(0)

    def publish() -> None:
        for change in changes:
            go.acquire()
            time.sleep(0.002)  # until the loop sleeps
            publisher.prepare(change)
            started[0] = time.monotonic_ns()
            publisher.publish()

    thread = threading.Thread(target=publish)
    thread.start()
    for _ in changes:
        go.release()
        await anext(stream)
        took.append(float(time.monotonic_ns() - started[0]))
    thread.join()
    return took


async def _one_event(stream: AsyncIterator[Any]) -> AsyncIterator[None]:
    async for _ in stream:
        yield


class _Commit:
    """put() in two steps: the measurement begins with the commit."""

    def __init__(self, writer: Any) -> None:
        self._handle, self._address = writer._handle.raw, writer._handle.address  # noqa: SLF001

    def prepare(self, change: Any) -> None:
        check(lib.shmc_begin(self._handle), "begin")
        key, version = objects.key_of(change), objects.version_of(change)
        _hot.put(self._address, 0, key, change, version, None)

    def publish(self) -> None:
        check(lib.shmc_commit(self._handle, time.monotonic_ns()), "commit")


class _Eventfd:
    """The cheapest way to wake asyncio from another thread."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0)
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] | None = None
        self._loop.add_reader(self._fd, self._ring)

    def _ring(self) -> None:
        os.eventfd_read(self._fd)
        if self._future is not None:
            self._future.set_result(None)
            self._future = None

    def prepare(self, change: Any) -> None:
        pass

    def publish(self) -> None:
        os.eventfd_write(self._fd, 1)

    async def wait(self) -> None:
        self._future = self._loop.create_future()
        await self._future

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


async def _one_write(bell: _Eventfd) -> AsyncIterator[None]:
    while True:
        await bell.wait()
        yield


if __name__ == "__main__":
    harness.main(__doc__, run)
