"""Peers' cases: client-go's informer (tools/cache: shared_informer_test.go, controller_test.go and
reflector_test.go), and the reflector and watcher streams of kube-rs, by behaviour: the calls that a
handler receives, in a thread and on a loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from reconciled import PATIENCE, eventually

import shmcache
from shmcache import states
from shmcache.errors import ClosedError

Call = tuple[str, str, Any]


def pod(name: str, version: int = 1, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "prod", "uid": f"uid-of-{name}", "labels": labels}
    return {"metadata": metadata | {"resourceVersion": str(version)}}


def name_of(obj: Any) -> str:
    return str(obj["metadata"]["name"])


class Listener:
    """Handlers that record their calls, in a thread or on a loop of their own."""

    def __init__(self, cache: shmcache.Cache, *, asynchronous: bool) -> None:
        self.calls: list[Call] = []
        self._cache = cache
        self._asynchronous = asynchronous
        self._loop: asyncio.AbstractEventLoop | None = None
        if asynchronous:
            ready = threading.Event()

            def run() -> None:
                self._loop = asyncio.new_event_loop()
                self._loop.call_soon(ready.set)
                self._loop.run_forever()
                self._loop.close()

            self._thread = threading.Thread(target=run, daemon=True)
            self._thread.start()
            assert ready.wait(PATIENCE)

    def add(self, record: list[Call] | None = None, **options: Any) -> Any:
        calls = self.calls if record is None else record

        def on_add(obj: Any, initial: bool) -> None:
            calls.append(("add", name_of(obj), initial))

        def on_update(old: Any, new: Any) -> None:
            versions = [one["metadata"]["resourceVersion"] for one in (old, new)]
            calls.append(("update", name_of(new), versions))

        def on_delete(obj: Any, unknown: bool) -> None:
            calls.append(("delete", name_of(obj), unknown))

        def coroutine(call: Callable[..., None]) -> Any:
            async def handler(*arguments: Any) -> None:
                call(*arguments)

            return handler

        handlers = [on_add, on_update, on_delete]
        if not self._asynchronous:
            return self._cache["pods"].add_handler(*handlers, **options)

        async def register() -> Any:
            return self._cache["pods"].add_handler(*map(coroutine, handlers), **options)

        return self._on_loop(register)

    def start(self) -> None:
        if not self._asynchronous:
            self._cache.start()
            return

        async def start() -> None:
            self._cache.start()

        self._on_loop(start)

    def wait(self, count: int, calls: list[Call] | None = None) -> list[Call]:
        found = self.calls if calls is None else calls
        eventually(lambda: len(found) >= count, f"{found}")
        return found

    def close(self) -> None:
        if self._loop is not None:
            for task in asyncio.all_tasks(self._loop):
                self._loop.call_soon_threadsafe(task.cancel)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE)

    def _on_loop(self, function: Callable[[], Any]) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result(PATIENCE)


@pytest.fixture(params=[False, True], ids=["thread", "loop"])
def listener(cache: shmcache.Cache, request: pytest.FixtureRequest) -> Iterator[Listener]:
    made = Listener(cache, asynchronous=request.param)
    yield made
    cache.close()
    made.close()


def test_add_update_delete(writer: shmcache.Writer, listener: Listener) -> None:
    """Example, ExampleNewInformer: each change once, in order."""
    listener.add()
    listener.start()
    writer.apply("pods", [pod("a")])
    listener.wait(1)
    writer.apply("pods", [pod("a", 2)])
    writer.delete("pods", "prod/a")
    assert listener.wait(3) == [
        ("add", "a", True),
        ("update", "a", ["1", "2"]),
        ("delete", "a", False),
    ]


@pytest.mark.parametrize("count", [0, 1, 300])
def test_a_late_handler_receives_the_store_as_initial_adds(
    writer: shmcache.Writer, listener: Listener, count: int
) -> None:
    """TestAddWhileActive, kube-rs: Event::Init, InitApply, InitDone."""
    writer.apply("pods", [pod(f"p{number:03}") for number in range(count)])
    writer.set_state("pods", states.SYNCED, "1")
    listener.start()
    registration = listener.add()
    eventually(lambda: registration.has_synced)
    assert listener.calls == [("add", f"p{number:03}", True) for number in range(count)]
    writer.apply("pods", [pod("live")])
    assert listener.wait(count + 1)[-1] == ("add", "live", False)


def test_a_handler_is_synced_after_its_initial_adds(
    writer: shmcache.Writer, listener: Listener
) -> None:
    """TestAddWhileActive: HasSynced of a handler is false until its replay was processed."""
    writer.set_state("pods", states.LISTING, "")
    registration = listener.add()
    listener.start()
    assert not registration.has_synced
    writer.apply("pods", [pod("a")])
    listener.wait(1)
    assert not registration.has_synced
    writer.set_state("pods", states.SYNCED, "1")
    eventually(lambda: registration.has_synced)


@pytest.mark.parametrize("how", ["put", "delete", "both"])
def test_an_object_that_changes_while_the_handler_is_away_is_delivered_once(
    writer: shmcache.Writer, listener: Listener, how: str
) -> None:
    """TestSharedInformerWatchDisruption: only real changes after a relist."""
    writer.apply("pods", [pod("same"), pod("changed"), pod("gone")])
    writer.set_state("pods", states.SYNCED, "1")
    listener.add()
    listener.start()
    listener.wait(3)
    del listener.calls[:]
    content = [pod("same")]
    content += [pod("changed", 2)] if how != "delete" else [pod("changed")]
    content += [] if how != "put" else [pod("gone")]
    writer.replace("pods", content)
    expected = {
        "put": {("update", "changed")},
        "delete": {("delete", "gone")},
        "both": {("update", "changed"), ("delete", "gone")},
    }[how]
    listener.wait(len(expected))
    time.sleep(0.02)
    assert {call[:2] for call in listener.calls} == expected
    assert len(listener.calls) == len(expected)


def test_a_relist_without_a_change_calls_nothing(
    writer: shmcache.Writer, listener: Listener
) -> None:
    """R-SI-04: client-go sends an update for each object there. Differs on purpose."""
    content = [pod(f"p{number}") for number in range(5)]
    writer.replace("pods", content)
    listener.add()
    listener.start()
    listener.wait(5)
    writer.replace("pods", content)
    writer.apply("pods", [pod("last")])
    assert listener.wait(6)[-1][:2] == ("add", "last")
    assert len(listener.calls) == 6


@pytest.mark.parametrize("count", [2, 5])
def test_the_same_handlers_may_be_registered_several_times(
    writer: shmcache.Writer, listener: Listener, count: int
) -> None:
    """TestSharedInformerMultipleRegistration: each registration is one of its own."""
    records: list[list[Call]] = [[] for _ in range(count)]
    registrations = [listener.add(record) for record in records]
    listener.start()
    writer.apply("pods", [pod("a")])
    for record in records:
        assert len(listener.wait(1, record)) == 1
    assert registrations[0].remove()
    writer.apply("pods", [pod("b")])
    for record in records[1:]:
        listener.wait(2, record)
    assert len(records[0]) == 1


@pytest.mark.parametrize("when", ["before", "running", "twice", "closed"])
def test_a_registration_is_removed(
    writer: shmcache.Writer, cache: shmcache.Cache, listener: Listener, when: str
) -> None:
    """TestSharedInformerRemoveHandler, TestRemoveWhileActive, TestRemovingRemovedSharedInformer,
    TestRemoveOnStoppedSharedInformer."""
    registration = listener.add()
    if when == "before":
        assert registration.remove()
    listener.start()
    if when != "before":
        writer.apply("pods", [pod("a")])
        listener.wait(1)
        if when == "closed":
            cache.close()
        assert registration.remove()
        if when == "twice":
            assert registration.remove()
    calls = list(listener.calls)
    if when != "closed":
        writer.apply("pods", [pod("b")])
        time.sleep(0.03)
    assert listener.calls == calls
    assert not registration.active


def test_a_closed_cache_takes_no_handler(cache: shmcache.Cache, listener: Listener) -> None:
    """TestAddOnStoppedSharedInformer."""
    listener.start()
    cache.close()
    with pytest.raises(ClosedError):
        listener.add()


def test_start_may_be_repeated(writer: shmcache.Writer, listener: Listener) -> None:
    """TestSharedInformerStartRace: a second Run is a warning there; here it does nothing."""
    listener.add()
    for _ in range(3):
        listener.start()
    writer.apply("pods", [pod("a")])
    listener.wait(1)
    time.sleep(0.02)
    assert len(listener.calls) == 1


TRANSITIONS = [
    ("web", "web", "update"),
    ("web", "db", "delete"),
    ("db", "web", "add"),
    ("db", "db", None),
    (None, "web", "add"),
    (None, "db", None),
    ("web", None, "delete"),
    ("db", None, None),
]


@pytest.mark.parametrize(("before", "after", "expected"), TRANSITIONS)
def test_selected_objects_enter_and_leave(
    writer: shmcache.Writer,
    listener: Listener,
    before: str | None,
    after: str | None,
    expected: str | None,
) -> None:
    """FilteringResourceEventHandler: pass and fail, before and after."""
    if before is not None:
        writer.apply("pods", [pod("a", 1, app=before)])
    writer.set_state("pods", states.SYNCED, "1")
    registration = listener.add(labels="app=web")
    listener.start()
    eventually(lambda: registration.has_synced)
    del listener.calls[:]
    if after is None:
        writer.delete("pods", "prod/a")
    else:
        writer.apply("pods", [pod("a", 2, app=after)])
    writer.apply("pods", [pod("mark", 3, app="web")])
    eventually(lambda: listener.calls and listener.calls[-1][1] == "mark")
    assert [call[0] for call in listener.calls[:-1]] == ([expected] if expected else [])


def test_a_handler_that_raises_delays_no_other(
    writer: shmcache.Writer, cache: shmcache.Cache, listener: Listener
) -> None:
    """TestEventPanics: others go on, the message has the name of the handler."""

    def broken(_obj: Any, _initial: bool) -> None:
        raise RuntimeError("a panic")

    if not listener._asynchronous:
        cache["pods"].add_handler(on_add=broken)
    listener.add()
    listener.start()
    writer.apply("pods", [pod("a"), pod("b")])
    assert [call[1] for call in listener.wait(2)] == ["a", "b"]


def test_another_object_under_the_name_is_deleted_and_added(
    writer: shmcache.Writer, listener: Listener
) -> None:
    """Differs on purpose: client-go sends Update(old, new) of two UIDs (kubernetes #63217)."""
    writer.apply("pods", [pod("a")])
    listener.add()
    listener.start()
    listener.wait(1)
    other = pod("a", 9)
    other["metadata"]["uid"] = "another"
    writer.apply("pods", [other])
    assert [call[0] for call in listener.wait(3)] == ["add", "delete", "add"]


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_end_in_the_state_of_the_cache(
    writer: shmcache.Writer, cache: shmcache.Cache, listener: Listener, seed: int
) -> None:
    """TestHammerController, TestSharedInformerHandlerAbuse."""
    listener.add()
    listener.start()
    for turn in range(150):
        name = f"p{(turn * 7 + seed * 13) % 11}"
        if (turn + seed) % 4 == 0 and f"prod/{name}" in cache["pods"]:
            writer.delete("pods", f"prod/{name}")
        else:
            writer.apply("pods", [pod(name, turn + 2)])
    writer.apply("pods", [pod("last")])
    eventually(lambda: any(call[1] == "last" for call in listener.calls))
    there: set[str] = set()
    for kind, name, _ in listener.calls:
        if kind == "add":
            assert name not in there
            there.add(name)
        else:
            assert name in there
        if kind == "delete":
            there.discard(name)
    assert there == {key.partition("/")[2] for key in cache["pods"]}
