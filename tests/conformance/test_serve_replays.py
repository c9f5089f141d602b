"""Recorded requests of a real kube-apiserver, asked of `shmcache serve`: the same answers.

The cache is brought to the state of the trace, as its reflector would. Status, the headers that
clients look at, and the body must be the same byte for byte, unless a test names the difference.
Every other trace is in OUT_OF_SCOPE with its reason.
"""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING

import pytest
from asking import PATIENCE
from replaying import WATCHES, Recorded, traces, version_of
from serve_scene import CUSTOM, Scene, Socket, Watching, ask_serve, scene

from shmcache.serve.auth.access import Access, Tokens

if TYPE_CHECKING:
    from pathlib import Path

    from asking import Answer
    from replaying import Json

HEADERS = ("Content-Type", "Retry-After", "Content-Encoding", "Transfer-Encoding")


def check_head(recorded: Recorded, answer: Answer) -> None:
    assert answer.status == recorded.answer["status"]
    said = dict(recorded.answer["headers"])
    assert {k: answer.headers.get(k) for k in HEADERS} == {k: said.get(k) for k in HEADERS}


def check(recorded: Recorded, answer: Answer) -> None:
    check_head(recorded, answer)
    assert answer.body == recorded.body


# ---- watches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WATCHES)
def test_a_watch_shows_the_same_bytes(name: str) -> None:
    recorded = Recorded(name)
    with scene(recorded.key) as at:
        check(recorded, Watching(at, recorded).run())


def test_a_watch_that_is_cut_by_its_timeout_ends_cleanly_and_the_connection_goes_on() -> None:
    recorded = Recorded("m-second-request-same-connection")
    with scene("configmaps") as at:
        obj = json.loads(recorded.body)
        at.load([obj], version_of(obj))
        connection = http.client.HTTPConnection("127.0.0.1", at.serve.port, timeout=PATIENCE)
        connection.request("GET", "/api/v1/configmaps?watch=1&resourceVersion=99999999")
        watch = connection.getresponse()
        sock = connection.sock
        at.await_watches()
        at.end()
        assert watch.read() == b""
        connection.request("GET", recorded.path)
        body = connection.getresponse().read()
        assert connection.sock is sock
        connection.close()

    assert json.loads(body) == obj


# ---- WebSocket -----------------------------------------------------------------------------------

SOCKETS = [
    "g-ws-watch-410",
    "h-ws-watch-plain",
    "h-ws-watch-ping-close",
    "h-ws-watch-subproto-bin",
    "h-ws-watch-subproto-unknown",
    "h-ws-watch-token-in-subproto",
    "x-ws-watch-apiserver-sigterm",
    "x-ws-watch-apiserver-sigterm-grace",
]
SOCKETS_REFUSED = ["h-ws-watch-no-origin", "h-ws-watch-subproto-two"]
CONNECTION_HEADERS = ("Upgrade", "Connection", "Sec-WebSocket-Accept", "Sec-WebSocket-Protocol")


def config_map(name: str, version: str) -> Json:
    metadata = {"name": name, "namespace": "tr", "resourceVersion": version}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}


@pytest.mark.parametrize("name", SOCKETS)
def test_a_websocket_has_the_same_frames(name: str) -> None:
    """Their payloads were not recorded whole: only their subjects are compared."""
    recorded = Recorded(name)
    frames = recorded.sidecar["frames"]
    events = [frame["event"] for frame in frames if "event" in frame]
    start = int(recorded.query["resourceVersion"])
    with scene("configmaps") as at:
        named = {event[2] for event in events if event[2]}
        at.load([config_map(each, "1") for each in sorted(named)], 5000 if start == 1 else start)
        client = Socket(at, recorded, recorded.path.replace("timeoutSeconds=", "timeoutSeconds=9"))
        seen = [_frame(at, client, frame) for frame in frames[:-1]]
        _end_of(at, client, recorded)
        last = client.frame()
        over = client.is_over()
        client.close()

    said = dict(recorded.answer["headers"])
    assert client.status == "HTTP/1.1 101 Switching Protocols"
    assert {k: client.headers.get(k) for k in CONNECTION_HEADERS} == {
        k: said.get(k) for k in CONNECTION_HEADERS
    }
    assert seen == [_expected(frame) for frame in frames[:-1]]
    assert last == (8, b"\x03\xe8")
    assert over


