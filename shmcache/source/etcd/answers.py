"""WatchAnswer, RangeAnswer: answers of etcd as csrc/python/wire/pyetcd.c reads them."""

from __future__ import annotations

from typing import NamedTuple, Self

from shmcache.protocol.items import Item


class WatchEvent(NamedTuple):
    """A change, or an entry of a range, that objects.py makes an item of.

    Its value needs more than a version.
    """

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


class RangeAnswer(NamedTuple):
    """One RangeResponse. Entries of other keys than ours are left out of `events` alone."""

    cluster_id: int
    member_id: int
    revision: int
    raft_term: int
    more: bool
    events: list[Item | tuple[int, bytes, int, int, int, bytes]]
    """Items, and WatchEvents as plain tuples."""
    entries: int
    """How many entries."""
    size: int
    """Bytes of all values."""
    last_key: bytes
    newest_key: bytes
    newest_revision: int
    """The largest mod_revision, and its key; 0: the answer has no entry."""

    @property
    def header(self) -> Self:
        """The fields of the header are among the others."""
        return self


def revision_of(event: Item | tuple[int, bytes, int, int, int, bytes]) -> int:
    """The mod_revision of an event."""
    return int(event.version or 0) if isinstance(event, Item) else event[3]
