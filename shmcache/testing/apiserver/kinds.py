"""Which resources a server has now: the usual built-in ones, and what definitions add."""

from __future__ import annotations

from dataclasses import dataclass, field

from shmcache.protocol.builtins import builtin
from shmcache.protocol.kinds import Kind

_BUILTIN = {(kind.group, kind.version, kind.resource): kind for kind in builtin()}


@dataclass(slots=True)
class ServedKinds:
    """The resources that a server knows now."""

    _kinds: dict[tuple[str, str, str], Kind] = field(default_factory=_BUILTIN.copy)

    def add(self, kinds: list[Kind]) -> None:
        """Makes them known; one of the same name and version is replaced."""
        for kind in kinds:
            self._kinds[kind.group, kind.version, kind.resource] = kind

    def remove(self, key: str) -> None:
        """Forgets a resource in all its versions."""
        self._kinds = {path: kind for path, kind in self._kinds.items() if kind.key != key}

    def find(self, group: str, version: str, resource: str) -> Kind | None:
        """The resource of a path."""
        return self._kinds.get((group, version, resource))

    def named(self, name: str) -> Kind:
        """Of pods, deployments.apps, deployments or a short name; KeyError names an unknown one."""
        for kind in self._kinds.values():
            if name in {kind.key, kind.resource, kind.singular, *kind.short_names}:
                return kind
        raise KeyError(f"this server has no resource {name!r}")

    def of(self, api_version: str, kind: str) -> Kind:
        """The resource of objects of this type; KeyError names an unknown one."""
        for one in self._kinds.values():
            if (one.api_version, one.kind) == (api_version, kind):
                return one
        raise KeyError(f"this server has no {api_version} {kind}")

    def groups(self) -> dict[str, dict[str, list[Kind]]]:
        """Group -> version -> resources, each in the order of coming."""
        found: dict[str, dict[str, list[Kind]]] = {}
        for kind in self._kinds.values():
            found.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
        return found
