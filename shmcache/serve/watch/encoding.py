"""How events are written: whole objects, metadata only or rows of a table; chunks or frames.

A line is made once for all watches that want this form. Objects are the bytes of the arena; only a
DELETED, whose object carries the version of its end, is made by way of a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from shmcache.protocol import framing, watching
from shmcache.protocol.accept import FULL, PARTIAL, TABLE, Shape
from shmcache.protocol.tables import printing
from shmcache.serve.http import websocket, zipping
from shmcache.serve.read import shapes

if TYPE_CHECKING:
    from shmcache._hot import View
    from shmcache.protocol.kinds import Kind

UNSHOWN = "an event cannot be shown in this form: see the log of shmcache serve"
PARTIAL_KIND = "PartialObjectMetadata"

Wrap = Callable[[Sequence[bytes]], bytes]


def chunk(lines: Sequence[bytes]) -> bytes:
    """The lines as one chunk of a chunked body."""
    data = b"".join(lines)
    return b"%x\r\n%b\r\n" % (len(data), data)


def zipped(lines: Sequence[bytes]) -> bytes:
    """The lines as one chunk that is a gzip member; live watches share it as any other bytes."""
    data = zipping.whole(b"".join(lines))
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain(lines: Sequence[bytes]) -> bytes:
    """The lines as they are: for clients that do not support chunks."""
    return b"".join(lines)


def frames(lines: Sequence[bytes]) -> bytes:
    """Each line as a frame of text (R-AS-03)."""
    return b"".join([websocket.frame(websocket.TEXT, line) for line in lines])


class WatchForm:
    """The form in which one kind's objects are shown."""

    __slots__ = ("_columns", "_head", "_partial", "_whole", "key", "kind", "shape")

    def __init__(self, kind: Kind, shape: Shape = FULL) -> None:
        self.kind = kind
        self.shape = shape
        self.key = " ".join(map(str, shape))
        """Forms of one kind with the same key write the same."""
        self._columns = printing.columns(kind, bare=shape.bare) if self.is_table else []
        names = (kind.kind.encode(), kind.api_version.encode())
        self._head = b'{"kind":"%b","apiVersion":"%b"' % names
        self._whole = shapes.whole(shape)
        self._partial = shapes.partial(shape)

    @property
    def is_table(self) -> bool:
        """Whether objects are shown as rows, the first of a watch with its columns."""
        return self.shape.name == TABLE.name

    def line(self, event: str, obj: View, version: str | None, *, first: bool) -> bytes:
        """An event with its object; with `version`, if that differs from its own.

        `first`: of this watch. A table brings its columns then.
        """
        if self.is_table:
            return self._row(event, self._under(obj, version), first=first)
        if version is not None and event == watching.DELETED:
            return framing.event(event, self._last(obj, version))
        if self.shape.name == PARTIAL.name:
            return framing.event(event, obj.json_in(self._partial))
        return framing.event(event, self._typed(obj, obj.json_in(self._whole)))

    def bookmark(self, version: str, *, end: bool = False, first: bool = False) -> bytes:
        """A bookmark: everything up to this version was shown. `end`: of the initial events."""
        if self.is_table:
            metadata: dict[str, Any] = {"resourceVersion": version}
            if end:
                metadata["annotations"] = {framing.INITIAL_EVENTS_END: "true"}
            return self._row(watching.BOOKMARK, {"metadata": metadata}, first=first)
        if self.shape.name == PARTIAL.name:
            return framing.bookmark(PARTIAL_KIND, self.shape.api_version, version, end=end)
        kind = self.kind
        return framing.bookmark(
            kind.kind, kind.api_version, version, end=end, custom=kind.custom, zero=kind.zero
        )

    def _typed(self, obj: View, text: bytes) -> bytes:
        """Adds the type in front of an object that was stored without one."""
        if "kind" in obj:
            return text
        return self._head + (b"," if len(text) > 2 else b"") + text[1:]

    def _last(self, obj: View, version: str) -> bytes:
        found = self._under(obj, version)
        if self.shape.name == PARTIAL.name:
            head = {"kind": PARTIAL_KIND, "apiVersion": self.shape.api_version}
            return framing.encode({**head, "metadata": found["metadata"]})
        return self._typed(obj, framing.encode(found))

    def _under(self, obj: View, version: str | None) -> dict[str, Any]:
        """The object as the form has it, under another version."""
        found = obj.to_dict()
        metadata = found.get("metadata")
        if not isinstance(metadata, dict):
            metadata = found["metadata"] = {}
        if version is not None:
            metadata["resourceVersion"] = version
        if self.shape.lean:
            metadata.pop("managedFields", None)
        return found

    def _row(self, event: str, obj: dict[str, Any], *, first: bool) -> bytes:
        metadata = obj["metadata"]
        shown: dict[str, Any] | None = {
            "kind": PARTIAL_KIND,
            "apiVersion": self.shape.api_version,
            "metadata": metadata,
        }
        if self.shape.include == "None":
            shown = None
        elif self.shape.include == "Object":
            shown = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, **obj}
        row = {"cells": printing.cells(self._columns, obj), "object": shown}
        version = {"resourceVersion": metadata.get("resourceVersion", "")}
        columns = self._columns if first else None
        table = printing.table(columns, [row], version, self.shape.api_version)
        return framing.event(event, framing.encode(table))


def error(status: dict[str, Any]) -> bytes:
    """The event that reports a failure."""
    return framing.event(watching.ERROR, framing.escaped(orjson.dumps(status)))
