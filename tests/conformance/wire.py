"""A dumb TCP server: it reads a request, remembers it, and plays the next answer, byte for byte."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

Play = Callable[[socket.socket], None]
Answer = bytes | Sequence[bytes] | Play
"""The answer to send: at once, piece by piece, or by a function. Then the connection is closed,
unless the framing shows the client its end, and the client sends another request."""

DEADLINE = 60.0


class Wire:
    """Plays its answers in their order, over any number of connections, one at a time."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> None:
        self._answers = list(answers)
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.requests: list[str] = []
        self.peers: list[Any] = []
        self.connections = 0
        self.hung_up = threading.Event()
        """The client has ended a connection."""
        self._thread.start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def header(self, name: str, request: int = -1) -> list[str]:
        """The values of a header in a request."""
        lines = self.requests[request].split("\r\n")[1:]
        pairs = [line.partition(": ") for line in lines]
        return [value for key, _, value in pairs if key.lower() == name.lower()]

    def path(self, request: int = -1) -> str:
        return self.requests[request].split(" ")[1]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        for sock in self._open:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the client was first
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _serve(self) -> None:
        while self._answers:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return  # closed
            self.connections += 1
            self._open.append(sock)
            try:
                if self._tls is not None:
                    sock = self._tls.wrap_socket(sock, server_side=True)
                    self._open.append(sock)
                    self.peers.append(sock.getpeercert())
                self._converse(sock)
            except OSError:
                self.hung_up.set()
            finally:
                sock.close()

    def _converse(self, sock: socket.socket) -> None:
        while self._answers:
            request = read_head(sock)
            if not request:
                self.hung_up.set()
                return
            self.requests.append(request)
            if not play(sock, self._answers.pop(0)):
                return


def read_head(sock: socket.socket) -> str:
    """A request without a body; empty if the client has gone."""
    found = b""
    while not found.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        if not byte:
            return ""
        found += byte
    return found.decode("latin-1").strip()


def play(sock: socket.socket, answer: Answer) -> bool:
    """Sends an answer; whether the connection goes on after it."""
    if callable(answer):
        answer(sock)
        return False
    pieces = [answer] if isinstance(answer, bytes) else answer
    for piece in pieces:
        sock.sendall(piece)
    head, _, body = b"".join(pieces).partition(b"\r\n\r\n")
    return _is_whole(head.lower(), body)


def _is_whole(head: bytes, body: bytes) -> bool:
    if b"connection: close" in head:
        return False
    if b"transfer-encoding: chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    _, found, length = head.partition(b"content-length: ")
    return bool(found) and len(body) == int(length.split(b"\r\n")[0])


def answer(
    body: bytes, status: str = "200 OK", kind: str = "application/json", **headers: str
) -> bytes:
    """An answer with its length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(*pieces: bytes, end: bool = True, **headers: str) -> bytes:
    """An answer in chunks; without its end it stays open, or is cut."""
    lines = ["HTTP/1.1 200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body + (b"0\r\n\r\n" if end else b"")
