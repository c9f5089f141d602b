"""Invariant tested: SkyPilot's function returns the same pods from the cache as from the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sky.provision.constants import TAG_SKYPILOT_CLUSTER_NAME
from sky.provision.kubernetes.utils import get_skypilot_pods
from sky.utils.plugin_extensions import PodInfoSource

import shmcache
from shmcache.integrations.skypilot import register
from shmcache.memory.contexts import context_name
from shmcache.testing import Cluster

CONTEXT = "testing"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One for all tests: SkyPilot keeps its client of a context."""
    with Cluster() as started, pytest.MonkeyPatch.context() as monkeypatch:
        for number in range(40):
            labels = {TAG_SKYPILOT_CLUSTER_NAME: "one"} if number % 4 else {"app": "web"}
            started.create(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"namespace": "sky", "name": f"pod-{number}", "labels": labels},
                    "spec": {
                        "nodeName": f"node-{number % 3}",
                        "containers": [
                            {
                                "name": "ray",
                                "image": "ray",
                                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
                            }
                        ],
                    },
                    "status": {"phase": "Running"},
                }
            )
        monkeypatch.setenv("KUBECONFIG", started.kubeconfig)
        yield started


@pytest.fixture(autouse=True)
def no_provider() -> Iterator[None]:
    yield
    PodInfoSource._provider_func = None


def context_of(cluster: Cluster) -> str:
    import yaml

    with open(cluster.kubeconfig, encoding="utf-8") as file:
        return str(yaml.safe_load(file)["current-context"])


def shown(pods: list[Any]) -> list[Any]:
    return sorted(
        (
            pod.metadata.name,
            pod.metadata.labels,
            pod.spec.node_name,
            pod.spec.containers[0].resources.requests,
            pod.status.phase,
        )
        for pod in pods
    )


def test_pods_equal_those_of_the_api_server(cluster: Cluster) -> None:
    context = context_of(cluster)
    theirs = get_skypilot_pods(context)
    cluster.reflect("pods", name=context_name("adopted", context))
    register("adopted")
    before = cluster.server.requests["list", "pods"]

    ours = get_skypilot_pods(context)

    assert cluster.server.requests["list", "pods"] == before, "the provider has answered"
    assert shown(theirs) == shown(ours)
    assert len(ours) == 30


def test_a_context_without_a_cache_is_left_to_the_api_server(cluster: Cluster) -> None:
    register("no-such-cache")
    before = cluster.server.requests["list", "pods"]

    assert len(get_skypilot_pods(context_of(cluster))) == 30
    assert cluster.server.requests["list", "pods"] == before + 1


def test_a_cache_that_is_too_old_is_left_to_the_api_server(cluster: Cluster) -> None:
    context = context_of(cluster)
    name = context_name("old", context)
    with shmcache.Writer(name, resources=["pods"]) as writer:
        writer.apply("pods", [])
        register("old", max_age=100)
        assert len(get_skypilot_pods(context)) == 30
