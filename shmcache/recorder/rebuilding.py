"""A past state as a cache of its own: all that reads a cache reads a record.

REBUILD1  The cache is private: a directory that only we may open, in memory where possible,
removed at the end. No command finds it by a name.
REBUILD2  It shows the recorded objects exactly, with the settings, states and versions of their
resources; what cannot be made is an error, never left out.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from shmcache._hot import View
from shmcache.errors import ShmCacheError
from shmcache.protocol.items import Item
from shmcache.reader.cache import Cache, attach
from shmcache.reader.past import PastResource
from shmcache.reader.snapshot import Snapshot
from shmcache.recorder.contents import Contents, RecordedObject
from shmcache.settings import Resource
from shmcache.writer.writer import Writer

_MEMORY = "/dev/shm"  # noqa: S108 - where shared memory is, if it may be used
_BATCH = 512


class RebuiltCache:
    """A cache that shows states of a record, one after the other. A context manager."""

    def __init__(self, name: str = "") -> None:
        """`name`: of a cache that others may attach to, and that is private no more."""
        self._stack = ExitStack()
        self._name = name
        self._states: dict[str, dict[str, Any]] = {}
        self._writer: Writer | None = None
        self._known: set[str] = set()
        self._cache: Cache | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The cache is gone. Idempotent."""
        self._stack.close()

    @property
    def cache(self) -> Cache:
        """The cache, once show() has been called."""
        if self._cache is None:
            raise ShmCacheError("no state has been shown yet")
        return self._cache

    def show(self, contents: Contents) -> None:
        """Makes the cache equal to this state; `contents.touched` is what it looks at."""
        if self._writer is None:
            self._open()
        writer, cache = self._writer, self._cache
        assert writer is not None
        assert cache is not None
        for about in contents.about.values():
            if about["name"] not in self._known:
                writer.add_resource(declared(about))
                self._known.add(about["name"])
        changed: dict[int, list[bytes]] = {}
        for number, key in contents.touched:
            changed.setdefault(number, []).append(key)
        for number, keys in changed.items():
            Filling(writer, cache, contents, number).fill(keys)
        for number, state in contents.states.items():
            name = contents.about[number]["name"]
            if self._states.get(name) != state:
                self._states[name] = state
                version, reason = state["version"], state["reason"]
                writer.set_state(name, state["state"], version=version, reason=reason)
        contents.settle()

    @contextmanager
    def between(self, then: Contents, now: Contents) -> Iterator[StateBetween]:
        """Two states: that of `now`, and what was other in `then`."""
        self.show(then)
        with self.cache.snapshot() as before:
            now.touched |= set(then.objects)
            self.show(now)
            with self.cache.snapshot() as latest:
                yield StateBetween(before, latest)

    def _open(self) -> None:
        name = self._name
        if not name:
            room = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else None
            directory = tempfile.TemporaryDirectory(prefix="shmcache-past-", dir=room)
            name = os.path.join(self._stack.enter_context(directory), "")
        self._writer = Writer(name, [], fresh=True)
        self._stack.callback(self._writer.close)
        self._cache = attach(name)
        self._stack.callback(self._cache.close)


class StateBetween:
    """An earlier state, by its difference to a later one."""

    def __init__(self, before: Snapshot, latest: Snapshot) -> None:
        self.latest = latest
        self._before = before

    def __getitem__(self, resource: str) -> PastResource:
        """The resource as it was. KeyError."""
        if resource not in self._before:  # it came later
            return PastResource(self.latest[resource], dict.fromkeys(self.latest[resource].keys()))
        found = self.latest.diff(self._before, resource)
        changed: dict[str, View | None] = {key: None for key, _ in found.added}
        changed |= {key: old for key, old, _ in found.modified}
        changed |= dict(found.deleted)
        return PastResource(self.latest[resource], changed)


def declared(about: dict[str, Any]) -> Resource:
    """A recorded resource, for a writer."""
    settings = about["settings"] or {}
    return Resource(about["name"], keep_managed_fields=True, settings=settings)


class Filling:
    """Stores recorded objects of one resource in a cache."""

    def __init__(self, writer: Writer, cache: Cache, contents: Contents, number: int) -> None:
        self._writer = writer
        self._cache = cache
        self._objects = contents.objects
        self._number = number
        about = contents.about.get(number)
        self._name = about["name"] if about is not None else ""

    def fill(self, keys: Iterable[bytes]) -> None:
        """Makes these keys as they are in the record."""
        if not self._name:
            return  # of a resource that the record no longer has
        whole: list[Item] = []
        patched: list[tuple[str, RecordedObject]] = []
        for text in keys:
            key, found = json.loads(text), self._objects.get((self._number, text))
            if found is None:
                self._writer.delete(self._name, key)
                continue
            if found.text:
                version = json.loads(found.version) if found.version else None
                whole.append(Item("ADDED", key, version, None, None, None, found.text))
            if found.chain is not None:
                patched.append((key, found))
        self._store(whole)
        self._patch(patched)

    def _store(self, items: list[Item]) -> None:
        before = self._writer.refused(self._name)
        for at in range(0, len(items), _BATCH):
            self._writer.apply_items(self._name, items[at : at + _BATCH])
        if self._writer.refused(self._name) != before:
            raise ShmCacheError(f"{self._name}: a recorded object cannot be stored again")

    def _patch(self, objects: list[tuple[str, RecordedObject]]) -> None:
        """By the core's own decoded form, which has no limit of the json module."""
        made = []
        for key, found in objects:
            try:
                obj = found.patched(self._cache[self._name][key].to_dict())
            except ValueError as error:
                raise ShmCacheError(f"{self._name} {key}: {error}") from error
            made.append((key, obj, json.loads(found.version) if found.version else None))
        for at in range(0, len(made), _BATCH):
            self._writer.put_many(self._name, made[at : at + _BATCH])
