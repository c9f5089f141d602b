"""Invariant tested: a model has the content of the object, in the names of its client library."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import shmcache
from shmcache.models import decoding as interop

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "prod",
        "creationTimestamp": "2026-03-01T12:00:00+00:00",
        "labels": {"app": "web"},
    },
    "spec": {"nodeName": "node-7", "containers": [{"name": "app", "image": "app:1"}]},
    "status": {"phase": "Running"},
}


@pytest.fixture
def view(writer: shmcache.Writer, cache: shmcache.Cache) -> shmcache.View:
    writer.apply("pods", [POD])
    return cache["pods"]["prod/web-0"]


@pytest.mark.parametrize("client", ["kubernetes", "kubernetes.aio", "kubernetes_asyncio"])
def test_a_pod_becomes_the_clients_pod(client: str, view: shmcache.View) -> None:
    models = pytest.importorskip(f"{client}.client.models", reason=f"needs {client}")

    pod = interop.to_model(view, client=client)

    assert type(pod) is models.V1Pod
    assert "node-7" == pod.spec.node_name
    assert {"app": "web"} == pod.metadata.labels
    assert "app:1" == pod.spec.containers[0].image
    when = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    assert when == pod.metadata.creation_timestamp


def test_a_pod_becomes_lightkubes_pod(view: shmcache.View) -> None:
    from lightkube.resources.core_v1 import Pod

    pod = interop.to_model(view, client="lightkube")

    assert type(pod) is Pod
    assert "node-7" == pod.spec.nodeName


def test_a_model_equals_the_clients_own_and_outlives_the_cache(
    view: shmcache.View, cache: shmcache.Cache
) -> None:
    import json

    from kubernetes.client import ApiClient

    model = interop.to_model(view)
    text = json.dumps(view.to_dict())
    cache.close()
    with ApiClient() as client:
        theirs = client.sanitize_for_serialization(model)

    assert json.loads(text) == theirs


@pytest.mark.parametrize(
    ("version", "kind", "name"),
    [
        ("apps/v1", "Deployment", "V1Deployment"),
        ("autoscaling/v2", "HorizontalPodAutoscaler", "V2HorizontalPodAutoscaler"),
        ("v1", "Event", "CoreV1Event"),
        ("events.k8s.io/v1", "Event", "EventsV1Event"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "V1ClusterRole"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "V1CustomResourceDefinition"),
    ],
)
def test_kinds_are_found_by_version_and_by_group_where_names_meet(
    version: str, kind: str, name: str
) -> None:
    obj: dict[str, Any] = {"apiVersion": version, "kind": kind}

    assert name == interop._name(interop.decoder("kubernetes"), obj)


def test_a_custom_resource_has_no_model_and_the_error_names_it() -> None:
    with pytest.raises(LookupError, match=r"no model of Widget in example.com/v1: to_dict\(\)"):
        interop.to_model({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {}})
    with pytest.raises(LookupError, match=r"no model of Service in serving.knative.dev/v1"):
        interop.to_model({"apiVersion": "serving.knative.dev/v1", "kind": "Service"})
    with pytest.raises(ValueError, match=r"no models of 'kr8s': kubernetes, kubernetes.aio"):
        interop.to_model(POD, client="kr8s")


def test_nothing_of_it_is_imported_before_it_is_needed() -> None:
    import subprocess
    import sys

    code = "import sys, shmcache, shmcache.models.decoding, shmcache.integrations.columns\n"
    code += "print({'kubernetes', 'numpy', 'sharedmem'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "set()\n" == done.stdout
