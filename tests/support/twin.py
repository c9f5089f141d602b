"""The model: a cache as plain dicts with the same changes; readers must see the same at any time.

Values are kept as their JSON (orjson's, which distinguishes 1 from 1.0, True and -0.0, and keeps
the order of keys): the cache must treat equal JSON as unchanged.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

State = dict[str, dict[str, bytes]]
"""resource -> key -> JSON"""


class Change(NamedTuple):
    """A delta as the model expects it; Witness and the machine convert real ones to it."""

    resource: int
    kind: str
    key: str | None
    version: str | None
    old: bytes | None
    new: bytes | None
    unknown: bool


class Entry(NamedTuple):
    json: bytes
    version: str
    emitted: tuple[tuple[str, ...], ...]


def text_of(value: Any) -> str | None:
    """The text of a scalar in an index; None for values without one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = next(
            text for text in map(value.__format__, (".15g", ".16g", ".17g")) if float(text) == value
        )
        return text if set(text) & set(".e") else f"{text}.0"
    return str(value) if isinstance(value, str | int) else None


def path_values(value: Any, steps: list[str]) -> set[str]:
    """The values that a path ("a", "*", ...) leads to in an object."""
    if not steps:
        if isinstance(value, dict):
            pairs = ((key, text_of(one)) for key, one in value.items())
            return {f"{key}={text}" for key, text in pairs if text is not None}
        values = value if isinstance(value, list) else [value]
        return {text for text in map(text_of, values) if text is not None}
    if steps[0] == "*":
        values = value if isinstance(value, list) else []
        return set().union(*(path_values(one, steps[1:]) for one in values))
    if isinstance(value, dict) and steps[0] in value:
        return path_values(value[steps[0]], steps[1:])
    return set()


def steps_of(path: str) -> list[str]:
    return path.replace("[*]", ".*").split(".")


@dataclass
class TwinResource:
    id: int
    indices: dict[str, str | None] = field(default_factory=dict)
    """index -> path, None for a function; in the order of declaration"""
    entries: dict[str, Entry] = field(default_factory=dict)
    version: str | None = None
    state: int = 0

    def functions(self) -> list[str]:
        return [index for index, path in self.indices.items() if path is None]

    def values(self, index: str, key: str) -> set[str]:
        path, entry = self.indices[index], self.entries[key]
        if path is not None:
            return path_values(orjson.loads(entry.json), steps_of(path))
        number = self.functions().index(index)
        return set(entry.emitted[number]) if number < len(entry.emitted) else set()

    def index(self, index: str) -> list[tuple[str, str]]:
        """(value, key), in order."""
        return sorted((value, key) for key in self.entries for value in self.values(index, key))


class Twin:
    """The expected cache, with every delta ever made."""

    def __init__(self, slots: int) -> None:
        self.resources: dict[str, TwinResource] = {}
        self.log: list[Change] = []
        self.tail = 0
        self.window = slots // 2
        self._pending: list[Change] = []

    # ---- changes; a batch is whatever lies between two commits --------------------------------

    def declare(self, name: str, indices: dict[str, str | None]) -> None:
        self.resources[name] = TwinResource(len(self.resources), dict(indices))

    def put(self, name: str, key: str, obj: Any, version: str | None, emitted: Any = ()) -> bool:
        resource = self.resources[name]
        new = Entry(orjson.dumps(obj), version or "", tuple(map(tuple, emitted)))
        old = resource.entries.get(key)
        if old == new:
            return False
        resource.entries[key] = new
        kind = "MODIFIED" if old else "ADDED"
        before = old.json if old else None
        self._pending.append(
            Change(resource.id, kind, key, version or None, before, new.json, False)
        )
        return True

    def delete(self, name: str, key: str, version: str | None, *, unknown: bool) -> bool:
        resource = self.resources[name]
        old = resource.entries.pop(key, None)
        if old is None:
            return False
        self._pending.append(
            Change(resource.id, "DELETED", key, version or None, old.json, None, unknown)
        )
        return True

    def replace(
        self, name: str, staged: list[tuple[str, Any, str | None, Any]], version: str | None
    ) -> None:
        resource = self.resources[name]
        last = {key: (obj, own, emitted) for key, obj, own, emitted in staged}
        for key in sorted(set(resource.entries) - set(last)):
            self.delete(name, key, version, unknown=True)
        for key in sorted(last):
            obj, own, emitted = last[key]
            self.put(name, key, obj, own, emitted)
        if version is not None:
            resource.version = version or None

    def commit(self) -> None:
        """Makes changes visible, with their deltas or with RELISTs."""
        changes, self._pending = self._pending, []
        if len(changes) > self.window:
            changed = sorted({change.resource for change in changes})
            versions = {each.id: each.version or None for each in self.resources.values()}
            changes = [
                Change(number, "RELIST", None, versions[number], None, None, False)
                for number in changed
            ]
        self.log += changes
        self.tail = max(self.tail, self.head - self.window)

    def saved(self) -> Any:
        """For restore(), when a batch raises."""
        return copy.deepcopy(self.resources)

    def restore(self, saved: Any) -> None:
        self.resources = saved
        self._pending.clear()

    # ---- the expected view ----------------------------------------------------------------------

    @property
    def head(self) -> int:
        return len(self.log)

    def state(self) -> State:
        return {
            name: {key: resource.entries[key].json for key in sorted(resource.entries)}
            for name, resource in self.resources.items()
        }

    def indices(self) -> dict[str, dict[str, list[tuple[str, str]]]]:
        return {
            name: {index: resource.index(index) for index in resource.indices}
            for name, resource in self.resources.items()
        }

    def versions(self) -> dict[str, str | None]:
        return {name: resource.version for name, resource in self.resources.items()}
