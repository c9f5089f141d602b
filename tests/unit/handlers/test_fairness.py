"""Invariants tested: deliveries on a loop leave the loop to others (AIO1, AIO2), and no exception
or result of a handler ends a registration."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from reconciled import eventually

import shmcache
from shmcache.handlers.aio import bell_of
from shmcache.handlers.registration import SLICE_SECONDS

PATIENCE = 60.0


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, PATIENCE))


def pod(name: str, version: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "prod", "uid": f"uid-of-{name}"}
    return {"metadata": metadata | {"resourceVersion": str(version)}}


# ---- bursts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumer", ["handler", "events"])
def test_a_burst_leaves_the_loop_to_others(
    writer: shmcache.Writer, cache: shmcache.Cache, consumer: str
) -> None:
    """Counted in turns of the loop: no rule limits the length of a turn on a busy machine."""
    slices = 6

    async def main() -> None:
        writer.apply("pods", [pod(f"{number:03}") for number in range(100)])
        turns, seen = 0, 0

        def work() -> None:
            nonlocal seen
            seen += 1
            end = time.perf_counter() + SLICE_SECONDS * slices / 100
            while time.perf_counter() < end:
                pass

        async def tick() -> None:
            nonlocal turns
            while seen < 100:
                turns += 1
                await asyncio.sleep(0)

        async def on_add(_obj: Any, _initial: bool) -> None:
            work()

        async def iterate() -> None:
            async for _ in cache["pods"].events():
                work()
                if seen == 100:
                    return

        ticking = asyncio.create_task(tick())
        if consumer == "handler":
            cache["pods"].add_handler(on_add=on_add)
            cache.start()
        else:
            await iterate()
        await ticking
        assert turns >= slices

    run(main())


def test_g16_the_stated_slice_is_that_of_the_code() -> None:
    page = Path(__file__).parents[3] / "docs" / "guarantees.md"
    assert f"hold the loop for {1000 * SLICE_SECONDS:g} ms at a time" in page.read_text()


def test_coroutines_that_wake_together_share_one_slice(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    count = 8

    async def main() -> None:
        longest, done = 0.0, 0

        async def on_update(_old: Any, _new: Any) -> None:
            nonlocal done
            end = time.perf_counter() + SLICE_SECONDS / 4
            while time.perf_counter() < end:
                pass
            done += 1

        writer.apply("pods", [pod("a")])
        found: list[Any] = [
            cache["pods"].add_handler(on_update=on_update, name=f"h{number}")
            for number in range(count)
        ]
        cache.start()
        for registration in found:
            await registration.synced()
        for version in range(2, 18):
            writer.apply("pods", [pod("a", version)])
        turns = 0
        while done < count * 16:
            before = done
            await asyncio.sleep(0)
            turns += 1
            longest = max(longest, done - before)
        assert longest <= 4 + count + 1  # a slice of calls, and one for each
        assert turns >= count * 16 / (4 + count + 1)

    run(main())


# ---- cancellation --------------------------------------------------------------------------------


def test_a_next_that_is_cancelled_loses_nothing_and_ends_nothing(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    async def main() -> None:
        stream = aiter(cache["pods"].events())
        for number in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.01)
            assert not bell_of(cache.informer).waiting  # AIO2
            writer.apply("pods", [pod(f"p{number}")])
            assert (await anext(stream)).key == f"prod/p{number}"

    run(main())


def test_a_cancelled_iteration_leaves_the_bell_and_its_map(cache: shmcache.Cache) -> None:
    async def main() -> None:
        async def iterate() -> None:
            async for _ in cache["pods"].events():
                pass

        tasks = [asyncio.create_task(iterate()) for _ in range(20)]
        bell = bell_of(cache.informer)
        while len(bell.waiting) < 20:
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert not bell.waiting
        del tasks, task
        await asyncio.sleep(0.01)
        with cache.informer._lock:
            cache.informer.known.drop_empty()
        assert cache.informer.known.bytes == 0

    run(main())


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError(), SystemExit(1), StopIteration(), StopAsyncIteration(), ValueError()],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_of_a_coroutine_handler_ends_no_registration(
    writer: shmcache.Writer, cache: shmcache.Cache, error: BaseException
) -> None:
    async def main() -> None:
        seen: asyncio.Queue[str] = asyncio.Queue()

        async def on_add(obj: Any, _initial: bool) -> None:
            seen.put_nowait(obj["metadata"]["name"])
            raise error

        registration: Any = cache["pods"].add_handler(on_add=on_add)
        cache.start()
        for name in ("a", "b"):
            writer.apply("pods", [pod(name)])
            assert await seen.get() == name
        await registration.removed()
        assert registration.errors == 2

    run(main())


def test_a_task_that_a_handler_awaits_may_be_cancelled(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    async def main() -> None:
        seen: asyncio.Queue[str] = asyncio.Queue()

        async def on_add(obj: Any, _initial: bool) -> None:
            inner = asyncio.create_task(asyncio.sleep(PATIENCE))
            asyncio.get_running_loop().call_soon(inner.cancel)
            try:
                await inner
            finally:
                seen.put_nowait(obj["metadata"]["name"])

        registration: Any = cache["pods"].add_handler(on_add=on_add)
        cache.start()
        writer.apply("pods", [pod("a"), pod("b")])
        assert [await seen.get(), await seen.get()] == ["a", "b"]
        await registration.removed()
        assert registration.errors == 2

    run(main())


def test_a_registration_whose_task_is_cancelled_ends_and_is_logged(
    writer: shmcache.Writer, cache: shmcache.Cache, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async def on_add(_obj: Any, _initial: bool) -> None: ...

        registration: Any = cache["pods"].add_handler(on_add=on_add, name="mine")
        cache.start()
        writer.apply("pods", [pod("a")])
        await registration.synced()
        registration._task.cancel()
        await asyncio.wait([registration._task])
        assert not registration.active
        assert not bell_of(cache.informer).waiting

    with caplog.at_level(logging.INFO):
        run(main())
    assert "registration mine of pods was cancelled" in caplog.text


def test_a_coroutine_registration_can_be_removed_without_a_writer(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    async def main() -> None:
        async def on_add(_obj: Any, _initial: bool) -> None: ...

        registration: Any = cache["pods"].add_handler(on_add=on_add)
        cache.start()
        writer.apply("pods", [pod("a")])
        await asyncio.sleep(0.01)
        writer.close()
        await asyncio.sleep(0.05)
        await registration.removed()

    run(main())


# ---- functions -----------------------------------------------------------------------------------


def test_partials_and_callable_objects_of_coroutine_functions_are_awaited(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    class Handler:
        async def __call__(self, obj: Any, _initial: bool) -> None:
            self.seen = obj["metadata"]["name"]

        async def method(self, first: str, obj: Any, _initial: bool) -> None:
            self.first = first + obj["metadata"]["name"]

    async def main() -> None:
        called, bound = Handler(), Handler()
        cache["pods"].add_handler(on_add=called)
        cache["pods"].add_handler(on_add=functools.partial(bound.method, "x-"))
        cache.start()
        writer.apply("pods", [pod("a")])
        while not (hasattr(called, "seen") and hasattr(bound, "first")):
            await asyncio.sleep(0.001)
        assert (called.seen, bound.first) == ("a", "x-a")

    run(main())


def test_handlers_that_a_call_does_not_run_are_refused(cache: shmcache.Cache) -> None:
    def generator(_obj: Any, _initial: bool) -> Any:
        yield

    async def async_generator(_obj: Any, _initial: bool) -> Any:
        yield

    for handler in (generator, async_generator, functools.partial(generator), "on_add"):
        bad: Any = handler
        with pytest.raises(TypeError, match="on_add"):
            cache["pods"].add_handler(on_add=bad)


def test_a_handler_that_returns_a_coroutine_in_a_thread_is_an_error(
    writer: shmcache.Writer, cache: shmcache.Cache, caplog: pytest.LogCaptureFixture
) -> None:
    async def inner() -> None: ...

    registration = cache["pods"].add_handler(on_add=lambda *_: inner())
    cache.start()
    writer.apply("pods", [pod("a")])
    eventually(lambda: registration.errors == 1)
    assert "declare it with `async def`" in caplog.text


def test_errors_of_a_handler_are_logged_once_and_counted(
    writer: shmcache.Writer, cache: shmcache.Cache, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    def broken(obj: Any, _initial: bool) -> None:
        if obj["metadata"]["name"] == "last":
            done.set()
        raise ValueError(f"{obj['metadata']['name']} is refused")

    registration = cache["pods"].add_handler(on_add=broken)
    writer.apply("pods", [pod(f"p{number:03}") for number in range(150)])
    cache.start()
    writer.apply("pods", [pod("last")])
    assert done.wait(PATIENCE)
    eventually(lambda: registration.errors == 151)
    assert len([record for record in caplog.records if record.exc_info]) == 1
    counted = [record.getMessage() for record in caplog.records if "times so far" in record.msg]
    assert ["(10 times" in counted[0], "(100 times" in counted[1], len(counted)] == [True, True, 2]
