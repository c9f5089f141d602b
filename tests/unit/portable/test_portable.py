"""Invariant tested: the private cache answers as the shared one does, and its states never change
(PORT1); each registration receives one content, then every change in order (PORT2)."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from workers import eventually

import shmcache
from shmcache import portable, states
from shmcache.portable.feed import PrivateFeed, PrivateWanted
from shmcache.settings import Resource

Object = dict[str, Any]

pytestmark = pytest.mark.filterwarnings("ignore:this cache is private:RuntimeWarning")
PODS = Resource("pods", {"node": "spec.nodeName", "owner": "metadata.ownerReferences[*].uid"})


class Api(NamedTuple):
    writer: Callable[..., Any]
    attach: Callable[..., Any]


APIS = {
    "shared": Api(shmcache.Writer, shmcache.attach),
    "portable": Api(portable.NAMES["Writer"], portable.attach),
}


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Api:
    return APIS[request.param]


def pod(name: str, space: str = "prod", version: int = 1, **labels: str) -> Object:
    number = sum(name.encode())
    return {
        "metadata": {
            "name": name,
            "namespace": space,
            "uid": f"u-{space}-{name}",
            "resourceVersion": str(version),
            "labels": labels,
            "ownerReferences": [{"uid": f"o-{number % 3}"}],
        },
        "spec": {"nodeName": f"node-{number % 4}", "ports": [1, {"a": None}], "x": 1.5},
    }


# ---- one API, two caches -------------------------------------------------------------------------


def test_objects_read_as_dicts_that_cannot_change(api: Api, name: str) -> None:
    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        mine = pod("a", app="web")
        writer.apply("pods", [mine])
        view = cache["pods"]["prod/a"]
        mine["spec"]["nodeName"] = "changed by the program"

        assert pod("a", app="web") == view
        assert view == pod("a", app="web")
        assert "node-1" == view.spec.nodeName == view["spec"]["nodeName"]
        assert pod("a", app="web") == view.to_dict() == json.loads(view.json())
        assert [1, {"a": None}] == view.spec.ports
        assert {"a": None} == view.spec.ports[1]
        assert list(pod("a")) == list(view)
        assert isinstance(view.to_dict()["spec"]["ports"], list)
        with pytest.raises(AttributeError):
            view.spec.missing  # noqa: B018
        with pytest.raises(KeyError):
            view["missing"]
        with pytest.raises(TypeError):
            view["spec"] = {}
        with pytest.raises((TypeError, AttributeError)):
            view.spec = {}


QUERIES: list[dict[str, Any]] = [
    {},
    {"namespace": "prod"},
    {"labels": "app=web"},
    {"labels": "app in (web,api),tier!=x"},
    {"labels": {"app": "api"}},
    {"labels": "!app"},
    {"fields": "spec.nodeName=node-1"},
    {"fields": "metadata.namespace!=prod", "labels": "app"},
    {"limit": 3},
    {"after": "prod/p3", "limit": 2},
    {"namespace": "test", "after": "test/p2"},
]


def test_both_answer_random_content_alike(name: str, rng: random.Random) -> None:
    apis = [APIS["shared"], APIS["portable"]]
    writers = [api.writer(name, [PODS]) for api in apis]
    caches = [api.attach(name) for api in apis]
    for round_ in range(60):
        key = f"p{rng.randrange(9)}"
        space = rng.choice(["prod", "test"])
        labels = {"app": rng.choice(["web", "api"])} if rng.random() < 0.8 else {}
        obj = pod(key, space, round_, **labels)
        if rng.random() < 0.25:
            changed = [writer.delete("pods", f"{space}/{key}") for writer in writers]
        elif rng.random() < 0.1:
            changed = [writer.replace("pods", [obj], str(round_ + 1)) for writer in writers]
        else:
            changed = [writer.apply("pods", [obj]) for writer in writers]
        assert changed[0] == changed[1]
        shown = [answers(cache["pods"]) for cache in caches]
        assert shown[0] == shown[1]
    for one in (*caches, *writers):
        one.close()


def answers(pods: Any) -> list[Any]:
    """Everything that a resource answers, as plain values."""
    found: list[Any] = [[each.to_dict() for each in pods.list(**query)] for query in QUERIES]
    for value in ("node-0", "node-1", "none"):
        found.append([each.to_dict() for each in pods.by_index("node", value)])
        found.append(pods.index_keys("node", value, limit=2))
    found += [pods.index_values("owner"), pods.index_values("node", prefix="node-1"), len(pods)]
    found.append([(key, obj.to_dict()) for key, obj in pods.range("prod/p2", "test/p4", limit=5)])
    found += [list(pods), "prod/p1" in pods, pods.get("p1", namespace="prod"), pods.indices]
    found.append([obj.metadata.name for obj in pods.owned_by("o-1")])
    return found


def test_errors_are_the_same(api: Api, name: str) -> None:
    with pytest.raises(shmcache.SegmentNotFound):
        api.attach(name)
    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        with pytest.raises(shmcache.BusyError):
            api.writer(name, [])
        with pytest.raises(KeyError):
            cache["nodes"]
        with pytest.raises(KeyError, match="no index 'zone', only node, owner"):
            cache["pods"].by_index("zone", "a")
        with pytest.raises(shmcache.InvalidSelector):
            cache["pods"].list(labels="a in")
        with pytest.raises(shmcache.CacheTooOld):
            cache["pods"].list(max_age=100)
        with pytest.raises(shmcache.CacheTooOld):
            cache.snapshot(max_age=100)
        assert "instead" == cache["pods"].list(max_age=100, fallback=lambda: "instead")
        writer.set_state("pods", states.SYNCED, "1")
        writer.note("pods", contact_ns=time.monotonic_ns())
        with cache.snapshot(max_age=100) as at:
            assert 0 == len(at["pods"])
        with pytest.raises(shmcache.UnsupportedValue):
            writer.put("pods", "a", {"a": object()})
        cache.close()
        with pytest.raises(shmcache.ClosedError):
            list(cache["pods"])


def test_a_resource_has_kubectls_names(api: Api, name: str) -> None:
    with api.writer(name, ["pods", "deployments.apps"]) as _, api.attach(name) as cache:
        assert ["pods", "deployments.apps"] == list(cache) == list(cache.resources)
        assert "deployments.apps" == cache["deploy"].name
        assert "pods" == cache["po"].name == cache["Pod"].name


def test_a_snapshot_is_one_state(api: Api, name: str) -> None:
    """PORT1."""
    with api.writer(name, [PODS, "nodes"]) as writer, api.attach(name) as cache:
        writer.replace("pods", [pod("a"), pod("b")], "7")
        with cache.snapshot() as at:
            with writer.batch():
                writer.delete("pods", "prod/a")
                writer.put("pods", "prod/c", pod("c"))
                writer.put("nodes", "n", {"metadata": {"name": "n"}})
            assert ["prod/a", "prod/b"] == list(at["pods"])
            assert [] == list(at["nodes"])
            assert "7" == at.resource_versions["pods"]
            assert ["prod/b", "prod/c"] == list(cache["pods"])
            assert at.generation + 1 == cache.latest == cache.snapshot().generation
            assert not at["pods"].by_index("node", "node-3")
        with pytest.raises(shmcache.ClosedError):
            at["pods"]


def test_a_batch_that_raises_changes_nothing(api: Api, name: str) -> None:
    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        with pytest.raises(ZeroDivisionError), writer.batch():
            writer.apply("pods", [pod("a")])
            1 / 0  # noqa: B018
        assert [] == list(cache["pods"])


# ---- handlers and events -------------------------------------------------------------------------


def test_handlers_receive_content_then_each_change(api: Api, name: str) -> None:
    """PORT2."""
    seen: list[Any] = []
    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        writer.replace("pods", [pod("a", app="web"), pod("b", app="api")], "1")
        registration = cache["pods"].add_handler(
            on_add=lambda obj, initial: seen.append(("add", obj.metadata.name, initial)),
            on_update=lambda old, new: seen.append(
                ("update", old.metadata.resourceVersion, new.metadata.resourceVersion)
            ),
            on_delete=lambda obj, unknown: seen.append(("delete", obj.metadata.name, unknown)),
            labels="app=web",
        )
        cache.start()
        assert registration.wait_synced(30)
        assert [("add", "a", True)] == seen
        writer.apply("pods", [pod("a", version=2, app="web")])
        writer.apply("pods", [pod("b", version=2, app="web")])  # begins to match
        writer.apply("pods", [pod("a", version=3, app="api")])  # ceases to match
        writer.delete("pods", "prod/b", unknown=True)
        wanted = [
            ("add", "a", True),
            ("update", "1", "2"),
            ("add", "b", False),
            ("delete", "a", False),
            ("delete", "b", True),
        ]
        eventually(lambda: len(seen) >= 5, "events are missing")
        assert wanted == seen
        assert registration.remove(wait=True, timeout=30)
        writer.apply("pods", [pod("z", app="web")])
        assert not registration.active
    assert wanted == seen


def test_another_object_of_the_same_name_is_deleted_and_added(api: Api, name: str) -> None:
    seen: list[Any] = []
    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        writer.replace("pods", [pod("a")], "1")
        cache["pods"].add_handler(
            on_add=lambda obj, _: seen.append(("add", obj.metadata.uid)),
            on_update=lambda _, new: seen.append(("update", new.metadata.uid)),
            on_delete=lambda obj, _: seen.append(("delete", obj.metadata.uid)),
        )
        cache.start()
        eventually(lambda: seen, "no first content")
        other = pod("a", version=2)
        other["metadata"]["uid"] = "another"
        writer.apply("pods", [other])
        eventually(lambda: len(seen) >= 3, "events are missing")
    assert [("add", "u-prod-a"), ("delete", "u-prod-a"), ("add", "another")] == seen


def test_a_handler_that_raises_does_not_end_the_others(api: Api, name: str, caplog: Any) -> None:
    seen: list[str] = []

    def fail(obj: Any, _initial: bool) -> None:
        seen.append(obj.metadata.name)
        raise ValueError("a bug of the handler")

    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        cache["pods"].add_handler(on_add=fail)
        cache.start()
        for each in "abc":
            writer.apply("pods", [pod(each)])
        eventually(lambda: seen == ["a", "b", "c"], "events are missing")
    assert "a bug of the handler" in caplog.text


def test_resync_repeats_each_object(api: Api, name: str) -> None:
    repeated = threading.Event()
    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        writer.replace("pods", [pod("a")], "1")
        cache["pods"].add_handler(
            on_update=lambda old, new: repeated.set() if old == new else None, resync=1.0
        )
        cache.start()
        assert repeated.wait(30)


def test_events_on_asyncio(api: Api, name: str) -> None:
    async def collect(writer: Any, cache: Any) -> list[Any]:
        found: list[Any] = []
        events = cache["pods"].events(namespace="prod")
        async for event in events:
            found.append((event.type, event.key, event.initial))
            if len(found) == 1:
                threading.Thread(target=change, args=(writer,)).start()
            if event.type == "DELETED":
                break
        await events.aclose()
        return found

    def change(writer: Any) -> None:
        writer.apply("pods", [pod("a", version=2), pod("c", "test")])
        writer.delete("pods", "prod/a")

    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        writer.replace("pods", [pod("a")], "1")
        found = asyncio.run(asyncio.wait_for(collect(writer, cache), 60))
    assert [
        ("ADDED", "prod/a", True),
        ("MODIFIED", "prod/a", False),
        ("DELETED", "prod/a", False),
    ] == found


class Call(NamedTuple):
    """Of a handler."""

    kind: str
    name: str
    lost: bool
    """Whether the old state was a Tombstone."""
    flag: bool


class Slow:
    """A handler that stands still at its first object until it is let go."""

    def __init__(self) -> None:
        self.reached, self.released = threading.Event(), threading.Event()
        self.calls: list[Call] = []
        self.known: dict[str, str] = {}
        """The objects that it knows, with their versions."""

    def add(self, obj: Any, initial: bool) -> None:
        self._note("add", None, obj, initial)

    def update(self, old: Any, new: Any) -> None:
        self._note("update", old, new, False)

    def delete(self, obj: Any, unknown: bool) -> None:
        self._note("delete", obj, None, unknown)

    def _note(self, kind: str, old: Any, new: Any, flag: bool) -> None:
        each = (old if new is None else new)["metadata"]["name"]
        self.calls.append(Call(kind, each, isinstance(old, shmcache.Tombstone), flag))
        self.known.pop(each, None)
        if new is not None:
            self.known[each] = new.metadata.resourceVersion
        self.reached.set()
        assert self.released.wait(60)


def test_a_slow_handler_lapses_and_receives_the_difference(api: Api, name: str) -> None:
    """WINDOW2: as in shared memory, it learns what it missed and costs no memory meanwhile."""
    slow = Slow()
    with api.writer(name, [PODS], ring_slots=8) as writer, api.attach(name) as cache:
        writer.replace("pods", [pod(each) for each in "abcd"], "1")
        handler = cache["pods"].add_handler(slow.add, slow.update, slow.delete)
        cache.start()
        assert slow.reached.wait(30)
        slow.released.set()
        assert handler.wait_synced(30)
        slow.released.clear()
        slow.reached.clear()
        writer.apply("pods", [pod("e")])
        assert slow.reached.wait(30)  # the handler has not returned from the call for e
        for version in range(2, 40):
            writer.apply("pods", [pod("a", version=version), pod(f"x{version}")])
            writer.delete("pods", f"prod/x{version}")
        writer.delete("pods", "prod/b")
        other = pod("c", version=50)
        other["metadata"]["uid"] = "another"
        writer.apply("pods", [other, pod("f")])
        assert 5 == len(slow.calls)
        slow.released.set()
        eventually(lambda: len(slow.calls) >= 10, "events are missing")
        writer.apply("pods", [pod("z")])
        eventually(lambda: "z" in slow.known, "the live changes do not go on")
        assert 1 == handler.lapses

    assert [
        ("add", "a", False, True),
        ("add", "b", False, True),
        ("add", "c", False, True),
        ("add", "d", False, True),
        ("add", "e", False, False),
        ("update", "a", True, False),
        ("delete", "b", True, True),
        ("delete", "c", True, True),
        ("add", "c", False, False),
        ("add", "f", False, False),
        ("add", "z", False, False),
    ] == slow.calls
    assert "39" == slow.known["a"]


def test_the_window_of_a_slow_consumer_is_bounded(name: str) -> None:
    """WINDOW2: a consumer that takes nothing holds one window at most."""
    api = APIS["portable"]
    with (
        api.writer(name, [PODS], ring_slots=8) as writer,
        api.attach(name) as cache,
        PrivateFeed(cache.store, "pods", PrivateWanted(), changes_only=True) as feed,
    ):
        for version in range(100):
            writer.apply("pods", [pod("a", version=version)])
            assert len(feed._window) <= 8
        change = feed.take(0)

        assert change is not None
        assert change.new is not None
        assert "99" == change.new.metadata.resourceVersion
        assert feed.take(0) is None
        assert 1 == feed.lapses


def test_a_lapse_during_the_first_content_loses_nothing(api: Api, name: str) -> None:
    slow = Slow()
    with api.writer(name, [PODS], ring_slots=8) as writer, api.attach(name) as cache:
        writer.replace("pods", [pod(each) for each in "bcd"], "1")
        handler = cache["pods"].add_handler(slow.add, slow.update, slow.delete)
        cache.start()
        assert slow.reached.wait(30)
        for version in range(2, 40):
            writer.apply("pods", [pod("b", version=version)])
        writer.apply("pods", [pod("a")])
        writer.delete("pods", "prod/d")
        assert not handler.has_synced
        slow.released.set()
        assert handler.wait_synced(30)
        last = {"a": "1", "b": "39", "c": "1"}
        eventually(lambda: last == slow.known, "changes are lost")


def test_a_handler_that_always_raises_is_logged_now_and_then(
    api: Api, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """G14: each distinct error once, then at the 10th."""

    def fail(_obj: Any, _initial: bool) -> None:
        raise ValueError("always")

    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        handler = cache["pods"].add_handler(on_add=fail)
        cache.start()
        writer.apply("pods", [pod(f"p{number}") for number in range(30)])
        eventually(lambda: handler.handled == 30, "calls are missing")
        assert 30 == handler.errors == handler.counts["ADDED"]
    assert 1 == caplog.text.count("Traceback")


# ---- waits ---------------------------------------------------------------------------------------


def later(function: Callable[..., Any], *arguments: Any) -> threading.Thread:
    thread = threading.Timer(0.05, function, arguments)
    thread.start()
    return thread


def test_waits_end_with_their_fact(api: Api, name: str) -> None:
    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        pods = cache["pods"]
        assert not pods.wait_synced(0.01)
        writer.replace("pods", [pod("a")], "7")
        later(writer.set_state, "pods", states.SYNCED)
        assert pods.wait_synced(60)
        assert pods.synced
        assert "synced" == pods.status.state
        assert pods.wait_for("7", 60)
        assert not pods.wait_for("8", 0.01)
        later(writer.set_state, "pods", states.SYNCED, "10")
        assert pods.wait_for("8", 60)
        assert not pods.wait_deleted("prod/a", "u-prod-a", 0.01)
        assert pods.wait_deleted("prod/a", "another", 60)
        later(writer.delete, "pods", "prod/a")
        assert pods.wait_deleted("prod/a", "u-prod-a", 60)
        since = cache.latest
        assert not cache.wait(since, 0.01)
        later(writer.apply, "pods", [pod("b")])
        assert cache.wait(since, 60)


def test_waiting_for_resources_ends_with_their_publications_alone(api: Api, name: str) -> None:
    with api.writer(name, resources=["pods", "nodes"]) as writer, api.attach(name) as cache:
        since = cache.latest
        writer.apply("pods", [pod("a")])
        assert cache.wait(since, 60, resources=["nodes", "po"])  # it has come already
        assert not cache.wait(since, 0.01, resources=["nodes"])


def test_wait_until_sees_each_state(api: Api, name: str) -> None:
    seen: list[str] = []

    def third(view: Any) -> bool:
        seen.append(view.metadata.resourceVersion)
        return bool(view.metadata.resourceVersion == "3")

    def change(writer: Any) -> None:
        for version in (1, 2, 3, 4):
            writer.apply("pods", [pod("a", version=version)])

    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        assert cache["pods"].wait_until("prod/a", third, 0.01) is None
        thread = later(change, writer)
        found = cache["pods"].wait_until("prod/a", third, 60)
        thread.join()
        assert ["1", "2", "3"] == seen
        assert "3" == found.metadata.resourceVersion
        later(writer.delete, "pods", "prod/a")
        with pytest.raises(shmcache.ObjectDeleted) as ended:
            cache["pods"].wait_until("prod/a", lambda _: False, 60)
        assert ("prod/a", "4") == (ended.value.key, ended.value.last.metadata.resourceVersion)
        gone = cache["pods"].wait_until("prod/a", lambda obj: obj is None, 60, absent=True)
        assert isinstance(gone, shmcache.Tombstone)


def test_waits_on_asyncio(api: Api, name: str) -> None:
    async def wait(pods: Any, writer: Any) -> list[bool]:
        writer.replace("pods", [pod("a")], "6")
        later(writer.set_state, "pods", states.SYNCED, "7")
        found = [await pods.wait_synced_async(60), await pods.wait_for_async("7", 60)]
        found.append(await pods.wait_for_async("9", 0.01))
        later(writer.delete, "pods", "prod/a")
        found.append(await pods.wait_deleted_async("prod/a", "u-prod-a", 60))
        return found

    with api.writer(name, [PODS]) as writer, api.attach(name) as cache:
        assert [True, True, False, True] == asyncio.run(wait(cache["pods"], writer))


def test_attach_waits_for_its_cache(api: Api, name: str) -> None:
    begun: list[Any] = []
    thread = later(lambda: begun.append(api.writer(name, [PODS])))
    with api.attach(name, timeout=60) as cache:
        thread.join()
        assert [] == list(cache["pods"])
    begun[0].close()


def test_close_ends_a_wait(api: Api, name: str) -> None:
    with api.writer(name, [PODS]), api.attach(name) as cache:
        start, since = time.monotonic(), cache.latest
        later(cache.close)
        try:
            assert not cache.wait(since, 300)
        except shmcache.ClosedError:
            pass
        assert time.monotonic() - start < 300


# ---- only the private one ------------------------------------------------------------------------


def test_parts_that_need_shared_memory_are_named(name: str) -> None:
    with portable.NAMES["Writer"](name, [PODS]), portable.attach(name) as cache:
        for use in (
            lambda: cache.queue("q"),
            lambda: cache.at(seconds_ago=1),
            lambda: cache["pods"].consumer("a", "/"),
            lambda: cache["pods"].list(consistent=True),
            lambda: cache["pods"].list(shard=(0, 2)),
            lambda: portable.attach(name, models="kubernetes"),
        ):
            with pytest.raises(portable.NotPortable, match="needs the cache in shared memory"):
                use()
