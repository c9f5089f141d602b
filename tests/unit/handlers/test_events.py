"""Invariant tested: on asyncio, the events and their order are the same as in threads (G11 to
G18), and the loop is never held up."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

import shmcache
from shmcache.handlers.aio import AsyncRegistration, BellSleep, Event, LoopBell, bell_of
from shmcache.monitor.observing import observe
from shmcache.reader import waiting
from shmcache.reader.relay import Relay

PATIENCE = 60.0
VARIABLE: ContextVar[str] = ContextVar("VARIABLE")


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, PATIENCE))


def pod(name: str, version: int, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "prod", "uid": f"uid-of-{name}", "labels": labels}
    return {"metadata": metadata | {"resourceVersion": str(version)}}


async def take(stream: AsyncIterator[Event], count: int) -> list[tuple[str, str, bool]]:
    found = [await anext(stream) for _ in range(count)]
    return [(event.type, event.key, event.initial) for event in found]


def test_g11_events_are_a_replay_and_then_live(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    async def main() -> None:
        writer.apply("pods", [pod("a", 1)])
        stream = aiter(cache["pods"].events())
        assert [("ADDED", "prod/a", True)] == await take(stream, 1)
        following = asyncio.ensure_future(take(stream, 3))
        await asyncio.sleep(0)
        writer.apply("pods", [pod("b", 2)])
        await asyncio.sleep(0)
        writer.apply("pods", [pod("a", 3)])
        writer.delete("pods", "prod/b")
        assert [
            ("ADDED", "prod/b", False),
            ("MODIFIED", "prod/a", False),
            ("DELETED", "prod/b", False),
        ] == await following

    run(main())


def test_an_event_has_the_objects_before_and_after(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    async def main() -> None:
        writer.apply("pods", [pod("a", 1)])
        async for event in cache["pods"].events():
            if event.type == "ADDED":
                assert event.old is None
                writer.apply("pods", [pod("a", 2)])
            elif event.type == "MODIFIED":
                versions = [
                    one["metadata"]["resourceVersion"]
                    for one in (event.old, event.new, event.object)
                ]
                assert ["1", "2", "2"] == versions
                writer.delete("pods", "prod/a", unknown=True)
            else:
                assert (None, True) == (event.new, event.unknown_final_state)
                assert "2" == event.object["metadata"]["resourceVersion"]
                return

    run(main())


def test_g17_events_select(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    async def main() -> None:
        stream = aiter(cache["pods"].events(labels={"app": "web"}))
        writer.apply("pods", [pod("a", 1, app="db"), pod("b", 2, app="web")])
        assert ["prod/b"] == [key for _, key, _ in await take(stream, 1)]
        writer.apply("pods", [pod("a", 3, app="web")])
        writer.apply("pods", [pod("a", 4, app="db")])
        assert [("ADDED", "prod/a"), ("DELETED", "prod/a")] == [
            event[:2] for event in await take(stream, 2)
        ]

    run(main())


def test_g16_an_iteration_that_rests_delays_no_other(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    async def main() -> None:
        slow, quick = aiter(cache["pods"].events()), aiter(cache["pods"].events())
        writer.apply("pods", [pod("a", 0)])
        await take(slow, 1)
        await take(quick, 1)
        for version in range(1, 3000):  # more than the ring's window
            writer.apply("pods", [pod("a", version)])
            if version % 100 == 0:
                await take(quick, 100)
        assert [("MODIFIED", "prod/a", False)] == await take(slow, 1)

    run(main())


def test_async_handlers_run_on_the_loop_that_started_them(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    told: list[tuple[str, str]] = []

    async def main() -> None:
        writer.apply("pods", [pod("a", 1)])
        more = asyncio.Event()

        async def on_add(obj: Any, _: bool) -> None:
            await asyncio.sleep(0)
            told.append(("add", obj["metadata"]["name"]))

        def on_update(_: Any, new: Any) -> None:  # plain ones may be among them
            told.append(("update", new["metadata"]["name"]))
            more.set()

        registration = cache["pods"].add_handler(on_add, on_update)
        assert isinstance(registration, AsyncRegistration)
        cache.start()
        assert await registration.synced()
        assert [("add", "a")] == told
        writer.apply("pods", [pod("a", 2)])
        await more.wait()
        await registration.removed()
        assert not registration.active
        writer.apply("pods", [pod("a", 3)])

    run(main())
    assert [("add", "a"), ("update", "a")] == told


def test_g14_an_async_handler_that_raises_goes_on(
    writer: shmcache.Writer, cache: shmcache.Cache, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        seen = asyncio.Queue[str]()

        async def broken(obj: Any, _: bool) -> None:
            seen.put_nowait(obj["metadata"]["name"])
            raise ZeroDivisionError("no")

        registration = cache["pods"].add_handler(on_add=broken)
        cache.start()
        writer.apply("pods", [pod("a", 1), pod("b", 2)])
        assert ["a", "b"] == [await seen.get(), await seen.get()]
        await registration.removed()  # type: ignore[attr-defined]
        assert 2 == registration.errors

    with caplog.at_level(logging.ERROR):
        run(main())
    assert "failed on ADDED prod/a" in caplog.text
    assert caplog.text.count("Traceback") == 1  # the same error from the same line


def test_async_handlers_need_a_loop(cache: shmcache.Cache) -> None:
    async def on_add(_obj: Any, _initial: bool) -> None: ...

    cache["pods"].add_handler(on_add=on_add)
    with pytest.raises(RuntimeError, match="no running event loop"):
        cache.start()


def test_close_ends_iterations_and_async_handlers(writer: shmcache.Writer) -> None:
    async def main() -> None:
        cache = shmcache.attach(writer.name)
        pods = cache["pods"]

        async def on_add(_obj: Any, _initial: bool) -> None: ...

        registration = pods.add_handler(on_add=on_add)
        cache.start()

        async def iterate() -> int:
            return len([event async for event in pods.events()])

        writer.apply("pods", [pod("a", 1)])
        task = asyncio.ensure_future(iterate())
        await registration.synced()  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        cache.close()
        assert await task <= 1
        await registration.removed()  # type: ignore[attr-defined]

    run(main())


def test_iterations_follow_to_the_next_writer(name: str) -> None:
    async def main() -> None:
        with shmcache.Writer(name, ["pods"]) as writer:
            writer.apply("pods", [pod("a", 1)])
            cache = shmcache.attach(name)
            stream = aiter(cache["pods"].events())
            await take(stream, 1)
            following = asyncio.ensure_future(take(stream, 2))
            await asyncio.sleep(0)
        with shmcache.Writer(name, ["pods"]) as writer:
            writer.apply("pods", [pod("b", 2)])
            assert [("DELETED", "prod/a"), ("ADDED", "prod/b")] == [
                event[:2] for event in await following
            ]
        cache.close()

    run(main())


def _rings(fd: int) -> int:
    """How often an eventfd was written since it was read."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        [count] = [line.split()[1] for line in file if line.startswith("eventfd-count:")]
    return int(count, 16)


