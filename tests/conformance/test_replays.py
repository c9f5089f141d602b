"""Replays every recorded request of a real kube-apiserver to ApiServer, which answers the same.

These are equal: status, the headers that clients read, and the body byte for byte; where that is
not possible (ages, texts of another JSON parser) the test states the comparison that replaces it.
Every other trace is in OUT_OF_SCOPE with its reason.
"""

from __future__ import annotations

import gzip
import http.client
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from asking import PATIENCE, Answer, ask
from replaying import (
    WATCHES,
    WIDGETS,
    Recorded,
    before,
    definition,
    happen,
    load,
    load_list,
    split,
    token_of,
    traces,
    version_of,
)

from shmcache.protocol import failures
from shmcache.testing import ApiServer

Json = dict[str, Any]

WEBSOCKET = "ApiServer speaks no WebSocket"
PROTOBUF = "ApiServer speaks no protobuf"
ETCD = "there is no etcd behind ApiServer that could be frozen"
KILLED = "how a server dies; faults.cut and go_down do the like, in test_faults.py"
OUT_OF_SCOPE = {
    "g-watch-replay-2500-from-cache": "its body of 83 MB was not kept",
    "g-ws-watch-410": WEBSOCKET,
    "h-ws-watch-badtoken": WEBSOCKET,
    "h-ws-watch-no-origin": WEBSOCKET,
    "h-ws-watch-ping-close": WEBSOCKET,
    "h-ws-watch-plain": WEBSOCKET,
    "h-ws-watch-subproto-bin": WEBSOCKET,
    "h-ws-watch-subproto-two": WEBSOCKET,
    "h-ws-watch-subproto-unknown": WEBSOCKET,
    "h-ws-watch-token-in-subproto": WEBSOCKET,
    "j-protobuf-list": PROTOBUF,
    "j-protobuf-watch": PROTOBUF,
    "j-yaml-list": "ApiServer writes no YAML; kubectl makes its own of JSON",
    "x-etcd-frozen-create": ETCD,
    "x-etcd-frozen-list-timeout": ETCD,
    "x-etcd-frozen-readyz": ETCD,
    "x-etcd-frozen-watch-norv": ETCD,
    "x-etcd-frozen-watchlist": ETCD,
    "x-list-cut-midway": KILLED,
    "x-startup-readyz-500-3": "ApiServer is ready as soon as it listens",
    "x-watch-apiserver-sigkill": KILLED,
    "x-watch-apiserver-sigterm": KILLED,
    "x-watch-apiserver-sigterm-grace": KILLED,
    "x-watchlist-apiserver-sigterm-grace": KILLED,
    "x-ws-watch-apiserver-sigterm": WEBSOCKET,
    "x-ws-watch-apiserver-sigterm-grace": WEBSOCKET,
}


USERS = {"admin": "testbed-admin", "viewer": "testbed-viewer", "nobody": "testbed-nobody"}
HEADERS = ("Content-Type", "Retry-After", "Warning", "Content-Encoding", "Transfer-Encoding")


def server_for(recorded: Recorded, **options: Any) -> ApiServer:
    """A server with only the objects that the trace's group needs."""
    server = ApiServer(namespaces=(), seed=1, fresh_seconds=0.01, **options)
    if "testbed.example.com" in recorded.path:
        server.create("customresourcedefinitions", WIDGETS)
        server.create("customresourcedefinitions", definition("doomeds", "Doomed"))
    return server


def replay(server: ApiServer, recorded: Recorded) -> Answer:
    """The recorded request, as it was sent but for its token."""
    headers = {k: v for k, v in recorded.headers.items() if k not in {"Host", "Authorization"}}
    if "Authorization" in recorded.headers and server.access.tokens:
        words = recorded.headers["Authorization"].strip("<>").split()
        token = next((word for word in words if word in USERS), "nonsense")
        headers["Authorization"] = f"Bearer {token}"
    sent = None if recorded.sent is None else recorded.sent.encode()
    return ask(server, recorded.path, recorded.method, sent, headers)


def check_head(recorded: Recorded, answer: Answer) -> None:
    assert answer.status == recorded.answer["status"]
    said = dict(recorded.answer["headers"])
    assert {k: answer.headers.get(k) for k in HEADERS} == {k: said.get(k) for k in HEADERS}


def check(recorded: Recorded, answer: Answer) -> None:
    check_head(recorded, answer)
    assert answer.body == recorded.body


# ---- lists and single objects --------------------------------------------------------------------

