"""Costly answers are made one after another, however many clients ask for them.

TURN1  one is made at a time, so that only one takes memory that nobody has counted yet; the next
       one begins when it is on its way to its client, and there is room (HOLD2).
TURN2  those who wait are as few as requests that wait for a version, and shared in the same way;
       further ones are refused (429).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from shmcache.serve.http.loop import Pending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from shmcache.serve.http.connection import Connection
    from shmcache.serve.server import Server

    T = TypeVar("T")


class Turns:
    """The turns of one server process. In the loop's thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._busy = False
        self._waiting: deque[Pending[None]] = deque()

    async def make(self, connection: Connection, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work()`, begun when the turn has come. A Failure (429)."""
        holder, waiting = connection.holder, self._server.waiting
        waiting.take(holder)
        try:
            await self._enter()
        finally:
            waiting.give_back(holder)
        try:
            await connection.piece_fits()
            return await work()
        finally:
            self._leave()

    async def _enter(self) -> None:
        if not self._busy:
            self._busy = True
            return
        pending: Pending[None] = Pending()
        self._waiting.append(pending)
        try:
            await pending
        except BaseException:  # its client has gone
            if pending in self._waiting:
                self._waiting.remove(pending)
            else:
                self._leave()
            raise

    def _leave(self) -> None:
        self._server.loop.call_soon(self._next)

    def _next(self) -> None:
        if self._waiting:
            self._waiting.popleft().give(None)
        else:
            self._busy = False
