"""States of a portable cache: immutable (PORT1), one after the other, and listeners to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shmcache import states
from shmcache.callables import imported
from shmcache.errors import BusyError, SegmentNotFound
from shmcache.handlers.tombstone import Tombstone
from shmcache.portable.objects import View
from shmcache.protocol.selectors.fields import steps_of
from shmcache.reader.selectors import texts_at
from shmcache.settings import IndexSpec

Objects = Mapping[str, View]

WINDOW = 65_536
"""As `ring_slots` of a cache in shared memory."""


class PrivateChange:
    """One change of one object."""

    __slots__ = ("initial", "key", "new", "old", "unknown")

    def __init__(self, key: str, old: View | Tombstone | None, new: View | None) -> None:
        self.key, self.old, self.new = key, old, new
        self.initial = self.unknown = False


class PrivateTable:
    """A resource in one state. Orders and indices are made when they are needed first."""

    def __init__(
        self, name: str, specs: Mapping[str, IndexSpec], objects: Objects | None = None
    ) -> None:
        self.name = name
        self.specs = specs
        self.objects: Objects = objects if objects is not None else {}
        self.generation = 0  # the one that published it
        self.version: str | None = None
        self.state = states.ABSENT
        self.reason = ""
        self.since = time.monotonic()
        self.contact: float | None = None
        self._keys: list[str] | None = None
        self._maps: dict[str, dict[str, list[str]]] = {}

    @property
    def synced(self) -> bool:
        """Whether a first list is stored."""
        return self.state == states.SYNCED or (
            self.state != states.ABSENT and self.version is not None
        )

    @property
    def has_content(self) -> bool:
        """Whether it shows the whole content of some moment."""
        return self.synced or self.version is not None

    def next(self, objects: Objects | None = None) -> PrivateTable:
        """The same resource in the next state."""
        made = PrivateTable(self.name, self.specs, self.objects if objects is None else objects)
        made.version, made.state, made.reason = self.version, self.state, self.reason
        made.since, made.contact = self.since, self.contact
        return made

    def order(self) -> list[str]:
        """All keys, in order."""
        if self._keys is None:
            self._keys = sorted(self.objects, key=str.encode)
        return self._keys

    def map_of(self, index: str) -> dict[str, list[str]]:
        """The keys of each value of an index, in order. KeyError names the indices."""
        found = self._maps.get(index)
        if found is None:
            if index not in self.specs:
                known = f", only {', '.join(self.specs)}" if self.specs else ""
                raise KeyError(
                    f"{self.name}: no index {index!r}{known}; "
                    f"the reflector adds it with `--index {self.name}:{index}=PATH`"
                )
            values = values_of(self.specs[index])
            found = {}
            for key in self.order():
                for value in dict.fromkeys(values(self.objects[key])):
                    found.setdefault(value, []).append(key)
            self._maps[index] = found
        return found


def values_of(spec: IndexSpec) -> Callable[[View], Iterable[str]]:
    """The function of an index: of a path, of "module:name", or itself."""
    if isinstance(spec, str) and ":" not in spec:
        steps = steps_of(spec)
        return lambda obj: texts_at(obj, steps)
    function: Any = spec
    if isinstance(spec, str):
        function = imported(spec)

    def emitted(obj: View) -> Iterable[str]:
        found = function(obj)
        return [found] if isinstance(found, str) else (found or ())

    return emitted


class PrivateState:
    """All resources at one moment."""

    __slots__ = ("generation", "tables")

    def __init__(self, generation: int, tables: Mapping[str, PrivateTable]) -> None:
        self.generation = generation
        self.tables = tables


Listener = Callable[[str, list[PrivateChange]], None]


class PrivateStore:
    """The cache of one name in this process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.changed = threading.Condition(threading.RLock())
        self.state = PrivateState(0, {})
        self.listeners: list[Listener] = []
        self.window = WINDOW
        """How many changes wait for a slow consumer (WINDOW2)."""

    def publish(
        self, tables: Mapping[str, PrivateTable], news: Mapping[str, list[PrivateChange]]
    ) -> None:
        """The next state; listeners learn of its changes before anybody publishes again."""
        with self.changed:
            merged = {**self.state.tables, **tables}
            generation = self.state.generation + 1
            for table in tables.values():
                table.generation = generation
            self.state = PrivateState(generation, merged)
            for resource in tables:
                for listener in tuple(self.listeners):
                    listener(resource, news.get(resource, []))
            self.changed.notify_all()

    def wait(self, fact: Callable[[], bool], timeout: float | None) -> bool:
        """Sleeps until a fact about the state holds; False if `timeout` seconds passed."""
        with self.changed:
            return self.changed.wait_for(fact, timeout)


_stores: dict[str, PrivateStore] = {}
_lock = threading.Condition()


def open_store(name: str) -> PrivateStore:
    """A new store. BusyError if this process has one of the name already."""
    with _lock:
        if name in _stores:
            raise BusyError(f"cache {name!r}: another PrivateWriter of this process has it")
        found = _stores[name] = PrivateStore(name)
        _lock.notify_all()
        return found


def close_store(store: PrivateStore) -> None:
    """Nobody finds it any more; readers keep its last state."""
    with _lock:
        if _stores.get(store.name) is store:
            del _stores[store.name]


def find_store(name: str, seconds: float) -> PrivateStore:
    """The store of a name, when it is there. SegmentNotFound after `seconds`."""
    with _lock:
        if not _lock.wait_for(lambda: name in _stores, seconds):
            raise SegmentNotFound(
                f"no cache named {name!r} in this process: on this system a cache is private, so "
                "make it here with shmcache.Writer, testing.Cluster or shmcache.portable.reflect()"
            )
        return _stores[name]
