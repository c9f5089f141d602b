"""What a list or a watch carries: one object each, known by name before it is decoded."""

from __future__ import annotations

from typing import NamedTuple

LISTED = "LISTED"
"""The type of an item that came in a list."""
GARBAGE = "GARBAGE"
"""The type of a watch line that is no event: `raw` is the line."""


class Item(NamedTuple):
    """One object as it came: what routing and versions need, and the bytes of the object itself."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, whatever else the server says; LISTED, GARBAGE."""
    key: str
    """namespace/name, or name; empty where the object has no name (BOOKMARK, ERROR)."""
    version: str | None
    uid: str | None
    kind: str | None
    api_version: str | None
    raw: bytes
    """The JSON text of the object: of an ERROR its Status, of GARBAGE the whole line."""


class ListMeta(NamedTuple):
    """What a list says beside its items; `remaining` is the server's remainingItemCount."""

    version: str
    continue_token: str
    remaining: int | None
    kind: str | None
    api_version: str | None
