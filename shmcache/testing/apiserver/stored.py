"""One state of one object, and one change: with their texts, which are made once."""

from __future__ import annotations

from typing import Any

from shmcache.protocol import framing
from shmcache.protocol.accept import FULL, PARTIAL, Shape
from shmcache.protocol.kinds import Kind

Object = dict[str, Any]


class Stored:
    """An object as it was written; nobody changes `obj` any more."""

    __slots__ = ("_texts", "key", "namespace", "obj", "version")

    def __init__(self, key: str, obj: Object, version: int) -> None:
        self.key = key
        self.namespace = key.rpartition("/")[0]
        self.obj = obj
        self.version = version
        self._texts: dict[tuple[str, bool], bytes] = {}

    @property
    def name(self) -> str:
        """Of the object, without its namespace."""
        return self.key.rpartition("/")[2]

    def item(self, kind: Kind, shape: Shape = FULL) -> bytes:
        """As a list has it: built-in objects come without their type."""
        if shape.name == PARTIAL.name or kind.custom:
            return self.whole(kind, shape)
        return self._text(kind.api_version, framing.ordered, lean=shape.lean)

    def whole(self, kind: Kind, shape: Shape = FULL) -> bytes:
        """As a single object or a watch has it, with its type."""
        if shape.name == PARTIAL.name:
            text = self._text(PARTIAL.name, _metadata_only, lean=shape.lean)
            return framing.typed("PartialObjectMetadata", shape.api_version, text)
        if kind.custom:
            return self._text(
                kind.api_version, lambda obj: _retyped(obj, kind), sort=True, lean=shape.lean
            )
        return framing.typed(kind.kind, kind.api_version, self.item(kind, shape))

    def at(self, version: int) -> Stored:
        """The same state under another version, as a deletion shows it."""
        metadata = {**self.obj["metadata"], "resourceVersion": str(version)}
        return Stored(self.key, {**self.obj, "metadata": metadata}, version)

    def _text(self, name: str, of: Any, *, sort: bool = False, lean: bool = False) -> bytes:
        text = self._texts.get((name, lean))
        if text is None:
            obj = of(leaner(self.obj) if lean else self.obj)
            text = self._texts[name, lean] = framing.encode(obj, sort=sort)
        return text


def leaner(obj: Object) -> Object:
    """The object without metadata.managedFields."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    return {**obj, "metadata": metadata}


def _metadata_only(obj: Object) -> Object:
    return {"metadata": framing.ordered(obj)["metadata"]}


def _retyped(obj: Object, kind: Kind) -> Object:
    return {**obj, "apiVersion": kind.api_version, "kind": kind.kind}


class StoredChange:
    """One write to one object; `old` is None for a new one, `new` for a deleted one."""

    __slots__ = ("_last", "_lines", "key", "namespace", "new", "old", "version")

    def __init__(self, version: int, old: Stored | None, new: Stored | None) -> None:
        either = new or old
        assert either is not None
        self.version = version
        self.key = either.key
        self.namespace = either.namespace
        self.old = old
        self.new = new
        self._last: Stored | None = None
        self._lines: dict[tuple[str, str, Shape], bytes] = {}

    def shown(self, event: str) -> Stored:
        """The state that an event of this type carries: of DELETED the old one, at this version."""
        if event != "DELETED":
            assert self.new is not None
            return self.new
        if self._last is None:
            assert self.old is not None
            self._last = self.old.at(self.version)
        return self._last

    def line(self, event: str, kind: Kind, shape: Shape = FULL) -> bytes:
        """The event's line; made once for all watches."""
        key = (event, kind.api_version, shape)
        line = self._lines.get(key)
        if line is None:
            line = framing.event(event, self.shown(event).whole(kind, shape))
            self._lines[key] = line
        return line
