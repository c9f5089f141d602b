"""The usual GET gets the same bytes as the long way, and only usual requests take the fast way."""

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Asked, pod, serving

import shmcache
import shmcache.serve.auth.access
from shmcache import states
from shmcache.protocol import failures
from shmcache.serve.auth.access import Access, Tokens
from shmcache.serve.freshness import LOOK_SECONDS

POD = b"/api/v1/namespaces/default/pods/p-0001"
HOST = b"Host: localhost\r\n"
LEAN = b"Accept: application/json;drop=metadata.managedFields, application/json\r\n"
HEAD_MARK = b"X-Head: its answer has no body\r\n\r\n"
BIG = pod(7, note="x" * 60) | {"data": {"text": "y" * (140 << 10)}}
UNTYPED = {key: value for key, value in pod(8).items() if key != "kind"}
PODS = [pod(1), pod(1, "de#f"), pod(2), BIG, UNTYPED, pod(9, note='"\\\n<&>\u2028é')]


class Spied:
    """Counts the answers of the usual way."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.count = 0
        self._usual = asked.serve.server.usual
        asked.serve.server.quick = self.answer  # type: ignore[method-assign]

    def answer(self, data: bytes) -> bytes | None:
        found = self._usual.answer(data)
        self.count += found is not None
        return found

    def at_once(self, data: bytes) -> bytes:
        """The answer, where the request comes in one piece; the connection ends with the next."""
        return self._ask((data,))

    def in_two(self, data: bytes) -> bytes:
        """With the first byte alone: a request that was begun takes the long way."""
        return self._ask((data[:1], data[1:]))

    def _ask(self, parts: tuple[bytes, ...]) -> bytes:
        with socket.create_connection(("127.0.0.1", self.asked.serve.port), timeout=30) as sock:
            for number, part in enumerate(parts):
                if number:
                    self._await_buffered()
                sock.sendall(part)
            found = read_one(sock, bodyless=parts[-1].endswith(HEAD_MARK))
        return re.sub(rb"(Date|Age): [^\r]*", rb"\1:", found)

    def _await_buffered(self) -> None:
        """Until the server holds the first piece."""
        server, deadline = self.asked.serve.server, time.monotonic() + 30
        while not self.asked.serve.call(
            lambda: any(one._incoming.buffer for one in server.connections)
        ):
            assert time.monotonic() < deadline


def read_one(sock: socket.socket, *, bodyless: bool = False) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    sized = re.search(rb"Content-Length: (\d+)", head)
    while not bodyless and not (
        len(body) >= int(sized[1]) if sized else body.endswith(b"\r\n0\r\n\r\n")
    ):
        more = sock.recv(1 << 16)
        if not more:
            break
        body += more
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def spied(**options: object) -> Iterator[Spied]:
    with serving({"pods": PODS, "nodes": [NODE]}, **options) as asked:  # type: ignore[arg-type]
        yield Spied(asked)


NODE = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n.1", "resourceVersion": "5"}}
USUAL = [
    b"GET %b HTTP/1.1\r\n" % POD + HOST,
    b"GET /api/v1/nodes/n.1 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/pods/p-0008 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/pods/p-0009 HTTP/1.1\r\n" + HOST,
    b"GET %b HTTP/1.1\r\n" % POD + HOST + b"Accept: application/json, */*\r\nX-Any: thing\r\n",
    b"GET %b HTTP/1.1\r\n" % POD + HOST + b"Accept-Encoding: gzip\r\nConnection: keep-alive\r\n",
    b"GET %b HTTP/1.1\r\nhOST: 127.0.0.1:99\r\nOrigin: http://localhost:3\r\n" % POD,
]
OTHER = [
    b"HEAD %b HTTP/1.1\r\n" % POD + HOST + HEAD_MARK[:-2],
    b"GET %b HTTP/1.0\r\n" % POD + HOST,
    b"GET %b HTTP/1.1\r\n" % POD,
    b"GET %b HTTP/1.1\r\nHost: evil.example\r\n" % POD,
    b"GET %b HTTP/1.1\r\n" % POD + HOST + b"Origin: http://evil.example\r\n",
    b"GET %b HTTP/1.1\r\n" % POD + HOST + b"Connection: close\r\n",
    b"GET %b HTTP/1.1\r\n" % POD + HOST + b"Accept: application/yaml\r\n",
    b"GET %b HTTP/1.1\r\n" % POD
    + HOST
    + b"Accept: application/json;as=Table;g=meta.k8s.io;v=v1\r\n",
    b"GET %b HTTP/1.1\r\n" % POD + HOST + LEAN,
    b"GET %b HTTP/1.1\r\n" % POD + HOST + b"X : y\r\n",
    b"GET %b HTTP/1.1\r\n" % POD + HOST + b"Content-Length: 0\r\nContent-Length: 0\r\n",
    b"GET %b HTTP/1.1\r\n" % POD + HOST + b"Impersonate-User: bob\r\n",
    b"GET %b HTTP/1.1\r\n" % POD + HOST + b"iMPERSONATE-eXTRA-Scope: \r\n",
    b"GET %b?resourceVersion=abc HTTP/1.1\r\n" % POD + HOST,
    b"GET %b?resourceVersion=5 HTTP/1.1\r\n" % POD + HOST,
    b"GET /api/v1/namespaces/default/pods/x?fieldManager=me/p-0001 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/pods/x?/p-0001 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/pods/x#/p-0001 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/de#f/pods/p-0001 HTTP/1.1\r\n" + HOST,
    b"GET %b/ HTTP/1.1\r\n" % POD + HOST,
    b"GET %b/log HTTP/1.1\r\n" % POD + HOST,
    b"GET /api/v1/namespaces/default/pods/p-%30001 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/pods/.. HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/../pods/p-0001 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces//pods/p-0001 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/pods/none HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/pods HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/status HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/pods/p-0001 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/nodes/n.1 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/secrets/p-0001 HTTP/1.1\r\n" + HOST,
    b"GET /api/v1/namespaces/default/pods/p-0007 HTTP/1.1\r\n" + HOST,
    b"GET /version HTTP/1.1\r\n" + HOST,
    b"GET / HTTP/1.1\r\n" + HOST,
    b"GET /\r\n",
    b"GET x/y HTTP/1.1\r\n" + HOST,
]


def test_both_ways_write_the_same_bytes_and_usual_requests_take_the_fast_one() -> None:
    with spied() as spy:
        for head in [*USUAL, *OTHER]:
            count = spy.count
            data = head + b"\r\n"
            assert spy.at_once(data) == spy.in_two(data), head
            assert (spy.count - count) == (head in USUAL), head


def test_clients_without_managed_fields_take_the_fast_way_where_there_are_none() -> None:
    """FASTGET4"""
    settings = {"namespaces": [], "labels": "", "fields": ""}
    resource = shmcache.Resource("pods", keep_managed_fields=False, settings=settings)
    with spied(resources=[resource, "nodes"]) as spy:
        spy.asked.writer.set_state("pods", states.SYNCED)
        spy.asked.writer.note("pods", contact_ns=time.monotonic_ns())
        data = b"GET %b HTTP/1.1\r\n" % POD + HOST
        for head in (data, data + LEAN):
            assert spy.at_once(head + b"\r\n") == spy.in_two(head + b"\r\n")
        assert spy.count == 2


def test_a_known_block_does_not_hide_the_bytes_after_it() -> None:
    """Two requests in one piece, half a request, a body: none of that is the usual."""
    data = USUAL[0] + b"\r\n"
    with (
        spied() as spy,
        socket.create_connection(("127.0.0.1", spy.asked.serve.port), timeout=30) as sock,
    ):
        sock.sendall(data)
        alone = read_one(sock)
        sock.sendall(data + data + data[:-1])
        found = [read_one_of_many(sock, len(alone)) for _ in range(2)]
        sock.sendall(data[-1:])
        last = read_one(sock)

        assert spy.count == 1
    assert {len(one) for one in [alone, *found, last]} == {len(alone)}
    assert all(one.endswith(alone.partition(b"\r\n\r\n")[2]) for one in [*found, last])


def read_one_of_many(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += sock.recv(size - len(data))
    return data


def test_later_changes_are_shown() -> None:
    data = USUAL[0] + b"\r\n"
    with spied() as spy:
        before = spy.at_once(data)
        spy.asked.apply(pod(1, version=101, new="label"), "101")
        after = spy.at_once(data)
        spy.asked.delete("default/p-0001", "102")
        gone = spy.at_once(data)

        assert spy.count == 2
    assert b'"resourceVersion":"1"' in before
    assert b'"resourceVersion":"101"' in after
    assert gone.startswith(b"HTTP/1.1 404")


def test_remembered_path_expires_with_its_freshness_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = USUAL[0] + b"\r\n"
    old = (b"", failures.stale("too old"))
    with spied() as spy:
        server, usual = spy.asked.serve.server, spy._usual
        assert spy.at_once(data).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(server.standing, "_look", lambda _served: old)

        def later() -> None:
            """The remembered entries are as old as they can become."""
            targets, past = usual._targets, server.loop.now - 1
            assert {one.until - server.loop.now <= LOOK_SECONDS for one in targets.values()} == {
                True
            }
            usual._targets = {key: one._replace(until=past) for key, one in targets.items()}
            server.standing._seen.clear()

        spy.asked.serve.call(later)
        answer = spy.at_once(data)

    assert answer.startswith(b"HTTP/1.1 503"), answer


def test_a_token_is_looked_up_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shmcache.serve.auth.access, "LOOK_SECONDS", -1.0)
    path = tmp_path / "tokens"
    path.write_text("one,ann\n")
    data = USUAL[0] + b"Authorization: Bearer one\r\n\r\n"
    with spied() as spy:
        spy.asked.serve.server.access = Access(tokens=Tokens(str(path)))
        allowed, strange = spy.at_once(data), spy.at_once(USUAL[0] + b"\r\n")
        path.write_text("another,ann\n")
        refused = spy.at_once(data)

        assert spy.count == 1
    assert allowed.startswith(b"HTTP/1.1 200")
    assert strange.startswith(b"HTTP/1.1 401")
    assert refused.startswith(b"HTTP/1.1 401")


def test_memory_of_paths_is_bounded() -> None:
    with spied() as spy:
        usual = spy._usual
        for number in range(3000):
            usual.answer(
                b"GET /api/v1/namespaces/n%d/pods/p HTTP/1.1\r\nHost: localhost\r\nX: %d\r\n\r\n"
                % (number, number)
            )
            usual.answer(b"GET /%b/p HTTP/1.1\r\n\r\n" % (b"a" * number))
        assert len(usual._targets) <= 1024
        assert len(usual._blocks) <= 1024
        assert max(map(len, usual._targets)) <= 512
