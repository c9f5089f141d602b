"""One server as all sources of a process share it, and requests to it over one source's line.

They share the configuration with its credentials, and the results of discovery, but not the
connection: a source asks for one thing at a time, so it has one, which it can cut.
"""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib import metadata
from typing import Any

import urllib3
from urllib3.connectionpool import HTTPConnectionPool

from shmcache.protocol.relays import REACHED_HEADER
from shmcache.source import discovery
from shmcache.source.access import Load, ServerAccess
from shmcache.source.base import SourceFailed
from shmcache.source.body import PATIENCE, TimedBody, is_bounded, read_body
from shmcache.source.failures import (
    as_failures,
    cancelled,
    ended_early,
    garbage,
    http_failure,
    overdue,
)
from shmcache.source.line import KEEPALIVE, HeldConnection, HeldTLSConnection, Line
from shmcache.source.watch_lists import WatchListRefusals

_log = logging.getLogger(__name__)

JSON = "application/json"
CONNECT_TIMEOUT = 10.0
EXPIRY_MARGIN = 30.0
"""Credentials are renewed this many seconds before they expire."""
MOST_WARNINGS = 64
"""Warnings that are remembered; more are not logged."""
ERROR_BYTES = 64 * 1024
"""More than this of an error's body is not read."""
_ACCEPTED = frozenset({200, 201, 202})
"""Statuses of success: a read has the first, a new object the second."""
DOCUMENT_BYTES = 64 << 20
"""A document of discovery larger than this is refused."""


@cache  # it reads the metadata of two packages
def user_agent() -> str:
    """Our name for the server's logs and its flow control."""
    return (
        f"shmcache/{metadata.version('shmcache')} "
        f"({platform.python_implementation()} {platform.python_version()}; "
        f"{platform.system().lower()}/{platform.machine()}) "
        f"urllib3/{metadata.version('urllib3')}"
    )


