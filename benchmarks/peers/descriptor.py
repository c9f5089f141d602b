"""The 64 bytes that the channels carry: the content of a slot of a delta ring about one change."""

from __future__ import annotations

import struct

SIZE = 64
LAYOUT = struct.Struct("<8Q")
FIELD = struct.Struct("<Q")
FIELD_OFFSET = 40


def descriptors(count: int) -> list[bytes]:
    """Sequence, generation, resource, key, old, new: offset 40 is what a consumer reads."""
    return [
        LAYOUT.pack(number, number // 64, 1, 2, 4096 * number, 4096 * number + 64, number, 0)
        for number in range(count)
    ]
