"""A client's socket in the loop: bytes out as they are taken, bytes in as they come, its end.

HTTP2  a sender looks at `backlog`, and goes on when it is drained: what a slow client has not taken
    is bounded by the sender. A client that takes nothing for `stall_seconds` is cut. Nothing is
    read from a client while it has not taken its answers, nor once its connection is to end.
HTTP4  every place where a client can keep us waiting has a deadline. Bytes that came until then are
    read before the connection ends: a busy server may have had no turn for them.
HTTP5  lost() runs exactly once, whatever ends the connection; what runs for the request ends.
HTTP9  a connection that ends while its client may still send lingers: our side is shut, the client
    reads the last answer and its end, and what it sends is read over, without a copy, until it ends
    its side or time or bytes are used up. Closing at once would reset the connection, and a reset
    can overtake the answer. A lingering connection waits for its client: it makes room for others.
    They are read over in turn, a few at each look: at every event, senders at full speed would cost
    a turn of the loop for every few kilobytes.
"""

from __future__ import annotations

import collections
import math
import select
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shmcache.serve.http.loop import READ, WRITE

if TYPE_CHECKING:
    from shmcache.serve.http.listening import Listening

RECEIVE = 64 << 10
GATHER = 64
"""Pieces handed to the kernel at once."""
NEVER = math.inf
LINGER_LOOK, LINGER_READ = 0.002, 2
"""Seconds between two looks, and connections that are read over at each."""
LINGER_SECONDS = 2.0
LINGER_BYTES = 4 << 20
"""Time and bytes for a client that still sends after its last answer (HTTP9)."""
GONE = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP
"""The client has ended its side: noticed also where nothing is read from it."""

_DROPPED = bytearray(256 << 10)
"""Never written to, and so without memory: it says how much is dropped at a time."""

