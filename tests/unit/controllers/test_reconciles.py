"""Invariants tested: what a reconcile returns and raises means the same in a thread and on a loop
(REC1 to REC4), a start reconciles everything (FEED3), and no event is lost (FEED1, SRC2, SRC3)."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from reconciled import PATIENCE, Lab, Script, eventually

import shmcache
from shmcache import states
from shmcache.controllers import rows, running
from shmcache.controllers.board import Board
from shmcache.controllers.outcomes import NotCached, is_terminal
from shmcache.controllers.worker import Worker
from shmcache.monitor.metering import Meter
from shmcache.queue.feeder import Feeder, SourceEvent

MODES = pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "loop"])


@pytest.fixture
def lab(writer: shmcache.Writer, cache: shmcache.Cache) -> Iterator[Lab]:
    made = Lab(writer, cache)
    yield made
    made.close()


@pytest.fixture
def script() -> Script:
    return Script()


def settle(lab: Lab, worker: Worker, script: Script) -> None:
    """Until the content of the start was added and reconciled; what was heard is forgotten."""
    board = worker.part.board
    eventually(lambda: board.finished == board.wanted)
    eventually(lambda: not len(worker.part.queue) and not lab.numbers(worker).active)
    while not script.calls.empty():
        script.hear()


# ---- results and errors of a reconcile -----------------------------------------------------------


@MODES
def test_a_requeue_after_zero_seconds_is_a_success(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    key = lab.put("web")
    script.on(key, shmcache.Requeue(after=0))
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear() == key
    assert script.quiet()
    assert lab.numbers(worker).results == {
        "success": 1, "error": 0, "requeue": 0, "requeue_after": 0
    }  # fmt: skip


def terminal(how: str) -> BaseException:
    inner = shmcache.TerminalError("hopeless")
    if how == "itself":
        return inner
    if how == "group":
        return ExceptionGroup("several", [ValueError("a"), ExceptionGroup("inner", [inner])])
    outer = RuntimeError("wrapped")
    if how == "cause":
        outer.__cause__ = inner
    else:
        outer.__context__ = inner  # it was raised while the terminal one was handled
    return outer


@MODES
@pytest.mark.parametrize("how", ["itself", "cause", "group"])
def test_a_terminal_error_counts_wherever_it_is(
    lab: Lab, script: Script, asynchronous: bool, how: str
) -> None:
    key = lab.put("web")
    script.on(key, terminal(how))
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear() == key
    assert script.quiet()
    assert lab.numbers(worker).terminal == 1
    lab.put("web")
    assert script.hear() == key


def test_an_error_while_a_terminal_one_is_handled_is_not_terminal() -> None:
    assert not is_terminal(terminal("context"))
    looped = RuntimeError("its own cause")
    looped.__cause__ = looped
    assert not is_terminal(looped)


@MODES
@pytest.mark.parametrize(
    "error", [SystemExit(3), asyncio.CancelledError(), StopIteration(), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_any_exception_is_an_error_of_the_key_and_ends_nothing(
    lab: Lab, script: Script, asynchronous: bool, error: BaseException
) -> None:
    key = lab.put("web")
    script.on(key, error)
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear_all(2) == [key, key]
    eventually(lambda: lab.numbers(worker).results["success"] == 1)
    assert lab.numbers(worker).errors == 1
    assert worker.failed is None


@MODES
@pytest.mark.parametrize("result", [7, "x", ["prod/a"], True])
def test_a_result_that_means_nothing_is_an_error(
    lab: Lab, script: Script, asynchronous: bool, result: Any
) -> None:
    key = lab.put("web")
    script.on(key, result)
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear_all(2) == [key, key]
    eventually(lambda: lab.numbers(worker).errors == 1)


# ---- how functions are declared ------------------------------------------------------------------


class Callable_:  # noqa: N801 - a class whose objects are called
    def __init__(self, script: Script) -> None:
        self.script = script

    async def __call__(self, key: str, cache: Any) -> Any:
        return self.script._do(key, cache)


def test_partials_and_callable_objects_of_coroutine_functions_run(lab: Lab, script: Script) -> None:
    async def reconcile(script: Script, key: str, cache: Any) -> Any:
        return script._do(key, cache)

    key = lab.put("web")
    for number, function in enumerate(
        [functools.partial(reconcile, script), Callable_(script),
         functools.partial(functools.partial(reconcile), script)]
    ):  # fmt: skip
        worker = lab.start(function, name=f"lab-{number}")
        assert worker.controller.asynchronous
        assert script.hear() == key


def test_functions_that_a_call_does_not_run_are_refused() -> None:
    def generator(_key: str, _cache: Any) -> Iterator[str]:
        yield ""

    async def coroutine(*_: Any) -> list[str]:
        return []

    def plain(_key: str, _cache: Any) -> None: ...

    declare: Any = shmcache.controller
    with pytest.raises(TypeError, match="generator"):
        declare("pods")(generator)
    with pytest.raises(TypeError, match="plain function"):
        declare("pods", watches={"nodes": coroutine})
    with pytest.raises(TypeError, match="plain function"):
        declare("pods", predicates=[coroutine])
    with pytest.raises(TypeError, match="plain function"):
        shmcache.Owns("nodes", predicates=(coroutine,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="recover is a coroutine function"):
        declare("pods", recover=coroutine)(plain)
    with pytest.raises(TypeError, match="must be a function"):
        declare("pods")("reconcile")


def test_a_function_that_returns_a_coroutine_is_an_error_that_says_so(
    lab: Lab, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    async def inner() -> None: ...

    key = lab.put("web")
    script.on(key, lambda *_: inner())
    worker = lab.start(script.function())
    assert script.hear_all(2) == [key, key]
    eventually(lambda: lab.numbers(worker).errors == 1)
    assert "declare it with `async def`" in caplog.text


def test_a_recover_that_returns_a_coroutine_is_tried_again_and_says_so(
    lab: Lab, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    """Its coroutine was never awaited, and the key went on as if the server had been asked."""
    calls: list[str] = []

    async def inner() -> None: ...

    def recover(key: str, _cache: Any) -> Any:
        calls.append(key)
        return inner() if len(calls) == 1 else None

    key = lab.put("web")
    dead = Board(lab.cache.place, "lab")
    dead.take_row(1).fill(0, key, rows.digest(key))
    dead.close()
    lab.start(script.function(asynchronous=True), recover=recover)
    assert script.hear() == key
    assert calls == [key, key]
    assert "recover returned a coroutine" in caplog.text


def test_a_single_resource_and_a_single_key_are_not_taken_letter_by_letter(
    lab: Lab, script: Script
) -> None:
    one = shmcache.controller("pods", owns="nodes")(script.function())
    assert one.sources.resources == ("pods", "nodes")
    lab.start(script.function(), watches={"nodes": lambda node, _: node["metadata"]["name"]})
    lab.put("n1", "nodes", cluster=True)
    assert script.hear() == "n1"


# ---- functions of sources ------------------------------------------------------------------------


def reference(name: str, **given: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": True, **given
    }  # fmt: skip


@pytest.mark.parametrize("which", ["mapper", "predicate", "keys"])
def test_an_event_whose_function_raises_comes_again(
    lab: Lab, script: Script, caplog: pytest.LogCaptureFixture, which: str
) -> None:
    """And an exception of a function is counted, and logged once."""
    broken = threading.Event()
    broken.set()

    def keys(node: Any, _cache: Any) -> Any:
        if which == "mapper" and broken.is_set():
            raise SystemExit("no keys")
        if which == "keys" and broken.is_set():
            return [7]
        return [f"prod/of-{node['metadata']['name']}"]

    def predicate(_event: SourceEvent) -> bool:
        if which == "predicate" and broken.is_set():
            raise ValueError("no answer")
        return True

    watches = [shmcache.Watches("nodes", keys, (predicate,))]
    worker = lab.start(script.function(), watches=watches)
    lab.put("n1", "nodes")
    lab.put("n2", "nodes")
    eventually(lambda: lab.numbers(worker).source_errors >= 4)
    assert script.quiet()
    shown = re.search(
        r"shmcache_controller_source_errors_total{[^}]*} (\d+)", Meter(lab.cache).text()
    )
    assert shown is not None
    assert int(shown[1]) >= 4
    key = lab.put("web")
    assert script.hear() == key  # others go on
    lab.writer.delete("nodes", "prod/n2")
    broken.clear()
    heard = {script.hear()}
    while heard != {"prod/of-n1", "prod/of-n2"}:
        heard.add(script.hear())
    assert len([record for record in caplog.records if record.exc_info]) <= 2


def test_a_position_is_not_stored_before_every_event_is_mapped(lab: Lab, script: Script) -> None:
    """A feeder that takes over calls the function again for the event that raised."""

    def raising(_node: Any, _cache: Any) -> Any:
        raise ValueError("no keys")

    worker = lab.start(script.function(), watches={"nodes": raising})
    board = worker.part.board
    eventually(lambda: board.finished == board.wanted)
    lab.put("n1", "nodes")
    eventually(lambda: lab.numbers(worker).source_errors >= 2)  # two attempts, at least
    lab.put("web")
    assert script.hear() == "prod/web"  # and a position was stored since
    lab.stop(worker)
    names = {"nodes": lambda node, _: f"prod/of-{node['metadata']['name']}"}
    lab.start(script.function(), resume=True, watches=names)
    assert script.hear() == "prod/of-n1"


@pytest.mark.parametrize("source", ["owns", "watches"])
def test_an_owner_that_changes_within_a_lapse_is_dirty(
    lab: Lab, script: Script, source: str
) -> None:
    """The feeder fell out of the window: the state before is gone, and with it the old owner."""
    gate = threading.Event()
    gate.set()

    def wait(_event: SourceEvent) -> bool:
        assert gate.wait(PATIENCE)
        return True

    def mapped(node: Any, _cache: Any) -> str:
        return f"prod/{node['metadata']['ownerReferences'][0]['name']}"

    old, new = lab.put("old"), lab.put("new")
    lab.put("n1", "nodes", metadata={"ownerReferences": [reference("old")]})
    options: dict[str, Any] = {
        "owns": [shmcache.Owns("nodes", (wait,))],
        "watches": [shmcache.Watches("nodes", mapped, (wait,))],
    }
    worker = lab.start(script.function(), **{source: options[source]})
    eventually(lambda: script.count[old] and script.count[new])
    settle(lab, worker, script)
    gate.clear()
    lab.put("n0", "nodes")  # the feeder is in its predicate
    time.sleep(0.05)
    lab.put("n1", "nodes", metadata={"ownerReferences": [reference("new")]})
    lab.writer.drop_window()
    gate.set()
    heard = {script.hear()}
    while not {old, new} <= heard:
        heard.add(script.hear())


@pytest.mark.parametrize(
    "predicate", ["labels_changed", "annotations_changed", "generation_changed"]
)
def test_predicates_pass_an_update_whose_object_before_is_gone(
    lab: Lab, script: Script, predicate: str
) -> None:
    from shmcache.controllers import predicates

    asked = getattr(predicates, predicate)
    gate = threading.Event()
    gate.set()
    seen: list[object] = []

    def wait(event: SourceEvent) -> bool:
        assert gate.wait(PATIENCE)
        seen.append(event.old)
        return bool(asked(event))

    key = lab.put("web", metadata={"labels": {"a": "1"}, "generation": 1})
    lab.start(script.function(), predicates=[wait])
    assert script.hear() == key
    gate.clear()
    other = lab.put("other")
    time.sleep(0.05)
    lab.put("web", metadata={"labels": {"a": "2"}, "annotations": {"b": "2"}, "generation": 2})
    lab.writer.drop_window()
    gate.set()
    assert {script.hear(), script.hear()} == {key, other}
    assert not any(isinstance(old, shmcache.Tombstone) for old in seen)


def test_a_child_that_a_mapper_forks_feeds_nothing(lab: Lab, script: Script) -> None:
    children: list[int] = []

    def forking(node: Any, _cache: Any) -> str:
        if not children:
            children.append(os.fork())
        return f"prod/{node['metadata']['name']}"

    lab.start(script.function(), watches={"nodes": forking})
    lab.put("n1", "nodes")
    assert script.hear() == "prod/n1"
    assert reaped(children[0]) is not None
    lab.put("n2", "nodes")
    assert script.hear() == "prod/n2"


# ---- fork, exit, hanging -------------------------------------------------------------------------


def reaped(pid: int) -> int | None:
    """The exit status of a child, which ends by itself."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.005)


