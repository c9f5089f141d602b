"""One server process: a listener, its connections, the cache, and what a request may wait for."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shmcache.protocol import failures, watching
from shmcache.serve import lanes, routes
from shmcache.serve.access import Access
from shmcache.serve.bell import Bell
from shmcache.serve.catalogue import Catalogue
from shmcache.serve.connection import Connection
from shmcache.serve.limits import Limits
from shmcache.serve.loop import READ, Loop, Pending, Timer
from shmcache.serve.past import Past
from shmcache.serve.standing import Standing
from shmcache.serve.usual import Usual
from shmcache.serve.watches import Watches

if TYPE_CHECKING:
    from shmcache.reader import Cache
    from shmcache.serve.answers import Answer, Stream
    from shmcache.serve.proxy import Proxy
    from shmcache.serve.requests import Request

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
ACCEPTS = 8
"""Connections taken in one turn: others are left to the other processes."""
PAUSE_SECONDS = 0.2
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
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How a server serves."""

    limits: Limits = field(default_factory=Limits)
    fresh_seconds: float = 3.0
    """How long a request waits for a version from the future (R-AS-16)."""
    max_age: float | None = None
    """Seconds since the API server was heard, beyond which nothing is answered (503)."""
    bookmark_seconds: float = watching.BOOKMARK_SECONDS
    """About so often a watch that asked for bookmarks gets one."""


class Server:
    """Serves a cache until it is stopped. All its methods run in the loop's thread."""

    def __init__(
        self,
        cache: Cache,
        listener: socket.socket,
        serving: Serving | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        loop: Loop | None = None,
    ) -> None:
        self.cache = cache
        self.serving = serving or Serving()
        self.limits = self.serving.limits
        self.loop = loop or Loop()
        self.bell = Bell(self.loop, cache)
        self.catalogue = Catalogue(cache)
        self.standing = Standing(cache, self.loop, self.serving.max_age)
        self.past = Past()
        self.stats = Stats()
        self.connections: set[Connection] = set()
        self.draining = False
        """No more requests: what is under way ends, connections with it."""
        self.on_drain: dict[Callable[[], object], None] = {}
        """Called when draining begins: watches end then."""
        self.access = Access()
        """Who may ask; replaced before start() where not everybody may."""
        self.proxy: Proxy | None = None
        """Where what is not served here is passed on to, if anywhere."""
        self.usual = Usual(self)
        self.watches = Watches(self, bookmark_seconds=self.serving.bookmark_seconds)
        self._listener = listener
        self._listening = False
        self._tls = tls
        self._waiting = 0
        self._ended: list[Callable[[], object]] = []

    # ---- its life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Takes connections from now on, once the loop runs."""
        self._listener.setblocking(False)
        if self._listener.family != socket.AF_UNIX:
            for option in KEEPALIVE:  # what it takes inherits them
                self._listener.setsockopt(*option)
        self._listen()
        self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def drain(self, then: Callable[[], object]) -> None:
        """Takes nothing more, ends what can be ended, and calls `then` when all have gone.

        After `drain_seconds` the others are cut. May be asked for again, by somebody else.
        """
        self._ended.append(then)
        if self.draining:
            self.loop.call_soon(self._settle)
            return
        self.draining = True
        self._deafen()
        for told in list(self.on_drain):
            told()
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
            self.bell.close()
            self.past.clear()
            self.access.close()
            if self.proxy is not None:
                self.proxy.close()
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
            if len(self.connections) >= self.limits.connections:
                self._deafen()
                return
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, ConnectionError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    raise
                logger.warning("serve: no more connections for a moment: %s", error)
                self._deafen()
                self.loop.call_later(PAUSE_SECONDS, self._listen)
                return
            self._take(sock, address[0] if isinstance(address, tuple) else "unix")

    def _take(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.connections.add(Connection(self, sock, peer))

    def forget(self, connection: Connection) -> None:
        """A connection has ended. Called by it."""
        self.connections.discard(connection)
        if len(self.connections) < self.limits.connections:
            self._listen()
        if self.draining:
            self.loop.call_soon(self._settle)

    def _sweep(self) -> None:
        now = self.loop.now
        for connection in [one for one in self.connections if one.deadline < now]:
            connection.lost()
        self.past.tidy()
        self.usual.follow()
        if not self.draining or self.connections:
            self.loop.call_later(SWEEP_SECONDS, self._sweep)

    # ---- requests ------------------------------------------------------------------------------

    async def answer(self, request: Request, connection: Connection) -> Answer | Stream | None:
        """The answer to a request; None where the connection was taken over. May raise Failure."""
        self.stats.requests += 1
        return await routes.answer(self, request, connection)

    async def fresh(self, resource: str, version: int, namespace: str = "") -> None:
        """Returns when the resource has come so far; a Failure (504) if it does not in time.

        `namespace`: only this part of it.
        """
        current = self.version(resource, namespace)
        if version <= current:
            return
        if self._waiting >= self.limits.waiting:
            raise failures.too_many_requests()
        self._waiting += 1
        rung: list[Pending[None]] = []

        def ring() -> None:
            rung[0].give(None)

        deadline = self.loop.now + self.serving.fresh_seconds
        timer = self.loop.call_later(self.serving.fresh_seconds, ring)
        self.bell.add(ring)
        try:
            while True:
                rung[:] = [Pending()]
                current = self.version(resource, namespace)
                if version <= current:
                    return
                if self.loop.now >= deadline:
                    raise failures.too_large(version, current)
                await rung[0]
        finally:
            self._waiting -= 1
            timer.cancel()
            self.bell.remove(ring)

    def version(self, resource: str, namespace: str = "") -> int:
        """Up to which version the content of a resource is; 0 where nobody says.

        A Failure (429) where it is not there: another instance does not have it.
        """
        try:
            cached = self.cache[resource]
            found = lanes.version_of(cached.record(), namespace) if namespace else cached.version
        except KeyError as error:
            raise failures.not_listed() from error
        return int(found) if found is not None and found.isdecimal() else 0

    def later(self, seconds: float, function: Callable[[], object]) -> Timer:
        """As loop.call_later()."""
        return self.loop.call_later(seconds, function)
