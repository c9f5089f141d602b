"""Invariant tested: one process feeds a queue, its successor resumes where it was killed, and no
key of any change is left out (G30)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from workers import Worker, eventually

import shmcache
from shmcache.errors import QueueShutDown
from shmcache.queue.feeder import SLICE, Feeder, SourceEvent
from shmcache.queue.workqueue import INITIAL_PRIORITY, WorkQueue

LONG = 60.0


def by_key(event: SourceEvent) -> list[str]:
    return [event.key]


def by_owner(event: SourceEvent) -> list[str]:
    found = {(obj or {}).get("owner") for obj in (event.old, event.new)}
    return sorted(owner for owner in found if owner)


@contextmanager
def feeding(cache: shmcache.Cache, queue: WorkQueue, **sources: Any) -> Iterator[Feeder]:
    """A feeder in a thread, until the end of the block."""
    feeder = Feeder(cache, queue, list(sources.items()) or [("pods", by_key)])
    stop = threading.Event()
    thread = threading.Thread(target=feeder.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield feeder
    finally:
        stop.set()
        feeder.stop()
        thread.join(LONG)
        assert not thread.is_alive()


def drain(queue: WorkQueue, count: int) -> list[str]:
    """Takes and finishes the next `count` keys."""
    found = []
    for _ in range(count):
        key = queue.get(timeout=LONG)
        assert key is not None
        queue.done(key)
        found.append(key)
    return found


def test_the_first_content_and_every_change_become_keys(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put_many("pods", [(f"ns/{n}", {"n": n}, str(n)) for n in range(5)])
    queue = cache.queue("pods")
    with feeding(cache, queue) as feeder:
        assert feeder.wait_synced(LONG)
        assert feeder.feeding
        assert [f"ns/{n}" for n in range(5)] == drain(queue, 5)
        writer.put("pods", "ns/new", {"n": 9}, "9")
        assert ["ns/new"] == drain(queue, 1)
        writer.delete("pods", "ns/3")
        assert ["ns/3"] == drain(queue, 1)
        assert queue.get(timeout=0.05) is None
    assert not feeder.feeding


def test_changes_go_before_the_first_content(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put_many("pods", [(f"ns/{n}", {"n": n}, str(n)) for n in range(5)])
    queue = cache.queue("pods")
    with feeding(cache, queue) as feeder:
        assert feeder.wait_synced(LONG)
        writer.put("pods", "ns/4", {"n": 99}, "99")
        eventually(lambda: queue.stats()["repeats"], "the change is not fed")
        assert "ns/4" == drain(queue, 1)[0]


def test_the_first_content_has_the_low_priority_of_controller_runtime(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put("pods", "initial", {}, "1")
    queue = cache.queue("pods")
    with feeding(cache, queue) as feeder:
        assert feeder.wait_synced(LONG)
        queue.add("low", -100)
        queue.add("higher", -99)
        assert ["higher", "initial", "low"] == drain(queue, 3)


def test_the_key_function_determines_the_keys(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    queue = cache.queue("pods")
    with feeding(cache, queue, pods=by_owner, nodes=by_key) as feeder:
        writer.put("pods", "ns/a", {"owner": "ns/one"}, "1")
        assert ["ns/one"] == drain(queue, 1)
        writer.put("pods", "ns/a", {"owner": "ns/two"}, "2")
        assert ["ns/one", "ns/two"] == sorted(drain(queue, 2))
        writer.put("nodes", "n1", {}, "3")
        assert ["n1"] == drain(queue, 1)
        writer.delete("pods", "ns/a")
        assert ["ns/two"] == drain(queue, 1)
        assert 0 == feeder.errors


def test_a_function_that_raises_stops_nothing(
    writer: shmcache.Writer, cache: shmcache.Cache, caplog: pytest.LogCaptureFixture
) -> None:
    def keys_of(event: SourceEvent) -> list[str]:
        if event.key == "bad":
            raise RuntimeError("no key for that")
        return [event.key]

    queue = cache.queue("pods")
    with feeding(cache, queue, pods=keys_of) as feeder:
        for n in range(3):
            writer.put("pods", "bad", {"n": n}, str(n))
        writer.put("pods", "good", {}, "9")
        assert ["good"] == drain(queue, 1)
        assert feeder.errors
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert len(tracebacks) == 1
    assert "it is called again later" in tracebacks[0].message


def test_the_next_feeder_resumes_where_the_last_one_stopped(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put_many("pods", [(f"ns/{n}", {"n": n}, str(n)) for n in range(50)])
    queue = cache.queue("pods")
    with feeding(cache, queue) as feeder:
        assert feeder.wait_synced(LONG)
        drain(queue, 50)
    writer.put("pods", "ns/7", {"n": 70}, "70")
    writer.delete("pods", "ns/8")
    with feeding(cache, queue):
        assert ["ns/7", "ns/8"] == sorted(drain(queue, 2))
        assert queue.get(timeout=0.05) is None  # and not all of them once more


def test_a_feeder_that_falls_behind_adds_everything_including_deleted_keys(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put_many("pods", [(f"ns/{n}", {"n": n}, str(n)) for n in range(20)])
    queue = cache.queue("pods")
    with feeding(cache, queue) as feeder:
        assert feeder.wait_synced(LONG)
        drain(queue, 20)
    writer.delete("pods", "ns/8")
    for n in range(600):  # more than the window of 512 holds
        writer.put("pods", "ns/0", {"n": n}, str(100 + n))
    with feeding(cache, queue):
        assert {f"ns/{n}" for n in range(20)} == set(drain(queue, 20))


def test_a_lapped_feeder_adds_only_what_it_missed(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put_many("pods", [(f"ns/{n}", {"n": n}, str(n)) for n in range(20)])
    queue = cache.queue("pods")
    entered, go_on = threading.Event(), threading.Event()

    def keys_of(event: SourceEvent) -> list[str]:
        if event.key == "stop" and not go_on.is_set():
            entered.set()
            assert go_on.wait(LONG)
        return [event.key]

    with feeding(cache, queue, pods=keys_of) as feeder:
        assert feeder.wait_synced(LONG)
        drain(queue, 20)
        writer.put("pods", "stop", {}, "50")
        assert entered.wait(LONG)
        writer.delete("pods", "ns/8")
        for n in range(600):
            writer.put("pods", "ns/0", {"n": n}, str(100 + n))
        go_on.set()
        assert ["ns/0", "ns/8", "stop"] == sorted(drain(queue, 3))
        assert queue.get(timeout=0.05) is None


def test_a_full_queue_holds_the_feeder_back_and_loses_nothing(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    queue = cache.queue("small", slots=64)
    with feeding(cache, queue):
        writer.put_many("pods", [(f"ns/{n}", {"n": n}, str(n)) for n in range(500)])
        eventually(lambda: queue.stats()["full"], "the queue never fills")
        assert {f"ns/{n}" for n in range(500)} == set(drain(queue, 500))


def test_a_restarted_writer_is_fed_by_difference(name: str) -> None:
    with shmcache.Writer(name, ["pods"], ring_slots=1024) as first:
        first.put_many("pods", [(f"ns/{n}", {"n": n}, str(n)) for n in range(20)])
        cache = shmcache.attach(name)
        queue = cache.queue("pods")
        with feeding(cache, queue) as feeder:
            assert feeder.wait_synced(LONG)
            drain(queue, 20)
            first.close()
            with shmcache.Writer(name, ["pods"], ring_slots=1024) as second:
                items = [(f"ns/{n}", {"n": n}, str(n)) for n in range(20) if n != 5]
                items[0] = ("ns/0", {"n": 100}, "100")
                second.put_many("pods", items)
                assert ["ns/0", "ns/5"] == sorted(drain(queue, 2))
                assert queue.get(timeout=0.05) is None
                second.put("pods", "ns/1", {"n": 101}, "101")
                assert ["ns/1"] == drain(queue, 1)
        cache.close()


def _feed(pipe: Any, name: str) -> None:
    """A process that feeds if it gets the role."""
    with shmcache.attach(name) as cache:
        feeder = Feeder(cache, cache.queue("pods"), [("pods", by_key)])
        stop = threading.Event()
        threading.Thread(target=feeder.run, args=(stop,), daemon=True).start()
        while pipe.recv() == "feeding?":
            pipe.send(feeder.feeding)
        stop.set()
        feeder.stop()


def test_one_process_feeds_and_another_takes_over_at_its_death(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    queue = cache.queue("pods")
    with Worker("spawn", _feed, writer.name) as one, Worker("spawn", _feed, writer.name) as two:
        pair = [one, two]
        eventually(lambda: any(each.ask("feeding?") for each in pair), "no process feeds")
        writer.put("pods", "ns/1", {}, "1")
        assert ["ns/1"] == drain(queue, 1)
        answers = [each.ask("feeding?") for each in pair]
        assert [False, True] == sorted(answers)
        dead, alive = pair[answers.index(True)], pair[answers.index(False)]
        dead.stop()  # it does not see changes from now on
        writer.put("pods", "ns/2", {}, "2")
        writer.delete("pods", "ns/1")
        dead.kill()
        assert ["ns/1", "ns/2"] == sorted(drain(queue, 2))
        assert alive.ask("feeding?")
        alive.tell("end")
        alive.process.join()


def test_feeding_ends_with_the_queues_handle_in_this_process(cache: shmcache.Cache) -> None:
    queue = cache.queue("pods")
    with feeding(cache, queue) as feeder:
        assert feeder.wait_synced(0.01) in {True, False}
        queue.stop()
        eventually(lambda: not feeder.feeding, "it keeps feeding")
        with pytest.raises(QueueShutDown):
            queue.get()


def test_after_a_shutdown_everything_is_added_again(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """Adds during a shutdown were ignored, and must not count as fed."""
    writer.put_many("pods", [(f"ns/{n}", {"n": n}, str(n)) for n in range(5)])
    queue = cache.queue("pods")
    queue.add_after("keeps the file", 3600)
    with feeding(cache, queue) as feeder:
        assert feeder.wait_synced(LONG)
        drain(queue, 5)
        queue.shut_down()
        writer.put("pods", "ns/2", {"n": 20}, "20")
        eventually(lambda: not feeder.feeding, "it keeps feeding")
    queue.close()
    again = cache.queue("pods")
    assert not again.shutting_down
    with feeding(cache, again):
        assert {f"ns/{n}" for n in range(5)} <= set(drain(again, 6))


def test_a_resource_with_many_deliveries_does_not_hold_back_another(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """FEED2."""
    count = 5 * SLICE
    writer.put_many("pods", [(f"ns/{n}", {"n": n}, str(n)) for n in range(count)])
    writer.put("nodes", "n1", {}, "1")
    seen: list[str] = []

    def keys_of(event: SourceEvent) -> list[str]:
        seen.append(event.resource)
        return []

    with feeding(cache, cache.queue("pods"), pods=keys_of, nodes=keys_of) as feeder:
        assert feeder.wait_synced(LONG)
    assert len(seen) == count + 1
    assert seen.index("nodes") == SLICE


def test_forty_resources_feed_one_queue(name: str) -> None:
    names = [f"things{number}" for number in range(40)]
    with shmcache.Writer(name, names) as writer:
        for number, resource in enumerate(names):
            writer.put(resource, f"key-{number}", {"n": number})
        with (
            shmcache.attach(name, timeout=LONG) as cache,
            cache.queue("all") as queue,
            feeding(cache, queue, **dict.fromkeys(names, by_key)) as feeder,
        ):
            assert {f"key-{number}" for number in range(40)} == set(drain(queue, 40))
            assert feeder.wait_synced(LONG)
            for number, resource in enumerate(names):  # each is followed, the last one too
                writer.put(resource, f"key-{number}", {"n": -number - 1})
            assert {f"key-{number}" for number in range(40)} == set(drain(queue, 40))


def test_too_many_resources_are_refused_at_once(cache: shmcache.Cache) -> None:
    sources = [(f"things{number}", by_key) for number in range(1025)]
    with cache.queue("all") as queue, pytest.raises(ValueError, match="at most 1,024"):
        Feeder(cache, queue, sources)


def test_each_resource_feeds_once(cache: shmcache.Cache) -> None:
    with pytest.raises(ValueError, match="once"):
        Feeder(cache, cache.queue("pods"), [("pods", by_key), ("pods", by_owner)])
    assert INITIAL_PRIORITY < 0
