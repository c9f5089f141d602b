"""One key: what happens before, around and after the user's reconcile, and what its end means.

get ▸ lane ▸ did a worker die in it? ▸ catch up ▸ reconcile ▸ outcome ▸ lane empty ▸ done

R1  done() is the last thing that is done with a key, and always is.
R2  A reconcile is called at most by one thread for a key, on a cache that shows what the key
has written.
R3  Success forgets the waits of the key; an error makes them longer; a terminal one ends them.
"""

from __future__ import annotations

import asyncio
import logging
import time

from shmcache.controllers import numbers, written
from shmcache.controllers.board import bucket_of
from shmcache.controllers.outcomes import NotCaughtUp, Requeue, TerminalError
from shmcache.controllers.part import Part
from shmcache.controllers.places import digest
from shmcache.controllers.reports import report
from shmcache.errors import StaleObjectError

logger = logging.getLogger(__name__)


class Run:
    """One key in one lane."""

    __slots__ = ("_bucket", "_digest", "_key", "_lane", "_part", "_start")

    def __init__(self, part: Part, lane: int, key: str) -> None:
        self._part = part
        self._lane = lane
        self._key = key
        self._bucket = bucket_of(key)
        self._digest = digest(key)
        self._start = 0

    def call(self) -> None:
        """All of it, of a function."""
        try:
            if self._prepare():
                result = self._part.controller.function(self._key, self._part.cache)
                self._ended(result)
        except BaseException as error:  # noqa: BLE001 - not ours: sys.exit() as well
            self._failed(error)
        finally:
            self._leave()

    async def await_(self) -> None:
        """All of it, of a coroutine function; what may wait is done in another thread."""
        controller = self._part.controller
        limit = asyncio.timeout(controller.time_limit)
        try:
            if await asyncio.to_thread(self._prepare):
                written.current.set((self._part, self._key, self._bucket))
                async with limit:
                    result = await controller.function(self._key, self._part.cache)
                self._ended(result)
        except BaseException as error:  # noqa: BLE001 - as above
            self._failed(error, late=limit.expired())
        finally:
            self._leave()

    # ---- before ----------------------------------------------------------------------------------

    def _prepare(self) -> bool:
        """Whether the key can be reconciled now."""
        part = self._part
        dead = written.died(part, self._digest)
        wait = part.controller.catch_up  # is not the reconcile's time
        self._start = part.mine.fill(self._lane, self._key, self._digest, wait)
        if dead:
            part.mine.add((numbers.PANICS, 1))
            logger.error("%s %s: a worker died in it", part.controller.name, self._key)
            written.mourn(part, self._key, self._bucket, dead)
            part.queue.add_rate_limited(self._key)  # it may be the key that kills
            return False
        written.catch_up(part, self._bucket)
        written.current.set((part, self._key, self._bucket))
        self._start = part.mine.fill(self._lane, self._key, self._digest)
        return True

    # ---- after -----------------------------------------------------------------------------------

    def _ended(self, result: object) -> None:
        queue, key = self._part.queue, self._key
        if result is None:
            queue.forget(key)
            self._count(numbers.SUCCESS)
        elif not isinstance(result, Requeue):
            raise TypeError(f"a reconcile returns None or a Requeue, not {result!r}")
        elif result.after is None:
            queue.add_rate_limited(key)
            self._count(numbers.REQUEUE)
        else:
            queue.forget(key)
            queue.add_after(key, result.after)
            self._count(numbers.REQUEUE_AFTER)

    def _failed(self, error: BaseException, *, late: bool = False) -> None:
        part, key = self._part, self._key
        if isinstance(error, NotCaughtUp):
            part.mine.add((numbers.BEHIND, 1), (numbers.REQUEUE, 1))
            logger.debug("%s %s: %s", part.controller.name, key, error)
            if error.after is not None:
                part.queue.add_after(key, error.after)
                return
        elif isinstance(error, StaleObjectError):  # the writer needed the memory: nobody's fault
            self._count(numbers.REQUEUE)
        elif isinstance(error, TerminalError):
            self._count(numbers.ERROR, numbers.TERMINAL)
            part.queue.forget(key)
            report(part.board, part.controller.name, key, error, "not tried again")
            return
        else:
            self._count(numbers.ERROR, *([numbers.TIMEOUTS] if late else []))
            report(part.board, part.controller.name, key, error, "tried again")
        part.queue.add_rate_limited(key)

    def _count(self, *counts: int) -> None:
        spent = time.monotonic_ns() - self._start
        ones = [(count, 1) for count in (*counts, numbers.bound(spent))]
        self._part.mine.add((numbers.NANOSECONDS, spent), *ones)

    def _leave(self) -> None:
        self._part.mine.empty(self._lane)
        self._part.queue.done(self._key)  # R1
