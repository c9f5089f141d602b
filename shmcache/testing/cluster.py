"""A cluster for one test: an API server, a kubeconfig that leads to it, and caches of it.

    with Cluster() as cluster:
        cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0"}})
        cache = cluster.reflect("pods")
        assert cache["pods"]["default/web-0"]

All of it runs in threads of this process, on a port and under names of its own, and takes a few
milliseconds: so each test has a new one, and tests run at the same time. A cache is the real one:
the reflector of `shmcache run` lists and watches over HTTP, and writes to shared memory.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self, cast

from shmcache._platform import PORTABLE
from shmcache.testing.apiserver import ApiServer

if TYPE_CHECKING:
    from shmcache.reader.cache import Cache
    from shmcache.settings import IndexSpec
    from shmcache.source.client import ApiConnection

READY_SECONDS = 30.0
_REQUESTS_PER_SECOND = 1000.0  # of a reflector: the server is ours


class Cluster:
    """An API server for a test, and caches of it. A context manager."""

    def __init__(self, server: ApiServer | None = None, **options: Any) -> None:
        """`server`: one that is not started yet; else `options` are those of ApiServer."""
        if server is not None and options:
            raise ValueError(f"options {', '.join(options)} belong to the server that is given")
        self.server = server if server is not None else ApiServer(**options)
        """The API server: its objects, faults, access and counts of requests."""
        self._stack = ExitStack()
        self._caches: list[Cache] = []
        self._directory = ""

    # ---- its life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """The server listens when this returns."""
        self._stack.enter_context(self.server)
        return self

    def stop(self) -> None:
        """Ends reflectors, caches and the server, and removes their memory and files."""
        self._caches.clear()
        self._stack.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- the server ------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where the server listens."""
        return self.server.url

    @property
    def kubeconfig(self) -> str:
        """The path of a kubeconfig for the server. Its namespace is `default`."""
        if not self._directory:
            directory = tempfile.TemporaryDirectory(prefix="shmcache-testing-")
            self._directory = self._stack.enter_context(directory)
            self.server.kubeconfig(self._kubeconfig)
        return self._kubeconfig

    @property
    def _kubeconfig(self) -> str:
        return os.path.join(self._directory, "kubeconfig")

    def create(self, *objects: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Creates objects of any kind, by their apiVersion and kind; as they are stored."""
        made = []
        for obj in objects:
            copy = dict(obj)
            try:
                resource = self.server.resource_of(copy)
            except KeyError as error:
                raise ValueError(f"an object needs an apiVersion and a kind: {error}") from None
            made.append(self.server.create(resource, copy))
        return made

    # ---- caches ----------------------------------------------------------------------------------

    def reflect(
        self,
        *resources: str,
        indices: Mapping[str, Mapping[str, IndexSpec]] | None = None,
        name: str | None = None,
        wait: bool = True,
    ) -> Cache:
        """A cache of these resources, attached, with a reflector that follows the server.

        `indices` as in {"pods": {"node": "spec.nodeName"}}. With `wait`, returns when the first
        lists are stored (TimeoutError after half a minute).
        """
        if PORTABLE:
            return self._reflect_here(resources, indices or {}, name, wait=wait)
        from shmcache.engine.engine import Engine
        from shmcache.engine.open_source import KubeOpener
        from shmcache.engine.plans import Plan
        from shmcache.engine.rate_limit import Pace
        from shmcache.reader.cache import attach
        from shmcache.source.config import ServerSettings, open_server
        from shmcache.writer.writer import Writer

        indexed = indices or {}
        wanted = dict.fromkeys([*resources, *indexed])
        if not wanted:
            raise ValueError("name the resources to cache, such as reflect('pods')")
        plans = [Plan(name=each, indices=dict(indexed.get(each, {}))) for each in wanted]
        cache_name = name or f"pytest-{os.getpid()}-{secrets.token_hex(4)}"
        writer = Writer(cache_name, [plan.resource_at("", ()) for plan in plans])
        self._stack.callback(writer.close)
        token = next(iter(self.server.access.tokens), None)
        source = open_server(ServerSettings(url=self.server.url, token=token))
        self._discover(source, wanted)
        engine = Engine(writer, plans, KubeOpener(source), pace=Pace(_REQUESTS_PER_SECOND))
        engine.start()
        self._stack.callback(engine.stop)
        cache = attach(cache_name)
        self._stack.callback(cache.close)
        self._caches.append(cache)
        if wait and not engine.ready.wait(READY_SECONDS):
            states = {each: state for each, (state, _) in engine.standings().items()}
            raise TimeoutError(
                f"the first lists are not stored after {READY_SECONDS:g} s: {states}"
            )
        return cache

    def _discover(self, source: ApiConnection, names: Iterable[str]) -> None:
        """Reads what discovery says of these names without HTTP, which halves the requests.

        While faults wait for requests, the reflector itself asks, and meets them.
        """
        from shmcache.protocol.failures import Failure
        from shmcache.source.base import SourceFailed
        from shmcache.source.discovery import find

        for name in () if self.server.faults.waiting else names:
            with suppress(Failure, SourceFailed):  # the reflector will see it, too
                find(source.documents, self.server.document, name)

    def _reflect_here(
        self,
        resources: Iterable[str],
        indices: Mapping[str, Mapping[str, IndexSpec]],
        name: str | None,
        *,
        wait: bool,
    ) -> Cache:
        """reflect() with the private cache of a system that is not Linux."""
        from shmcache import portable

        cache_name = name or f"pytest-{os.getpid()}-{secrets.token_hex(4)}"
        token = next(iter(self.server.access.tokens), None)
        reflection = portable.reflect(
            *resources, name=cache_name, indices=indices, server=self.server.url, token=token
        )
        self._stack.callback(reflection.close)
        cache = portable.attach(cache_name)
        self._stack.callback(cache.close)
        deadline = time.monotonic() + READY_SECONDS
        for resource in cache.resources if wait else ():
            if not cache[resource].wait_synced(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"{resource} is not listed after {READY_SECONDS:g} s")
        found: Any = cache
        self._caches.append(found)
        return cast("Cache", found)

    def settle(self, timeout: float = 10.0) -> None:
        """Returns when each cache shows exactly the objects that the server has now.

        TimeoutError names a resource that does not get there, as under a fault.
        """
        deadline = time.monotonic() + timeout
        for cache in self._caches:
            for resource in cache.resources:
                self._settle(cache, resource, deadline)

    def _settle(self, cache: Cache, resource: str, deadline: float) -> None:
        while True:
            since, shown = cache.latest, cache[resource]
            if not shown.synced:
                shown.wait_synced(max(0.0, deadline - time.monotonic()))
            elif _versions(self.server.list(resource)) == _versions(shown.list()):
                return
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"cache {cache.name!r}: {resource} does not equal the server's")
            if shown.synced:
                cache.wait(since, left, [resource])

    def expect(self, fact: Callable[[], object], timeout: float = 10.0) -> None:
        """Returns when a fact about a cache is true; TimeoutError if it does not become so."""
        if not self._caches:
            raise ValueError("expect() looks whenever a cache changes: reflect() first")
        cache, deadline = self._caches[0], time.monotonic() + timeout
        while True:
            since = cache.latest
            if fact():
                return
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"it is not so after {timeout:g} s")
            cache.wait(since, left)


def _versions(objects: Iterable[Any]) -> dict[tuple[str, str], str]:
    return {
        (one["metadata"].get("namespace", ""), one["metadata"]["name"]): one["metadata"][
            "resourceVersion"
        ]
        for one in objects
    }
