"""Reels: the files of a recorder. A reel is a head and packets; a packet is lines, compressed.

head     magic (8), a random identity (16), CRC-32 of both (4)
packet   length of its body with FRESH (4), checksum of the length (4), checksum of length and
body (4), body: a piece of one deflate stream

REEL1  A packet is believed only if its checksums fit: CRC-32, begun with the one before it. So
a byte that has changed, and a packet that is missing, repeated or of another reel, is found
where it is. The length has its own, so that damage is not mistaken for a missing end.
REEL2  What is before the first packet that is not whole is read back; what is behind it is not:
patches build on each other. The fault says where.
REEL3  A packet is written at the end of the last whole one. A write that failed or was cut is
repeated at the same place, with the same bytes.
REEL4  The body continues the deflate stream of the packets before it; FRESH begins another one,
since the next process cannot continue the one of the last.
REEL5  A packet holds whole lines, and what it holds is acknowledged when it is on the medium.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator

from shmcache.recorder.disk import Disk, open_reel

MAGIC = b"SHMREEL\x01"
_HEAD = struct.Struct("<8s16s")
_SUM = struct.Struct("<I")
_FRAME = struct.Struct("<III")
HEAD_SIZE = _HEAD.size + _SUM.size
FRESH = 1 << 31
LEVEL = 6
MOST = 1 << 30
"""Bytes that a packet inflates to, at most."""


class ReelWriter:
    """The end of a reel, where packets are added. For one thread."""

    def __init__(self, disk: Disk, path: str, fd: int, size: int, checksum: int) -> None:
        """See create() and go_on()."""
        self.path = path
        self.size = size
        """Of what is whole on disk."""
        self._disk = disk
        self._fd = fd
        self._sum = checksum
        self._packer = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
        self._fresh = True
        self._pending = b""

    @classmethod
    def create(cls, disk: Disk, path: str) -> ReelWriter:
        """A new reel, whose head is pending."""
        body = _HEAD.pack(MAGIC, os.urandom(16))
        checksum = zlib.crc32(body)
        reel = cls(disk, path, disk.create(path), 0, checksum)
        reel._pending = body + _SUM.pack(checksum)
        return reel

    @classmethod
    def go_on(cls, disk: Disk, path: str, size: int, checksum: int) -> ReelWriter:
        """Behind the last whole packet of a reel; what is behind it was never acknowledged."""
        fd = disk.open(path)
        try:
            disk.truncate(fd, size)
        except BaseException:
            os.close(fd)
            raise
        return cls(disk, path, fd, size, checksum)

    @property
    def pending(self) -> int:
        """Bytes that are not written yet."""
        return len(self._pending)

    def add(self, lines: bytes) -> None:
        """One more packet, pending."""
        body = self._packer.compress(lines) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        length = len(body) | (FRESH if self._fresh else 0)
        front = zlib.crc32(_SUM.pack(length), self._sum)
        self._sum = zlib.crc32(body, front)
        self._pending += _FRAME.pack(length, front, self._sum) + body
        self._fresh = False

    def write(self) -> None:
        """Writes what is pending. After an OSError it is still pending (REEL3)."""
        done = 0
        try:
            while done < len(self._pending):
                done += self._disk.write(self._fd, self._pending[done:], self.size + done)
        except OSError:
            self._disk.truncate(self._fd, self.size)
            raise
        self.size += done
        self._pending = b""

    def sync(self) -> None:
        """Returns when all that was written is on the medium."""
        self._disk.sync(self._fd)

    def close(self) -> None:
        """Pending bytes are lost. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ReelReader:
    """Reads the packets of a reel, as far as they are whole."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        """Where the last whole packet ends."""
        self.checksum = 0
        self.fault = ""
        """Of the first packet that is not whole, as text."""
        self.cut = False
        """The fault is the end of the file: what is missing may never have been written."""

    def packets(self) -> Iterator[bytes]:
        """The lines of each packet, in their order. OSError."""
        with open(self.path, "rb", opener=open_reel) as file:
            if not self._head(file.read(HEAD_SIZE)):
                return
            stream = zlib.decompressobj(-15)
            while frame := file.read(_FRAME.size):
                length = self._length(frame)
                if length is None or not self._checked(frame, body := file.read(length & ~FRESH)):
                    return
                if length & FRESH:
                    stream = zlib.decompressobj(-15)
                try:
                    lines = stream.decompress(body, MOST)
                except zlib.error as error:
                    self._damaged(f"cannot be inflated ({error})")
                    return
                self.size += len(frame) + len(body)
                yield lines

    def _head(self, head: bytes) -> bool:
        body = head[: _HEAD.size]
        if len(head) < HEAD_SIZE:
            self._cut_off()
        elif body[: len(MAGIC)] != MAGIC:
            self._damaged("is not the head of a reel of this version")
        elif _SUM.unpack_from(head, _HEAD.size)[0] != zlib.crc32(body):
            self._damaged("is a damaged head: its checksum is wrong")
        else:
            self.size, self.checksum = HEAD_SIZE, zlib.crc32(body)
            return True
        return False

    def _length(self, frame: bytes) -> int | None:
        """Of the body, with FRESH."""
        if len(frame) < _FRAME.size:
            self._cut_off()
            return None
        length, front, _ = _FRAME.unpack(frame)
        if zlib.crc32(_SUM.pack(length), self.checksum) != front:
            self._damaged("is a damaged packet: the checksum of its length is wrong")
            return None
        return int(length)

    def _checked(self, frame: bytes, body: bytes) -> bool:
        length, front, checksum = _FRAME.unpack(frame)
        if len(body) < length & ~FRESH:
            self._cut_off()
        elif zlib.crc32(body, front) != checksum:
            self._damaged("is a damaged packet: its checksum is wrong")
        else:
            self.checksum = checksum
            return True
        return False

    def _cut_off(self) -> None:
        self.cut = True
        self._damaged("is cut off")

    def _damaged(self, what: str) -> None:
        self.fault = f"{os.path.basename(self.path)}: what follows byte {self.size:,} {what}"
