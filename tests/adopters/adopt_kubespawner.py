"""Invariant tested: KubeSpawner sees through the cache what its own reflectors see."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import kubespawner.clients
import pytest
from kubernetes_asyncio import config as client_config
from kubespawner import KubeSpawner
from kubespawner.spawner import EventReflector, PodReflector
from traitlets.config import Config

import shmcache
from shmcache.integrations.kubespawner import CachedKubeSpawner
from shmcache.testing import Cluster

LABELS = {"component": "singleuser-server", "hub.jupyter.org/username": "ann"}


def pod(name: str, phase: str, labels: dict[str, str], namespace: str = "hub") -> dict[str, Any]:
    running = {"running": {"startedAt": "2026-11-19T08:00:00Z"}}
    ended = {"terminated": {"exitCode": 3, "reason": "Error"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"containers": [{"name": "notebook", "image": "notebook"}]},
        "status": {
            "phase": phase,
            "containerStatuses": [
                {
                    "name": "notebook",
                    "image": "notebook",
                    "imageID": "docker://notebook",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "state": running if phase == "Running" else ended,
                }
            ],
            "podIP": "10.0.0.7",
        },
    }


def event(number: int, kind: str = "Pod") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "hub", "name": f"event-{number}"},
        "involvedObject": {"kind": kind, "name": "jupyter-ann", "namespace": "hub"},
        "message": f"event {number}",
        "lastTimestamp": f"2026-11-19T08:00:{60 - number:02d}Z",
    }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with Cluster() as started:
        where = "kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
        monkeypatch.setattr(where, started.kubeconfig)  # read from the environment at its import
        started.create(
            pod("jupyter-ann", "Running", LABELS),
            pod("jupyter-bob", "Failed", LABELS),
            pod("other", "Running", {"component": "proxy"}),
            pod("jupyter-ann", "Running", LABELS, namespace="elsewhere"),
            *[event(number) for number in range(1, 6)],
            event(6, kind="Node"),
        )
        yield started


@pytest.fixture
def cache(cluster: Cluster) -> shmcache.Cache:
    return cluster.reflect("pods", "events")


def as_cached(name: str, **settings: Any) -> KubeSpawner:
    config = Config()
    config.CachedKubeSpawner.shmcache_name = name
    spawner = CachedKubeSpawner(_mock=True, config=config, **settings)
    spawner.namespace = "hub"
    return spawner


async def both(cluster: Cluster, kind: Any, all_namespaces: bool, **how: Any) -> Any:
    """A reflector of KubeSpawner itself, with its first list."""
    await client_config.load_kube_config(cluster.kubeconfig)
    reflector = kind(namespace="hub", omit_namespace=all_namespaces, **how)
    await reflector.start()
    return reflector


@pytest.mark.parametrize("all_namespaces", [False, True])
def test_pods_equal_those_of_its_own_reflector(
    cluster: Cluster, cache: shmcache.Cache, all_namespaces: bool
) -> None:
    async def compare() -> None:
        await client_config.load_kube_config(cluster.kubeconfig)
        spawner = as_cached(cache.name, enable_user_namespaces=all_namespaces)
        spawner.namespace = "hub"
        ours = await spawner._start_watching_pods()
        for name in ("jupyter-bob", "jupyter-ann"):
            theirs = await both(
                cluster, PodReflector, all_namespaces, labels={"component": "singleuser-server"}
            )
            assert plain(ours.pods) == plain(theirs.pods)
            assert ("hub/jupyter-bob" in ours.pods) == ("hub/jupyter-bob" in theirs.pods)
            assert ours.pods.get("hub/other") is None
            await ended(theirs)
            cluster.server.delete("pods", name, "hub")
            await asyncio.to_thread(cluster.settle)
        await KubeSpawner._stop_all_reflectors()

    run(compare())


def test_events_equal_those_of_its_own_reflector(cluster: Cluster, cache: shmcache.Cache) -> None:
    async def compare() -> None:
        await client_config.load_kube_config(cluster.kubeconfig)
        ours = await as_cached(cache.name)._start_watching_events()
        fields = {"involvedObject.kind": "Pod"}
        theirs = await both(cluster, EventReflector, False, fields=fields)
        assert [one["message"] for one in theirs.events] == [f"event {n}" for n in range(5, 0, -1)]
        assert plain(enumerate(ours.events)) == plain(enumerate(theirs.events))
        await ended(theirs)
        await KubeSpawner._stop_all_reflectors()

    run(compare())


@pytest.mark.parametrize(("name", "status"), [("jupyter-ann", None), ("jupyter-bob", 3)])
def test_a_server_is_polled_from_the_cache(
    cluster: Cluster, cache: shmcache.Cache, name: str, status: int | None
) -> None:
    async def poll() -> Any:
        await client_config.load_kube_config(cluster.kubeconfig)
        spawner = as_cached(cache.name)
        spawner.pod_name = name
        before = cluster.server.requests["list", "pods"]
        found = await spawner.poll()
        assert cluster.server.requests["list", "pods"] == before
        await KubeSpawner._stop_all_reflectors()
        return found

    found = run(poll())
    assert found is None if status is None else found


def test_a_cache_that_is_missing_fails_the_start(cluster: Cluster) -> None:
    async def start() -> None:
        await client_config.load_kube_config(cluster.kubeconfig)
        with pytest.raises(shmcache.SegmentNotFound):
            await as_cached("no-such-cache")._start_watching_pods()
        await KubeSpawner._stop_all_reflectors()

    run(start())


async def ended(reflector: Any) -> None:
    with contextlib.suppress(asyncio.CancelledError):  # its own task's, which its stop() raises
        await reflector.stop()


def plain(objects: Any) -> dict[Any, Any]:
    """Without kind and apiVersion, which only the watch of a reflector of KubeSpawner has."""
    return {
        key: {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
        for key, obj in dict(objects).items()
    }


def run(work: Any) -> Any:
    """In a loop of its own; clients that belong to it are closed with its tasks."""
    try:
        return asyncio.run(work)
    finally:
        kubespawner.clients._client_cache.clear()
        KubeSpawner.reflectors.clear()
