"""The work of a feed since the last look, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from shmcache.protocol.items import Item


@dataclass(slots=True)
class Counters:
    """Of one feed, for the time between two looks."""

    lists: int = 0
    """Pages asked for."""
    watches: int = 0
    events: int = 0
    """Objects that came by a watch."""
    bookmarks: int = 0
    errors: int = 0
    """Requests that ended otherwise than they should."""
    relists: int = 0
    """Contents put in place, but for the first."""
    bytes: int = 0
    """Of the objects that came, by list or watch."""
    refused: int = 0
    """Objects that were left out: not storable, or the transform failed on them."""
    repairs: int = 0
    """Keys that the server contradicted, and that were put right."""
    exceeded: int = 0
    """How often what came did not fit."""
    crashes: int = 0
    """Times that the feed's own thread failed and started again: each is a bug."""
    stored: int = 0
    """Objects of a watch whose way was timed, from their arrival until readers saw them."""
    storing_ns: int = 0
    stored_1ms: int = 0
    stored_10ms: int = 0
    stored_100ms: int = 0
    cut: int = 0
    """Watches that ended early while events that had arrived were yet to be read."""
    stamp_ns: int = 0
    """How old the time stamps of events are at least, as of `stamped_ns`; see stamps.py."""
    stamped_ns: int = 0

    def time(self, objects: int, seconds: float) -> None:
        """Adds the way of objects that arrived together."""
        self.stored += objects
        self.storing_ns += objects * int(seconds * 1e9)
        self.stored_1ms += objects * (seconds <= 0.001)
        self.stored_10ms += objects * (seconds <= 0.01)
        self.stored_100ms += objects * (seconds <= 0.1)

    def timed(self, objects: int) -> dict[str, int]:
        """The times of some of the objects alone: those of one batch have the same."""
        every = self.stored
        if not every:
            return {}
        names = ("stored", "storing_ns", "stored_1ms", "stored_10ms", "stored_100ms")
        return {name: getattr(self, name) * objects // every for name in names}

    def count(self, items: list[Item]) -> bool:
        """Adds a batch of a watch; whether it has nothing but objects and bookmarks."""
        size = objects = bookmarks = 0
        for item in items:
            size += len(item.raw)
            if item.key:
                objects += 1
            elif item.type == "BOOKMARK":
                bookmarks += 1
        self.bytes += size
        self.events += objects
        self.bookmarks += bookmarks
        return objects + bookmarks == len(items)
