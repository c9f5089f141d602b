"""Backoff: how long to wait before the next attempt.

Delays double up to a cap and are spread by chance, so that a thousand clients of one server do not
come back together. The clock and the random numbers are the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffSettings:
    """The numbers; those of client-go by default, so that we are no worse a client than it is."""

    initial: float = 0.8
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 1.0
    """A delay d becomes one in [d, d * (1 + jitter))."""
    reset_after: float = 120.0
    """Not asked for so many seconds: what failed works again, the next delay is the first."""


class Backoff:
    """The delays of one thing that is tried again and again."""

    __slots__ = ("_asked", "_delay", "_rng", "_settings")

    def __init__(self, settings: BackoffSettings, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self._delay = settings.initial
        self._asked: float | None = None

    def next(self, now: float) -> float:
        """The seconds to wait from now on; each call makes the next delay longer."""
        settings = self._settings
        if self._asked is not None and now - self._asked > settings.reset_after:
            self._delay = settings.initial
        self._asked = now
        delay = min(self._delay, settings.cap)
        self._delay = min(delay * settings.factor, settings.cap)
        return delay * (1 + settings.jitter * self._rng.random())
