"""Bodies of requests: so many bytes, or chunks; strict, and bounded.

BODY1  a body holds at most `room` bytes at a time, which its owner gives it: a few while nobody has
    asked for the body, all of it once a request takes it.
BODY2  framing that two readers could read differently is refused: bare CR or LF, a chunk that is
    longer than its size, blanks in a chunk's extension, a trailer that is not a header or is one
    that says where a message ends, or for whom it is.
BODY3  the bytes are kept in one buffer, however small the chunks are that bring them.
"""

from __future__ import annotations

import re

from shmcache.serve.http import heads
from shmcache.serve.http.heads import BadRequest

_EXTENSION = rb';%b(?:=(?:%b|"[\t\x20\x21\x23-\x5b\x5d-\x7e]*+"))?+' % (heads.TOKEN, heads.TOKEN)
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15}+)(?:%b)*+" % _EXTENSION)
_FRAMING = re.compile(rb"(?:content-length|transfer-encoding|host):", re.IGNORECASE)
LINE_MAX = 256
_TRAILERS_MAX = 4096
STEPS = 256
"""Lines and chunks that are read in one turn: the smallest ones cost as much as large ones."""


class Body:
    """Takes bytes from the front of a connection's buffer until the body is whole."""

    __slots__ = ("_chunked", "_keeps", "_left", "_limit", "_place", "_trailers", "data", "length",
                 "size", "stopped", "whole")  # fmt: skip

    def __init__(self, *, length: int, chunked: bool, limit: int) -> None:
        self._chunked = chunked
        self._left = length
        self._limit = limit
        self._place = "size" if chunked else "data"
        self._trailers = 0
        self._keeps = True
        self.length = None if chunked else length
        """Its size, where the head states one."""
        self.data = bytearray()
        self.size = 0
        """Bytes taken so far."""
        self.whole = False
        self.stopped = False
        if length > limit:
            raise _too_large(limit)

    def discard(self) -> None:
        """Nobody wants the bytes: those that are here go, and the rest as it comes."""
        self._keeps = False
        self.data = bytearray()

    def feed(self, buffer: bytearray, room: int) -> bool:
        """Takes bytes of the body out of `buffer` up to a size of `room`; whether it is whole.

        At most STEPS pieces of the framing at a time: `stopped` tells whether it can go on at once.
        """
        self.stopped = True
        for _ in range(STEPS):
            if self.whole or not self._step(buffer, room):
                self.stopped = False
                break
        return self.whole

    def _step(self, buffer: bytearray, room: int) -> bool:
        """One piece of the framing; False where more bytes, or more room, are needed."""
        if self._place == "data":
            return self._take(buffer, room)
        line = _line(buffer)
        if line is None:
            return False
        if self._place == "after":
            if line:
                raise BadRequest(400, "a chunk is longer than its size")
            self._place = "size"
        elif self._place == "size":
            self._left = _size(line)
            self._place = "data" if self._left else "trailers"
            if self.size + self._left > self._limit:
                raise _too_large(self._limit)
        elif line:
            self._trailer(line)
        else:
            self.whole = True
        return True

    def _take(self, buffer: bytearray, room: int) -> bool:
        count = min(self._left, room - self.size, len(buffer))
        if count > 0:
            if self._keeps:
                self.data += buffer[:count]
            del buffer[:count]
            self._left -= count
            self.size += count
        if self._left:
            return False
        if self._chunked:
            self._place = "after"
        else:
            self.whole = True
        return True

    def _trailer(self, line: bytes) -> None:
        """A trailer is checked, and means nothing here."""
        self._trailers += len(line) + 2
        if self._trailers > _TRAILERS_MAX:
            raise BadRequest(431, "trailers are too long")
        if not heads.is_field(line) or _FRAMING.match(line):
            raise BadRequest(400, "a malformed trailer")


def _line(buffer: bytearray) -> bytes | None:
    end = buffer.find(b"\n", 0, LINE_MAX)
    if end < 0:
        if len(buffer) >= LINE_MAX:
            raise BadRequest(400, "a line of a chunked body is too long")
        return None
    if end == 0 or buffer[end - 1] != 13:
        raise BadRequest(400, "a line of a chunked body without CR")
    line = bytes(buffer[: end - 1])
    del buffer[: end + 1]
    return line


def _size(line: bytes) -> int:
    match = _SIZE.fullmatch(line)
    if match is None:
        raise BadRequest(400, "a chunk without its size")
    return int(match[1], 16)


def _too_large(limit: int) -> BadRequest:
    return BadRequest(413, f"the body is larger than {limit} bytes")
