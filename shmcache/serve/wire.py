"""A client's socket in the loop: bytes out as they are taken, bytes in as they come, its end.

C2  whoever sends looks at `backlog`, and goes on when it is drained: what a slow client has not
    taken is bounded by who sends. A client that takes nothing for `stall_seconds` is cut.
C4  every place where a client can keep us waiting has a deadline.
C5  lost() runs exactly once, whoever ends the connection; what runs for the request is told.
"""

from __future__ import annotations

import collections
import math
import socket
import ssl
from typing import TYPE_CHECKING, Any

from shmcache.serve.loop import READ, WRITE

if TYPE_CHECKING:
    from shmcache.serve.server import Server

RECEIVE = 64 << 10
GATHER = 64
"""Pieces handed to the kernel at once."""
NEVER = math.inf

_AGAIN = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Wire:
    """One socket, also under TLS. What comes is given to came(); drained() follows a backlog."""

    __slots__ = ("_events", "_handshake", "_out", "_secure", "alive", "backlog", "closing",
                 "deadline", "fd", "server", "sock")  # fmt: skip

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self.fd = sock.fileno()
        self.alive = True
        self.closing = False
        """To be closed when all is sent."""
        self.backlog = 0
        """Bytes that the kernel has not taken yet."""
        self.deadline = 0.0
        """When the server cuts it."""
        self._out: collections.deque[Any] | None = None
        self._events = READ
        self._secure = isinstance(sock, ssl.SSLSocket)
        self._handshake = self._secure
        self.wait(server.limits.head_seconds)
        server.loop.add(self.fd, READ, self._happened)

    # ---- for who speaks on it --------------------------------------------------------------------

    def came(self, data: bytes) -> None:
        """Bytes of the client."""
        raise NotImplementedError

    def drained(self) -> None:
        """What waited is sent."""
        raise NotImplementedError

    def ended(self) -> None:
        """The connection is no more; called once."""
        raise NotImplementedError

    def full(self) -> bool:
        """Whether nothing more is to be read for now."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """For so long something may take from now on."""
        self.deadline = self.server.loop.now + seconds

    # ---- out -------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Writes bytes as they are; what the kernel does not take now waits in `backlog`."""
        if not self.alive:
            return
        if self.backlog == 0:
            try:
                sent = self.sock.send(data)
            except _AGAIN:
                sent = 0
            except OSError:
                self.lost()
                return
            if sent == len(data):
                return
            self._keep(memoryview(data)[sent:] if sent else data)
        else:
            self._keep(data)

    def send_parts(self, *parts: bytes) -> None:
        """send() of several; long ones are not copied to be put together."""
        if self.backlog or self._secure or not self.alive:
            self.send(b"".join(parts))
            return
        try:
            sent = self.sock.sendmsg(parts)
        except _AGAIN:
            sent = 0
        except OSError:
            self.lost()
            return
        for part in parts:
            if sent >= len(part):
                sent -= len(part)
            else:
                self._keep(memoryview(part)[sent:] if sent else part)
                sent = 0

    def _keep(self, data: bytes | memoryview) -> None:
        if self._out is None:
            self._out = collections.deque()
        if self.backlog == 0:
            self.wait(self.server.limits.stall_seconds)
        self._out.append(data)
        self.backlog += len(data)
        self.listen()

    def _flush(self) -> None:
        out = self._out
        while out and self.backlog:
            try:
                sent = self._write_some(out)
            except _AGAIN:
                return
            except OSError:
                self.lost()
                return
            self.backlog -= sent
            self._drop(out, sent)
            self.wait(self.server.limits.stall_seconds)
        self._out = None
        if self.closing:
            self.lost()
            return
        self.listen()
        self.drained()

    def _write_some(self, out: collections.deque[Any]) -> int:
        if len(out) == 1 or self._secure:
            return self.sock.send(out[0])
        return self.sock.sendmsg([out[place] for place in range(min(len(out), GATHER))])

    @staticmethod
    def _drop(out: collections.deque[Any], sent: int) -> None:
        while out and sent >= len(out[0]):
            sent -= len(out.popleft())
        if sent:
            out[0] = memoryview(out[0])[sent:]

    # ---- in --------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Asks the loop for what matters now."""
        events = (0 if self.full() else READ) | (WRITE if self.backlog else 0)
        if self.alive and events != self._events:
            self._events = events
            self.server.loop.change(self.fd, events)

    def _happened(self, events: int) -> None:
        if self._handshake:
            self._shake()
            return
        if events & WRITE and self.backlog:
            self._flush()
        if self.alive and events & ~WRITE:
            self._receive()

    def _shake(self) -> None:
        events = READ
        try:
            self.sock.do_handshake()  # type: ignore[attr-defined]
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            events = WRITE
        except (OSError, ValueError):
            self.lost()
            return
        else:
            self._handshake = False
        if events != self._events:
            self._events = events
            self.server.loop.change(self.fd, events)

    def _receive(self) -> None:
        try:
            data = self.sock.recv(RECEIVE)
            while self._secure and self.sock.pending():  # type: ignore[attr-defined]
                data += self.sock.recv(RECEIVE)
        except _AGAIN:
            return
        except OSError:
            data = b""
        if data:
            self.came(data)
        else:
            self.lost()  # a client that has ended its side reads no answer, as on the real server

    # ---- its end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the connection when all is sent."""
        self.closing = True
        if self.backlog == 0:
            self.lost()

    def lost(self) -> None:
        """There is nobody any more: ends everything at once. Idempotent."""
        if not self.alive:
            return
        self.alive = False
        self.server.loop.remove(self.fd)
        self.sock.close()
        self._out = None
        self.backlog = 0
        self.ended()
