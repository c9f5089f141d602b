"""Handlers and events on asyncio.

One descriptor for each cache and loop signals that something was published; the loop then lets
every sleeping coroutine look. The same code as in threads decides what to deliver,
and in which order (G11 to G18); this file only sleeps and awaits.

    AIO1  A loop is held for SLICE_SECONDS at most, and one call for each coroutine that has
          something to deliver: all of a bell share one slice, which ends with a turn of the loop.
    AIO2  A sleep that ends, however it ends, is out of the bell's set.
    AIO3  No thread of a loop's executor is used: users' own calls would wait for them.
"""

from __future__ import annotations

import asyncio
import threading

from shmcache.errors import ClosedError
from shmcache.handlers.feed import ADD, KIND_NAMES
from shmcache.handlers.registration import SLICE_SECONDS, Registration, Wanted
from shmcache.reader import waiting
from shmcache.reader.relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Context
    from typing import Any, Literal, Self

    from shmcache import _hot
    from shmcache.handlers.feed import Feed, FeedEvent
    from shmcache.handlers.informer import Informer
    from shmcache.handlers.until import Follower
    from shmcache.handlers.until_async import LookSleep, LoopWatch
    from shmcache.reader.cache import Cache


class Event:
    """One change, as `async for event in pods.events()` gives it."""

    __slots__ = ("_keyed", "initial", "new", "old", "type", "unknown_final_state")

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    old: Any
    """The object before; a Tombstone if that is gone; None for an added object."""
    new: Any
    """The object now; None for a deleted object."""
    initial: bool
    """Added, and part of the first content: no news."""
    unknown_final_state: bool
    """Deleted, and its end was found, not seen."""

    def __init__(self, event: FeedEvent) -> None:
        kind, self._keyed, self.old, self.new, flag = event
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


class BellSleep(asyncio.Future[None]):
    """A sleep whose task goes on within the callback that ends it, not a turn of the loop later."""

    seen = 0
    """The generation that its sleeper looked at before."""
    _goes_on: tuple[Callable[[BellSleep], object], Context | None] | None = None

    def add_done_callback(
        self, fn: Callable[[BellSleep], object], /, *, context: Context | None = None
    ) -> None:
        """The first one is the sleeper."""
        if self._goes_on is None and not self.done():
            self._goes_on = (fn, context)
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[BellSleep], object], /) -> int:
        """As Future's."""
        removed = super().remove_done_callback(fn)
        if self._goes_on is not None and self._goes_on[0] == fn:
            self._goes_on = None
            removed += 1
        return removed

    def cancel(self, msg: Any = None) -> bool:
        """As Future's: the sleeper goes on in the loop's next turn."""
        if not super().cancel(msg):
            return False
        if self._goes_on is not None:
            fn, context = self._goes_on
            self._goes_on = None
            self.get_loop().call_soon(fn, self, context=context)
        return True

    def end(self) -> None:
        """The sleeper goes on before this returns. In a callback of the loop, not in a task."""
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


