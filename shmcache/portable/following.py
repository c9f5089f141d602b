"""reflect(): lists and watches resources of an API server in threads of this process.

The portable reflector is simple on purpose: one request for a list, then watches, and a new list
where a watch cannot go on. Unlike `shmcache run` it proves nothing, knows no budgets and no
transforms.

    FOLLOW1  A pause follows each watch and failure; it grows until a watch lasts or has events.
    FOLLOW2  Credentials are read again when they expire, and once for each request refused by 401.
    FOLLOW3  close() ends within seconds, whatever the server does.
    FOLLOW4  A watch ends after SILENT_SECONDS without an event, a list that lasts twice as long and
        brings less than FLOOR bytes a second fails: bytes alone prove nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import urllib3

from shmcache import states
from shmcache.portable.writer import PrivateWriter, key_of
from shmcache.protocol.jsontext import decoded
from shmcache.reasons import reason_of
from shmcache.settings import IndexSpec, Resource
from shmcache.source import discovery
from shmcache.source.access import Load, ServerAccess, direct
from shmcache.source.base import SourceFailed
from shmcache.source.failures import cancelled, garbage, http_failure
from shmcache.source.kubeconfig import default_paths, from_kubeconfig

logger = logging.getLogger(__name__)

PAUSE_SECONDS, LONGEST_PAUSE = 0.8, 30.0
CONNECT_SECONDS, SILENT_SECONDS, WATCH_SECONDS = 10.0, 90.0, 300
FLOOR = 1024
WELL_SECONDS = 30.0
"""After a watch of this length, or one with events, the pause is the shortest again."""
EXPIRY_MARGIN = 30.0
"""Credentials are read again this many seconds before they expire."""
CLOSE_SECONDS = 5.0
"""close() waits so long for the threads; they are daemons."""
LONGEST_LINE = 64 << 20
"""A watch with a longer event is given up."""
_UNAUTHORIZED, _GONE, _TOO_MANY, _SERVER_ERROR = 401, 410, 429, 500
_LONGEST_REFUSAL = 64 << 10


class _Again(Exception):
    """The watch cannot go on: list again."""


class _Stumbled(Exception):
    """The server failed for the moment: the watch may go on from its version."""


def reflect(
    *resources: str,
    name: str = "shmcache",
    indices: Mapping[str, Mapping[str, IndexSpec]] | None = None,
    server: str | None = None,
    token: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
) -> Reflection:
    """Keeps a cache of this process equal to an API server, until close(). A context manager.

    `server` is a URL, such as that of `kubectl proxy`; else `kubeconfig`, KUBECONFIG or
    ~/.kube/config are read, with the `context`. Programs attach(name) as on Linux.
    """
    paths = kubeconfig or default_paths()
    if server is None and paths is None:
        raise ValueError("reflect() needs server=, kubeconfig= or KUBECONFIG")

    def load() -> ServerAccess:
        if server is not None:
            return direct(server, token=token)
        assert paths is not None
        return from_kubeconfig(paths, context)

    indexed = indices or {}
    wanted = dict.fromkeys([*resources, *indexed])
    if not wanted:
        raise ValueError("name the resources to cache, such as reflect('pods')")
    return Reflection(name, load, [Resource(one, indexed.get(one, {})) for one in wanted])


class Reflection:
    """The threads, and the writer of their cache."""

    def __init__(self, name: str, load: Load, resources: Iterable[Resource]) -> None:
        declared = list(resources)
        server = _Upstream(load)
        self.writer = PrivateWriter(name, declared)
        self._following = [_Follower(self.writer, one.name, server) for one in declared]
        for one in self._following:
            one.start()

    def close(self) -> None:
        """Ends the watches and the cache, within seconds (FOLLOW3). Idempotent."""
        for one in self._following:
            one.stop()
        end = time.monotonic() + CLOSE_SECONDS
        for one in self._following:
            one.join(max(0.0, end - time.monotonic()))
        self.writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Upstream:
    """Requests to one server, with credentials that hold (FOLLOW2); thread-safe."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._read()
        self.documents = discovery.Documents()

    def _read(self) -> None:
        access = self._load()
        left = None if access.expires is None else access.expires - EXPIRY_MARGIN - time.time()
        self._due = None if left is None else time.monotonic() + left
        self._access, self._pool = access, _pool(access)

    def _current(
        self, refused: ServerAccess | None = None
    ) -> tuple[ServerAccess, urllib3.PoolManager]:
        with self._lock:
            expired = self._due is not None and self._due <= time.monotonic()
            if expired or self._access is refused:
                self._read()
            return self._access, self._pool

    def open(self, path: str, accept: str = "application/json") -> urllib3.BaseHTTPResponse:
        """The answer to a GET, its body unread. SourceFailed or urllib3's errors if it fails."""
        access, pool = self._current()
        response = _send(access, pool, path, accept)
        if response.status == _UNAUTHORIZED:
            renewed, pool = self._current(refused=access)
            if renewed != access or renewed.token_file is not None:
                response.close()
                response = _send(renewed, pool, path, accept)
        if response.status < 300:
            return response
        try:
            body = response.read(_LONGEST_REFUSAL)
        finally:
            response.close()
        failure = http_failure(
            response.status, response.headers, body, what=f"GET {path}", now=time.time()
        )
        if response.status == _GONE:
            raise _Again(failure.message)
        if response.status == _TOO_MANY or response.status >= _SERVER_ERROR:
            raise _Stumbled(failure.message)
        raise SourceFailed(failure)


