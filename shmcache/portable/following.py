"""reflect(): lists and watches resources of an API server in threads of this process.

The portable reflector is simple on purpose: one request for a list, one watch after it, and a new
list whenever a watch ends with an error. Unlike `shmcache run` it proves nothing, knows no budgets
and no transforms.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import urllib3

from shmcache import states
from shmcache.portable.writer import PrivateWriter, key_of
from shmcache.settings import IndexSpec, Resource
from shmcache.source import discovery
from shmcache.source.access import ServerAccess, direct
from shmcache.source.base import SourceFailed
from shmcache.source.failures import http_failure
from shmcache.source.kubeconfig import default_paths, from_kubeconfig

logger = logging.getLogger(__name__)

PAUSE_SECONDS, LONGEST_PAUSE = 0.8, 30.0
CONNECT_SECONDS, SILENT_SECONDS, WATCH_SECONDS = 10.0, 90.0, 300
_GONE = 410
_LONGEST_REFUSAL = 64 << 10


class _Again(Exception):
    """The watch cannot go on: list again."""


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
    if server is not None:
        access = direct(server, token=token)
    else:
        paths = kubeconfig or default_paths()
        if paths is None:
            raise ValueError("reflect() needs server=, kubeconfig= or KUBECONFIG")
        access = from_kubeconfig(paths, context)
    indexed = indices or {}
    wanted = dict.fromkeys([*resources, *indexed])
    if not wanted:
        raise ValueError("name the resources to cache, such as reflect('pods')")
    return Reflection(name, access, [Resource(one, indexed.get(one, {})) for one in wanted])


class Reflection:
    """The threads, and the writer of their cache."""

    def __init__(self, name: str, access: ServerAccess, resources: Iterable[Resource]) -> None:
        declared = list(resources)
        self.writer = PrivateWriter(name, declared)
        server = _Upstream(access)
        self._following = [_Follower(self.writer, one.name, server) for one in declared]
        for one in self._following:
            one.start()

    def close(self) -> None:
        """Ends the watches and the cache. Idempotent."""
        for one in self._following:
            one.stop()
        for one in self._following:
            one.join()
        self.writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Upstream:
    """Requests to one server; thread-safe."""

    def __init__(self, access: ServerAccess) -> None:
        settings: dict[str, Any] = {"maxsize": 64, "retries": False}
        if access.tls is not None:
            settings["ssl_context"] = access.tls
        if access.server_name is not None:
            settings |= {"server_hostname": access.server_name}
        self._access = access
        self._pool: urllib3.PoolManager = (
            urllib3.ProxyManager(access.proxy, **settings)
            if access.proxy
            else urllib3.PoolManager(**settings)
        )
        self._documents = discovery.Documents()

    def path_of(self, resource: str) -> str:
        """The path of all objects of a resource, as the server's discovery has it."""
        return discovery.find(self._documents, self.get, resource).path()

    def get(self, path: str, accept: str = "application/json") -> bytes:
        """One document."""
        with self.open(path, accept) as response:
            return bytes(response.data)

    def open(self, path: str, accept: str = "application/json") -> urllib3.BaseHTTPResponse:
        """The answer to a GET, its body unread. SourceFailed or urllib3's errors if it fails."""
        response = self._pool.request(
            "GET",
            self._access.url.rstrip("/") + path,
            headers={"Accept": accept, **dict(self._access.headers())},
            preload_content=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=SILENT_SECONDS),
        )
        if response.status >= 300:
            body = response.read(_LONGEST_REFUSAL)
            response.release_conn()
            failure = http_failure(
                response.status, response.headers, body, what=f"GET {path}", now=time.time()
            )
            if response.status == _GONE:
                raise _Again(failure.message)
            raise SourceFailed(failure)
        return response


class _Follower(threading.Thread):
    """One resource."""

    def __init__(self, writer: PrivateWriter, resource: str, server: _Upstream) -> None:
        super().__init__(name=f"shmcache {resource}", daemon=True)
        self._writer, self._resource, self._server = writer, resource, server
        self._over = threading.Event()
        self._open: urllib3.BaseHTTPResponse | None = None

    def stop(self) -> None:
        """Ends run() soon; an open watch is cut."""
        self._over.set()
        response = self._open
        if response is not None:
            response.shutdown()

    def run(self) -> None:
        """Until stop()."""
        pause = PAUSE_SECONDS
        while not self._over.is_set():
            try:
                path = self._server.path_of(self._resource)
                version = self._list(path)
                pause = PAUSE_SECONDS
                while not self._over.is_set():
                    version = self._watch(path, version)
            except _Again as error:
                logger.info("%s: listing again: %s", self._resource, error)
            except Exception as error:  # noqa: BLE001 - whatever the server did
                if self._over.is_set():
                    return
                logger.warning("%s: %s", self._resource, error)
                self._writer.set_state(self._resource, states.RETRYING, reason=str(error))
                self._over.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _contact(self) -> None:
        self._writer.note(self._resource, contact_ns=time.monotonic_ns())

    def _list(self, path: str) -> str:
        found = json.loads(self._server.get(path))
        version = str(found["metadata"]["resourceVersion"])
        kind = str(found.get("kind", "")).removesuffix("List")
        about = {"apiVersion": found.get("apiVersion"), "kind": kind}
        self._contact()
        self._writer.replace(self._resource, [about | one for one in found["items"]], version)
        self._writer.set_state(self._resource, states.SYNCED, version)
        return version

    def _watch(self, path: str, version: str) -> str:
        """Follows until the server ends the watch; the last version."""
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
        response = self._server.open(f"{path}?{query}&resourceVersion={version}")
        self._open = response
        try:
            if self._over.is_set():
                return version
            for event in _lines(response):
                self._contact()
                version = self._take(event)
        finally:
            self._open = None
            response.close()
        return version

    def _take(self, event: dict[str, Any]) -> str:
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise _Again(str(obj.get("message")))
        version = str(obj["metadata"]["resourceVersion"])
        if kind == "DELETED":
            self._writer.delete(self._resource, key_of(obj), version)
        elif kind != "BOOKMARK":
            self._writer.put(self._resource, key_of(obj), obj, version)
        else:
            self._writer.set_version(self._resource, version)
        return version


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    """The events of a watch, as they come."""
    rest = b""
    for piece in response.stream(65536):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line.strip():
                yield json.loads(line)
