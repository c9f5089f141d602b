"""A listener and its connections: which are accepted, which make room, when one ends.

ROOM1  there are at most `limits.connections`. Where a new one finds no room, those go that have
       waited longest for their client: between two requests, in the middle of one, or with an
       answer that the client does not take. Peers with more than their share go first.
ROOM2  requests that last are bounded to a part of these (quotas.py), requests that wait are
       bounded as well, and so are those that are passed on: some connections can always go, so a
       probe finds room. It is answered before its own connection has to go: see HTTP10.
ROOM3  work for refused clients is bounded for each turn of the loop.
ROOM4  a TLS handshake that was begun costs 60 KiB until it is over. `limits.handshakes` are under
       way at once; where there are more, the one ends that began first.
"""

from __future__ import annotations

import collections
import errno
import logging
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmcache.reasons import reason_of
from shmcache.serve.http.connection import Connection
from shmcache.serve.http.holding import Holding
from shmcache.serve.http.loop import READ, Loop
from shmcache.serve.http.shares import Shares
from shmcache.serve.http.wire import LINGER_LOOK, LINGER_READ
from shmcache.serve.limits import Limits

if TYPE_CHECKING:
    from shmcache.serve.http.answers import Answer, Stream
    from shmcache.serve.http.requests import HttpRequest
    from shmcache.serve.http.wire import Wire

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
ACCEPTS = 8
"""Connections taken in one turn: others are left to the other processes."""
SLOW = 4
"""Turns of the slow line in one turn of the loop (ROOM3)."""
CLEARED = 16
"""A full server ends one in so many connections at once, since each search takes time."""
PAUSE_SECONDS = 0.2
IDLE_SECONDS = 5.0
"""Without descriptors, connections end that have waited for their client for so long; others stay,
since accept() fails so also where no connection waits."""
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
)
"""A client that vanished is found out after two minutes, however long its watch is silent."""
EPOLLEXCLUSIVE = 1 << 28
"""Of the processes that listen at one socket, one is woken."""


@dataclass(slots=True)
class Stats:
    """Counts since the process began."""

    requests: int = 0
    errors: int = 0
    cut: int = 0
    evicted: int = 0
    """Connections that made room for new ones."""
    slow: int = 0
    """Clients that were cut because they did not take what waited for them."""


