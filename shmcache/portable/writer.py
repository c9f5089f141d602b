"""The writer of a portable cache: the same calls as those of the PrivateWriter in shared memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from shmcache.errors import ClosedError
from shmcache.portable.objects import View, view_of
from shmcache.portable.store import (
    WINDOW,
    PrivateChange,
    PrivateStore,
    PrivateTable,
    close_store,
    open_store,
)
from shmcache.settings import Resource


class PrivateWriter:
    """Keeps one cache of this process. A context manager."""

    def __init__(self, name: str, resources: Iterable[Resource | str], **settings: Any) -> None:
        """Of the settings of memory, `ring_slots` bounds the changes that wait for a handler."""
        self._store: PrivateStore = open_store(name)
        self._store.window = int(settings.get("ring_slots", WINDOW))
        self._batched: dict[str, dict[str, View | None]] | None = None
        self._closed = False
        for one in resources:
            self.add_resource(one)

    @property
    def name(self) -> str:
        """The name of the cache."""
        return self._store.name

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def add_resource(self, resource: Resource | str) -> None:
        """Declares a resource; one that exists keeps its content."""
        declared = Resource(resource) if isinstance(resource, str) else resource
        with self._store.changed:
            old = self._store.state.tables.get(declared.name)
            objects = old.objects if old is not None else {}
            table = PrivateTable(declared.name, dict(declared.indices), objects)
            if old is not None:
                table.version, table.state, table.contact = old.version, old.state, old.contact
            self._store.publish({declared.name: table}, {})

    # ---- content -------------------------------------------------------------------------------

    def put(self, resource: str, key: str, obj: Any, version: str | None = None) -> bool:
        """Stores one object; whether that changed anything."""
        return bool(self._apply(resource, {key: view_of(obj)}, version))

    def put_many(self, resource: str, items: Iterable[tuple[str, Any, str | None]]) -> int:
        """Stores objects in one generation; how many changed anything."""
        return self._apply(resource, {key: view_of(obj) for key, obj, _ in items})

    def apply(self, resource: str, objects: Iterable[Mapping[str, Any]]) -> int:
        """Stores Kubernetes objects under their own keys, in one generation."""
        return self._apply(resource, {key_of(obj): view_of(obj) for obj in objects})

    def delete(
        self, resource: str, key: str, version: str | None = None, *, unknown: bool = False
    ) -> bool:
        """Removes a key; whether it existed. `unknown`: its last state was not seen."""
        return bool(self._apply(resource, {key: None}, version, unknown=unknown))

    def replace(
        self, resource: str, objects: Iterable[Mapping[str, Any]], version: str | None = None
    ) -> None:
        """Makes the resource hold exactly these objects, in one generation."""
        wanted: dict[str, View | None] = {key_of(obj): view_of(obj) for obj in objects}
        with self._store.changed:
            gone = dict.fromkeys(set(self._table(resource).objects) - set(wanted))
            table, changes = self._next(resource, {**gone, **wanted})
            for change in changes:
                change.unknown = change.new is None
            if version is not None:
                table.version = version
            self._store.publish({resource: table}, {resource: changes})

    @contextmanager
    def batch(self) -> Iterator[Self]:
        """Everything inside becomes visible together, or not at all if it raises."""
        self._batched = {}
        try:
            yield self
            batched, self._batched = self._batched, None
            tables, news = {}, {}
            with self._store.changed:
                for resource, changes in batched.items():
                    tables[resource], news[resource] = self._next(resource, changes)
                self._store.publish(tables, news)
        finally:
            self._batched = None

    def _apply(
        self,
        resource: str,
        wanted: Mapping[str, View | None],
        version: str | None = None,
        *,
        unknown: bool = False,
    ) -> int:
        if self._batched is not None:
            self._table(resource)
            self._batched.setdefault(resource, {}).update(wanted)
            return len(wanted)
        with self._store.changed:
            table, changes = self._next(resource, wanted)
            for change in changes:
                change.unknown = unknown and change.new is None
            if version is not None:
                table.version = version
            if changes or version is not None:
                self._store.publish({resource: table}, {resource: changes})
            return len(changes)

    def _next(
        self, resource: str, wanted: Mapping[str, View | None]
    ) -> tuple[PrivateTable, list[PrivateChange]]:
        old = self._table(resource)
        objects, changes = dict(old.objects), []
        for key, new in wanted.items():
            before = objects.get(key)
            if before == new:
                continue
            changes.append(PrivateChange(key, before, new))
            if new is None:
                del objects[key]
            else:
                objects[key] = new
        return old.next(objects), changes

    def _table(self, resource: str) -> PrivateTable:
        if self._closed:
            raise ClosedError(f"the writer of {self.name} is closed")
        try:
            return self._store.state.tables[resource]
        except KeyError:
            raise KeyError(f"cache {self.name!r} has no resource {resource!r}") from None

    # ---- state ---------------------------------------------------------------------------------

    def set_state(
        self, resource: str, state: int, version: str | None = None, reason: str = ""
    ) -> None:
        """Publishes the resource's state, and its version if one is given."""
        with self._store.changed:
            table = self._table(resource).next()
            if table.state != state:
                table.state, table.since = state, time.monotonic()
            table.reason, table.version = reason, version or table.version
            self._store.publish({resource: table}, {})

    def set_version(self, resource: str, version: str) -> None:
        """Publishes the resource's resourceVersion."""
        self.set_state(resource, self._table(resource).state, version)

    def note(self, resource: str, **increments: int) -> None:
        """The time of the last contact with the server counts; other counts are not kept."""
        if increments.get("contact_ns"):
            self._table(resource).contact = increments["contact_ns"] / 1e9

    def check(self) -> None:
        """Nothing can be broken here."""

    def close(self) -> None:
        """Ends the cache; who reads it keeps its last state. Idempotent."""
        if not self._closed:
            self._closed = True
            close_store(self._store)

    leave = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def key_of(obj: Mapping[str, Any]) -> str:
    """namespace/name, or the name."""
    metadata = obj["metadata"]
    space = metadata.get("namespace")
    return f"{space}/{metadata['name']}" if space else str(metadata["name"])