def _frame(at: Scene, client: Socket, frame: Json) -> tuple[int, object]:
    """Repeats the change that the server showed, and reads its frame."""
    event = frame.get("event")
    if event is None:
        client.send(9, frame["payload"].encode())
    elif event[0] == "BOOKMARK":
        at.advance(int(event[3]))
        at.bookmark()
    elif event[0] == "MODIFIED":
        at.store(config_map(event[2], event[3]))
    opcode, payload = client.frame()
    if event is None:
        return opcode, payload.decode()
    assert payload.endswith(b"\n")
    found = json.loads(payload)
    metadata = found["object"].get("metadata", {})
    return opcode, [
        found["type"],
        found["object"]["kind"],
        metadata.get("name"),
        metadata.get("resourceVersion"),
    ]


def _expected(frame: Json) -> tuple[int, object]:
    return frame["opcode"], frame.get("event") or frame["payload"]


def _end_of(at: Scene, client: Socket, recorded: Recorded) -> None:
    sent = recorded.sidecar["client_frames_sent"]
    if sent:
        client.send(8, sent[-1][2].encode("latin-1"))
    else:
        at.end()


@pytest.mark.parametrize("name", SOCKETS_REFUSED)
def test_a_websocket_is_refused_by_a_line_alone(name: str) -> None:
    recorded = Recorded(name)
    with scene("configmaps") as at:
        at.load([], 2849)
        client = Socket(at, recorded, recorded.path)
        over = client.is_over()
        client.close()

    assert client.status == f"HTTP/1.1 {recorded.answer['status']} {recorded.answer['reason']}"
    assert client.headers == {}
    assert over


# ---- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["j-watch-table-pods", "f-watchlist-table"])
def test_a_watch_as_a_table_has_its_columns_once_and_a_row_each(name: str) -> None:
    """Ages and descriptions differ; names of columns, objects of rows and their order do not."""
    recorded = Recorded(name)
    theirs = [event["object"] for event in recorded.events]
    rows = [one["rows"][0]["object"] for one in theirs]
    is_list = recorded.events[0]["type"] == "ADDED"
    with scene(recorded.key) as at:
        start = int(recorded.query.get("resourceVersion", "0"))
        there = list(rows[:-1]) if is_list else []
        at.load([_whole(recorded, row) for row in there], start or version_of(rows[-1]))
        connection = http.client.HTTPConnection("127.0.0.1", at.serve.port, timeout=PATIENCE)
        connection.request("GET", recorded.path, headers={"Accept": recorded.headers["Accept"]})
        response = connection.getresponse()
        lines = [response.readline() for _ in range(len(rows) if is_list else 0)]
        for row, event in zip(rows, recorded.events, strict=True):
            if event["type"] == "MODIFIED":
                at.store(_whole(recorded, row))
                lines.append(response.readline())
            elif not is_list:
                at.advance(version_of(row))
                at.bookmark()
                lines.append(response.readline())
        connection.close()

    ours = [json.loads(line)["object"] for line in lines]
    assert [one["kind"] for one in ours] == ["Table"] * len(theirs)
    assert [_names(one) for one in ours] == [_names(one) for one in theirs]
    assert [one["rows"][0]["object"]["metadata"] for one in ours[:-1]] == [
        row["metadata"] for row in rows[:-1]
    ]
    assert [len(one["rows"][0]["cells"]) for one in ours] == [
        len(one["rows"][0]["cells"]) for one in theirs
    ]


