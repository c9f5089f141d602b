"""Registrations: handlers that are told of every change, each at a pace of its own.

    registration = cache["pods"].add_handler(on_update=seen, labels="app=web")
    cache.start()

Each registration has a thread and a place in the ring. A slow handler therefore delays nobody: it
shares nothing with the others but the interpreter, and falls behind alone (G16). One loop for all
would need no threads, and would stand still in the first handler that does.
"""

from __future__ import annotations

import os
import threading
import time

from shmcache.errors import ClosedError, ForkedError, StaleObjectError
from shmcache.feed import ADD, DELETE, KIND_NAMES, REPLAY_PAGE, UPDATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from shmcache.feed import Feed, Keyed, Told
    from shmcache.informer import Informer

    OnAdd = Callable[[Any, bool], object]
    OnUpdate = Callable[[Any, Any], object]
    OnDelete = Callable[[Any, bool], object]
    Handlers = tuple[OnAdd | None, OnUpdate | None, OnDelete | None]

RESYNC_MIN = 1.0
"""Seconds; a shorter period would be a poll."""
_CO_COROUTINE = 0x80  # inspect.CO_COROUTINE, without that import


class Wanted:
    """What a registration wants to be told, and how it is told: the same in every process."""

    __slots__ = ("handlers", "match", "name", "namespace", "resource", "resync", "shard")

    def __init__(
        self,
        resource: str,
        handlers: Handlers,
        *,
        match: Callable[[Any], bool] | None,
        namespace: str | None,
        resync: float | None,
        shard: tuple[int, int] | None,
        name: str | None,
    ) -> None:
        if resync and resync < RESYNC_MIN:
            raise ValueError(f"resync is at least {RESYNC_MIN} seconds, or None, not {resync!r}")
        self.resource = resource
        self.handlers = handlers
        self.match = match
        self.namespace = namespace
        self.resync = resync or None
        self.shard = shard
        self.name = name or _name_of(handlers)

    @property
    def asynchronous(self) -> bool:
        """Whether a handler is a coroutine function: then all are called in a loop."""
        return any(handler is not None and _is_coroutine(handler) for handler in self.handlers)


def _name_of(handlers: Handlers) -> str:
    for handler in handlers:
        if handler is not None:
            return getattr(handler, "__qualname__", None) or repr(handler)
    return "no handler"


def _is_coroutine(handler: Callable[..., object]) -> bool:
    called: Any = handler if hasattr(handler, "__code__") else getattr(handler, "__func__", None)
    if called is None:
        called = getattr(type(handler).__call__, "__func__", type(handler).__call__)
    code = getattr(called, "__code__", None)
    return code is not None and bool(code.co_flags & _CO_COROUTINE)


