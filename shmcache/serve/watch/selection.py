"""The selection of a watch, and the watches that an event is for.

Selections that are equal are one object. An event is checked only against those that may want it:
by namespace and name, and by the one value that a field must have (R-AS-14).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from shmcache.protocol import watching
from shmcache.protocol.selectors import fields
from shmcache.protocol.selectors.labels import EQUALS
from shmcache.protocol.selectors.shards import ShardSelector
from shmcache.reader.selectors import FieldSelector, LabelSelector, texts_at

NAME = "metadata.name"
NAMESPACE = "metadata.namespace"
NO_LABELS = LabelSelector(())
NO_FIELDS = FieldSelector(())


class WatchSelection(NamedTuple):
    """Namespace and selectors; an empty namespace or name is every one."""

    namespace: str = ""
    name: str = ""
    labels: LabelSelector = NO_LABELS
    fields: FieldSelector = NO_FIELDS
    shard: ShardSelector | None = None

    @property
    def selects(self) -> bool:
        """Whether the selection depends on the object itself."""
        return bool(self.labels or self.fields or self.shard)

    @property
    def trigger(self) -> tuple[str, str] | None:
        """A path and the one value that it must have, if the selection requires one."""
        for term in self.fields.asked:
            value = term.operator == EQUALS and term.values[0]
            if value and term.key not in {NAME, NAMESPACE}:
                return term.key, value
        return None

    def matches(self, obj: Any) -> bool:
        """Whether it matches an object of this namespace and name; None never matches."""
        if obj is None:
            return False
        if self.shard is not None and not self.shard.matches(obj):
            return False
        return not self.selects or (self.labels.matches(obj) and self.fields.matches(obj))

    def covers(self, namespace: str, name: str) -> bool:
        """Whether the selection covers this namespace and name."""
        return self.namespace in {"", namespace} and self.name in {"", name}

    def event(self, old: Any, new: Any) -> str | None:
        """The type of event that it receives for a change, or None (R-AS-12)."""
        return watching.transition(
            deleted=new is None, matched=self.matches(old), matches=self.matches(new)
        )


def selection_of(
    namespace: str,
    labels: LabelSelector | None,
    fields: FieldSelector | None,
    shard: ShardSelector | None = None,
) -> WatchSelection:
    """The selection of a request."""
    wanted = fields or NO_FIELDS
    inside = namespace or wanted.exact(NAMESPACE) or ""
    return WatchSelection(inside, wanted.exact(NAME) or "", labels or NO_LABELS, wanted, shard)


class _Bucket:
    """The selections of one namespace and name."""

    __slots__ = ("plain", "triggered")

    def __init__(self) -> None:
        self.plain: dict[WatchSelection, None] = {}
        self.triggered: dict[str, dict[str, dict[WatchSelection, None]]] = {}

    def members(self, selection: WatchSelection) -> dict[WatchSelection, None]:
        trigger = selection.trigger
        if trigger is None:
            return self.plain
        path, value = trigger
        return self.triggered.setdefault(path, {}).setdefault(value, {})

    def wanting(self, old: Any, new: Any) -> Iterator[WatchSelection]:
        yield from self.plain
        for path, values in self.triggered.items():
            steps = fields.steps_of(path)
            found = {
                text
                for obj in (old, new)
                if obj is not None
                for text in texts_at(obj, steps)
                if text in values
            }
            for text in found:
                yield from values[text]

    def drop(self, selection: WatchSelection) -> None:
        trigger = selection.trigger
        if trigger is None:
            self.plain.pop(selection, None)
            return
        path, value = trigger
        values = self.triggered[path]
        values[value].pop(selection, None)
        if not values[value]:
            del values[value]
        if not values:
            del self.triggered[path]

    @property
    def empty(self) -> bool:
        return not self.plain and not self.triggered


class Index:
    """The selections in use."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def add(self, selection: WatchSelection) -> None:
        """Adds a selection: it receives events from now on. Idempotent."""
        key = (selection.namespace, selection.name)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket()
        bucket.members(selection)[selection] = None

    def remove(self, selection: WatchSelection) -> None:
        """Removes a selection that no watch uses any more."""
        key = (selection.namespace, selection.name)
        bucket = self._buckets[key]
        bucket.drop(selection)
        if bucket.empty:
            del self._buckets[key]

    def wanting(self, namespace: str, name: str, old: Any, new: Any) -> Iterator[WatchSelection]:
        """The selections that may want this change; each of them once."""
        for key in {(namespace, name), (namespace, ""), ("", name), ("", "")}:
            bucket = self._buckets.get(key)
            if bucket is not None:
                yield from bucket.wanting(old, new)
