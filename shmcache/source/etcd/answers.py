"""WatchAnswer, WatchEvent: an answer of etcd's watch as csrc/python/wire/pyetcd.c reads it."""

from __future__ import annotations

from typing import NamedTuple

from shmcache.protocol.items import Item


class WatchEvent(NamedTuple):
    """A change that objects.py makes an item of: its value needs more than a version."""

    type: int
    key: bytes
    create_revision: int
    mod_revision: int
    version: int
    value: bytes


class WatchAnswer(NamedTuple):
    """One WatchResponse. Events of other keys than ours are left out, but for the last_ fields."""

    cluster_id: int
    member_id: int
    revision: int
    raft_term: int
    watch_id: int
    created: bool
    canceled: bool
    compact_revision: int
    cancel_reason: str
    fragment: bool
    events: list[Item | tuple[int, bytes, int, int, int, bytes]]
    """Items, and WatchEvents as plain tuples."""
    last_key: bytes
    last_revision: int
    """Of the last event; 0: the answer has none."""
    last_type: int


def revision_of(event: Item | tuple[int, bytes, int, int, int, bytes]) -> int:
    """The mod_revision of an event."""
    return int(event.version or 0) if isinstance(event, Item) else event[3]
