"""The shapes of objects that a client can ask for: whole, metadata only, or rows of a table."""

from __future__ import annotations

from typing import Any

from shmcache.protocol import accept, framing, printing
from shmcache.protocol.kinds import Kind
from shmcache.protocol.options import ListOptions
from shmcache.testing.apiserver import lists
from shmcache.testing.apiserver.selecting import Scope
from shmcache.testing.apiserver.store import Store
from shmcache.testing.apiserver.stored import FULL, Change, Stored
from shmcache.testing.apiserver.watches import Timing, Watch


class Shape:
    """Whole objects, or their metadata only."""

    def __init__(self, name: str) -> None:
        self._name = name

    def one(self, kind: Kind, stored: Stored, include: str) -> bytes:  # noqa: ARG002 - of tables
        """The body of a single object."""
        return stored.whole(kind, self._name) + b"\n"

    def list(
        self,
        kind: Kind,
        found: lists.Page,
        include: str,  # noqa: ARG002 - of tables
    ) -> list[bytes]:
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


class TableShape(Shape):
    """Rows of a table, each with its object, its metadata, or nothing (`includeObject`)."""

    def __init__(self) -> None:
        super().__init__(FULL)

    def one(self, kind: Kind, stored: Stored, include: str) -> bytes:
        """A table of one row."""
        return framing.encode(_table_of(kind, stored, include)) + b"\n"

    def list(self, kind: Kind, found: lists.Page, include: str) -> list[bytes]:
        """A table of a row for each object."""
        shown = printing.columns(kind)
        rows = [row(kind, shown, stored.obj, include) for stored in found.objects]
        return [
            framing.encode(printing.table(shown, rows, lists.list_metadata(found))),
            b"\n",
        ]

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
        """A watch whose first event brings the columns, and all of them a row."""
        return TableWatch(store, kind, scope, asked, timing, watch_list=watch_list)


class TableWatch(Watch):
    """Events whose object is a table of one row."""

    _shown = False

    def show(self, event: str, stored: Stored) -> bytes:
        """The line of an object that is there."""
        return self._line(event, stored.obj, stored.version)

    def line(self, event: str, change: Change) -> bytes:
        """The line of what happened."""
        return self.show(event, change.shown(event))

    def mark(self, version: int, *, end: bool) -> bytes:
        """A bookmark: a row of an object that has nothing but a version."""
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if end:
            metadata["annotations"] = {framing.INITIAL_EVENTS_END: "true"}
        return self._line("BOOKMARK", {"metadata": metadata}, version)

    def _line(self, event: str, obj: dict[str, Any], version: int) -> bytes:
        shown = printing.columns(self.kind)
        known, self._shown = self._shown, True
        metadata = {"resourceVersion": str(version)}
        rows = [row(self.kind, shown, obj, "")]
        table = printing.table(None if known else shown, rows, metadata)
        return framing.event(event, framing.encode(table))


def _table_of(kind: Kind, stored: Stored, include: str) -> dict[str, Any]:
    shown = printing.columns(kind)
    rows = [row(kind, shown, stored.obj, include)]
    return printing.table(shown, rows, {"resourceVersion": str(stored.version)})


def row(
    kind: Kind, shown: list[printing.Column], obj: dict[str, Any], include: str
) -> dict[str, Any]:
    """One row: the cells, and as much of the object as was asked for."""
    found: dict[str, Any] | None = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": framing.ordered(obj)["metadata"],
    }
    if include == "None":
        found = None
    elif include == "Object":
        found = {"kind": kind.kind, "apiVersion": kind.api_version, **framing.ordered(obj)}
    return {"cells": printing.cells(shown, obj), "object": found}


def shape_of(text: str) -> Shape:
    """Of the first media range that can be served; a Failure (406) if there is none."""
    name = accept.shape(text)
    return TableShape() if name == accept.TABLE else Shape(name)
