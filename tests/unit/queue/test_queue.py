"""Invariant tested: a key is with one worker at a time, comes back if it was added meanwhile, and
is neither lost nor handed out twice (G28); as client-go's tests of its work queue say it."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import shmcache
from shmcache.errors import BusyError, ClosedError, LimitExceeded, QueueShutDown
from shmcache.memory.companions import queue_files, queue_names
from shmcache.memory.segments import Place
from shmcache.queue.workqueue import INITIAL_PRIORITY, WorkQueue

LONG = 60.0
"""Seconds after which a test that would hang fails."""


@pytest.fixture
def queue(name: str) -> Iterator[WorkQueue]:
    with WorkQueue(Place(name), "work", slots=1024, rate=None) as made:
        yield made


@pytest.fixture
def queue_of_any_size(name: str) -> Iterator[WorkQueue]:
    with WorkQueue(Place(name), "large") as made:
        yield made


def take(queue: WorkQueue) -> str:
    key = queue.get(timeout=LONG)
    assert key is not None, "a key must come"
    return key


def take_all(queue: WorkQueue) -> list[str]:
    """The keys available now, without calling done()."""
    found = []
    while (key := queue.get(timeout=0)) is not None:
        found.append(key)
    return found


class Thread(threading.Thread):
    """A thread whose join() raises its exception."""

    def __init__(self, target: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._do = target
        self.error: BaseException | None = None
        self.result: object = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._do()
        except BaseException as error:  # noqa: BLE001 - raised again
            self.error = error

    def finish(self) -> object:
        self.join(LONG)
        assert not self.is_alive(), "the thread does not end"
        if self.error is not None:
            raise self.error
        return self.result


def test_producers_and_consumers_and_nothing_after_the_end(queue: WorkQueue) -> None:
    """client-go: TestBasic"""
    done: list[str] = []

    def consume() -> None:
        for key in queue:
            assert key != "added after shutdown"
            done.append(key)
            queue.done(key)

    consumers = [Thread(consume) for _ in range(10)]
    producers = [
        Thread(functools.partial(queue.add_many, [f"{n}/{i}" for i in range(50)]))
        for n in range(20)
    ]
    for producer in producers:
        producer.finish()
    queue.shut_down()
    queue.add("added after shutdown")
    for consumer in consumers:
        consumer.finish()
    assert {f"{n}/{i}" for n in range(20) for i in range(50)} == set(done)
    assert 1000 == len(done)
    assert 0 == len(queue)


def test_a_key_added_while_in_progress_is_not_given_to_a_second_worker(queue: WorkQueue) -> None:
    """client-go: TestAddWhileProcessing"""
    queue.add("a")
    assert "a" == take(queue)
    queue.add("a")
    queue.add("a")
    assert (0, []) == (len(queue), take_all(queue))
    queue.done("a")
    assert (1, ["a"]) == (len(queue), take_all(queue))
    queue.done("a")
    assert [] == take_all(queue)


def test_len_counts_waiting_keys(queue: WorkQueue) -> None:
    """client-go: TestLen"""
    for length, key in enumerate(["foo", "bar", "foo"], 1):
        queue.add(key)
        assert min(length, 2) == len(queue)


def test_a_key_comes_back_once(queue: WorkQueue) -> None:
    """client-go: TestReinsert"""
    queue.add("foo")
    assert "foo" == take(queue)
    queue.add("foo")
    queue.done("foo")
    assert "foo" == take(queue)
    queue.done("foo")
    queue.done("foo")  # and a done() too many changes nothing
    assert 0 == len(queue)


def test_adds_collapse(queue: WorkQueue) -> None:
    """client-go: TestCollapse"""
    queue.add("bar")
    queue.add("bar")
    assert "bar" == take(queue)
    queue.done("bar")
    assert 0 == len(queue)


def test_a_second_worker_waits_until_the_first_is_done(queue: WorkQueue) -> None:
    """client-go: TestCollapseWhileProcessing"""
    queue.add("foo")
    assert "foo" == take(queue)
    queue.add("foo")
    got = threading.Event()

    def second() -> None:
        key = take(queue)
        got.set()
        queue.done(key)

    thread = Thread(second)
    assert not got.is_set()
    queue.done("foo")
    thread.finish()
    assert 0 == len(queue)


def test_shutting_down_with_drain_waits_for_keys_in_progress(queue: WorkQueue) -> None:
    """client-go: TestQueueDrainageUsingShutDownWithDrain"""
    queue.add("foo")
    queue.add("bar")
    first, second = take(queue), take(queue)
    drained = Thread(lambda: queue.shut_down(drain=True))
    while not queue.shutting_down:
        time.sleep(0.001)
    queue.add("baz")
    queue.done(first)
    assert drained.is_alive()
    queue.done(second)
    assert drained.finish() is True
    with pytest.raises(QueueShutDown):
        queue.get()


def test_shutting_down_without_drain_does_not_wait(queue: WorkQueue) -> None:
    """client-go: TestNoQueueDrainageUsingShutDown"""
    queue.add("foo")
    take(queue)
    assert queue.shut_down()
    assert queue.shutting_down


def test_a_second_shutdown_ends_the_drain(queue: WorkQueue) -> None:
    """client-go: TestForceQueueShutdownUsingShutDown"""
    queue.add("foo")
    take(queue)
    drained = Thread(lambda: queue.shut_down(drain=True))
    while not queue.shutting_down:
        time.sleep(0.001)
    queue.shut_down()
    drained.finish()


def test_a_drain_hands_out_keys_that_became_dirty_in_progress(queue: WorkQueue) -> None:
    """client-go: TestQueueDrainageUsingShutDownWithDrainWithDirtyItem"""
    queue.add("foo")
    foo = take(queue)
    queue.add("foo")
    drained = Thread(lambda: queue.shut_down(drain=True, timeout=LONG))
    while not queue.shutting_down:
        time.sleep(0.001)
    queue.done(foo)
    assert foo == take(queue)
    queue.done(foo)
    assert drained.finish() is True
    with pytest.raises(QueueShutDown):
        queue.get()


def test_a_drain_has_a_time_limit(queue: WorkQueue) -> None:
    queue.add("foo")
    take(queue)
    assert not queue.shut_down(drain=True, timeout=0.01)


def test_keys_queued_before_the_shutdown_are_handed_out(queue: WorkQueue) -> None:
    queue.add("foo")
    queue.shut_down()
    assert "foo" == take(queue)
    queue.done("foo")
    with pytest.raises(QueueShutDown):
        queue.get()


# ---- delays ------------------------------------------------------------------------------


def test_a_delayed_key_comes_later(queue: WorkQueue) -> None:
    """client-go: TestSimpleQueue"""
    start = time.monotonic()
    queue.add_after("one", 0.05)
    if not take_all(queue):  # else this machine is busy, and it was due
        assert "one" == take(queue)
    assert 0.05 <= time.monotonic() - start
    queue.done("one")
    assert 0 == queue.stats()["delayed"]


def test_of_two_delays_the_earlier_counts(queue: WorkQueue) -> None:
    """client-go: TestDeduping"""
    queue.add_after("foo", 0.02)
    queue.add_after("foo", 500)
    assert "foo" == take(queue)
    queue.done("foo")
    assert (0, []) == (queue.stats()["delayed"], take_all(queue))
    queue.add_after("foo", 500)
    queue.add_after("foo", 0.02)
    assert "foo" == take(queue)
    queue.done("foo")
    assert 0 == queue.stats()["delayed"]


def test_delayed_keys_come_in_their_order(queue: WorkQueue) -> None:
    """client-go: TestAddTwoFireEarly, TestCopyShifting"""
    queue.add_after("third", 0.12)
    queue.add_after("first", 0.02)
    queue.add_after("second", 0.07)
    queue.add_after("never", 500)
    found = []
    for _ in range(3):
        found.append(take(queue))
        queue.done(found[-1])
    assert ["first", "second", "third"] == found
    assert 1 == queue.stats()["delayed"]


def test_no_delay_is_an_add(queue: WorkQueue) -> None:
    queue.add_after("a", 0)
    queue.add_after("b", -1)
    assert ["a", "b"] == take_all(queue)


def test_a_delayed_key_that_is_added_comes_once(queue: WorkQueue) -> None:
    """As controller-runtime's: the add comes first, and its worker decides the next step."""
    in_time = False
    for _ in range(50):
        start = time.monotonic()
        queue.add_after("a", 0.03)
        queue.add("a")
        assert "a" == take(queue)
        in_time = time.monotonic() - start < 0.03
        queue.done("a")
        if in_time:
            break
        time.sleep(0.03)  # on a busy machine it was due before it was taken
        for key in take_all(queue):
            queue.done(key)
    assert in_time
    assert queue.get(timeout=0.1) is None


