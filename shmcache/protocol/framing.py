"""Objects and events as the API server writes them: key order, escapes, lines, chunks.

The text of an object is encoded once and put together from then on: what a list's item, a watch's
event and a single object have in common are the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

BUFFER = 2048
"""Small writes are collected in a buffer of this size; it goes out as one chunk."""
METADATA_ORDER = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_SHORT = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))
_LONG = (("\u2028".encode(), b"\\u2028"), ("\u2029".encode(), b"\\u2029"))
_LEAD = b"\xe2"
"""The first byte of both long ones: a search for one byte is many times as quick as for three."""


def escaped(text: bytes) -> bytes:
    """JSON with the escapes of Go's encoder, in addition to those that JSON must have."""
    for raw, instead in _SHORT:
        if raw in text:
            text = text.replace(raw, instead)
    if _LEAD in text:
        for raw, instead in _LONG:
            text = text.replace(raw, instead)
    return text


def encode(value: Any, *, sort: bool = False) -> bytes:
    """Compact JSON with Go's escapes; keys as they come, or sorted (custom resources)."""
    return escaped(orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort else None))


def ordered(obj: dict[str, Any]) -> dict[str, Any]:
    """A built-in object without its type, metadata first and in the server's order."""
    metadata = obj["metadata"]
    first = {key: metadata[key] for key in METADATA_ORDER if key in metadata}
    rest = {k: v for k, v in obj.items() if k not in {"kind", "apiVersion", "metadata"}}
    return {"metadata": first, **rest}


def typed(kind: str, api_version: str, text: bytes) -> bytes:
    """The text of a built-in object with its type in front."""
    return b'{"kind":"%b","apiVersion":"%b",%b' % (kind.encode(), api_version.encode(), text[1:])


def event(kind: str, obj: bytes) -> bytes:
    """One line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)


def bookmark(
    kind: str,
    api_version: str,
    version: int | str,
    *,
    end: bool,
    custom: bool = False,
    zero: Mapping[str, Any] | None = None,
) -> bytes:
    """The line by which a watch learns how far it has come; `end` marks the end of initial events.

    `zero` is the content of the kind's empty object, without its metadata.
    """
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    obj = {"kind": kind, "apiVersion": api_version, "metadata": metadata, **(zero or {})}
    return event("BOOKMARK", encode(obj, sort=custom))


class Chunker:
    """Cuts a body into the chunks of the real server: 2 KiB for small writes, large ones whole."""

    def __init__(self) -> None:
        self._held = bytearray()

    def write(self, data: bytes) -> list[bytes]:
        """The chunks that this write completes."""
        out = []
        room = BUFFER - len(self._held)
        while len(data) > room:
            if self._held:
                self._held += data[:room]
                out.append(bytes(self._held))
                self._held.clear()
                data = data[room:]
            else:
                out.append(data)
                data = b""
            room = BUFFER
        self._held += data
        return out

    def flush(self) -> list[bytes]:
        """The rest, if any."""
        out = [bytes(self._held)] if self._held else []
        self._held.clear()
        return out


def pretty(text: bytes) -> bytes:
    """JSON laid out for people, as curl and browsers get it."""
    return escaped(orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2))
