"""When the ring was at which position: the file that leads from a time to a past state.

The reflector's process notes the head of the ring about once a second while it moves. A mark is 32
bytes: time (monotonic), head, generation, the last 32 bits of the instance, and a checksum. The
file is a ring of marks by itself.

    MARK1  a mark states: at this time, the cache showed this generation, with this head.
    MARK2  a mark is whole, or its checksum is wrong and it is left out: its writer may be killed in
        the middle, and no reader locks anything.
    MARK3  marks of another instance, or of positions after the present head, are left out.
    MARK4  the state of a time is that of the last mark at or before it. Before the first mark
        nothing is known: that is an error, never the oldest state.
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

MARKS = 32_768
"""Nine hours of changes in every second: 1 MiB; further marks replace the oldest ones."""
_BODY = struct.Struct("<QQQI")
_SUM = struct.Struct("<I")
_MARK = struct.Struct("<QQQII")
SIZE = _MARK.size


class TimeMark:
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
    """The mark of a state at a time."""
    body = _BODY.pack(time_ns, head, generation, instance & 0xFFFFFFFF)
    return body + _SUM.pack(zlib.crc32(body))


def read(place: Place, root: Root) -> list[TimeMark]:
    """The marks that hold for the instance of a root, in the order of time."""
    try:
        fd = place.open_times()
    except SegmentNotFound:
        return []
    try:
        data = os.pread(fd, MARKS * SIZE, 0)
    finally:
        os.close(fd)
    found: list[TimeMark] = []
    mine = root.instance & 0xFFFFFFFF
    whole = memoryview(data)[: len(data) // SIZE * SIZE]
    for row, (time_ns, head, generation, instance, total) in enumerate(_MARK.iter_unpack(whole)):
        if instance != mine or generation > root.generation or not time_ns:
            continue
        at = row * SIZE
        if total == zlib.crc32(whole[at : at + _BODY.size]):
            found.append(TimeMark(time_ns, head, generation))
    found.sort(key=lambda mark: mark.time_ns)
    return found


def last_before(marks: list[TimeMark], time_ns: int) -> TimeMark | None:
    """MARK4."""
    before = [mark for mark in marks if mark.time_ns <= time_ns]
    return before[-1] if before else None


def next_place(data: bytes) -> int:
    """The place after the youngest whole mark."""
    youngest, place = 0, 0
    for number, at in enumerate(range(0, len(data) - SIZE + 1, SIZE)):
        body = data[at : at + _BODY.size]
        time_ns = _BODY.unpack(body)[0]
        whole = _SUM.unpack_from(data, at + _BODY.size)[0] == zlib.crc32(body)
        if whole and time_ns > youngest:
            youngest, place = time_ns, (number + 1) % MARKS
    return place
