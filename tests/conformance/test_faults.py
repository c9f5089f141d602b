"""Faults of testing.ApiServer: each does only its own harm, and only as often as requested."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from asking import PATIENCE, Stream, ask

from shmcache.testing import ApiServer
from shmcache.testing.apiserver import faults
from shmcache.testing.apiserver.wire import reset

MAPS = "/api/v1/namespaces/prod/configmaps"
WATCH = f"{MAPS}?watch=1&resourceVersion=1"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        for name in "abc":
            started.create("configmaps", {"metadata": {"name": name, "namespace": "prod"}})
        yield started


def raw(server: ApiServer, path: str, seconds: float = PATIENCE) -> bytes:
    """The bytes of the wire until the server closes; TimeoutError if it does not."""
    with socket.create_connection(("127.0.0.1", server.port), seconds) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        found = b""
        while data := sock.recv(1 << 16):
            found += data
    return found.partition(b"\r\n\r\n")[2]


def lines_of(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line.startswith(b'{"type"')]


def test_a_cut_in_a_line_leaves_whole_chunks_and_no_end(server: ApiServer) -> None:
    server.faults.cut(where=faults.LINE, after=1)

    body = raw(server, WATCH)

    whole, half = lines_of(body)
    json.loads(whole)
    with pytest.raises(ValueError, match=r"Unterminated|Expecting|Invalid control"):
        json.loads(half)
    assert not body.endswith(b"0\r\n\r\n")
    assert half.endswith(b"\r")


def test_a_cut_in_a_chunk_leaves_a_promise(server: ApiServer) -> None:
    server.faults.cut(where=faults.CHUNK, after=1)

    body = raw(server, WATCH)

    promised, sent = body.split(b"\r\n")[-2:]
    assert int(promised, 16) > len(sent) > 0


def test_a_truncated_line_is_in_a_body_that_ends_properly(server: ApiServer) -> None:
    server.faults.cut(where=faults.TRUNCATED, after=2)

    answer = ask(server, WATCH)

    assert not answer.cut
    assert len(lines_of(answer.body)) == 3
    with pytest.raises(ValueError, match=r"Unterminated|Expecting|Invalid control"):
        answer.summary  # noqa: B018


def test_a_clean_cut_ends_between_events(server: ApiServer) -> None:
    server.faults.cut(where=faults.CLEAN, after=2)

    answer = ask(server, WATCH)

    assert not answer.cut
    assert answer.summary == [("ADDED", "a"), ("ADDED", "b")]


def test_a_reset_resets_the_connection(server: ApiServer) -> None:
    server.faults.cut(reset=True)

    with pytest.raises(ConnectionResetError):
        raw(server, WATCH)


def test_a_list_can_be_cut_too(server: ApiServer) -> None:
    server.faults.cut("list", after=2, where=faults.CHUNK)

    answer = ask(server, MAPS)

    assert answer.cut
    assert b'"name":"a"' in answer.body
    assert b'"name":"c"' not in answer.body


def test_half_open_before_the_answer_is_silence(server: ApiServer) -> None:
    fault = server.faults.half_open()

    with pytest.raises(TimeoutError):
        raw(server, WATCH, 0.2)

    deadline = time.monotonic() + PATIENCE
    while fault.met == 0 and time.monotonic() < deadline:
        time.sleep(0.01)  # a busy server reads the request after its client has gone
    assert fault.met == 1


def test_half_open_after_an_event_is_silence_from_then_on(server: ApiServer) -> None:
    server.faults.half_open(after=1)
    with Stream(server, f"{MAPS}?watch=1&resourceVersion=1") as stream:
        assert stream.next_event() == ("ADDED", "a")
        stream.timeout(0.2)

        with pytest.raises(TimeoutError):
            stream.next()


def test_garbage_comes_between_events(server: ApiServer) -> None:
    server.faults.garbage(after=1, text=b"<html>\n")
    server.faults.cut(where=faults.CLEAN, after=3)

    answer = ask(server, WATCH)

    assert answer.body.split(b"\n")[1] == b"<html>"
    assert len(lines_of(answer.body)) == 3


def test_a_storm_of_429_ends_after_the_requested_number(server: ApiServer) -> None:
    server.faults.too_many_requests("list", "configmaps", retry_after=7, times=2)

    answers = [ask(server, MAPS) for _ in range(3)]

    assert [answer.status for answer in answers] == [429, 429, 200]
    assert answers[0].headers["Retry-After"] == "7"
    assert answers[0].headers["Content-Type"] == "text/plain; charset=utf-8"


def test_a_fault_meets_only_its_targets(server: ApiServer) -> None:
    server.faults.error(503, "list", "pods", times=None)

    assert ask(server, MAPS).status == 200
    assert [ask(server, "/api/v1/pods").status for _ in range(2)] == [503, 503]
    server.faults.clear()
    assert ask(server, "/api/v1/pods").status == 200


def test_unauthorized_once(server: ApiServer) -> None:
    server.faults.unauthorized()

    assert [ask(server, MAPS).status for _ in range(2)] == [401, 200]


def test_a_wrong_content_type_comes_with_another_page(server: ApiServer) -> None:
    server.faults.wrong_content_type()

    answer = ask(server, MAPS)

    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html")
    assert answer.body.startswith(b"<html>")


def test_a_missing_end_bookmark_leaves_the_objects(server: ApiServer) -> None:
    server.faults.no_end_bookmark()
    path = f"{MAPS}?watch=1&allowWatchBookmarks=true"
    added = [("ADDED", name) for name in "abc"]

    with Stream(server, path) as without, Stream(server, path) as with_it:
        assert without.next_events(3) == with_it.next_events(3) == added
        server.send_bookmarks()
        assert without.next_event() == ("BOOKMARK", "")
        assert with_it.next_event() == ("BOOKMARK", "end")


def test_no_bookmarks_at_all(server: ApiServer) -> None:
    server.faults.no_bookmarks()
    path = f"{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=60"
    with Stream(server, path) as stream:
        assert [stream.next_event() for _ in range(3)] == [("ADDED", name) for name in "abc"]
        server.send_bookmarks()
        server.create("configmaps", {"metadata": {"name": "d", "namespace": "prod"}})
        assert stream.next_event() == ("ADDED", "d")


def test_each_flush_is_a_gzip_member_of_its_own(server: ApiServer) -> None:
    server.faults.gzip_members()
    with Stream(server, f"{WATCH}", {"Accept-Encoding": "gzip"}) as stream:
        first = stream.some()
        server.create("configmaps", {"metadata": {"name": "d", "namespace": "prod"}})
        second = stream.some()

    assert stream.headers["Content-Encoding"] == "gzip"
    assert len(gzip.decompress(first).splitlines()) == 3
    assert json.loads(gzip.decompress(second))["object"]["metadata"]["name"] == "d"


def test_a_client_that_does_not_take_gzip_gets_plain_bodies(server: ApiServer) -> None:
    server.faults.gzip_members()
    server.faults.cut(where=faults.CLEAN, after=3)

    answer = ask(server, WATCH, headers={"Accept-Encoding": "identity"})

    assert len(answer.summary) == 3


def test_slow_answers_come_all_the_same(server: ApiServer) -> None:
    fault = server.faults.slow(0.01, "list", each_chunk=0.001)

    assert ask(server, MAPS).names == ["a", "b", "c"]
    assert fault.met == 1


def test_compaction_ends_the_past(server: ApiServer) -> None:
    server.create("configmaps", {"metadata": {"name": "d", "namespace": "prod"}})
    version = server.compact()
    server.create("configmaps", {"metadata": {"name": "e", "namespace": "prod"}})

    (event,) = ask(server, WATCH).events
    with Stream(server, f"{MAPS}?watch=1&resourceVersion={version}") as stream:
        later = stream.next_event()

    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410
    assert event["object"]["message"] == f"too old resource version: 1 ({version})"
    assert later == ("ADDED", "e")


def test_a_restore_goes_back_in_versions_and_resets_watches(server: ApiServer) -> None:
    backup, then = server.backup(), server.version
    server.delete("configmaps", "a", "prod")
    with Stream(server, f"{MAPS}?watch=1&resourceVersion={server.version}") as stream:
        server.restore(backup)
        with pytest.raises(ConnectionResetError):
            stream.next()

    answer = ask(server, MAPS)

    assert answer.names == ["a", "b", "c"]
    assert answer.json["metadata"]["resourceVersion"] == then


def test_down_is_refused_and_back_is_the_same_port(server: ApiServer) -> None:
    server.go_down()
    with pytest.raises(ConnectionRefusedError):
        raw(server, MAPS)

    server.come_back()

    assert ask(server, MAPS).names == ["a", "b", "c"]


def test_a_slow_reader_is_ended_cleanly_when_its_past_is_forgotten() -> None:
    with ApiServer(history=10) as server:
        path = f"{MAPS}?watch=1&resourceVersion={server.version}&timeoutSeconds=60"
        big: dict[str, Any] = {"metadata": {"name": "a", "namespace": "prod"}}
        with Stream(server, path) as stream:
            made = server.create("configmaps", big)
            assert stream.next_event() == ("ADDED", "a")
            for number in range(200):
                server.update("configmaps", {**made_of(made), "data": {"x": f"{number}" * 100_000}})
            seen = 0
            while stream.next() is not None:
                seen += 1

    assert seen < 200


def made_of(obj: dict[str, Any]) -> dict[str, Any]:
    """Without the version: such an update always wins."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
    return {**obj, "metadata": metadata}


