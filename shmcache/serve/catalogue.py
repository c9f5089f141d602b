"""Which resources a cache serves: their names in paths, their kinds, their scope.

The reflector stores its declaration of a resource in the settings. Without one (a cache filled by a
program) the usual resources are known by name, others by their first object.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shmcache import states
from shmcache.protocol import describing, failures
from shmcache.protocol.kinds import Kind
from shmcache.serve.scope import UNKNOWN, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmcache._hot import Root
    from shmcache.reader.cache import Cache

LOOK_SECONDS = 1.0
SAID = "namespaces"
"""A setting that every declaration of a scope contains."""


def declaration(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The declaration in a resource's record; None once the resource is gone."""
    return None if record["state"] == states.GONE else record["settings"] or {}


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """One resource of the cache, as the API has it."""

    name: str
    """In the cache: cache[name]."""
    kind: Kind
    scope: Scope
    declaration: dict[str, Any]
    """Out of which this was made."""

    def key(self, namespace: str, name: str) -> str:
        """Of an object in the cache."""
        return f"{namespace}/{name}" if self.kind.namespaced else name


class Catalogue:
    """Looks at the cache again every second, and when a request names an unknown resource."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._looked = 0.0
        self._served: dict[tuple[str, str, str], Served] = {}
        self._known: dict[str, Served] = {}
        self._seen: dict[Served, tuple[tuple[int, int], bool]] = {}
        """In which instance and generation each was seen to be it, and whether it had content."""
        self.unknown: tuple[str, ...] = ()
        """Resources of the cache whose kind nobody knows yet."""

    def find(self, group: str, version: str, resource: str) -> Served | None:
        """The resource of a path, or None."""
        self._look()
        found = self._served.get((group, version, resource))
        if found is not None and self._latest(found) is None:
            self._look(now=True)
            found = self._served.get((group, version, resource))
        return found

    def root(self, served: Served) -> tuple[Root, int]:
        """The latest state, and the resource's number there; a Failure (429) unless it shows it."""
        root, number, shown = self._latest(served) or (None, 0, False)
        if root is None or not shown:
            raise failures.not_listed()
        return root, number

    def _latest(self, served: Served) -> tuple[Root, int, bool] | None:
        """root(), and whether it has the content; None where it is of another declaration."""
        try:
            reader, number = self.cache.locate(served.name)
        except KeyError:
            return None  # another instance, which does not have it
        root = reader.root()
        at = (root.instance, root.generation)
        seen = self._seen.get(served)
        if seen is None or seen[0] != at:
            record = root.record(number)
            if declaration(record) != served.declaration:
                return None
            shown = not served.scope.known or states.has_content(record)
            seen = self._seen[served] = (at, shown)
        return root, number, seen[1]

    def all(self) -> list[Served]:
        """All of them, in the order of the cache."""
        self._look()
        return list(self._served.values())

    def groups(self) -> dict[str, dict[str, list[Kind]]]:
        """Group -> version -> resources, for discovery."""
        found: dict[str, dict[str, list[Kind]]] = {"": {}}
        for served in self.all():
            kind = served.kind
            found.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
        return found

    def _look(self, *, now: bool = False) -> None:
        moment = time.monotonic()
        if not now and moment - self._looked < LOOK_SECONDS:
            return
        self._looked = moment
        self._seen.clear()
        root = self.cache.reader.root()
        served: dict[tuple[str, str, str], Served] = {}
        unknown = []
        for number, name in enumerate(root.names()):
            if not name:
                continue  # not a resource any more
            one = self._serve(root, number, name)
            if one is None:
                unknown.append(name)
            else:
                kind = one.kind
                served.setdefault((kind.group, kind.version, kind.resource), one)
        self._served, self.unknown = served, tuple(unknown)

    def _serve(self, root: Any, number: int, name: str) -> Served | None:
        settings = declaration(root.record(number)) or {}
        known = self._known.get(name)
        if known is not None and known.declaration == settings:
            return known
        kind = describing.kind_of(settings) or describing.called(name) or _seen(root, number, name)
        if kind is None:
            return None
        scope = Scope.read(settings) if SAID in settings else UNKNOWN
        made = self._known[name] = Served(name, kind, scope, settings)
        return made


def _seen(root: Any, number: int, name: str) -> Kind | None:
    """By the first object that has a type."""
    for key, obj in root.scan(number, limit=1):
        kind, api_version = obj.get("kind"), obj.get("apiVersion")
        if kind and api_version:
            group, _, version = str(api_version).rpartition("/")
            resource = name.partition("/")[0].partition(".")[0]
            found = {"group": group, "version": version, "plural": resource, "kind": str(kind)}
            return describing.kind_of({**found, "namespaced": "/" in key})
    return None
