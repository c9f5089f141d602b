"""Items of lists and watches: one object each, known by name before it is decoded."""

from __future__ import annotations

from typing import NamedTuple

LISTED = "LISTED"
"""The type of an item that came in a list."""
GARBAGE = "GARBAGE"
"""The type of a watch line that is not an event: `raw` is the line."""
REFUSED = "refused"
"""The `api_version` of an item that its source could not make an object of; `raw` says why."""


class Item(NamedTuple):
    """One object as it came: what routing and versions need, and the bytes of the object itself."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, any other type of the server; LISTED, GARBAGE."""
    key: str
    """namespace/name, or name; empty where the object has no name (BOOKMARK, ERROR)."""
    version: str | None
    uid: str | None
    kind: str | None
    api_version: str | None
    raw: bytes
    """The JSON text of the object: of an ERROR its Status, of GARBAGE the whole line."""


class Identity(NamedTuple):
    """One state of one object: a version alone is a number that two histories may both have."""

    uid: str
    version: str


class ListMeta(NamedTuple):
    """The metadata of a list; `remaining` is the server's remainingItemCount."""

    version: str
    continue_token: str
    remaining: int | None
    kind: str | None
    api_version: str | None
