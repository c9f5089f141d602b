"""Peers' cases: client-go's work queue (util/workqueue/*_test.go), controller-runtime's priority
queue (pkg/controller/priorityqueue) and kube-rs' scheduler (scheduler.rs), by behaviour."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from shmcache.errors import QueueShutDown
from shmcache.memory.segments import Place
from shmcache.queue.workqueue import WorkQueue

LONG = 60.0
SOON = 0.05
"""A delay that a test waits out."""


@pytest.fixture
def queue(name: str) -> Iterator[WorkQueue]:
    with WorkQueue(Place(name), "peers", rate=None, base_delay=0.005) as made:
        yield made


def take(queue: WorkQueue) -> str:
    key = queue.get(timeout=LONG)
    assert key is not None, "a key must come"
    return key


def work(queue: WorkQueue) -> str:
    key = take(queue)
    queue.done(key)
    return key


def empty(queue: WorkQueue) -> bool:
    return queue.get(timeout=0) is None


# ---- client-go, queue_test.go --------------------------------------------------------------------


@pytest.mark.parametrize("drain", [False, True])
def test_producers_and_consumers(queue: WorkQueue, drain: bool) -> None:
    """TestBasic: never two consumers in a key; nothing is handed out after the shutdown."""
    inside: Counter[str] = Counter()
    overlaps: list[str] = []
    lock = threading.Lock()

    def consume() -> None:
        for key in queue:
            with lock:
                inside[key] += 1
                overlaps.extend([key] if inside[key] > 1 else [])
            time.sleep(0.001)
            with lock:
                inside[key] -= 1
            queue.done(key)

    def produce(number: int) -> None:
        for turn in range(50):
            queue.add(str((number + turn) % 7))

    consumers = [threading.Thread(target=consume) for _ in range(4)]
    producers = [threading.Thread(target=produce, args=(number,)) for number in range(10)]
    for thread in consumers + producers:
        thread.start()
    for thread in producers:
        thread.join(LONG)
    assert queue.shut_down(drain=drain, timeout=LONG)
    queue.add("added after shutdown!")
    for thread in consumers:
        thread.join(LONG)
    assert overlaps == []
    with pytest.raises(QueueShutDown):
        queue.get(timeout=0)


def test_a_key_that_is_added_while_in_work_comes_again(queue: WorkQueue) -> None:
    """TestAddWhileProcessing."""
    queue.add("foo")
    assert take(queue) == "foo"
    queue.add("foo")
    assert empty(queue)
    queue.done("foo")
    assert work(queue) == "foo"
    assert empty(queue)


def test_length(queue: WorkQueue) -> None:
    """TestLen: a key that is added twice counts once."""
    lengths = []
    for key in ("foo", "bar", "foo"):
        queue.add(key)
        lengths.append(len(queue))
    assert lengths == [1, 2, 2]


def test_keys_come_in_the_order_of_their_adds(queue: WorkQueue) -> None:
    """TestReinsert: a key that is added while in work comes after those that wait."""
    queue.add("foo")
    assert take(queue) == "foo"
    queue.add("foo")
    queue.add("bar")
    queue.done("foo")
    assert sorted([work(queue), work(queue)]) == ["bar", "foo"]
    assert empty(queue)


@pytest.mark.parametrize("times", [2, 3, 100])
def test_adds_collapse(queue: WorkQueue, times: int) -> None:
    """TestCollapse."""
    for _ in range(times):
        queue.add("bar")
    assert work(queue) == "bar"
    assert len(queue) == 0
    assert empty(queue)


@pytest.mark.parametrize("times", [1, 2, 50])
def test_adds_collapse_while_in_work(queue: WorkQueue, times: int) -> None:
    """TestCollapseWhileProcessing: the second worker waits until the first is done."""
    queue.add("foo")
    assert take(queue) == "foo"
    for _ in range(times):
        queue.add("foo")
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(take(queue)))
    thread.start()
    time.sleep(SOON)
    assert not found
    queue.done("foo")
    thread.join(LONG)
    assert found == ["foo"]
    queue.done("foo")
    assert empty(queue)


def test_a_drain_waits_for_keys_in_work(queue: WorkQueue) -> None:
    """TestQueueDrainageUsingShutDownWithDrain."""
    for key in ("foo", "bar"):
        queue.add(key)
    keys = [take(queue), take(queue)]
    ended = threading.Event()

    def drain() -> None:
        queue.shut_down(drain=True)
        ended.set()

    thread = threading.Thread(target=drain)
    thread.start()
    for key in keys:
        assert not ended.wait(SOON)
        queue.done(key)
    assert ended.wait(LONG)
    thread.join(LONG)


def test_a_shutdown_without_drain_waits_for_nothing(queue: WorkQueue) -> None:
    """TestNoQueueDrainageUsingShutDown."""
    queue.add("foo")
    take(queue)
    assert queue.shut_down()


def test_a_second_shutdown_ends_a_drain(queue: WorkQueue) -> None:
    """TestForceQueueShutdownUsingShutDown."""
    queue.add("foo")
    take(queue)
    ended = threading.Event()

    def drain() -> None:
        queue.shut_down(drain=True)
        ended.set()

    thread = threading.Thread(target=drain)
    thread.start()
    assert not ended.wait(SOON)
    queue.shut_down()
    assert ended.wait(LONG)
    thread.join(LONG)


def test_a_drain_hands_out_keys_that_became_dirty_in_work(queue: WorkQueue) -> None:
    """TestQueueDrainageUsingShutDownWithDrainWithDirtyItem."""
    queue.add("foo")
    assert take(queue) == "foo"
    queue.add("foo")
    thread = threading.Thread(target=lambda: queue.shut_down(drain=True))
    thread.start()
    while not queue.shutting_down:
        time.sleep(0.001)
    queue.done("foo")
    assert work(queue) == "foo"
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_worker_that_waits_gets_a_key_as_soon_as_there_is_one(queue: WorkQueue) -> None:
    """Priority queue: "returns an item to a waiter as soon as it has one"."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(take(queue)))
    thread.start()
    time.sleep(SOON)
    queue.add("foo")
    thread.join(LONG)
    assert found == ["foo"]


