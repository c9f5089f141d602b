"""The event loop of a server process: epoll, timers, and calls from other threads.

Smaller than asyncio's, and several times as fast for what a server does most: one read, one
look-up, one write. Coroutines run on it (they wait for a `Pending`), without tasks or
futures.

LOOP1  No thread writes the descriptor that wakes the loop once close() has closed it: its number
       may be another file's by then.
"""

from __future__ import annotations

import collections
import heapq
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
LONGEST_SLEEP = 3600.0
FEW_TIMERS = 256
EVENTS = 256
"""Descriptors looked at in one turn."""


class Timer:
    """A call that is due some time; cancel() takes it back."""

    __slots__ = ("_loop", "function")

    def __init__(self, loop: Loop, function: Callable[[], object]) -> None:
        self._loop = loop
        self.function: Callable[[], object] | None = function

    def cancel(self) -> None:
        """It will not be called. Idempotent, also afterwards."""
        if self.function is not None:
            self.function = None
            self._loop.cancelled += 1


class Pending(Generic[T]):
    """A value that comes later: awaited by one coroutine, given once, in the loop's thread."""

    __slots__ = ("_error", "_then", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._then: Callable[[], None] | None = None

    def give(self, value: T) -> None:
        """The value has come; a second one is ignored."""
        if not self.done:
            self._value = value
            self._finish()

    def fail(self, error: BaseException) -> None:
        """It will not come."""
        if not self.done:
            self._error = error
            self._finish()

    def then(self, function: Callable[[], None]) -> None:
        """Called when it is done; for code that drives a coroutine."""
        self._then = function

    def _finish(self) -> None:
        self.done = True
        if self._then is not None:
            self._then()

    def __await__(self) -> Generator[Pending[T], None, T]:
        if not self.done:
            yield self
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class Loop:
    """Owned by the thread that calls run(); only call_threadsafe() may come from another one."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        """When this turn began."""
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], object]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = 0
        self.cancelled = 0
        """Timers that were cancelled, at most; they stay in the heap until there are too many."""
        self._soon: collections.deque[Callable[[], object]] = collections.deque()
        self._handed: collections.deque[Callable[[], object]] = collections.deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._waking = threading.RLock()  # a signal's handler may run while its thread holds it
        self._running = False
        self.add(self._wake, READ, self._take_handed)

    # ---- descriptors ---------------------------------------------------------------------------

    def add(self, fd: int, events: int, handler: Callable[[int], object]) -> None:
        """Calls the handler with the ready events, as long as they last (level-triggered)."""
        self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def change(self, fd: int, events: int) -> None:
        """Other events of a descriptor that was added."""
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        """Before it is closed. Idempotent."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    # ---- calls ---------------------------------------------------------------------------------

    def call_soon(self, function: Callable[[], object]) -> None:
        """In the next turn, after the events that are ready by then."""
        self._soon.append(function)

    def call_later(self, seconds: float, function: Callable[[], object]) -> Timer:
        """Some seconds from now."""
        timer = Timer(self, function)
        self._count += 1
        if self.cancelled > max(len(self._timers) // 2, FEW_TIMERS):
            self._timers[:] = [one for one in self._timers if one[2].function is not None]
            heapq.heapify(self._timers)
            self.cancelled = 0
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, timer))
        return timer

    def call_threadsafe(self, function: Callable[[], object]) -> None:
        """From any thread, or a signal's handler: soon, in the loop's thread.

        Where the loop is closed, never.
        """
        self._handed.append(function)
        with self._waking:  # LOOP1
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def _take_handed(self, _events: int) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            pass
        while self._handed:
            self._soon.append(self._handed.popleft())

    # ---- its life ------------------------------------------------------------------------------

    def run(self) -> None:
        """Until stop(). An exception of a handler is logged; the loop goes on."""
        self._running = True
        while self._running:
            self.turn()

    def turn(self) -> None:
        """One look at everything; sleeps until there is something."""
        ready = self._epoll.poll(self._sleep(), EVENTS)
        self.now = time.monotonic()
        handlers = self._handlers
        for fd, events in ready:
            handler = handlers.get(fd)
            if handler is not None:
                try:
                    handler(events)
                except Exception:
                    logger.exception("serve: an event of descriptor %d", fd)
        if self._timers:
            self._call_due()
        for _ in range(len(self._soon)):
            self._call(self._soon.popleft())

    def _sleep(self) -> float:
        if self._soon:
            return 0
        timers = self._timers
        while timers and timers[0][2].function is None:
            heapq.heappop(timers)
        if not timers:
            return LONGEST_SLEEP
        return min(max(timers[0][0] - time.monotonic(), 0), LONGEST_SLEEP)

    def _call_due(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            function = heapq.heappop(timers)[2].function
            if function is not None:
                self._call(function)

    def _call(self, function: Callable[[], object]) -> None:
        try:
            function()
        except Exception:
            logger.exception("serve: %r", function)

    def stop(self) -> None:
        """run() returns after this turn. From the loop's thread."""
        self._running = False
        self.call_soon(_nothing)

    def close(self) -> None:
        """Closes the descriptors that the loop itself opened."""
        with self._waking:  # LOOP1
            wake, self._wake = self._wake, -1
            os.close(wake)
        self._epoll.close()


def _nothing() -> None:
    return None


class Task:
    """A coroutine on its way: run until it waits for a Pending, and on when that is done."""

    __slots__ = ("_coroutine", "_done")

    def __init__(self, coroutine: Any, done: Callable[[Any, BaseException | None], object]) -> None:
        self._coroutine = coroutine
        self._done = done

    def step(self) -> None:
        """Runs on; calls `done` with the result or error of the coroutine."""
        coroutine = self._coroutine
        if coroutine is None:
            return  # cancelled meanwhile
        try:
            pending: Pending[Any] = coroutine.send(None)
        except StopIteration as end:
            value, error = end.value, None
        except Exception as raised:  # noqa: BLE001 - given to done(), which says what becomes of it
            value, error = None, raised
        else:
            if self._coroutine is None:
                coroutine.close()  # it has cancelled itself
            else:
                pending.then(self.step)
            return
        cancelled, self._coroutine = self._coroutine is None, None
        if error is not None or not cancelled:
            self._done(value, error)

    def cancel(self) -> None:
        """It ends where it waits (its `finally` runs), and `done` is not called. Idempotent.

        Also from within, when its own client turns out to be gone: then it ends where it waits
        next, and `done` is called with an error alone.
        """
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None and not coroutine.cr_running:
            coroutine.close()
