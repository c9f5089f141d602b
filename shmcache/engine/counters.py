"""What a feed has done since it was asked last, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


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
    exceeded: int = 0
    """How often what came did not fit."""
    crashes: int = 0
    """Times that the feed's own thread failed and began anew: each is a bug."""
