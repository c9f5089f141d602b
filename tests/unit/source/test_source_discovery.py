"""Invariant tested: a name leads to the resource that is meant, with as few questions as can be."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from shmcache.protocol.status import ServerStatus
from shmcache.source import discovery
from shmcache.source.base import FailureKind, SourceFailed, SourceFailure
from shmcache.source.discovery import AGGREGATED, PLAIN, ApiResource

TRACES = os.path.join(os.path.dirname(__file__), "../../conformance/traces")


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

APPS_V1 = {
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
AGGREGATE = {
    "kind": "APIGroupDiscoveryList",
    "items": [{"metadata": {"name": "apps"}, "versions": [APPS_V1]}],
}


class Asked:
    """A server's documents, and the paths of all requests."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents
        self.kept = discovery.Documents()
        self.paths: list[str] = []

    def read(self, path: str, accept: str) -> bytes:
        assert accept in {PLAIN, AGGREGATED}
        self.paths.append(path)
        if path not in self.documents:
            failure = SourceFailure(FailureKind.HTTP, "gone", ServerStatus(code=404))
            raise SourceFailed(failure)
        return json.dumps(self.documents[path]).encode()

    def find(self, name: str) -> ApiResource:
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


def test_a_resource_that_cannot_be_watched_is_refused_at_once() -> None:
    with pytest.raises(SourceFailed, match="watch") as caught:
        Asked(SERVER).find("pods.metrics.k8s.io")

    assert caught.value.failure.status is not None
    assert 405 == caught.value.failure.status.code


def test_a_server_with_aggregated_discovery_is_asked_once_for_all_groups() -> None:
    asked = Asked(SERVER | {"/apis": AGGREGATE})

    found = asked.find("deploy")

    assert ("/apis/apps/v1/namespaces/n/deployments", "Deployment") == (found.path("n"), found.kind)
    assert ["/api/v1", "/apis"] == asked.paths


def test_a_dot_at_the_end_stands_for_the_core_group() -> None:
    """kubectl takes both spellings; `shmcache run` let the first one through to a traceback."""
    assert "Pod" == Asked(SERVER).find("pods.").kind
    assert "Pod" == Asked(SERVER).find("pods.v1.").kind
    with pytest.raises(SourceFailed, match="no resource deployments"):
        Asked(SERVER).find("deployments.")


def test_a_document_is_read_once() -> None:
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


def test_a_missing_definition_costs_one_request_each_time() -> None:
    asked = Asked(SERVER)
    for times in (1, 2, 3):
        with pytest.raises(SourceFailed):
            asked.find("gadgets.example.com/v1")
        assert times * ["/apis/example.com/v1"] == asked.paths


@pytest.mark.parametrize("name", ["", ".apps", ".", "pods/", "pods/latest", "/v1"])
def test_a_text_that_cannot_be_a_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a resource"):
        Asked(SERVER).find(name)


@pytest.mark.parametrize("document", ["[]", "nothing", "null"])
def test_an_answer_without_a_document_is_garbage(document: str) -> None:
    with pytest.raises(SourceFailed) as caught:
        discovery.find(discovery.Documents(), lambda _path, _accept: document.encode(), "pods")

    assert caught.value.failure.kind is FailureKind.GARBAGE


# ---- many sources at once ------------------------------------------------------------------------


class Slow(Asked):
    """The same, whose every answer waits until it is let go."""

    def __init__(self, documents: dict[str, Any]) -> None:
        super().__init__(documents)
        self.go = threading.Event()
        self.failing: SourceFailed | None = None

    def read(self, path: str, accept: str) -> bytes:
        self.paths.append(path)
        assert self.go.wait(30)
        if self.failing is not None:
            raise self.failing
        self.paths.pop()
        return super().read(path, accept)

    def together(self, names: list[str]) -> list[ApiResource | SourceFailed]:
        """Looks all names up while all sources but one wait for the first answer."""
        waiting: set[int] = set()

        def look(name: str) -> ApiResource | SourceFailed:
            check = partial(waiting.add, threading.get_ident())
            try:
                return discovery.find(self.kept, self.read, name, check=check)
            except SourceFailed as failed:
                return failed

        with ThreadPoolExecutor(len(names)) as pool:
            found = [pool.submit(look, name) for name in names]
            while len(waiting) < len(names) - 1:
                time.sleep(0.001)
            self.go.set()
            return [one.result(30) for one in found]


