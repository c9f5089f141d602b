"""One key: what happens before, around and after the user's reconcile, and what its end means.

get ▸ runner ▸ did a worker die in it? ▸ catch up ▸ reconcile ▸ outcome ▸ runner empty ▸ done

Run.steps() decides all of it, and yields what takes time. Two drivers do that: call() in a thread,
await_() on a loop, where a wait has a thread of its own.

    REC1  done() is the last thing that is done with a key, and always is. A child that a reconcile
          forked does nothing more: its parent still has the key.
    REC2  A reconcile is called at most by one thread for a key, on a cache that shows what the key
          has written. Its time limit begins with the call.
    REC3  Success forgets the waits of the key; an error makes them longer; a terminal one ends
          them.
    REC4  A process that ended because of another key counts nothing against this one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from shmcache.callables import is_coroutine_function, refuse_awaitable
from shmcache.controllers import numbers, written
from shmcache.controllers.board import bucket_of
from shmcache.controllers.outcomes import NotCaughtUp, Requeue, is_terminal
from shmcache.controllers.part import Part
from shmcache.controllers.reports import report
from shmcache.controllers.rows import digest
from shmcache.errors import ForkedError, StaleObjectError

logger = logging.getLogger(__name__)

_UNLIMITED = 1e9
"""Seconds: the time limit is that of the reconcile, not of the wait for the Lease."""
FORKED = 70
"""Exit status of a child that a coroutine forked and let return into its parent's loop."""


class Step(NamedTuple):
    """Something that takes time."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    limited: bool = False
    """Whether the controller's time limit is its time limit."""
    waits: bool = False
    """Whether it sleeps, and so must not be called on a loop."""