class Listening:
    """Takes connections until it is drained. All its methods run in the loop's thread."""

    def __init__(
        self,
        listener: socket.socket,
        limits: Limits,
        *,
        tls: ssl.SSLContext | None = None,
        loop: Loop | None = None,
    ) -> None:
        self.limits = limits
        self.loop = loop or Loop()
        self.stats = Stats()
        self.holding = Holding(self.loop, limits.held_bytes)
        self.kept = Shares(limits.kept_bytes)
        """Memory of requests that wait, or whose answers go on."""
        self.connections: set[Connection] = set()
        self.draining = False
        """No more requests: those under way end, and their connections with them."""
        self.on_drain: dict[Callable[[], object], None] = {}
        """Called when draining begins: watches end then."""
        self.tls = tls
        """For connections from now on."""
        self.admits: Callable[[socket.socket], bool] | None = None
        """Whether a client's user may read the cache; None: everybody may, or needs a token."""
        self._listener = listener
        self._listening = False
        self.refused: collections.Counter[str] = collections.Counter()
        """Requests of each peer that were refused since the last sweep (HTTP8)."""
        self._peers: collections.Counter[str] = collections.Counter()
        self._shaking: dict[Wire, None] = {}
        """TLS handshakes under way, in their order (ROOM4)."""
        self._lingering: collections.deque[Wire] = collections.deque()
        self._slow: collections.deque[Callable[[], object]] = collections.deque()
        self._ended: list[Callable[[], object]] = []

    # ---- answers ---------------------------------------------------------------------------------

    async def answer(self, request: HttpRequest, connection: Connection) -> Answer | Stream | None:
        """The answer to a request; None where the connection was taken over. May raise Failure."""
        raise NotImplementedError

    def quick(self, data: bytes) -> bytes | None:  # noqa: ARG002 - others have a quick way
        """The whole answer to exactly one usual request; None for anything else."""
        return None

    def tidy(self) -> None:
        """Every second."""

    def release(self) -> None:
        """Draining is over."""

    # ---- its life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Takes connections from now on, once the loop runs."""
        self._listener.setblocking(False)
        if self._listener.family != socket.AF_UNIX:
            for option in KEEPALIVE:  # accepted sockets inherit them
                self._listener.setsockopt(*option)
        self._listen()
        self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def drain(self, then: Callable[[], object]) -> None:
        """Takes nothing more, ends what can be ended, and calls `then` when all have gone.

        After `drain_seconds` the others are cut. May be called again, with another `then`.
        """
        self._ended.append(then)
        if self.draining:
            self.loop.call_soon(self._settle)
            return
        self.draining = True
        self._deafen()
        for function in list(self.on_drain):
            function()
        for connection in list(self.connections):
            if not connection.busy:
                connection.close()
        self.loop.call_later(self.limits.drain_seconds, self._cut)
        self._settle()

    def _cut(self) -> None:
        for connection in list(self.connections):
            connection.lost()

    def _settle(self) -> None:
        if self.draining and not self.connections:
            self.release()
            ended, self._ended = self._ended, []
            for then in ended:
                then()

    def _listen(self) -> None:
        if not self._listening and not self.draining:
            self._listening = True
            self.loop.add(self._listener.fileno(), READ | EPOLLEXCLUSIVE, self._accept)

    def _deafen(self) -> None:
        if self._listening:
            self._listening = False
            self.loop.remove(self._listener.fileno())

    # ---- connections ---------------------------------------------------------------------------

    def _accept(self, _events: int) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, ConnectionError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    raise
                if self._clear(IDLE_SECONDS):
                    continue
                logger.warning("serve: accepting no connections for a moment: %s", reason_of(error))
                self._deafen()
                self.loop.call_later(PAUSE_SECONDS, self._listen)
                return
            if len(self.connections) >= self.limits.connections and not self._clear():
                sock.close()  # each of the others is in the middle of something
                continue
            self._take(sock, peer_of(address) if isinstance(address, tuple) else _user_of(sock))

    def _take(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stranger = self.admits is not None and not self.admits(sock)
        if self.tls is not None:
            try:
                sock = self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except (OSError, ValueError):  # a client that has sent bytes, and is gone
                sock.close()
                return
        connection = Connection(self, sock, peer)
        connection.stranger = stranger
        self.connections.add(connection)
        self._peers[peer] += 1

    def shaking(self, wire: Wire) -> None:
        """A handshake has begun, or goes on."""
        self._shaking[wire] = None
        if len(self._shaking) > self.limits.handshakes:
            next(iter(self._shaking)).lost()

    def shaken(self, wire: Wire) -> None:
        """It is over, one way or another. Idempotent."""
        self._shaking.pop(wire, None)

    def forget(self, connection: Connection) -> None:
        """A connection has ended. Called by it."""
        if connection in self.connections:
            self.connections.discard(connection)
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]
        if self.draining:
            self.loop.call_soon(self._settle)

    def _clear(self, seconds: float = 0.0) -> bool:
        """ROOM1: whether some connections made room, of those that have waited for `seconds`."""
        share = self.limits.connections // max(len(self._peers), 1)
        latest = self.loop.now - seconds
        waiting = [one for one in self.connections if one.waits and one.since <= latest]
        waiting.sort(key=lambda one: (self._peers[one.peer] <= share, one.since))
        gone = waiting[: max(self.limits.connections // CLEARED, 1)]
        self.stats.evicted += len(gone)
        for connection in gone:
            connection.lost()
        return bool(gone)

    def admit_again(self) -> None:
        """The users who may read the cache are others now: connections of strangers end."""
        for connection in list(self.connections):
            stranger = self.admits is not None and not self.admits(connection.sock)
            if stranger and not connection.stranger:
                connection.lost()
            connection.stranger = stranger

    def count_slow(self) -> None:
        """A client was cut that had bytes to take."""
        self.stats.slow += 1

    def lingers(self, wire: Wire) -> None:
        """A connection has ended whose client may still send: it is read over (HTTP9)."""
        self._lingering.append(wire)
        if len(self._lingering) == 1:
            self.loop.call_later(LINGER_LOOK, self._read_over)

    def _read_over(self) -> None:
        for _ in range(min(len(self._lingering), LINGER_READ)):
            wire = self._lingering.popleft()
            if wire.alive:
                wire.read_over()
            if wire.alive:
                self._lingering.append(wire)
        if self._lingering:
            self.loop.call_later(LINGER_LOOK, self._read_over)

    def slowly(self, function: Callable[[], object]) -> None:
        """Calls it in a later turn, a few of them in each."""
        self._slow.append(function)
        if len(self._slow) == 1:
            self.loop.call_soon(self._next_slow)

    def _next_slow(self) -> None:
        for _ in range(min(len(self._slow), SLOW)):
            self._slow.popleft()()
        if self._slow:
            self.loop.call_soon(self._next_slow)

    def _sweep(self) -> None:
        now = self.loop.now
        for connection in [one for one in self.connections if one.deadline < now]:
            self.loop.call_soon(connection.overdue)
        self.refused.clear()
        self.tidy()
        if not self.draining or self.connections:
            self.loop.call_later(SWEEP_SECONDS, self._sweep)


def peer_of(address: tuple[str, int]) -> str:
    """The client, as far as its address names it: one client has all of 127.0.0.0/8, or a /64."""
    host = address[0].partition("%")[0]
    if ":" in host and host != "::1":
        return socket.inet_pton(socket.AF_INET6, host)[:8].hex(":", 2) + "::/64"
    return "127.0.0.1" if host.startswith("127.") else host


def _user_of(sock: socket.socket) -> str:
    """Whose process is at the other end of a Unix socket."""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return f"uid {struct.unpack('3i', found)[1]}"
