"""The reflector's own reader: its process sees the cache as workers do.

It takes a seat at its first use, so that a reflector that nobody asks has none.
"""

from __future__ import annotations

import threading

from shmcache.errors import ClosedError
from shmcache.memory.segments import Place
from shmcache.reader.cache import Cache


class OwnReader:
    """One attachment for all threads of the reflector."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._cache: Cache | None = None
        self._over = False

    def cache(self) -> Cache:
        """The attachment. BusyError without a free seat, ClosedError at the end."""
        with self._lock:
            if self._over:
                raise ClosedError("the reflector ends")
            if self._cache is None:
                self._cache = Cache(self._place)
            return self._cache

    def close(self) -> None:
        """Gives the seat back; sleepers wake."""
        with self._lock:
            self._over = True
            if self._cache is not None:
                self._cache.close()