async def _unheard(cache: shmcache.Cache, act: Callable[[], object]) -> list[asyncio.Task[None]]:
    """Two iterations until prod/c. The iteration that receives prod/b last acts, while the
    other one sleeps again, and goes on when that has rung: within one callback."""
    bell, told = bell_of(cache.informer), 0

    async def iterate() -> None:
        nonlocal told
        async for event in cache["pods"].events():
            if event.key == "prod/c":
                return
            told += 1
            if event.key == "prod/b" and told == 4:
                assert bell._relay is not None
                before, deadline = _rings(bell._relay.fd), time.monotonic() + PATIENCE
                act()
                while _rings(bell._relay.fd) == before:
                    assert time.monotonic() < deadline

    tasks = [asyncio.create_task(iterate()) for _ in range(2)]
    while told < 2:
        await asyncio.sleep(0)
    return tasks


def test_g7_a_ring_that_is_cleared_unheard_is_heard(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    async def main() -> None:
        writer.apply("pods", [pod("a", 1)])
        tasks = await _unheard(cache, lambda: writer.apply("pods", [pod("c", 3)]))
        writer.apply("pods", [pod("b", 2)])
        await asyncio.gather(*tasks)

    run(main())


def test_an_end_that_is_cleared_unheard_is_heard(name: str) -> None:
    async def main() -> None:
        first = shmcache.Writer(name, ["pods"])
        first.apply("pods", [pod("a", 1)])
        with shmcache.attach(name) as cache:
            tasks = await _unheard(cache, first.close)
            first.apply("pods", [pod("b", 2)])
            while not first.closed:
                await asyncio.sleep(0)
            with shmcache.Writer(name, ["pods"]) as second:
                second.replace("pods", [pod("c", 3)])
                await asyncio.gather(*tasks)

    run(main())


# ---- a sleeper goes on within the callback that ends its sleep -----------------------------------


async def sleeping(sleep: BellSleep, notes: list[str], name: str) -> None:
    try:
        await sleep
        notes.append(f"{name} in {VARIABLE.get('nothing')}")
    except asyncio.CancelledError:
        notes.append(f"{name} cancelled")
        raise


def test_a_sleep_ends_within_the_callback_and_in_its_tasks_context() -> None:
    async def main() -> None:
        notes: list[str] = []
        sleep = BellSleep()
        VARIABLE.set("its context")
        task = asyncio.ensure_future(sleeping(sleep, notes, "a"))
        VARIABLE.set("another")
        await asyncio.sleep(0)
        ended = asyncio.Event()

        def callback() -> None:
            sleep.end()
            notes.append("callback")
            ended.set()
            sleep.end()

        asyncio.get_running_loop().call_soon(callback)
        await ended.wait()
        assert notes == ["a in its context", "callback"]
        await task

    run(main())


def test_a_sleep_is_cancelled_or_waited_for_like_any_future() -> None:
    async def main() -> None:
        notes: list[str] = []
        sleep, timed, done = BellSleep(), BellSleep(), BellSleep()
        task = asyncio.ensure_future(sleeping(sleep, notes, "a"))
        await asyncio.sleep(0)
        task.cancel()
        sleep.end()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert notes == ["a cancelled"]
        assert not sleep.cancel()
        assert await asyncio.wait([timed], timeout=0) == (set(), {timed})
        waiting = asyncio.ensure_future(asyncio.wait([timed, done]))
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        loop.call_soon(timed.end)
        loop.call_soon(done.end)
        assert await waiting == ({timed, done}, set())
        await done

    run(main())


def test_a_task_ending_the_program_leaves_the_others_to_the_next_turn(
    cache: shmcache.Cache,
) -> None:
    """KeyboardInterrupt and SystemExit go through a task, and out of the callback."""

    async def leave(sleep: BellSleep) -> None:
        await sleep
        raise SystemExit

    async def begin() -> tuple[LoopBell, list[asyncio.Task[None]]]:
        bell, sleeps = LoopBell(cache), [BellSleep() for _ in range(3)]
        bell.waiting.update(sleeps)
        tasks = [asyncio.create_task(leave(sleep)) for sleep in sleeps]
        await asyncio.sleep(0)
        return bell, tasks

    loop = asyncio.new_event_loop()
    try:
        bell, tasks = loop.run_until_complete(begin())
        loop.call_soon(bell.ring)
        loop.call_later(PATIENCE, loop.stop)
        for number in range(1, len(tasks) + 1):
            with pytest.raises(SystemExit):
                loop.run_forever()
            assert sum(task.done() for task in tasks) == number
        for task in tasks:
            assert isinstance(task.exception(), SystemExit)
    finally:
        loop.close()


def opened() -> tuple[int, int]:
    """Threads of this process, and descriptors."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


async def waited(cache: shmcache.Cache) -> None:
    assert not await cache["pods"].wait_until_async("prod/none", bool, 0.01)
    assert bell_of(cache.informer)._relay is not None


def test_a_cache_that_is_closed_leaves_nothing_on_its_loop(writer: shmcache.Writer) -> None:
    async def main() -> None:
        with shmcache.attach(writer.name) as cache:  # opens what stays, as the word of fork()
            await waited(cache)
        await asyncio.sleep(0)
        before = opened()
        for _ in range(3):
            with shmcache.attach(writer.name) as cache:
                await waited(cache)
            await asyncio.sleep(0)
        assert opened() == before

    run(main())


def test_a_cache_that_is_forgotten_with_its_loop_ends_its_thread(writer: shmcache.Writer) -> None:
    """RELAY1: its thread, its seat and its memory go together, in whatever order (G9)."""
    gc.collect()
    before = opened()
    for number in range(3):
        cache = shmcache.attach(writer.name)
        run(waited(cache))
        del cache
        gc.collect()
        writer.apply("pods", [pod("a", number)])
    assert opened() == before


def test_a_relay_of_a_process_without_a_standard_input_closes_its_descriptor(
    cache: shmcache.Cache,
) -> None:
    kept = os.dup(0)
    os.close(0)
    try:
        relay = Relay(cache.reader, (waiting.EVERYTHING, waiting.EVERYTHING, cache.reader.latest))
        assert relay.fd == 0
        relay.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(0)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_a_relay_may_be_closed_by_several_threads_at_once(cache: shmcache.Cache) -> None:
    """RELAY1: none of them returns before the thread is done with the descriptor.

    Its number is another file's by then.
    """
    reader = cache.reader
    wanted = (waiting.EVERYTHING, waiting.EVERYTHING, reader.latest)
    disturbed: list[int] = []

    def close(relay: Relay, together: threading.Barrier) -> None:
        together.wait()
        relay.close()
        other = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            ended.wait()
            disturbed.append(os.eventfd_read(other))
        except BlockingIOError:
            pass
        finally:
            os.close(other)

    for _ in range(100):
        relay, together, ended = Relay(reader, wanted), threading.Barrier(2), threading.Barrier(2)
        closers = [threading.Thread(target=close, args=(relay, together)) for _ in range(2)]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()
    assert disturbed == []


def test_a_cache_that_outlives_its_loops_keeps_one_thread(cache: shmcache.Cache) -> None:
    run(waited(cache))
    before = opened()
    for _ in range(3):
        run(waited(cache))
    assert opened() == before


def test_an_iteration_that_has_ended_lags_no_more(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    async def main() -> None:
        events: Any = cache["pods"].events()
        writer.apply("pods", [pod("a", 1)])
        await anext(events)
        await events.aclose()

    run(main())
    writer.apply("pods", [pod("b", 2)])
    [own] = [worker for worker in observe(cache).workers if worker.own]
    assert (own.busy, own.lag or 0) == (0, 0)
