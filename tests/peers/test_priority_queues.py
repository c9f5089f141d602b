"""Peers' cases: the priorities of controller-runtime (pkg/controller/priorityqueue, pkg/internal/
controller), metrics of client-go's work queue (util/workqueue/metrics_test.go), the scheduler and
runner of kube-rs (scheduler.rs, controller/runner.rs), by behaviour."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from reconciled import PATIENCE, Lab, Script, eventually

import shmcache
from shmcache.errors import QueueShutDown
from shmcache.memory.segments import Place
from shmcache.queue.workqueue import WorkQueue

LONG = 600.0
"""A delay that no test waits out."""
SOON = 0.05
MODES = pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "loop"])


@pytest.fixture
def queue(name: str) -> Iterator[WorkQueue]:
    with WorkQueue(Place(name), "peers", rate=None, base_delay=0.005) as made:
        yield made


@pytest.fixture
def lab(writer: shmcache.Writer, cache: shmcache.Cache) -> Iterator[Lab]:
    made = Lab(writer, cache)
    yield made
    made.close()


@pytest.fixture
def script() -> Script:
    return Script()


def take(queue: WorkQueue) -> str:
    key = queue.get(timeout=PATIENCE)
    assert key is not None
    return key


def work(queue: WorkQueue) -> str:
    key = take(queue)
    queue.done(key)
    return key


def counts(queue: WorkQueue, *names: str) -> list[float]:
    found = queue.stats()
    return [found[name] for name in names]


# ---- controller-runtime, priorityqueue_test.go ---------------------------------------------------


def test_a_key_that_comes_to_another_priority_is_the_last_one_there(queue: WorkQueue) -> None:
    """ "follows FIFO order in the new priority queue when item priority changes"."""
    for key, priority in (("a", 1), ("b", 0), ("c", 1), ("d", 0)):
        queue.add(key, priority)
    queue.add("b", 1)
    assert [work(queue) for _ in range(4)] == ["a", "c", "b", "d"]


@pytest.mark.parametrize(("first", "second"), [(10, 0), (10, 9), (0, -100), (-1, -2)])
def test_an_add_with_a_lower_priority_changes_nothing(
    queue: WorkQueue, first: int, second: int
) -> None:
    """ "will not decrease the priority"."""
    queue.add("foo", first)
    queue.add("foo", second)
    queue.add("other", (first + second) // 2 if first - second > 1 else first)
    assert work(queue) == "foo"


def test_a_key_that_is_added_at_once_no_longer_counts_as_delayed(queue: WorkQueue) -> None:
    """ "updates metrics correctly for an item that gets initially added with after and …"."""
    queue.add_after("foo", LONG)
    assert counts(queue, "depth", "delayed") == [0, 1]
    queue.add("foo")
    assert counts(queue, "depth", "delayed", "adds") == [1, 0, 1]
    assert work(queue) == "foo"
    assert counts(queue, "depth", "delayed", "in_progress") == [0, 0, 0]


def test_a_delayed_key_that_is_added_with_a_higher_priority_has_it(queue: WorkQueue) -> None:
    """ "updates metrics correctly when an item with after is re-added with higher priority …"."""
    queue.add_after("foo", LONG, 0)
    queue.add("bar", 5)
    queue.add("foo", 10)
    assert counts(queue, "depth", "delayed") == [2, 0]
    assert [work(queue), work(queue)] == ["foo", "bar"]


def test_a_shutdown_ends_a_get_for_which_only_delayed_keys_are_left(queue: WorkQueue) -> None:
    """ "Get from priority queue might get stuck when the priority queue is shut down"."""
    queue.add_after("foo", LONG)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(QueueShutDown):
            queue.get()
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(SOON)
    queue.shut_down()
    assert ended.wait(PATIENCE)
    thread.join(PATIENCE)


@pytest.mark.parametrize("count", [1, 100, 1000])
def test_many_keys_with_many_workers_come_once_each(queue: WorkQueue, count: int) -> None:
    """ "returns many items"."""
    found: list[str] = []
    lock = threading.Lock()

    def consume() -> None:
        for key in queue:
            with lock:
                found.append(key)
            queue.done(key)

    threads = [threading.Thread(target=consume) for _ in range(10)]
    for thread in threads:
        thread.start()
    for number in range(count):
        queue.add(str(number), number % 3)
    queue.shut_down()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(found) == sorted(str(number) for number in range(count))


# ---- controller-runtime, controller_test.go: priorities of results -------------------------------


class Gate:
    """A reconcile that lasts until the test lets it end."""

    def __init__(self, asynchronous: bool) -> None:
        self._go = threading.Event()
        self.action: Any = self._wait_async if asynchronous else self._wait

    def _wait(self, *_: Any) -> None:
        assert self._go.wait(PATIENCE)

    def _wait_async(self, *_: Any) -> Any:
        async def wait() -> None:
            while not self._go.is_set():
                await asyncio.sleep(0.001)

        return wait()

    def open(self) -> None:
        self._go.set()


def order_behind(lab: Lab, script: Script, end: Any, asynchronous: bool) -> list[str]:
    """Which of two waiting keys goes first after a reconcile of "web", of priority 10, came to this
    end: "web" again, or "other" of priority 5. A key of priority 100 holds the worker meanwhile."""
    gate = Gate(asynchronous)
    worker = lab.start(script.function(asynchronous=asynchronous))
    eventually(lambda: worker.part.board.finished == worker.part.board.wanted)
    queue = worker.part.queue

    def first(*_: Any) -> Any:
        queue.add("prod/blocker", 100)
        queue.add("prod/other", 5)
        if isinstance(end, Exception):
            raise end
        return end

    script.on("prod/web", first)
    script.on("prod/blocker", gate.action)
    try:
        queue.add("prod/web", 10)
        assert script.hear_all(2) == ["prod/web", "prod/blocker"]
        time.sleep(SOON)  # "web" is due
    finally:
        gate.open()
    return script.hear_all(2)


RESULTS: list[tuple[str, Any, list[str]]] = [
    ("requests a requeue", shmcache.Requeue(), ["web", "other"]),
    ("with RequeueAfter", shmcache.Requeue(after=0.001), ["web", "other"]),
    ("there was an error", ValueError("x"), ["web", "other"]),
    ("priority of Result, requeue", shmcache.Requeue(priority=1), ["other", "web"]),
    ("priority of Result, after", shmcache.Requeue(after=0.001, priority=1), ["other", "web"]),
]


@MODES
@pytest.mark.parametrize(("first", "expected"), [pytest.param(*x[1:], id=x[0]) for x in RESULTS])
def test_the_priority_of_a_key_that_comes_again(
    lab: Lab, script: Script, asynchronous: bool, first: Any, expected: list[str]
) -> None:
    """ "should retain the priority when the reconciler requests a requeue", "… with RequeueAfter",
    "… when there was an error", "should use the priority from Result …"."""
    assert order_behind(lab, script, first, asynchronous) == [f"prod/{key}" for key in expected]


@MODES
def test_the_backoff_stays_until_a_reconcile_succeeds(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    """ "should not reset backoff until there's a non-error result"."""
    key = lab.put("web")
    seen: list[int] = []
    worker: Any = None

    def fail(*_: Any) -> None:
        seen.append(worker.part.queue.num_requeues(key))
        raise ValueError("again")

    def requeue(*_: Any) -> Any:
        seen.append(worker.part.queue.num_requeues(key))
        return shmcache.Requeue()

    script.on(key, None, fail, requeue, fail, None)
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear() == key
    eventually(lambda: lab.numbers(worker).results["success"] == 1)
    lab.put("web")
    assert script.hear_all(4) == [key] * 4
    eventually(lambda: worker.part.queue.num_requeues(key) == 0)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("changed", ["same", "new"])
def test_the_first_content_has_a_low_priority_and_changes_have_not(
    lab: Lab, script: Script, changed: str
) -> None:
    """WithLowPriorityWhenUnchanged: "should lower the priority of a create request for an object
    that was part of the initial list", "should not lower …"."""
    gate = Gate(asynchronous=False)
    for number in range(5):
        lab.put(f"old-{number}")
    script.on("prod/old-0", gate.action)
    worker = lab.start(script.function())
    assert script.hear() == "prod/old-0"
    queue = worker.part.queue
    try:
        eventually(lambda: worker.part.board.finished == worker.part.board.wanted)
        key = lab.put("old-4" if changed == "same" else "new")
        eventually(lambda: queue.stats()["repeats"] or len(queue) == 5)
    finally:
        gate.open()
    assert script.hear() == key


