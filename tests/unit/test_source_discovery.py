"""Invariant tested: a name leads to the resource that is meant, with as few questions as can be."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from shmcache.protocol.status import Status
from shmcache.source import discovery
from shmcache.source.base import Failure, FailureKind, SourceFailed
from shmcache.source.discovery import AGGREGATED, PLAIN, Resource

TRACES = os.path.join(os.path.dirname(__file__), "../conformance/traces")


def recorded(name: str) -> dict[str, Any]:
    with open(os.path.join(TRACES, f"{name}.body"), encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def listed(plural: str, kind: str, *, verbs: tuple[str, ...] = ("list", "watch")) -> dict[str, Any]:
    entry = {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": True}
    return {"kind": "APIResourceList", "resources": [entry | {"verbs": list(verbs)}]}


def group_of(name: str, *versions: str, preferred: str) -> dict[str, Any]:
    return {
        "name": name,
        "versions": [{"version": version} for version in versions],
        "preferredVersion": {"version": preferred},
    }


APPS = group_of("apps", "v1beta1", "v1", preferred="v1")
WIDGETS = group_of("testbed.example.com", "v1", preferred="v1")
METRICS = group_of("metrics.k8s.io", "v1beta1", preferred="v1beta1")
SERVER: dict[str, Any] = {
    "/api/v1": recorded("n-api-v1-resources"),
    "/apis": {"kind": "APIGroupList", "groups": [METRICS, APPS, WIDGETS]},
    "/apis/apps": APPS,
    "/apis/apps/v1": listed("deployments", "Deployment"),
    "/apis/apps/v1beta1": {
        "resources": listed("deployments", "Deployment")["resources"]
        + listed("scales", "Scale")["resources"]
    },
    "/apis/metrics.k8s.io/v1beta1": listed("pods", "PodMetrics", verbs=("list",)),
    "/apis/metrics.k8s.io": METRICS,
    "/apis/testbed.example.com": WIDGETS,
    "/apis/testbed.example.com/v1": recorded("n-crd-group"),
}


class Asked:
    """A server's documents, and which of them were asked for."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents
        self.kept: discovery.Kept = {}
        self.paths: list[str] = []

    def read(self, path: str, accept: str) -> bytes:
        assert accept in {PLAIN, AGGREGATED}
        self.paths.append(path)
        if path not in self.documents:
            failure = Failure(FailureKind.HTTP, "gone", Status(code=404))
            raise SourceFailed(failure)
        return json.dumps(self.documents[path]).encode()

    def find(self, name: str) -> Resource:
        return discovery.find(self.kept, self.read, name)


@pytest.mark.parametrize("name", ["pods", "po", "pod", "Pod", "PODS", "pods/v1", "pods.v1"])
def test_a_core_resource_has_many_names(name: str) -> None:
    asked = Asked(SERVER)

    found = asked.find(name)

    assert ("/api/v1/namespaces/shop/pods", "Pod", "v1") == (
        found.path("shop"),
        found.kind,
        found.api_version,
    )
    assert ["/api/v1"] == asked.paths


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("deployments.apps", "/apis/apps/v1/deployments"),
        ("deployment.apps", "/apis/apps/v1/deployments"),
        ("deployments.v1.apps", "/apis/apps/v1/deployments"),
        ("deployments.v1beta1.apps", "/apis/apps/v1beta1/deployments"),
        ("deployments.apps/v1beta1", "/apis/apps/v1beta1/deployments"),
        ("deployments", "/apis/apps/v1/deployments"),
        ("scales.apps", "/apis/apps/v1beta1/scales"),
        ("widgets.testbed.example.com", "/apis/testbed.example.com/v1/widgets"),
        ("widgets.testbed.example.com/v1", "/apis/testbed.example.com/v1/widgets"),
        ("wd", "/apis/testbed.example.com/v1/widgets"),
    ],
)
def test_groups_and_versions_are_found_the_preferred_first(name: str, path: str) -> None:
    assert path == Asked(SERVER).find(name).path()


def test_a_resource_without_namespaces_has_no_namespace_in_its_path() -> None:
    assert "/api/v1/nodes" == Asked(SERVER).find("nodes").path("shop")


def test_subresources_are_no_resources() -> None:
    with pytest.raises(SourceFailed, match="no resource"):
        Asked(SERVER).find("status")


def test_what_cannot_be_watched_is_said_at_once() -> None:
    with pytest.raises(SourceFailed, match="watch") as caught:
        Asked(SERVER).find("pods.metrics.k8s.io")

    assert caught.value.failure.status is not None
    assert 405 == caught.value.failure.status.code


def test_a_server_with_aggregated_discovery_is_asked_once_for_all_groups() -> None:
    version = {
        "version": "v1",
        "resources": [
            {
                "resource": "deployments",
                "responseKind": {"group": "", "version": "", "kind": "Deployment"},
                "scope": "Namespaced",
                "singularResource": "deployment",
                "verbs": ["list", "watch"],
                "shortNames": ["deploy"],
            }
        ],
    }
    group = {"metadata": {"name": "apps"}, "versions": [version]}
    asked = Asked(SERVER | {"/apis": {"kind": "APIGroupDiscoveryList", "items": [group]}})

    found = asked.find("deploy")

    assert ("/apis/apps/v1/namespaces/n/deployments", "Deployment") == (found.path("n"), found.kind)
    assert ["/api/v1", "/apis"] == asked.paths


def test_what_was_read_is_not_asked_for_again() -> None:
    asked = Asked(SERVER)
    for name in ("deployments.apps", "deployments", "scales.apps", "pods", "wd"):
        asked.find(name)

    assert len(set(asked.paths)) == len(asked.paths)


def test_a_definition_that_appears_later_is_found_then() -> None:
    asked = Asked({key: value for key, value in SERVER.items() if "testbed" not in key})
    for _ in range(2):
        with pytest.raises(SourceFailed, match=r"no resource widgets\.testbed") as caught:
            asked.find("widgets.testbed.example.com")
        assert caught.value.failure.kind is FailureKind.HTTP
        assert caught.value.failure.status is not None
        assert 404 == caught.value.failure.status.code

    asked.documents = SERVER

    assert "Widget" == asked.find("widgets.testbed.example.com").kind


def test_a_definition_that_is_not_there_costs_one_question_a_time() -> None:
    asked = Asked(SERVER)
    for times in (1, 2, 3):
        with pytest.raises(SourceFailed):
            asked.find("gadgets.example.com/v1")
        assert times * ["/apis/example.com/v1"] == asked.paths


@pytest.mark.parametrize("name", ["", ".apps", "pods.", "pods/", "pods/latest", "/v1"])
def test_what_can_be_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no resource"):
        Asked(SERVER).find(name)


@pytest.mark.parametrize("document", ["[]", "nothing", "null"])
def test_what_is_no_document_is_garbage(document: str) -> None:
    with pytest.raises(SourceFailed) as caught:
        discovery.find({}, lambda _path, _accept: document.encode(), "pods")

    assert caught.value.failure.kind is FailureKind.GARBAGE
