"""Invariants tested: STORE1 to STORE4, LEASE1: the behaviours of Kubernetes' etcd3 store tests.

Store and AsyncStore run the same cases, on a real etcd with a cache in this process.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from etcds import WIDGETS, Following, server, until

import shmcache
from shmcache.errors import SourceError
from shmcache.etcd import (
    AsyncStore,
    EtcdError,
    KeyChanged,
    KeyExists,
    KeyMissing,
    RevisionGone,
    Store,
    WriteUnknown,
)
from shmcache.testing.etcd import EtcdServer

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
Object = dict[str, Any]
NOBODY = "http://127.0.0.1:1"


def widget(name: str, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "ns", "uid": f"u-{name}"}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec}


def version(obj: Object | None) -> str:
    assert obj is not None
    found: str = obj["metadata"]["resourceVersion"]
    return found


class Blocking:
    """An AsyncStore with the methods of Store."""

    def __init__(self, etcd: str, keys: str, cached: Any = None, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.store = AsyncStore(etcd, keys, cached, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = getattr(self.store, name)
        if name == "wait_for":
            wait: Callable[..., Any] = found
            return wait
        return lambda *args, **kw: self.loop.run_until_complete(found(*args, **kw))

    def list(self, **options: Any) -> list[Object]:
        async def collected() -> list[Object]:
            return [obj async for obj in self.store.list(**options)]

        return self.loop.run_until_complete(collected())

    def close(self) -> None:
        self.loop.run_until_complete(self.store.close())
        self.loop.close()


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServer]:
    yield from server()


@pytest.fixture(params=[Store, Blocking], ids=["sync", "async"])
def make(request: pytest.FixtureRequest, etcd: EtcdServer) -> Iterator[Callable[..., Any]]:
    etcd.clear()
    made: list[Any] = []

    def store(cached: Any = None, keys: str = WIDGETS, **options: Any) -> Any:
        made.append(request.param(etcd.endpoints, keys, cached, **options))
        return made[-1]

    yield store
    for each in made:
        each.close()


@pytest.fixture
def following(etcd: EtcdServer, name: str) -> Iterator[Following]:
    plan = {"widgets": {"keys": WIDGETS, "keep_managed_fields": True}}
    with Following(name, etcd, plan) as found:
        yield found


def test_create_get_and_create_again(make: Callable[..., Any], etcd: EtcdServer) -> None:
    store = make()

    made = store.create("ns/a", widget("a", x=1))

    assert store.get("ns/a") == made
    assert version(made) == str(etcd.content(WIDGETS)[f"{WIDGETS}ns/a"][0])
    assert json.loads(etcd.content(WIDGETS)[f"{WIDGETS}ns/a"][1]) == widget("a", x=1)
    with pytest.raises(KeyExists):
        store.create("ns/a", widget("a"))
    assert store.get("ns/b") is None


def test_delete_with_preconditions(make: Callable[..., Any]) -> None:
    store = make()
    made = store.create("ns/a", widget("a"))
    for wrong in ({"uid": "other"}, {"version": "1"}):
        with pytest.raises(KeyChanged):
            store.delete("ns/a", **wrong)

    last = store.delete("ns/a", uid="u-a", version=version(made))

    assert int(version(last)) > int(version(made))
    with pytest.raises(KeyMissing):
        store.delete("ns/a")


def test_an_update_of_a_missing_key(make: Callable[..., Any]) -> None:
    store = make()
    with pytest.raises(KeyMissing):
        store.guaranteed_update("ns/a", lambda obj: obj)

    made = store.guaranteed_update("ns/a", lambda obj: obj or widget("a", x=1), create=True)

    assert made["spec"] == {"x": 1}


def test_an_update_that_changes_nothing_writes_nothing(
    make: Callable[..., Any], etcd: EtcdServer
) -> None:
    store = make()
    made = store.create("ns/a", widget("a"))
    before = etcd.put("/elsewhere", b"")

    assert store.guaranteed_update("ns/a", lambda obj: obj) == made
    assert store.guaranteed_update("ns/a", lambda _: None) == made
    assert etcd.put("/elsewhere", b"") == before + 1


def test_an_error_of_the_function_is_the_callers(make: Callable[..., Any]) -> None:
    store = make()
    store.create("ns/a", widget("a"))

    with pytest.raises(ZeroDivisionError):
        store.guaranteed_update("ns/a", lambda _: 1 // 0)


def test_updates_of_many_writers_are_all_there(make: Callable[..., Any]) -> None:
    store = make()
    store.create("ns/a", widget("a", x=0))

    def bump(obj: Object | None) -> Object | None:
        assert obj is not None
        obj["spec"]["x"] += 1
        return obj

    stores = [make() for _ in range(4)]
    threads = [
        threading.Thread(target=lambda s=s: [s.guaranteed_update("ns/a", bump) for _ in range(10)])
        for s in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert store.get("ns/a")["spec"]["x"] == 40


def test_an_update_begins_from_the_cache(
    make: Callable[..., Any], following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(following.cache["widgets"])
    made = store.create("ns/a", widget("a", x=0))
    assert store.wait_for(made, 10)
    requests: list[str] = []
    inner = store if isinstance(store, Store) else store.store
    name = "call" if isinstance(store, Store) else "call_async"
    call = getattr(inner.connection, name)

    def counted(method: Any, *args: Any, **options: Any) -> Any:
        requests.append(method.path.rpartition("/")[2])
        return call(method, *args, **options)

    monkeypatch.setattr(inner.connection, name, counted)

    store.guaranteed_update("ns/a", lambda obj: obj | {"spec": {"x": 1}})

    assert requests == ["Txn"]


@pytest.fixture
def old(make: Callable[..., Any], following: Following) -> Any:
    """A store whose cache does not follow any more: it has x=0, and etcd x=1."""
    store = make(following.cache["widgets"])
    made = store.create("ns/a", widget("a", x=0))
    assert store.wait_for(made, 10)
    following.engine.stop()
    make().guaranteed_update("ns/a", lambda obj: obj | {"spec": {"x": 1}})
    return store


def test_an_old_cached_object_is_read_again(old: Any) -> None:
    seen: list[int] = []

    def bump(obj: Object | None) -> Object | None:
        assert obj is not None
        seen.append(obj["spec"]["x"])
        return obj | {"spec": {"x": obj["spec"]["x"] + 1}}

    made = old.guaranteed_update("ns/a", bump)

    assert seen == [0, 1]
    assert made["spec"] == {"x": 2}


def test_a_refusal_or_no_change_of_an_old_object_is_decided_again(old: Any) -> None:
    def only_one(obj: Object | None) -> Object | None:
        assert obj is not None
        if obj["spec"]["x"] == 0:
            raise ZeroDivisionError
        return obj | {"spec": {"x": 5}}

    assert old.guaranteed_update("ns/a", only_one)["spec"] == {"x": 5}
    current = version(old.get("ns/a"))
    assert old.guaranteed_update("ns/a", lambda obj: obj | {"spec": {"x": 0}})["spec"] == {"x": 0}
    with pytest.raises(KeyChanged):
        old.guaranteed_update("ns/a", lambda obj: obj, version=current)
    current = version(old.get("ns/a"))
    assert old.delete("ns/a", version=current)["spec"] == {"x": 0}


def test_a_cache_without_whole_objects_is_not_used(
    make: Callable[..., Any], etcd: EtcdServer, name: str
) -> None:
    """Without managedFields an update would lose them."""
    with Following(name, etcd, {"widgets": WIDGETS}) as found:
        store = make(found.cache["widgets"])
        managed = [{"manager": "m", "operation": "Update"}]
        obj = widget("a")
        obj["metadata"]["managedFields"] = managed
        assert store.wait_for(store.create("ns/a", obj), 10)

        store.guaranteed_update("ns/a", lambda obj: obj | {"spec": {"x": 1}})

        assert store.get("ns/a")["metadata"]["managedFields"] == managed


def test_pages_are_of_one_revision(make: Callable[..., Any], etcd: EtcdServer) -> None:
    store = make()
    for n in range(7):
        store.create(f"ns/{n}", widget(str(n)))
    first = store.page(3)
    store.delete("ns/4")
    store.create("ns/99", widget("99"))
    second = store.page(3, first.continue_token)
    last = store.page(3, second.continue_token)

    names = [obj["metadata"]["name"] for page in (first, second, last) for obj in page.items]
    assert names == [str(n) for n in range(7)]
    assert {page.version for page in (first, second, last)} == {first.version}
    assert (first.remaining, last.continue_token) == (4, "")
    assert len(list(store.list(limit=2, version=first.version))) == 7
    assert [obj["metadata"]["name"] for obj in store.list(limit=2)][-1] == "99"
    assert store.count() == 7
    etcd.compact(etcd.put("/elsewhere", b""))
    with pytest.raises(RevisionGone):
        store.page(3, first.continue_token)
    with pytest.raises(EtcdError, match="not a continue token"):
        store.page(3, "nonsense")


@pytest.mark.parametrize(("form", "value"), [("text", "a\nb"), ("bytes", "AP8="), ("json", [1])])
def test_other_values(make: Callable[..., Any], form: str, value: Any) -> None:
    store = make(keys="/conf/", value=form)

    made = store.create("a/b/c", {"value": value})

    assert store.get("a/b/c") == made
    assert made["value"] == value
    assert made["metadata"]["createRevision"] == version(made)
    with pytest.raises(EtcdError, match="not"):
        store.create("d", {"value": {1}})


def test_keys_with_a_time_to_live_end_and_share_a_lease(make: Callable[..., Any]) -> None:
    store = make()
    for n in range(5):
        store.create(f"ns/{n}", widget(str(n)), ttl=1)

    inner = store if isinstance(store, Store) else store.store
    assert inner._shared[1][2] >= 1
    until(lambda: store.count() == 0, "the keys have ended")


def test_a_lease_lives_until_it_is_closed(etcd: EtcdServer) -> None:
    etcd.clear()
    with Store(etcd.endpoints, "/services/") as store:
        with store.lease(1) as lease:
            store.create("a", {"port": 1}, lease=lease)
            assert not lease.lost.wait(2.5)
            assert store.get("a") is not None
        assert store.get("a") is None


def test_a_lease_that_nobody_can_renew_is_lost() -> None:
    """LEASE2: its holder must not go on while another one may have its keys."""
    with EtcdServer() as etcd, Store(etcd.endpoints, "/services/", timeout=2.0) as store:
        lease = store.lease(2)
        etcd.members[0].stop()
        assert lease.lost.wait(60)
        etcd.members[0].thaw()
        lease.close()


def reader(pipe: Any, name: str) -> None:
    with (
        shmcache.attach(name) as cache,
        Store(NOBODY, WIDGETS, cache["widgets"]) as at,
    ):
        pipe.send("ready")
        written = pipe.recv()
        pipe.send((at.wait_for(written, 20), cache["widgets"]["ns/a"]["spec"]["x"]))


def test_another_process_reads_a_write(etcd: EtcdServer, following: Following) -> None:
    etcd.clear()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=reader, args=(theirs, following.cache.name)
    )
    process.start()
    assert ours.recv() == "ready"
    with Store(etcd.endpoints, WIDGETS) as store:
        ours.send(version(store.create("ns/a", widget("a", x=7))))
        assert ours.recv() == (True, 7)
        with pytest.raises(EtcdError, match="no cache"):
            store.wait_for("1")
    process.join()


def test_nothing_is_changed_where_etcd_is_not_and_a_lost_answer_says_so() -> None:
    with Store(NOBODY, WIDGETS, timeout=2.0) as store:
        with pytest.raises(EtcdError, match="refused") as refused:
            store.create("ns/a", widget("a"))
        assert not isinstance(refused.value, WriteUnknown)
    with pytest.raises(SourceError, match="value must be"):
        Store(NOBODY, WIDGETS, value="yaml")


def test_a_frozen_etcd_leaves_a_write_unknown() -> None:
    with EtcdServer() as etcd, Store(etcd.endpoints, WIDGETS, timeout=1.0) as store:
        store.create("ns/a", widget("a"))
        etcd.members[0].stop()
        with pytest.raises(WriteUnknown):
            store.create("ns/b", widget("b"))
        etcd.members[0].thaw()
