"""The shapes of objects that a client can ask for: whole, metadata only, or rows of a table."""

from __future__ import annotations

from shmcache.protocol import failures
from shmcache.protocol.kinds import Kind
from shmcache.protocol.options import ListOptions
from shmcache.testing.apiserver import lists
from shmcache.testing.apiserver.selecting import Scope
from shmcache.testing.apiserver.store import Store
from shmcache.testing.apiserver.stored import FULL, PARTIAL, Stored
from shmcache.testing.apiserver.watches import Timing, Watch

OFFERED = "application/json, application/json;stream=watch"
JSON_RANGES = frozenset({"application/json", "application/*", "*/*"})


class Shape:
    """Whole objects, or their metadata only."""

    def __init__(self, name: str) -> None:
        self._name = name

    def one(self, kind: Kind, stored: Stored, _include: str) -> bytes:
        """The body of a single object."""
        return stored.whole(kind, self._name) + b"\n"

    def list(self, kind: Kind, found: lists.Page, _include: str) -> list[bytes]:
        """The body of a list, in pieces."""
        return lists.pieces(kind, found, self._name)

    def watch(
        self,
        store: Store,
        kind: Kind,
        scope: Scope,
        asked: ListOptions,
        timing: Timing,
        *,
        watch_list: bool,
    ) -> Watch:
        """A watch that shows objects so."""
        watch = Watch(store, kind, scope, asked, timing, watch_list=watch_list)
        watch.shape = self._name
        return watch


def shape_of(accept: str) -> Shape:
    """Of the first media range that can be served; a Failure (406) if there is none."""
    for text in (accept or "*/*").split(","):
        media, *parameters = (part.strip() for part in text.split(";"))
        if media not in JSON_RANGES:
            continue
        wanted = dict(one.partition("=")[::2] for one in parameters)
        known = wanted.get("g") == "meta.k8s.io" and wanted.get("v") == "v1"
        if "as" not in wanted:
            return Shape(FULL)
        if known and wanted["as"] in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
            return Shape(PARTIAL)
    raise failures.not_acceptable(OFFERED)
