"""When the ring was at which position: the file that leads from a time to a past state.

The reflector's process notes the head of the ring about once a second while it moves. An instant
is 32 bytes: time (monotonic), head, generation, the last 32 bits of the instance, and a checksum.
The file is a ring of instants by itself.

    INSTANT1  an instant states: at this time, the cache showed this generation, with this head.
    INSTANT2  an instant is whole, or its checksum is wrong and it is left out: its writer may be
        killed in the middle, and no reader locks anything.
    INSTANT3  instants of another instance, or of positions after the present head, are left out.
    INSTANT4  the state of a time is that of the last instant at or before it. Before the first
        instant nothing is known: that is an error, never the oldest state.
"""

from __future__ import annotations

import os
import struct
import time
import zlib

from shmcache.errors import SegmentNotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache._hot import Root
    from shmcache.memory.segments import Place

INSTANTS = 32_768
"""Nine hours of changes in every second: 1 MiB; further instants replace the oldest ones."""
_BODY = struct.Struct("<QQQI")
_SUM = struct.Struct("<I")
_INSTANT = struct.Struct("<QQQII")
SIZE = _INSTANT.size


class Instant:
    """The cache at one moment."""

    __slots__ = ("generation", "head", "time_ns")

    def __init__(self, time_ns: int, head: int, generation: int) -> None:
        self.time_ns = time_ns
        self.head = head
        self.generation = generation

    @property
    def age(self) -> float:
        """Seconds since then."""
        return (time.monotonic_ns() - self.time_ns) / 1e9


def pack(instance: int, head: int, generation: int, time_ns: int) -> bytes:
    """The instant of a state at a time."""
    body = _BODY.pack(time_ns, head, generation, instance & 0xFFFFFFFF)
    return body + _SUM.pack(zlib.crc32(body))


def read(place: Place, root: Root) -> list[Instant]:
    """The instants that hold for the instance of a root, in the order of time."""
    try:
        fd = place.open_times()
    except SegmentNotFound:
        return []
    try:
        data = os.pread(fd, INSTANTS * SIZE, 0)
    finally:
        os.close(fd)
    found: list[Instant] = []
    mine = root.instance & 0xFFFFFFFF
    whole = memoryview(data)[: len(data) // SIZE * SIZE]
    for row, (time_ns, head, generation, instance, total) in enumerate(_INSTANT.iter_unpack(whole)):
        if instance != mine or generation > root.generation or not time_ns:
            continue
        at = row * SIZE
        if total == zlib.crc32(whole[at : at + _BODY.size]):
            found.append(Instant(time_ns, head, generation))
    found.sort(key=lambda instant: instant.time_ns)
    return found


def last_before(instants: list[Instant], time_ns: int) -> Instant | None:
    """INSTANT4."""
    before = [instant for instant in instants if instant.time_ns <= time_ns]
    return before[-1] if before else None


def next_row(data: bytes) -> int:
    """The row after the youngest whole instant."""
    youngest, row = 0, 0
    for number, at in enumerate(range(0, len(data) - SIZE + 1, SIZE)):
        body = data[at : at + _BODY.size]
        time_ns = _BODY.unpack(body)[0]
        whole = _SUM.unpack_from(data, at + _BODY.size)[0] == zlib.crc32(body)
        if whole and time_ns > youngest:
            youngest, row = time_ns, (number + 1) % INSTANTS
    return row
