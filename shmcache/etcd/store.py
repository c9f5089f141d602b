"""Store: objects under one prefix of etcd, written there and read from the cache where it helps.

store = Store("http://127.0.0.1:2379", "/registry/example.com/widgets/", cache["widgets"])
made = store.create("ns/a", {"apiVersion": "example.com/v1", "kind": "Widget", ...})
store.wait_for(made)                         # this process, or any other, reads it from now on
store.guaranteed_update("ns/a", bump)        # begins from the cache

LEASE1  keys with the same time to live, written within a part of it, share a lease: a thousand
keys are not a thousand leases. A key lives at least as long as it was to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from shmcache.errors import SourceError
from shmcache.etcd.errors import EtcdError, error_of
from shmcache.etcd.lease import Lease
from shmcache.etcd.operations import Object, Operations, Steps, StorePage, StoreRequest, Update
from shmcache.lease.settings import boot_seconds
from shmcache.source.base import SourceFailed
from shmcache.source.etcd import messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.connection import EtcdConnection
from shmcache.source.etcd.history import ClusterHistory
from shmcache.source.etcd.keys import KeyPattern
from shmcache.source.etcd.values import FORMS

if TYPE_CHECKING:
    from shmcache.reader.resources import CachedResource

TIMEOUT = 10.0
LEASE_KEYS = 1000
LEASE_SHARE, LEASE_SHARE_MAX = 0.05, 60.0
"""A lease is shared by keys for this part of its time, and at most so many seconds."""


class StoreBase:
    """Store and AsyncStore without their calls, which block or do not."""

    def __init__(
        self,
        etcd: str | EtcdAccess | EtcdConnection,
        keys: str,
        cached: CachedResource | None = None,
        *,
        value: str = "object",
        timeout: float = TIMEOUT,
    ) -> None:
        """`etcd`: endpoints, or their access; `cached`: the resource of the same keys."""
        if value not in FORMS:
            raise SourceError(f"value must be one of {', '.join(FORMS)}, not {value!r}")
        if isinstance(etcd, EtcdConnection):
            self.connection, self._owns = etcd, False
        else:
            access = EtcdAccess.of(etcd) if isinstance(etcd, str) else etcd
            self.connection, self._owns = EtcdConnection(access), True
        self._cached_resource = cached
        self._keys = keys
        self._value = value
        self._timeout = timeout
        self._operations = Operations(KeyPattern(keys), value, self._from_cache)
        self._shared: dict[int, tuple[int, float, int]] = {}  # by ttl: lease, until, keys
        self._lock = threading.Lock()

    def _from_cache(self, key: str) -> tuple[Object, int] | None:
        """The cached object, if it is whole (STORE4), and the term of its history (STORE5)."""
        resource = self._cached_resource
        if resource is None or not self._is_whole(resource):
            return None
        history = ClusterHistory(resource.record()["marks"])
        if not history.term or history.cluster != self.connection.cluster:
            return None
        if history.term > self.connection.term:
            return None
        view = resource.get(key)
        if view is None:
            return None
        found: Object = view.to_dict()
        if "apiVersion" in found and not self._settings(resource).get("managed_fields"):
            return None
        return (found, history.term) if "resourceVersion" in found.get("metadata", {}) else None

    def _is_whole(self, resource: CachedResource) -> bool:
        settings = self._settings(resource)
        return (
            settings.get("keys") == self._keys
            and settings.get("value") == self._value
            and not settings.get("transform")
        )

    @staticmethod
    def _settings(resource: CachedResource) -> dict[str, Any]:
        return resource.record()["settings"] or {}

    def _shared_lease(self, ttl: int) -> int:
        """A lease that outlives a key with this time to live; 0: grant one."""
        with self._lock:
            lease, until, keys = self._shared.get(ttl, (0, 0.0, 0))
            if not lease or time.monotonic() >= until or keys >= LEASE_KEYS:
                return 0
            self._shared[ttl] = lease, until, keys + 1
            return lease

    def _grant(self, ttl: int) -> tuple[StoreRequest, float]:
        """The request for a lease to share, and until when it may be shared."""
        share = min(LEASE_SHARE * ttl, LEASE_SHARE_MAX)
        request = messages.LeaseGrantRequest(TTL=ttl + int(share) + 1)
        return StoreRequest(messages.GRANT, request, "lease"), time.monotonic() + share

    def _granted(self, ttl: int, lease: int, until: float) -> int:
        with self._lock:
            self._shared[ttl] = lease, until, 1
        return lease

    def wait_for(self, written: Object | str, timeout: float | None = None) -> bool:
        """Sleeps until the cache shows a write: the object that was returned, or its version.

        In any process that has the cache. False after `timeout` seconds. EtcdError without a cache.
        """
        if self._cached_resource is None:
            raise EtcdError("this store has no cache to wait for: pass cache[name] to it")
        version = written if isinstance(written, str) else written["metadata"]["resourceVersion"]
        return self._cached_resource.wait_for(version, timeout)

    def _end(self) -> None:
        if self._owns:
            self.connection.close()


class Store(StoreBase):
    """Objects under one prefix. Thread-safe; usable as a context manager; make it after a fork."""

    def _run(self, steps: Steps) -> Any:
        try:
            request = next(steps)
            while True:
                request = steps.send(self._call(request))
        except StopIteration as ended:
            return ended.value

    def _call(self, request: StoreRequest) -> Any:
        method, message, what, writes = request
        try:
            return self.connection.call(method, message, what, timeout=self._timeout, writes=writes)
        except SourceFailed as failed:
            raise error_of(failed, writes=writes) from failed

    def get(self, key: str) -> Object | None:
        """The object in etcd, by a consistent read; None if it is missing."""
        found: Object | None = self._run(self._operations.get(key))
        return found

    def create(self, key: str, obj: Object, *, ttl: int = 0, lease: Lease | None = None) -> Object:
        """Stores a new object, and returns it as stored. KeyExists."""
        number = self._lease(ttl, lease)
        made: Object = self._run(self._operations.create(key, obj, number))
        return made

    def delete(self, key: str, *, uid: str = "", version: str = "") -> Object:
        """Deletes an object, if its uid and version are these; its last state.

        KeyMissing, KeyChanged.
        """
        last: Object = self._run(self._operations.delete(key, uid, version))
        return last

    def guaranteed_update(
        self,
        key: str,
        function: Update,
        *,
        uid: str = "",
        version: str = "",
        create: bool = False,
        ttl: int = 0,
        lease: Lease | None = None,
    ) -> Object | None:
        """Stores what the function makes of the object, however often others change it meanwhile.

        The function may be called several times, first with the object of the cache; it must not
        have effects of its own. It returns None to leave the object. `create`: a missing object is
        made; the function receives None. KeyMissing, KeyChanged.
        """
        number = self._lease(ttl, lease)
        steps = self._operations.update(
            key, function, uid=uid, version=version, lease=number, missing=create
        )
        made: Object | None = self._run(steps)
        return made

    def page(self, limit: int = 0, continue_token: str = "", *, version: str = "") -> StorePage:
        """A page of a list, at one revision for all pages. RevisionGone."""
        revision = int(version) if version else 0
        found: StorePage = self._run(self._operations.page(limit, continue_token, revision))
        return found

    def list(self, *, limit: int = 500, version: str = "") -> Iterator[Object]:
        """All objects, at one revision."""
        token = ""
        while True:
            page = self.page(limit, token, version=version)
            yield from page.items
            token = page.continue_token
            if not token:
                return

    def count(self) -> int:
        """How many keys there are."""
        return int(self._run(self._operations.count()))

    def lease(self, ttl: int) -> Lease:
        """A lease that is kept alive until it is closed, or this process dies."""
        request = StoreRequest(messages.GRANT, messages.LeaseGrantRequest(TTL=ttl), "lease")
        began = boot_seconds()
        answer = self._call(request)
        return Lease(self.connection, answer.ID, answer.TTL, began + answer.TTL)

    def _lease(self, ttl: int, lease: Lease | None) -> int:
        if lease is not None:
            return lease.number
        if not ttl:
            return 0
        found = self._shared_lease(ttl)
        if found:
            return found
        request, until = self._grant(ttl)
        return self._granted(ttl, self._call(request).ID, until)

    def close(self) -> None:
        """Ends the connection, unless it was passed in."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
