"""The body of an HTTP answer as it comes from the wire: framing and compression taken off.

An API server cuts what it sends into HTTP chunks of 2 KiB, and http.client costs several
microseconds for each. So the bytes are read from the buffered socket below the response in large
pieces, and one C call takes the framing of all of them off. TLS and proxies are below that
socket, so that they need no care here.

The timeout of the socket counts from byte to byte (LINE1). So these bytes are timed, while we wait
for them: a reader that is busy does not make a server slow.

TIMED1  a watch is silent when no event and no bookmark was complete for the longest silence. Bytes
that complete none do not count: blanks, framing, or an event that comes byte by byte.
TIMED2  any other body brings FLOOR bytes, as they are on the wire, for each second of PATIENCE
times the longest silence: with the defaults 140 KiB in 140 s.
TIMED3  compressed bytes that stand for nothing end after IDLE_BYTES (inflate.py).
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import urllib3

from shmcache._hot import Chunks
from shmcache.source.failures import ended_early, garbage, too_slow
from shmcache.source.inflate import WBITS, inflate

PIECE = 256 * 1024
"""At most this is read at a time."""
FLOOR = 1024
"""Bytes in a second: a modem brings several times as many (TIMED2)."""
PATIENCE = 2
"""An answer is whole, or has come so far, after so many times the longest silence."""


class TimedBody:
    """Reads the bytes of a body, and times them (TIMED1, TIMED2)."""

    __slots__ = ("_floor", "_seconds", "_size", "_waited", "_what", "wire")

    def __init__(self, what: str, silence: float, *, is_watch: bool) -> None:
        self._what = what
        self._seconds = silence if is_watch else PATIENCE * silence
        self._floor = None if is_watch else FLOOR
        self.renew()
        self.wire: io.BufferedReader | None = None

    def renew(self) -> None:
        """An event was complete: time counts from here."""
        self._waited, self._size = 0.0, 0

    def read1(self, most: int) -> bytes:
        """As of the wire. SourceFailed (SILENT), before a read: the last one may have sufficed."""
        assert self.wire is not None
        if self._waited > self._seconds:
            if self._floor is None or self._size < self._floor * self._waited:
                raise too_slow(self._what, self._size, self._waited, is_watch=self._floor is None)
            self.renew()
        began = time.monotonic()
        data = self.wire.read1(most)
        self._waited += time.monotonic() - began
        self._size += len(data)
        return data


def read_body(
    response: urllib3.HTTPResponse, what: str, timed: TimedBody | None = None
) -> Iterator[bytes]:
    """The decoded body, in pieces as they come, never empty.

    When it has come whole, the connection goes back to its pool. SourceFailed where it ends early
    or is encoded in a way we did not ask for; what sockets raise is raised. Where the headers say
    nothing of the length (see is_bounded), whether it came whole is for the reader to find out.
    Without `timed` the caller limits the time for the whole body.
    """
    pieces = iter(Framed(response, what, timed).read, b"")
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding == "identity":
        return pieces
    if encoding not in WBITS:
        raise garbage(what, f"Content-Encoding {encoding!r} was not asked for")
    return _inflated(pieces, WBITS[encoding], what)


def is_bounded(response: urllib3.HTTPResponse) -> bool:
    """Whether the answer says where it ends. Headers that were cut off do not, either."""
    return _is_chunked(response) or _length(response) is not None


def _is_chunked(response: urllib3.HTTPResponse) -> bool:
    return response.headers.get("Transfer-Encoding", "").strip().lower() == "chunked"


def _length(response: urllib3.HTTPResponse) -> int | None:
    text = response.headers.get("Content-Length", "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _wire(response: urllib3.HTTPResponse) -> io.BufferedReader | None:
    """The buffered socket under a response, as urllib3's own read_chunked() uses it."""
    below = response._fp  # noqa: SLF001
    wire = getattr(below, "fp", None)
    assert wire is None or isinstance(wire, io.BufferedReader)
    return wire


def _give_back(response: urllib3.HTTPResponse) -> None:
    """The body was read: the connection can take the next request."""
    below = response._fp  # noqa: SLF001
    if below is not None:
        below.close()
    response.release_conn()


class Framed:
    """Reads a body without its framing: no generator, since each event passes here."""

    def __init__(self, response: urllib3.HTTPResponse, what: str, timed: TimedBody | None) -> None:
        self._response = response
        self._what = what
        self._wire: io.BufferedReader | TimedBody | None = _wire(response)
        if timed is not None and isinstance(self._wire, io.BufferedReader):
            timed.wire, self._wire = self._wire, timed
        self._chunks = Chunks() if _is_chunked(response) else None
        self._left = _length(response)

    def read(self) -> bytes:
        """The next piece; b"" at the end, when the connection has gone back to its pool."""
        if self._wire is None:  # http.client has seen that there is no body
            data = b""
        elif self._chunks is not None:
            data = self._unchunked(self._wire, self._chunks)
        elif self._left is not None:
            data = self._counted(self._wire, self._left)
        else:
            data = self._wire.read1(PIECE)
        if not data:
            self._wire = None
            _give_back(self._response)
        return data

    def _unchunked(self, wire: io.BufferedReader | TimedBody, chunks: Chunks) -> bytes:
        while not chunks.done:
            data = wire.read1(PIECE)
            if not data:
                raise ended_early(self._what)
            found = chunks.feed(data)
            if found:
                return found
        if chunks.unused:
            raise garbage(self._what, f"{len(chunks.unused)} bytes behind the end of the answer")
        return b""

    def _counted(self, wire: io.BufferedReader | TimedBody, left: int) -> bytes:
        if not left:
            return b""
        data = wire.read1(min(left, PIECE))
        if not data:
            raise ended_early(self._what)
        self._left = left - len(data)
        return data


def _inflated(pieces: Iterator[bytes], wbits: int, what: str) -> Iterator[bytes]:
    whole = yield from inflate(pieces, wbits)
    if not whole:
        raise ended_early(what)
