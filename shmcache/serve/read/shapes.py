"""The shapes of answers: whole objects, their metadata, rows of a Table (`kubectl get`).

Texts come from the arena as they are; of a row's object, too. Cells alone are worked out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shmcache.protocol import accept, framing
from shmcache.protocol.tables import printing
from shmcache.reader.sharding import metadata_of
from shmcache.serve.read.lists import ListForm

if TYPE_CHECKING:
    from shmcache._hot import View
    from shmcache.protocol.accept import Shape
    from shmcache.protocol.kinds import Kind
    from shmcache.serve.read.lists import Walk

WHOLE = ListForm()
_UNTYPED = ListForm("untyped")


def whole(shape: Shape) -> ListForm:
    """Objects as they are stored, with their type."""
    return WHOLE._replace(lean=shape.lean)


def typed(kind: Kind, shape: Shape = accept.FULL) -> ListForm:
    """Whole objects whose type the writer left out."""
    names = kind.kind.encode(), kind.api_version.encode()
    return ListForm("untyped", b'"kind":"%b","apiVersion":"%b",' % names, lean=shape.lean)


def partial(shape: Shape) -> ListForm:
    """Metadata alone."""
    head = b'"kind":"PartialObjectMetadata","apiVersion":"%b",' % shape.api_version.encode()
    return ListForm("metadata", head, lean=shape.lean)


def one(kind: Kind, view: View, shape: Shape) -> bytes:
    """The body of a single object."""
    if shape.name == accept.TABLE.name:
        row = _Rows(kind, shape)
        version = {"resourceVersion": metadata_of(view).get("resourceVersion", "")}
        return row.head(version) + row(view) + b"]}\n"
    if shape.name == accept.PARTIAL.name:
        return view.json_in(partial(shape)) + b"\n"
    form = whole(shape) if "kind" in view else typed(kind, shape)
    return view.json_in(form) + b"\n"


def pieces(kind: Kind, walk: Walk, metadata: dict[str, Any], shape: Shape) -> Iterator[bytes]:
    """The body of a list."""
    if shape.name == accept.TABLE.name:
        return _table(_Rows(kind, shape), walk, metadata)
    if shape.name == accept.PARTIAL.name:
        head = _head("PartialObjectMetadataList", shape.api_version, metadata)
        return _ended(walk.pages(partial(shape), head), b"]}\n")
    if not kind.custom:
        head = _head(kind.list_kind, kind.api_version, metadata)
        return _ended(walk.pages(_UNTYPED._replace(lean=shape.lean), head), b"]}\n")
    head = framing.encode({"apiVersion": kind.api_version})[:-1] + b',"items":['
    tail = framing.encode({"kind": kind.list_kind, "metadata": metadata})
    return _ended(walk.pages(whole(shape), head), b"]," + tail[1:] + b"\n")


def _head(kind: str, api_version: str, metadata: dict[str, Any]) -> bytes:
    text = framing.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return text[:-1] + b',"items":['


def _ended(pages: Iterator[bytes], tail: bytes) -> Iterator[bytes]:
    """The pages, then the tail: none of them is kept to be joined with the next (HOLD4)."""
    yield from pages
    yield tail


# ---- tables --------------------------------------------------------------------------------------


def _table(row: _Rows, walk: Walk, metadata: dict[str, Any]) -> Iterator[bytes]:
    def pages() -> Iterator[bytes]:
        lead = row.head(metadata)
        for views in walk.views():
            yield lead + b",".join([row(view) for view in views])
            lead = b","
        if lead != b",":
            yield lead

    return _ended(pages(), b"]}\n")


class _Rows:
    """How the objects of one answer become rows."""

    def __init__(self, kind: Kind, shape: Shape) -> None:
        self._shape = shape
        self._shown = printing.columns(kind, bare=shape.bare)
        self._form = typed(kind, shape) if shape.include == "Object" else partial(shape)

    def head(self, metadata: dict[str, Any]) -> bytes:
        """The table up to its first row."""
        found = printing.table(self._shown, [], metadata, self._shape.api_version)
        return framing.encode(found)[:-2]

    def __call__(self, view: View) -> bytes:
        cells = framing.encode(printing.cells(self._shown, view.to_dict()))
        shown = b"null" if self._shape.include == "None" else view.json_in(self._form)
        return b'{"cells":%b,"object":%b}' % (cells, shown)