# ---- client-go, metrics_test.go ------------------------------------------------------------------


def test_the_counts_of_a_queue_follow_a_key(queue: WorkQueue) -> None:
    """TestMetrics: depth, adds, latency, work duration, retries of a key on its way."""
    names = ("depth", "adds", "gets", "dones", "in_progress", "retries")
    queue.add("foo")
    assert counts(queue, *names) == [1, 1, 0, 0, 0, 0]
    queue.add("foo")  # before it is taken: nothing changes
    assert counts(queue, *names) == [1, 1, 0, 0, 0, 0]
    assert take(queue) == "foo"
    assert counts(queue, *names) == [0, 1, 1, 0, 1, 0]
    queue.add("foo")  # while in work: it counts when it is done
    assert counts(queue, "depth", "adds") == [0, 2]
    queue.done("foo")
    assert counts(queue, *names) == [1, 2, 1, 1, 0, 0]
    assert work(queue) == "foo"
    assert counts(queue, *names) == [0, 2, 2, 2, 0, 0]
    queue.add_rate_limited("foo")
    assert counts(queue, "retries", "failing") == [1, 1]


def test_the_times_of_a_queue_grow_with_its_keys(queue: WorkQueue) -> None:
    """TestMetrics: unfinished work, longest running processor, latency."""
    queue.add("foo")
    time.sleep(SOON)
    assert counts(queue, "oldest_seconds")[0] >= SOON
    assert take(queue) == "foo"
    time.sleep(SOON)
    unfinished, longest, waited = counts(
        queue, "unfinished_seconds", "longest_seconds", "queue_seconds"
    )
    assert unfinished >= longest >= SOON
    assert waited >= SOON
    queue.done("foo")
    assert counts(queue, "unfinished_seconds", "longest_seconds") == [0, 0]
    assert counts(queue, "work_seconds")[0] >= SOON


