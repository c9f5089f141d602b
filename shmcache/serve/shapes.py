"""The shapes of answers: whole objects, their metadata, rows of a Table (`kubectl get`).

Texts come from the arena as they are; of a row's object, too. Cells alone are worked out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shmcache.protocol import accept, framing, printing
from shmcache.serve.lists import Form

if TYPE_CHECKING:
    from shmcache._hot import View
    from shmcache.protocol.kinds import Kind
    from shmcache.serve.lists import Walk

META = "meta.k8s.io/v1"
_PARTIAL = Form("metadata", b'"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",')
WHOLE = Form()
_UNTYPED = Form("untyped")


def typed(kind: Kind) -> Form:
    """Whole objects whose type the writer left out."""
    names = kind.kind.encode(), kind.api_version.encode()
    return Form("untyped", b'"kind":"%b","apiVersion":"%b",' % names)


def one(kind: Kind, view: View, shape: str, include: str) -> bytes:
    """The body of a single object."""
    if shape == accept.TABLE:
        shown = printing.columns(kind)
        version = {"resourceVersion": view["metadata"].get("resourceVersion", "")}
        return _table_head(shown, version) + _row(kind, shown, view, include) + b"]}\n"
    if shape == accept.PARTIAL:
        return view.json_in(_PARTIAL) + b"\n"
    if "kind" in view:
        return view.json_in(WHOLE) + b"\n"
    return view.json_in(typed(kind)) + b"\n"


def pieces(
    kind: Kind, walk: Walk, metadata: dict[str, Any], shape: str, include: str
) -> Iterator[bytes]:
    """The body of a list."""
    if shape == accept.TABLE:
        return _table(kind, walk, metadata, include)
    if shape == accept.PARTIAL:
        head = _head("PartialObjectMetadataList", META, metadata)
        return _ended(walk.pages(_PARTIAL, head), b"]}\n")
    if not kind.custom:
        head = _head(kind.list_kind, kind.api_version, metadata)
        return _ended(walk.pages(_UNTYPED, head), b"]}\n")
    head = framing.encode({"apiVersion": kind.api_version})[:-1] + b',"items":['
    tail = framing.encode({"kind": kind.list_kind, "metadata": metadata})
    return _ended(walk.pages(WHOLE, head), b"]," + tail[1:] + b"\n")


def _head(kind: str, api_version: str, metadata: dict[str, Any]) -> bytes:
    text = framing.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return text[:-1] + b',"items":['


def _ended(pages: Iterator[bytes], tail: bytes) -> Iterator[bytes]:
    """The pages, the tail together with the last one."""
    held = next(pages)
    for page in pages:
        yield held
        held = page
    yield held + tail


# ---- tables --------------------------------------------------------------------------------------


def _table(kind: Kind, walk: Walk, metadata: dict[str, Any], include: str) -> Iterator[bytes]:
    shown = printing.columns(kind)

    def pages() -> Iterator[bytes]:
        lead = _table_head(shown, metadata)
        for views in walk.views():
            yield lead + b",".join([_row(kind, shown, view, include) for view in views])
            lead = b","
        if lead != b",":
            yield lead

    return _ended(pages(), b"]}\n")


def _table_head(shown: list[printing.Column], metadata: dict[str, Any]) -> bytes:
    return framing.encode(printing.table(shown, [], metadata))[:-2]


def _row(kind: Kind, shown: list[printing.Column], view: View, include: str) -> bytes:
    cells = framing.encode(printing.cells(shown, view.to_dict()))
    if include == "None":
        return b'{"cells":%b,"object":null}' % cells
    form = typed(kind) if include == "Object" else _PARTIAL
    return b'{"cells":%b,"object":%b}' % (cells, view.json_in(form))
