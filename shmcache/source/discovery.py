"""Names of resources, as people write them, to what the server has: by its own discovery.

`pods`, `po`, `pod`, `Pod`; `deployments.apps`, `deployments.v1.apps`, `deployments.apps/v1`. All
sources of a process share the documents that were read:

FLIGHT1  A document is read by one source at a time. Sources that need it meanwhile wait for that
         answer, or for that failure, unless the reader itself was cancelled.
FLIGHT2  A look-up takes documents of any age first. If they lack the name, it takes only those
         whose request began after the look-up did, so sources that look for missing names at the
         same time share one request.
FLIGHT3  /apis is read once for all groups. Where the server aggregates, nothing else is needed;
         where it does not, one document for each group version follows. Only a name that is not
         there reads the documents of its own group again: /apis is long, and such names are
         looked up again and again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import quote

from shmcache.protocol.jsontext import decoded, is_text
from shmcache.protocol.status import ServerStatus
from shmcache.source.base import FailureKind, SourceFailed, SourceFailure
from shmcache.source.failures import garbage

PLAIN = "application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
NEEDED_VERBS = frozenset({"list", "watch"})
WAIT_SECONDS = 0.2
"""How often a source that waits for another one's answer checks whether it was cancelled."""

_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """A resource as the server has it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    """All its names, in lower case."""
    verbs: frozenset[str] = NEEDED_VERBS

    @property
    def api_version(self) -> str:
        """As its objects say it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "") -> str:
        """Of its collection; the namespace is ignored of a resource without namespaces."""
        start = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        if namespace and self.namespaced:
            return f"{start}/namespaces/{quote(namespace, safe='')}/{self.plural}"
        return f"{start}/{self.plural}"


@dataclass(frozen=True, slots=True)
class NameReading:
    """A name taken apart; None stands for whatever there is."""

    name: str
    group: str | None
    version: str | None

    @classmethod
    def readings(cls, text: str) -> Iterator[NameReading]:
        """How a name can be meant, the most exact first. ValueError for anything but a name."""
        full, slash, version = text.partition("/")
        name, dot, rest = full.partition(".")
        if not name or (slash and not _VERSION.fullmatch(version)):
            raise ValueError(
                f"{text!r} is not a resource: pods, deployments.apps or widgets.example.com/v1"
            )
        if slash:
            yield cls(name, rest, version)
            return
        first, _, group = rest.partition(".")
        if _VERSION.fullmatch(first):
            yield cls(name, group, first)
        yield cls(name, rest if dot else None, None)


Read = Callable[[str, str], bytes]
"""Reads the document of a path with an Accept. SourceFailed."""


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a document of discovery; empty where the server has no such document."""

    resources: tuple[ApiResource, ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Groups and their versions, the preferred one first."""
    whole: bool = False
    """Whether the resources are those of all groups."""