class Registration:
    """One set of handlers of one resource. Obtained from add_handler(), and ended by remove()."""

    def __init__(self, informer: Informer, wanted: Wanted) -> None:
        self._informer = informer
        self._wanted = wanted
        self._removed = False
        self._reset()

    def _reset(self) -> None:
        """As it is before it ran: nothing was told in this process."""
        self._counts = [0, 0, 0]
        self.errors = 0
        """Handler calls that raised."""
        self._pid = os.getpid()
        self._feed: Feed | None = None
        self._thread: threading.Thread | None = None
        self._synced = threading.Event()
        self._ended = threading.Event()
        self._resync_at: float | None = None
        self._resync_after: str | None = None

    def _here(self) -> None:
        """A child of fork() starts from nothing."""
        if self._pid != os.getpid():
            self._informer.here()

    # ---- for the user --------------------------------------------------------------------------

    @property
    def resource(self) -> str:
        """The name of the resource."""
        return self._wanted.resource

    @property
    def name(self) -> str:
        """What logs call it: as given to add_handler(), or the first handler's."""
        return self._wanted.name

    @property
    def active(self) -> bool:
        """Whether its handlers are, or will be, called."""
        self._here()
        return not self._removed and not self._ended.is_set()

    @property
    def handled(self) -> int:
        """Handler calls that came to an end, be it by raising."""
        self._here()
        return sum(self._counts)

    @property
    def counts(self) -> dict[str, int]:
        """How often it was told ADDED, MODIFIED and DELETED."""
        self._here()
        return dict(zip(KIND_NAMES, self._counts, strict=True))

    @property
    def lapses(self) -> int:
        """How often the ring did not lead on, and it was told by difference."""
        self._here()
        return self._feed.lapses if self._feed is not None else 0

    @property
    def has_synced(self) -> bool:
        """Whether this registration was told of the whole first content of its resource (G12)."""
        self._here()
        return self._synced.is_set() and not self._failed()

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Waits until has_synced; False if `timeout` seconds passed, or it ended before."""
        self._here()
        return self._synced.wait(timeout) and not self._failed()

    def _failed(self) -> bool:
        return self._feed is None or not self._feed.synced

    def remove(self, *, wait: bool = False, timeout: float | None = None) -> bool:
        """No further calls; one under way comes to its end. May be repeated, from anywhere.

        With `wait`, returns when that end has come (False: not within `timeout`); a handler that
        removes its own registration does not wait for itself.
        """
        self._here()
        if not self._removed:
            self._removed = True
            self._informer.forget(self)
            self._stop()
        if not wait or self._thread is None or self._thread is threading.current_thread():
            return True
        return self._ended.wait(timeout)

    def __repr__(self) -> str:
        state = "active" if self.active else "removed"
        return f"<shmcache.Registration {self.name} of {self.resource}: {state}>"

    # ---- its thread ----------------------------------------------------------------------------

    def _start(self, feed: Feed) -> None:
        self._feed = feed
        if self._wanted.resync is not None:
            self._resync_at = self._informer.clock() + self._wanted.resync
        self._thread = threading.Thread(
            target=self._run, args=(feed,), name=f"shmcache {self.name}", daemon=True
        )
        self._thread.start()

    def _stopped(self) -> bool:
        return self._removed or self._informer.stopping

    def _run(self, feed: Feed) -> None:
        pid = os.getpid()
        try:
            while not self._stopped():
                if self._tell(feed, feed.drain()):
                    self._drained(feed)
        except ForkedError:
            return  # a handler forked, and this is the child: nothing here is its own (G19)
        except ClosedError:
            if not self._stopped():
                raise
        finally:
            if pid == os.getpid():
                self._informer.leave(feed)
                self._end()

    def _stop(self) -> None:
        """The cache is closed: what never ran has ended."""
        if self._thread is None:
            self._end()

    def _end(self) -> None:
        self._ended.set()
        self._synced.set()  # whoever waits for it waits no longer: see wait_synced()

    def _drained(self, feed: Feed) -> None:
        """Everything was told: sleeps until there is more, or a resync is due."""
        if feed.synced and not self._synced.is_set():
            self._synced.set()
        left = None
        if self._resync_at is not None:
            left = self._resync_at - self._informer.clock()
            if left <= 0 or self._resync_after is not None:
                self._resync(feed)
                return
        feed.rest()
        self._informer.wait(feed, self.resource, left, self._stopped)

    def _resync(self, feed: Feed) -> None:
        """One page of what it knows, once more; the next one after what came meanwhile (G15)."""
        after = self._resync_after or ""
        found, self._resync_after = feed.replay(after, REPLAY_PAGE)
        if not self._tell(feed, iter(found)):
            self._resync_after = after  # its objects went stale
        self._resynced()

    def _resynced(self) -> None:
        if self._resync_after is None:
            self._resync_at = self._informer.clock() + (self._wanted.resync or 0)

    def _tell(self, feed: Feed, stream: Iterator[Told]) -> bool:
        """Calls handlers until the stream ends; False if it must begin anew, or it was removed."""
        on_add, on_update, on_delete = self._wanted.handlers
        counts = self._counts
        for kind, keyed, old, new, flag in stream:
            if self._removed or self._informer.stopping:
                return False
            try:
                if kind == UPDATE:
                    if on_update is not None:
                        on_update(old, new)
                elif kind == ADD:
                    if on_add is not None:
                        on_add(new, flag)
                elif on_delete is not None:
                    on_delete(old, flag)
            except StaleObjectError as error:
                if feed.revoked():
                    return False  # not the handler's fault: it is told again (G13)
                self._failed_on(kind, keyed, error)
            except ClosedError as error:
                if self._stopped():
                    return False  # close() took its objects away
                self._failed_on(kind, keyed, error)
            except BaseException as error:  # noqa: BLE001 - not ours: sys.exit() as well (G14)
                self._failed_on(kind, keyed, error)
            counts[kind] += 1
        return True

    def _failed_on(self, kind: int, keyed: Keyed, error: BaseException) -> None:
        self.errors += 1
        import logging

        logging.getLogger(__name__).error(
            "handler %s of %s failed on %s %s: it goes on with the next",
            self.name,
            self.resource,
            KIND_NAMES[kind],
            _key_of(keyed),
            exc_info=error,
        )


def _key_of(keyed: Keyed) -> str:
    try:
        return str(keyed.key)
    except StaleObjectError:
        return "(its key is gone)"


def monotonic() -> float:
    """The clock of resyncs."""
    return time.monotonic()


assert (ADD, UPDATE, DELETE) == (0, 1, 2)  # places in counts