class ApiConnection:
    """A server's configuration, read again when credentials expire or are refused. Thread-safe."""

    def __init__(
        self,
        load: Load,
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` is the wall clock: credentials say by it until when they hold.

        How long that is is counted by `clock` from then on, whatever becomes of the wall clock.
        """
        self._load = load
        self._lock = threading.Lock()
        self._access: ServerAccess | None = None
        self._due: float | None = None
        self.documents = discovery.Documents()
        """The documents that discovery has read."""
        self.watch_lists = WatchListRefusals(clock)
        self.connect_timeout = connect_timeout
        self.now = now
        self.clock = clock
        self.agent = user_agent()

    def access(self) -> ServerAccess:
        """The configuration in force, with credentials that have not expired."""
        with self._lock:
            found = self._access
            if found is None or (self._due is not None and self._due <= self.clock()):
                found = self._read()
            return found

    def _read(self) -> ServerAccess:
        found = self._access = self._load()
        left = None if found.expires is None else found.expires - EXPIRY_MARGIN - self.now()
        self._due = None if left is None else self.clock() + left
        return found

    def renewed(self, refused: ServerAccess) -> ServerAccess:
        """Another configuration than the one that was refused, read once for all who ask."""
        with self._lock:
            if self._access is refused or self._access is None:
                return self._read()
            return self._access


class Client:
    """Requests of one source: one connection, kept between them. For one thread, but cancel()."""

    def __init__(self, server: ApiConnection) -> None:
        self.server = server
        self._line = Line()
        self._pool: urllib3.PoolManager | None = None
        self._access: ServerAccess | None = None
        self._sent: list[tuple[str, str]] = []
        self._warnings: set[str] = set()
        self._timed: TimedBody | None = None
        self.reached = ""
        """The version that is named to relays (protocol/relays.py); "" names none."""
        self.answered: Mapping[str, str] = {}
        """The headers of the last answer."""

    def cancel(self) -> None:
        """Ends what is under way and refuses what comes after. From any thread."""
        self._line.cut()

    def interrupt(self) -> None:
        """Ends what is under way, as a broken connection would. From any thread."""
        self._line.interrupt()

    @contextmanager
    def within(self, silence: float, what: str) -> Iterator[None]:
        """SourceFailed for a request that is never silent, and lasts too long (LINE1)."""
        seconds = PATIENCE * silence
        with as_failures(self._line, what):
            with self._line.within(seconds) as late:
                try:
                    yield
                except Exception as error:
                    if late.is_set():
                        raise overdue(what, seconds) from error
                    raise
            if late.is_set():  # the head of an answer that was cut looks whole
                raise overdue(what, seconds)

    def renew(self) -> None:
        """An event of the open watch was complete (TIMED1)."""
        if self._timed is not None:
            self._timed.renew()

    def check(self, what: str) -> None:
        """SourceFailed (CANCELLED) after cancel()."""
        if self._line.is_cut:
            raise cancelled(what)

    @property
    def waiting(self) -> int:
        """Bytes that have arrived and were not read yet."""
        return self._line.waiting()

    def close(self) -> None:
        """Closes the connection that is kept."""
        if self._pool is not None:
            self._pool.clear()

    @contextmanager
    def get(
        self,
        path: str,
        *,
        silence: float,
        accept: str = JSON,
        gzip: bool = False,
        bounded: bool = False,
    ) -> Iterator[Iterator[bytes]]:
        """The body of a 200 as it comes; anything else, now or later, is SourceFailed.

        Is entered when the headers have come. `silence`: seconds without a byte. An answer that
        does not say where it ends has to prove it by what it holds, as a list does; with
        `bounded` the end of the connection is a failure then, for a watch cannot. A watch calls
        renew() with each event.
        """
        what = f"GET {path}"
        response: urllib3.HTTPResponse | None = None
        try:
            with self.within(silence, what):
                response = self._open(path, silence=silence, accept=accept, gzip=gzip)
                self._check(response, what)
        except BaseException:
            if response is not None:
                response.close()
            raise
        timed = self._timed = TimedBody(what, silence, is_watch=bounded)
        try:
            yield self._bytes(response, what, timed, bounded=bounded)
        finally:
            response.close()  # does nothing to a connection that was given back

    def document(self, path: str, *, silence: float, accept: str = JSON) -> bytes:
        """A body as a whole, for what is known to be small."""
        with (
            self.within(silence, f"GET {path}"),
            self.get(path, silence=silence, accept=accept, gzip=True) as pieces,
        ):
            found = b""
            for piece in pieces:
                found += piece
                if len(found) > DOCUMENT_BYTES:
                    raise garbage(f"GET {path}", "the answer is far too long")
            return found

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        *,
        silence: float,
        most: int = DOCUMENT_BYTES,
    ) -> bytes:
        """The answer to a request that may write, as a whole; SourceFailed for a refusal.

        It is sent once, and again only after a 401, which nothing was done for. When it fails
        without an answer, the server may have done it, or may do it yet.
        """
        what = f"{method} {path}"
        with self.within(silence, what):
            response = self._open(
                path, silence=silence, accept=JSON, gzip=False, method=method, body=body
            )
            try:
                self._check(response, what)
                found = _beginning(read_body(response, what), most)
            finally:
                response.close()
            if len(found) > most:
                raise garbage(what, "the answer is far too long")
            if not is_bounded(response):
                raise ended_early(what)
        return found

    def _bytes(
        self, response: urllib3.HTTPResponse, what: str, timed: TimedBody, *, bounded: bool
    ) -> Iterator[bytes]:
        with as_failures(self._line, what):
            yield from read_body(response, what, timed)
            if self._line.is_cut:
                raise cancelled(what)
            if bounded and not is_bounded(response):
                raise ended_early(what)

    def _check(self, response: urllib3.HTTPResponse, what: str) -> None:
        self._warn(response.headers.getlist("Warning"), what)
        if response.status not in _ACCEPTED:
            body = _beginning(read_body(response, what), ERROR_BYTES)
            raise SourceFailed(
                http_failure(
                    response.status, response.headers, body, what=what, now=self.server.now()
                )
            )
        kind = response.headers.get("Content-Type", JSON)
        if kind.partition(";")[0].strip().lower() != JSON:
            if not is_bounded(response) and not _beginning(read_body(response, what), 1):
                raise ended_early(what)  # the headers were cut
            raise garbage(what, f"the answer is {kind}, not {JSON}")

    def _warn(self, warnings: list[str], what: str) -> None:
        for warning in warnings:
            if warning not in self._warnings and len(self._warnings) < MOST_WARNINGS:
                self._warnings.add(warning)  # each once: they come with every answer
                _log.warning("%s: the server warns: %s", what, warning)

    def _open(
        self,
        path: str,
        *,
        silence: float,
        accept: str,
        gzip: bool,
        method: str = "GET",
        body: bytes | None = None,
    ) -> urllib3.HTTPResponse:
        """The answer's headers have come; one more try with new credentials after a 401."""
        access = self.server.access()
        send = partial(self._send, method, path, body, silence=silence, accept=accept, gzip=gzip)
        response = send(access)
        if response.status != 401:
            return response
        renewed = self.server.renewed(access)
        if renewed == access and renewed.headers() == self._sent:
            return response
        response.close()
        return send(renewed)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        access: ServerAccess,
        *,
        silence: float,
        accept: str,
        gzip: bool,
    ) -> urllib3.HTTPResponse:
        if self._line.is_cut:
            raise cancelled(f"{method} {path}")
        self._sent = access.headers()
        headers = urllib3.HTTPHeaderDict(self._sent)
        headers["User-Agent"] = self.server.agent
        headers["Accept"] = accept
        if self.reached:
            headers[REACHED_HEADER] = self.reached
        headers["Accept-Encoding"] = "gzip" if gzip and access.gzip_pays else "identity"
        if body is not None:
            headers["Content-Type"] = JSON
        response = self._pool_for(access).request(
            method,
            access.url + path,
            body=body,
            headers=headers,
            timeout=urllib3.Timeout(connect=self.server.connect_timeout, read=silence),
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        assert isinstance(response, urllib3.HTTPResponse)
        self.answered = response.headers
        return response

    def status_of(self, path: str, *, silence: float) -> int:
        """The HTTP code of an answer whose body does not matter. SourceFailed without one."""
        with self.within(silence, f"GET {path}"):
            response = self._open(path, silence=silence, accept="*/*", gzip=False)
            code = response.status
            response.close()
            return code

    def _pool_for(self, access: ServerAccess) -> urllib3.PoolManager:
        """The pool of this server and identity; another one's is closed."""
        if self._pool is None or self._access != access:
            self.close()
            self._pool = _pool(access, self._line)
            self._access = access
        return self._pool


def _pool(access: ServerAccess, line: Line) -> urllib3.PoolManager:
    """A pool whose connections let the line hold them."""
    settings: dict[str, Any] = {"maxsize": 1, "socket_options": list(KEEPALIVE)}
    if access.tls is not None:
        settings |= {"ssl_context": access.tls}
        if access.server_name:
            settings |= {"server_hostname": access.server_name}
    if access.proxy is None:
        manager = urllib3.PoolManager(**settings)
    else:
        manager = urllib3.ProxyManager(access.proxy, **settings)
    manager.pool_classes_by_scheme = {
        "http": _bound(HTTPConnectionPool, HeldConnection, line),
        "https": _bound(urllib3.HTTPSConnectionPool, HeldTLSConnection, line),
    }
    return manager


def _bound(pool: type, connection: type, line: Line) -> Any:
    """A class of pools whose connections are held by this line."""
    return type(f"Held{pool.__name__}", (pool,), {"ConnectionCls": _Bound(connection, line)})


def _beginning(pieces: Iterator[bytes], length: int) -> bytes:
    """The first pieces, together at least of this length if there is so much."""
    found = b""
    for piece in pieces:
        found += piece
        if len(found) > length:
            break
    return found


class _Bound:
    """Makes connections of a class for a line, as a pool asks for them."""

    def __init__(self, connection: type, line: Line) -> None:
        self._connection = connection
        self._line = line

    def __call__(self, **settings: Any) -> Any:
        return self._connection(line=self._line, **settings)
