"""Reports that the cache has something new: to watches, and to requests that wait for a version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shmcache.reader import waiting
from shmcache.reader.relay import Relay
from shmcache.serve.http.loop import READ

if TYPE_CHECKING:
    from shmcache._hot import Reader
    from shmcache.reader.cache import Cache
    from shmcache.serve.http.loop import Loop

LOOK_SECONDS = 0.1
"""Between a writer and its successor there is no bell."""


class Bell:
    """Rings in the loop's thread, only while somebody listens: an unused server is never woken.

    A listener that was added before it looked at the cache misses nothing: every later publication
    rings. The bell also rings after the writer was restarted.
    """

    def __init__(self, loop: Loop, cache: Cache) -> None:
        self._loop = loop
        self._cache = cache
        self._listeners: dict[Callable[[], object], None] = {}
        self._relay: Relay | None = None
        self._reader: Reader | None = None

    def add(self, listener: Callable[[], object]) -> None:
        """Calls the function at each publication: of objects, a state or a version."""
        self._listeners[listener] = None
        self._attach()

    def remove(self, listener: Callable[[], object]) -> None:
        """Stops calling the function. Idempotent."""
        self._listeners.pop(listener, None)
        if not self._listeners:
            self._loop.call_later(1.0, self._rest)

    def _rest(self) -> None:
        if not self._listeners:
            self.close()

    def _attach(self) -> None:
        reader = self._cache.reader
        if self._relay is not None and self._reader is reader:
            return
        self.close()
        if reader.spent:
            self._loop.call_later(LOOK_SECONDS, self._look)
            return
        wanted = (waiting.EVERYTHING, waiting.EVERYTHING, reader.latest)
        self._relay, self._reader = Relay(reader, wanted), reader
        self._loop.add(self._relay.fd, READ, self._rung)

    def _look(self) -> None:
        if self._listeners and self._relay is None:
            self._attach()
            self._ring()

    def _rung(self, _events: int) -> None:
        if self._relay is not None:
            self._relay.clear()
        if self._reader is None or self._reader.spent:
            self.close()
            self._attach()
        self._ring()

    def _ring(self) -> None:
        for listener in list(self._listeners):
            if listener in self._listeners:
                listener()

    def close(self) -> None:
        """Ends its thread; add() starts another one."""
        relay, self._relay, self._reader = self._relay, None, None
        if relay is not None:
            self._loop.remove(relay.fd)
            relay.close()