LISTS = [
    "a-list-configmaps-limit10-page2",
    "a-list-configmaps-limit10-page3",
    "a-list-continue-other-ns",
    "a-list-empty",
    "a-list-limit-1-remaining",
    "a-list-limit5-emu133",
    "a-list-limit5-gate-off",
    "a-list-pods-limit500-page2",
    "a-list-pods-limit500-page3",
    "b-list-exact",
    "b-list-exact-old",
    "b-list-notolderthan",
    "b-list-rv-nomatch-limit",
    "b-list-rv-unset",
    "b-list-rv0-limit5",
    "c-list-notolderthan-compacted-200",
    "c-page1-before-expiry",
    "c-page2-inconsistent-continue",
    "c-page3-inconsistent-continue",
    "c-pods-page1-before-expiry",
    "i-gzip-small-list",
    "j-no-accept",
    "j-pretty-curl-ua",
    "k-warning-header-endpoints",
    "l-builtin-list-no-kind-on-items",
    "l-crd-list",
    "l-crd-list-fieldselector",
    "n-deletecollection",
    "n-endpointslices-list",
    "n-nodes-list",
]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_has_the_same_bytes(name: str) -> None:
    recorded = Recorded(name)
    server = server_for(recorded)
    load_list(server, recorded)
    with server:
        answer = replay(server, recorded)
        left = len(server.list(recorded.key))

    check(recorded, answer)
    assert recorded.method == "GET" or left == 0


def chunks_of(wire: bytes) -> list[int]:
    """The sizes of the chunks of an answer as it came."""
    rest = wire.partition(b"\r\n\r\n")[2]
    sizes = []
    while size := int(rest[: rest.index(b"\r\n")], 16):
        sizes.append(size)
        rest = rest[rest.index(b"\r\n") + size + 4 :]
    return sizes


CHUNKED = [
    name
    for name in LISTS
    if Recorded(name).answer.get("chunk_sizes") and Recorded(name).method == "GET"
]


@pytest.mark.parametrize("name", CHUNKED)
def test_a_list_is_cut_into_the_same_chunks(name: str) -> None:
    recorded = Recorded(name)
    server = server_for(recorded)
    load_list(server, recorded)
    request = f"GET {recorded.path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with server, socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock:
        sock.sendall(request.encode())
        wire = b"".join(iter(lambda: sock.recv(1 << 16), b""))

    ours, theirs = chunks_of(wire), recorded.answer["chunk_sizes"]
    if isinstance(theirs[-1], str):
        assert theirs[-1] == f"... {len(ours)} chunks"
        theirs = theirs[:-1]
        ours = ours[: len(theirs)]
    assert ours == theirs


def test_a_first_page_whose_rest_is_not_known_has_the_same_objects() -> None:
    recorded = Recorded("a-list-pods-limit500-page1")
    server = server_for(recorded)
    found = json.loads(recorded.body)
    load(server, recorded.key, found["items"])
    left: int = found["metadata"]["remainingItemCount"]
    for number in range(left):
        server.load("pods", {"metadata": {"name": f"zz-{number}", "namespace": "tr-big"}})
    with server:
        answer = replay(server, recorded)

    check_head(recorded, answer)
    assert answer.json["items"] == found["items"]
    assert answer.json["metadata"]["remainingItemCount"] == left


def test_a_token_from_etcd_differs_from_ours_by_a_slash() -> None:
    recorded = Recorded("g-list-exact-old-notcompacted")
    server = server_for(recorded)
    load_list(server, recorded)
    with server:
        answer = replay(server, recorded)

    check_head(recorded, answer)
    assert answer.json["items"] == json.loads(recorded.body)["items"]
    theirs, ours = (
        token_of(text["metadata"]["continue"]) for text in (json.loads(recorded.body), answer.json)
    )
    assert ours == {**theirs, "start": f"/{theirs['start']}"}


@pytest.mark.parametrize("name", ["i-gzip-list-pods-page1", "i-gzip-deflate-br"])
def test_a_large_list_is_compressed_for_clients_that_accept_it(name: str) -> None:
    recorded = Recorded(name)
    found = json.loads(gzip.decompress(recorded.body))
    server = server_for(recorded)
    load(server, recorded.key, found["items"])
    server.load("pods", {"metadata": {"name": "zz", "namespace": "tr-big"}})
    with server:
        answer = replay(server, recorded)

    check_head(recorded, answer)
    assert json.loads(gzip.decompress(answer.body))["items"] == found["items"]


