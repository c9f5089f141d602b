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