def test_a_table_of_a_custom_resource_has_the_columns_of_its_definition() -> None:
    recorded = Recorded("j-table-widgets")
    theirs = json.loads(recorded.body)
    objects = [_widget(row) for row in theirs["rows"]]
    with scene(CUSTOM) as at:
        at.load(objects, max(map(version_of, objects)))
        ours = ask_serve(at, recorded).json

    assert ours["columnDefinitions"] == theirs["columnDefinitions"]
    assert [row["object"]["metadata"]["name"] for row in ours["rows"]] == [
        row["object"]["metadata"]["name"] for row in theirs["rows"]
    ]
    assert [row["cells"][:-1] for row in ours["rows"]] == [
        row["cells"][:-1] for row in theirs["rows"]
    ]


def _widget(row: Json) -> Json:
    """An object of which such a row is made."""
    _, color, size, phase, _ = row["cells"]
    status = {} if phase is None else {"status": {"phase": phase}}
    return {
        "apiVersion": "testbed.example.com/v1",
        "kind": "Widget",
        "metadata": row["object"]["metadata"],
        "spec": {"color": color, "size": size},
        **status,
    }


def _names(table: Json) -> list[str] | None:
    heads = table["columnDefinitions"]
    return None if heads is None else [head["name"] for head in heads]


def _whole(recorded: Recorded, row: Json) -> Json:
    kind = "Pod" if recorded.key == "pods" else "ConfigMap"
    return {"kind": kind, "apiVersion": "v1", "metadata": row["metadata"], "spec": {}}


# ---- lists and single objects --------------------------------------------------------------------

LISTS = [
    "a-list-empty",
    "a-list-limit5-emu133",
    "a-list-limit5-gate-off",
    "a-list-limit-1-remaining",
    "b-list-exact",
    "b-list-exact-old",
    "b-list-notolderthan",
    "b-list-rv-nomatch-limit",
    "b-list-rv-unset",
    "b-list-rv0-limit5",
    "c-list-notolderthan-compacted-200",
    "c-page1-before-expiry",
    "c-pods-page1-before-expiry",
    "g-list-exact-old-notcompacted",
    "i-gzip-small-list",
    "j-no-accept",
    "j-pretty-curl-ua",
    "k-warning-header-endpoints",
    "l-builtin-list-no-kind-on-items",
    "l-crd-list",
    "l-crd-list-fieldselector",
    "n-endpointslices-list",
    "n-nodes-list",
]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_says_the_same(name: str) -> None:
    """Tokens name another place, and short ones have a length."""
    recorded = Recorded(name)
    found = json.loads(recorded.body)
    with scene(recorded.key) as at:
        at.load([*_typed(recorded, found), *_filling(recorded, found)], _version(found))
        answer = ask_serve(at, recorded)

    ours = answer.json
    assert answer.status == 200
    assert ("continue" in ours["metadata"]) == ("continue" in found["metadata"])
    assert list(ours) == list(found), "the order of keys is the server's"
    assert _tokenless(ours) == _tokenless(found)
    assert [list(item) for item in ours["items"]] == [list(item) for item in found["items"]]
    if "Warning" in answer.headers or "Warning" in dict(recorded.answer["headers"]):
        assert answer.headers["Warning"] == dict(recorded.answer["headers"])["Warning"]


def test_curl_gets_json_laid_out_byte_for_byte() -> None:
    """But for the token, which names another place here."""
    recorded = Recorded("j-pretty-curl-ua")
    found = json.loads(recorded.body)
    with scene(recorded.key) as at:
        at.load([*_typed(recorded, found), *_filling(recorded, found)], _version(found))
        answer = ask_serve(at, recorded)

    token = answer.json["metadata"]["continue"].encode()
    theirs = found["metadata"]["continue"].encode()
    assert answer.body.replace(token, theirs) == recorded.body


def _tokenless(found: Json) -> Json:
    metadata = {k: v for k, v in found["metadata"].items() if k != "continue"}
    return {**found, "metadata": metadata}


def _version(found: Json) -> int:
    return int(found["metadata"]["resourceVersion"])


