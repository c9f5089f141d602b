"""Answers: heads as bytes, Status objects of failures, framing of bodies."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from http import HTTPStatus

from shmcache.protocol import failures, framing

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
LAST_CHUNK = b"0\r\n\r\n"
_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


class Answer:
    """A whole answer. `headers` are lines, each with its CRLF; a `ready` one is sent as it is."""

    __slots__ = ("body", "code", "headers", "media", "ready")

    def __init__(
        self,
        body: bytes,
        *,
        code: int = 200,
        media: bytes = JSON,
        headers: bytes = b"",
        ready: bool = False,
    ) -> None:
        self.body = body
        self.code = code
        self.media = media
        self.headers = headers
        self.ready = ready


class Stream:
    """An answer whose body is made while it is sent: the client's pace is the server's.

    Its maker has made sure that the first piece is there; a piece that fails later cuts the
    connection, so that the client can tell. `weight`: bytes that it keeps meanwhile.
    """

    __slots__ = ("headers", "media", "pieces", "weight")

    def __init__(
        self,
        pieces: Iterator[bytes],
        *,
        media: bytes = JSON,
        headers: bytes = b"",
        weight: int = 0,
    ) -> None:
        self.pieces = pieces
        self.media = media
        self.headers = headers
        self.weight = weight


NOT_ALLOWED = 405
ALLOW = b"Allow: GET, HEAD, OPTIONS\r\n"
"""The methods of everything that is served; RFC 9110 requires them in each 405."""


def document(value: object, code: int = 200) -> Answer:
    """A JSON document, with the newline that ends the real server's."""
    return Answer(framing.encode(value) + b"\n", code=code)


def refusal(failure: failures.Failure) -> Answer:
    """The answer that reports a Failure to the client."""
    retry = failure.retry_after
    headers = b"" if retry is None else b"Retry-After: %d\r\n" % retry
    if failure.code == NOT_ALLOWED:
        headers += ALLOW
    if failure.text is None:
        answer = document(failure.status, failure.code)
        answer.headers = headers
        return answer
    headers += b"X-Content-Type-Options: nosniff\r\n"
    return Answer(failure.text, code=failure.code, media=TEXT, headers=headers)


_date: tuple[int, bytes] = (0, b"")


def common() -> bytes:
    """The headers of every answer; made once a second."""
    global _date  # noqa: PLW0603 - a cache of one line
    now = int(time.time())
    if _date[0] != now:
        text = email.utils.formatdate(now, usegmt=True).encode()
        _date = (now, b"Cache-Control: no-cache, private\r\nDate: %b\r\n" % text)
    return _date[1]


def head(code: int, media: bytes, headers: bytes, framing_line: bytes) -> bytes:
    """A whole head; `framing_line` is Content-Length or Transfer-Encoding, or nothing."""
    return b"%bContent-Type: %b\r\n%b%b%b\r\n" % (
        _LINES[code], media, common(), headers, framing_line,
    )  # fmt: skip


def status_line(code: int) -> bytes:
    """The first line of an answer, with its CRLF."""
    return _LINES[code]


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