@pytest.mark.parametrize("name", ["d-watch-as-get-name", "j-partialmeta-one"])
def test_a_single_object_has_the_same_bytes(name: str) -> None:
    recorded = Recorded(name)
    server = server_for(recorded)
    obj = {k: v for k, v in json.loads(recorded.body).items() if k not in {"kind", "apiVersion"}}
    server.load(recorded.key, obj)
    with server:
        check(recorded, replay(server, recorded))


def test_a_connection_is_good_for_another_request_after_a_watch() -> None:
    recorded = Recorded("m-second-request-same-connection")
    server = server_for(recorded)
    server.load("configmaps", json.loads(recorded.body))
    with server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("GET", f"/api/v1/configmaps?watch=1&resourceVersion={server.version}")
        watch = connection.getresponse()
        sock = connection.sock
        server.wait_for_watches()
        server.end_watches()
        assert watch.read() == b""
        connection.request("GET", recorded.path)
        body = connection.getresponse().read()
        assert connection.sock is sock
        connection.close()

    assert body == recorded.body


# ---- watches -------------------------------------------------------------------------------------


class Watching:
    """The recorded watch, open: its events, while the recorded writes happen again."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.server = server_for(recorded)
        there, self.writes = split(recorded)
        for obj in before(there, self.writes):
            self.server.load(recorded.key, obj)
        load(self.server, recorded.key, there)
        self._advance()
        self.shown = len(recorded.events) - len(self.writes)

    def _advance(self) -> None:
        for event in self.recorded.events[: len(self.recorded.events) - len(self.writes)]:
            if event["type"] == "BOOKMARK":
                self.server.advance(version_of(event["object"]))
        start = int(self.recorded.query.get("resourceVersion", "0"))
        if int(self.server.version) < start < 1_000_000:
            self.server.advance(start)

    def run(self, meanwhile: Callable[[int], None] = lambda _: None) -> Answer:
        """Everything from the request to the watch's end."""
        recorded, server = self.recorded, self.server
        with server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
            path = recorded.path.replace("timeoutSeconds=", "timeoutSeconds=9")
            headers = {k: v for k, v in recorded.headers.items() if k.startswith("Accept")}
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            server.wait_for_watches()
            lines = [response.readline() for _ in range(self.shown)]
            for number, write in enumerate(self.writes):
                meanwhile(number)
                happen(server, recorded.key, write)
                lines.append(response.readline())
            server.end_watches()
            rest = response.read()
            connection.close()
        return Answer(response.status, dict(response.headers.items()), b"".join(lines) + rest)


@pytest.mark.parametrize("name", WATCHES)
def test_a_watch_shows_the_same_bytes(name: str) -> None:
    recorded = Recorded(name)

    check(recorded, Watching(recorded).run())


def test_a_watch_outlives_the_right_to_it() -> None:
    recorded = Recorded("k-watch-rbac-revoked")
    watching = Watching(recorded)

    check(recorded, watching.run(lambda _: watching.server.access.deny()))


def test_a_watch_ends_with_its_definition() -> None:
    recorded = Recorded("l-crd-deleted-under-watch")
    server = server_for(recorded)
    load(server, recorded.key, [recorded.events[0]["object"]])
    at = version_of(recorded.events[1]["object"])
    server.advance(at)
    with server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("GET", recorded.path)
        response = connection.getresponse()
        lines = [response.readline() for _ in range(2)]
        server.advance(version_of(recorded.events[2]["object"]) - 1)
        server.delete("customresourcedefinitions", "doomeds.testbed.example.com")
        lines.append(response.readline())
        (last,) = response.read().splitlines()
        connection.close()

    assert b"".join(lines) == b"".join(recorded.body.splitlines(keepends=True)[:3])
    theirs = recorded.events[3]
    assert json.loads(last)["type"] == theirs["type"] == "BOOKMARK"
    assert json.loads(last)["object"]["kind"] == theirs["object"]["kind"]


def test_a_group_that_is_gone_is_not_found() -> None:
    recorded = Recorded("l-crd-gone-404")
    with server_for(recorded) as server:
        assert replay(server, recorded).status == 200
        for name in ("widgets", "doomeds"):
            server.delete("customresourcedefinitions", f"{name}.testbed.example.com")

        check(recorded, replay(server, recorded))


# ---- refusals ------------------------------------------------------------------------------------


def nothing(_server: ApiServer, _recorded: Recorded) -> None:
    """No state that matters."""