def test_sources_that_start_together_read_each_document_once() -> None:
    asked = Slow(SERVER)
    names = ["pods", "po", "nodes", "deployments", "wd", "scales", "widgets"] * 2

    found = asked.together(names)

    assert all(isinstance(one, ApiResource) for one in found)
    assert sorted(set(asked.paths)) == sorted(asked.paths)


def test_a_group_that_is_known_from_all_groups_is_not_asked_about_again() -> None:
    asked = Asked(SERVER | {"/apis": AGGREGATE})

    for name in ("deployments.apps", "deploy", "deployments.apps/v1", "deployments.v1.apps"):
        assert asked.find(name).path() == "/apis/apps/v1/deployments"

    assert asked.paths == ["/apis", "/api/v1"]


def test_missing_names_that_are_looked_up_together_share_the_fresh_documents() -> None:
    asked = Slow(SERVER)

    found = asked.together(["podz"] * 8)

    assert all(isinstance(one, SourceFailed) for one in found)
    assert max(map(asked.paths.count, asked.paths)) <= 2


def test_a_failure_is_shared_by_the_sources_that_wait_for_the_answer() -> None:
    asked = Slow(SERVER)
    asked.failing = SourceFailed(SourceFailure(FailureKind.REFUSED, "refused"))

    found = asked.together(["pods"] * 5)

    assert [str(one) for one in found] == ["refused"] * 5
    assert asked.paths == ["/api/v1"]
    asked.failing = None
    assert isinstance(asked.find("pods"), ApiResource)


def test_a_source_that_is_cancelled_leaves_the_question_to_the_others() -> None:
    asked, kept = Slow(SERVER), discovery.Documents()
    cancelled = SourceFailed(SourceFailure(FailureKind.CANCELLED, "cancelled"))

    def leave(_path: str, _accept: str) -> bytes:
        asked.paths.append("")
        assert asked.go.wait(30)
        raise cancelled

    with ThreadPoolExecutor(2) as pool:
        leaving = pool.submit(discovery.find, kept, leave, "pods")
        while not asked.paths:
            time.sleep(0.001)
        waiting = pool.submit(discovery.find, kept, asked.read, "pods")
        asked.go.set()
        assert leaving.exception(30) is cancelled
        assert waiting.result(30).kind == "Pod"


def test_a_source_that_waits_for_another_one_can_be_cancelled() -> None:
    asked, kept = Slow(SERVER), discovery.Documents()
    cut = threading.Event()

    def check() -> None:
        if cut.is_set():
            raise SourceFailed(SourceFailure(FailureKind.CANCELLED, "cut"))

    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(discovery.find, kept, asked.read, "pods")
        while not asked.paths:
            time.sleep(0.001)
        waiting = pool.submit(discovery.find, kept, asked.read, "pods", check=check)
        cut.set()
        with pytest.raises(SourceFailed, match="cut"):
            waiting.result(30)
        asked.go.set()
        assert reading.result(30).kind == "Pod"


def test_documents_that_are_older_than_a_refusal_are_forgotten_and_younger_ones_kept() -> None:
    asked = Asked(SERVER)
    asked.find("pods")
    moment = asked.kept.moment()
    asked.find("wd")

    asked.kept.forget(moment)

    assert asked.kept.kept("/api/v1") is None
    assert asked.kept.kept("/apis", AGGREGATED) is not None


POD = {"name": "pods", "kind": "Pod", "verbs": ["list", "watch"]}


@pytest.mark.parametrize("entry", [
    {"name": "pods"}, {"kind": "Pod"}, "pods", {"name": None}, POD | {"kind": None},
    POD | {"kind": "\ud800"}, POD | {"singularName": 5}, POD | {"shortNames": [5]},
    POD | {"categories": [None]}, POD | {"categories": ["\udfff"]}, POD | {"verbs": [["list"]]},
])  # fmt: skip
def test_a_document_of_another_form_is_garbage(entry: Any) -> None:
    asked = Asked({"/api/v1": {"resources": [entry]}})

    with pytest.raises(SourceFailed) as caught:
        asked.find("pods")

    assert caught.value.failure.kind is FailureKind.GARBAGE
