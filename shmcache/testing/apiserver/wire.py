"""The bytes of one answer on their way to the client, through the faults that it meets."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import Iterable

from shmcache.protocol.framing import Chunker
from shmcache.testing.apiserver import faults
from shmcache.testing.apiserver.faults import Fault

COMMA = b","
"""The text between two items, which does not count as a piece."""
MANY = 1 << 18
"""So many bytes are handed to the transport at once."""


class CutError(Exception):
    """A fault has ended the connection; what the client has by now is what it gets."""


class EndedError(Exception):
    """A fault ends the body here, properly."""


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection so that the other side gets an error, not an end; or one that has ended."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() != -1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class FaultyWire:
    """One body in chunked framing; the head has been written before."""

    def __init__(self, writer: asyncio.StreamWriter, met: Iterable[Fault] = ()) -> None:
        self._writer = writer
        self._cut = next((fault for fault in met if fault.cut), None)
        self._garbage = next((fault for fault in met if fault.garbage is not None), None)
        self._gzip = any(fault.gzip for fault in met)
        self._pause = max((fault.each_chunk for fault in met), default=0.0)
        self._chunker = Chunker()
        self._count = 0

    async def begin(self) -> None:
        """After the head: what goes wrong before the first piece does."""
        await self._trouble(b"")

    async def lines(self, lines: list[bytes]) -> None:
        """Writes pieces and flushes, as a watch does whenever nothing more is to come."""
        if self._gzip:
            await self._send([gzip.compress(b"".join(lines), 1)])
            return
        await self.pieces(lines)
        await self._send(self._chunker.flush())

    async def pieces(self, pieces: list[bytes]) -> None:
        """Writes pieces, whatever is left in the buffer stays there."""
        if self._cut is None and self._garbage is None:
            await self._send([chunk for piece in pieces for chunk in self._chunker.write(piece)])
            return
        for piece in pieces:
            counts = len(piece) > len(COMMA)
            if counts:
                await self._trouble(piece)
            await self._send(self._chunker.write(piece))
            self._count += counts
            await self._trouble(b"")

    async def finish(self) -> None:
        """Writes what is left in the buffer; the end of the body is the connection's to write."""
        await self._send(self._chunker.flush())

    async def _trouble(self, piece: bytes) -> None:
        """Does all that is due before this piece, or (without one) at this place between pieces."""
        garbage, cut = self._garbage, self._cut
        if garbage is not None and self._count >= garbage.after:
            self._garbage = None
            garbage.happened += 1
            await self._send([*self._chunker.flush(), garbage.garbage or b""])
        if cut is None or self._count < cut.after:
            return
        if cut.cut in {faults.CLEAN, faults.SILENT} or cut.reset or piece:
            await self._send(self._chunker.flush())
            await self._end(cut, piece)

    async def _end(self, cut: Fault, piece: bytes) -> None:
        cut.happened += 1
        half = piece[: len(piece) // 2]
        if cut.cut == faults.SILENT:
            while cut.drip:
                await asyncio.sleep(cut.every)
                self._writer.write(b"%x\r\n%b\r\n" % (len(cut.drip), cut.drip))
                await self._writer.drain()
            await asyncio.Event().wait()
        if cut.cut == faults.CLEAN:
            raise EndedError
        if half and not cut.reset:
            size = len(piece) if cut.cut == faults.CHUNK else len(half)
            end = b"" if cut.cut == faults.CHUNK else b"\r\n"
            self._writer.write(b"%x\r\n%b%b" % (size, half, end))
            await self._writer.drain()
        if cut.cut == faults.TRUNCATED:
            raise EndedError
        if cut.reset:
            reset(self._writer)
        raise CutError

    async def _send(self, chunks: list[bytes]) -> None:
        parts: list[bytes] = []
        waiting = 0
        for chunk in chunks:
            if self._pause:
                await asyncio.sleep(self._pause)
            parts += (b"%x\r\n" % len(chunk), chunk, b"\r\n")
            waiting += len(chunk)
            if waiting > MANY or self._pause:
                self._writer.write(b"".join(parts))
                await self._writer.drain()
                parts, waiting = [], 0
        if parts:
            self._writer.write(b"".join(parts))
            await self._writer.drain()
