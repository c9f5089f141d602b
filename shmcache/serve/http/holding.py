"""The memory that a server holds for its clients: one number for all of them together.

A connection holds bytes that it has received and not used (parts of heads and bodies, requests that
came early) and bytes that its client has not taken. Idle connections hold nothing.

    HOLD1  `total` is what all connections hold, and stays within `most`: where more would be held,
           the connections that have held longest end. How long counts from the first byte, so a
           client that takes or sends a little now and then buys no time. They end one after the
           other, never one within another's end: thousands that hold little make room for one.
    HOLD2  above half of that, nothing more is made for clients: pieces of lists and of watches wait
           in line, and connections that have held for PRESSED_SECONDS make room for them.
    HOLD3  bytes that several connections wait to send are one object, and are counted once.
    HOLD4  no piece of a list or a watch is made before there is room for it, the first one
           included, and none is kept once it was sent.
    HOLD5  what a request keeps besides such bytes (its head, its selectors, the differences of an
           exact version) is weighed while it waits or its answer goes on: see weights.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shmcache.serve.http.loop import Loop
    from shmcache.serve.http.wire import Wire

PRESSED_SECONDS = 2.0
"""A client may take so long over a piece while others wait for room."""
LOOK_SECONDS = 0.25
PIECE = 256
"""Bytes that a piece costs besides its own: small ones must not be cheap."""
RESUMED = 16
"""Waiting pieces that are made in one turn."""


class Holding:
    """Counts, makes others wait, and ends the connections that have held longest."""

    def __init__(self, loop: Loop, most: int) -> None:
        self.most = most
        self.total = 0
        self.ended = 0
        """Connections that had to make room."""
        self._loop = loop
        self._since: dict[Wire, float] = {}
        """When each connection began to hold something; the longest first."""
        self._shared: dict[int, int] = {}
        """How often each object waits to be sent, by its id."""
        self._waiting: dict[Wire, Callable[[], object]] = {}
        """Connections that wait for room, in their order, and how each goes on."""
        self._looking = False
        self._resuming = False
        self._ending = False

    # ---- counting --------------------------------------------------------------------------------

    def note(self, wire: Wire, more: int) -> None:
        """A connection has received or used bytes: it holds `more` than before."""
        self.total += more
        self._see(wire)

    def keep(self, wire: Wire, data: bytes) -> None:
        """An object waits to be sent on a connection."""
        count = self._shared.get(id(data), 0)
        self._shared[id(data)] = count + 1
        self.total += PIECE + (0 if count else len(data))
        self._see(wire)

    def drop(self, data: bytes) -> None:
        """It waits there no more; see() follows."""
        count = self._shared[id(data)] - 1
        self.total -= PIECE
        if count:
            self._shared[id(data)] = count
        else:
            del self._shared[id(data)]
            self.total -= len(data)

    def see(self, wire: Wire) -> None:
        """After drop(), and when a connection has ended."""
        self._see(wire)

    def forget(self, wire: Wire) -> None:
        """It has ended, and waits for nothing."""
        self._waiting.pop(wire, None)

    def _see(self, wire: Wire) -> None:
        if wire.alive and (wire.received or wire.backlog):
            self._since.setdefault(wire, self._loop.now)
        else:
            self._since.pop(wire, None)
        if self.total > self.most and not self._ending:
            self._ending = True
            try:
                while self.total > self.most and self._since:
                    self._end(next(iter(self._since)))
            finally:
                self._ending = False
        if self._waiting and not self.tight and not self._resuming:
            self._resuming = True
            self._loop.call_soon(self._resume)

    def _end(self, wire: Wire) -> None:
        self.ended += 1
        wire.cut()
        self._since.pop(wire, None)

    # ---- waiting ---------------------------------------------------------------------------------

    @property
    def tight(self) -> bool:
        """Whether nothing more is to be made for clients (HOLD2)."""
        return self.total > self.most // 2

    def fits(self, size: int) -> bool:
        """Whether so many bytes more can be received without making others wait."""
        return self.total + size <= self.most // 2

    def room(self, wire: Wire, then: Callable[[], object]) -> bool:
        """Whether there is room for a piece; if not, `then` is called when there is."""
        if not self.tight:
            return True
        self._waiting[wire] = then
        if not self._looking:
            self._looking = True
            self._loop.call_later(LOOK_SECONDS, self._look)
        return False

    def awaited_by(self, wire: Wire) -> bool:
        """Whether a connection waits for room."""
        return wire in self._waiting

    def _resume(self) -> None:
        self._resuming = False
        for _ in range(min(len(self._waiting), RESUMED)):
            if self.tight:
                return
            wire = next(iter(self._waiting))
            self._waiting.pop(wire)()
        if self._waiting and not self.tight:
            self._resuming = True
            self._loop.call_soon(self._resume)

    def _look(self) -> None:
        """While others wait: ends connections that have held too long."""
        self._looking = False
        if not self._waiting:
            return
        latest = self._loop.now - PRESSED_SECONDS
        while self.tight and self._since:
            wire = next(iter(self._since))
            if self._since[wire] > latest:
                break
            self._end(wire)
        self._looking = True
        self._loop.call_later(LOOK_SECONDS, self._look)
        if not self.tight:
            self._resume()
