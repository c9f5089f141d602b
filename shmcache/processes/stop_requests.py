"""Requests to end, as signals bring them: the first one drains, a later one ends at once.

STOP1  Requests within AGAIN_SECONDS of the first one are the same request. timeout(1), service
       managers and ctrl-C signal a process and its whole group, and a parent that is signalled
       passes the signal on: one request arrives two or three times within milliseconds.
STOP2  Any request after that insists: the process ends at once and does not finish its drain.
STOP3  A process whose work is done ends with its own status: Python's end would give signals back
       to the system's default action before the process is gone.
"""

from __future__ import annotations

import atexit
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN_SECONDS = 1.0


class StopRequests:
    """Counts requests to end. Safe in signal handlers."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._first: float | None = None

    def insists(self) -> bool:
        """Notes a request; True if it asks to skip the drain (STOP2)."""
        now = self._clock()
        if self._first is None:
            self._first = now
            return False
        return now - self._first >= AGAIN_SECONDS


def ignore_at_exit() -> None:
    """From the beginning of Python's end no request ends this process (STOP3)."""
    atexit.register(_ignore)


def _ignore() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
