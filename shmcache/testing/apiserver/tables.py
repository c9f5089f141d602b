"""The objects of one resource: what is there, what was, and what happened since when."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict

from shmcache.protocol import failures
from shmcache.testing.apiserver.stored import Stored, StoredChange

PAST_STATES = 8
"""So many past states are kept for the pages of lists that are under way."""


class Table:
    """Not thread-safe: the store's lock is held around every call."""

    def __init__(self, horizon: int, history: int) -> None:
        self.horizon = horizon
        """Changes up to this version are forgotten; a watch from exactly here is still whole."""
        self.changes: list[StoredChange] = []
        self.base = 0
        """How many changes were forgotten: positions count from the very first."""
        self._objects: dict[str, Stored] = {}
        self._keys: list[str] = []
        self._history = history
        self.closed = False
        """Whether the resource is gone: watches end when they have shown the rest."""
        self._past: OrderedDict[int, list[Stored]] = OrderedDict()

    @property
    def end(self) -> int:
        """The position behind the last change."""
        return self.base + len(self.changes)

    def get(self, key: str) -> Stored | None:
        """The object as it is now."""
        return self._objects.get(key)

    def within(self, namespace: str = "") -> list[Stored]:
        """Everything that is there now, in order of keys."""
        first, last = 0, len(self._keys)
        if namespace:
            first = bisect_left(self._keys, f"{namespace}/")
            last = bisect_left(self._keys, f"{namespace}0")
        return [self._objects[key] for key in self._keys[first:last]]

    def apply(self, change: StoredChange) -> None:
        """Makes a change the last one."""
        if change.new is None:
            self._objects.pop(change.key)
            self._keys.pop(bisect_left(self._keys, change.key))
        else:
            if change.key not in self._objects:
                insort(self._keys, change.key)
            self._objects[change.key] = change.new
        self.changes.append(change)
        if len(self.changes) > self._history + self._history // 4:
            self.forget(self.changes[-self._history - 1].version)

    def forget(self, version: int) -> None:
        """Drops what happened up to this version, or before the table was begun again at it."""
        count = bisect_right(self.changes, version, key=_version)
        del self.changes[:count]
        self.base += count
        self.horizon = max(self.horizon, version)

    def position(self, version: int) -> int:
        """Where the changes after this version begin; a Failure (410) where some are forgotten."""
        if version < self.horizon:
            raise failures.too_old(version, self.horizon)
        return self.base + bisect_right(self.changes, version, key=_version)

    def since(self, position: int) -> list[StoredChange] | None:
        """The changes from a position on; None where some of them are forgotten already."""
        if position < self.base:
            return None
        return self.changes[position - self.base :]

    def state(self, version: int) -> list[Stored]:
        """The objects at a version; a Failure (410) of a forgotten one."""
        if version < self.horizon:
            raise failures.expired(failures.LIST_TOO_OLD)
        known = self._past.get(version)
        if known is None:
            known = self._past[version] = self._undone(version)
            if len(self._past) > PAST_STATES:
                self._past.popitem(last=False)
        return known

    def forget_states(self) -> None:
        """Drops the past states: what is older than the horizon cannot be listed any more."""
        self._past.clear()

    def _undone(self, version: int) -> list[Stored]:
        objects = dict(self._objects)
        first = bisect_right(self.changes, version, key=_version)
        for change in reversed(self.changes[first:]):
            if change.old is None:
                objects.pop(change.key)
            else:
                objects[change.key] = change.old
        return [objects[key] for key in sorted(objects)]


def _version(change: StoredChange) -> int:
    return change.version
