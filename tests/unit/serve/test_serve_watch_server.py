"""A watch over HTTP: its ends, its costs, and the claims that it never makes (G25 to G27)."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from served import Asked, Stream, pod, serving

from shmcache import Resource, states
from shmcache.protocol.tables import printing
from shmcache.serve.limits import Limits
from shmcache.serve.server import Serving
from shmcache.serve.watch import channel
from shmcache.serve.watch import hub as watches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 30.0
Json = dict[str, Any]


@pytest.fixture
def asked() -> Iterator[Asked]:
    with serving({"pods": [pod(1)]}) as made:
        yield made


def until(asked: Asked, fact: Callable[[], bool]) -> None:
    """Asks in the server's thread, until it is so."""
    deadline = time.monotonic() + PATIENCE
    while not asked.serve.call(fact):
        assert time.monotonic() < deadline


# ---- ends -------------------------------------------------------------------------------------


def test_a_server_that_is_to_end_ends_its_watches_cleanly() -> None:
    with serving({"pods": [pod(1)]}) as asked:
        stream = Stream(asked, "resourceVersion=100")
        until(asked, lambda: asked.serve.server.watches.count == 1)

    assert stream.next() is None
    stream.close()


def test_the_client_of_a_stale_cache_gets_an_error() -> None:
    serve = Serving(max_age=1000.0)
    with serving({"pods": [pod(1)]}, serve) as asked:
        asked.writer.note("pods", contact_ns=time.monotonic_ns())
        with Stream(asked, "resourceVersion=100") as stream:
            until(asked, lambda: asked.serve.server.watches.count == 1)
            asked.serve.call(lambda: setattr(asked.serve.server.standing, "_max_age", -1.0))
            event = stream.next()
            over = stream.next()

    assert event is not None
    assert (event["type"], event["object"]["code"]) == ("ERROR", 503)
    assert "the last data from the server" in event["object"]["message"]
    assert over is None


def test_a_watch_ends_at_its_timeout_with_a_bookmark_before() -> None:
    with serving({"pods": [pod(1)]}) as asked:
        query = "resourceVersion=100&timeoutSeconds=1&allowWatchBookmarks=true"
        with Stream(asked, query) as stream:
            events = list(iter(stream.next, None))

    assert {event["type"] for event in events} <= {"BOOKMARK"}
    assert all(event["object"]["metadata"]["resourceVersion"] == "100" for event in events)


def test_bookmarks_go_only_to_clients_that_requested_them() -> None:
    with (
        serving({"pods": [pod(1)]}, Serving(bookmark_seconds=0.05)) as asked,
        Stream(asked, "resourceVersion=100&allowWatchBookmarks=true") as marked,
    ):
        assert [marked.next_event() for _ in range(3)] == [("BOOKMARK", "")] * 3
        with Stream(asked, "resourceVersion=100") as silent:
            until(asked, lambda: asked.serve.server.watches.count == 2)
            marked.next_event()
            asked.apply(pod(2, version=101), "101")
            assert silent.next_event() == ("ADDED", "p-0002")


def test_a_head_request_opens_no_watch(asked: Asked) -> None:
    answer = asked.get("/api/v1/pods?watch=1", "HEAD")

    assert (answer.code, answer.body) == (200, b"")
    until(asked, lambda: asked.serve.server.watches.count == 0)


# ---- refused watches --------------------------------------------------------------------------


SOCKET = b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
SOCKET += b"Origin: http://localhost\r\nHost: localhost\r\n\r\n"
WATCH = b"GET /api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=100 HTTP/1.%d\r\n"


@pytest.mark.parametrize(("minor", "connection", "status"), [
    (1, b"Connection: upgrade\r\n", b"101 Switching Protocols"),
    (1, b"Connection: keep-alive, UPGRADE\r\n", b"101 Switching Protocols"),
    (1, b"Connection: close\r\n", b"200 OK"),
    (0, b"Connection: Upgrade\r\n", b"200 OK"),
])  # fmt: skip
def test_a_websocket_needs_an_upgrade_of_the_connection(
    minor: int, connection: bytes, status: bytes
) -> None:
    """And describes its objects as every other answer does."""
    settings = {"namespaces": [], "labels": "", "fields": ""}
    resource = Resource("pods", keep_managed_fields=False, settings=settings)
    with serving({"pods": [pod(1)]}, resources=[resource]) as asked:
        asked.writer.set_state("pods", states.SYNCED)
        asked.writer.note("pods", contact_ns=time.monotonic_ns())
        found = asked.raw(WATCH % minor + connection + SOCKET)
        head, _, body = found.partition(b"\r\n\r\n")

    assert head.split(b"\r\n")[0] == b"HTTP/1.1 " + status
    assert b"\r\nX-Shmcache-Form: " in head
    assert b"\r\nAge: " in head
    assert (b"Sec-WebSocket-Accept" in head) == body.startswith(b"\x88") == (b"101" in status)


