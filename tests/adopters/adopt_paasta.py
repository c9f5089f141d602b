"""Invariant tested: PaaSTA's look-ups give the same objects from the cache as from the API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import own_tests
import pytest
from paasta_tools import kubernetes_tools as paasta

from shmcache.integrations.clients import CachedApi
from shmcache.integrations.paasta import adopt
from shmcache.testing import Cluster

LABELS = {"paasta.yelp.com/service": "kurupt", "paasta.yelp.com/instance": "fm"}
MANAGED = {**LABELS, "paasta.yelp.com/managed": "true", "paasta.yelp.com/git_sha": "abc"}


def pod(number: int, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": f"pod-{number}",
            "labels": MANAGED if number % 2 else {"app": "other"},
        },
        "spec": {
            "nodeName": f"node-{number % 3}",
            "containers": [{"name": "main", "image": "i"}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def workload(kind: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"namespace": "paasta", "name": name, "labels": MANAGED},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {"containers": [{"name": "main", "image": "i"}]},
            },
        },
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        for number in range(12):
            started.create(pod(number, "paasta" if number % 4 else "elsewhere"))
        for number in range(3):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}}
            started.create(node)
        started.create(
            *[workload("Deployment", name) for name in ("kurupt-fm", "kurupt-am")],
            workload("StatefulSet", "kurupt-disk"),
            workload("ReplicaSet", "kurupt-fm-1"),
        )
        yield started


@pytest.fixture(scope="module")
def clients(cluster: Cluster) -> tuple[Any, Any]:
    """PaaSTA's own client, and one that is adopted."""
    own = paasta.KubeClient(component="own", config_file=cluster.kubeconfig)
    cluster.reflect(
        "pods",
        "nodes",
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
        name="adopted-paasta",
    )
    adopt("adopted-paasta")
    return own, paasta.KubeClient(component="adopted", config_file=cluster.kubeconfig)


LOOK_UPS: dict[str, Any] = {
    "pods": lambda client: paasta.get_all_pods(client, "paasta"),
    "pods everywhere": lambda client: paasta.get_all_pods(client, None),
    "pods, kept by PaaSTA": lambda client: paasta.get_all_pods_cached(client, "paasta"),
    "nodes": paasta.get_all_nodes,
    "nodes, kept by PaaSTA": paasta.get_all_nodes_cached,
    "pods by node": lambda client: paasta.get_pods_by_node(client, paasta.get_all_nodes(client)[1]),
    "pods of an instance": lambda client: asyncio.run(
        paasta.pods_for_service_instance("kurupt", "fm", client, "paasta")
    ),
    "replica sets of an instance": lambda client: asyncio.run(
        paasta.replicasets_for_service_instance("kurupt", "fm", client, "paasta")
    ),
    "a deployment": lambda client: [
        paasta.get_kubernetes_app_by_name("kurupt-fm", client, "paasta")
    ],
}


@pytest.mark.parametrize("look_up", LOOK_UPS)
def test_a_look_up_equals_that_of_the_api_server(
    cluster: Cluster, clients: tuple[Any, Any], look_up: str
) -> None:
    own, adopted = clients
    theirs = LOOK_UPS[look_up](own)
    before = dict(cluster.server.requests)

    ours = LOOK_UPS[look_up](adopted)

    assert dict(cluster.server.requests) == before, "the cache has answered"
    assert shown(ours) == shown(theirs) != []


def test_deployments_and_groups_are_what_paasta_makes_of_the_apis_objects(
    clients: tuple[Any, Any],
) -> None:
    own, adopted = clients

    assert paasta.list_all_paasta_deployments(adopted) == paasta.list_all_paasta_deployments(own)
    mine, theirs = (
        paasta.group_pods_by_service_instance(paasta.get_all_pods(client, None))
        for client in clients
    )
    assert shown(mine["kurupt"]["fm"]) == shown(theirs["kurupt"]["fm"])
    assert paasta.get_active_versions_for_service(mine["kurupt"]["fm"]) == (
        paasta.get_active_versions_for_service(theirs["kurupt"]["fm"])
    )
    assert all(paasta.is_pod_ready(pod) for pod in mine["kurupt"]["fm"])


def test_an_app_without_a_deployment_is_found_by_the_api_server(
    cluster: Cluster, clients: tuple[Any, Any]
) -> None:
    """A miss is no 404: the object may be newer than the cache."""
    own, adopted = clients
    asked = ("get", "deployments.apps/status")
    before = cluster.server.requests[asked]

    found = paasta.get_kubernetes_app_by_name("kurupt-disk", adopted, "paasta")

    assert cluster.server.requests[asked] == before + 1
    assert found.kind == "StatefulSet"
    assert found.metadata.uid == (
        paasta.get_kubernetes_app_by_name("kurupt-disk", own, "paasta").metadata.uid
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"resource_version": "5"},
        {"limit": 2},
        {"label_selector": "app in ("},
        {"field_selector": "spec.containers=x"},
        {"_preload_content": False},
    ],
)
def test_the_api_server_gets_everything_but_plain_reads(
    cluster: Cluster, clients: tuple[Any, Any], asked: dict[str, Any]
) -> None:
    before = sum(cluster.server.requests.values())
    try:
        clients[1].core.list_namespaced_pod("paasta", **asked)
    except Exception as error:  # noqa: BLE001 - as the client has it
        assert type(error).__name__ == "ApiException", error

    assert sum(cluster.server.requests.values()) == before + 1


def test_a_write_goes_to_the_api_server_and_comes_back(
    cluster: Cluster, clients: tuple[Any, Any]
) -> None:
    adopted = clients[1]
    adopted.core.create_namespaced_pod("paasta", pod(99, "paasta"))

    assert adopted.core.read_namespaced_pod("pod-99", "paasta").metadata.name == "pod-99"
    cluster.settle()
    before = cluster.server.requests["get", "pods"]
    assert adopted.core.read_namespaced_pod("pod-99", "paasta").metadata.labels == MANAGED
    assert cluster.server.requests["get", "pods"] == before
    adopted.core.delete_namespaced_pod("pod-99", "paasta", grace_period_seconds=0)
    cluster.settle()


def test_copies_are_the_clients_own_objects(clients: tuple[Any, Any]) -> None:
    own = clients[0]
    copies = CachedApi(own.core, "adopted-paasta", copies=True, consistent=True)

    ours, theirs = copies.list_node(), own.core.list_node()

    assert type(ours.items[0]) is type(theirs.items[0])
    assert ours.metadata.resource_version
    ours.items[0].metadata.name = "mine"
    assert copies.list_node().items[0].metadata.name == theirs.items[0].metadata.name


def test_its_own_tests() -> None:
    own_tests.check(
        "paasta-tools", ["tests/test_kubernetes_tools.py"], "adopt_paasta_plugin", least=250
    )


def shown(objects: Any) -> list[Any]:
    """The members that are set. The items of the server's lists have no kind, and a client older
    than the models' oldest table (35) lacks attributes, which a model shows as None."""
    found = [given(obj.to_dict()) for obj in objects]
    for plain in found:
        for absent in ("kind", "api_version"):
            plain.pop(absent, None)
        plain["metadata"].pop("managed_fields", None)
    return sorted(found, key=lambda obj: str(obj["metadata"]))


def given(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: given(one) for key, one in value.items() if one is not None}
    return [given(one) for one in value] if isinstance(value, list) else value
