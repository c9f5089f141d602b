"""The proxy passes on the same request and the same answer, and nothing outlives its client."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from served import Asked, serving

from shmcache.serve.auth.access import Access, Tokens
from shmcache.serve.auth.threads import Workers
from shmcache.serve.http.connection import Connection
from shmcache.serve.http.loop import Loop
from shmcache.serve.proxy.proxy import Proxy

HOST = b"Host: localhost\r\n"
END = b"Connection: close\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PATIENCE = 30.0


class Behind:
    """A server that keeps the received heads, and sends the same bytes to each client."""

    def __init__(self, says: bytes, tls: ssl.SSLContext | None = None) -> None:
        self.says = says
        self._tls = tls
        self.heads: list[bytes] = []
        self.hung_up = threading.Semaphore(0)
        """Once for each connection that was ended there."""
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                if self._tls is not None:
                    sock = self._tls.wrap_socket(sock, server_side=True)
                self.connections += 1
                self._open.append(sock)
                self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
                self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        found = b""
        with contextlib.suppress(OSError):
            while piece := sock.recv(1 << 16):
                found += piece
                while b"\r\n\r\n" in found:
                    head, _, found = found.partition(b"\r\n\r\n")
                    self.heads.append(head)
                    sock.sendall(self.says)
                    if b"Connection: close" in self.says:
                        sock.shutdown(socket.SHUT_WR)
        self.hung_up.release()

    def close(self) -> None:
        """Idempotent."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        for sock in self._open:
            sock.close()


@contextlib.contextmanager
def behind(
    says: bytes = OK, *, tls: ssl.SSLContext | None = None, **options: Any
) -> Iterator[tuple[Behind, Asked]]:
    """A proxy, and the server behind it."""
    with serving() as asked:
        real = Behind(says, tls)
        server = asked.serve.server
        server.proxy = Proxy(server.loop, real.url + options.pop("prefix", ""), **options)
        try:
            yield real, asked
        finally:
            real.close()


def sent(asked: Asked, target: bytes, head: bytes = b"", body: bytes = b"") -> bytes:
    method = b"POST" if body else b"GET"
    return asked.raw(b"%b %b HTTP/1.1\r\n" % (method, target) + HOST + head + END + body)


def wait_for_shares(asked: Asked, taken: int = 0) -> None:
    """Until so many requests are being passed on."""
    deadline = time.monotonic() + PATIENCE
    proxy: Any = asked.serve.server.proxy
    while asked.serve.call(lambda: proxy._shares.taken) != taken:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_each_header_is_passed_on_as_it_came_and_none_is_added() -> None:
    """Two groups are not one group with a comma in its name."""
    lines = [
        b"Impersonate-User: ann", b"Impersonate-Group: dev", b"X-Other: 1, 2",
        b"impersonate-group: ops", b"Accept: a/b;q=0.5", b"Accept: c/d",
    ]  # fmt: skip
    with behind() as (real, asked):
        assert sent(asked, b"/else", b"".join(line + b"\r\n" for line in lines))[9:12] == b"200"
        first, *rest = real.heads[0].split(b"\r\n")

    assert first == b"GET /else HTTP/1.1"
    assert [line for line in rest if not line.startswith(b"Host: ")] == lines
    assert len(rest) == len(lines) + 1


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n"),
        (b"Content-Length: 3\r\n", b"abc"),
    ],
)
def test_a_body_is_passed_on_whole_with_one_length(head: bytes, body: bytes) -> None:
    with behind() as (real, asked):
        sent(asked, b"/else", head, body)
        assert 1 == real.heads[0].count(b"Content-Length: 3")
        assert 1 == real.heads[0].lower().count(b"content-length")
        assert b"chunked" not in real.heads[0]


