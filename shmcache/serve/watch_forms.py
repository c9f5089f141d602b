"""How events are written: whole objects, metadata only or rows of a table; chunks or frames.

A line is made once for all who want it so. What is shown of an object are the bytes of the arena;
only a DELETED, whose object carries the version of its end, is made by way of a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from shmcache.protocol import framing, printing, watching
from shmcache.protocol.accept import FULL, PARTIAL, TABLE
from shmcache.serve import websocket
from shmcache.serve.shapes import WHOLE

if TYPE_CHECKING:
    from shmcache._hot import View
    from shmcache.protocol.kinds import Kind

META = "meta.k8s.io/v1"
PARTIAL_KIND = "PartialObjectMetadata"

Wrap = Callable[[Sequence[bytes]], bytes]


def chunk(lines: Sequence[bytes]) -> bytes:
    """The lines as one chunk of a chunked body."""
    data = b"".join(lines)
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain(lines: Sequence[bytes]) -> bytes:
    """The lines as they are: to clients that know no chunks."""
    return b"".join(lines)


def frames(lines: Sequence[bytes]) -> bytes:
    """Each line as a frame of text (R-AS-03)."""
    return b"".join([websocket.frame(websocket.TEXT, line) for line in lines])


class Form:
    """How one kind's objects are shown. `include` is what rows carry (includeObject)."""

    __slots__ = ("_columns", "_head", "include", "key", "kind", "shape")

    def __init__(self, kind: Kind, shape: str = FULL, include: str = "") -> None:
        self.kind = kind
        self.shape = shape
        self.include = include
        self.key = f"{shape} {include}" if shape == TABLE else shape
        """Forms of one kind with the same key write the same."""
        self._columns = printing.columns(kind) if shape == TABLE else []
        names = (kind.kind.encode(), kind.api_version.encode())
        self._head = b'{"kind":"%b","apiVersion":"%b"' % names

    def line(self, event: str, obj: View, version: str | None, *, first: bool = False) -> bytes:
        """An event with its object; under `version`, if that is another one than its own.

        `first`: of this watch. A table brings its columns then.
        """
        if self.shape == TABLE:
            return self._row(event, _under(obj.to_dict(), version), first=first)
        if version is not None and event == watching.DELETED:
            return framing.event(event, self._last(obj, version))
        if self.shape == PARTIAL:
            return framing.event(event, self._partial(obj["metadata"].json_in(WHOLE)))
        return framing.event(event, self._typed(obj, obj.json_in(WHOLE)))

    def mark(self, version: str, *, end: bool = False, first: bool = False) -> bytes:
        """A bookmark: everything up to this version was shown. `end`: of the initial events."""
        if self.shape == TABLE:
            metadata: dict[str, Any] = {"resourceVersion": version}
            if end:
                metadata["annotations"] = {framing.INITIAL_EVENTS_END: "true"}
            return self._row(watching.BOOKMARK, {"metadata": metadata}, first=first)
        if self.shape == PARTIAL:
            return framing.bookmark(PARTIAL_KIND, META, version, end=end)
        kind = self.kind
        return framing.bookmark(
            kind.kind, kind.api_version, version, end=end, custom=kind.custom, zero=kind.zero
        )

    def _typed(self, obj: View, text: bytes) -> bytes:
        """What a writer stored without its type gets it in front."""
        if "kind" in obj:
            return text
        return self._head + (b"," if len(text) > 2 else b"") + text[1:]

    def _last(self, obj: View, version: str) -> bytes:
        if self.shape == PARTIAL:
            metadata = {**obj["metadata"].to_dict(), "resourceVersion": version}
            return self._partial(framing.encode(metadata))
        found = _under(obj.to_dict(), version)
        return self._typed(obj, framing.encode(found))

    @staticmethod
    def _partial(metadata: bytes) -> bytes:
        head = b'{"kind":"%b","apiVersion":"%b","metadata":'
        return head % (PARTIAL_KIND.encode(), META.encode()) + metadata + b"}"

    def _row(self, event: str, obj: dict[str, Any], *, first: bool) -> bytes:
        metadata = obj["metadata"]
        shown: dict[str, Any] | None = {
            "kind": PARTIAL_KIND,
            "apiVersion": META,
            "metadata": metadata,
        }
        if self.include == "None":
            shown = None
        elif self.include == "Object":
            shown = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, **obj}
        row = {"cells": printing.cells(self._columns, obj), "object": shown}
        version = {"resourceVersion": metadata.get("resourceVersion", "")}
        table = printing.table(self._columns if first else None, [row], version)
        return framing.event(event, framing.encode(table))


def error(status: dict[str, Any]) -> bytes:
    """The event that tells a failure."""
    return framing.event(watching.ERROR, framing.escaped(orjson.dumps(status)))


def _under(obj: dict[str, Any], version: str | None) -> dict[str, Any]:
    if version is None:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
