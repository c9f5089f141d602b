"""gzip members and zlib streams, any number one behind the other, inflated as they come."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable

from shmcache.protocol.deflating import Inflater

AT_ONCE = 1 << 20
"""At most this comes out at a time: a small piece can hide a large text."""
IDLE_BYTES = 1 << 20
"""After so many bytes in a row that stand for nothing the data counts as broken (TIMED3)."""
WBITS = {"gzip": 31, "deflate": 15}


def inflate(pieces: Iterable[bytes], wbits: int) -> Generator[bytes, None, bool]:
    """The text, never an empty piece of it; returns whether the last member was whole.

    zlib.error for broken data.
    """
    member = Inflater(wbits)
    begun = False
    idle = 0
    for piece in pieces:
        data = piece
        idle += len(data)
        while data:
            if member.whole:
                member = Inflater(wbits)
            begun = True
            found = member.feed(data, AT_ONCE)
            data = member.rest
            while found:
                idle = 0
                yield found
                found = b"" if data or member.whole else member.feed(b"", AT_ONCE)
        if idle > IDLE_BYTES:
            raise zlib.error(f"{idle} bytes of it stand for nothing")
    return member.whole or not begun