@pytest.mark.parametrize("waiters", [1, 3, 8])
def test_a_shutdown_ends_every_worker_that_waits(queue: WorkQueue, waiters: int) -> None:
    """TestBasic's end; priority queue: "returns many items to waiters after shutdown"."""
    ended: list[bool] = []

    def wait() -> None:
        try:
            queue.get()
        except QueueShutDown:
            ended.append(True)

    threads = [threading.Thread(target=wait) for _ in range(waiters)]
    for thread in threads:
        thread.start()
    time.sleep(SOON)
    queue.shut_down()
    for thread in threads:
        thread.join(LONG)
    assert len(ended) == waiters


# ---- client-go, delaying_queue_test.go, rate limiters --------------------------------------------


def test_a_delayed_key_comes_when_it_is_due(queue: WorkQueue) -> None:
    """TestSimpleQueue; "returns an item only after its after has passed"."""
    start = time.monotonic()
    queue.add_after("foo", SOON)
    assert len(queue) == 0  # "doesn't include non-ready items in Len()"
    assert empty(queue)
    assert work(queue) == "foo"
    assert time.monotonic() - start >= SOON
    assert empty(queue)


@pytest.mark.parametrize(("first", "second"), [(LONG, SOON), (SOON, LONG)])
def test_the_earlier_of_two_delays_counts(queue: WorkQueue, first: float, second: float) -> None:
    """TestDeduping; scheduler_dedupe_should_keep_earlier_item, and its reverse."""
    queue.add_after("foo", first)
    queue.add_after("foo", second)
    assert work(queue) == "foo"
    assert empty(queue)


def test_two_delays_fire_each_in_its_time(queue: WorkQueue) -> None:
    """TestAddTwoFireEarly."""
    queue.add_after("foo", 4 * SOON)
    queue.add_after("bar", SOON)
    assert [work(queue), work(queue)] == ["bar", "foo"]


def test_keys_that_are_due_come_by_their_time(queue: WorkQueue) -> None:
    """TestCopyShifting: added in another order than they are due."""
    for key, delay in (("first", 6), ("second", 4), ("third", 2)):
        queue.add_after(key, delay * SOON)
    assert [work(queue) for _ in range(3)] == ["third", "second", "first"]