def _typed(recorded: Recorded, found: Json) -> list[Json]:
    """The items as the reflector has them: with the type that lists of built-in ones leave out."""
    if "testbed" in recorded.key:
        return list(found["items"])
    kind, api_version = found["kind"].removesuffix("List"), found["apiVersion"]
    return [{"kind": kind, "apiVersion": api_version, **item} for item in found["items"]]


def _filling(recorded: Recorded, found: Json) -> list[Json]:
    """As many objects after all others as remained."""
    metadata = found["metadata"]
    count = metadata.get("remainingItemCount", 1 if "continue" in metadata else 0)
    if recorded.target.namespace:
        names = [{"name": f"zz-{n}", "namespace": recorded.target.namespace} for n in range(count)]
    else:
        names = [{"name": f"zz-{n}"} for n in range(count)]
    labels = {"tier": "batch"}
    return [
        {"kind": "X", "apiVersion": "v1", "metadata": {**name, "labels": labels}} for name in names
    ]


@pytest.mark.parametrize("name", ["d-watch-as-get-name", "j-partialmeta-one"])
def test_a_single_object_is_the_same(name: str) -> None:
    recorded = Recorded(name)
    obj = json.loads(recorded.body)
    with scene(recorded.key) as at:
        stored = (
            obj if obj["kind"] != "PartialObjectMetadata" else {**obj, "kind": "Pod", "spec": 1}
        )
        at.load([stored], version_of(obj))
        answer = ask_serve(at, recorded)

    assert answer.status == 200
    assert json.dumps(answer.json) == json.dumps(obj), "values and the order of keys"


# ---- refusals ------------------------------------------------------------------------------------

REFUSALS = {
    "a-list-continue-garbage-400": 1,
    "a-list-continue-with-rv-400": 1,
    "b-get-rv-too-large": 0,
    "b-list-exact-rv0-422": 1,
    "b-list-match-bogus-422": 1,
    "b-list-rv-notanumber": 1,
    "b-list-rv-too-large-504": 0,
    "b-list-rv-too-large-notolder-504": 0,
    "b-list-timeoutSeconds-tiny": 0,
    "b-watchlist-rv-too-large": 0,
    "c-list-exact-compacted-410": 3014,
    "c-list-exact-rv1-compacted-410": 3014,
    "f-list-sendinitial-422": 1,
    "f-watchlist-nomatch-422": 1,
    "g-watch-oldrv-after-restart-410": 2992,
    "g-watch-rv1-after-restart-410": 2992,
    "j-table-status-404": 1,
    "k-400-fieldselector": 1,
    "k-400-labelselector": 1,
    "k-400-limit": 1,
    "k-404-object": 1,
}
"""The version of the cache; 0: that of the answer."""


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_has_the_same_words(name: str) -> None:
    recorded = Recorded(name)
    version = REFUSALS[name] or int(
        recorded.body.decode().partition("current: ")[2].partition('"')[0]
    )
    with scene(recorded.key) as at:
        at.load([], version)
        check(recorded, ask_serve(at, recorded))


def test_a_missing_resource_is_refused_with_other_words() -> None:
    """A cache has some resources of a server; the answer states that it is one."""
    recorded = Recorded("k-404-resource")
    with scene("configmaps") as at:
        answer = ask_serve(at, recorded)

    check_head(recorded, answer)
    theirs = json.loads(recorded.body)
    assert [answer.json[key] for key in ("kind", "reason", "code")] == [
        theirs[key] for key in ("kind", "reason", "code")
    ]
    assert answer.json["message"].startswith(theirs["message"])


# ---- users ---------------------------------------------------------------------------------------

TOKENS = {
    "k-401-badtoken": "nonsense",
    "k-401-watch": "nonsense",
    "h-ws-watch-badtoken": "nonsense",
}


