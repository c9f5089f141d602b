"""Limits how often each client may cause something: so many a second, and a few at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

MOST = 4096
"""Clients that are remembered; one that is forgotten begins with a full allowance."""


class Allowance:
    """Of each client, by its address or name."""

    def __init__(self, per_second: float, at_once: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._at_once = at_once
        self._clock = clock
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """The rest that each client had, and when; the least recent client is first."""

    def take(self, client: Hashable) -> bool:
        """Whether the client may do it once more."""
        now = self._clock()
        left, at = self._left.pop(client, (self._at_once, now))
        left = min(left + (now - at) * self._per_second, self._at_once)
        may = left >= 1
        self._left[client] = (left - 1 if may else left, now)
        if len(self._left) > MOST:
            self._left.popitem(last=False)
        return may
