"""Exchanges with a real API server of 1.36 that no trace holds: testing.ApiServer and `serve` give
the same answers."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from asking import ask
from replaying import Recorded
from serve_scene import TOKEN, Socket, scene

import shmcache
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.protocol.builtins import builtin
from shmcache.protocol.discovery import AGGREGATED_MEDIA
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
DISABLED = (
    "a watch stream was requested by the client but the required storage feature "
    "RequestWatchProgress is disabled"
)
VERSION_FIELDS = [
    "major", "minor", "emulationMajor", "emulationMinor", "minCompatibilityMajor",
    "minCompatibilityMinor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion",
    "compiler", "platform",
]  # fmt: skip


def config_map(name: str, version: int, namespace: str = "tr") -> Json:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}


MAPS = [config_map("a", 11), config_map("b", 12), config_map("c", 13, "tr-2")]


@pytest.fixture(params=["ApiServer", "serve"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A server with three ConfigMaps, of both kinds."""
    if request.param == "serve":
        with scene("configmaps") as at:
            at.load(MAPS, 20)
            yield at.serve.port
        return
    with ApiServer(seed=1, namespaces=()) as server:
        for obj in MAPS:
            server.load("configmaps", obj)
        yield server.port


# ---- old paths of watches ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/v1/watch/configmaps", ["c", "a", "b"]),
        ("/api/v1/watch/namespaces/tr/configmaps", ["a", "b"]),
        ("/api/v1/watch/namespaces/tr/configmaps/b", ["b"]),
        ("/api/v1/watch/namespaces/tr/configmaps?fieldSelector=metadata.name!%3Da", ["b"]),
        ("/api/v1/watch/namespaces/tr/configmaps/b?fieldSelector=metadata.name!%3Db", []),
        ("/api/v1/watch/configmaps?watch=false&labelSelector=x", []),
    ],
)
def test_an_old_path_of_a_watch_is_a_watch(port: int, path: str, names: list[str]) -> None:
    answer = ask(port, f"{path}{'&' if '?' in path else '?'}resourceVersion=0&timeoutSeconds=1")

    assert answer.status == 200
    assert answer.summary == [("ADDED", name) for name in names]


@pytest.mark.parametrize("path", ["/api/v1/watch", "/api/v1/watch/namespaces/tr/configmaps/b/log"])
def test_an_old_path_of_nothing_is_not_a_watch(port: int, path: str) -> None:
    assert ask(port, path).status == 404


def test_a_write_to_an_old_path_is_not_found(port: int) -> None:
    answer = ask(port, "/api/v1/watch/namespaces/tr/configmaps", "POST", {})

    assert answer.status in {404, 405}


# ---- documents -----------------------------------------------------------------------------------


def test_the_version_has_all_fields_in_their_order(port: int) -> None:
    found = ask(port, "/version").json

    assert list(found) == VERSION_FIELDS
    assert (found["emulationMinor"], found["minCompatibilityMinor"]) == ("36", "35")


@pytest.mark.parametrize(
    "path", ["/apis/example.com/v1/widgets", "/apis/example.com/v1/namespaces/tr/widgets/w"]
)
def test_an_unknown_group_is_answered_with_text(port: int, path: str) -> None:
    answer = ask(port, path)

    assert answer.status == 404
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.body.startswith(b"404 page not found")


def test_an_unknown_resource_of_a_known_group_is_answered_with_a_status(port: int) -> None:
    assert ask(port, "/api/v1/gadgets").json["reason"] == "NotFound"


@pytest.mark.parametrize(
    ("path", "accept", "aggregated"),
    [
        ("/apis", AGGREGATED_MEDIA, True),
        ("/api", f"{AGGREGATED_MEDIA},application/json", True),
        ("/api", f"text/html, {AGGREGATED_MEDIA.replace(';', '; ')}", True),
        ("/apis", "application/json", False),
        ("/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
         False),
        ("/api/v1", f"{AGGREGATED_MEDIA},application/json", False),
    ],
)  # fmt: skip
def test_discovery_is_aggregated_for_clients_that_ask_for_it(
    port: int, path: str, accept: str, aggregated: bool
) -> None:
    answer = ask(port, path, headers={"Accept": accept})

    assert (answer.json["kind"] == "APIGroupDiscoveryList") is aggregated
    assert (answer.headers["Content-Type"] == AGGREGATED_MEDIA) is aggregated