def current(server: ApiServer, recorded: Recorded) -> None:
    """The version that the server had reached according to the answer."""
    text = recorded.body.decode()
    server.advance(int(text.partition("current: ")[2].partition('"')[0]))


def compacted(server: ApiServer, _recorded: Recorded) -> None:
    """The past is forgotten by lists."""
    server.advance(3014)
    server.compact(windows=False)


def restarted(server: ApiServer, _recorded: Recorded) -> None:
    """Watches begin at this version."""
    server.advance(2992)
    server.compact()


def compacted_later(server: ApiServer, _recorded: Recorded) -> None:
    """The past is forgotten by everybody."""
    server.advance(3014)
    server.compact()


def denied(server: ApiServer, _recorded: Recorded) -> None:
    """Only the admin may do anything."""
    server.access.tokens = dict(USERS)
    server.access.deny("testbed-nobody")
    server.access.deny("testbed-viewer")


def there_already(server: ApiServer, recorded: Recorded) -> None:
    """The object to create."""
    server.create(recorded.key, json.loads(recorded.sent or ""))


def in_namespace(server: ApiServer, recorded: Recorded) -> None:
    """The namespace is there."""
    server.create("namespaces", {"metadata": {"name": recorded.target.namespace}})


def storm(server: ApiServer, _recorded: Recorded) -> None:
    """Priority and fairness refuses."""
    server.faults.too_many_requests()


def ending(server: ApiServer, _recorded: Recorded) -> None:
    """A server that shuts down."""
    text = "The apiserver is shutting down, please try again later.\n"
    server.faults.refuse(failures.plain(429, text, retry_after=5))


def starting(server: ApiServer, _recorded: Recorded) -> None:
    """A server that does not know its resources yet."""
    server.faults.refuse(failures.not_ready())


Prepare = Callable[[ApiServer, Recorded], None]

