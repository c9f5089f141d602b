"""Handlers and events of a portable cache: the content of one state, then each change (PORT2)."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Self

from shmcache.callables import check_plain, is_coroutine_function
from shmcache.portable.missing import lacking
from shmcache.portable.objects import View
from shmcache.portable.store import PrivateChange, PrivateStore
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.reader.sharding import uid_of

logger = logging.getLogger(__name__)

LEAST_RESYNC = 1.0

_TYPES: dict[tuple[bool, bool], Literal["ADDED", "MODIFIED", "DELETED"]] = {
    (False, True): "ADDED",
    (True, True): "MODIFIED",
    (True, False): "DELETED",
}


class PrivateWanted:
    """The objects that a list or registration is about."""

    def __init__(
        self,
        namespace: str | None = None,
        labels: LabelSelector | Mapping[str, str] | str | None = None,
        fields: FieldSelector | str | None = None,
        shard: tuple[int, int] | None = None,
    ) -> None:
        if shard is not None:
            lacking("a shard")
        if namespace is not None and not isinstance(namespace, str):
            raise TypeError(f"namespace must be a str or None, not {namespace!r}")
        self._prefix = f"{namespace}/" if namespace else ""
        if isinstance(labels, str):
            labels = LabelSelector.parse(labels)
        elif isinstance(labels, Mapping):
            labels = LabelSelector.of(labels)
        self._labels = labels
        self._fields = FieldSelector.parse(fields) if isinstance(fields, str) else fields

    def selects(self, key: str, obj: View) -> bool:
        """Whether an object is among them."""
        return (
            key.startswith(self._prefix)
            and (self._labels is None or self._labels.matches(obj))
            and (self._fields is None or self._fields.matches(obj))
        )

    def seen(self, change: PrivateChange) -> Iterator[PrivateChange]:
        """A change as somebody sees it who knows these objects only.

        An object that begins to match is added, one that ceases to match deleted; one whose UID
        has changed is another object.
        """
        old, new = (
            one if one is not None and self.selects(change.key, one) else None
            for one in (change.old, change.new)
        )
        if old is None and new is None:
            return
        if old is not None and new is not None and uid_of(old) != uid_of(new):
            parts = [PrivateChange(change.key, old, None), PrivateChange(change.key, None, new)]
        else:
            parts = [PrivateChange(change.key, old, new)]
        for part in parts:
            part.unknown = change.unknown and part.new is None
            yield part


class PrivateFeed:
    """The changes of a resource from one state on. A context manager."""

    def __init__(
        self,
        store: PrivateStore,
        resource: str,
        wanted: PrivateWanted,
        *,
        changes_only: bool = False,
    ) -> None:
        self._store, self._resource, self._wanted = store, resource, wanted
        self._waiting: queue.SimpleQueue[PrivateChange | None] = queue.SimpleQueue()
        self.nudges = False
        """Whether a state without changes ends a take(), too."""
        self.signal: Callable[[], object] | None = None
        """Called after each change, in the writer's thread."""
        with store.changed:
            self.table = store.state.tables[resource]
            store.listeners.append(self._hear)
        if not changes_only:
            for key in self.table.order():
                if wanted.selects(key, self.table.objects[key]):
                    first = PrivateChange(key, None, self.table.objects[key])
                    first.initial = True
                    self._waiting.put(first)

    def _hear(self, resource: str, changes: list[PrivateChange]) -> None:
        if resource == self._resource:
            if not changes and self.nudges:
                self._waiting.put(None)
            for change in changes:
                for seen in self._wanted.seen(change):
                    self._waiting.put(seen)
            if self.signal is not None:
                self.signal()

    def take(self, timeout: float | None = None) -> PrivateChange | None:
        """The next change; None after `timeout` seconds, or if the feed was closed."""
        try:
            return self._waiting.get(timeout=None if timeout is None else max(0.0, timeout))
        except queue.Empty:
            return None

    def close(self) -> None:
        """No more changes; take() returns None. Idempotent."""
        with self._store.changed:
            self.nudges = False
            if self._hear in self._store.listeners:
                self._store.listeners.remove(self._hear)
        self._waiting.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
            raise ValueError(f"resync is at least {LEAST_RESYNC} seconds, or None, not {resync!r}")
        self.resource, self.name = resource, name or f"handler of {resource}"
        self.handled = 0
        self._functions, self._resync = functions, resync
        self._store, self._wanted = store, wanted
        self._feed: PrivateFeed | None = None
        self._thread: threading.Thread | None = None
        self._synced = self._over = False
        self._initial = 0

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
        feed, objects = self._feed, {}  # type: PrivateFeed | None, dict[str, View]
        due = time.monotonic() + (self._resync or 0)
        while feed is not None and not self._over:
            self._note_synced(feed)
            left = None if not self._resync else max(0.0, due - time.monotonic())
            change = feed.take(left)
            if change is not None:
                if change.new is None:
                    objects.pop(change.key, None)
                else:
                    objects[change.key] = change.new
                self._call(change)
            elif self._resync and time.monotonic() >= due:
                due = time.monotonic() + self._resync
                for key, obj in list(objects.items()):
                    self._call(PrivateChange(key, obj, obj))

    def _note_synced(self, feed: PrivateFeed) -> None:
        if not self._synced and feed._waiting.empty():  # noqa: SLF001 - its owner
            with self._store.changed:
                table = self._store.state.tables[self.resource]
                self._synced = table.synced or table.version is not None
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
            self.handled += 1
        except Exception:
            logger.exception("%s failed on %s: it goes on with the next", self.name, change.key)


class PrivateEvent:
    """One change, as `async for event in pods.events()` gives it."""

    __slots__ = ("initial", "key", "new", "old", "type", "unknown_final_state")

    def __init__(self, change: PrivateChange) -> None:
        self.type = _TYPES[change.old is not None, change.new is not None]
        self.key, self.old, self.new = change.key, change.old, change.new
        self.initial, self.unknown_final_state = change.initial, change.unknown

    @property
    def object(self) -> View:
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
