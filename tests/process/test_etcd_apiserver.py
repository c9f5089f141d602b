"""Invariants tested: ETCDOBJ1 to ETCDOBJ4: API servers for tests keep their state in etcd."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from etcds import Following, equals, server, until

from shmcache.protocol.failures import Failure
from shmcache.testing import ApiServer
from shmcache.testing.etcd import EtcdServer

Object = dict[str, Any]
DEFINITION = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
}


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServer]:
    yield from server()


@pytest.fixture(autouse=True)
def _emptied(etcd: EtcdServer) -> None:
    etcd.clear()


def pod(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": {}}


def read(server: ApiServer, path: str) -> Object:
    with urllib.request.urlopen(server.url + path) as answer:  # noqa: S310 - http
        found: Object = json.load(answer)
        return found


def test_state_and_history_survive_a_restart(etcd: EtcdServer) -> None:
    with ApiServer(etcd=etcd.endpoints) as first:
        first.create("customresourcedefinitions.apiextensions.k8s.io", DEFINITION)
        first.create("widgets", {"metadata": {"name": "w"}, "spec": {"x": 1}})
        made = first.create("pods", pod("a"))
        first.update("pods", {**made, "metadata": {**made["metadata"], "labels": {"x": "y"}}})
        version = first.version

    with ApiServer(etcd=etcd.endpoints) as second:
        assert int(second.version) >= int(version)
        assert second.get("pods", "a", "default")["metadata"]["labels"] == {"x": "y"}
        assert read(second, "/apis/example.com/v1/widgets")["items"][0]["spec"] == {"x": 1}
        past = f"/api/v1/pods?resourceVersion={made['metadata']['resourceVersion']}"
        [then] = read(second, f"{past}&resourceVersionMatch=Exact")["items"]
        assert then["metadata"]["labels"] == {}


def test_compaction_is_real(etcd: EtcdServer) -> None:
    with ApiServer(etcd=etcd.endpoints) as first:
        made = first.create("pods", pod("a"))
        first.create("pods", pod("b"))
        first.compact()
    with ApiServer(etcd=etcd.endpoints) as second:
        version = made["metadata"]["resourceVersion"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            read(second, f"/api/v1/pods?resourceVersion={version}&resourceVersionMatch=Exact")
        assert refused.value.code == 410
        refused.value.close()
        watched = read(second, f"/api/v1/pods?watch=1&resourceVersion={version}&timeoutSeconds=1")
        assert [watched["type"], watched["object"].get("code")] == ["ERROR", 410]
        assert len(second.list("pods")) == 2


def test_replicas_show_each_others_writes_at_once(etcd: EtcdServer) -> None:
    with ApiServer(etcd=etcd.endpoints) as left, ApiServer(etcd=etcd.endpoints) as right:
        for n in range(20):
            here, there = (left, right) if n % 2 else (right, left)
            made = here.create("pods", pod(f"p{n}"))
            found = read(there, f"/api/v1/namespaces/default/pods/p{n}")
            assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        left.create("customresourcedefinitions.apiextensions.k8s.io", DEFINITION)
        assert read(right, "/api/v1/pods")["items"]
        assert read(right, "/apis/example.com/v1/widgets")["items"] == []
        left.delete("pods", "p0", "default")
        assert len(read(right, "/api/v1/pods")["items"]) == 19


def test_replicas_never_lose_an_update(etcd: EtcdServer) -> None:
    def bump(server: ApiServer) -> None:
        for _ in range(15):
            while True:
                found = server.get("pods", "a", "default")
                labels = {"n": str(int(found["metadata"]["labels"]["n"]) + 1)}
                found["metadata"]["labels"] = labels
                with contextlib.suppress(Failure):  # 409: somebody was faster
                    server.update("pods", found)
                    break

    with ApiServer(etcd=etcd.endpoints) as left, ApiServer(etcd=etcd.endpoints) as right:
        left.create("pods", pod("a", n="0"))
        until(lambda: right.list("pods"), "the pod at the other server")
        threads = [threading.Thread(target=bump, args=(each,)) for each in (left, right)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert left.get("pods", "a", "default")["metadata"]["labels"] == {"n": "30"}
        with pytest.raises(Failure, match="already exists"):
            right.create("pods", pod("a"))


def test_a_watch_at_one_server_shows_writes_at_the_other(etcd: EtcdServer) -> None:
    with ApiServer(etcd=etcd.endpoints) as left, ApiServer(etcd=etcd.endpoints) as right:
        version = right.version
        path = f"/api/v1/pods?watch=true&resourceVersion={version}&timeoutSeconds=5"
        with urllib.request.urlopen(right.url + path) as watch:  # noqa: S310
            left.create("pods", pod("a"))
            left.update("pods", pod("a", x="y"))
            left.delete("pods", "a", "default")
            types = [json.loads(watch.readline())["type"] for _ in range(3)]
        assert types == ["ADDED", "MODIFIED", "DELETED"]


def test_a_cache_of_the_servers_etcd_has_the_servers_versions(etcd: EtcdServer, name: str) -> None:
    with ApiServer(etcd=etcd.endpoints) as api:
        api.create("customresourcedefinitions.apiextensions.k8s.io", DEFINITION)
        for n in range(5):
            api.create("widgets", {"metadata": {"name": f"w{n}"}, "spec": {"n": n}})
        prefix = "/registry/example.com/widgets/"
        with Following(name, etcd, {"widgets": prefix}) as following:
            api.update("widgets", {"metadata": {"name": "w1"}, "spec": {"n": 10}})
            api.delete("widgets", "w2", "default")
            until(lambda: equals(etcd, following, "widgets", prefix), "equality")
            theirs = {f"default/{w['metadata']['name']}": w for w in api.list("widgets")}
            assert following.content("widgets") == theirs


def test_without_the_option_nothing_is_in_etcd(etcd: EtcdServer) -> None:
    with ApiServer() as api:
        api.create("pods", pod("a"))
    assert etcd.content("/") == {}