def _pool(access: ServerAccess) -> urllib3.PoolManager:
    settings: dict[str, Any] = {"maxsize": 64, "retries": False}
    if access.tls is not None:
        settings["ssl_context"] = access.tls
    if access.server_name is not None:
        settings["server_hostname"] = access.server_name
    if access.proxy:
        return urllib3.ProxyManager(access.proxy, **settings)
    return urllib3.PoolManager(**settings)


def _send(
    access: ServerAccess, pool: urllib3.PoolManager, path: str, accept: str
) -> urllib3.BaseHTTPResponse:
    headers = urllib3.HTTPHeaderDict(access.headers())
    headers["Accept"] = accept
    return pool.request(
        "GET",
        access.url.rstrip("/") + path,
        headers=headers,
        preload_content=False,
        timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=SILENT_SECONDS),
    )


class _Follower(threading.Thread):
    """One resource."""

    def __init__(self, writer: PrivateWriter, resource: str, server: _Upstream) -> None:
        super().__init__(name=f"shmcache {resource}", daemon=True)
        self._writer, self._resource, self._server = writer, resource, server
        self._over = threading.Event()
        self._open: urllib3.BaseHTTPResponse | None = None
        self._pause = PAUSE_SECONDS
        self._version: str | None = None
        self._failing = False

    def stop(self) -> None:
        """Ends run() soon; an open answer is cut."""
        self._over.set()
        response = self._open
        if response is not None:
            try:
                response.shutdown()
            except (OSError, ValueError, RuntimeError) as error:
                logger.debug("%s: the answer had ended: %s", self._resource, reason_of(error))

    def run(self) -> None:
        """Until stop(), with a pause after whatever happened (FOLLOW1)."""
        while not self._over.is_set():
            try:
                path = discovery.find(self._server.documents, self._get, self._resource).path()
                if self._version is None:
                    self._version = self._list(path)
                self._watch(path, self._version)
            except _Again as error:
                self._version = None
                logger.info("%s: listing again: %s", self._resource, error)
            except Exception as error:  # noqa: BLE001 - whatever the server did
                if self._over.is_set():
                    return
                logger.warning("%s: %s", self._resource, error)
                self._writer.set_state(self._resource, states.RETRYING, reason=str(error))
                self._failing = True
                if not isinstance(error, _Stumbled) or self._pause >= LONGEST_PAUSE:
                    self._version = None  # the server may be another one
            self._over.wait(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    @contextmanager
    def _answer(
        self, path: str, accept: str = "application/json"
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """An answer that stop() cuts."""
        response = self._server.open(path, accept)
        self._open = response
        try:
            if self._over.is_set():
                raise cancelled(f"GET {path}")
            yield response
        finally:
            self._open = None
            response.close()

    def _get(self, path: str, accept: str = "application/json") -> bytes:
        """One document."""
        begun, found = time.monotonic(), bytearray()
        with self._answer(path, accept) as response:
            for piece in _pieces(response):
                found += piece
                lasted = time.monotonic() - begun
                if lasted > 2 * SILENT_SECONDS and len(found) < FLOOR * lasted:
                    raise garbage(f"GET {path}", "the answer comes too slowly")
        return bytes(found)

    def _contact(self) -> None:
        self._writer.note(self._resource, contact_ns=time.monotonic_ns())

    def _list(self, path: str) -> str:
        found = decoded(self._get(path))
        version = str(found["metadata"]["resourceVersion"])
        kind = str(found.get("kind", "")).removesuffix("List")
        about = {"apiVersion": found.get("apiVersion"), "kind": kind}
        self._contact()
        self._writer.replace(self._resource, [about | one for one in found["items"]], version)
        self._writer.set_state(self._resource, states.SYNCED, version)
        return version

    def _watch(self, path: str, version: str) -> None:
        """Follows until the server ends the watch."""
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
        begun = time.monotonic()
        try:
            with self._answer(f"{path}?{query}&resourceVersion={version}") as response:
                if self._failing:
                    self._writer.set_state(self._resource, states.SYNCED)
                    self._failing = False
                for event in _lines(response):
                    self._contact()
                    self._version = self._take(event)
                    self._pause = PAUSE_SECONDS
        finally:
            if time.monotonic() - begun >= WELL_SECONDS:
                self._pause = PAUSE_SECONDS

    def _take(self, event: dict[str, Any]) -> str:
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise (_Again if obj.get("code") == _GONE else _Stumbled)(str(obj.get("message")))
        version = str(obj["metadata"]["resourceVersion"])
        if kind == "DELETED":
            self._writer.delete(self._resource, key_of(obj), version)
        elif kind != "BOOKMARK":
            self._writer.put(self._resource, key_of(obj), obj, version)
        else:
            self._writer.set_version(self._resource, version)
        return version


def _pieces(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """A body as it comes."""
    while piece := response.read1(65536):
        yield piece


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    """The events of a watch, as they come. SourceFailed for a line longer than LONGEST_LINE."""
    parts: list[bytes] = []
    size = 0
    heard = time.monotonic()
    for piece in _pieces(response):
        *ends, rest = piece.split(b"\n")
        for end in ends:
            line = b"".join((*parts, end))
            parts, size = [], 0
            if line.strip():
                yield decoded(line)
                heard = time.monotonic()
        parts.append(rest)
        size += len(rest)
        if size > LONGEST_LINE:
            raise garbage("a watch", "an event is far too long")
        if time.monotonic() - heard > SILENT_SECONDS:
            raise _Stumbled(f"no event for {SILENT_SECONDS:.0f} s")