class _Flight:
    """One request for a document."""

    __slots__ = ("done", "failed", "found", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.done = threading.Event()
        self.found = Document()
        self.failed: BaseException | None = None


class Documents:
    """The documents that were read from one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[tuple[str, str], _Flight] = {}
        self._numbers = count(1)

    def moment(self) -> int:
        """Now, to compare with requests that began earlier or later."""
        return next(self._numbers)

    def forget(self, moment: int) -> None:
        """Drops the documents whose request began before this moment."""
        with self._lock:
            self._flights = {
                key: flight for key, flight in self._flights.items() if flight.number >= moment
            }

    def kept(self, path: str, accept: str = PLAIN) -> Document | None:
        """The document, if it was read."""
        with self._lock:
            flight = self._flights.get((path, accept))
        return flight.found if flight is not None and flight.done.is_set() else None

    def get(
        self,
        path: str,
        accept: str,
        read: Read,
        *,
        since: int = 0,
        check: Callable[[], None] = lambda: None,
    ) -> Document:
        """The document, asked for after the moment `since`. SourceFailed.

        `check` raises when the caller is cancelled while it waits for another source.
        """
        key = path, accept
        while True:
            with self._lock:
                flight = self._flights.get(key)
                mine = flight is None or flight.number < since
                if flight is None or mine:
                    flight = self._flights[key] = _Flight(next(self._numbers))
            if mine:
                return self._fly(key, flight, read)
            while not flight.done.wait(WAIT_SECONDS):
                check()
            if flight.failed is None:
                return flight.found
            failed = flight.failed
            if isinstance(failed, SourceFailed) and not _is_cancelled(failed):
                raise SourceFailed(failed.failure)

    def _fly(self, key: tuple[str, str], flight: _Flight, read: Read) -> Document:
        try:
            flight.found = _asked(read, *key)
        except BaseException as error:
            flight.failed = error
            with self._lock:
                if self._flights.get(key) is flight:
                    del self._flights[key]
            raise
        finally:
            flight.done.set()
        return flight.found


def _is_cancelled(failed: SourceFailed) -> bool:
    return failed.failure.kind is FailureKind.CANCELLED


def _asked(read: Read, path: str, accept: str) -> Document:
    try:
        found = decoded(read(path, accept))
    except SourceFailed as failed:
        status = failed.failure.status
        if status is not None and status.code == 404:
            return Document()
        raise
    except ValueError as error:
        raise garbage(f"GET {path}", f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise garbage(f"GET {path}", "not a document of discovery")
    try:
        return _parsed(path, found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise garbage(f"GET {path}", f"not a document of discovery: {error!r}") from error


def _parsed(path: str, found: dict[str, Any]) -> Document:
    parts = path.strip("/").split("/")
    if found.get("kind") == "APIGroupDiscoveryList":
        return Document(tuple(_aggregated(found)), whole=True)
    if parts == ["apis"]:
        return Document(groups=tuple(map(_group, found.get("groups") or ())))
    if parts[0] == "apis" and len(parts) == 2:
        return Document(groups=(_group(found),))
    group, version = parts[1] if parts[0] == "apis" else "", parts[-1]
    entries = [one for one in found.get("resources") or () if "/" not in one["name"]]
    rows = (_resource(group, version, one["name"], one, one["kind"]) for one in entries)
    return Document(tuple(rows))


def _group(found: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    versions = [str(entry["version"]) for entry in found.get("versions") or ()]
    preferred = (found.get("preferredVersion") or {}).get("version")
    return str(found["name"]), tuple(sorted(versions, key=lambda version: version != preferred))


def _aggregated(found: dict[str, Any]) -> Iterator[ApiResource]:
    for group in found.get("items") or ():
        for version in group.get("versions") or ():
            for entry in version.get("resources") or ():
                kind = (entry.get("responseKind") or {}).get("kind") or ""
                plain = entry | {"namespaced": entry.get("scope") == "Namespaced"}
                yield _resource(
                    group["metadata"]["name"], version["version"], entry["resource"], plain, kind
                )


def _resource(
    group: str, version: str, plural: str, entry: dict[str, Any], kind: str
) -> ApiResource:
    singular = entry.get("singularName") or entry.get("singularResource") or ""
    lists = [tuple(entry.get(name) or ()) for name in ("shortNames", "categories", "verbs")]
    short_names, categories, verbs = lists
    for text in (group, version, plural, kind, singular, *short_names, *categories, *verbs):
        if not is_text(text):
            raise TypeError(f"{text!r} is not a text")
    return ApiResource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        namespaced=bool(entry.get("namespaced")),
        singular=singular,
        short_names=short_names,
        categories=categories,
        names=frozenset(name.lower() for name in (plural, kind, singular, *short_names) if name),
        verbs=frozenset(verbs),
    )


# ---- looking a name up ---------------------------------------------------------------------------


class _Lookup:
    """One look-up of a name, in kept documents first, and in fresh ones after that."""

    def __init__(self, documents: Documents, read: Read, check: Callable[[], None]) -> None:
        self._documents = documents
        self._read = read
        self._check = check
        self._begun = documents.moment()
        self.fresh = False

    def document(self, path: str, accept: str = PLAIN) -> Document:
        """A document: a kept one at first, later one that was read since the look-up began."""
        since = self._begun if self.fresh else 0
        return self._documents.get(path, accept, self._read, since=since, check=self._check)

    def known(self, group: str, version: str) -> Document | None:
        """This group version as the document of all groups has it, if that will do."""
        found = None if self.fresh else self._documents.kept("/apis", AGGREGATED)
        if found is None or not found.whole:
            return None
        rows = [one for one in found.resources if (one.group, one.version) == (group, version)]
        return Document(tuple(rows)) if rows else None


def find(
    documents: Documents, read: Read, text: str, *, check: Callable[[], None] = lambda: None
) -> ApiResource:
    """The resource that is meant. SourceFailed with HTTP 404 while the server does not have it."""
    lookup = _Lookup(documents, read, check)
    for lookup.fresh in (False, True):
        for wanted in NameReading.readings(text):
            for found in _candidates(lookup, wanted):
                if wanted.name.lower() in found.names:
                    return _watchable(found, text)
    raise not_there(text)


def not_there(text: str) -> SourceFailed:
    """The failure of a resource that the server does not have, at least not yet."""
    message = f"the server has no resource {text}"
    status = ServerStatus(code=404, reason="NotFound", message=message)
    return SourceFailed(SourceFailure(FailureKind.HTTP, f"discovery: {message}", status))


def _watchable(found: ApiResource, text: str) -> ApiResource:
    missing = NEEDED_VERBS - found.verbs
    if missing:
        message = f"{text}: the server does not allow to {' or '.join(sorted(missing))} it"
        status = ServerStatus(code=405, reason="MethodNotAllowed", message=message)
        raise SourceFailed(SourceFailure(FailureKind.HTTP, f"discovery: {message}", status))
    return found


def _candidates(lookup: _Lookup, wanted: NameReading) -> Iterator[ApiResource]:
    """Resources it could be, those of preferred groups and versions first."""
    if wanted.group in {None, ""} and wanted.version in {None, "v1"}:
        yield from lookup.document("/api/v1").resources
    if wanted.group == "":
        return
    if wanted.group is not None and wanted.version is not None:
        yield from _of_version(lookup, wanted.group, wanted.version)
    elif wanted.group is not None:
        yield from _of_group(lookup, wanted.group)
    elif wanted.version is None:
        yield from _of_all(lookup)


def _of_all(lookup: _Lookup) -> Iterator[ApiResource]:
    found = lookup.document("/apis", AGGREGATED)
    yield from found.resources
    for group, versions in found.groups:
        for version in versions:
            yield from _of_version(lookup, group, version)


def _of_group(lookup: _Lookup, group: str) -> Iterator[ApiResource]:
    if lookup.fresh:
        found = lookup.document(f"/apis/{group}")
    else:
        found = lookup.document("/apis", AGGREGATED)
    yield from (one for one in found.resources if one.group == group)
    for name, versions in found.groups:
        for version in versions if name == group else ():
            yield from _of_version(lookup, group, version)


def _of_version(lookup: _Lookup, group: str, version: str) -> Iterator[ApiResource]:
    found = lookup.known(group, version) or lookup.document(f"/apis/{group}/{version}")
    yield from found.resources
