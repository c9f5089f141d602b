"""The state of the server: objects of all resources under one counter of versions.

Thread-safe: `lock` is held around changes that belong together; watchers are notified after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from shmcache.protocol import failures
from shmcache.testing.apiserver.stored import Stored, StoredChange
from shmcache.testing.apiserver.tables import Table

Object = dict[str, Any]

HISTORY = 20_000
"""So many changes of each resource are remembered, as long as nothing is compacted."""


class Raced(Exception):
    """Another server of the same state was faster: the request is decided again."""


class ObjectStore:
    """Every write raises `version` by one, and leaves one change behind."""

    def __init__(self, *, history: int = HISTORY) -> None:
        self.lock = threading.RLock()
        self.version = 1
        self.compacted = 0
        """Lists of versions before this one are refused."""
        self._history = history
        self._tables: dict[str, Table] = {}
        self._floor = 0
        self._floors: dict[str, int] = {}
        """Versions up to which the past of tables that are yet to begin is forgotten."""
        self._listeners: list[Callable[[str], None]] = []

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Calls with the resource's key after each change, in the thread that wrote."""
        self._listeners.append(listener)

    def table(self, resource: str) -> Table:
        """Of a resource, begun at the first request."""
        found = self._tables.get(resource)
        if found is None:
            with self.lock:
                floor = max(self._floor, self._floors.get(resource, 0))
                found = self._tables.setdefault(resource, Table(floor, self._history))
        return found

    def get(self, resource: str, key: str) -> Stored | None:
        """An object as it is now."""
        return self.table(resource).get(key)

    def put(self, resource: str, key: str, obj: Object, *, version: int = 0) -> Stored:
        """Writes an object, which is the store's from now on; under the next version, or this one.

        A version may not be one that was there before.
        """
        with self.lock:
            number = version or self.version + 1
            if number <= self.version and version:
                raise ValueError(f"version {version} is past: the store is at {self.version}")
            obj["metadata"]["resourceVersion"] = str(number)
            stored = Stored(key, obj, number)
            self._apply(resource, StoredChange(number, self.get(resource, key), stored))
        return stored

    def remove(self, resource: str, key: str) -> Stored:
        """Deletes an object that is there; its last state, under the version of the deletion."""
        with self.lock:
            change = StoredChange(self.version + 1, self.get(resource, key), None)
            self._apply(resource, change)
        return change.shown("DELETED")

    def _apply(self, resource: str, change: StoredChange) -> None:
        self.version = change.version
        self.table(resource).apply(change)
        self._tell(resource)

    def _tell(self, resource: str) -> None:
        for listener in self._listeners:
            listener(resource)

    def open(self) -> None:
        """Begins to follow the state, where it is kept elsewhere."""

    def close(self) -> None:
        """The end of open()."""

    def sync(self) -> None:
        """Waits for what other servers of the same state have written."""

    def listing(self, resource: str, version: int = 0) -> tuple[int, list[Stored]]:
        """A version and all that was there at it, by keys; without one, what is there now.

        A Failure (410) where the version is forgotten.
        """
        with self.lock:
            if not version or version == self.version:
                return self.version, self.table(resource).within()
            if version < self.compacted:
                raise failures.expired(failures.LIST_TOO_OLD)
            return version, self.table(resource).state(version)

    def advance(self, version: int) -> None:
        """Raises the version, as writes of what nobody looks at do."""
        with self.lock:
            if version < self.version:
                raise ValueError(f"version {version} is past: the store is at {self.version}")
            self.version = version
            for listener in self._listeners:
                listener("")

    def compact(self, *, windows: bool = True) -> int:
        """Forgets the past: lists of old versions, and (`windows`) old watches, get 410."""
        with self.lock:
            self.compacted = self.version
            if windows:
                self._floor = self.version
            for table in self._tables.values():
                table.forget_states()
                if windows:
                    table.forget(self.version)
            return self.version

    def drop(self, resource: str) -> None:
        """Forgets a resource and its past altogether."""
        with self.lock:
            dropped = self._tables.pop(resource, None)
            self._floors[resource] = self.version
            if dropped is not None:
                dropped.closed = True
            for listener in self._listeners:
                listener(resource)

    def backup(self) -> Backup:
        """The state that `restore` brings back."""
        with self.lock:
            objects = {name: table.within() for name, table in self._tables.items()}
            return Backup(self.version, objects)

    def restore(self, backup: Backup) -> None:
        """Goes back in time, as an etcd restored from a backup does: versions come again."""
        with self.lock:
            self.version = self.compacted = self._floor = backup.version
            self._floors.clear()
            for table in self._tables.values():
                table.closed = True
            self._tables = {}
            for name, objects in backup.objects.items():
                table = self.table(name)
                for stored in objects:
                    table.apply(StoredChange(stored.version, None, stored))
                table.forget(backup.version)


class Backup:
    """A past state of a store."""

    def __init__(self, version: int, objects: dict[str, list[Stored]]) -> None:
        self.version = version
        self.objects = objects
