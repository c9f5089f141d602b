"""The server behind a proxy: requests as they came, on connections that are kept, and can be cut.

N1  A request is sent as it is told: its target byte for byte, each header as a line of its own,
    nothing added but Host and Content-Length.
N2  Whoever waits here, for a head or in a body, is woken by a cut of the request's line.
N3  An answer that ends early raises. A connection is used again only when its answer came whole.
"""

from __future__ import annotations

import collections
import http.client
import select
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from shmcache.source.line import KEEPALIVE, Line

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 3600.0
"""A watch that is passed on may be silent for long; TCP keepalive finds out who is gone."""
PIECE = 64 << 10
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Methods of which the length is told even if it is 0."""

Pairs = Sequence[tuple[str, str]]


class Asked(NamedTuple):
    """One request."""

    method: str
    target: str
    headers: Pairs
    body: bytes


class Upstream:
    """One server. Thread-safe."""

    def __init__(self, url: str, ca_file: str | None = None) -> None:
        parts = urlsplit(url)
        self._prefix = parts.path.rstrip("/")
        self._address = (parts.hostname or "", parts.port)
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._idle: collections.deque[http.client.HTTPConnection] = collections.deque()
        self._closed = False

    def ask(self, asked: Asked, line: Line) -> Reply:
        """Returns when the head of the answer has come. OSError or HTTPException where none does.

        The line holds the connection until the reply is closed.
        """
        connection = self._take()
        try:
            _hold(connection, line)
            self._send(connection, asked)
            return Reply(self, connection, line)
        except BaseException:
            line.drop()
            connection.close()
            raise

    def _send(self, connection: http.client.HTTPConnection, asked: Asked) -> None:
        target = self._prefix + asked.target
        connection.putrequest(asked.method, target, skip_accept_encoding=True)
        for name, value in asked.headers:
            connection.putheader(name, value)
        if asked.body or asked.method in WITH_BODY:
            connection.putheader("Content-Length", str(len(asked.body)))
        try:
            connection.endheaders(asked.body or None)
        except BrokenPipeError:
            pass  # it has refused what it did not want to read: its answer says so

    def _take(self) -> http.client.HTTPConnection:
        while (kept := self._kept()) is not None:
            if not _speaks(kept):
                return kept
            kept.close()
        host, port = self._address
        if self._tls is None:
            made = http.client.HTTPConnection(host, port, CONNECT_SECONDS)
        else:
            made = http.client.HTTPSConnection(
                host, port, timeout=CONNECT_SECONDS, context=self._tls
            )
        made.response_class = _Final
        return made

    def keep(self, connection: http.client.HTTPConnection) -> None:
        """It can take another request."""
        self._idle.append(connection)
        if self._closed:
            self.close()

    def close(self) -> None:
        """Closes the connections that are kept, and will be."""
        self._closed = True
        while (kept := self._kept()) is not None:
            kept.close()

    def _kept(self) -> http.client.HTTPConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None


class Reply:
    """One answer: its head, and its body as it comes."""

    def __init__(
        self, upstream: Upstream, connection: http.client.HTTPConnection, line: Line
    ) -> None:
        self._upstream = upstream
        self._connection = connection
        self._line = line
        self._answer = connection.getresponse()
        self._whole = self._answer.length == 0
        self.code = self._answer.status
        self.reason = self._answer.reason
        self.headers: Pairs = self._answer.getheaders()
        coding = self._answer.getheader("Transfer-Encoding", "chunked")
        if coding.strip().lower() != "chunked":
            self._answer.close()
            raise http.client.UnknownTransferEncoding(coding)

    def pieces(self) -> Iterator[bytes]:
        """The body, never empty pieces of it, as it was encoded there; N3."""
        answer, left = self._answer, self._answer.length
        while piece := answer.read1(PIECE):
            if left is not None:
                left -= len(piece)
            yield piece
        if left:
            raise http.client.IncompleteRead(b"", left)
        self._whole = True

    def close(self) -> None:
        """Whether it was taken whole or not."""
        self._line.drop()
        self._answer.close()
        if self._whole and self._connection.sock is not None:
            self._upstream.keep(self._connection)
        else:
            self._connection.close()


class _Final(http.client.HTTPResponse):
    """Reads over what a server says before its answer (103 Early Hints, say)."""

    def _read_status(self) -> tuple[str, int, str]:
        while True:
            found: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
            if found[1] >= 200:
                return found
            if found[1] == http.client.SWITCHING_PROTOCOLS:
                raise http.client.BadStatusLine("101 without an Upgrade")
            http.client.parse_headers(self.fp)


def _hold(connection: http.client.HTTPConnection, line: Line) -> None:
    """Connected, and in the line's hands; ConnectionAbortedError where that was cut."""
    sock = connection.sock or _connected(connection)
    with socket.fromfd(sock.fileno(), sock.family, sock.type) as below:  # also under TLS
        line.hold(below)
    sock.settimeout(SILENCE_SECONDS)


def _connected(connection: http.client.HTTPConnection) -> socket.socket:
    connection.connect()
    sock: socket.socket = connection.sock
    for option in KEEPALIVE:
        sock.setsockopt(*option)
    return sock


def _speaks(connection: http.client.HTTPConnection) -> bool:
    """Whether there is something to be read though nothing was asked: its end, mostly."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
