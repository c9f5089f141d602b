"""deflate, both ways: by ISA-L where the package isal is installed, else by zlib.

On 12 MB of pods ISA-L compresses 7 times as fast as zlib's level 1, to 13 % less, and inflates
twice as fast (`pip install 'shmcache[isal]'`).

    DEFLATE1  Both make and read the same format, and raise zlib.error for broken data.
"""

from __future__ import annotations

import zlib
from typing import Any

_fast: Any = None
try:
    from isal import isal_zlib
except ImportError:
    pass  # zlib does the same
else:
    _fast = isal_zlib

LEVEL = 1


class Inflater:
    """One gzip member or zlib stream, as it is read."""

    def __init__(self, wbits: int) -> None:
        self._stream: Any = (_fast or zlib).decompressobj(wbits)
        self._errors = (zlib.error,) if _fast is None else (zlib.error, _fast.error)

    def feed(self, data: bytes, most: int) -> bytes:
        """At most so many bytes; zlib.error for broken data."""
        try:
            found: bytes = self._stream.decompress(data, most)
        except self._errors as error:
            raise zlib.error(str(error)) from error
        return found

    @property
    def whole(self) -> bool:
        """Whether its end has come."""
        return bool(self._stream.eof)

    @property
    def rest(self) -> bytes:
        """Bytes of feed() that were not read yet: behind the end, or for the next time."""
        found: bytes = self._stream.unused_data if self.whole else self._stream.unconsumed_tail
        return found


def deflated(data: bytes, wbits: int) -> bytes:
    """The data compressed, up to a whole byte; another piece may follow in the same stream."""
    if _fast is not None:
        stream = _fast.compressobj(LEVEL, _fast.DEFLATED, wbits)
        fast: bytes = stream.compress(data) + stream.flush(_fast.Z_SYNC_FLUSH)
        return fast
    plain = zlib.compressobj(LEVEL, zlib.DEFLATED, wbits)
    return plain.compress(data) + plain.flush(zlib.Z_SYNC_FLUSH)
