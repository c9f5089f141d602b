"""One server process: the cache, its resources, and the versions that requests wait for."""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shmcache.protocol import failures, relays, watching
from shmcache.protocol.versions import number_of
from shmcache.reader import namespace_versions
from shmcache.serve import routes
from shmcache.serve.auth.access import Access
from shmcache.serve.catalogue import Catalogue
from shmcache.serve.freshness import Standing
from shmcache.serve.http.listening import Listening
from shmcache.serve.http.loop import Loop, Pending, Timer
from shmcache.serve.http.quotas import Quota
from shmcache.serve.http.shares import Shares
from shmcache.serve.limits import Limits
from shmcache.serve.read.consistency import CACHED, Consistency
from shmcache.serve.read.fast_get import Usual
from shmcache.serve.read.past_states import PastStates
from shmcache.serve.watch.bell import Bell
from shmcache.serve.watch.hub import WatchHub

if TYPE_CHECKING:
    from shmcache.reader.cache import Cache
    from shmcache.serve.auth.neighbours import Neighbours
    from shmcache.serve.catalogue import Served
    from shmcache.serve.http.answers import Answer, Stream
    from shmcache.serve.http.connection import Connection
    from shmcache.serve.http.requests import HttpRequest
    from shmcache.serve.proxy.proxy import Proxy
    from shmcache.serve.ui.routes import Interface


RELAY_PATIENCE = 0.5
"""Seconds that a client of several relays waits for one of them: another may be there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How a server serves."""

    limits: Limits = field(default_factory=Limits)
    fresh_seconds: float = 3.0
    """How long a request waits for a version from the future (R-AS-16)."""
    max_age: float | None = None
    """Seconds since the last contact with the API server, after which requests get 503."""
    consistency: str = CACHED
    """Of requests without a resourceVersion: see read/consistency.py."""
    bookmark_seconds: float = watching.BOOKMARK_SECONDS
    """The approximate interval of bookmarks for watches that request them."""


class Server(Listening):
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
        self.serving = serving or Serving()
        super().__init__(listener, self.serving.limits, tls=tls, loop=loop)
        self.cache = cache
        self.bell = Bell(self.loop, cache)
        self.catalogue = Catalogue(cache)
        self.standing = Standing(cache, self.loop, self.serving.max_age)
        self.past = PastStates()
        self.access = Access()
        """Decides who may send requests; replaced before start() to restrict access."""
        self.neighbours: Neighbours | None = None
        """Decides which local users may read; set with `admits`."""
        self.proxy: Proxy | None = None
        """The destination of requests that are not served here, if any."""
        self.page: Interface | None = None
        """The page of `shmcache ui`, if it is offered."""
        self.lasting = Quota(self.limits.lasting)
        """The admissions of watches."""
        self.consistency = Consistency(
            cache,
            self.loop,
            self.serving.consistency,
            self.serving.fresh_seconds,
            self.limits.waiting,
        )
        self.usual = Usual(self)
        if self.serving.consistency == CACHED:  # the others have to ask first
            self.quick = self.usual.answer  # type: ignore[method-assign]  # one call less for each
        self.watches = WatchHub(self, bookmark_seconds=self.serving.bookmark_seconds)
        self.waiting = Shares(self.limits.waiting)
        """The shares of requests that wait for a version."""

    def count_slow(self) -> None:
        """See Listening; other processes see it on the seat of this one."""
        super().count_slow()
        self.cache.reader.count_cut()

    def tidy(self) -> None:
        """Releases states kept for lists, and follows the cache to its next instance."""
        self.past.tidy()
        self.usual.follow()
        if self.neighbours is not None and self.neighbours.changed():
            self.admit_again()

    def release(self) -> None:
        """Releases everything that it holds except its connections."""
        self.bell.close()
        self.past.clear()
        self.access.close()
        if self.page is not None:
            self.page.close()
        if self.proxy is not None:
            self.proxy.close()

    # ---- requests ------------------------------------------------------------------------------

    async def answer(self, request: HttpRequest, connection: Connection) -> Answer | Stream | None:
        """The answer to a request; None where the connection was taken over. May raise Failure."""
        self.stats.requests += 1
        return await routes.answer(self, request, connection)

    async def fresh(
        self,
        resource: str,
        version: int,
        namespace: str = "",
        *,
        holder: Hashable,
        patience: float = math.inf,
    ) -> None:
        """Returns once the resource has reached this version; a Failure (504) after a timeout.

        `namespace`: only this part of it. `holder`: in whose name the request waits. `patience`: of
        the client, where it has less than this server.
        """
        current = self.version(resource, namespace)
        if version <= current:
            return
        self.waiting.take(holder)
        rung: list[Pending[None]] = []

        def ring() -> None:
            rung[0].give(None)

        seconds = min(self.serving.fresh_seconds, patience)
        deadline = self.loop.now + seconds
        timer = self.loop.call_later(seconds, ring)
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
            self.waiting.give_back(holder)
            timer.cancel()
            self.bell.remove(ring)

    async def reached(
        self, served: Served, headers: Mapping[str, str], namespace: str, *, holder: Hashable
    ) -> None:
        """Waits for the version that a client of relays has reached (RELAYED2)."""
        version = relays.reached(headers)
        if version:
            await self.fresh(
                served.name, version, namespace, holder=holder, patience=RELAY_PATIENCE
            )

    def version(self, resource: str, namespace: str = "") -> int:
        """The version of the content of a resource; 0 if unknown.

        A Failure (429) where it is not there: another instance does not have it.
        """
        try:
            cached = self.cache[resource]
            found = (
                namespace_versions.version_of(cached.record(), namespace)
                if namespace
                else cached.version
            )
        except KeyError as error:
            raise failures.not_listed() from error
        return max(number_of(found), 0)

    def later(self, seconds: float, function: Callable[[], object]) -> Timer:
        """As loop.call_later()."""
        return self.loop.call_later(seconds, function)
