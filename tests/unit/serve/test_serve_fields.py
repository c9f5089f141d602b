"""Fields are selected by the text that the API server makes of them (G33): in lists, pages,
watches, and at the server for tests."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from served import Asked, serving

import shmcache
from shmcache.protocol.builtins import builtin
from shmcache.reader.selectors import FieldSelector
from shmcache.testing import ApiServer

Object = dict[str, Any]
KINDS = {kind.key: kind for kind in builtin()}
EVENT = {"source": {"component": "kubelet", "host": "n-1"}, "reportingComponent": "else"}
NEWER = {"source": {}, "reportingComponent": "kubelet"}
OBJECTS: dict[str, dict[str, Object]] = {
    "nodes": {
        "plain": {"spec": {}},
        "bare": {},
        "open": {"spec": {"unschedulable": False}},
        "shut": {"spec": {"unschedulable": True}},
    },
    "pods": {
        "plain": {"spec": {"nodeName": "n-1"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}},
        "inside": {"spec": {"hostNetwork": False, "nodeName": "n-2"}},
        "outside": {"spec": {"hostNetwork": True, "nodeName": "n-1"}},
    },
    "jobs.batch": {
        "none": {"status": {}},
        "zero": {"status": {"succeeded": 0}},
        "one": {"status": {"succeeded": 1}},
        "two": {"status": {"succeeded": 2}},
    },
    "events": {"event": EVENT, "newer": NEWER, "nobody": {"source": {"host": "n-1"}}},
    "replicationcontrollers": {"none": {}, "zero": {"status": {"replicas": 0}},
                               "one": {"status": {"replicas": 1}}},
    "persistentvolumes": {"volume": {}},
}  # fmt: skip
CASES = [
    ("nodes", "spec.unschedulable=false", "bare open plain"),
    ("nodes", "spec.unschedulable!=false", "shut"),
    ("nodes", "spec.unschedulable=true", "shut"),
    ("nodes", "spec.unschedulable!=true", "bare open plain"),
    ("nodes", "spec.unschedulable=", ""),
    ("nodes", "spec.unschedulable!=", "bare open plain shut"),
    ("nodes", "spec.unschedulable=False", ""),
    ("pods", "spec.hostNetwork=false", "inside plain"),
    ("pods", "spec.hostNetwork!=false", "outside"),
    ("pods", "spec.hostNetwork=true", "outside"),
    ("pods", "spec.hostNetwork=false,spec.nodeName=n-1", "plain"),
    ("pods", "spec.hostNetwork!=true,spec.hostNetwork!=false", ""),
    ("pods", "status.podIPs=10.0.0.1", ""),
    ("pods", "status.podIPs!=10.0.0.1", "inside outside plain"),
    ("jobs.batch", "status.successful=1", "one"),
    ("jobs.batch", "status.successful=0", "none zero"),
    ("jobs.batch", "status.successful!=0", "one two"),
    ("jobs.batch", "status.successful!=2", "none one zero"),
    ("jobs.batch", "status.successful=", ""),
    ("jobs.batch", "status.successful!=,status.successful!=1", "none two zero"),
    ("jobs.batch", "status.successful=0,metadata.name!=none", "zero"),
    ("events", "source=kubelet", "event newer"),
    ("events", "source!=kubelet", "nobody"),
    ("events", "source=else", ""),
    ("events", "source=", "nobody"),
    ("events", "source!=", "event newer"),
    ("events", "reportingComponent=else", "event"),
    ("replicationcontrollers", "status.replicas=0", "none zero"),
    ("replicationcontrollers", "status.replicas!=0", "one"),
    ("persistentvolumes", "metadata.namespace=x", ""),
    ("persistentvolumes", "metadata.namespace=", "volume"),
]


def path_of(resource: str) -> str:
    """Of a list of all namespaces."""
    kind = KINDS[resource]
    start = f"/apis/{kind.group}" if kind.group else "/api"
    return f"{start}/{kind.version}/{kind.resource}"


def made(resource: str) -> list[Object]:
    """The objects of a resource."""
    place = {"namespace": "default"} if KINDS[resource].namespaced else {}
    return [
        {"metadata": {"name": name, "resourceVersion": "5", **place}, **rest}
        for name, rest in OBJECTS[resource].items()
    ]


@pytest.fixture(scope="module", name="asked")
def filled() -> Iterator[Asked]:
    """All of them, with an index on each path that an unwary list would take."""
    indices = {
        "nodes": {"shut": "spec.unschedulable"},
        "pods": {"outside": "spec.hostNetwork", "node": "spec.nodeName"},
        "jobs.batch": {"done": "status.succeeded", "wrong": "status.successful"},
        "events": {"source": "source", "component": "source.component"},
    }
    resources = [shmcache.Resource(name, indices.get(name, {})) for name in OBJECTS]
    with serving({name: made(name) for name in OBJECTS}, resources=resources) as asked:
        yield asked


@pytest.mark.parametrize(("resource", "selector", "names"), CASES)
def test_a_list_and_its_pages(asked: Asked, resource: str, selector: str, names: str) -> None:
    path = f"{path_of(resource)}?fieldSelector={quote(selector)}"
    assert asked.names(path) == names.split()

    found, token = [], ""
    while True:
        page = asked.get(f"{path}&limit=1{token}").json
        assert "remainingItemCount" not in page["metadata"]
        found += [item["metadata"]["name"] for item in page["items"]]
        if "continue" not in page["metadata"]:
            break
        token = f"&continue={page['metadata']['continue']}"
    assert found == names.split()


@pytest.mark.parametrize(("resource", "selector", "names"), CASES)
def test_the_first_events_of_a_watch(
    asked: Asked, resource: str, selector: str, names: str
) -> None:
    watch = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
    added = []
    for event in events(asked, f"{path_of(resource)}?{watch}&fieldSelector={quote(selector)}"):
        if event["type"] == "BOOKMARK":
            break
        added.append(event["object"]["metadata"]["name"])
    assert added == names.split()


def events(asked: Asked, path: str) -> Iterator[Object]:
    """The events of a watch, until the caller stops."""
    url = f"http://127.0.0.1:{asked.serve.port}{path}"
    with urllib.request.urlopen(url, timeout=30) as lines:
        yield from map(json.loads, lines)


@pytest.mark.parametrize(("resource", "selector", "names"), CASES)
def test_a_list_of_the_server_for_tests(
    real: ApiServer, resource: str, selector: str, names: str
) -> None:
    url = f"{real.url}{path_of(resource)}?fieldSelector={quote(selector)}"
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - ours
        found = json.load(answer)["items"]
    assert [item["metadata"]["name"] for item in found] == names.split()


@pytest.fixture(scope="module", name="real")
def created() -> Iterator[ApiServer]:
    """All of them at a server for tests."""
    with ApiServer() as real:
        for resource in OBJECTS:
            for obj in made(resource):
                metadata = {**obj["metadata"], "resourceVersion": ""}
                real.create(resource, {**obj, "metadata": metadata})
        yield real


OPEN: Object = {"spec": {}}
SHUT: Object = {"spec": {"unschedulable": True}}


@pytest.mark.parametrize(("resource", "selector", "within", "without"), [
    ("nodes", "spec.unschedulable=false", OPEN, SHUT),
    ("nodes", "spec.unschedulable!=true", OPEN, SHUT),
    ("nodes", "spec.unschedulable=true", SHUT, OPEN),
    ("nodes", "spec.unschedulable!=false", SHUT, OPEN),
    ("events", "source=kubelet", EVENT, {**NEWER, "reportingComponent": "else"}),
    ("events", "source=kubelet", NEWER, {**EVENT, "source": {"component": "else"}}),
    ("jobs.batch", "status.successful=1", {"status": {"succeeded": 1}}, {}),
    ("jobs.batch", "status.successful=0", {}, {"status": {"succeeded": 1}}),
])  # fmt: skip
def test_live_watch_shows_objects_entering_and_leaving(
    resource: str, selector: str, within: Object, without: Object
) -> None:
    place = {"namespace": "default"} if KINDS[resource].namespaced else {}
    with serving({resource: []}, resources=[resource]) as asked:
        path = f"{path_of(resource)}?watch=1&resourceVersion=100&fieldSelector={quote(selector)}"
        told = events(asked, path)
        for version, (obj, event) in enumerate(
            [(within, "ADDED"), (without, "DELETED"), (within, "ADDED")], 101
        ):
            metadata = {"name": "n", "resourceVersion": str(version), **place}
            asked.apply({"metadata": metadata, **obj}, str(version), resource)
            assert next(told)["type"] == event


def test_page_of_a_past_state(asked: Asked) -> None:
    path = f"{path_of('events')}?fieldSelector={quote('source=kubelet')}"
    first = asked.get(f"{path}&limit=1").json
    asked.apply({"metadata": {"name": "newer", "namespace": "default", "resourceVersion": "101"},
                 "source": {"component": "other"}}, "101", "events")  # fmt: skip
    try:
        assert asked.names(path) == ["event"]
        token = first["metadata"]["continue"]
        assert asked.names(f"{path}&continue={token}") == ["newer"]
    finally:
        back = {"metadata": {"name": "newer", "namespace": "default", "resourceVersion": "102"}}
        asked.apply({**back, **NEWER}, "102", "events")


@pytest.mark.parametrize(("resource", "selector", "names"), CASES)
def test_a_reader_gets_the_same_objects(
    asked: Asked, resource: str, selector: str, names: str
) -> None:
    kind = KINDS[resource]
    fields = FieldSelector.parse(selector, kind.selectable, kind.made)
    found = asked.cache[resource].list(fields=fields)
    assert [obj["metadata"]["name"] for obj in found] == names.split()
    assert asked.cache[resource].list(fields=fields, limit=1) == found[:1]


def test_a_field_that_is_made_is_not_the_path_of_its_name() -> None:
    made_ = FieldSelector.parse("status.successful=0", None, KINDS["jobs.batch"].made)
    plain = FieldSelector.parse("status.successful=0")
    assert made_ != plain
    assert {made_: 1}.get(plain) is None
    assert FieldSelector.parse("a=b", None, KINDS["jobs.batch"].made) == FieldSelector.parse("a=b")


@pytest.mark.parametrize(("resource", "field"), [
    ("replicasets.apps", "status.replicas"),
    ("nodes", "metadata.namespace"),
    ("jobs.batch", "status.succeeded"),
])  # fmt: skip
def test_field_without_server_support_is_refused(resource: str, field: str) -> None:
    with serving({resource: []}, resources=[resource]) as asked:
        assert asked.get(f"{path_of(resource)}?fieldSelector={field}=1").code == 400
