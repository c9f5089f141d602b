"""Peers' cases: controller-runtime's controller (internal/controller/controller_test.go), and the
runner and controller of kube-rs (controller/runner.rs, controller/mod.rs), by behaviour."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from reconciled import PATIENCE, Lab, Script, eventually

import shmcache
from shmcache import states
from shmcache.controllers.worker import NotSynced

MODES = pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "loop"])


@pytest.fixture
def lab(writer: shmcache.Writer, cache: shmcache.Cache) -> Iterator[Lab]:
    made = Lab(writer, cache)
    yield made
    made.close()


@pytest.fixture
def script() -> Script:
    return Script()


# ---- controller-runtime: Start -------------------------------------------------------------------


def test_no_reconcile_before_everything_is_synced(name: str, script: Script) -> None:
    """ "should wait for the caches to sync", "should not call Reconcile until …"."""
    with shmcache.Writer(name, ["pods", "nodes"], arena_max="16MiB", ring_slots=256) as writer:
        writer.apply("pods", [{"metadata": {"namespace": "prod", "name": "a", "uid": "u"}}])
        writer.set_state("pods", states.SYNCED, "1")
        with shmcache.attach(name) as cache:
            declared = shmcache.controller("pods", owns="nodes")(script.function())
            worker = declared.start(cache)
            assert script.quiet()
            writer.set_state("nodes", states.SYNCED, "1")
            assert script.hear() == "prod/a"
            worker.stop()
            assert worker.join(PATIENCE)


def test_a_resource_that_does_not_sync_in_time_ends_the_worker(name: str, script: Script) -> None:
    """ "should error when CacheSyncTimeout is reached", and it names the resource."""
    with shmcache.Writer(name, ["pods", "nodes"], arena_max="16MiB", ring_slots=256) as writer:
        writer.set_state("pods", states.SYNCED, "1")
        with shmcache.attach(name) as cache:
            declared = shmcache.controller("pods", owns="nodes", sync_timeout=0.1)
            worker = declared(script.function()).start(cache)
            eventually(lambda: worker.failed is not None)
            assert isinstance(worker.failed, NotSynced)
            assert "nodes" in str(worker.failed)
            worker.stop()
            assert worker.join(PATIENCE)


@pytest.mark.parametrize("stops", [1, 2])
def test_stop_before_the_sync_ends_a_worker(name: str, script: Script, stops: int) -> None:
    """ "should not error when context cancelled before the cache is synced"."""
    with (
        shmcache.Writer(name, ["pods"], arena_max="16MiB", ring_slots=256),
        shmcache.attach(name) as cache,
    ):
        worker = shmcache.controller("pods")(script.function()).start(cache)
        for _ in range(stops):
            worker.stop()
        assert worker.join(PATIENCE)
        assert worker.failed is None


@MODES
def test_the_objects_that_are_there_are_reconciled_once(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    """ "should process events from source.Kind": the initial list, each key once."""
    keys = sorted(lab.put(f"web-{number}") for number in range(20))
    lab.start(script.function(asynchronous=asynchronous))
    assert sorted(script.hear_all(20)) == keys
    assert script.quiet()


@MODES
@pytest.mark.parametrize("how", ["create", "update", "delete"])
def test_each_kind_of_event_is_reconciled(
    lab: Lab, script: Script, asynchronous: bool, how: str
) -> None:
    """ "should call Reconcile if an item is enqueued", for each event of a source."""
    key = "prod/web" if how == "create" else lab.put("web")
    lab.start(script.function(asynchronous=asynchronous))
    if how != "create":
        assert script.hear() == key
    if how == "delete":
        lab.writer.delete("pods", key)
    else:
        lab.put("web")
    assert script.hear() == key
    assert script.quiet()


# ---- controller-runtime: results -----------------------------------------------------------------


@MODES
def test_success_forgets_the_failures(lab: Lab, script: Script, asynchronous: bool) -> None:
    """ "should forget the Request if Reconcile is successful"."""
    key = lab.put("web")
    script.on(key, ValueError("1"), ValueError("2"))
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear_all(3) == [key] * 3
    eventually(lambda: lab.numbers(worker).results["success"] == 1)
    assert worker.part.queue.num_requeues(key) == 0


@MODES
def test_an_error_is_tried_again(lab: Lab, script: Script, asynchronous: bool) -> None:
    """ "should requeue a Request if there is an error and continue processing items"."""
    key = lab.put("web")
    script.on(key, ValueError("no"))
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear_all(2) == [key, key]
    other = lab.put("other")
    assert script.hear() == other
    eventually(lambda: lab.numbers(worker).errors == 1)


@MODES
def test_requeue_is_tried_again_by_the_rate_limit(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    """ "should requeue a Request if the Result sets Requeue:true"."""
    key = lab.put("web")
    script.on(key, shmcache.Requeue(), shmcache.Requeue())
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear_all(3) == [key] * 3
    eventually(lambda: lab.numbers(worker).results["requeue"] == 2)
    eventually(lambda: worker.part.queue.num_requeues(key) == 0)


@MODES
@pytest.mark.parametrize("after", [0.001, 0.05, 0.3])
def test_requeue_after_comes_in_time_and_forgets(
    lab: Lab, script: Script, asynchronous: bool, after: float
) -> None:
    """ "should requeue a Request after a duration if the Result sets RequeueAfter"."""
    key = lab.put("web")
    script.on(key, ValueError("first"), shmcache.Requeue(after=after))
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear_all(3) == [key] * 3
    first, second = script.times[key][1:3]
    assert second - first >= after
    eventually(lambda: worker.part.queue.num_requeues(key) == 0)


def test_requeue_after_a_change_comes_at_once(lab: Lab, script: Script) -> None:
    """kube-rs: "requeue_after is overtaken by a change of the object"."""
    key = lab.put("web")
    script.on(key, shmcache.Requeue(after=600))
    lab.start(script.function())
    assert script.hear() == key
    lab.put("web")
    assert script.hear() == key


@MODES
def test_a_terminal_error_waits_for_a_change(lab: Lab, script: Script, asynchronous: bool) -> None:
    """ "should not requeue a Request if there is a terminal error"."""
    key = lab.put("web")
    script.on(key, shmcache.TerminalError("never"))
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear() == key
    assert script.quiet()
    assert (lab.numbers(worker).terminal, lab.numbers(worker).errors) == (1, 1)


def test_an_error_raises_the_histogram_and_the_counters(lab: Lab, script: Script) -> None:
    """ "should update prometheus metrics on reconcile errors / success / requeue"."""
    for name, action in (
        ("a", None), ("b", ValueError("x")), ("c", shmcache.Requeue()),
        ("d", shmcache.Requeue(after=0.001)),
    ):  # fmt: skip
        script.on(lab.put(name), action)
    worker = lab.start(script.function())
    eventually(lambda: lab.numbers(worker).results["success"] == 4)
    text = lab.numbers(worker).text("lab")
    for result, count in (("success", 4), ("error", 1), ("requeue", 1), ("requeue_after", 1)):
        total = f'controller_runtime_reconcile_total{{controller="lab",result="{result}"}} {count}'
        assert total in text
    assert 'controller_runtime_reconcile_time_seconds_count{controller="lab"} 7' in text


@MODES
def test_a_reconcile_that_takes_too_long_is_an_error(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    """ReconciliationTimeout: "should cancel a reconcile". A plain function cannot be cancelled."""
    key = lab.put("web")
    options: dict[str, Any] = {"time_limit": 0.05}
    if asynchronous:
        script.on(key, lambda *_: asyncio.sleep(PATIENCE))
        worker = lab.start(script.function(asynchronous=True), **options)
        assert script.hear_all(2) == [key, key]
        eventually(lambda: lab.numbers(worker).timeouts == 1)
    else:
        script.on(key, lambda *_: time.sleep(0.2))
        worker = lab.start(script.function(), **options)
        assert script.hear() == key
        eventually(lambda: lab.numbers(worker).results["success"] == 1)
        assert lab.numbers(worker).timeouts == 0


# ---- concurrency (controller-runtime, kube-rs) ---------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 2, 5])
@MODES
def test_so_many_keys_at_a_time_and_no_more(lab: Lab, asynchronous: bool, concurrency: int) -> None:
    """MaxConcurrentReconciles; kube-rs: runner_should_respect_max_concurrency."""
    lock, gate = threading.Lock(), threading.Event()
    inside, most = set[str](), [0]

    def enter(key: str) -> None:
        with lock:
            assert key not in inside
            inside.add(key)
            most[0] = max(most[0], len(inside))

    def reconcile(key: str, _cache: Any) -> None:
        enter(key)
        assert gate.wait(PATIENCE)
        inside.discard(key)

    async def reconcile_async(key: str, _cache: Any) -> None:
        enter(key)
        while not gate.is_set():
            await asyncio.sleep(0.001)
        inside.discard(key)

    for number in range(10):
        lab.put(f"web-{number}")
    worker = lab.start(reconcile_async if asynchronous else reconcile, concurrency=concurrency)
    eventually(lambda: len(inside) == concurrency)
    time.sleep(0.03)
    assert most[0] == concurrency
    gate.set()
    eventually(lambda: lab.numbers(worker).results["success"] == 10)


@MODES
def test_a_key_is_never_reconciled_twice_at_a_time(lab: Lab, asynchronous: bool) -> None:
    """kube-rs: "runner_should_not_run_the_same_message_in_parallel"."""
    inside, overlaps, calls = set[str](), list[str](), [0]

    def reconcile(key: str, _cache: Any) -> None:
        overlaps.extend([key] if key in inside else [])
        inside.add(key)
        time.sleep(0.002)
        inside.discard(key)
        calls[0] += 1

    async def reconcile_async(key: str, _cache: Any) -> None:
        overlaps.extend([key] if key in inside else [])
        inside.add(key)
        await asyncio.sleep(0.002)
        inside.discard(key)
        calls[0] += 1

    lab.start(reconcile_async if asynchronous else reconcile, concurrency=8)
    for turn in range(100):
        lab.put(f"web-{turn % 3}")
    eventually(lambda: calls[0] >= 3 and not inside)
    assert overlaps == []


@MODES
def test_a_change_in_a_reconcile_brings_another_one(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    """kube-rs: "scheduler_should_not_lose_messages_while_running"."""
    key = lab.put("web")
    script.on(key, lambda *_: (lab.put("web"), None)[1])
    lab.start(script.function(asynchronous=asynchronous))
    assert script.hear_all(2) == [key, key]
    assert script.quiet()


@MODES
def test_a_stop_lets_reconciles_end_and_begins_none(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    """ "should wait for workers to finish on shutdown"; kube-rs: graceful_shutdown_on."""
    gate = threading.Event()

    def wait(_key: str, _cache: Any) -> None:
        assert gate.wait(PATIENCE)

    async def wait_async() -> None:
        while not gate.is_set():
            await asyncio.sleep(0.001)

    first = lab.put("a")
    script.on(first, (lambda *_: wait_async()) if asynchronous else wait)
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear() == first
    lab.put("b")
    worker.stop()
    assert not worker.join(0.05)
    gate.set()
    assert worker.join(PATIENCE)
    assert script.calls.empty()
    lab._workers.remove(worker)


def test_a_resource_that_is_quiet_costs_no_reconcile(lab: Lab, script: Script) -> None:
    """kube-rs: runner_should_not_hot_loop_when_idle, applier_must_not_deadlock_if_reschedule…."""
    keys = [lab.put(f"web-{number}") for number in range(5)]
    for key in keys:
        script.on(key, *[shmcache.Requeue(after=0.2)] * 2)
    lab.start(script.function())
    assert sorted(script.hear_all(5)) == keys
    assert script.quiet(0.05)
    assert sorted(script.hear_all(5)) == keys


def test_many_keys_of_which_all_come_again_do_not_deadlock(lab: Lab, script: Script) -> None:
    """kube-rs: applier_must_not_deadlock_if_reschedule_buffer_fills."""
    count = 500
    keys = [f"prod/web-{number}" for number in range(count)]
    for key in keys:
        script.on(key, shmcache.Requeue(after=0.001))
    with lab.writer.batch():
        lab.writer.apply(
            "pods",
            [
                {"metadata": {"namespace": "prod", "name": key[5:], "uid": f"u-{key}"}}
                for key in keys
            ],
        )
    lab.start(script.function(), concurrency=2)
    eventually(lambda: all(script.count[key] >= 2 for key in keys))


@pytest.mark.parametrize("which", ["reconcile", "watches", "predicate"])
def test_one_bad_object_keeps_no_other_from_its_reconcile(
    lab: Lab, script: Script, which: str
) -> None:
    """RecoverPanic: "should recover panic … and continue", in each function of a user."""

    def bad(name: object) -> None:
        if str(name).endswith("bad"):
            raise RuntimeError("a panic")

    def mapped(node: Any, _cache: Any) -> str:
        if which == "watches":
            bad(node["metadata"]["name"])
        return f"prod/of-{node['metadata']['name']}"

    def predicate(event: Any) -> bool:
        if which == "predicate":
            bad(event.key)
        return True

    function = script.function()

    def reconcile(key: str, cache: Any) -> Any:
        if which == "reconcile":
            bad(key)
        return function(key, cache)

    worker = lab.start(reconcile, predicates=[predicate], watches={"nodes": mapped}, concurrency=2)
    for resource in ("pods", "nodes"):
        lab.put("bad", resource)
        lab.put("good", resource)
    heard: set[str] = set()
    while not {"prod/good", "prod/of-good"} <= heard:
        heard.add(script.hear())
    found = lab.numbers(worker)
    eventually(lambda: lab.numbers(worker).errors + lab.numbers(worker).source_errors)
    assert found.panics == 0  # here: a process that died
