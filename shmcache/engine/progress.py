"""How far a first list has come, on a terminal: one line that is drawn over itself, then gone."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self, TextIO

    from shmcache.reader.freshness import Status

WIDTH = 24
DRAW_SECONDS = 0.1
DELAY_SECONDS = 0.3  # a quicker list needs no bar


class Progress:
    """Nothing at all where there is no terminal.

    A server does not say how long its list will be: the bar only moves while bytes come.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shows = out.isatty()
        self._start = time.monotonic()
        self._next = self._start + DELAY_SECONDS
        self._drawn = False

    def show(self, name: str, status: Status) -> None:
        """The line of a resource that is listed, if it is time to draw it."""
        now = time.monotonic()
        if not self._shows or now < self._next:
            return
        from shmcache.settings import format_size

        self._next = now + DRAW_SECONDS
        size = status.counters["bytes"]
        step = (size >> 16) % (2 * WIDTH)
        at = min(step, 2 * WIDTH - step) * (WIDTH - 4) // WIDTH
        bar = "·" * at + "━━━━" + "·" * (WIDTH - 4 - at)
        seconds = now - self._start
        line = f"{name}: listing [{bar}] {format_size(size)} came in {seconds:.1f} s"
        self._out.write(f"\r\x1b[K{line[:119]}")
        self._out.flush()
        self._drawn = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Takes the line away, if there is one."""
        if self._drawn:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._drawn = False