@pytest.mark.parametrize("later", ["after", "limited", "now"])
def test_a_requeue_keeps_the_priority(queue: WorkQueue, later: str) -> None:
    """As controller-runtime's: an error does not raise a key of the first content."""
    queue.add("low", -100)
    take(queue)
    if later == "after":
        queue.add_after("low", 0.001)
    elif later == "limited":
        queue.add_rate_limited("low")
    else:
        queue.add("low", None)
    queue.done("low")
    time.sleep(0.02)
    queue.add("high")
    queue.tend()
    assert ["high", "low"] == take_all(queue)


def test_a_requeue_of_a_key_without_a_holder_has_no_priority(queue: WorkQueue) -> None:
    queue.add("known", -100)
    queue.done(take(queue))
    queue.add("low", -1)
    queue.add_after("known", 0.0)
    queue.add_after("new", 0.0)
    assert ["known", "new", "low"] == take_all(queue)


def test_a_requeue_and_a_change_are_one(queue: WorkQueue) -> None:
    queue.add("a")
    take(queue)
    queue.add("a")  # a change while it is in progress
    queue.add_after("a", 0.005)
    queue.done("a")
    assert "a" == take(queue)
    queue.done("a")
    assert queue.get(timeout=0.03) is None


def test_a_key_that_falls_due_in_progress_comes_after_done(queue: WorkQueue) -> None:
    queue.add("a")
    take(queue)
    queue.add_after("a", 0.005)
    assert queue.get(timeout=0.03) is None
    queue.done("a")
    assert "a" == take(queue)


