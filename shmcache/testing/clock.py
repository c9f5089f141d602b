"""A clock that stands still until a test advances it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ManualClock:
    """Seconds that pass when the test advances them; called as time.monotonic is."""

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def __call__(self) -> float:
        """The time."""
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> float:
        """Lets so much time pass, and wakes the callers that wait for it. The new time."""
        if seconds < 0:
            raise ValueError("time does not go back")
        with self._lock:
            self._now += seconds
            now, listeners = self._now, list(self._listeners)
        for listener in listeners:
            listener()
        return now

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each advance()."""
        with self._lock:
            self._listeners.append(listener)
