"""Handlers and events on asyncio.

One descriptor per cache and loop says that something was published; the loop then lets everybody
look who waits. What is told, and in which order, is decided by the same feeds as in threads (G11
to G18); only who sleeps is another.
"""

from __future__ import annotations

import asyncio
import threading

from shmcache import waiting
from shmcache.errors import ClosedError, StaleObjectError
from shmcache.feed import ADD, KIND_NAMES, REPLAY_PAGE, UPDATE
from shmcache.handlers import Registration, Wanted
from shmcache.relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextvars import Context
    from typing import Any, Literal

    from shmcache import _hot
    from shmcache.feed import Feed, Keyed, Told
    from shmcache.informer import Informer
    from shmcache.reader import Cache


class Event:
    """One change, as `async for event in pods.events()` gives it."""

    __slots__ = ("_keyed", "initial", "new", "old", "type", "unknown_final_state")

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    old: Any
    """The object before; a Tombstone if that is gone; None of what was added."""
    new: Any
    """The object now; None of what was deleted."""
    initial: bool
    """Added, and part of the first content: no news."""
    unknown_final_state: bool
    """Deleted, and its end was found, not seen."""

    def __init__(self, told: Told) -> None:
        kind, self._keyed, self.old, self.new, flag = told
        self.type = KIND_NAMES[kind]  # type: ignore[assignment]
        self.initial = flag and kind == ADD
        self.unknown_final_state = flag and kind != ADD

    @property
    def key(self) -> str:
        """namespace/name."""
        return str(self._keyed.key)

    @property
    def object(self) -> Any:
        """The object now, or as it was last."""
        return self.old if self.new is None else self.new

    def __repr__(self) -> str:
        return f"<shmcache.Event {self.type} {self.key}>"


class Sleep(asyncio.Future[None]):
    """A sleep whose task goes on within the callback that ends it, not a turn of the loop later."""

    seen = 0
    """The generation that its sleeper looked at before."""
    _goes_on: tuple[Callable[[Sleep], object], Context | None] | None = None

    def add_done_callback(
        self, fn: Callable[[Sleep], object], /, *, context: Context | None = None
    ) -> None:
        """The first one is who sleeps."""
        if self._goes_on is None and not self.done():
            self._goes_on = (fn, context)
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[Sleep], object], /) -> int:
        """As Future's."""
        removed = super().remove_done_callback(fn)
        if self._goes_on is not None and self._goes_on[0] == fn:
            self._goes_on = None
            removed += 1
        return removed

    def cancel(self, msg: Any = None) -> bool:
        """As Future's: who sleeps is told in the loop's next turn."""
        if not super().cancel(msg):
            return False
        if self._goes_on is not None:
            fn, context = self._goes_on
            self._goes_on = None
            self.get_loop().call_soon(fn, self, context=context)
        return True

    def end(self) -> None:
        """Who sleeps goes on before this returns. In a callback of the loop, not in a task."""
        if self.done():
            return
        self.set_result(None)
        if self._goes_on is None:
            return
        fn, context = self._goes_on
        self._goes_on = None
        if context is None:
            fn(self)
        else:
            context.run(fn, self)


