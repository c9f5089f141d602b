"""The gate: how the feeds of one server find out together that it answers again.

A feed that the server has failed waits here. While the server fails, one feed at a time sends a
probe; as soon as a probe is answered all of them go on, at the pace of the process.

Invariants
    GATE1  a feed goes on only with the result of a probe that began after the feed began to wait,
           so that the version in it is newer than anything that the feed knew when it was cut off.
    GATE2  for one cause, at most one probe starts within INTERVALS, however many feeds wait. A
           probe that is not over after PATIENCE does not keep another feed from sending the next,
           nor does one whose resource the server refused: that failure is not of this cause.
    GATE3  no feed goes on before the seconds that it has to wait itself; those bound what one feed
           does alone, to a server that answers probes and nothing else.
    GATE4  an answer that a feed may use ends its wait at once; no time has to pass.
    GATE5  a feed whose last probe failed leaves the next one to the others for COURTESY: resources
           that stay broken on a server that answers do not keep a healthy one waiting.

Causes are kept apart: a server that is down, and one that does not know our identity, come back
for different reasons. A resource that we may not read (403) is not a cause: its feed waits alone,
outside of the gate, as rights are granted for one resource at a time.

A feed whose probe fails waits again, behind the others: the turn goes round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from shmcache.reflector.retrying import ACCESS, SERVER

INTERVALS = {SERVER: 1.0, ACCESS: 5.0}
"""Seconds after a probe that failed until the next one, and up to half as much more by chance."""
PATIENCE = 5.0
"""Seconds in which a probe should be answered or have failed."""
COURTESY = 0.25
"""Seconds that a feed whose last probe failed waits longer than others for its next one."""


class Waiter(NamedTuple):
    """A feed that waits: for which cause, since when, and until when at least."""

    cause: str
    since: float
    ready: float
    again: bool = False
    """Whether its last probe failed, and the server has not served it since."""


class Turn(NamedTuple):
    """The wait is over. `version`: the server's; None: the feed is to send a probe."""

    version: str | None


@dataclass(slots=True)
class _Outage:
    """The probes of one cause."""

    began: float = float("-inf")
    """When the last probe that was answered began."""
    version: str = ""
    """The version of the server in its answer."""
    next_at: float = float("-inf")
    probing_since: float | None = None


class Gate:
    """The gate of one server. Thread-safe."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, rng: Random | None = None
    ) -> None:
        self._clock = clock
        self._rng = rng or Random()
        self._changed = threading.Condition()
        self._outages = {cause: _Outage() for cause in INTERVALS}

    def join(self, cause: str, seconds: float, *, again: bool = False) -> Waiter:
        """Begins a wait of at least so many seconds. `again`: after a probe that failed (GATE5)."""
        now = self._clock()
        return Waiter(cause, now, now + seconds, again)

    def ask(self, waiter: Waiter) -> Turn | None:
        """Whether this feed may go on now; with a Turn to probe it owes answered() or failed()."""
        with self._changed:
            now, found = self._clock(), self._outages[waiter.cause]
            if now < waiter.ready:
                return None
            if found.began >= waiter.since:
                return Turn(found.version)
            if now < self._due(waiter):
                return None
            found.probing_since = now
            return Turn(None)

    def due(self, waiter: Waiter) -> float:
        """When to ask again, unless a probe is over before."""
        with self._changed:
            return self._due(waiter)

    def _due(self, waiter: Waiter) -> float:
        found = self._outages[waiter.cause]
        if found.began >= waiter.since:
            return waiter.ready
        busy = found.next_at if found.probing_since is None else found.probing_since + PATIENCE
        return max(waiter.ready, busy + COURTESY * waiter.again)

    def wait(
        self, cause: str, seconds: float, stop: threading.Event, *, again: bool = False
    ) -> str | None:
        """Blocks until this feed may go on, or is stopped (wake()); the version of its Turn."""
        waiter = self.join(cause, seconds, again=again)
        with self._changed:
            while not stop.is_set():
                turn = self.ask(waiter)
                if turn is not None:
                    return turn.version
                self._changed.wait(max(0.0, self._due(waiter) - self._clock()))
        return None

    def answered(self, cause: str, began: float, version: str) -> None:
        """A probe that began then was answered: everybody who waited at that time goes on."""
        with self._changed:
            found = self._outages[cause]
            found.probing_since, found.next_at = None, self._clock()
            if began > found.began:
                found.began, found.version = began, version
            self._changed.notify_all()

    def failed(self, cause: str, *, alone: bool = False) -> None:
        """A probe failed: the next one is sent later. `alone`: just this resource was refused."""
        with self._changed:
            found = self._outages[cause]
            found.probing_since = None
            pause = 0.0 if alone else INTERVALS[cause] * (1 + 0.5 * self._rng.random())
            found.next_at = self._clock() + pause
            self._changed.notify_all()

    def wake(self) -> None:
        """Has every feed look whether it is stopped."""
        with self._changed:
            self._changed.notify_all()