def test_a_resource_that_is_not_listed_yet_cannot_be_watched() -> None:
    settings = {"resource": "pods", "kind": "Pod", "version": "v1", "namespaces": []}
    with serving(resources=[Resource("pods", settings=settings)]) as asked:
        asked.writer.set_state("pods", states.LISTING)
        answer = asked.get("/api/v1/pods?watch=1&timeoutSeconds=1")

    assert answer.code == 429
    assert answer.headers["Retry-After"] == "1"


def test_a_watch_outside_of_the_scope_is_refused_in_words() -> None:
    settings = {"resource": "pods", "kind": "Pod", "version": "v1", "namespaces": ["a", "b"]}
    resource = Resource("pods", settings=settings)
    with serving({"pods": [pod(1, "a")]}, resources=[resource]) as asked:
        everywhere = asked.get("/api/v1/pods?watch=1")
        elsewhere = asked.get("/api/v1/namespaces/c/pods?watch=1")
        with Stream(asked, "", "/api/v1/namespaces/a/pods") as stream:
            assert stream.next_event() == ("ADDED", "p-0001")

    assert [everywhere.code, elsewhere.code] == [403, 403]
    assert "the namespaces a, b" in everywhere.json["message"]


def test_a_namespace_is_listed_and_watched_at_its_own_version() -> None:
    """With the smallest of all, a client would be shown again what its list has shown."""
    settings = {"resource": "pods", "kind": "Pod", "version": "v1", "namespaces": ["a", "b"]}
    resource = Resource("pods", settings=settings)
    objects = [pod(1, "a", 180), pod(1, "b", 90)]
    with serving({"pods": objects}, Serving(fresh_seconds=0.01), resources=[resource]) as asked:
        asked.writer.set_marks("pods", '{"a": "200", "b": "100"}')
        path = "/api/v1/namespaces/a/pods"
        version = asked.get(path).json["metadata"]["resourceVersion"]
        fresh = asked.get(f"{path}?resourceVersion=200&resourceVersionMatch=NotOlderThan")
        with Stream(asked, f"resourceVersion={version}", path) as stream:
            until(asked, lambda: asked.serve.server.watches.count == 1)
            asked.apply(pod(2, "a", 210), "100")
            told = stream.next_event()

    assert (version, fresh.code, told) == ("200", 200, ("ADDED", "p-0002"))


# ---- slow clients -----------------------------------------------------------------------------


def big(number: int, version: int) -> Json:
    obj = pod(number, version=version)
    obj["spec"]["note"] = f"{version}" * 20_000
    return obj


