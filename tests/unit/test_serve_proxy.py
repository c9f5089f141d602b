"""What is passed on: the same request and the same answer, and nothing that outlives its client."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from served import Asked, serving

from shmcache.serve.proxy import Proxy

HOST = b"Host: localhost\r\n"
END = b"Connection: close\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PATIENCE = 30.0


class Behind:
    """A server that keeps the heads it was sent, and says the same bytes to each."""

    def __init__(self, says: bytes) -> None:
        self.says = says
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
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
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
def behind(says: bytes = OK, **options: Any) -> Iterator[tuple[Behind, Asked]]:
    """A proxy, and what is behind it."""
    with serving() as asked:
        real = Behind(says)
        server = asked.serve.server
        server.proxy = Proxy(server.loop, real.url + options.pop("prefix", ""), **options)
        try:
            yield real, asked
        finally:
            real.close()


def sent(asked: Asked, target: bytes, head: bytes = b"", body: bytes = b"") -> bytes:
    method = b"POST" if body else b"GET"
    return asked.raw(b"%b %b HTTP/1.1\r\n" % (method, target) + HOST + head + END + body)


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


def test_a_body_is_passed_on_whole_with_its_length() -> None:
    chunked = b"Transfer-Encoding: chunked\r\n"
    with behind() as (real, asked):
        sent(asked, b"/else", chunked, b"3\r\nabc\r\n0\r\n\r\n")
        assert b"Content-Length: 3" in real.heads[0]
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


def test_connections_are_used_again() -> None:
    with behind() as (real, asked):
        for _ in range(3):
            assert sent(asked, b"/else").startswith(b"HTTP/1.1 200 ")
        assert (len(real.heads), real.connections) == (3, 1)