def test_many_watches_end_with_the_server() -> None:
    server = ApiServer().start()
    streams = [Stream(server, "/api/v1/pods?watch=1&resourceVersion=1") for _ in range(10)]
    readers = [threading.Thread(target=stream.next) for stream in streams]
    for reader in readers:
        reader.start()

    server.stop()

    for reader, stream in zip(readers, streams, strict=True):
        reader.join(PATIENCE)
        assert not reader.is_alive()
        stream.close()


def test_a_stop_ends_the_connection_of_a_client_that_does_not_read() -> None:
    server = ApiServer().start()
    with Stream(server, f"{MAPS}?watch=1&resourceVersion={server.version}") as stream:
        made = server.create("configmaps", {"metadata": {"name": "a", "namespace": "prod"}})
        assert stream.next_event() == ("ADDED", "a")
        for number in range(100):
            server.update("configmaps", {**made_of(made), "data": {"x": f"{number}" * 100_000}})

        server.stop()

        with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
            while True:
                stream.next()


def test_a_fault_counts_requests_that_met_it_and_where_it_showed(server: ApiServer) -> None:
    asked = server.faults
    counted = [
        asked.gzip_members(),  # refused: the client does not take gzip
        asked.no_end_bookmark(),  # the request was not for a WatchList
        asked.garbage(after=1),
        asked.cut(where=faults.CLEAN, after=2),
        asked.slow(0.001),
    ]

    ask(server, WATCH)

    assert [1] * 5 == [fault.met for fault in counted]
    assert [0, 0, 1, 1, 1] == [fault.happened for fault in counted]
    wrong = asked.wrong_content_type("text/plain", body=None)
    late = asked.cut("list", where=faults.LINE, after=99)
    ask(server, MAPS)
    assert (1, 1) == (wrong.met, wrong.happened)
    assert (1, 0) == (late.met, late.happened)


def test_a_connection_that_has_ended_can_be_reset() -> None:
    async def closed() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            _, writer = await asyncio.open_connection(sock=ours)
            writer.close()
            await writer.wait_closed()
            reset(writer)

    asyncio.run(closed())
