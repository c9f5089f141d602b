"""The keys of this machine's slots, for the feeder: which events are ours, what a gain brings.

SHAREFEED1  The keys of a gained slot are those of the objects of the controller's resource, and
    of those that were deleted lately while the slot was another's: their deletion may not have
    been dealt with there. Of more than REMEMBERED deletions the oldest are forgotten, and a
    feeder's death forgets them all; a controller that must not miss one uses a finalizer.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from shmcache.lease.slots import slot_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache.controllers.declaring import Controller
    from shmcache.controllers.tenure import Tenure
    from shmcache.queue.feeder import SourceEvent
    from shmcache.reader.cache import Cache

REMEMBERED = 65_536
REMEMBERED_SECONDS = 600.0


class TenureShare:
    """The meaning of the tenure on the board for keys."""

    def __init__(self, tenure: Tenure, cache: Cache, controller: Controller) -> None:
        self._tenure = tenure
        self._cache = cache
        self._sources = controller.sources
        self._resource = controller.sources.kind.resource
        self._deleted: OrderedDict[str, float] = OrderedDict()
        self._adding = 0

    def ours(self, keys: list[str], event: SourceEvent) -> list[str]:
        """Those of the keys of an event whose slots are ours now."""
        found = [key for key in keys if self._tenure.epoch(key)]
        if len(found) < len(keys) and event.kind == "DELETED" and event.resource == self._resource:
            self._deleted[event.key] = time.monotonic()
            self._deleted.move_to_end(event.key)
            if len(self._deleted) > REMEMBERED:
                self._deleted.popitem(last=False)
        return found

    def gained(self) -> Iterator[str]:
        """The keys of slots that were gained since the last time (SHAREFEED1)."""
        slots = self._tenure.gained()
        self._adding = 0
        if not slots or self._resource not in self._cache:
            return
        self._adding = max(slots.values())
        for key, _ in self._cache[self._resource].range():
            if slot_of(key) in slots and self._sources.ours(key):
                yield str(key)
        oldest = time.monotonic() - REMEMBERED_SECONDS
        for key, when in list(self._deleted.items()):
            if when < oldest or slot_of(key) in slots:
                del self._deleted[key]
            if when >= oldest and slot_of(key) in slots and self._sources.ours(key):
                yield key

    def added(self) -> None:
        """The keys of all that gained() returned are in the queue."""
        if self._adding:
            self._tenure.fed = self._adding
