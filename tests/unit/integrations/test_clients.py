"""Invariant tested: an adopted client reads from the cache exactly what its API server answers."""

from __future__ import annotations

import asyncio
import copy
import inspect
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import MINE

import shmcache
from shmcache import states
from shmcache.integrations import reads
from shmcache.integrations.clients import CachedApi, CachedList
from shmcache.integrations.reads import CacheReads
from shmcache.testing import Cluster

PART = f"{MINE}part"
Asked = tuple[str, str, tuple[Any, ...], dict[str, Any]]

READS: list[Asked] = [
    ("core", "list_namespaced_pod", ("prod",), {}),
    ("core", "list_namespaced_pod", (), {"namespace": "prod", "label_selector": "app=web"}),
    ("core", "list_namespaced_pod", ("prod",), {"field_selector": "spec.nodeName=node-1"}),
    ("core", "list_namespaced_pod", ("prod",), {"limit": 100, "resource_version": "0"}),
    ("core", "list_namespaced_pod", ("nowhere",), {}),
    ("core", "list_pod_for_all_namespaces", (), {"label_selector": "app!=web"}),
    ("core", "list_node", (), {"_request_timeout": 5}),
    ("core", "read_namespaced_pod", ("web-1", "prod"), {}),
    ("core", "read_namespaced_pod", (), {"name": "web-2", "namespace": "prod"}),
    ("core", "read_node", ("node-1",), {}),
    ("apps", "read_namespaced_deployment_status", ("web", "prod"), {}),
    ("apps", "list_deployment_for_all_namespaces", (), {}),
]

LEFT: list[Asked] = [
    ("core", "list_namespaced_pod", ("prod",), {"limit": 1}),
    ("core", "list_namespaced_pod", ("prod",), {"resource_version": "1"}),
    ("core", "list_namespaced_pod", ("prod",), {"resource_version_match": "Exact"}),
    ("core", "list_namespaced_pod", ("prod",), {"field_selector": "spec.nodeName in (a)"}),
    ("core", "list_namespaced_pod", ("prod",), {"field_selector": "spec.hostname=a"}),
    ("core", "read_namespaced_pod", ("no-such-pod", "prod"), {}),
    ("core", "list_namespaced_secret", ("prod",), {}),
    ("core", "list_namespace", (), {}),
    ("apps", "list_namespaced_replica_set", ("prod",), {}),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        for number in range(6):
            labels = {"app": "web" if number % 2 else "db"}
            started.create(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"namespace": "prod", "name": f"web-{number}", "labels": labels},
                    "spec": {
                        "nodeName": f"node-{number % 2}",
                        "containers": [{"name": "c", "image": "i"}],
                    },
                }
            )
        started.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        started.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"namespace": "prod", "name": "web"},
                "spec": {
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {"containers": [{"name": "c", "image": "i"}]},
                    },
                },
            }
        )
        yield started


@pytest.fixture(scope="module")
def name(cluster: Cluster) -> str:
    return cluster.reflect("pods", "nodes", "deployments.apps").name


def client_of(library: str, cluster: Cluster) -> Any:
    if library == "kubernetes":
        from kubernetes import client
    elif library == "kubernetes.aio":
        from kubernetes.aio import client
    else:
        from kubernetes_asyncio import client
    return client, client.Configuration(host=cluster.url)


@pytest.mark.parametrize("library", ["kubernetes", "kubernetes.aio", "kubernetes_asyncio"])
def test_a_read_equals_that_of_the_api_server(cluster: Cluster, name: str, library: str) -> None:
    async def read() -> None:
        for asked in READS:
            theirs = await called(cluster, library, asked)
            before = dict(cluster.server.requests)
            ours = await called(cluster, library, asked, name)

            assert dict(cluster.server.requests) == before, f"{asked}: the cache has answered"
            if asked[1].startswith("list"):
                assert type(ours) is CachedList
                assert (ours.kind, ours.api_version) == (theirs.kind, theirs.api_version)
                assert type(ours.metadata) is type(theirs.metadata)
                assert [item.to_dict() for item in ours.items] == with_kind(theirs, ours), asked
            else:
                assert ours == theirs, asked

    asyncio.run(read())


