"""Names of resources, as people write them, to what the server has: by its own discovery.

`pods`, `po`, `pod`, `Pod`; `deployments.apps`, `deployments.v1.apps`, `deployments.apps/v1`. What
was read is kept for all sources of the process; a name that is not found, or a resource that
answers 404, makes it be read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from shmcache.protocol.status import Status
from shmcache.source.base import Failure, FailureKind, SourceFailed
from shmcache.source.failures import garbage

PLAIN = "application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
NEEDED_VERBS = frozenset({"list", "watch"})

_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource as the server has it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    names: frozenset[str] = frozenset()
    """What it may be called, in lower case."""
    verbs: frozenset[str] = NEEDED_VERBS

    @property
    def api_version(self) -> str:
        """As its objects say it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "") -> str:
        """Of its collection; a namespace is ignored where there are none."""
        start = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        if namespace and self.namespaced:
            return f"{start}/namespaces/{namespace}/{self.plural}"
        return f"{start}/{self.plural}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A name taken apart; None stands for whatever there is."""

    name: str
    group: str | None
    version: str | None

    @classmethod
    def readings(cls, text: str) -> Iterator[Wanted]:
        """How a name can be meant, the most exact first. ValueError if it is no name."""
        full, slash, version = text.partition("/")
        name, dot, rest = full.partition(".")
        if not name or (slash and not _VERSION.fullmatch(version)) or (dot and not rest):
            raise ValueError(
                f"{text!r} is no resource: pods, deployments.apps or widgets.example.com/v1"
            )
        if slash:
            yield cls(name, rest, version)
            return
        first, _, group = rest.partition(".")
        if _VERSION.fullmatch(first):
            yield cls(name, group, first)
        yield cls(name, rest if dot else None, None)


Kept = dict[tuple[str, str], dict[str, Any]]
"""Documents by path and Accept, those that are not there as empty ones; shared by all sources."""
Read = Callable[[str, str], bytes]
"""Reads the document of a path with an Accept. SourceFailed."""


class _Lookup:
    """One look-up of a name: reads no document twice, and kept ones only until `fresh`."""

    def __init__(self, kept: Kept, read: Read) -> None:
        self._kept = kept
        self._read = read
        self._mine: Kept = {}
        self.fresh = False

    def document(self, path: str, accept: str = PLAIN) -> dict[str, Any]:
        """What is not there (a group, a version) has nothing in it."""
        key = path, accept
        if key not in self._mine and not self.fresh and key in self._kept:
            return self._kept[key]
        if key not in self._mine:
            self._mine[key] = self._kept[key] = self._asked(path, accept)
        return self._mine[key]

    def _asked(self, path: str, accept: str) -> dict[str, Any]:
        try:
            found = json.loads(self._read(path, accept))
        except SourceFailed as failed:
            status = failed.failure.status
            if status is not None and status.code == 404:
                return {}
            raise
        except ValueError as error:
            raise garbage(f"GET {path}", f"no JSON: {error}") from error
        if not isinstance(found, dict):
            raise garbage(f"GET {path}", "no document of discovery")
        return found


def find(kept: Kept, read: Read, text: str) -> Resource:
    """The resource that is meant. SourceFailed with HTTP 404 while the server does not have it."""
    lookup = _Lookup(kept, read)
    for lookup.fresh in (False, True):
        for wanted in Wanted.readings(text):
            for found in _candidates(lookup, wanted):
                if wanted.name.lower() in found.names:
                    return _watchable(found, text)
    raise not_there(text)


def not_there(text: str) -> SourceFailed:
    """The failure of a resource that the server does not have, at least not yet."""
    words = f"the server has no resource {text}"
    status = Status(code=404, reason="NotFound", message=words)
    return SourceFailed(Failure(FailureKind.HTTP, f"discovery: {words}", status))


def _watchable(found: Resource, text: str) -> Resource:
    missing = NEEDED_VERBS - found.verbs
    if missing:
        words = f"{text}: the server does not allow to {' or '.join(sorted(missing))} it"
        status = Status(code=405, reason="MethodNotAllowed", message=words)
        raise SourceFailed(Failure(FailureKind.HTTP, f"discovery: {words}", status))
    return found


def _candidates(lookup: _Lookup, wanted: Wanted) -> Iterator[Resource]:
    """Resources it could be, those of preferred groups and versions first."""
    if wanted.group in {None, ""} and wanted.version in {None, "v1"}:
        yield from _of_version(lookup, "", "v1")
    if wanted.group == "":
        return
    if wanted.group is not None and wanted.version is not None:
        yield from _of_version(lookup, wanted.group, wanted.version)
    elif wanted.group is not None:
        group = lookup.document(f"/apis/{wanted.group}")
        yield from _of_group(lookup, group)
    elif wanted.version is None:
        yield from _of_all(lookup)


def _of_all(lookup: _Lookup) -> Iterator[Resource]:
    found = lookup.document("/apis", AGGREGATED)
    if found.get("kind") == "APIGroupDiscoveryList":
        yield from _aggregated(found)
        return
    for group in found.get("groups") or ():
        yield from _of_group(lookup, group)


def _of_group(lookup: _Lookup, group: dict[str, Any]) -> Iterator[Resource]:
    versions = [str(entry["version"]) for entry in group.get("versions") or ()]
    preferred = (group.get("preferredVersion") or {}).get("version")
    for version in sorted(versions, key=lambda version: version != preferred):
        yield from _of_version(lookup, str(group["name"]), version)


def _of_version(lookup: _Lookup, group: str, version: str) -> Iterator[Resource]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    for entry in lookup.document(path).get("resources") or ():
        if "/" not in entry["name"]:
            yield _resource(group, version, entry["name"], entry, entry["kind"])


def _aggregated(found: dict[str, Any]) -> Iterator[Resource]:
    for group in found.get("items") or ():
        for version in group.get("versions") or ():
            for entry in version.get("resources") or ():
                kind = (entry.get("responseKind") or {}).get("kind") or ""
                plain = entry | {"namespaced": entry.get("scope") == "Namespaced"}
                yield _resource(
                    group["metadata"]["name"], version["version"], entry["resource"], plain, kind
                )


def _resource(group: str, version: str, plural: str, entry: dict[str, Any], kind: str) -> Resource:
    singular = entry.get("singularName") or entry.get("singularResource") or ""
    names = [plural, kind, singular, *(entry.get("shortNames") or ())]
    return Resource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        namespaced=bool(entry.get("namespaced")),
        names=frozenset(name.lower() for name in names if name),
        verbs=frozenset(entry.get("verbs") or ()),
    )