_AGAIN = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Wire:
    """One socket, also under TLS. came() receives the data; drained() follows a backlog."""

    __slots__ = ("_events", "_handshake", "_out", "_secure", "alive", "backlog", "closing",
                 "deadline", "fd", "lingers", "received", "server", "since", "sock")  # fmt: skip

    def __init__(self, server: Listening, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self.fd = sock.fileno()
        self.alive = True
        self.closing = False
        """To be closed when all is sent."""
        self.lingers = 0
        """Bytes that are read over after the end: HTTP9."""
        self.backlog = 0
        """Bytes that the kernel has not taken yet."""
        self.received = 0
        """Bytes of the client that are kept: see note()."""
        self.deadline = 0.0
        """When the server cuts it."""
        self.since = 0.0
        """When the phase began that the deadline ends."""
        self._out: collections.deque[Any] | None = None
        self._events = READ
        self._secure = isinstance(sock, ssl.SSLSocket)
        self._handshake = self._secure
        self.wait(server.limits.head_seconds)
        server.loop.add(self.fd, READ, self._happened)

    # ---- for its user ----------------------------------------------------------------------------

    def came(self, data: bytes) -> None:
        """Bytes of the client."""
        raise NotImplementedError

    def drained(self) -> None:
        """The backlog has been sent."""
        raise NotImplementedError

    def ended(self) -> None:
        """The connection is no more; called once."""
        raise NotImplementedError

    def full(self) -> bool:
        """Whether nothing more is to be read for now."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """The phase that begins now may take so long."""
        self.since = now = self.server.loop.now
        self.deadline = now + seconds

    def note(self, received: int) -> None:
        """So many bytes of the client are kept now."""
        more = received - self.received
        if more and self.alive:
            self.received = received
            self.server.holding.note(self, more)

    @property
    def choked(self) -> bool:
        """Whether so much waits for the client that nothing more is to be written."""
        server = self.server
        return self.backlog > (0 if server.holding.tight else server.limits.backlog_bytes)

    def room(self, then: Callable[[], object]) -> bool:
        """Whether a piece may be made; if not, `then` is called when it may."""
        return self.server.holding.room(self, then)

    # ---- out -------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Writes bytes as they are; bytes that the kernel does not take now wait in `backlog`."""
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
        self.server.holding.keep(self, _object(data))
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
        self.server.holding.see(self)
        if not self.alive:
            return
        if self.closing:
            self.close()
            return
        self.listen()
        self.drained()

    def _write_some(self, out: collections.deque[Any]) -> int:
        if len(out) == 1 or self._secure:
            return self.sock.send(out[0])
        return self.sock.sendmsg([out[number] for number in range(min(len(out), GATHER))])

    def _drop(self, out: collections.deque[Any], sent: int) -> None:
        drop = self.server.holding.drop
        while out and sent >= len(out[0]):
            data = out.popleft()
            sent -= len(data)
            drop(_object(data))
        if sent:
            out[0] = memoryview(out[0])[sent:]

    # ---- in --------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Asks the loop for what matters now."""
        events = (select.EPOLLRDHUP if self._deaf() else READ) | (WRITE if self.backlog else 0)
        if self.alive and events != self._events:
            self._events = events
            self.server.loop.change(self.fd, events)

    def _happened(self, events: int) -> None:
        if self._handshake:
            self._shake()
            return
        if events & WRITE and self.backlog:
            self._flush()
        if not self.alive or not events & ~WRITE:
            return
        if not self._deaf():
            self._receive()
        elif events & GONE:
            self.lost()

    def _deaf(self) -> bool:
        """Whether nothing is read from the client for now (HTTP2)."""
        return self.closing or self.backlog > 0 or self.full()

    def _shake(self) -> None:
        events = READ
        try:
            self.sock.do_handshake()  # type: ignore[attr-defined]
        except ssl.SSLWantReadError:
            self.server.shaking(self)
        except ssl.SSLWantWriteError:
            self.server.shaking(self)
            events = WRITE
        except (OSError, ValueError):
            self.lost()
            return
        else:
            self._handshake = False
            self.server.shaken(self)
        if self.alive and events != self._events:
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

    def read_over(self) -> None:
        """HTTP9: the kernel drops what has come."""
        try:
            count = self.sock.recv_into(_DROPPED, len(_DROPPED), socket.MSG_TRUNC)
        except _AGAIN:
            return
        except OSError:
            count = 0
        if 0 < count < self.lingers:
            self.lingers -= count
        else:
            self.lost()

    # ---- its end ---------------------------------------------------------------------------------

    def close(self, *, lingering: bool = False) -> None:
        """Ends the connection when all is sent. `lingering`: the client may still send (HTTP9)."""
        self.closing = True
        if lingering:
            self.lingers = LINGER_BYTES
        if self.backlog:
            return
        if self.lingers <= 0:
            self.lost()
            return
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.lost()
            return
        self.wait(LINGER_SECONDS)
        self.listen()
        self.server.lingers(self)

    def overdue(self) -> None:
        """Its deadline has passed: cut(), unless the bytes that it waited for have come."""
        if not (self._deaf() or self._handshake):
            self._receive()
        if self.alive and self.deadline < self.server.loop.now:
            self.cut()

    def cut(self) -> None:
        """Ends it, as its client took too long."""
        if self.alive and self.backlog:
            self.server.count_slow()
        self.lost()

    def lost(self) -> None:
        """The client is gone, or is to go: ends everything at once. Idempotent."""
        if not self.alive:
            return
        self.alive = False
        self.server.loop.remove(self.fd)
        if self._handshake:
            self.server.shaken(self)
        self.sock.close()
        out, self._out = self._out, None
        self.backlog = 0
        holding = self.server.holding
        for data in out or ():
            holding.drop(_object(data))
        received, self.received = self.received, 0
        holding.note(self, -received)
        self.ended()


def _object(data: bytes | memoryview) -> bytes:
    """The object whose memory a piece keeps."""
    return data.obj if isinstance(data, memoryview) else data  # type: ignore[return-value]
