"""Handlers and events of a portable cache: the content of one state, then each change (PORT2)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, Self

from shmcache.callables import check_plain, is_coroutine_function
from shmcache.handlers.distinct import Distinct
from shmcache.handlers.tombstone import Tombstone
from shmcache.portable.feed import PrivateFeed, PrivateWanted
from shmcache.portable.missing import lacking
from shmcache.portable.objects import View
from shmcache.portable.store import PrivateChange, PrivateStore

LEAST_RESYNC = 1.0

_TYPES: dict[tuple[bool, bool], Literal["ADDED", "MODIFIED", "DELETED"]] = {
    (False, True): "ADDED",
    (True, True): "MODIFIED",
    (True, False): "DELETED",
}


class PrivateRegistration:
    """The handlers of one add_handler() call: a thread, from start() to remove()."""

    def __init__(
        self,
        store: PrivateStore,
        resource: str,
        functions: tuple[Any, Any, Any],
        wanted: PrivateWanted,
        *,
        resync: float | None,
        name: str | None,
    ) -> None:
        if not any(functions):
            raise TypeError("add_handler() needs at least one function")
        for function in functions:
            if is_coroutine_function(function):
                lacking("a handler that is a coroutine function")
            if function is not None:
                check_plain(function, "a handler")
        if resync is not None and not resync >= LEAST_RESYNC:
            raise ValueError(
                f"resync must be at least {LEAST_RESYNC} seconds, or None, not {resync!r}"
            )
        self.resource, self.name = resource, name or f"handler of {resource}"
        self.errors = 0
        """Calls that raised."""
        self.counts = dict.fromkeys(_TYPES.values(), 0)
        """Calls for ADDED, MODIFIED and DELETED."""
        self._distinct = Distinct(__name__)
        self._functions, self._resync = functions, resync
        self._store, self._wanted = store, wanted
        self._feed: PrivateFeed | None = None
        self._thread: threading.Thread | None = None
        self._synced = self._over = False

    @property
    def handled(self) -> int:
        """Calls that came to an end, be it by raising."""
        return sum(self.counts.values())

    @property
    def lapses(self) -> int:
        """How often it fell behind the window, and received a difference."""
        return self._feed.lapses if self._feed is not None else 0

    @property
    def active(self) -> bool:
        """Whether it was not removed."""
        return not self._over

    @property
    def has_synced(self) -> bool:
        """Whether it has received the first content, of a resource whose first list is stored."""
        return self._synced

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Sleeps until has_synced; False if `timeout` seconds passed."""
        return self._store.wait(lambda: self._synced, timeout)

    def start(self) -> None:
        """Begins with the content of now. May be repeated."""
        if self._thread is None and not self._over:
            self._feed = PrivateFeed(self._store, self.resource, self._wanted)
            self._feed.nudges = True
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()

    def remove(self, *, wait: bool = False, timeout: float | None = None) -> bool:
        """No call begins after this; with `wait`, none is under way either."""
        self._over = True
        if self._feed is not None:
            self._feed.close()
        thread = self._thread
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
            return not thread.is_alive()
        return True

    def _run(self) -> None:
        feed = self._feed
        due = time.monotonic() + (self._resync or 0)
        while feed is not None and not self._over:
            self._note_synced(feed)
            left = None if not self._resync else max(0.0, due - time.monotonic())
            change = feed.take(left)
            if change is not None:
                self._call(change)
            elif self._resync and time.monotonic() >= due:
                due = time.monotonic() + self._resync
                for key, obj in list(feed.delivered.items()):
                    self._call(PrivateChange(key, obj, obj))

    def _note_synced(self, feed: PrivateFeed) -> None:
        if feed.whole and not self._synced:
            with self._store.changed:
                self._synced = True
                self._store.changed.notify_all()

    def _call(self, change: PrivateChange) -> None:
        on_add, on_update, on_delete = self._functions
        try:
            if change.old is None:
                if on_add is not None:
                    on_add(change.new, change.initial)
            elif change.new is None:
                if on_delete is not None:
                    on_delete(change.old, change.unknown)
            elif on_update is not None:
                on_update(change.old, change.new)
        except Exception as error:  # noqa: BLE001 - of other people's functions (G14)
            self.errors += 1
            text = "%s failed on %s: it goes on with the next"
            self._distinct.report(error, text, self.name, change.key)
        self.counts[_TYPES[change.old is not None, change.new is not None]] += 1


class PrivateEvent:
    """One change, as `async for event in pods.events()` gives it."""

    __slots__ = ("initial", "key", "new", "old", "type", "unknown_final_state")

    def __init__(self, change: PrivateChange) -> None:
        self.type = _TYPES[change.old is not None, change.new is not None]
        self.key, self.old, self.new = change.key, change.old, change.new
        self.initial, self.unknown_final_state = change.initial, change.unknown

    @property
    def object(self) -> View | Tombstone:
        """The object: the new one, of a deletion the last one."""
        found = self.new if self.new is not None else self.old
        assert found is not None
        return found


class PrivateEvents:
    """Every change, from now on: ends with aclose()."""

    def __init__(self, store: PrivateStore, resource: str, wanted: PrivateWanted) -> None:
        self._store, self._resource, self._wanted = store, resource, wanted
        self._feed: PrivateFeed | None = None
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PrivateEvent:
        if self._over:
            raise StopAsyncIteration
        feed = self._feed
        if feed is None:
            loop, self._bell = asyncio.get_running_loop(), asyncio.Event()
            feed = self._feed = PrivateFeed(self._store, self._resource, self._wanted)
            feed.signal = lambda: _ring(loop, self._bell)
        while True:
            self._bell.clear()
            change = feed.take(0)
            if change is not None:
                return PrivateEvent(change)
            if self._over:
                raise StopAsyncIteration
            await self._bell.wait()

    async def aclose(self) -> None:
        """Ends the iteration."""
        self._over = True
        if self._feed is not None:
            self._feed.close()
            self._bell.set()


def _ring(loop: asyncio.AbstractEventLoop, bell: asyncio.Event) -> None:
    """Wakes a coroutine from another thread."""
    try:
        loop.call_soon_threadsafe(bell.set)
    except RuntimeError:
        pass  # the loop is closed: nothing awaits it


async def sleep_until(store: PrivateStore, fact: Callable[[], bool], timeout: float | None) -> bool:
    """Store.wait() on asyncio; the loop goes on meanwhile."""
    loop, bell = asyncio.get_running_loop(), asyncio.Event()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if store.wait(lambda: over.is_set() or fact(), None) and not over.is_set():
                _ring(loop, bell)
                return

    threading.Thread(target=watch, name="shmcache wait", daemon=True).start()
    try:
        await asyncio.wait_for(bell.wait(), timeout)
    except TimeoutError:
        pass
    finally:
        over.set()
        with store.changed:
            store.changed.notify_all()
    return fact()
