"""The shapes of objects that a client can ask for: whole, metadata only, or rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shmcache.protocol import accept, framing
from shmcache.protocol.kinds import Kind
from shmcache.protocol.options import ListOptions
from shmcache.protocol.tables import printing
from shmcache.testing.apiserver import lists
from shmcache.testing.apiserver.requests import ApiRequest
from shmcache.testing.apiserver.selecting import RequestScope
from shmcache.testing.apiserver.store import ObjectStore
from shmcache.testing.apiserver.stored import Object, Stored, StoredChange, leaner
from shmcache.testing.apiserver.watches import ServedWatch, WatchTiming


class AnswerShape:
    """Whole objects, or their metadata only."""

    _watch: type[ServedWatch] = ServedWatch

    def __init__(self, asked: accept.Shape) -> None:
        self._asked = asked

    def one(self, kind: Kind, stored: Stored) -> bytes:
        """The body of a single object."""
        return stored.whole(kind, self._asked) + b"\n"

    def list(self, kind: Kind, found: lists.ListPage) -> list[bytes]:
        """The body of a list, in pieces."""
        return lists.pieces(kind, found, self._asked)

    def watch(
        self,
        store: ObjectStore,
        kind: Kind,
        scope: RequestScope,
        asked: ListOptions,
        timing: WatchTiming,
        *,
        watch_list: bool,
    ) -> ServedWatch:
        """A watch that shows objects so."""
        watch = self._watch(store, kind, scope, asked, timing, watch_list=watch_list)
        watch.shape = self._asked
        return watch


class TableWatch(ServedWatch):
    """Events whose object is a table of one row."""

    _shown = False

    def show(self, event: str, stored: Stored) -> bytes:
        """The line of an object that is there."""
        return self._line(event, stored.obj, stored.version)

    def line(self, event: str, change: StoredChange) -> bytes:
        """The line of what happened."""
        return self.show(event, change.shown(event))

    def bookmark(self, version: int, *, end: bool) -> bytes:
        """A bookmark: a row of an object that has nothing but a version."""
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if end:
            metadata["annotations"] = {framing.INITIAL_EVENTS_END: "true"}
        return self._line("BOOKMARK", {"metadata": metadata}, version)

    def _line(self, event: str, obj: dict[str, Any], version: int) -> bytes:
        shown = printing.columns(self.kind)
        known, self._shown = self._shown, True
        metadata = {"resourceVersion": str(version)}
        rows = [row(self.kind, shown, obj, self.shape)]
        columns = None if known else shown
        table = printing.table(columns, rows, metadata, self.shape.api_version)
        return framing.event(event, framing.encode(table))


class TableShape(AnswerShape):
    """Rows of a table, each with its object, its metadata, or nothing (`includeObject`)."""

    _watch: type[ServedWatch] = TableWatch

    def one(self, kind: Kind, stored: Stored) -> bytes:
        """A table of one row."""
        return self._table(kind, [stored], {"resourceVersion": str(stored.version)})

    def list(self, kind: Kind, found: lists.ListPage) -> list[bytes]:
        """A table of a row for each object."""
        return [self._table(kind, found.objects, lists.list_metadata(found))]

    def _table(self, kind: Kind, objects: Sequence[Stored], metadata: Object) -> bytes:
        shown = printing.columns(kind)
        rows = [row(kind, shown, stored.obj, self._asked) for stored in objects]
        table = printing.table(shown, rows, metadata, self._asked.api_version)
        return framing.encode(table) + b"\n"


def row(kind: Kind, shown: list[printing.Column], obj: Object, asked: accept.Shape) -> Object:
    """One row: the cells, and the requested part of the object."""
    if asked.lean:
        obj = leaner(obj)
    found: Object | None = {
        "kind": "PartialObjectMetadata",
        "apiVersion": asked.api_version,
        "metadata": framing.ordered(obj)["metadata"],
    }
    if asked.include == "None":
        found = None
    elif asked.include == "Object":
        found = {"kind": kind.kind, "apiVersion": kind.api_version, **framing.ordered(obj)}
    return {"cells": printing.cells(shown, obj), "object": found}


def shape_of(request: ApiRequest) -> AnswerShape:
    """The shape that a request wants; a Failure (406, 400) if it cannot be had."""
    many = {"list": True, "get": False}.get(request.verb)
    asked = accept.shape(request.headers.get("accept", ""), request.query, many=many)
    return TableShape(asked) if asked.name == accept.TABLE.name else AnswerShape(asked)
