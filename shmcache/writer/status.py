"""The state of each resource and of its source, as the writer publishes it.

A state, its reason and a version are part of a generation. note() changes none: its values are
visible at once, wake nobody, and cost a few stores, so that it may be called for every chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from shmcache._native import REASON_MAX, check, ffi, lib
from shmcache.writer.catalogue import text_of

if TYPE_CHECKING:
    from shmcache.writer.catalogue import Declared
    from shmcache.writer.handle import Handle


CAUGHT_UP = 1


class Note(TypedDict, total=False):
    """The arguments of note(): increments, and times of monotonic_ns() in those of _ns."""

    contact_ns: int
    behind_ns: int
    """Since when events that exist are not stored; CAUGHT_UP: all are."""
    lists: int
    watches: int
    events: int
    bookmarks: int
    errors: int
    relists: int
    bytes: int
    refused: int
    repaired: int
    stored: int
    """Events whose way from their arrival to the readers took `storing_ns` together."""
    storing_ns: int
    stored_1ms: int
    stored_10ms: int
    stored_100ms: int
    cut: int
    stamp_ns: int
    """How old time stamps of events were on their arrival: replaced, at the time `stamped_ns`."""
    stamped_ns: int


def set_state(
    handle: Handle, declared: Declared, state: int, version: str | None, reason: str
) -> None:
    """Publishes a state with its reason, and a version if one is given."""
    text = reason.encode(errors="replace")[:REASON_MAX].decode(errors="ignore").encode()
    with handle.change(declared.name, whole=True) as raw:
        check(lib.shmc_set_state(raw, declared.id, state), f"{declared.name}: state")
        status = lib.shmc_set_reason(raw, declared.id, text, len(text))
        check(status, f"{declared.name}: reason")
        if version is not None:
            check(lib.shmc_set_version(raw, declared.id, *text_of(version)), declared.name)


def set_version(handle: Handle, declared: Declared, version: str) -> None:
    """Publishes a resourceVersion alone, which wakes nobody."""
    with handle.change(declared.name, whole=False) as raw:
        check(lib.shmc_set_version(raw, declared.id, *text_of(version)), declared.name)


def set_marks(handle: Handle, declared: Declared, marks: str) -> None:
    """Stores how far each part of the source is, for the next writer; wakes nobody."""
    with handle.change(declared.name, whole=False) as raw:
        check(lib.shmc_set_source(raw, declared.id, *text_of(marks)), declared.name)


def note(handle: Handle, declared: Declared, increments: Note) -> None:
    """Counts the events of a source and the time of its last contact, visible at once."""
    made = ffi.new("struct shmc_note *", increments)
    with handle.turn() as raw:
        check(lib.shmc_note(raw, declared.id, made), f"{declared.name}: note {increments}")