def test_rate_limited_retries_count_for_all_and_are_forgotten(queue: WorkQueue, name: str) -> None:
    """client-go: TestRateLimitingQueue, with a second process's part for a witness"""
    with WorkQueue(Place(name), "work") as other:
        assert 0 == queue.num_requeues("one")
        for count in range(1, 4):
            queue.add_rate_limited("one")
            assert count == other.num_requeues("one")
        assert 0 == other.num_requeues("two")
        other.forget("one")
        assert 0 == queue.num_requeues("one")
        assert "one" == take(other)
        other.done("one")


# ---- priorities and order ----------------------------------------------------------------


def test_keys_of_one_priority_come_in_their_order(queue: WorkQueue) -> None:
    keys = [f"ns/{n}" for n in range(500)]
    queue.add_many(keys)
    assert keys == take_all(queue)


def test_a_higher_priority_goes_first_and_is_kept(queue: WorkQueue) -> None:
    queue.add("initial", INITIAL_PRIORITY)
    queue.add("low", -1)
    queue.add("normal")
    queue.add("high", 7)
    queue.add("raised", INITIAL_PRIORITY)
    queue.add("raised", 3)
    queue.add("raised", -5)
    assert 5 == len(queue)
    assert ["high", "raised", "normal", "low", "initial"] == take_all(queue)


def test_a_key_raised_in_progress_comes_back_with_that_priority(queue: WorkQueue) -> None:
    queue.add("a", INITIAL_PRIORITY)
    take(queue)
    queue.add("b")
    queue.add("a", INITIAL_PRIORITY)
    queue.add("a", 5)
    queue.done("a")
    assert ["a", "b"] == take_all(queue)


def test_more_priorities_than_lanes_are_served_by_the_nearest(queue: WorkQueue) -> None:
    for priority in range(0, 80, 10):
        queue.add(str(priority), priority)
    queue.add("41", 41)  # with 40
    queue.add("1000", 1000)  # with 70
    expected = ["70", "1000", "60", "50", "40", "41", "30", "20", "10", "0"]
    assert expected == take_all(queue)


def test_priorities_beyond_all_bounds_are_priorities(queue: WorkQueue) -> None:
    queue.add("least", -(1 << 70))
    queue.add("most", 1 << 70)
    assert ["most", "least"] == take_all(queue)