class Bell:
    """Wakes the coroutines of one loop that wait for a cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._loop = asyncio.get_running_loop()
        self.waiting: set[Sleep] = set()
        self._relay: Relay | None = None
        self._reader: _hot.Reader | None = None

    def _listen(self) -> None:
        """A relay on the instance that is read now."""
        reader = self._cache.reader
        if self._relay is not None and reader is self._reader:
            return
        self.close()
        self._relay = Relay(reader, (waiting.EVERYTHING, 0, reader.latest))
        self._reader = reader
        self._loop.add_reader(self._relay.fd, self._ring)

    def _ring(self) -> None:
        relay = self._relay
        self.ring()  # first: they need not wait for a system call
        if relay is None or relay is not self._relay:
            return
        relay.clear()
        if self._missed():
            self._loop.call_soon(self.ring)

    def _missed(self) -> bool:
        """Whether what was cleared may have been for who looked before, and sleeps by now."""
        reader = self._reader
        if reader is None or reader.closed:
            return False  # Informer.stop() rings
        return reader.spent or any(sleep.seen != reader.latest for sleep in self.waiting)

    def ring(self) -> None:
        """Lets everybody look. In a callback of the loop."""
        waiting, self.waiting = self.waiting, set()
        try:
            while waiting:
                waiting.pop().end()
        finally:
            if waiting:  # one of them ends the program: the others are not forgotten
                self.waiting |= waiting
                self._loop.call_soon(self.ring)

    def sleep(self, feed: Feed, timeout: float | None = None) -> Awaitable[None] | None:
        """Ends when there may be something for a feed; None: there may be already.

        The time counts between two writers only: see wait().
        """
        reader = feed.reader
        if reader is None or reader is not self._cache.reader:
            return None
        if reader.spent:
            return self._wait_for_successor(reader, timeout)
        self._listen()
        if reader.latest != feed.generation:
            return None  # published before there was somebody to wake
        sleep = Sleep(loop=self._loop)
        sleep.seen = feed.generation
        self.waiting.add(sleep)
        return sleep

    async def wait(self, feed: Feed, timeout: float | None) -> None:
        """Sleeps until there may be something for a feed, or the time is over."""
        sleep = self.sleep(feed, timeout)
        if timeout is None or not isinstance(sleep, Sleep):
            if sleep is not None:
                await sleep
            return
        await asyncio.wait([sleep], timeout=timeout)
        self.waiting.discard(sleep)

    async def _wait_for_successor(self, reader: Any, timeout: float | None) -> None:
        """Between two writers there is no bell: a thread of the loop sleeps for us."""
        ended = threading.Event()
        owner = reader.owner
        if owner is None:
            raise ClosedError(f"cache {self._cache.name!r} is closed")

        def sleep() -> bool:
            found: bool = owner.succession.wait(
                reader, timeout, lambda: ended.is_set() or reader.closed
            )
            return found

        try:
            await self._loop.run_in_executor(None, sleep)
        finally:
            ended.set()
        if reader.closed:
            raise ClosedError(f"cache {self._cache.name!r} is closed")

    def close(self) -> None:
        """Ends the thread behind it."""
        if self._relay is not None:
            self._loop.remove_reader(self._relay.fd)
            self._relay.close()
            self._relay = None


def bell_of(informer: Informer) -> Bell:
    """The bell of the running loop."""
    loop = asyncio.get_running_loop()
    found: Bell | None = informer.bells.get(loop)
    if found is None:
        for other in [other for other in informer.bells if other.is_closed()]:
            del informer.bells[other]
        found = informer.bells[loop] = Bell(informer.cache)
    return found


async def events(informer: Informer, wanted: Wanted) -> AsyncIterator[Event]:
    """Every change, from now on and for ever; ends when the iteration is given up."""
    bell = bell_of(informer)
    feed = informer.feed(wanted)
    try:
        while not informer.stopping:
            for told in feed.drain():
                yield Event(told)
            feed.rest()
            sleep = bell.sleep(feed)
            if sleep is not None:
                await sleep
    except ClosedError:
        if not informer.cache.closed:
            raise
    finally:
        informer.leave(feed)


class AsyncRegistration(Registration):
    """One whose handlers are coroutine functions: a task on the loop where it was started."""

    _task: asyncio.Task[None] | None = None
    _bell: Bell | None = None

    def _start(self, feed: Feed) -> None:
        self._feed = feed
        self._bell = bell_of(self._informer)
        self._loop = asyncio.get_running_loop()
        if self._wanted.resync is not None:
            self._resync_at = self._informer.clock() + self._wanted.resync
        self._synced_future: asyncio.Event = asyncio.Event()
        self._task = self._loop.create_task(self._run_async(feed), name=f"shmcache {self.name}")

    def _reset(self) -> None:
        super()._reset()
        self._task = None

    def _stop(self) -> None:
        if self._task is None:
            self._end()

    def remove(self, *, wait: bool = False, timeout: float | None = None) -> bool:
        """No further calls. Does not wait: see removed()."""
        if wait:
            raise ValueError("a coroutine cannot be waited for here: await registration.removed()")
        super().remove(timeout=timeout)
        if self._bell is not None:
            self._loop.call_soon_threadsafe(self._bell.ring)
        return True

    async def removed(self) -> None:
        """remove(), and sleeps until its handlers have come to their end."""
        self.remove()
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def synced(self) -> bool:
        """Sleeps until has_synced; False if it ended before. To be awaited where it was started."""
        if self._task is None:
            raise RuntimeError(
                f"{self.name} does not run yet: cache.start() in the loop comes first"
            )
        await self._synced_future.wait()
        return not self._failed()

    async def _run_async(self, feed: Feed) -> None:
        try:
            while not self._stopped():
                if await self._tell_async(feed, feed.drain()):
                    await self._drained_async(feed)
        except ClosedError:
            if not self._stopped():
                raise
        finally:
            self._informer.leave(feed)
            self._end()
            self._synced_future.set()

    async def _drained_async(self, feed: Feed) -> None:
        if feed.synced and not self._synced.is_set():
            self._synced.set()
            self._synced_future.set()
        left = None
        if self._resync_at is not None:
            left = self._resync_at - self._informer.clock()
            if left <= 0 or self._resync_after is not None:
                after = self._resync_after or ""
                found, self._resync_after = feed.replay(after, REPLAY_PAGE)
                if not await self._tell_async(feed, iter(found)):
                    self._resync_after = after  # its objects went stale
                self._resynced()
                return
        feed.rest()
        if self._bell is not None and not self._stopped():
            await self._bell.wait(feed, left)

    async def _tell_async(self, feed: Feed, stream: Iterator[Told]) -> bool:
        for kind, keyed, old, new, flag in stream:
            if self._stopped():
                return False
            try:
                await self._call(kind, old, new, flag=flag)
            except Exception as error:  # noqa: BLE001 - the handler is not ours (G14)
                if not self._counts_as_told(feed, kind, keyed, error):
                    return False
            self._counts[kind] += 1
        return True

    async def _call(self, kind: int, old: Any, new: Any, *, flag: bool) -> None:
        on_add, on_update, on_delete = self._wanted.handlers
        result: object = None
        if kind == UPDATE:
            result = on_update(old, new) if on_update is not None else None
        elif kind == ADD:
            result = on_add(new, flag) if on_add is not None else None
        elif on_delete is not None:
            result = on_delete(old, flag)
        if asyncio.iscoroutine(result):
            await result

    def _counts_as_told(self, feed: Feed, kind: int, keyed: Keyed, error: Exception) -> bool:
        if isinstance(error, StaleObjectError) and feed.revoked():
            return False
        if isinstance(error, ClosedError) and self._stopped():
            return False
        self._failed_on(kind, keyed, error)
        return True