REFUSALS: dict[str, Prepare] = {
    "a-list-continue-garbage-400": nothing,
    "a-list-continue-with-rv-400": nothing,
    "b-get-rv-too-large": current,
    "b-list-exact-rv0-422": nothing,
    "b-list-match-bogus-422": nothing,
    "b-list-rv-notanumber": nothing,
    "b-list-rv-too-large-504": current,
    "b-list-rv-too-large-notolder-504": current,
    "b-list-timeoutSeconds-tiny": current,
    "b-watchlist-rv-too-large": current,
    "c-list-exact-compacted-410": compacted,
    "c-list-exact-rv1-compacted-410": compacted,
    "c-pods-page2-expired-410": compacted,
    "f-list-sendinitial-422": nothing,
    "f-watchlist-nomatch-422": nothing,
    "g-events-watch-compacted-410": compacted_later,
    "g-watch-oldrv-after-restart-410": restarted,
    "g-watch-rv1-after-restart-410": restarted,
    "j-415-patch": nothing,
    "j-table-status-404": nothing,
    "k-400-fieldselector": nothing,
    "k-400-labelselector": nothing,
    "k-400-limit": nothing,
    "k-401-badtoken": denied,
    "k-401-watch": denied,
    "k-403-anonymous": denied,
    "k-403-list": denied,
    "k-403-viewer-nodes": denied,
    "k-403-watch": denied,
    "k-404-object": nothing,
    "k-404-resource": nothing,
    "k-405": nothing,
    "k-409-exists": there_already,
    "k-422-invalid": in_namespace,
    "k-429-apf-list": storm,
    "k-429-apf-watch": storm,
    "x-sigterm-new-request-429": ending,
    "x-startup-crd-503-1": starting,
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_has_the_same_words(name: str) -> None:
    recorded = Recorded(name)
    server = server_for(recorded)
    REFUSALS[name](server, recorded)
    with server:
        check(recorded, replay(server, recorded))


NO_WATCH_LIST = [
    "f-watchlist-emu133",
    "f-watchlist-gate-off",
    "f-watchlist-rv0-emu133",
    "f-watchlist-rv0-gate-off",
]


@pytest.mark.parametrize("name", NO_WATCH_LIST)
def test_a_server_without_watch_list_says_so(name: str) -> None:
    recorded = Recorded(name)
    with server_for(recorded, watch_list=False) as server:
        check(recorded, replay(server, recorded))


NO_CACHE: dict[str, Prepare] = {
    "g-nocache-list-rv-too-large": current,
    "g-nocache-watch-compacted-410": compacted_later,
}


@pytest.mark.parametrize("name", NO_CACHE)
def test_a_server_without_watch_cache_refuses_in_other_words(name: str) -> None:
    recorded = Recorded(name)
    server = server_for(recorded, watch_cache=False)
    NO_CACHE[name](server, recorded)
    with server:
        check(recorded, replay(server, recorded))


@pytest.mark.parametrize("name", ["j-406", "k-400-badjson"])
def test_a_refusal_differs_in_offers_or_parser_texts(name: str) -> None:
    recorded = Recorded(name)
    with server_for(recorded) as server:
        server.create("namespaces", {"metadata": {"name": "tr"}})
        answer = replay(server, recorded)

    theirs = json.loads(recorded.body)
    assert answer.status == theirs["code"]
    assert {**answer.json, "message": ""} == {**theirs, "message": ""}
    assert answer.json["message"][:20] == theirs["message"][:20]


def test_a_server_that_is_down_refuses_connections() -> None:
    recorded = Recorded("x-connect-refused")
    with server_for(recorded) as server:
        server.go_down()
        with pytest.raises(ConnectionRefusedError):
            replay(server, recorded)


# ---- tables --------------------------------------------------------------------------------------

TABLES = ["j-table-pods", "j-table-pods-includeobject-none", "j-table-widgets"]


def without_ages(table: Json) -> Json:
    """A table without what depends on the time, and without the descriptions of its columns."""
    heads = table["columnDefinitions"] or []
    age = next((at for at, head in enumerate(heads) if head["name"] == "Age"), None)
    rows = [
        {**row, "cells": [cell for at, cell in enumerate(row["cells"]) if at != age]}
        for row in table["rows"]
    ]
    return {
        **table,
        "columnDefinitions": [{**head, "description": ""} for head in heads],
        "rows": rows,
    }


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_the_same_but_for_ages_and_descriptions(name: str) -> None:
    recorded = Recorded(name)
    theirs = json.loads(recorded.body)
    server = server_for(recorded)
    objects = full_objects(name, theirs)
    load(server, recorded.key, objects)
    left = theirs["metadata"].get("remainingItemCount", 0)
    for number in range(left):
        server.load(recorded.key, {"metadata": {"name": f"zz-{number}", "namespace": "tr"}})
    with server:
        answer = replay(server, recorded)

    assert answer.status == 200
    ours = without_ages(answer.json)
    assert ours["columnDefinitions"] == without_ages(theirs)["columnDefinitions"]
    assert ours["rows"] == without_ages(theirs)["rows"]
    assert ours["metadata"].get("remainingItemCount") == (left or None)


def full_objects(name: str, table: Json) -> list[Json]:
    """The objects behind such rows: pods with the values of their cells, widgets likewise."""
    return [made(name, number, row) for number, row in enumerate(table["rows"])]


def made(name: str, number: int, row: Json) -> Json:
    cells = row["cells"]
    found = row["object"] or {"metadata": {"name": cells[0], "namespace": "tr"}}
    metadata = {"resourceVersion": str(1000 + number), **found["metadata"]}
    if "widgets" in name:
        return {"metadata": metadata, "spec": {"color": cells[1], "size": cells[2]}}
    ready, count = map(int, cells[1].split("/"))
    return {
        "metadata": metadata,
        "spec": {"containers": [{} for _ in range(count)], "nodeName": cells[6]},
        "status": {
            "phase": cells[2],
            "podIP": cells[5],
            "containerStatuses": [{"ready": True, "state": {"running": {}}} for _ in range(ready)],
        },
    }


@pytest.mark.parametrize("name", ["j-watch-table-pods", "f-watchlist-table"])
def test_a_watch_as_a_table_has_its_columns_once_and_a_row_each(name: str) -> None:
    recorded = Recorded(name)
    theirs = [event["object"] for event in recorded.events]
    server = server_for(recorded)
    rows = [one["rows"][0]["object"] for one in theirs]
    types = [event["type"] for event in recorded.events]
    is_list = types[0] == "ADDED"
    server.advance(int(recorded.query.get("resourceVersion", "1")) or 1)
    for obj, kind in zip(rows, types, strict=True):
        if kind != "BOOKMARK":
            happen_row(server, recorded.key, obj)
    server.advance(version_of(rows[-1]))
    if not is_list:
        server.faults.cut(where="clean", after=len(types) - 1)
    with server:
        answer = replay_watch(server, recorded, len(types) if is_list else len(types) - 1)

    ours = [event["object"] for event in answer.events]
    assert [one["kind"] for one in ours] == ["Table"] * len(ours)
    assert [one["columnDefinitions"] is None for one in ours] == [False] + [True] * (len(ours) - 1)
    assert [len(one["rows"][0]["cells"]) for one in ours] == [
        len(one["rows"][0]["cells"]) for one in theirs[: len(ours)]
    ]
    if is_list:
        assert ours[-1]["rows"][0]["object"] == theirs[-1]["rows"][0]["object"]


def happen_row(server: ApiServer, key: str, obj: Json) -> None:
    """The object of a row; whatever the order of versions in the table."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
    server.load(key, {"metadata": metadata, "spec": {}})


def replay_watch(server: ApiServer, recorded: Recorded, count: int) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request("GET", recorded.path, headers={"Accept": recorded.headers["Accept"]})
    response = connection.getresponse()
    body = b"".join(response.readline() for _ in range(count))
    connection.close()
    return Answer(response.status, {}, body)


# ---- documents and writes ------------------------------------------------------------------------


def test_core_discovery_says_the_same() -> None:
    recorded = Recorded("n-api")
    with server_for(recorded) as server:
        answer = replay(server, recorded)
        address = f"127.0.0.1:{server.port}"

    assert answer.body == recorded.body.replace(b"127.0.0.1:26443", address.encode())


@pytest.mark.parametrize("name", ["n-api-v1-resources", "n-crd-group"])
def test_each_resource_is_described_the_same(name: str) -> None:
    recorded = Recorded(name)
    server = ApiServer()
    server.create("customresourcedefinitions", WIDGETS)
    with server:
        answer = replay(server, recorded)

    theirs = json.loads(recorded.body)
    known = {row["name"]: without_hash(row) for row in theirs["resources"]}
    ours = answer.json
    assert [row for row in ours["resources"] if row != known[row["name"]]] == []
    assert {k: v for k, v in ours.items() if k != "resources"} == {
        k: v for k, v in theirs.items() if k != "resources"
    }


def without_hash(row: Json) -> Json:
    return {k: v for k, v in row.items() if k != "storageVersionHash"}


@pytest.mark.parametrize("name", ["n-readyz", "x-startup-readyz-200-9"])
def test_it_is_ready(name: str) -> None:
    recorded = Recorded(name)
    with server_for(recorded) as server:
        answer = replay(server, recorded)

    assert answer.status == 200
    assert answer.body.splitlines()[0] == recorded.body.splitlines()[0]
    assert answer.body.splitlines()[-1] == recorded.body.splitlines()[-1]


def test_a_graceful_deletion_leaves_the_pod_marked() -> None:
    recorded = Recorded("d-delete-pod-graceful")
    theirs = json.loads(recorded.body)
    changed = ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion")
    metadata = {k: v for k, v in theirs["metadata"].items() if k not in changed}
    metadata["generation"] -= 1
    server = server_for(recorded, graceful_pods=True)
    server.load("pods", {**theirs, "metadata": metadata})
    server.advance(version_of(theirs) - 1)
    with server:
        answer = replay(server, recorded)

    ours = answer.json
    ours["metadata"]["deletionTimestamp"] = theirs["metadata"]["deletionTimestamp"]
    check_head(recorded, answer)
    assert ours == theirs


# ---- nothing is forgotten ------------------------------------------------------------------------

ONE_BY_ONE = [
    "a-list-pods-limit500-page1",
    "d-delete-pod-graceful",
    "d-watch-as-get-name",
    "f-watchlist-table",
    "g-list-exact-old-notcompacted",
    "i-gzip-deflate-br",
    "i-gzip-list-pods-page1",
    "j-406",
    "j-partialmeta-one",
    "j-watch-table-pods",
    "k-400-badjson",
    "k-watch-rbac-revoked",
    "l-crd-deleted-under-watch",
    "l-crd-gone-404",
    "m-second-request-same-connection",
    "n-api",
    "n-api-v1-resources",
    "n-crd-group",
    "n-readyz",
    "x-connect-refused",
    "x-startup-readyz-200-9",
]


def test_every_trace_is_replayed_or_listed_with_its_reason() -> None:
    replayed = [*LISTS, *WATCHES, *REFUSALS, *NO_WATCH_LIST, *NO_CACHE, *TABLES, *ONE_BY_ONE]

    assert sorted([*replayed, *OUT_OF_SCOPE]) == traces()
    assert all(OUT_OF_SCOPE.values())