def test_a_client_that_reads_nothing_costs_its_limit_and_delays_no_others() -> None:
    limits = Limits(backlog_bytes=100_000)
    with serving({"pods": []}, Serving(limits=limits), ring_slots=4096) as asked:
        deaf = socket.create_connection(("127.0.0.1", asked.serve.port))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = (
            b"GET /api/v1/pods?watch=1&resourceVersion=100 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        )
        deaf.sendall(request)
        with Stream(asked, "resourceVersion=100") as quick:
            until(asked, lambda: asked.serve.server.watches.count == 2)
            waits = 0
            for version in range(101, 301):
                asked.apply(big(version % 7, version), str(version))
                event = quick.next()
                assert event is not None
                assert event["object"]["metadata"]["resourceVersion"] == str(version)
                waits = max(waits, asked.serve.call(lambda: _backlog(asked)))
        deaf.close()

    assert 0 < waits < 100_000 + 2 * 62_000


def _backlog(asked: Asked) -> int:
    return max(connection.backlog for connection in asked.serve.server.connections)


def test_a_client_that_reads_late_gets_everything_in_order() -> None:
    limits = Limits(backlog_bytes=100_000)
    room: Json = {"ring_slots": 4096, "ring_bytes": "64MiB", "arena_max": "512MiB"}
    with (
        serving({"pods": []}, Serving(limits=limits), **room) as asked,
        Stream(asked, "resourceVersion=100") as late,
    ):
        until(asked, lambda: asked.serve.server.watches.count == 1)
        for version in range(101, 301):
            asked.apply(big(version % 7, version), str(version))
        found = [late.next() for _ in range(200)]

    versions = [event["object"]["metadata"]["resourceVersion"] for event in found if event]
    assert versions == [str(version) for version in range(101, 301)]


def test_an_unwatched_server_follows_nothing(asked: Asked) -> None:
    with Stream(asked, "resourceVersion=100"):
        until(asked, lambda: asked.serve.server.watches.count == 1)
    until(asked, lambda: asked.serve.server.watches.count == 0)
    server = asked.serve.server

    assert asked.serve.call(lambda: not server.watches._channels)
    until(asked, lambda: server.bell._relay is None)


def test_one_timer_checks_the_freshness_of_watched_resources(asked: Asked) -> None:
    """However often the last watch goes and another one comes."""
    server = asked.serve.server
    opened, loop = server.watches, server.loop

    def looks() -> int:
        return sum(timer.function == opened._look for _, _, timer in loop._timers)

    for _ in range(5):
        with Stream(asked, "resourceVersion=100"):
            until(asked, lambda: opened.count == 1)
        until(asked, lambda: not opened._channels)
    with Stream(asked, "resourceVersion=100"):
        until(asked, lambda: opened.count == 1)
        assert asked.serve.call(looks) == 1
        asked.serve.call(opened._look)  # as if its time had come
        assert asked.serve.call(looks) == 1
    until(asked, lambda: looks() == 0)


def test_checks_continue_after_a_failed_one(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    server = asked.serve.server
    looked: list[object] = []

    def fails(served: object) -> None:
        looked.append(served)
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(watches, "LOOK_SECONDS", 0.01)
    with Stream(asked, "resourceVersion=100"):
        until(asked, lambda: server.watches.count == 1)
        monkeypatch.setattr(server.standing, "headers", fails)
        until(asked, lambda: len(looked) > 1)


UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Origin: http://localhost\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize("headers", [b"", UPGRADE], ids=["chunks", "frames"])
def test_a_client_that_has_gone_before_the_head_is_written_leaves_no_watch(
    asked: Asked, headers: bytes
) -> None:
    server, opened = asked.serve.server, 10
    address = ("127.0.0.1", asked.serve.port)
    clients = [socket.create_connection(address) for _ in range(opened)]
    until(asked, lambda: len(server.connections) == opened)
    with asked.held_up():
        for client in clients:
            client.sendall(
                b"GET /api/v1/pods?watch=1&resourceVersion=100 HTTP/1.1\r\nHost: localhost\r\n"
                + headers
                + b"\r\n"
            )
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
    until(asked, lambda: not server.connections)

    assert server.stats.requests == opened
    assert asked.serve.call(lambda: (server.watches.count, server.watches._channels)) == (0, {})


def test_many_watches_wake_by_one_descriptor_and_read_the_ring_once(asked: Asked) -> None:
    streams = [Stream(asked, "resourceVersion=100") for _ in range(20)]
    until(asked, lambda: asked.serve.server.watches.count == 20)
    channels = asked.serve.call(lambda: len(asked.serve.server.watches._channels))
    asked.apply(pod(1, version=101), "101")
    told = [stream.next_event() for stream in streams]
    for stream in streams:
        stream.close()

    assert channels == 1
    assert told == [("MODIFIED", "p-0001")] * 20


def odd(number: int, version: int, **parts: Any) -> dict[str, Any]:
    """A pod that no API server would have, as a program or an etcd may."""
    return {**pod(number, version=version), **parts}


def test_an_odd_object_stops_no_watch_of_another_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHANNEL5: neither while they are live, nor of a watch that lags or begins."""

    def cells(_: Any, obj: Any) -> list[Any]:
        if obj.get("status") == "odd":
            raise RuntimeError("a bug of a column")
        return [obj["metadata"]["name"]]

    monkeypatch.setattr(printing, "cells", cells)
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    with serving({"pods": [pod(1)]}, version="100") as asked, contextlib.ExitStack() as stack:

        def watch(query: str) -> Iterator[Any]:
            connection = http.client.HTTPConnection("127.0.0.1", asked.serve.port, timeout=30)
            stack.callback(connection.close)
            path = f"/api/v1/pods?watch=1&timeoutSeconds=60&{query}"
            connection.request("GET", path, headers={"Accept": table})
            answer = stack.enter_context(connection.getresponse())
            return map(orjson.loads, iter(answer.readline, b""))

        plain = stack.enter_context(Stream(asked, "resourceVersion=100&timeoutSeconds=60"))
        live = watch("resourceVersion=100")
        asked.apply(pod(2, version=101), "101")
        assert plain.next_event() == ("ADDED", "p-0002")
        assert next(live)["object"]["rows"][0]["cells"] == ["p-0002"]
        asked.apply(odd(3, 102, status="odd"), "102")
        asked.apply(pod(4, version=103), "103")
        assert [plain.next_event() for _ in range(2)] == [("ADDED", "p-0003"), ("ADDED", "p-0004")]
        for found in (live, watch("resourceVersion=101"), watch("resourceVersion=0")):
            *_, last = found
            assert (last["type"], last["object"]["code"]) == ("ERROR", 500)
        assert asked.serve.server.watches.count == 1


def test_objects_that_are_not_as_their_kind_reach_every_watch() -> None:
    with serving({"pods": []}, version="100") as asked:
        kept = [odd(1, 101, status="odd"), odd(2, 102, spec=5), odd(3, 103, metadata="odd")]
        with (
            Stream(asked, "resourceVersion=100&timeoutSeconds=60") as plain,
            Stream(asked, "resourceVersion=100&timeoutSeconds=60&labelSelector=a!=b") as selected,
        ):
            for version, obj in enumerate(kept, 101):
                with asked.writer.batch():
                    asked.writer.put("pods", f"default/p-{version}", obj, str(version))
                    asked.writer.set_version("pods", str(version))
            for stream in (plain, selected):
                found = [stream.next() for _ in kept]
                assert [one and one["object"] for one in found] == kept
            table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
            for path in ("pods", *(f"namespaces/default/pods/p-{n}" for n in range(101, 104))):
                assert asked.get(f"/api/v1/{path}", **table).code == 200
            for version in range(104, 107):
                asked.delete(f"default/p-{version - 3}", str(version))
            for stream in (plain, selected):
                ends = [stream.next() for _ in kept]
                assert [one and one["type"] for one in ends] == ["DELETED"] * 3


@pytest.mark.parametrize("error", [KeyError("metadata"), RuntimeError("a bug")])
def test_an_error_in_the_changes_of_one_resource_stops_no_other_and_no_later_watch(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    raising, fill = [True], channel.Channel._fill

    def odd(self: channel.Channel, changes: Any) -> Any:
        if self.resource == "configmaps" and raising:
            raise error
        return fill(self, changes)

    monkeypatch.setattr(channel.Channel, "_fill", odd)
    maps, query = "/api/v1/configmaps", "timeoutSeconds=60"
    with Stream(asked, query, maps) as ended, Stream(asked, query) as goes_on:
        assert goes_on.next_event() == ("ADDED", "p-0001")
        until(asked, lambda: asked.serve.server.watches.count == 2)
        asked.apply(pod(1, version=101), "101", "configmaps")
        asked.apply(pod(2, version=102), "102")
        assert goes_on.next_event() == ("ADDED", "p-0002")
        last = ended.next()
        assert last is None or last["object"]["code"] == 410
        until(asked, lambda: asked.serve.server.watches.count == 1)
        raising.clear()
        with Stream(asked, query, maps) as later:
            assert later.next_event() == ("ADDED", "p-0001")
            asked.apply(pod(3, version=103), "103", "configmaps")
            assert later.next_event() == ("ADDED", "p-0003")


def test_a_watch_that_cannot_begin_ends_with_an_error(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(channel.Channel, "locate", bug)
    with Stream(asked, "resourceVersion=100&timeoutSeconds=60") as stream:
        last = stream.next()
        assert last is not None
        assert (last["type"], last["object"]["code"]) == ("ERROR", 500)
        assert stream.next() is None
    until(asked, lambda: asked.serve.server.watches.count == 0)
