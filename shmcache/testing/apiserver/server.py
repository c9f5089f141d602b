"""ApiServer: what tests start, fill, and ask what it was asked."""

from __future__ import annotations

import collections
import random
import ssl
from collections.abc import Iterable
from typing import Any, Self

import orjson

from shmcache.protocol.builtins import defined, optional
from shmcache.protocol.failures import Failure
from shmcache.protocol.kinds import Kind
from shmcache.testing.apiserver import documents
from shmcache.testing.apiserver.api import FRESH_SECONDS, Api
from shmcache.testing.apiserver.faults import Faults
from shmcache.testing.apiserver.kinds import ServedKinds
from shmcache.testing.apiserver.kubeconfigs import kubeconfig
from shmcache.testing.apiserver.loop import RequestRecord, ServerLoop
from shmcache.testing.apiserver.requests import ApiRequest
from shmcache.testing.apiserver.store import HISTORY, Backup, ObjectStore
from shmcache.testing.apiserver.stored import Stored

Object = dict[str, Any]

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class ApiServer:
    """An API server on a port of this machine, in a thread of this process.

    Calls from Python do what the same request would, at once and without HTTP; watches see it. They
    may come from any thread. Objects that go in and come out are the caller's own copies.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        certificate_authority: str | None = None,
        tokens: dict[str, str] | None = None,
        watch_list: bool | str = True,
        watch_cache: bool = True,
        aggregated_discovery: bool = True,
        sharding: bool = True,
        graceful_pods: bool = False,
        optional_resources: bool = False,
        bookmark_seconds: float = 60.0,
        fresh_seconds: float = FRESH_SECONDS,
        history: int = HISTORY,
        namespaces: Iterable[str] = NAMESPACES,
        seed: int | None = None,
        etcd: str = "",
    ) -> None:
        """Settings that older servers, or other ones, have otherwise.

        `watch_list`: False refuses sendInitialEvents (422), a text accepts it and answers 200 with
        one ERROR event of 500 and this message. `watch_cache`: False serves from the store alone.
        `aggregated_discovery`: False lists each group version by itself. `sharding`: False ignores
        shardSelector, as servers do where KEP-5866 is off. `optional_resources`: also built-in ones
        that are off by default, such as leasecandidates. `etcd`: endpoints of an
        etcd that keeps the state, for several servers and beyond their end; "": in memory.
        """
        self.faults = Faults()
        """Asks for faults."""
        self._catalogue = ServedKinds()
        if optional_resources:
            self._catalogue.add(optional())
        self._store = _store(etcd, history, self._catalogue)
        self._api = api = Api(self._store, self._catalogue, random.Random(seed))
        api.watch_list, api.watch_cache = watch_list, watch_cache
        api.aggregated_discovery, api.sharding = aggregated_discovery, sharding
        api.bookmark_seconds, api.fresh_seconds = bookmark_seconds, fresh_seconds
        api.writes.graceful_pods = graceful_pods
        api.access.tokens = dict(tokens or {})
        self.access = api.access
        """Denies and allows: `server.access.deny(user, verb, resource)`."""
        self._loop = ServerLoop(self._api, self.faults, (host, port))
        self._loop.tls = tls
        self._authority = certificate_authority
        self._store.open()
        for name in namespaces:
            if self._store.get("namespaces", name) is None:
                self._begin(name)

    # ---- its life ------------------------------------------------------------------------------

    def start(self) -> Self:
        """Listens when this returns."""
        self._loop.start()
        return self

    def stop(self) -> None:
        """Ends every connection; nothing listens any more."""
        self._loop.stop()
        self._store.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def go_down(self) -> None:
        """Closes the listener and all connections: clients are refused until `come_back`."""
        self._loop.do(self._loop.go_down())

    def come_back(self) -> None:
        """Listens again, at the same port, with the same state."""
        self._loop.do(self._loop.listen())

    def abort_connections(self) -> None:
        """Resets every connection; new ones are taken."""
        self._loop.do(self._loop.abort())

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._loop.address
        return f"{'https' if self._loop.tls else 'http'}://{host}:{port}"

    @property
    def port(self) -> int:
        """At which port it listens."""
        return self._loop.address[1]

    def kubeconfig(self, path: str) -> str:
        """Writes a kubeconfig with which kubectl and clients find it, as its first user."""
        token = next(iter(self._api.access.tokens), None)
        with open(path, "w", encoding="utf-8") as file:
            file.write(kubeconfig(self.url, token, self._authority))
        return path

    # ---- requests so far -----------------------------------------------------------------------

    @property
    def requests(self) -> collections.Counter[tuple[str, str]]:
        """(verb, resource) -> how many requests: requests["watch", "pods"]."""
        return self._loop.counts

    @property
    def log(self) -> list[RequestRecord]:
        """The last requests, in order."""
        return list(self._loop.log)

    @property
    def open_watches(self) -> int:
        """How many watches are being served now."""
        return len(self._loop.watches)

    def wait_for_watches(self, count: int = 1, *, seconds: float = 30.0) -> None:
        """Returns when exactly so many watches are served; TimeoutError if they do not come."""
        with self._loop.changed:
            if not self._loop.changed.wait_for(lambda: self.open_watches == count, seconds):
                raise TimeoutError(f"{self.open_watches} watches are open, not {count}")

    def document(self, path: str, accept: str = "application/json") -> bytes:
        """A document of discovery, such as /api/v1, without HTTP: no fault, no count."""
        request = ApiRequest.of("GET", path, {"accept": accept}, b"")
        aggregated = self._api.aggregated_discovery
        return b"".join(documents.answer(self._catalogue, request, aggregated=aggregated).pieces)

    # ---- its state -----------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """The resourceVersion of now."""
        self._store.sync()
        return str(self._store.version)

    def create(self, resource: str, obj: Object) -> Object:
        """As POST; a namespace that is not there is created on the way."""
        kind, namespace = self._placed(resource, obj)
        return _copy(self._api.writes.create(kind, namespace, obj))

    def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        """As PUT: a resourceVersion in the object is checked, without one it always wins."""
        kind, namespace = self._placed(resource, obj)
        name = obj["metadata"]["name"]
        stored = self._api.writes.update(kind, namespace, name, obj, subresource=subresource)
        return _copy(stored)

    def delete(self, resource: str, name: str, namespace: str = "", **options: Any) -> Object:
        """As DELETE, with DeleteOptions by name; the object's last state."""
        stored, _ = self._api.writes.delete(self._kind(resource), namespace, name, options)
        return _copy(stored)

    def get(self, resource: str, name: str, namespace: str = "") -> Object:
        """As GET."""
        self._store.sync()
        return _copy(self._api.writes.get(self._kind(resource), namespace, name))

    def list(self, resource: str, namespace: str = "") -> list[Object]:
        """All objects, in the order of a LIST."""
        self._store.sync()
        with self._store.lock:
            found = self._store.table(self._kind(resource).key).within(namespace)
        return [_copy(stored) for stored in found]

    def load(self, resource: str, obj: Object) -> Object:
        """Puts an object as it is, with its own metadata: uid, times, managedFields.

        Its resourceVersion, if it has one, must be ahead of the server's, which is raised to it.
        """
        return _copy(self._api.writes.load(self._kind(resource), obj))

    def unload(self, resource: str, name: str, namespace: str = "", version: str = "") -> bool:
        """Removes an object as it is, without finalizers or grace; whether it was there.

        The version of the deletion must be ahead of the server's, which is raised to it.
        """
        number = int(version) if version else 0
        kind = self._kind(resource)
        return self._api.writes.unload(kind, namespace, name, number) is not None

    def add_kind(self, kind: Kind) -> None:
        """Serves a kind that it does not have yet, without its definition."""
        if self._catalogue.find(kind.group, kind.version, kind.resource) is None:
            self._catalogue.add([kind])

    def compact(self, *, windows: bool = True) -> str:
        """Forgets the past (410), and (`windows`) what watches could resume from.

        The version from which on everything is known.
        """
        return str(self._store.compact(windows=windows))

    def advance(self, version: str | int) -> None:
        """Raises the server's version to this one, as writes of other resources do."""
        self._store.advance(int(version))

    def end_watches(self) -> None:
        """Ends every watch cleanly when it has shown what was written, as its timeout would."""
        self._loop.call(self._end_all)

    def send_bookmarks(self) -> None:
        """Every watch that asked for bookmarks gets one, now."""
        self._loop.call(self._bookmark_all)

    def backup(self) -> Backup:
        """The state of now, for `restore`."""
        return self._store.backup()

    def restore(self, backup: Backup) -> None:
        """Goes back to a past state and its version, as after the restore of an etcd backup.

        Connections are reset, as the servers are restarted for it.
        """
        self._loop.do(self._loop.abort(lambda: self._store.restore(backup)))

    def resource_of(self, obj: Object) -> str:
        """The resource of an object by its apiVersion and kind; KeyError names an unknown one."""
        return self._catalogue.of(obj["apiVersion"], obj["kind"]).key

    def _bookmark_all(self) -> None:
        for watch in self._loop.watches:
            watch.send_bookmark()

    def _end_all(self) -> None:
        for watch in self._loop.watches:
            watch.end()

    def _begin(self, namespace: str) -> None:
        try:
            self.create("namespaces", {"metadata": {"name": namespace}})
        except Failure as failure:
            if failure.code != 409:  # another server was faster
                raise

    def _kind(self, resource: str) -> Kind:
        return self._catalogue.named(resource)

    def _placed(self, resource: str, obj: Object) -> tuple[Kind, str]:
        kind = self._kind(resource)
        if not kind.namespaced:
            return kind, ""
        namespace: str = (obj.get("metadata") or {}).get("namespace") or "default"
        with self._store.lock:
            if self._store.get("namespaces", namespace) is None:
                self.create("namespaces", {"metadata": {"name": namespace}})
        return kind, namespace


def _store(etcd: str, history: int, catalogue: ServedKinds) -> ObjectStore:
    if not etcd:
        return ObjectStore(history=history)
    from shmcache.testing.apiserver.etcd import EtcdObjectStore

    def defined_or_not(obj: Object | None, key: str) -> None:
        if obj is None:
            catalogue.remove(key)
            store.drop(key)
        else:
            catalogue.add(defined(obj))

    store = EtcdObjectStore(etcd, history=history)
    store.defined = defined_or_not
    return store


def _copy(stored: Stored) -> Object:
    copied: Object = orjson.loads(orjson.dumps(stored.obj))
    return copied
