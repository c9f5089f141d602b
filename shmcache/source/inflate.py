"""gzip members and zlib streams, any number one behind the other, inflated as they come."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable

AT_ONCE = 1 << 20
"""At most this comes out at a time: a small piece can hide a large text."""
WBITS = {"gzip": 31, "deflate": 15}


def inflate(pieces: Iterable[bytes], wbits: int) -> Generator[bytes, None, bool]:
    """The text, never an empty piece of it; returns whether the last member was whole."""
    member = zlib.decompressobj(wbits)
    begun = False
    for piece in pieces:
        data = piece
        while data:
            if member.eof:
                member = zlib.decompressobj(wbits)
            begun = True
            found = member.decompress(data, AT_ONCE)
            data = member.unused_data if member.eof else member.unconsumed_tail
            while found:
                yield found
                found = b"" if data or member.eof else member.decompress(b"", AT_ONCE)
    return member.eof or not begun
