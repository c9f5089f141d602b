"""How old the time stamps in objects are when the objects arrive.

A change does not say when it happened, but many objects carry a time of it: the creation, the last
write of a field's manager, a Lease's renewal, the last occurrence of an Event. The age of that time
when the event of a watch arrives is an upper bound of the event's way from the writer to here, by
the clocks of both machines. A single one may be far too large (the change was another one), so the
smallest of a minute counts.

    STAMP1  an object of a list says nothing: it may have been created long ago. Of events, a
        creation time counts for ADDED alone, and DELETED has no stamp of its change.
    STAMP2  at most one object each second is decoded, and none beyond LARGEST: the cost does not
        rise with the events.
    STAMP3  the wall clock is for people: nothing is decided by these ages. Clocks that differ make
        all of them wrong by the same amount; one that would be negative counts as 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from shmcache.protocol.items import Item
from shmcache.protocol.jsontext import decoded

LOOK_SECONDS = 1.0
LARGEST = 64 << 10
LONGEST = 1e9
"""In seconds: the age of whatever is older, such as Go's zero time of the year 1. A word of
nanoseconds in the contact block holds 584 years."""
WINDOW = 60.0
"""Seconds for which the smallest age counts."""


class StampAge(NamedTuple):
    """An age, and the time of the monotonic clock at which it was found."""

    seconds: float
    at: float


class StampAges:
    """The smallest recent age of one feed. For one thread."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._wall = wall
        self._due = 0.0
        self._smallest: StampAge | None = None

    def look(self, items: list[Item]) -> StampAge | None:
        """Looks at the last stamped one of events that arrived now; None: nothing new."""
        now = self._now()
        if now < self._due:
            return None
        for item in reversed(items):
            if item.key and len(item.raw) <= LARGEST:
                break
        else:
            return None
        self._due = now + LOOK_SECONDS  # STAMP2
        stamp = max(stamps_of(item), default=None)
        if stamp is None:
            return None
        age = min(max(self._wall() - stamp, 0.0), LONGEST)
        smallest = self._smallest
        if smallest is None or age <= smallest.seconds or now - smallest.at > WINDOW:
            self._smallest = smallest = StampAge(age, now)
        return StampAge(smallest.seconds, now)


def stamps_of(item: Item) -> Iterator[float]:
    """The times that an event states for its change, in seconds since 1970."""
    if item.type == "DELETED":
        return  # STAMP1
    try:
        obj = decoded(item.raw)
    except ValueError:  # the server and the core take what json does not
        return
    metadata = _part(obj, "metadata")
    if item.type == "ADDED":
        yield from _times(metadata, "creationTimestamp")
    managers = metadata.get("managedFields")
    for manager in managers if isinstance(managers, list) else ():
        yield from _times(manager, "time")
    if item.kind == "Lease":
        yield from _times(_part(obj, "spec"), "renewTime")
    elif item.kind == "Event":
        yield from _times(obj, "eventTime", "lastTimestamp", "deprecatedLastTimestamp")
        yield from _times(_part(obj, "series"), "lastObservedTime")


def _part(obj: Any, name: str) -> dict[str, Any]:
    found = obj.get(name) if isinstance(obj, dict) else None
    return found if isinstance(found, dict) else {}


def _times(obj: Any, *names: str) -> Iterator[float]:
    """Those of the fields that hold a time: custom resources may hold anything."""
    for name in names if isinstance(obj, dict) else ():
        text = obj.get(name)
        if isinstance(text, str) and text.endswith("Z"):
            try:
                yield datetime.fromisoformat(text).timestamp()
            except ValueError:
                continue
