"""`async with leader(...)`: waits without blocking the loop, and cancels the body when it is lost.

LEAD4  The body's task is cancelled once, and that cancellation becomes LeadershipLost; one
    that somebody else asked for stays what it is, as asyncio.timeout() has it.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from shmcache.errors import LeadershipLost

if TYPE_CHECKING:
    from shmcache.lease.leader import Leader


class LeaderScope:
    """One `async with` of a Leader."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._changed = asyncio.Event()
        self._inside = False
        self._cancelled = False
        self._cancelling = 0

    async def enter(self) -> None:
        """Until the Lease is ours."""
        self._leader.start()
        self._leader.listen(self._wake)
        try:
            while self._leader.waits:
                await self._changed.wait()
                self._changed.clear()
            self._leader.check()  # LEAD5
        except BaseException:
            await self._end()
            raise
        self._cancelling = self._task.cancelling()
        self._inside = True
        self._react()

    async def exit(self, error: BaseException | None) -> None:
        """Releases the Lease; LeadershipLost if it was lost."""
        self._inside = False
        lost, reason = self._leader.is_lost, self._leader.reason
        await self._end()
        ours = False
        if self._cancelled and self._task.uncancel() <= self._cancelling:
            ours = isinstance(error, asyncio.CancelledError)
        if lost and (error is None or ours):
            raise LeadershipLost(self._leader.lease.name, reason) from error

    async def _end(self) -> None:
        """stop() waits for threads and the server: in a thread, which no cancellation stops."""
        ended = self._loop.create_future()

        def settle() -> None:
            if not ended.done():
                ended.set_result(None)

        def run() -> None:
            try:
                self._leader.stop()
            finally:
                self._leader.unlisten(self._wake)
                self._call(settle)

        threading.Thread(target=run, name="leader release", daemon=True).start()
        await ended

    def _wake(self) -> None:
        """In a thread of the Leader."""
        self._call(self._react)

    def _call(self, function: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    def _react(self) -> None:
        self._changed.set()
        if self._inside and self._leader.is_lost and not self._cancelled:
            self._cancelled = True
            self._task.cancel()