@pytest.mark.parametrize("target", [
    b"/a//b///c", b"/a/%2f%7e%7E/b|{x}", b"/a?x=a/../b&y=%2E.&z=?", b"/a...b/..c/.d", b"//a",
    b"/a;x/",
])  # fmt: skip
def test_a_target_is_passed_on_byte_for_byte(target: bytes) -> None:
    with behind(prefix="/inner/") as (real, asked):
        sent(asked, target)

        assert real.heads[0].split(b" ")[1] == b"/inner" + target


@pytest.mark.parametrize("target", [
    b"/a/../b", b"/a/./b", b"/..", b"/a/..", b"/%2e%2E/b", b"/a/.%2e/b", b"/a%2f..%2fb", b"/a%2",
    b"/a%zz", b"/a?x=%", b"/a#b", b"http://x/../a",
])  # fmt: skip
def test_a_target_that_could_be_read_differently_is_refused(target: bytes) -> None:
    with behind(prefix="/inner") as (real, asked):
        assert sent(asked, target).startswith(b"HTTP/1.1 400 ")
        assert not real.heads


@pytest.mark.parametrize(("head", "code"), [
    (b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x\r\n", 200),
    (b"Upgrade: websocket\r\n", 200),
    (b"Upgrade: SPDY/3.1\r\nConnection: keep-alive\r\n", 200),
    (b"Upgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n", 501),
    (b"Upgrade: SPDY/3.1\r\nConnection: upgrade\r\n", 501),
    (b"Upgrade: h2c, websocket\r\nConnection: upgrade\r\n", 501),
])  # fmt: skip
def test_an_upgrade_is_refused_unless_it_may_be_ignored(head: bytes, code: int) -> None:
    with behind() as (real, asked):
        assert sent(asked, b"/else", head).startswith(b"HTTP/1.1 %d " % code)
        assert len(real.heads) == (code == 200)
        assert all(b"pgrade" not in one and b"Settings" not in one for one in real.heads)


@pytest.mark.parametrize("target", [
    b"/api/v1/watch/secrets?resourceVersion=5", b"/api/v1/watch/namespaces/a/secrets/b",
])  # fmt: skip
def test_a_watch_of_an_old_path_is_passed_on_as_a_watch(target: bytes) -> None:
    with behind() as (real, asked):
        assert sent(asked, target)[9:12] == b"200"
        assert real.heads[0].split(b"\r\n")[0] == b"GET %b HTTP/1.1" % target


def test_connections_are_used_again() -> None:
    with behind() as (real, asked):
        for _ in range(3):
            assert sent(asked, b"/else").startswith(b"HTTP/1.1 200 ")
            wait_for_shares(asked)
        assert (len(real.heads), real.connections) == (3, 1)


# ---- answers -------------------------------------------------------------------------------------


def both(asked: Asked, method: bytes, target: bytes = b"/else") -> list[tuple[bytes, bytes]]:
    """Head and body of two answers on one connection, the second one to a GET of ours."""
    first = b"%b %b HTTP/1.1\r\n" % (method, target) + HOST + b"\r\n"
    found = asked.raw(first + b"GET /readyz HTTP/1.1\r\n" + HOST + END)
    heads = found.split(b"HTTP/1.1 ")[1:]
    return [(head, body) for head, _, body in (one.partition(b"\r\n\r\n") for one in heads)]


@pytest.mark.parametrize(("method", "says", "length"), [
    (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 70\r\nX-A: b\r\n\r\n", b"70"),
    (b"HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n", None),
    (b"HEAD", b"HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\nX-A: b\r\n\r\n", b"19"),
    (b"GET", b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n", None),
    (b"GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nX-A: b\r\n\r\n", None),
])  # fmt: skip
def test_an_answer_without_a_body_stays_without_one(
    method: bytes, says: bytes, length: bytes | None
) -> None:
    """Nothing comes between it and the next answer of the connection."""
    with behind(says) as (_, asked):
        (head, body), (other, ready) = both(asked, method)

    assert head.split(b"\r\n")[0] == says.split(b"\r\n")[0].removeprefix(b"HTTP/1.1 ")
    assert b"\r\nX-A: b" in head
    assert b"Transfer-Encoding" not in head
    assert (b"Content-Length: %b" % (length or b"") in head) == (length is not None)
    assert body == b""
    assert other.startswith(b"200 OK")
    assert ready == b"ok"


def test_an_interim_answer_is_skipped() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
    with behind(early + OK) as (_, asked):
        (head, body), _ = both(asked, b"GET")

    assert head.startswith(b"200 OK")
    assert b"Link" not in head
    assert body == b"2\r\nok\r\n0\r\n\r\n"


@pytest.mark.parametrize("line", [b"520 A Server Is Strange", b"299 "])
def test_an_unknown_status_is_passed_on(line: bytes) -> None:
    with behind(b"HTTP/1.1 %b\r\nContent-Length: 2\r\n\r\nok" % line) as (_, asked):
        (head, body), _ = both(asked, b"GET")

    assert head.split(b"\r\n")[0] == line
    assert body == b"2\r\nok\r\n0\r\n\r\n"


@pytest.mark.parametrize("header", [b"Impersonate-User", b"Authorization", b"X-Remote-User"])
def test_a_client_cannot_hide_a_header_of_its_request_from_the_api_server(header: bytes) -> None:
    """Without Impersonate-User the call would have all the rights of a proxy in front."""
    hidden = b"%b: ann\r\nConnection: %b\r\n" % (header, header.lower())
    with behind() as (real, asked):
        assert sent(asked, b"/else", hidden)[9:12] == b"400"

    assert not real.heads


LENGTH = b"Content-Length: 2\r\n"


@pytest.mark.parametrize("says", [
    b"HTTP/1.1 200 OK\r\n" + LENGTH + b"X: a\rSet-Cookie: b\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\n" + LENGTH + b"X: a\x00b\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\n" + LENGTH + b"X: a\x1b[2Jb\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\n" + LENGTH + b"X: a\r\n b\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\n" + LENGTH + b"X : a\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\n" + LENGTH + b"no colon\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\n" + LENGTH + b"Content-Length: 3\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\n" + LENGTH + b"Content-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\n" + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    b"HTTP/1.1 200 O\x07K\r\n" + LENGTH + b"\r\nok",
    b"HTTP/1.1 999 No\r\n" + LENGTH + b"\r\nok",
    b"HTTP/1.1 000 No\r\n" + LENGTH + b"\r\nok",
])  # fmt: skip
def test_an_answer_that_two_readers_could_read_differently_is_not_passed_on(says: bytes) -> None:
    with behind(says + b"") as (_, asked):
        answer = sent(asked, b"/else")

    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Set-Cookie" not in answer


@pytest.mark.parametrize(
    "says", [b"Connection: close", b"HTTP/1.1 999 No\r\n" + LENGTH + b"\r\nok"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
def test_a_write_whose_answer_is_lost_is_not_to_be_repeated(method: str, says: bytes) -> None:
    """Clients repeat a request for which they are given a time (PROXY7)."""
    with behind(says) as (real, asked):
        answer = asked.get("/else", method)

    written = method != "GET"
    assert len(real.heads) == 1
    assert answer.code == (504 if written else 503)
    assert ("Retry-After" in answer.headers) != written


def test_a_write_that_reached_nobody_may_be_repeated() -> None:
    with behind() as (real, asked):
        real.close()
        answer = asked.get("/else", "POST", b"{}")

    assert (answer.code, answer.headers.get("Retry-After")) == (503, "5")


def test_headers_of_the_upstream_connection_are_dropped_and_all_others_kept() -> None:
    lines = [
        b"Date: Thu, 01 Jan 1970 00:00:00 GMT", b"Cache-Control: public, immutable",
        b"Set-Cookie: a=b", b"Set-Cookie: c=d", b"Content-Type: application/x",
    ]  # fmt: skip
    hop = (
        b"Connection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n"
    )
    says = b"HTTP/1.1 200 OK\r\n" + hop + b"".join(line + b"\r\n" for line in lines) + b"\r\nok"
    with behind(says) as (_, asked):
        (head, _), _ = both(asked, b"GET")

    assert head.split(b"\r\n")[1:] == [*lines, b"Transfer-Encoding: chunked"]


def test_a_failure_to_pass_on_ends_the_connection_and_frees_its_share(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("as planned")

    with behind(most=1) as (_, asked):
        for place in ("begin_with", "chunk", "finish", "framing"):
            with monkeypatch.context() as patch:
                patch.setattr(Connection, place, fail)
                assert not sent(asked, b"/else").endswith(b"0\r\n\r\n")
                wait_for_shares(asked)
        with monkeypatch.context() as patch:
            patch.setattr("shmcache.serve.proxy.proxy._head", fail)
            assert sent(asked, b"/else") == b""
            wait_for_shares(asked)
        assert sent(asked, b"/else").endswith(b"0\r\n\r\n")
    assert caplog.text.count("LookupError: as planned") == 5


def test_one_client_leaves_places_for_others(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a,ann\nb,bob\n")
    with behind(SILENT, most=4) as (_, asked), contextlib.ExitStack() as stack:
        asked.serve.server.access = Access(tokens=Tokens(str(tokens)))

        def code(token: bytes) -> bytes:
            sock = socket.create_connection(("127.0.0.1", asked.serve.port), timeout=PATIENCE)
            stack.enter_context(sock)
            sock.sendall(
                b"GET /else HTTP/1.1\r\n%bAuthorization: Bearer %b\r\n\r\n" % (HOST, token)
            )
            return sock.recv(12)[9:]

        assert [code(b"a") for _ in range(4)] == [b"200"] * 3 + [b"429"]
        assert [code(b"b") for _ in range(2)] == [b"200", b"429"]
        stack.close()
        wait_for_shares(asked)
        assert not asked.serve.server.proxy._shares._held  # type: ignore[union-attr]


# ---- its end -------------------------------------------------------------------------------------

SILENT = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSING = SILENT[:-2] + b"Connection: Close\r\n\r\n"
WATCH = b"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize("says", [b"", SILENT, CLOSING])
@pytest.mark.parametrize("secure", [False, True])
def test_a_client_that_leaves_frees_its_place_though_the_server_is_silent(
    tmp_path: Path, says: bytes, *, secure: bool
) -> None:
    tls, options = None, {}
    if secure:
        authority = trustme.CA()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        options["ca_file"] = str(tmp_path / "ca.pem")
    with behind(says, tls=tls, most=4, **options) as (real, asked):
        for _ in range(2):
            with contextlib.ExitStack() as stack:
                for _ in range(3):
                    client = socket.create_connection(("127.0.0.1", asked.serve.port))
                    stack.enter_context(client).sendall(WATCH)
                wait_for_shares(asked, 3)
                assert sent(asked, b"/else").startswith(b"HTTP/1.1 429 ")
            wait_for_shares(asked)
        real.says = OK
        assert sent(asked, b"/else").startswith(b"HTTP/1.1 200 ")


def test_a_server_that_vanishes_is_found_out_by_the_kernel() -> None:
    with behind() as (_, asked):
        sent(asked, b"/else")
        wait_for_shares(asked)
        proxy: Any = asked.serve.server.proxy
        (kept,) = proxy._upstream._idle
        assert kept.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert kept.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60


def test_a_thread_that_outlives_its_loop_does_no_harm() -> None:
    """Whose descriptor may have the number by now that the loop's had."""
    loop, go = Loop(), threading.Event()
    told: list[object] = []
    workers = Workers(loop, 1)
    before = set(threading.enumerate())
    workers.run(lambda: go.wait(PATIENCE), lambda *answer: told.append(answer))
    (thread,) = set(threading.enumerate()) - before
    workers.close()
    loop.close()
    others = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]
    go.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    for fd in others:
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)
        os.close(fd)
    assert told == []