@MODES
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_child_that_a_reconcile_forks_works_on_no_key(
    lab: Lab, script: Script, asynchronous: bool, ends: str
) -> None:
    children: list[int] = []

    def fork(_key: str, _cache: Any) -> None:
        pid = os.fork()
        children.append(pid)
        if not pid and ends == "raises":
            raise RuntimeError("in the child")

    key = lab.put("web")
    script.on(key, fork)
    worker = lab.start(script.function(asynchronous=asynchronous))
    assert script.hear() == key
    eventually(lambda: lab.numbers(worker).results["success"] == 1)
    assert reaped(children[0]) is not None
    assert lab.numbers(worker).reconciles == 1  # counted by the parent alone
    lab.put("web")
    assert script.hear() == key


EXITING = """
import sys, time, shmcache
{prelude}
with_cache = shmcache.attach(sys.argv[1])
worker = shmcache.controller("pods", name="exiting", concurrency=2)(reconcile).start(with_cache)
while not list(seen):
    time.sleep(0.005)
"""
SYNC = """
seen = []
def reconcile(key, cache):
    seen.append(key)
    time.sleep({sleep})
"""
ASYNC = """
import asyncio
seen = []
async def reconcile(key, cache):
    seen.append(key)
    await asyncio.sleep({sleep})
"""