@pytest.mark.parametrize("delay", [0, -1, -0.001])
def test_no_delay_is_an_add(queue: WorkQueue, delay: float) -> None:
    """AddAfter of a duration that is not positive adds at once."""
    queue.add_after("foo", delay)
    assert work(queue) == "foo"


def test_a_delayed_key_that_is_added_comes_at_once(queue: WorkQueue) -> None:
    """ "returns an item immediately if it is added without after"; scheduler: "soonest"."""
    queue.add_after("foo", LONG)
    queue.add("foo")
    assert work(queue) == "foo"


def test_a_key_can_be_delayed_again_after_it_was_done(queue: WorkQueue) -> None:
    """scheduler_dedupe_should_allow_rescheduling."""
    for _ in range(3):
        queue.add_after("foo", 0.005)
        assert work(queue) == "foo"


def test_a_delay_of_a_key_in_work_does_not_hand_it_to_another(queue: WorkQueue) -> None:
    """scheduler_should_hold_and_release_items, while the key is in work."""
    queue.add("foo")
    take(queue)
    queue.add_after("foo", 0.005)
    time.sleep(SOON)
    assert empty(queue)
    queue.done("foo")
    assert work(queue) == "foo"


def test_requeues_are_counted_until_forgotten(queue: WorkQueue) -> None:
    """TestRateLimitingQueue, TestItemExponentialFailureRateLimiter: NumRequeues and Forget."""
    counts = []
    for _ in range(3):
        queue.add_rate_limited("one")
        counts.append(queue.num_requeues("one"))
        assert work(queue) == "one"
    queue.add_rate_limited("two")
    counts.append(queue.num_requeues("two"))
    queue.forget("one")
    counts += [queue.num_requeues("one"), queue.num_requeues("two")]
    assert counts == [1, 2, 3, 1, 0, 1]
    assert work(queue) == "two"


def test_forget_of_an_unknown_key_does_nothing(queue: WorkQueue) -> None:
    """TestItemExponentialFailureRateLimiter: Forget before When."""
    queue.forget("nothing")
    assert queue.num_requeues("nothing") == 0


def test_the_wait_of_a_key_doubles(queue: WorkQueue) -> None:
    """TestItemExponentialFailureRateLimiter; "results in rate limited items with a backoff"."""
    moments = [time.monotonic()]
    for _ in range(5):
        queue.add_rate_limited("foo")
        assert work(queue) == "foo"
        moments.append(time.monotonic())
    for number, (before, after) in enumerate(itertools.pairwise(moments)):
        assert after - before >= 0.005 * 2**number


@pytest.mark.parametrize("failures", [10, 100, 2000])
def test_the_wait_has_an_end(name: str, failures: int) -> None:
    """TestItemExponentialFailureRateLimiterOverFlow."""
    with WorkQueue(Place(name), "peers", rate=None, base_delay=0.001, max_delay=SOON) as queue:
        for _ in range(failures):
            queue.add_rate_limited("foo")
        assert queue.num_requeues("foo") == failures
        assert work(queue) == "foo"


def test_a_bucket_limits_all_keys_together(name: str) -> None:
    """TestMaxOfRateLimiter, TestBucketRateLimiter: after the burst, one each tenth of a second."""
    options = {"rate": 1 / SOON, "burst": 2}
    with WorkQueue(Place(name), "peers", base_delay=0.0001, **options) as queue:  # type: ignore[arg-type]
        start = time.monotonic()
        for number in range(5):
            queue.add_rate_limited(str(number))
        for _ in range(5):
            work(queue)
        assert time.monotonic() - start >= 2 * SOON


def test_a_bucket_is_that_of_all_processes(name: str) -> None:
    """TestBucketRateLimiter: "10 a second" means all keys of the queue, from all processes."""
    options = {"rate": 1 / SOON, "burst": 2}
    with (
        WorkQueue(Place(name), "peers", base_delay=0.0001, **options) as one,  # type: ignore[arg-type]
        WorkQueue(Place(name), "peers", base_delay=0.0001, **options) as other,  # type: ignore[arg-type]
    ):
        start = time.monotonic()
        for number in range(8):
            (one, other)[number % 2].add_rate_limited(str(number))
        for _ in range(8):
            work(one)
        assert time.monotonic() - start >= 5 * SOON  # two buckets would take two tokens