# ---- kube-rs, scheduler.rs and runner.rs ---------------------------------------------------------


def test_a_key_that_waits_in_work_does_not_block_the_head_of_the_line(queue: WorkQueue) -> None:
    """scheduler_pending_message_should_not_block_head_of_line."""
    queue.add("held")
    assert take(queue) == "held"
    queue.add("held")
    queue.add("free")
    assert work(queue) == "free"


def test_keys_come_as_their_times_say(queue: WorkQueue) -> None:
    """scheduler_should_emit_items_as_requested."""
    queue.add_after("second", 4 * SOON)
    queue.add_after("first", SOON)
    queue.add("now")
    assert [work(queue) for _ in range(3)] == ["now", "first", "second"]


@pytest.mark.parametrize(("first", "second"), [(SOON, LONG), (LONG, SOON)])
def test_the_soonest_of_two_times_counts_while_in_work_too(
    queue: WorkQueue, first: float, second: float
) -> None:
    """scheduler_should_overwrite_message_with_soonest_version, …_with_later_…."""
    queue.add("foo")
    assert take(queue) == "foo"
    queue.add_after("foo", first)
    queue.add_after("foo", second)
    queue.done("foo")
    assert work(queue) == "foo"
    assert counts(queue, "delayed") == [0]


@MODES
def test_a_key_that_is_scheduled_while_nothing_runs_wakes_the_runner(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    """runner_should_wake_when_scheduling_messages."""
    worker = lab.start(script.function(asynchronous=asynchronous))
    eventually(lambda: worker.part.board.finished == worker.part.board.wanted)
    assert script.quiet()
    worker.part.queue.add("prod/by-hand")
    assert script.hear() == "prod/by-hand"


def test_keys_that_come_several_times_before_the_sync_are_one_reconcile(
    name: str, script: Script
) -> None:
    """runner_should_wait_for_readiness, runner_should_dedupe_while_waiting_for_readiness."""
    options: dict[str, Any] = {"arena_max": "16MiB", "ring_slots": 256}
    with (
        shmcache.Writer(name, ["pods", "nodes", "jobs"], **options) as writer,
        shmcache.attach(name) as cache,
    ):
        lab = Lab(writer, cache)
        worker = lab.start(script.function(), owns="jobs")
        for _ in range(5):
            lab.put("web")
        worker.part.queue.add("prod/web")
        assert script.quiet()
        writer.set_state("jobs", shmcache.states.SYNCED, "1")
        assert script.hear() == "prod/web"
        assert script.quiet()
        lab.close()
