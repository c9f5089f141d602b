"""How fast requests may start: a bucket of tokens that all feeds share.

A hundred resources that start at once, or all lose their server at once, come one after another.
Waits after failures are the reflector's business and come on top. The further
pages of a list take no tokens: a list of 100,000 objects has 200 of them, each asked for when the
one before has come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """`rate` requests a second, and `burst` of them at once after a rest. Thread-safe."""

    __slots__ = ("_burst", "_clock", "_free_at", "_lock", "_spacing")

    def __init__(
        self, rate: float, burst: int = 10, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spacing = 1 / rate
        self._burst = burst * self._spacing
        self._clock = clock
        self._free_at = float("-inf")  # when the bucket would be full again, less a burst
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Takes the next turn: the seconds until it comes."""
        with self._lock:
            now = self._clock()
            turn = max(self._free_at, now - self._burst)
            self._free_at = turn + self._spacing
            return max(0.0, turn - now)

    def wait(self, stop: threading.Event) -> None:
        """Returns at the turn of the caller, or when it is to stop."""
        delay = self.reserve()
        if delay:
            stop.wait(delay)