# ---- controller-runtime, priorityqueue_test.go ---------------------------------------------------


def test_higher_priorities_come_first(queue: WorkQueue) -> None:
    """ "returns items in order"."""
    for key, priority in (("low", -100), ("none", 0), ("high", 10)):
        queue.add(key, priority)
    assert [work(queue) for _ in range(3)] == ["high", "none", "low"]


@pytest.mark.parametrize("priority", [-100, 0, 7])
def test_one_priority_is_first_in_first_out(queue: WorkQueue, priority: int) -> None:
    """ "returns items of one priority in the order in which they were added"."""
    for number in range(20):
        queue.add(str(number), priority)
    assert [work(queue) for _ in range(20)] == [str(number) for number in range(20)]


@pytest.mark.parametrize(("first", "second"), [(0, 10), (10, 0), (-100, 0), (0, -100)])
def test_the_higher_of_two_priorities_is_kept(queue: WorkQueue, first: int, second: int) -> None:
    """ "de-duplicates items and retains the highest priority"."""
    queue.add("foo", first)
    queue.add("foo", second)
    queue.add("between", -1 if max(first, second) == 0 else 5)
    assert [work(queue), work(queue)] == ["foo", "between"]
    assert empty(queue)


def test_a_key_whose_priority_rises_comes_to_the_front(queue: WorkQueue) -> None:
    """ "gets pushed to the front if the priority increases"."""
    for key in ("foo", "bar", "baz"):
        queue.add(key)
    queue.add("baz", 1)
    assert [work(queue) for _ in range(3)] == ["baz", "foo", "bar"]


def test_a_key_in_work_is_not_handed_out_and_one_of_lower_priority_is(queue: WorkQueue) -> None:
    """ "doesn't return an item that is currently locked", "… returns it once unlocked"."""
    queue.add("foo", 10)
    assert take(queue) == "foo"
    queue.add("foo", 10)
    queue.add("bar")
    assert work(queue) == "bar"
    assert empty(queue)
    queue.done("foo")
    assert work(queue) == "foo"


def test_a_delayed_key_keeps_its_priority(queue: WorkQueue) -> None:
    """ "handles priorities of items that became ready"."""
    queue.add_after("high", SOON, 10)
    time.sleep(2 * SOON)
    queue.add("none")
    assert [work(queue), work(queue)] == ["high", "none"]


def test_the_earlier_time_and_the_higher_priority_of_two_delays(queue: WorkQueue) -> None:
    """ "retains the lowest after duration" together with "retains the highest priority"."""
    queue.add_after("foo", LONG, 10)
    queue.add_after("foo", SOON, 0)
    time.sleep(2 * SOON)
    queue.add("bar", 5)
    assert [work(queue), work(queue)] == ["foo", "bar"]


def test_random_use_by_many_threads(queue: WorkQueue) -> None:
    """TestFuzzPriorityQueue: no key is handed out twice, and each add is answered."""
    inside: set[str] = set()
    wrong: list[str] = []
    lock = threading.Lock()
    handed: Counter[str] = Counter()

    def consume() -> None:
        for key in queue:
            with lock:
                wrong.extend([key] if key in inside else [])
                inside.add(key)
                handed[key] += 1
            with lock:
                inside.discard(key)
            queue.done(key)

    def produce(seed: int) -> None:
        for turn in range(100):
            key, kind = str((seed * 31 + turn * 17) % 40), (seed + turn) % 3
            if kind == 0:
                queue.add(key, turn % 3)
            elif kind == 1:
                queue.add_after(key, 0.001 * (turn % 5), -(turn % 3))
            else:
                queue.add_rate_limited(key)
                queue.forget(key)

    consumers = [threading.Thread(target=consume) for _ in range(3)]
    producers = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
    for thread in consumers + producers:
        thread.start()
    for thread in producers:
        thread.join(LONG)
    deadline = time.monotonic() + LONG
    while any(queue.stats()[name] for name in ("depth", "delayed", "in_progress")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    queue.shut_down()
    for thread in consumers:
        thread.join(LONG)
    assert wrong == []
    assert len(handed) == 40
