"""Reads that a cache can answer as its API server would; None for the others.

    reads = CacheReads("web")
    pods = reads.resource("", "v1", "pods", namespace="prod", labels="app=web")
    if pods is not None:
        pods.list("prod", labels="app=web")

The adapters of client libraries ask here first, and leave to the API server what is None: another
resource, a namespace or selection that is not cached whole, objects of another form (metadata only,
transformed), selectors that the server may refuse, data that is too old, and no cache at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.errors import ShmCacheError
from shmcache.integrations import attached
from shmcache.protocol import accept
from shmcache.protocol.failures import Failure
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.serve.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache.reader.resources import CachedResource
    from shmcache.serve.catalogue import Served

MAX_AGE = 120.0


class CacheReads:
    """The resources of a cache, for questions in the terms of the API."""

    def __init__(self, name: str | None = None, *, max_age: float = MAX_AGE) -> None:
        """`name`: as in attached(). `max_age`: seconds; older data is left to the API server."""
        self._name = name
        self._max_age = max_age
        self._known: Catalogue | None = None

    def kinds(self) -> Iterator[Served]:
        """The resources that the cache has now, with their names in the API."""
        catalogue = self._catalogue()
        try:
            return iter(catalogue.all() if catalogue is not None else ())
        except ShmCacheError:  # it was closed, or replaced, just now
            return iter(())

    def resource(
        self,
        group: str,
        version: str,
        resource: str,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> CachedResource | None:
        """The resource, if it has every object of this selection. `namespace`: "" for all."""
        catalogue = self._catalogue()
        if catalogue is None:
            return None
        try:
            served = catalogue.find(group, version, resource)
            if served is None or served.scope.transform:
                return None
            kind = served.kind
            served.scope.check(kind, namespace, shape=accept.FULL)
            served.scope.check_shard(kind, None)
            served.scope.check_selectors(
                kind,
                LabelSelector.parse(labels) if labels else None,
                FieldSelector.parse(fields, kind.selectable, kind.made) if fields else None,
            )
            found = catalogue.cache[served.name]
            fresh = found.synced and found.too_old(self._max_age) is None
        except (Failure, KeyError, ShmCacheError):
            return None
        return found if fresh else None

    def _catalogue(self) -> Catalogue | None:
        try:
            cache = attached(self._name, wait=0)
        except ShmCacheError:
            return None
        found = self._known
        if found is None or found.cache is not cache:
            found = self._known = Catalogue(cache)
        return found
