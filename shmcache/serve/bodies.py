"""Bodies of requests: so many bytes, or chunks; strict, and bounded.

A body is collected whole before its request is looked at, for the few requests that have one.
"""

from __future__ import annotations

import re

from shmcache.serve.heads import BadRequest

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e]*)?")
LINE_MAX = 256
_TRAILERS_MAX = 4096


class Body:
    """Takes bytes from the front of a connection's buffer until the body is whole."""

    __slots__ = ("_chunked", "_left", "_limit", "_place", "_trailers", "parts", "size")

    def __init__(self, *, length: int, chunked: bool, limit: int) -> None:
        self._chunked = chunked
        self._left = length
        self._limit = limit
        self._place = "size" if chunked else "data"
        self._trailers = 0
        self.parts: list[bytes] = []
        self.size = 0
        if length > limit:
            raise _too_large(limit)

    def feed(self, data: bytearray) -> bool:
        """Takes what belongs to the body out of `data`; whether it is whole."""
        if not self._chunked:
            self._take(data)
            return self._left == 0
        while self._place != "done":
            if not self._step(data):
                return False
        return True

    def _take(self, data: bytearray) -> None:
        part = bytes(data[: self._left])
        del data[: len(part)]
        self._left -= len(part)
        self.size += len(part)
        if self.size > self._limit:
            raise _too_large(self._limit)
        if part:
            self.parts.append(part)

    def _step(self, data: bytearray) -> bool:
        """One piece of the framing; False where more bytes are needed."""
        if self._place == "data":
            self._take(data)
            if self._left:
                return False
            self._place = "after"
            return True
        line = _line(data)
        if line is None:
            return False
        if self._place == "after":
            if line:
                raise BadRequest(400, "a chunk is longer than it says")
            self._place = "size"
        elif self._place == "size":
            self._left = _size(line)
            self._place = "data" if self._left else "trailers"
        else:
            self._trailers += len(line) + 2
            if self._trailers > _TRAILERS_MAX:
                raise BadRequest(431, "trailers are too long")
            self._place = "done" if not line else "trailers"
        return True


def _line(data: bytearray) -> bytes | None:
    end = data.find(b"\n", 0, LINE_MAX)
    if end < 0:
        if len(data) >= LINE_MAX:
            raise BadRequest(400, "a chunk's head is too long")
        return None
    if end == 0 or data[end - 1] != 13:
        raise BadRequest(400, "a line of a chunked body without CR")
    line = bytes(data[: end - 1])
    del data[: end + 1]
    return line


def _size(line: bytes) -> int:
    match = _SIZE.fullmatch(line)
    if match is None:
        raise BadRequest(400, "a chunk without its size")
    return int(match[1], 16)


def _too_large(limit: int) -> BadRequest:
    return BadRequest(413, f"the body is larger than {limit} bytes")
