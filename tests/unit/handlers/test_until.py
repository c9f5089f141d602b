"""wait_until() in both colours (G48): no published state is passed over, and no end of an object.

The same cases run in a thread and on asyncio.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import shmcache
from shmcache import states
from shmcache.handlers.aio import bell_of

PATIENCE = 30.0
KEY = "prod/web-0"

Act = Callable[[], object]
Waiting = Callable[..., Any]


def pod(phase: str, version: int, uid: str = "u-1", name: str = "web-0") -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "prod",
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
        },
        "status": {"phase": phase},
    }


def phase_is(*phases: str) -> Callable[[Any], bool]:
    return lambda obj: obj is not None and obj.status.phase in phases


class Watched:
    """A predicate that notes what it sees, and acts when it has seen its first state."""

    def __init__(self, until: Callable[[Any], bool], then: Act | None = None) -> None:
        self.seen: list[str | None] = []
        self._until, self._then = until, then

    def __call__(self, obj: Any) -> bool:
        self.seen.append(None if obj is None else f"{obj.metadata.uid} {obj.status.phase}")
        then, self._then = self._then, None
        if then is not None:
            then()
        return self._until(obj)


def in_thread(cache: shmcache.Cache, *args: Any, **options: Any) -> Any:
    return cache["pods"].wait_until(*args, **{"timeout": PATIENCE, **options})


def in_loop(cache: shmcache.Cache, *args: Any, **options: Any) -> Any:
    async def main() -> Any:
        found = await cache["pods"].wait_until_async(*args, **{"timeout": PATIENCE, **options})
        bell = bell_of(cache.informer)
        assert not bell.watches
        assert not bell.waiting
        bell.close()
        return found

    return asyncio.run(main())


@pytest.fixture(params=[in_thread, in_loop])
def wait(request: pytest.FixtureRequest) -> Waiting:
    found: Waiting = request.param
    return found


def test_the_present_state_is_enough(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    writer.apply("pods", [pod("Running", 1)])

    assert wait(cache, KEY, phase_is("Running")) == pod("Running", 1)


def test_states_that_pass_within_one_publication_are_all_seen(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    def pass_by() -> None:
        with writer.batch():
            for number, phase in enumerate(("Running", "Succeeded", "Other"), 2):
                writer.apply("pods", [pod(phase, number)])

    writer.apply("pods", [pod("Pending", 1)])
    watched = Watched(phase_is("Succeeded"), pass_by)

    found = wait(cache, KEY, watched)

    assert found.status.phase == "Succeeded"
    assert watched.seen == ["u-1 Pending", "u-1 Running", "u-1 Succeeded"]


def test_a_terminal_state_is_seen_although_the_object_is_deleted_right_after_it(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    def end() -> None:
        writer.apply("pods", [pod("Failed", 2)])
        writer.delete("pods", KEY)

    writer.apply("pods", [pod("Running", 1)])

    found = wait(cache, KEY, Watched(phase_is("Succeeded", "Failed"), end))

    assert found.to_dict() == pod("Failed", 2)


def test_an_object_that_does_not_exist_yet_is_awaited(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    timer = threading.Timer(0.05, lambda: writer.apply("pods", [pod("Running", 1)]))
    timer.start()

    assert wait(cache, KEY, phase_is("Running")).metadata.uid == "u-1"
    timer.join()


def test_a_deletion_ends_the_wait_with_the_last_state(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    writer.apply("pods", [pod("Running", 1)])
    watched = Watched(phase_is("Succeeded"), lambda: writer.delete("pods", KEY))

    with pytest.raises(shmcache.ObjectDeleted, match="prod/web-0 was deleted") as caught:
        wait(cache, KEY, watched)

    assert caught.value.key == KEY
    assert caught.value.last == pod("Running", 1)
    assert not caught.value.unknown


def test_another_uid_is_the_end_of_the_object(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    writer.apply("pods", [pod("Running", 1)])
    replace = Watched(phase_is("Succeeded"), lambda: writer.apply("pods", [pod("New", 2, "u-2")]))

    with pytest.raises(shmcache.ObjectDeleted) as caught:
        wait(cache, KEY, replace)

    assert caught.value.unknown


def test_the_absence_can_be_the_state(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    writer.apply("pods", [pod("Running", 1)])
    watched = Watched(lambda obj: obj is None, lambda: writer.delete("pods", KEY))

    found = wait(cache, KEY, watched, absent=True)

    assert isinstance(found, shmcache.Tombstone)
    assert (found.key, found.uid) == (KEY, "u-1")
    assert watched.seen == ["u-1 Running", None]


def test_with_absence_a_wait_goes_on_with_the_next_object_of_the_name(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    writer.apply("pods", [pod("Running", 1)])

    def replace() -> None:
        writer.apply("pods", [pod("Pending", 2, "u-2")])
        writer.apply("pods", [pod("Ready", 3, "u-2")])

    watched = Watched(phase_is("Ready"), replace)

    assert wait(cache, KEY, watched, absent=True).metadata.uid == "u-2"
    assert watched.seen == ["u-1 Running", None, "u-2 Pending", "u-2 Ready"]


def test_over_a_lapse_the_latest_state_counts(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    def lap() -> None:
        writer.apply("pods", [pod("Between", 2)])
        writer.drop_window()
        writer.apply("pods", [pod("Succeeded", 3)])
        writer.drop_window()

    writer.apply("pods", [pod("Running", 1)])
    watched = Watched(phase_is("Succeeded"), lap)

    assert wait(cache, KEY, watched).status.phase == "Succeeded"
    assert watched.seen == ["u-1 Running", "u-1 Succeeded"]


@pytest.mark.parametrize("successor", [None, "u-2"])
def test_an_end_within_a_lapse_is_reported_as_unknown(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting, successor: str | None
) -> None:
    def lap() -> None:
        writer.apply("pods", [pod("Succeeded", 2)])
        writer.delete("pods", KEY)
        if successor is not None:
            writer.apply("pods", [pod("Succeeded", 3, successor)])
        writer.drop_window()

    writer.apply("pods", [pod("Running", 1)])

    with pytest.raises(shmcache.ObjectDeleted, match="last states were missed") as caught:
        wait(cache, KEY, Watched(phase_is("Succeeded"), lap))

    assert caught.value.unknown
    assert caught.value.last == shmcache.Tombstone(KEY, "u-1", None)


def test_a_wait_goes_on_in_the_next_instance(
    name: str, cache_of: Callable[[str], shmcache.Cache], wait: Waiting
) -> None:
    first = shmcache.Writer(name, ["pods"])
    first.apply("pods", [pod("Running", 1)])
    first.set_state("pods", states.SYNCED)
    cache = cache_of(name)
    made: list[shmcache.Writer] = []

    def restart() -> None:
        first.close()
        made.append(shmcache.Writer(name, ["pods"], fresh=True))
        made[0].apply("pods", [pod("Succeeded", 2)])
        made[0].set_state("pods", states.SYNCED)

    try:
        found = wait(cache, KEY, Watched(phase_is("Succeeded"), restart))
    finally:
        for writer in made:
            writer.close()

    assert found.status.phase == "Succeeded"


@pytest.fixture
def cache_of(request: pytest.FixtureRequest) -> Callable[[str], shmcache.Cache]:
    def attach(name: str) -> shmcache.Cache:
        cache = shmcache.attach(name)
        request.addfinalizer(cache.close)
        return cache

    return attach


def test_a_predicate_that_raises_ends_its_wait(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    writer.apply("pods", [pod("Running", 1)])

    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        wait(cache, KEY, lambda obj: obj.nothing_of_this_name)


def test_the_time_may_be_over(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting
) -> None:
    writer.apply("pods", [pod("Running", 1)])

    assert wait(cache, KEY, phase_is("Succeeded"), timeout=0.02) is None


def test_wrong_arguments_get_a_sentence(cache: shmcache.Cache, wait: Waiting) -> None:
    with pytest.raises(TypeError, match="key must be a str such as"):
        wait(cache, 7, phase_is("Running"))
    with pytest.raises(TypeError, match="predicate"):
        wait(cache, KEY, "Running")
    with pytest.raises(TypeError, match="timeout must be a number of seconds"):
        wait(cache, KEY, phase_is("Running"), timeout="soon")


def test_a_snapshot_does_not_move(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    writer.apply("pods", [pod("Running", 1)])
    with cache.snapshot() as at, pytest.raises(ValueError, match="a snapshot does not move"):
        at["pods"].wait_until(KEY, phase_is("Running"))


def test_close_ends_a_wait(
    writer: shmcache.Writer, cache_of: Callable[[str], shmcache.Cache], wait: Waiting
) -> None:
    writer.apply("pods", [pod("Running", 1)])
    cache = cache_of(writer.name)
    timer = threading.Timer(0.1, cache.close)
    timer.start()

    with pytest.raises(shmcache.ClosedError):
        wait(cache, KEY, phase_is("Succeeded"))
    timer.join()


def test_each_state_of_random_histories_is_seen(
    writer: shmcache.Writer, cache: shmcache.Cache, wait: Waiting, rng: random.Random
) -> None:
    """UNTIL1, UNTIL2: against the list of what was published."""
    for turn in range(20):
        uid = f"u-{turn}"
        history = [pod(f"P{n}", n + 1, uid) for n in range(rng.randrange(1, 60))]
        noise = [pod("Noise", 1, f"n-{n}", f"noise-{n}") for n in range(rng.randrange(40))]

        def publish(
            history: list[dict[str, Any]] = history, noise: list[dict[str, Any]] = noise
        ) -> None:
            rest = [*history[1:], *noise]
            while rest:
                with writer.batch():
                    for _ in range(rng.randrange(1, 9)):
                        if rest:
                            writer.apply("pods", [rest.pop(0)])

        writer.apply("pods", history[:1])
        thread = threading.Thread(target=publish)
        watched = Watched(phase_is(history[-1]["status"]["phase"]), thread.start)
        found = wait(cache, KEY, watched)
        thread.join()

        assert found == history[-1]
        assert watched.seen == [f"{uid} {one['status']['phase']}" for one in history]


def test_a_predicate_whose_object_was_taken_back_is_called_again(
    name: str, cache_of: Callable[[str], shmcache.Cache], wait: Waiting
) -> None:
    with shmcache.Writer(
        name, ["pods"], arena_max="64MiB", ring_slots=16, ring_bytes=4096, garbage_max=4096
    ) as writer:
        writer.apply("pods", [pod("Noise", 4, f"u-{n}", f"n{n}") for n in range(300)])
        writer.apply("pods", [pod("Running", 1)])
        seen: list[str] = []

        def predicate(obj: Any) -> bool:
            seen.append("called")
            if len(seen) == 1:
                take_back(writer, obj)
            return bool(obj.status.phase == "Running")

        assert wait(cache_of(name), KEY, predicate) == pod("Running", 1)
        assert len(seen) == 2


def take_back(writer: shmcache.Writer, view: Any) -> None:
    for version in range(5, 1000):
        writer.apply("pods", [pod("Noise", version, f"u-{n}", f"n{n}") for n in range(300)])
        writer.reclaim()
        if repr(view).startswith("<View: Stale"):
            return
    raise AssertionError("nothing was taken back: the test proves nothing")


# ---- asyncio alone -------------------------------------------------------------------------------


def test_waits_of_one_loop_share_one_walk(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    names = [f"web-{n}" for n in range(200)]
    writer.apply("pods", [pod("Running", 1, f"u-{name}", name) for name in names])

    async def main() -> list[Any]:
        waits = [
            asyncio.create_task(
                cache["pods"].wait_until_async(f"prod/{name}", phase_is("Succeeded"), PATIENCE)
            )
            for name in names
        ]
        await asyncio.sleep(0)
        bell = bell_of(cache.informer)
        assert len(bell.watches) == len(bell.waiting) == 1
        for name in names:
            writer.apply("pods", [pod("Succeeded", 2, f"u-{name}", name)])
        found = await asyncio.gather(*waits)
        assert not bell.waiting
        bell.close()
        return found

    assert [one.metadata.name for one in asyncio.run(main())] == names


def test_a_wait_sees_nothing_from_before_it(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    """UNTIL1: it joins a walk that is behind the state that it has seen."""
    writer.apply("pods", [pod("First", 1), pod("Running", 1, "u-2", "other")])

    async def main() -> None:
        pods = cache["pods"]
        other = asyncio.create_task(pods.wait_until_async("prod/other", phase_is("Done"), PATIENCE))
        await asyncio.sleep(0)
        writer.apply("pods", [pod("Second", 2)])
        writer.apply("pods", [pod("Third", 3)])
        watched = Watched(phase_is("Fourth"))
        task = asyncio.create_task(pods.wait_until_async(KEY, watched, PATIENCE))
        await asyncio.sleep(0)
        writer.apply("pods", [pod("Fourth", 4), pod("Done", 2, "u-2", "other")])
        await asyncio.gather(task, other)
        assert watched.seen == ["u-1 Third", "u-1 Fourth"]
        bell_of(cache.informer).close()

    asyncio.run(main())


def test_a_coroutine_function_is_refused(cache: shmcache.Cache, wait: Waiting) -> None:
    async def predicate(_: Any) -> bool:
        return True

    with pytest.raises(TypeError, match="must be a plain function"):
        wait(cache, KEY, predicate)


def test_a_cancelled_wait_leaves_nothing(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    writer.apply("pods", [pod("Running", 1)])

    async def main() -> None:
        task = asyncio.create_task(cache["pods"].wait_until_async(KEY, phase_is("Succeeded")))
        other = asyncio.create_task(cache["pods"].wait_until_async(KEY, phase_is("Failed")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        writer.apply("pods", [pod("Failed", 2)])
        assert await other == pod("Failed", 2)
        bell = bell_of(cache.informer)
        assert not bell.watches
        assert not bell.waiting
        bell.close()

    asyncio.run(main())


def test_a_coroutine_may_wait_again_within_the_call_that_woke_it(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    phases = [f"P{n}" for n in range(50)]
    reached = 0
    writer.apply("pods", [pod("Start", 1)])

    async def each() -> None:
        nonlocal reached
        for phase in phases:
            assert await cache["pods"].wait_until_async(KEY, phase_is(phase), PATIENCE)
            reached += 1

    async def main() -> None:
        tasks = [asyncio.create_task(each()) for _ in range(3)]
        for number, phase in enumerate(phases, 2):
            await asyncio.sleep(0)
            writer.apply("pods", [pod(phase, number)])
            while reached < 3 * (number - 1) and not any(task.done() for task in tasks):
                await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)
        bell_of(cache.informer).close()

    asyncio.run(main())


def test_versions_are_awaited_on_asyncio(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    pods = cache["pods"]

    async def main() -> None:
        assert not await pods.wait_synced_async(0.01)
        synced = asyncio.create_task(pods.wait_synced_async(PATIENCE))
        version = asyncio.create_task(pods.wait_for_async("7", PATIENCE))
        gone = asyncio.create_task(pods.wait_deleted_async(KEY, "u-1", PATIENCE, version="8"))
        await asyncio.sleep(0)
        writer.apply("pods", [pod("Running", 5)])
        writer.set_state("pods", states.SYNCED)
        assert await synced
        writer.set_version("pods", "7")  # a bookmark: no object changes
        assert await version
        writer.delete("pods", KEY)
        writer.set_version("pods", "9")
        assert await gone
        bell = bell_of(cache.informer)
        assert bell.facts == 0
        assert not bell.waiting
        bell.close()

    asyncio.run(main())


def test_wrong_versions_get_a_sentence_on_asyncio(cache: shmcache.Cache) -> None:
    with pytest.raises(TypeError, match="version must be a resourceVersion"):
        asyncio.run(cache["pods"].wait_for_async(7))  # type: ignore[arg-type]
