"""JupyterHub's KubeSpawner with pods and events from the cache of the machine.

    c.JupyterHub.spawner_class = "shmcache.integrations.kubespawner.CachedKubeSpawner"
    c.CachedKubeSpawner.shmcache_name = "hub"          # shmcache run pods events --cache hub

KubeSpawner's own reflectors list again every 30 seconds and decode every event in the hub's
process. Here they read the cache, which the reflector's process keeps equal to the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kubespawner import KubeSpawner
from kubespawner.reflector import ResourceReflector
from traitlets import Float, Unicode

from shmcache.errors import ShmCacheError
from shmcache.integrations import attached

if TYPE_CHECKING:
    from shmcache.reader.cache import Cache
    from shmcache.reader.resources import CachedResource

MAX_AGE = 120.0


class SelectedObjects(Mapping[str, dict[str, Any]]):
    """The objects of a selection by key, as dicts: copies, which the hub may keep and change."""

    def __init__(
        self, resource: CachedResource, namespace: str | None, labels: str, fields: str, age: float
    ) -> None:
        self._resource = resource
        self._how: dict[str, Any] = {
            "namespace": namespace,
            "labels": labels or None,
            "fields": fields or None,
        }
        self._age = age

    def __getitem__(self, key: str) -> dict[str, Any]:
        namespace, _, name = key.partition("/")
        if self._how["namespace"] not in (None, namespace):
            raise KeyError(key)
        fields = f"metadata.name={name},{self._how['fields'] or ''}".rstrip(",")
        found = self._list(namespace=namespace, fields=fields) if name else {}
        return found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._list())

    def __len__(self) -> int:
        return len(self._list())

    def values(self) -> Any:
        """All objects of one state."""
        return self._list().values()

    def items(self) -> Any:
        """All keys and objects of one state."""
        return self._list().items()

    def _list(self, **other: Any) -> dict[str, dict[str, Any]]:
        found = self._resource.list(**{**self._how, **other}, max_age=self._age)
        objects = (view.to_dict() for view in found)
        return {f"{obj['metadata']['namespace']}/{obj['metadata']['name']}": obj for obj in objects}


def cached(reflector: type[ResourceReflector], name: str, max_age: float) -> type:
    """A class of reflectors that reads a cache, and else is this class."""

    class CachedReflector(reflector):
        """Watches nothing: `resources` shows the cache."""

        _cache: Cache

        @property
        def resources(self) -> SelectedObjects:
            """The selected objects by namespace/name; CacheTooOld where they are too old."""
            namespace = None if self.omit_namespace else self.namespace
            resource = self._cache[self.kind]
            return SelectedObjects(
                resource, namespace, self.label_selector, self.field_selector, max_age
            )

        async def start(self) -> None:
            """Returns when the first list of the resource is stored."""
            try:
                await asyncio.to_thread(self._attach)
            except ShmCacheError as error:
                self.first_load_future.set_exception(error)
                raise
            self.first_load_future.set_result(None)

        async def stop(self) -> None:
            """Leaves the cache to the other reflectors of this process."""

        def _attach(self) -> None:
            self._cache = attached(name)
            if not self._cache[self.kind].wait_synced(0.001):
                raise ShmCacheError(f"cache {name!r} has not stored the first list of {self.kind}")

    return CachedReflector


class CachedKubeSpawner(KubeSpawner):
    """A KubeSpawner whose reflectors read the cache; all else is KubeSpawner's."""

    shmcache_name = Unicode(
        "shmcache", config=True, help="The cache, of pods and (with events_enabled) events."
    )
    shmcache_max_age = Float(
        MAX_AGE, config=True, help="Older data is an error, as a failed watch would be; seconds."
    )

    async def _start_reflector(
        self, kind: str, reflector_class: type[ResourceReflector], *args: Any, **how: Any
    ) -> Any:
        reads = cached(reflector_class, self.shmcache_name, self.shmcache_max_age)
        return await super()._start_reflector(kind, reads, *args, **how)