@pytest.mark.parametrize("name", TOKENS)
def test_an_invalid_token_is_refused(name: str, tmp_path: Path) -> None:
    recorded = Recorded(name)
    (tmp_path / "tokens").write_text("right,somebody,1\n")
    with scene("configmaps") as at:
        at.load([], 2849)
        tokens = Tokens(str(tmp_path / "tokens"))
        at.serve.call(lambda: setattr(at.serve.server, "access", Access(tokens=tokens)))
        answer = ask_serve(at, recorded, Authorization=f"Bearer {TOKENS[name]}")

    assert (answer.status, answer.json) == (401, json.loads(_text_of(recorded)))


def _text_of(recorded: Recorded) -> bytes:
    summary = recorded.sidecar["summary"]
    return summary["text"].encode() if "text" in summary else recorded.body


def test_a_token_may_come_as_a_protocol_of_a_websocket(tmp_path: Path) -> None:
    recorded = Recorded("h-ws-watch-token-in-subproto")
    (tmp_path / "tokens").write_text("token,somebody,1\nother,nobody,2\n")
    with scene("configmaps") as at:
        at.load([], 2849)
        tokens = Tokens(str(tmp_path / "tokens"))
        at.serve.call(lambda: setattr(at.serve.server, "access", Access(tokens=tokens)))
        client = Socket(at, recorded, recorded.path)
        client.close()

    assert client.status == "HTTP/1.1 101 Switching Protocols"


# ---- writes -------------------------------------------------------------------------------------

WRITES = [
    "d-delete-pod-graceful",
    "j-415-patch",
    "k-400-badjson",
    "k-405",
    "k-409-exists",
    "k-422-invalid",
    "n-deletecollection",
]


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_refused(name: str) -> None:
    recorded = Recorded(name)
    with scene(recorded.key) as at:
        at.load([], 10)
        answer = ask_serve(at, recorded)

    assert recorded.method != "GET"
    assert answer.status == 405
    assert answer.json["reason"] == "MethodNotAllowed"


# ---- documents and formats -----------------------------------------------------------------------


def test_core_discovery_says_the_same() -> None:
    recorded = Recorded("n-api")
    with scene("configmaps") as at:
        answer = ask_serve(at, recorded)
        address = f"127.0.0.1:{at.serve.port}".encode()

    assert answer.body == recorded.body.replace(b"127.0.0.1:26443", address)


def test_a_resource_is_described_the_same_except_for_its_verbs() -> None:
    recorded = Recorded("n-api-v1-resources")
    theirs = json.loads(recorded.body)
    with scene("configmaps") as at:
        answer = ask_serve(at, recorded)

    (row,) = answer.json["resources"]
    (expected,) = [one for one in theirs["resources"] if one["name"] == "configmaps"]
    expected.pop("storageVersionHash", None)
    assert row == {**expected, "verbs": ["get", "list", "watch"]}


def test_the_group_of_a_custom_resource_has_its_names() -> None:
    recorded = Recorded("n-crd-group")
    theirs = json.loads(recorded.body)
    with scene(CUSTOM) as at:
        answer = ask_serve(at, recorded)

    (expected,) = [one for one in theirs["resources"] if one["name"] == "widgets"]
    expected.pop("storageVersionHash", None)
    assert {**answer.json, "resources": []} == {**theirs, "resources": []}
    assert answer.json["resources"] == [{**expected, "verbs": ["get", "list", "watch"]}]


def test_another_format_is_refused() -> None:
    recorded = Recorded("j-406")
    with scene("configmaps") as at:
        at.load([], 10)
        answer = ask_serve(at, recorded)

    theirs = json.loads(recorded.body)
    assert answer.status == 406
    assert {**answer.json, "message": ""} == {**theirs, "message": ""}


# ---- nothing is forgotten ------------------------------------------------------------------------