# ---- keys and room -----------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 7, 8, 55, 56, 57, 64, 253, 317, 320])
def test_keys_of_all_lengths(queue: WorkQueue, length: int) -> None:
    keys = [("ä" * length)[: length // 2] + f"{n:03d}"[: length % 2 + 0] for n in range(1)]
    keys = ["k" * length, *[key for key in keys if key]]
    queue.add_many(keys)
    assert keys == take_all(queue)


@pytest.mark.parametrize("key", ["", "x" * 321])
def test_a_key_that_cannot_be(queue: WorkQueue, key: str) -> None:
    with pytest.raises(LimitExceeded, match="1 to 320"):
        queue.add(key)
    with pytest.raises(LimitExceeded):
        queue.add_after(key, 1)
    assert 0 == queue.num_requeues(key)
    queue.forget(key)
    queue.done(key)


def test_other_types_are_refused(queue: WorkQueue) -> None:
    for wrong in (1, b"a", None):
        with pytest.raises(TypeError, match="str"):
            queue.add(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        queue.add("a", "high")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seconds"):
        queue.add_after("a", float("nan"))
    assert 0 == len(queue)


def test_a_full_queue_waits_for_room_and_drops_nothing(name: str) -> None:
    with WorkQueue(Place(name), "small", slots=64) as queue:
        keys = [f"{n}" for n in range(64)]
        queue.add_many(keys)
        with pytest.raises(BusyError, match="full"):
            queue.add("one more", timeout=0)
        adding = Thread(lambda: queue.add("one more"))
        while queue.stats()["full"] < 2:
            time.sleep(0.001)
        assert adding.is_alive()
        first = take(queue)
        queue.add(first)  # a key with a slot needs no other
        queue.done(first)
        assert adding.is_alive()
        second = take(queue)
        queue.done(second)
        adding.finish()
        left = take_all(queue)
        assert sorted([*keys, "one more"]) == sorted([second, *left])


def test_slots_are_given_back_and_stay_apart(name: str) -> None:
    """Many more keys than slots, each with its own state; requeues of one never show at another."""
    with WorkQueue(Place(name), "small", slots=64, rate=None) as queue:
        queue.add_rate_limited("keeps")
        take(queue)
        queue.done("keeps")
        for n in range(1000):
            queue.add(f"k{n}")
            assert 0 == queue.num_requeues(f"k{n}")
            assert f"k{n}" == take(queue)
            queue.done(f"k{n}")
        assert 1 == queue.num_requeues("keeps")
        assert queue.stats()["known"] <= 64


def test_a_shutdown_ends_waiting_for_room(name: str) -> None:
    with WorkQueue(Place(name), "small", slots=64) as queue:
        queue.add_many(f"{n}" for n in range(64))
        adding = Thread(lambda: queue.add("one more"))
        while queue.stats()["full"] < 2:
            time.sleep(0.001)
        queue.shut_down()
        adding.finish()
        assert 64 == len(take_all_until_end(queue))


def take_all_until_end(queue: WorkQueue) -> list[str]:
    found = []
    for key in queue:
        found.append(key)
        queue.done(key)
    return found


# ---- its life ----------------------------------------------------------------------------


def test_a_time_limit_is_an_answer(queue: WorkQueue) -> None:
    assert queue.get(timeout=0) is None
    assert queue.get(timeout=0.01) is None


def test_stop_ends_the_gets_of_this_process_only(queue: WorkQueue, name: str) -> None:
    with WorkQueue(Place(name), "work") as other:
        waiting = Thread(queue.get)
        queue.stop()
        with pytest.raises(QueueShutDown):
            waiting.finish()
        queue.add("a")
        with pytest.raises(QueueShutDown):
            queue.get()
        assert "a" == take(other)
        other.done("a")


def test_close_gives_back_keys_in_progress(queue: WorkQueue, name: str) -> None:
    other = WorkQueue(Place(name), "work")
    queue.add("a")
    assert "a" == take(other)
    waiting = Thread(other.get)
    while waiting.is_alive() and not queue.stats()["in_progress"]:
        time.sleep(0.001)
    other.close()
    other.close()
    with pytest.raises((ClosedError, QueueShutDown)):
        waiting.finish()
    with pytest.raises(ClosedError):
        other.get()
    assert "a" == take(queue)
    assert 1 == queue.stats()["workers"]


def test_the_last_one_removes_an_empty_queue_and_leaves_a_full_one(name: str) -> None:
    place = Place(name)
    with WorkQueue(place, "a.b/c") as queue:
        queue.add("x")
        queue.shut_down()
    assert 1 == len(place.location.names(place.stem))
    with WorkQueue(place, "a.b/c") as queue:  # open again
        assert not queue.shutting_down
        queue.add("y")
        assert ["x", "y"] == take_all(queue)
        queue.done("x")
        queue.done("y")
    assert [] == place.location.names(place.stem)


def test_queues_are_apart_by_name_and_go_with_their_cache(cache: shmcache.Cache) -> None:
    one, two = cache.queue("pods"), cache.queue("deployments.apps")
    assert one is cache.queue("pods")
    one.add("a")
    assert (1, 0) == (len(one), len(two))
    cache.close()
    with pytest.raises(ClosedError):
        one.add("b")


@pytest.mark.parametrize("wrong", ["", "a b", "a" * 101, "a=b"])
def test_a_name_that_cannot_be(name: str, wrong: str) -> None:
    with pytest.raises(ValueError, match="queue's name"):
        WorkQueue(Place(name), wrong)


@pytest.mark.parametrize(
    ("slots", "workers"), [(100, 1), (32, 1), (64, 0), (64, 1025), (1 << 23, 1)]
)
def test_sizes_that_cannot_be(name: str, slots: int, workers: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        WorkQueue(Place(name), "work", slots=slots, workers=workers)


def test_all_seats_taken_is_busy(name: str) -> None:
    with WorkQueue(Place(name), "work", slots=64, workers=1) as queue:
        with pytest.raises(BusyError, match="seats"):
            WorkQueue(Place(name), "work")
        queue.add("a")


def test_stats_count_the_operations(queue: WorkQueue) -> None:
    """client-go: TestMetrics, as far as numbers of keys go"""
    queue.add("a")
    queue.add("a")
    queue.add("b")
    queue.add_after("c", 500)
    take(queue)
    stats = queue.stats()
    expected = {"depth": 1, "delayed": 1, "in_progress": 1, "known": 3, "adds": 2, "repeats": 1,
                "gets": 1, "dones": 0, "retries": 1, "workers": 1, "slots": 64,
                "limit": 1024}  # fmt: skip
    assert expected == {name: stats[name] for name in expected}
    queue.done("a")
    stats = queue.stats()
    assert (1, 0) == (stats["dones"], stats["in_progress"])
    assert 0 < stats["work_seconds"]
    assert "2 keys" not in repr(queue)


# ---- deadlines ---------------------------------------------------------------------------


def test_a_key_kept_too_long_goes_to_another_worker_and_its_done_is_late(
    queue: WorkQueue, name: str
) -> None:
    with WorkQueue(Place(name), "work") as other:
        queue.add("a")
        assert "a" == queue.get(timeout=LONG, deadline=0.01)
        assert "a" == take(other)
        queue.done("a")  # late: it is the other's
        queue.add("a")
        assert queue.get(timeout=0.3) is None
        other.done("a")
        assert "a" == take(queue)
        stats = queue.stats()
        assert (1, 1) == (stats["expired"], stats["late"])


def test_a_key_without_a_deadline_is_kept(queue: WorkQueue, name: str) -> None:
    with WorkQueue(Place(name), "work") as other:
        queue.add("a")
        take(queue)
        assert other.get(timeout=1.3) is None  # a scan or more
        queue.done("a")


def test_a_late_done_of_another_thread_does_not_end_the_work_on_it(name: str) -> None:
    with WorkQueue(Place(name), "work", deadline=0.01) as queue:
        queue.add("a")
        hangs, goes_on = threading.Event(), threading.Event()

        def slow() -> None:
            take(queue)
            hangs.set()
            assert goes_on.wait(LONG)
            queue.done("a")

        thread = Thread(slow)
        assert hangs.wait(LONG)
        assert "a" == queue.get(timeout=LONG, deadline=1000)
        goes_on.set()
        thread.finish()
        assert 1 == queue.stats()["in_progress"]
        queue.done("a")
        assert 0 == queue.stats()["in_progress"]


def test_queues_of_caches_with_similar_names_are_apart(name: str) -> None:
    with WorkQueue(Place(name), "work") as one, WorkQueue(Place(f"{name}."), "work") as other:
        one.add("a")
        assert ["work"] == queue_names(Place(name)) == queue_names(Place(f"{name}."))
        assert [one._file.file] == queue_files(Place(name))
        assert [other._file.file] == queue_files(Place(f"{name}."))
        assert 0 == len(other)


@pytest.mark.parametrize(("keep", "left"), [(True, ["work"]), (False, [])])
def test_an_empty_queue_that_is_to_be_kept_stays_as_long_as_its_cache(
    writer: shmcache.Writer, keep: bool, left: list[str]
) -> None:
    with WorkQueue(writer.place, "work", keep=keep):
        pass
    assert left == queue_names(writer.place)
    writer.close()
    with WorkQueue(writer.place, "work", keep=keep):
        pass
    assert [] == queue_names(writer.place)


def test_a_long_get_waits_for_all_of_its_time(
    queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks now and then whether the file still has its name."""
    monkeypatch.setattr("shmcache.queue.workqueue.LOOK_SECONDS", 0.1)
    looks: list[float] = []
    monkeypatch.setattr(queue, "_look", lambda: looks.append(time.monotonic()))
    begun = time.monotonic()
    assert queue.get(timeout=0.35) is None
    assert time.monotonic() - begun >= 0.35
    assert 1 <= len(looks) <= 3, "it does not sleep between them"


def test_get_on_a_hub_ends_in_time(queue: WorkQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sleeps in steps that let greenlets run, and neither returns early nor one step late."""
    slept: list[float] = []
    clock = [100.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("shmcache.queue.workqueue.waiting.cooperative", lambda: "gevent")
    monkeypatch.setattr("shmcache.queue.workqueue.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("shmcache.queue.workqueue.time.sleep", sleep)
    assert queue.get(timeout=0.05) is None
    assert pytest.approx(0.05) == sum(slept)
    assert 3 == len(slept)
    assert queue.get(timeout=0) is None
    assert 3 == len(slept)
    queue.add("a")
    assert "a" == queue.get(timeout=0.05)
    assert 3 == len(slept)


def tended(queue: WorkQueue) -> float:
    queue.tend()
    return queue.stats()["slots"]


@pytest.mark.parametrize("count", [65_535, 65_536, 65_537, 140_000])
def test_keys_beyond_the_tickets_of_a_lane_are_all_handed_out(
    queue_of_any_size: WorkQueue, count: int
) -> None:
    """Around the number of tickets, which is also that of the slots that keep their memory."""
    queue = queue_of_any_size
    names = [f"ns/{number}" for number in range(count)]
    queue.add_many(names)
    assert count == len(queue)
    assert count <= queue.stats()["slots"] < count + 128
    found = set()
    while (key := queue.get(timeout=0)) is not None:
        found.add(key)
        queue.done(key)
    assert set(names) == found
    deadline = time.monotonic() + LONG
    while tended(queue) > 65_536:
        assert time.monotonic() < deadline, "memory is not given back"
        time.sleep(0.05)


def memory_of(name: str) -> int:
    place = Place(name)
    (file,) = queue_files(place)
    return os.stat(place.location.file(file)).st_blocks * 512


def test_the_next_to_open_it_alone_gives_the_memory_of_the_index_back(name: str) -> None:
    """STEP7: others that are there, or come later, find every key all the same."""
    place, count = Place(name), 140_000
    first = WorkQueue(place, "large")
    first.add_many([f"ns/{number}" for number in range(count)])
    while (key := first.get(timeout=0)) is not None:
        first.done(key)
    deadline = time.monotonic() + LONG
    while tended(first) > 65_536:
        assert time.monotonic() < deadline, "memory is not given back"
        time.sleep(0.05)
    first.add("stays")
    large = memory_of(name)
    with WorkQueue(place, "large"):
        assert memory_of(name) >= large  # it was not alone
    first.close()
    with WorkQueue(place, "large") as alone:
        assert large - memory_of(name) >= 4 << 20
        alone.add_many([f"ns/{number}" for number in range(count)])
        with WorkQueue(place, "large") as other:
            assert {f"ns/{number}" for number in range(count)} | {"stays"} == set(take_all(other))


def test_delayed_keys_do_not_hold_up_others(queue_of_any_size: WorkQueue) -> None:
    """Nor themselves: a change of one comes at once, however many wait."""
    queue = queue_of_any_size
    for number in range(70_000):
        queue.add_after(f"ns/{number}", 600)
    queue.add("new")
    queue.add("ns/69999")
    assert ["new", "ns/69999"] == take_all(queue)
    assert 69_999 == queue.stats()["delayed"]