@pytest.mark.parametrize("sleep", [0, 600], ids=["idle", "busy"])
@pytest.mark.parametrize("prelude", [SYNC, ASYNC], ids=["thread", "loop"])
def test_an_interpreter_ends_with_a_controller_running(lab: Lab, prelude: str, sleep: int) -> None:
    lab.put("web")
    code = EXITING.format(prelude=prelude.format(sleep=sleep))
    done = subprocess.run(
        [sys.executable, "-c", code, lab.cache.name], timeout=PATIENCE, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


# ---- starts --------------------------------------------------------------------------------------


def test_a_controller_of_more_objects_than_a_lane_has_tickets_reconciles_each_once(
    lab: Lab, script: Script
) -> None:
    """65,536 were the limit, and beyond it nothing was reconciled. Keys that wait for later take
    nothing from the others, and the first reconciles overlap with the content that still comes."""
    count, overlapped = 70_000, list[bool]()
    names = [f"w{number:05}" for number in range(count)]
    with lab.writer.batch():
        for name in names:
            lab.writer.put("pods", f"prod/{name}", {"metadata": {"name": name}}, "2")
    begun = threading.Event()

    def predicate(event: SourceEvent) -> bool:
        if event.key == f"prod/{names[1000]}" and not overlapped:
            overlapped.append(begun.wait(PATIENCE))  # the feeder waits for a reconcile
        return True

    def reconcile(key: str, _cache: Any) -> Any:
        begun.set()
        script.count[key] += 1
        return shmcache.Requeue(after=600)

    worker = lab.start(reconcile, predicates=[predicate])
    eventually(lambda: lab.numbers(worker).reconciles >= count)
    assert overlapped == [True]
    assert set(script.count.values()) == {1}
    assert len(script.count) == count
    lab.writer.put("pods", f"prod/{names[-1]}", {"metadata": {"name": names[-1]}}, "3")
    eventually(lambda: script.count[f"prod/{names[-1]}"] == 2)
    eventually(lambda: worker.part.queue.stats()["delayed"] == count)


@MODES
def test_a_start_reconciles_everything_and_a_resumed_one_what_changed(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    function = script.function(asynchronous=asynchronous)
    keys = sorted(lab.put(f"web-{number}") for number in range(5))
    lab.stop(lab.start(function))
    worker = lab.start(function)
    eventually(lambda: all(script.count[key] for key in keys))
    settle(lab, worker, script)
    lab.stop(worker)
    before = script.count.copy()

    worker = lab.start(function, resume=True)
    lab.put("web-0")
    eventually(lambda: script.count["prod/web-0"] > before["prod/web-0"])
    assert all(script.count[key] == before[key] for key in keys[1:])
    lab.stop(worker)

    before = script.count.copy()
    lab.start(function)
    eventually(lambda: all(script.count[key] > before[key] for key in keys))


def test_a_start_next_to_a_running_one_reconciles_everything(lab: Lab, script: Script) -> None:
    key = lab.put("web")
    lab.start(script.function())
    assert script.hear() == key
    lab.start(script.function())
    assert script.hear() == key


@MODES
def test_a_resource_that_is_not_cached_is_an_error_that_lists_those_that_are(
    lab: Lab, script: Script, asynchronous: bool
) -> None:
    function = script.function(asynchronous=asynchronous)
    with pytest.raises(NotCached, match=r"'podz'.*pods, nodes; did you mean 'pods'\?"):
        lab.start(function, resource="podz")
    with pytest.raises(NotCached, match=r"reads 'deployments.apps'.*it has pods, nodes\n"):
        lab.start(function, owns=["deployments.apps"])


def test_run_ends_at_once_where_a_resource_is_not_cached(lab: Lab) -> None:
    code = (
        "import sys, shmcache, logging; logging.basicConfig()\n"
        "@shmcache.controller('podz', processes=2)\n"
        "def reconcile(key, cache): ...\n"
        "sys.exit(reconcile.run(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, lab.cache.name], timeout=PATIENCE, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 78
    assert "did you mean 'pods'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_with_a_thread_that_fails_logs_why_and_ends(
    lab: Lab, script: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no events")

    monkeypatch.setattr(Feeder, "run", fail)
    monkeypatch.setattr(running.Termination, "install", lambda _: None)
    one = shmcache.controller("pods", name="lab")(script.function())
    assert running.work(one, lab.cache.name, (), PATIENCE) == running.FAILED
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert "no events" in str(record.exc_info[1])


# ---- own writes ----------------------------------------------------------------------------------


def test_waits_for_own_writes_are_outside_of_time_limits_and_hold_no_other_key(
    lab: Lab, script: Script
) -> None:
    """More keys wait than the executor of a loop has threads, and a free one goes before them."""
    waiting = [lab.put(f"slow-{number}") for number in range(20)]
    lab.put("free")

    def write(_key: str, _cache: Any) -> None:
        shmcache.written("pods", {"metadata": {"resourceVersion": "1000"}})

    for key in waiting:
        script.on(key, write)
    options: dict[str, Any] = {"concurrency": 21, "catch_up": 10 * PATIENCE, "time_limit": 0.2}
    worker = lab.start(script.function(asynchronous=True), **options)
    eventually(lambda: lab.numbers(worker).results["success"] == 21)
    for key in waiting:
        lab.put(key.removeprefix("prod/"))
    while not script.calls.empty():
        script.hear()
    lab.put("free")
    assert script.hear() == "prod/free"
    assert all(script.count[key] == 1 for key in waiting)
    lab.version = 1000
    lab.put("unrelated")
    eventually(lambda: all(script.count[key] == 2 for key in waiting))
    assert lab.numbers(worker).timeouts == 0


def test_a_wait_for_a_deletion_ends_when_the_worker_is_stopped(lab: Lab, script: Script) -> None:
    key, other = lab.put("web"), lab.put("other")

    def delete(_key: str, cache: Any) -> None:
        shmcache.deleted("pods", cache["pods"][other])

    script.on(key, delete)
    worker = lab.start(script.function(), catch_up=10 * PATIENCE)
    eventually(lambda: lab.numbers(worker).results["success"] == 2)
    lab.put("web")
    eventually(lambda: lab.numbers(worker).active == 1)
    lab.stop(worker)
    assert script.count[key] == 1


def test_writes_of_any_number_of_resources_are_waited_for(name: str, script: Script) -> None:
    """Sixteen were the limit."""
    written = [f"things-{number}" for number in range(40)]
    with shmcache.Writer(
        name, ["pods", "nodes", *written], arena_max="16MiB", ring_slots=256
    ) as writer:
        for resource in ("pods", *written):
            writer.set_state(resource, states.SYNCED, "1")
        with shmcache.attach(name) as cache:
            lab = Lab(writer, cache)

            def write(_key: str, _cache: Any) -> None:
                for resource in written:
                    shmcache.written(resource, {"metadata": {"resourceVersion": "7"}})

            key = lab.put("web")
            script.on(key, write)
            worker = lab.start(script.function(), catch_up=10 * PATIENCE)
            assert script.hear() == key
            lab.put("web")
            for resource in written:
                assert script.quiet(0.01)
                writer.set_state(resource, states.SYNCED, "7")
            assert script.hear() == key
            assert lab.numbers(worker).behind == 0
            lab.close()


def test_a_version_from_before_a_restore_holds_no_key_for_longer_than_it_is_remembered(
    lab: Lab, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write used to renew the old version, so the bucket waited again and again."""
    monkeypatch.setattr(rows, "EXPIRE", 0.4)
    key = lab.put("web")

    def write(version: int) -> Any:
        return lambda *_: shmcache.written("pods", {"metadata": {"resourceVersion": str(version)}})

    worker = lab.start(script.function(), catch_up=0.01)
    script.on(key, None, write(10**9), *[write(2)] * 50)
    assert script.hear() == key
    lab.put("web")
    assert script.hear() == key
    lab.put("web")
    assert script.hear() == key  # it expired
    eventually(lambda: lab.numbers(worker).results["success"] == 3)
    behind = lab.numbers(worker).behind
    lab.put("web")
    assert script.hear() == key
    assert lab.numbers(worker).behind == behind


def test_an_older_version_neither_hides_nor_renews_a_newer_one(
    cache: shmcache.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(cache.place, "c")
    mine = board.take_row(1)
    mine.wrote(3, 0, 10)
    first = mine.written(3, 0)
    mine.wrote(3, 0, 5)
    assert mine.written(3, 0) == first
    mine.wrote(3, 0, 10)  # a write that changes nothing has the version of the one before
    again = mine.written(3, 0)
    assert again[1] == 10
    assert again[0] > first[0]
    mine.wrote(3, 0, 12)
    assert mine.written(3, 0)[1] == 12
    monkeypatch.setattr(rows, "EXPIRE", -1.0)
    mine.wrote(3, 0, 7)
    assert mine.written(3, 0)[1] == 7
    assert mine.written(3, 0)[0] > first[0]
    mine.leave()
    board.close()


# ---- the log -------------------------------------------------------------------------------------


def test_errors_of_reconciles_are_logged_once(
    lab: Lab, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [lab.put(f"web-{number}") for number in range(12)]

    def refuse(key: str, _cache: Any) -> None:
        raise ValueError(f"of {key} alone")

    for key in keys:
        script.on(key, refuse, refuse)
    with caplog.at_level(logging.ERROR):
        worker = lab.start(script.function())
        eventually(lambda: lab.numbers(worker).results["success"] == 12)
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert "for the 10th time" in caplog.text