ONE_BY_ONE = [
    "d-watch-as-get-name",
    "f-watchlist-table",
    "j-406",
    "n-api",
    "n-api-v1-resources",
    "h-ws-watch-token-in-subproto",
    "j-partialmeta-one",
    "j-table-widgets",
    "j-watch-table-pods",
    "k-404-resource",
    "m-second-request-same-connection",
    "n-crd-group",
]
PAGES = "the first page is in a-list-limit5; tokens name a place of this process, not of etcd"
GATE = "the WatchList feature is always on"
ETCD = "there is no etcd behind a cache"
RIGHTS = "rights are the API server's to tell, by reviews"
DIES = "how a real server dies; kills of ours are in process/test_serve_soak.py"
FORMAT = "JSON is the one format; others are refused (j-406) unless the client takes JSON, too"
HEALTH = "its health is its cache's, and has no checks by these names"
OUT_OF_SCOPE = {
    "a-list-configmaps-limit10-page2": PAGES,
    "a-list-configmaps-limit10-page3": PAGES,
    "a-list-continue-other-ns": PAGES,
    "a-list-pods-limit500-page1": PAGES,
    "a-list-pods-limit500-page2": PAGES,
    "a-list-pods-limit500-page3": PAGES,
    "c-page2-inconsistent-continue": PAGES,
    "c-page3-inconsistent-continue": PAGES,
    "c-pods-page2-expired-410": PAGES,
    "f-watchlist-emu133": GATE,
    "f-watchlist-gate-off": GATE,
    "f-watchlist-rv0-emu133": GATE,
    "f-watchlist-rv0-gate-off": GATE,
    "g-events-watch-compacted-410": ETCD,
    "g-nocache-list-rv-too-large": ETCD,
    "g-nocache-watch-compacted-410": ETCD,
    "g-watch-replay-2500-from-cache": "its body of 83 MB was not kept",
    "i-gzip-deflate-br": "compressed lists: test_serve_reads.py",
    "i-gzip-list-pods-page1": "compressed lists: test_serve_reads.py",
    "j-protobuf-list": FORMAT,
    "j-protobuf-watch": FORMAT,
    "j-table-pods": "tables of lists: test_serve_reads.py",
    "j-table-pods-includeobject-none": "tables of lists: test_serve_reads.py",
    "j-yaml-list": FORMAT,
    "k-403-anonymous": RIGHTS,
    "k-403-list": RIGHTS,
    "k-403-viewer-nodes": RIGHTS,
    "k-403-watch": RIGHTS,
    "k-429-apf-list": "there is no priority and fairness: limits are on connections",
    "k-429-apf-watch": "there is no priority and fairness: limits are on connections",
    "k-watch-rbac-revoked": RIGHTS,
    "l-crd-deleted-under-watch": "definitions are the server's",
    "l-crd-gone-404": "definitions are the server's",
    "n-readyz": HEALTH,
    "x-connect-refused": "nobody is there",
    "x-etcd-frozen-create": ETCD,
    "x-etcd-frozen-list-timeout": ETCD,
    "x-etcd-frozen-readyz": ETCD,
    "x-etcd-frozen-watch-norv": ETCD,
    "x-etcd-frozen-watchlist": ETCD,
    "x-list-cut-midway": DIES,
    "x-sigterm-new-request-429": "it listens no more when it drains",
    "x-startup-crd-503-1": DIES,
    "x-startup-readyz-200-9": HEALTH,
    "x-startup-readyz-500-3": HEALTH,
    "x-watch-apiserver-sigkill": DIES,
    "x-watch-apiserver-sigterm": DIES,
    "x-watch-apiserver-sigterm-grace": DIES,
    "x-watchlist-apiserver-sigterm-grace": DIES,
}


def test_every_trace_is_asked_or_listed_with_its_reason() -> None:
    asked = [*WATCHES, *SOCKETS, *SOCKETS_REFUSED, *LISTS, *REFUSALS, *TOKENS, *WRITES, *ONE_BY_ONE]

    assert sorted({*asked, *OUT_OF_SCOPE}) == traces()
    assert not set(asked) & set(OUT_OF_SCOPE)
    assert all(OUT_OF_SCOPE.values())
