"""gzip as the API server has it: bodies of more than 128 KiB, for clients that name it."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping

from shmcache.protocol.deflating import deflated

LEAST = 128 << 10
HEADERS = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
_BARE = -15
_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\x04\xff"
_LAST_BLOCK = b"\x03\0"
"""An empty block that says that it is the last."""


def wanted(headers: Mapping[str, str]) -> bool:
    """Whether the client accepts gzip. As in the API server, a weighted name does not match."""
    codings = headers.get("accept-encoding", "").split(",")
    return any(coding.strip() == "gzip" for coding in codings)


class _Zipper:
    """One gzip member, each piece compressed for itself.

    A compressor that waited with its client between two pieces would cost 270 KB of each. Blocks
    that end on a byte and refer to nothing before them can follow each other in one stream.
    """

    def __init__(self) -> None:
        self._lead = _HEAD
        self._checksum = self._size = 0

    def piece(self, data: bytes) -> bytes:
        lead, self._lead = self._lead, b""
        self._checksum, self._size = zlib.crc32(data, self._checksum), self._size + len(data)
        return lead + deflated(data, _BARE)

    def end(self) -> Iterator[bytes]:
        yield self._lead + _LAST_BLOCK + struct.pack("<II", self._checksum, self._size & 0xFFFFFFFF)


def pieces(some: Iterator[bytes]) -> Iterator[bytes]:
    """A body that comes; none of its pieces is kept."""
    zipper = _Zipper()
    return itertools.chain(map(zipper.piece, some), zipper.end())


def whole(body: bytes) -> bytes:
    """A body that is there."""
    return b"".join(pieces(iter((body,))))