class Run:
    """One key, reconciled by one runner."""

    __slots__ = ("_bucket", "_digest", "_error", "_key", "_late", "_part", "_result", "_runner",
                 "_start")  # fmt: skip

    def __init__(self, part: Part, runner: int, key: str) -> None:
        self._part = part
        self._runner = runner
        self._key = key
        self._bucket = bucket_of(key)
        self._digest = digest(key)
        self._start = 0
        self._result: object = None
        self._error: BaseException | None = None
        self._late = False

    # ---- drivers ---------------------------------------------------------------------------------

    def call(self) -> None:
        """All of it, of a function."""
        for step in self._steps():
            try:
                result = step.function(*step.arguments)
                refuse_awaitable(result, "the function")
                self._result = result
            except BaseException as error:  # noqa: BLE001 - not ours: sys.exit() as well
                self._error = error

    async def await_(self) -> None:
        """All of it, of a coroutine function."""
        for step in self._steps():
            try:
                if step.waits:
                    result = await in_thread(step.function, *step.arguments)
                    refuse_awaitable(result, "recover")
                    self._result = result
                else:
                    self._result = await self._awaited(step)
            except BaseException as error:  # noqa: BLE001 - as above
                self._error = error
            self._end_child()

    async def _awaited(self, step: Step) -> object:
        limit = asyncio.timeout(self._part.controller.time_limit if step.limited else None)
        try:
            async with limit:
                result = step.function(*step.arguments)
                return await result if hasattr(result, "__await__") else result
        finally:
            self._late = limit.expired()

    def _end_child(self) -> None:
        """A child of fork() has its parent's loop, with its descriptors: it must not go on."""
        try:
            self._part.check_fork()
        except ForkedError:
            logger.exception("pid %d ends", os.getpid())
            os._exit(FORKED)

    # ---- the steps -------------------------------------------------------------------------------

    def _steps(self) -> Generator[Step, None, None]:
        try:
            yield from self._work()
        except BaseException as error:
            self._part.check_fork()
            if isinstance(error, GeneratorExit):
                raise
            self._failed(error)
        self._part.check_fork()
        self._part.mine.empty(self._runner)
        self._part.queue.done(self._key)  # REC1

    def _work(self) -> Generator[Step, None, None]:
        part, key = self._part, self._key
        seconds = part.controller.catch_up
        dead = written.died(part, self._digest)
        if part.tenure is not None:
            part.mine.fill(self._runner, key, self._digest, _UNLIMITED)
            yield Step(part.tenure.admit, (key, part), waits=True)
            if not self._check():
                part.queue.forget(key)  # TENURE3
                return
        if dead:
            self._start = part.mine.fill(self._runner, key, self._digest, seconds)
            yield from self._succeed(dead)
            return
        if not written.caught_up(part, self._bucket):
            self._start = part.mine.fill(self._runner, key, self._digest, seconds)
            yield Step(written.catch_up, (part, self._bucket, seconds), waits=True)
            self._check()
        token = written.current.set((part, key, self._bucket))
        try:
            self._start = part.mine.fill(self._runner, key, self._digest)
            yield Step(part.controller.function, (key, part.cache), limited=True)
            result = self._check()
        finally:
            written.current.reset(token)
        self._ended(result)

    def _check(self) -> object:
        """The result of the last step; raises its error."""
        self._part.check_fork()
        result, error = self._result, self._error
        self._result = self._error = None
        if error is not None:
            raise error
        return result

    def _succeed(self, dead: list[written.Death]) -> Generator[Step, None, None]:
        """A worker died in this key: recover() asks the server, or the key rests."""
        part, controller = self._part, self._part.controller
        culprit = any(death.culprit for death in dead)
        if culprit:
            part.mine.add((numbers.PANICS, 1))
            logger.error("%s %s: a worker died in it", controller.name, self._key)
        else:
            logger.warning("%s %s: its worker ended for another key", controller.name, self._key)
        if controller.recover is not None:
            waits = not is_coroutine_function(controller.recover)
            yield Step(controller.recover, (self._key, part.cache), waits=waits)
            self._check()
        else:
            written.mourn(part, self._bucket)
        for death in dead:
            death.row.empty(death.runner)
        if culprit:
            part.queue.add_rate_limited(self._key)  # it may be the key that kills
        else:
            part.queue.add(self._key, timeout=0)  # REC4

    # ---- after -----------------------------------------------------------------------------------

    def _ended(self, result: object) -> None:
        queue, key = self._part.queue, self._key
        if result is None or (isinstance(result, Requeue) and result.after == 0):
            queue.forget(key)
            self._count(numbers.SUCCESS)
        elif not isinstance(result, Requeue):
            raise TypeError(f"a reconcile must return None or a Requeue, not {result!r}")
        elif result.after is None:
            queue.add_rate_limited(key, result.priority)
            self._count(numbers.REQUEUE)
        else:
            queue.forget(key)
            queue.add_after(key, result.after, result.priority)
            self._count(numbers.REQUEUE_AFTER)

    def _failed(self, error: BaseException) -> None:
        part, key = self._part, self._key
        if isinstance(error, NotCaughtUp):
            part.mine.add((numbers.BEHIND, 1), (numbers.REQUEUE, 1))
            logger.debug("%s %s: %s", part.controller.name, key, error)
            if error.after is not None:
                part.queue.add_after(key, error.after)
                return
        elif isinstance(error, StaleObjectError):  # the writer needed the memory
            self._count(numbers.REQUEUE)
        elif is_terminal(error):
            self._count(numbers.ERROR, numbers.TERMINAL)
            part.queue.forget(key)
            report(part.board, part.controller.name, key, error, "not tried again")
            return
        else:
            self._count(numbers.ERROR, *([numbers.TIMEOUTS] if self._late else []))
            report(part.board, part.controller.name, key, error, "tried again")
        part.queue.add_rate_limited(key)

    def _count(self, *counts: int) -> None:
        spent = time.monotonic_ns() - self._start
        ones = [(count, 1) for count in (*counts, numbers.bound(spent))]
        self._part.mine.add((numbers.NANOSECONDS, spent), *ones)


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function that sleeps in a thread of its own.

    Not in the loop's executor, whose few threads users' own calls need, and whose threads an
    interpreter waits for at its end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return  # cancelled meanwhile
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def run() -> None:
        result, failure = None, None  # type: Any, BaseException | None
        try:
            result = function(*arguments)
        except StopIteration as error:  # no future takes it
            failure = RuntimeError(f"{function!r} raised StopIteration")
            failure.__cause__ = error
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            pass  # the loop is closed: nothing awaits it

    threading.Thread(target=run, name="shmcache wait", daemon=True).start()
    return await future