# ---- bookmarks -----------------------------------------------------------------------------------


def test_a_bookmark_of_nodes_has_the_zero_fields_of_their_status() -> None:
    with ApiServer(seed=1) as server:
        path = "/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion=0"
        (event,) = ask(server, path).events

    assert event["type"] == "BOOKMARK"
    assert list(event["object"]) == ["kind", "apiVersion", "metadata", "spec", "status"]
    assert event["object"]["status"] == {
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": dict.fromkeys(
            ["machineID", "systemUUID", "bootID", "kernelVersion", "osImage",
             "containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion", "operatingSystem",
             "architecture"], ""),
    }  # fmt: skip


def test_bookmarks_of_workloads_have_their_required_fields() -> None:
    kinds = {kind.key: kind.zero for kind in builtin()}

    assert kinds["statefulsets.apps"]["status"] == {"replicas": 0, "availableReplicas": 0}
    assert kinds["deployments.apps"]["spec"]["replicas"] == 0
    assert kinds["roles.rbac.authorization.k8s.io"] == {"rules": None}
    assert kinds["configmaps"] == {}


# ---- WebSocket -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocols", "status"),
    [
        ("<TOKENPROTO>, base64.binary.k8s.io", "101"),
        ("<TOKENPROTO>", "401"),
        ("<TOKENPROTO>, <TOKENPROTO>, base64.binary.k8s.io", "401"),
        ("base64.binary.k8s.io", "101"),
    ],
)
def test_a_token_in_a_protocol_needs_another_protocol(protocols: str, status: str) -> None:
    recorded = Recorded("h-ws-watch-token-in-subproto")
    recorded.headers["Sec-WebSocket-Protocol"] = protocols
    with scene("configmaps") as at:
        at.load([], 2849)
        client = Socket(at, recorded, recorded.path)
        client.close()

    assert client.status.split()[1] == status
    assert TOKEN.startswith("base64url.bearer.authorization.k8s.io.")


# ---- servers without WatchList or a watch cache --------------------------------------------------


@pytest.mark.parametrize("cached", [True, False])
def test_a_continue_token_has_a_slash_only_if_a_watch_cache_made_it(cached: bool) -> None:
    with ApiServer(seed=1, namespaces=(), watch_cache=cached) as server:
        for obj in MAPS:
            server.load("configmaps", obj)
        first = ask(server, "/api/v1/configmaps?limit=2").json["metadata"]["continue"]
        rest = ask(server, f"/api/v1/configmaps?limit=2&continue={first}")
        inside = ask(server, "/api/v1/namespaces/tr/configmaps?limit=1").json["metadata"]

    tokens = [first, inside["continue"]]
    starts = [json.loads(base64.urlsafe_b64decode(one + "==="))["start"] for one in tokens]
    slash = "/" if cached else ""
    assert starts == [f"{slash}tr/a\0", f"{slash}a\0"]
    assert rest.names == ["b"]


def test_a_server_may_accept_a_watch_list_and_fail_with_it() -> None:
    path = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&timeoutSeconds=1"
    with ApiServer(seed=1, watch_list=DISABLED) as server:
        streamed = ask(server, f"{path}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        plain = ask(server, f"{path}&resourceVersion=1")

    assert streamed.status == 200
    assert streamed.events == [
        {
            "type": "ERROR",
            "object": {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": DISABLED,
                "reason": "InternalError",
                "code": 500,
            },
        }
    ]
    assert plain.status == 200
    assert [event["type"] for event in plain.events if event["type"] == "ERROR"] == []


def test_a_cache_is_filled_by_a_server_that_fails_with_watch_lists(name: str) -> None:
    with ApiServer(seed=1, watch_list=DISABLED) as server:
        for obj in MAPS:
            server.create("configmaps", {"metadata": {**obj["metadata"], "resourceVersion": ""}})
        plan = Plan(name="configmaps")
        opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
        with shmcache.Writer(name, [plan.resource]) as writer, shmcache.attach(name) as cache:
            engine = Engine(writer, [plan], opener, pace=Pace(1000.0))
            engine.start()
            try:
                assert engine.ready.wait(60)
                assert list(cache["configmaps"]) == ["tr-2/c", "tr/a", "tr/b"]
            finally:
                assert engine.stop()
