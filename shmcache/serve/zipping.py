"""gzip as the API server has it: bodies of more than 128 KiB, for clients that name it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

LEAST = 128 << 10
HEADERS = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
_LEVEL = 1
_GZIP = 31


def wanted(headers: Mapping[str, str]) -> bool:
    """Whether the client takes it. A weight beside the name is no name, there and here."""
    words = headers.get("accept-encoding", "").split(",")
    return any(word.strip() == "gzip" for word in words)


def pieces(some: Iterator[bytes]) -> Iterator[bytes]:
    """As one gzip member; what the compressor keeps back goes with a later piece."""
    zipper = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for piece in some:
        data = zipper.compress(piece)
        if data:
            yield data
    yield zipper.flush()


def whole(body: bytes) -> bytes:
    """A body that is there."""
    return b"".join(pieces(iter((body,))))
