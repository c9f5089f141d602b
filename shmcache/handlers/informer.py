"""Running the registrations of a cache: starting, stopping, waiting; again in a child of fork()."""

from __future__ import annotations

import os
import threading

from shmcache.errors import ClosedError
from shmcache.handlers.delivered import KnownResources
from shmcache.handlers.feed import Feed
from shmcache.handlers.registration import Registration, Wanted, monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmcache.reader.cache import Cache


def _kind(wanted: Wanted) -> type[Registration]:
    if not wanted.asynchronous:
        return Registration
    from shmcache.handlers.aio import AsyncRegistration

    return AsyncRegistration


class Informer:
    """The registrations of one cache in this process. Thread-safe."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.clock = monotonic
        self.registrations: list[Registration] = []
        self._resets: dict[int, threading.RLock] = {}
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self.known = KnownResources(self.cache)
        self.started = False
        self.stopping = False
        self.on_stop: list[Callable[[], object]] = []
        self.bells: dict[Any, Any] = {}
        self._pid = os.getpid()  # last: who sees it finds the rest

    def here(self) -> None:
        """In a child of fork() nothing runs, no lock is held, nothing was delivered yet (G19)."""
        if self._pid == os.getpid():
            return
        with self._resets.setdefault(os.getpid(), threading.RLock()):  # a child's own, open
            if self._pid != os.getpid():
                for registration in self.registrations:
                    registration._reset()  # noqa: SLF001 - the other half of this
                self._reset()

    # ---- registrations -------------------------------------------------------------------------

    def add(self, wanted: Wanted) -> Registration:
        """Registers; what runs already begins at once."""
        self.here()
        with self._lock:
            if self.stopping or self.cache.closed:
                raise ClosedError(
                    f"cache {self.cache.name!r} is closed: no handler is called any more"
                )
            registration = _kind(wanted)(self, wanted)
            self.registrations.append(registration)
            if self.started:
                self._start(registration)
        return registration

    def forget(self, registration: Registration) -> None:
        """The registration ends; what sleeps for it is woken."""
        with self._lock:
            if registration in self.registrations:
                self.registrations.remove(registration)
            self.known.drop_empty()
        if self.started and not self.cache.closed:
            self.cache.nudge()

    def feed(self, wanted: Wanted) -> Feed:
        """A new feed, which has delivered nothing yet."""
        with self._lock:
            known, bit = self.known.find(wanted.resource, by_content=wanted.match is not None)
            return Feed(
                known, bit, match=wanted.match, namespace=wanted.namespace, shard=wanted.shard
            )

    def leave(self, feed: Feed) -> None:
        """A feed has ended: frees everything kept for it alone."""
        feed.close()
        feed.rest()
        with self._lock:
            self.known.drop_empty()

    def _start(self, registration: Registration) -> None:
        registration._start(self.feed(registration._wanted))  # noqa: SLF001

    # ---- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Tells all registrations from now on, each in a thread. May be repeated."""
        self.here()
        with self._lock:
            if self.stopping or self.cache.closed:
                raise ClosedError(f"cache {self.cache.name!r} is closed: it cannot start again")
            if self.started:
                return
            self.started = True
            for registration in self.registrations:
                self._start(registration)

    def stop(self) -> None:
        """No further calls. Returns at once; join() waits."""
        self.here()
        with self._lock:
            self.stopping = True
            for tell in self.on_stop:
                tell()
            for registration in self.registrations:
                registration._stop()  # noqa: SLF001
            for loop, bell in list(self.bells.items()):
                try:
                    loop.call_soon_threadsafe(bell.end)
                except RuntimeError:  # the loop is closed
                    bell.close()

    def join(self, timeout: float | None = None) -> bool:
        """Waits until no handler runs; False if `timeout` seconds passed before."""
        deadline = None if timeout is None else monotonic() + timeout
        for registration in list(self.registrations):
            thread = registration._thread  # noqa: SLF001
            if thread is None or thread is threading.current_thread():
                continue
            thread.join(None if deadline is None else max(0.0, deadline - monotonic()))
            if thread.is_alive():
                return False
        return True

    def wait(
        self, feed: Feed, resource: str, timeout: float | None, unless: Callable[[], bool]
    ) -> None:
        """Sleeps until there may be more for a feed, it ends, or the time is over."""
        if feed.reader is not None:
            self.cache.sleep(resource, feed.reader, feed.generation, timeout, unless)