class LoopBell:
    """Wakes the coroutines of one loop that wait for a cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._loop = asyncio.get_running_loop()
        self.waiting: set[BellSleep | LookSleep] = set()
        self._relay: Relay | None = None
        self._reader: _hot.Reader | None = None
        self.watches: dict[str, LoopWatch] = {}  # of wait_until_async(), by resource
        self.facts = 0  # coroutines that wait for versions too, which only then wake the loop
        self._hears_versions = False
        self._succeeding: _hot.Reader | None = None  # a thread waits for its successor
        self._slice_end = 0.0
        self._renewing = False

    def _listen(self) -> None:
        """A relay on the instance that is read now."""
        reader, versions = self._cache.reader, self.facts > 0
        if self._relay is not None and reader is self._reader and versions is self._hears_versions:
            return
        self.close()
        progress = waiting.EVERYTHING if versions else 0
        self._relay = Relay(reader, (waiting.EVERYTHING, progress, reader.latest))
        self._reader, self._hears_versions = reader, versions
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
        """Whether a ring that was cleared may be for a coroutine that looked before, and sleeps."""
        reader = self._reader
        if reader is None or reader.closed:
            return False  # Informer.stop() rings
        return reader.spent or any(sleep.seen != reader.latest for sleep in self.waiting)

    def ring(self) -> None:
        """Lets every sleeper look. In a callback of the loop."""
        self.begin_slice()
        waiting, self.waiting = self.waiting, set()
        try:
            while waiting:
                waiting.pop().end()
        finally:
            if waiting:  # one of them ends the program: the others are not forgotten
                self.waiting |= waiting
                self._loop.call_soon(self.ring)

    # ---- for one coroutine -----------------------------------------------------------------------

    async def wait(self, feed: Follower, timeout: float | None = None) -> None:
        """Sleeps until there may be something for a feed, or the time is over."""
        sleep = self.sleep(feed)
        if sleep is None:
            return
        try:
            if timeout is None:
                await sleep
            else:
                await asyncio.wait([sleep], timeout=timeout)
        finally:
            self.waiting.discard(sleep)  # AIO2

    def sleep(self, feed: Follower) -> BellSleep | None:
        """A sleep that ends when there may be something for a feed; None: there may be already."""
        sleep = BellSleep(loop=self._loop)
        return sleep if self.add(sleep, feed) else None

    def add(self, sleep: BellSleep | LookSleep, feed: Follower) -> bool:
        """Ends this sleep when there may be something for a feed; False: there may be already."""
        reader = feed.reader
        if reader is None or reader is not self._cache.reader:
            return False
        if reader.spent:
            self._await_successor(reader)
        else:
            self._listen()
            if reader.latest != feed.generation:
                return False  # published before there was anything to wake
        sleep.seen = feed.generation
        self.waiting.add(sleep)
        return True

    @property
    def slice_over(self) -> bool:
        """Whether the loop was held long enough: then pause()."""
        return self._loop.time() >= self._slice_end

    async def pause(self) -> None:
        """Lets the loop run other things (AIO1)."""
        if not self._renewing:
            self._renewing = True
            self._loop.call_soon(self._renew)  # before any that pauses goes on
        await asyncio.sleep(0)

    def _renew(self) -> None:
        self._renewing = False
        self.begin_slice()

    def begin_slice(self) -> None:
        """From now on the loop may be held once more (AIO1)."""
        self._slice_end = self._loop.time() + SLICE_SECONDS

    # ---- between two writers ---------------------------------------------------------------------

    def _await_successor(self, reader: _hot.Reader) -> None:
        """Nothing rings between two writers: one thread waits for the next one, and rings."""
        if self._succeeding is reader:
            return
        self._succeeding = reader
        title = f"shmcache {self._cache.name} successor"
        threading.Thread(target=self._succeed, args=(reader,), name=title, daemon=True).start()

    def _succeed(self, reader: _hot.Reader) -> None:
        owner: Any = reader.owner

        def unneeded() -> bool:
            return reader.closed or self._loop.is_closed()

        def found() -> None:
            self._succeeding = None
            self.ring()

        try:
            if owner is not None:
                owner.succession.wait(reader, None, unneeded)
        finally:
            try:
                self._loop.call_soon_threadsafe(found)
            except RuntimeError:
                pass  # the loop is closed, and nothing sleeps on it

    def end(self) -> None:
        """Lets every sleeper see that its cache is closed. In a callback of the loop."""
        self.ring()
        self.close()

    def close(self) -> None:
        """Ends the thread of its relay."""
        relay, self._relay = self._relay, None
        if relay is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(relay.fd)
            relay.close()


def bell_of(informer: Informer) -> LoopBell:
    """The bell of the running loop."""
    loop = asyncio.get_running_loop()
    found: LoopBell | None = informer.bells.get(loop)
    if found is None:
        for other, bell in list(informer.bells.items()):  # other threads have loops, too
            if other.is_closed() and informer.bells.pop(other, None) is bell:
                bell.close()
        found = informer.bells[loop] = LoopBell(informer.cache)
    return found


class Events:
    """Every change, from now on and for ever: `async for event in pods.events()`.

    A cancelled or timed out anext() loses nothing: the iteration goes on with the next one. It ends
    with the cache, with aclose(), or when nothing refers to it any more.
    """

    def __init__(self, informer: Informer, wanted: Wanted) -> None:
        self._informer = informer
        self._wanted = wanted
        self._feed: Feed | None = None
        self._stream: Iterator[FeedEvent] = iter(())
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._feed is None and not self._ended:
            self._bell = bell_of(self._informer)
            self._loop = asyncio.get_running_loop()
            self._feed = self._informer.feed(self._wanted)
        try:
            while self._feed is not None and not self._informer.stopping:
                if self._bell.slice_over:
                    await self._bell.pause()
                    continue
                for event in self._stream:
                    return Event(event)
                self._feed.rest()
                await self._bell.wait(self._feed)
                self._stream = self._feed.drain()
        except ClosedError:
            if not self._informer.cache.closed:
                raise
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Ends the iteration. May be repeated."""
        feed, self._feed, self._ended = self._feed, None, True
        self._stream = iter(())
        if feed is not None:
            self._informer.leave(feed)

    def __del__(self) -> None:
        feed = getattr(self, "_feed", None)
        if feed is not None and not self._loop.is_closed():  # not here: a lock may be held
            self._loop.call_soon_threadsafe(self._informer.leave, feed)