@pytest.mark.parametrize("asked", LEFT)
def test_the_api_server_gets_each_read_that_the_cache_cannot_answer(
    cluster: Cluster, name: str, asked: Asked
) -> None:
    async def read() -> None:
        before = sum(cluster.server.requests.values())
        try:
            await called(cluster, "kubernetes", asked, name)
        except Exception as error:  # noqa: BLE001 - the client's, as it is
            assert isinstance(error, client_of("kubernetes", cluster)[0].ApiException)
        assert sum(cluster.server.requests.values()) == before + 1

    asyncio.run(read())


async def called(cluster: Cluster, library: str, asked: Asked, name: str | None = None) -> Any:
    """The result of a method, with the cache if there is a name."""
    api, method, args, kwargs = asked
    client, configuration = client_of(library, cluster)
    connection = client.ApiClient(configuration)
    made = {"core": client.CoreV1Api, "apps": client.AppsV1Api}[api](connection)
    found = getattr(made if name is None else CachedApi(made, name), method)(*args, **kwargs)
    if inspect.isawaitable(found):
        found = await found
    if library != "kubernetes":
        await connection.close()
    return found


def with_kind(theirs: Any, ours: CachedList) -> list[dict[str, Any]]:
    """The items of a list of the API server have no kind and no apiVersion; a view has."""
    named = {"kind": ours.kind.removesuffix("List"), "api_version": ours.api_version}
    return [{**item.to_dict(), **named} for item in theirs.items]


def test_a_cache_of_a_part_answers_for_that_part() -> None:
    """A selection, a namespace or a form that is not cached whole is the API server's."""
    parts: list[dict[str, Any]] = [
        {"namespaces": ["prod"]},
        {"namespaces": [], "labels": "app=web"},
        {"namespaces": [], "metadata_only": True},
        {"namespaces": [], "transform": "slim"},
    ]
    asked = {"": {}, "prod": {"namespace": "prod"}, "web": {"labels": "app=web,tier=x"}}
    found = []
    for part in parts:
        with shmcache.Writer(PART, [shmcache.Resource("pods", settings=part)]) as writer:
            writer.set_state("pods", states.SYNCED, "10")
            writer.note("pods", contact_ns=time.monotonic_ns())
            reads = CacheReads(PART)
            found.append(
                {
                    word
                    for word, how in asked.items()
                    if reads.resource("", "v1", "pods", **how) is not None
                }
            )
    assert found == [{"prod"}, {"web"}, set(), set()]


def test_a_copy_of_an_adopted_client_reads_as_the_client_does(cluster: Cluster, name: str) -> None:
    client, configuration = client_of("kubernetes", cluster)
    api = CachedApi(client.CoreV1Api(client.ApiClient(configuration)), name)
    copied = copy.copy(api)

    before = sum(cluster.server.requests.values())
    assert copied.read_node("node-1") == api.read_node("node-1")
    assert copied == api
    assert sum(cluster.server.requests.values()) == before


def test_a_cache_that_was_closed_just_now_leaves_reads_to_the_api_server(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another thread of the program."""
    used, fresh = CacheReads(name), CacheReads(name)
    with shmcache.attach(name) as cache:
        monkeypatch.setattr(reads, "attached", lambda *_, **__: cache)
        assert used.resource("", "v1", "pods") is not None
    for one in (used, fresh):
        assert one.resource("", "v1", "pods") is None
    assert list(CacheReads(name).kinds()) == []


def test_without_a_cache_everything_is_the_api_servers(cluster: Cluster) -> None:
    client, configuration = client_of("kubernetes", cluster)
    api = client.CoreV1Api(client.ApiClient(configuration))
    adopted = CachedApi(api, "no-such-cache")

    assert adopted.read_node("node-1").metadata.name == "node-1"
    assert adopted == api
    assert CacheReads("no-such-cache").resource("", "v1", "pods") is None
