"""Waits on asyncio: for facts, and for states of single objects.

All wait_until_async() of one loop and resource share one LoopWatch, so that a publication costs one
walk along the ring and one look into a dict for each delta, however many coroutines wait.
"""

from __future__ import annotations

import asyncio

from shmcache.errors import ClosedError
from shmcache.handlers.aio import BellSleep, LoopBell, bell_of
from shmcache.handlers.until import KeyWait, KeyWatch
from shmcache.reader import waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shmcache import _hot
    from shmcache.reader.awaiting import Predicate, Reached
    from shmcache.reader.cache import Cache


class LookSleep:
    """The sleep of a LoopWatch: it ends in a call, not in a coroutine."""

    __slots__ = ("_watch", "seen")

    def __init__(self, watch: LoopWatch) -> None:
        self._watch = watch
        self.seen = 0

    def end(self) -> None:
        """Looks at the ring. In a callback of the loop."""
        self._watch.step()


class LoopWatch(KeyWatch):
    """The waits of one loop for objects of one resource."""

    def __init__(self, cache: Cache, resource: str, bell: LoopBell) -> None:
        super().__init__(cache, resource)
        self._bell = bell
        self._loop = asyncio.get_running_loop()
        self._sleep = LookSleep(self)
        self._sleepers: dict[KeyWait, BellSleep] = {}

    async def wait(self, wait: KeyWait) -> None:
        """Returns when the wait is over."""
        asleep = self._sleep in self._bell.waiting
        self.join(wait)
        if wait.over:
            return
        sleep = self._sleepers[wait] = BellSleep(loop=self._loop)
        if not asleep and not self._bell.add(self._sleep, self):
            self._loop.call_soon(self.step)
        await sleep

    def leave(self, wait: KeyWait) -> None:
        """Forgets a wait; the last one ends the watch."""
        super().leave(wait)
        self._sleepers.pop(wait, None)
        if not self.waits:
            self._bell.waiting.discard(self._sleep)
            self._bell.watches.pop(self.resource, None)

    def step(self) -> None:
        """Deals with everything published; sleepers whose wait is over go on within this call."""
        self._bell.waiting.discard(self._sleep)
        try:
            _check_open(self.cache)
            while self.waits and not (self.look() and self._bell.add(self._sleep, self)):
                if self._bell.slice_over:
                    self._loop.call_soon(self._again)  # AIO1
                    break
        except Exception as error:  # noqa: BLE001 - each waiter raises it
            for wait in self._sleepers:
                wait.fail(error)
        self._wake()

    def _again(self) -> None:
        self._bell.begin_slice()
        self.step()

    def _wake(self) -> None:
        over = [wait for wait in self._sleepers if wait.over]
        try:
            while over:
                self._sleepers.pop(over.pop(0)).end()
        finally:
            if over:  # one of them ends the program: the others are not forgotten
                self._loop.call_soon(self._wake)


def _check_open(cache: Cache) -> None:
    """close() ends waits before it ends the reader."""
    if cache.informer.stopping:
        raise ClosedError(f"cache {cache.name!r} is closed")


async def wait_until(
    cache: Cache,
    resource: str,
    key: str,
    predicate: Predicate,
    timeout: float | None,
    *,
    absent: bool,
) -> Reached:
    """See AwaitableResource.wait_until_async()."""
    waiting.check_seconds("timeout", timeout)
    bell = bell_of(cache.informer)
    wait = KeyWait(key, predicate, absent=absent)
    watch = bell.watches.get(resource)
    if watch is None:
        watch = bell.watches[resource] = LoopWatch(cache, resource, bell)
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            await watch.wait(wait)
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        watch.leave(wait)
    return wait.result()


class _Looked:
    """The generation of a look at a fact."""

    __slots__ = ("generation", "reader")

    def __init__(self, reader: _hot.Reader) -> None:
        self.reader = reader
        self.generation = reader.latest


async def until(cache: Cache, fact: Callable[[], bool], timeout: float | None) -> bool:
    """Sleeps until a fact about the latest generation holds; whether it did in time."""
    waiting.check_seconds("timeout", timeout)
    bell = bell_of(cache.informer)
    bell.facts += 1
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            while True:
                _check_open(cache)
                looked = _Looked(cache.reader)
                if fact():
                    return True
                await bell.wait(looked)
    except TimeoutError:
        if not limit.expired():
            raise
        return fact()
    finally:
        bell.facts -= 1