class AsyncRegistration(Registration):
    """One whose handlers are coroutine functions: a task on the loop where it was started."""

    _task: asyncio.Task[None] | None = None
    _bell: LoopBell | None = None

    def _start(self, feed: Feed) -> None:
        self._bell = bell_of(self._informer)
        self._loop = asyncio.get_running_loop()
        self._begin(feed)
        self._synced_future: asyncio.Event = asyncio.Event()
        self._task = self._loop.create_task(
            self._run_async(feed, self._bell), name=f"shmcache {self.name}"
        )

    def _reset(self) -> None:
        super()._reset()
        self._task = None

    def _stop(self) -> None:
        if self._task is None:
            self._end()

    def _set_synced(self) -> None:
        super()._set_synced()
        self._synced_future.set()

    def remove(self, *, wait: bool = False, timeout: float | None = None) -> bool:
        """No further calls. Does not wait: see removed()."""
        if wait:
            raise ValueError("cannot wait for a coroutine here: await registration.removed()")
        super().remove(timeout=timeout)
        if self._bell is not None and not self._loop.is_closed():
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
                f"{self.name} does not run yet: call cache.start() in the loop first"
            )
        await self._synced_future.wait()
        return not self._failed()

    async def _run_async(self, feed: Feed, bell: LoopBell) -> None:
        try:
            await self._drive_async(feed, bell)
        except asyncio.CancelledError:
            self._log_cancelled()
            raise
        except ClosedError:
            if not self._stopped():
                raise
        finally:
            self._informer.leave(feed)
            self._end()
            self._synced_future.set()

    async def _drive_async(self, feed: Feed, bell: LoopBell) -> None:
        task: Any = asyncio.current_task()
        for call in self._deliver(feed):
            if call is None:
                await bell.wait(feed, self._left)
                continue
            try:
                result: Any = call[0](*call[1])
                if result is not None and hasattr(result, "__await__"):
                    await result
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and task.cancelling():
                    raise  # the registration itself is cancelled, not a call within the handler
                self._failure = error
            if bell.slice_over:
                await bell.pause()

    def _log_cancelled(self) -> None:
        if self._stopped():
            return
        import logging

        logging.getLogger(__name__).info(
            "registration %s of %s was cancelled: its handlers are called no more",
            self.name,
            self.resource,
        )
