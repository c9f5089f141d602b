"""The server behind a proxy: requests as they came, on connections that are kept, and can be cut.

UPSTREAM1  A request is sent exactly as given: its target byte for byte, each header as a line of
    its own, nothing added but Host and Content-Length.
UPSTREAM2  Cutting the request's line wakes the thread that waits here, for a head or in a body.
UPSTREAM3  An answer that ends early raises. A connection is used again only when its answer came
    whole.
UPSTREAM4  An answer that two readers could take for different ones raises: a line that does not end
    in CRLF or has control characters, a folded or malformed header, an impossible status, two
    lengths, a length together with chunks.
UPSTREAM5  A write whose answer is lost once it was being sent is a LostAnswer: the server may have
    carried it out.
"""

from __future__ import annotations

import collections
import http.client
import re
import select
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from shmcache.reasons import reason_of
from shmcache.serve.http import heads
from shmcache.source.line import KEEPALIVE, Line

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 3600.0
"""A watch that is passed on may be silent for long; TCP keepalive detects dead peers."""
PIECE = 64 << 10
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Methods that send a Content-Length even if it is 0."""
READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that can be repeated."""

_LINE = re.compile(rb"(?![ \t])[\t\x20-\x7e\x80-\xff]*+\r\n")
Pairs = Sequence[tuple[str, str]]


class PassedRequest(NamedTuple):
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

    def ask(self, asked: PassedRequest, line: Line) -> Reply:
        """Returns when the head of the answer has come.

        OSError, HTTPException or LostAnswer if none comes. The line holds the connection until the
        reply is closed.
        """
        connection = self._take()
        writing = False
        try:
            _hold(connection, line)
            writing = asked.method not in READING
            self._send(connection, asked)
            return Reply(self, connection, line)
        except BaseException as error:
            line.drop()
            connection.close()
            if writing and isinstance(error, (OSError, http.client.HTTPException)):
                raise LostAnswer(reason_of(error)) from error
            raise

    def _send(self, connection: http.client.HTTPConnection, asked: PassedRequest) -> None:
        target = self._prefix + asked.target
        connection.putrequest(asked.method, target, skip_accept_encoding=True)
        for name, value in asked.headers:
            connection.putheader(name, value)
        if asked.body or asked.method in WITH_BODY:
            connection.putheader("Content-Length", str(len(asked.body)))
        try:
            connection.endheaders(asked.body or None)
        except BrokenPipeError:
            pass  # the server refused to read the rest: its answer explains why

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
        """Keeps a connection that can take another request."""
        self._idle.append(connection)
        if self._closed:
            self.close()

    def close(self) -> None:
        """Closes all kept connections, and later ones when they become free."""
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
        try:
            self._check()
        except BaseException:
            self._answer.close()
            raise

    def _check(self) -> None:
        """UPSTREAM4, of the head as a whole; its lines were checked as they came."""
        names = [name.lower() for name, _ in self.headers]
        codings = [value for name, value in self.headers if name.lower() == "transfer-encoding"]
        if any(one.strip().lower() != "chunked" for one in codings):
            raise http.client.UnknownTransferEncoding(", ".join(codings))
        if len(codings) + names.count("content-length") > 1:
            raise Ambiguous("an answer with two lengths")
        if self._answer.msg.defects or self._answer.msg.get_payload():
            raise Ambiguous("an answer with a malformed header")
        if not all(map(heads.is_name, names)) or not 200 <= self.code < 600:
            raise Ambiguous("an answer with a malformed header, or an impossible status")
        for name, value in self.headers:
            if name.lower() == "content-length" and not (value.isascii() and value.isdecimal()):
                raise Ambiguous("an answer whose length is not a number")

    def pieces(self) -> Iterator[bytes]:
        """The body, never empty pieces of it, as it was encoded there; UPSTREAM3."""
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


class Ambiguous(http.client.HTTPException):
    """An answer that two readers could take for different ones (UPSTREAM4)."""


class LostAnswer(Exception):
    """Nobody knows whether a write was carried out (UPSTREAM5)."""


class _Lines:
    """A file whose lines end in CRLF and have no control characters; Ambiguous for others.

    Lines are the status, headers, and the framing of chunks; the bytes of a body are not.
    """

    def __init__(self, file: Any) -> None:
        self._file = file

    def readline(self, limit: int = -1) -> bytes:
        """The next line; b"" at the end of the file."""
        line: bytes = self._file.readline(limit)
        if line and _LINE.fullmatch(line) is None:
            raise Ambiguous("an answer with a line that does not end in CRLF, or is malformed")
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Final(http.client.HTTPResponse):
    """Skips interim answers (103 Early Hints, say)."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fp = _Lines(self.fp)  # type: ignore[assignment]

    def _read_status(self) -> tuple[str, int, str]:
        while True:
            found: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
            if found[1] >= 200:
                return found
            if found[1] == http.client.SWITCHING_PROTOCOLS:
                raise http.client.BadStatusLine("101 without an Upgrade")
            http.client.parse_headers(self.fp)


def _hold(connection: http.client.HTTPConnection, line: Line) -> None:
    """Connected, and in the line's hands; ConnectionAbortedError if that was cut."""
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
    """Whether it has data to read without a request: its end, mostly."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
