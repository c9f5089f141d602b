"""gzip members and zlib streams, any number one behind the other, inflated as they come."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from shmcache.protocol.deflating import Inflater

AT_ONCE = 1 << 20
"""At most this comes out at a time: a small piece can hide a large text."""
WBITS = {"gzip": 31, "deflate": 15}


def inflate(pieces: Iterable[bytes], wbits: int) -> Generator[bytes, None, bool]:
    """The text, never an empty piece of it; returns whether the last member was whole."""
    member = Inflater(wbits)
    begun = False
    for piece in pieces:
        data = piece
        while data:
            if member.whole:
                member = Inflater(wbits)
            begun = True
            found = member.feed(data, AT_ONCE)
            data = member.rest
            while found:
                yield found
                found = b"" if data or member.whole else member.feed(b"", AT_ONCE)
    return member.whole or not begun
