"""Registrations: handlers that receive every change, each at a pace of its own.

    registration = cache["pods"].add_handler(on_update=seen, labels="app=web")
    cache.start()

Each registration has a thread and a position in the ring. A slow handler delays nobody: it
shares nothing with the others but the interpreter, and falls behind alone (G16). One loop for all
would need no threads, and would stand still in the first handler that does.
"""

from __future__ import annotations

import os
import threading
import time

from shmcache.callables import check_callable, is_coroutine_function, refuse_awaitable
from shmcache.errors import ClosedError, ForkedError, StaleObjectError
from shmcache.handlers.distinct import Distinct
from shmcache.handlers.feed import ADD, DELETE, KIND_NAMES, REPLAY_PAGE, UPDATE
from shmcache.reader import waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from shmcache.handlers.feed import Feed, FeedEvent, Keyed
    from shmcache.handlers.informer import Informer

    OnAdd = Callable[[Any, bool], object]
    OnUpdate = Callable[[Any, Any], object]
    OnDelete = Callable[[Any, bool], object]
    Handlers = tuple[OnAdd | None, OnUpdate | None, OnDelete | None]
    Call = tuple[Callable[..., object], tuple[Any, ...]]
    """A handler, and the arguments of its calls."""

RESYNC_MIN = 1.0
"""Seconds; a shorter period would be a poll."""
SLICE_SECONDS = 0.005
"""How long deliveries hold an event loop, or the hub of greenlets, before others run."""


class Wanted:
    """The events that a registration wants, and how it receives them: the same in every process."""

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
            raise ValueError(
                f"resync must be at least {RESYNC_MIN} seconds, or None, not {resync!r}"
            )
        for title, handler in zip(("on_add", "on_update", "on_delete"), handlers, strict=True):
            if handler is not None:
                check_callable(handler, title)
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
        return any(map(is_coroutine_function, self.handlers))


def _name_of(handlers: Handlers) -> str:
    for handler in handlers:
        if handler is not None:
            return getattr(handler, "__qualname__", None) or repr(handler)
    return "no handler"


class Registration:
    """One set of handlers of one resource. Obtained from add_handler(), and ended by remove()."""

    def __init__(self, informer: Informer, wanted: Wanted) -> None:
        self._informer = informer
        self._wanted = wanted
        self._removed = False
        self._reset()

    def _reset(self) -> None:
        """Its state before it ran: nothing was delivered in this process."""
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
        self._left: float | None = None
        self._failure: BaseException | None = None
        self._errors = Distinct(__name__)

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
        """Its name in logs: as given to add_handler(), or the first handler's."""
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
        """Calls for ADDED, MODIFIED and DELETED."""
        self._here()
        return dict(zip(KIND_NAMES, self._counts, strict=True))

    @property
    def lapses(self) -> int:
        """How often the ring did not lead on, and it received a difference."""
        self._here()
        return self._feed.lapses if self._feed is not None else 0

    @property
    def has_synced(self) -> bool:
        """Whether this registration has received the whole first content of its resource (G12)."""
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

    # ---- deliveries, without I/O: for every driver -----------------------------------------------

    def _deliver(self, feed: Feed) -> Iterator[Call | None]:
        """Handler calls, in order; None where there is nothing to deliver now.

        The driver makes each call, and leaves its exception in `_failure`; at None it sleeps for
        `_left` seconds at most. All decisions of a delivery are here.
        """
        while not self._stopped():
            if not (yield from self._calls(feed, feed.drain())):
                continue
            if feed.synced and not self._synced.is_set():
                self._set_synced()
            self._left = self._until_resync()
            if self._left is not None and (self._left <= 0 or self._resync_after is not None):
                yield from self._resync(feed)
                continue
            feed.rest()
            yield None

    def _calls(self, feed: Feed, stream: Iterator[FeedEvent]) -> Generator[Call, None, bool]:
        """The calls of a stream; False if it must begin again, or the registration ended."""
        on_add, on_update, on_delete = self._wanted.handlers
        for kind, keyed, old, new, flag in stream:
            if self._removed or self._informer.stopping:
                return False
            if kind == UPDATE:
                if on_update is not None:
                    yield on_update, (old, new)
            elif kind == ADD:
                if on_add is not None:
                    yield on_add, (new, flag)
            elif on_delete is not None:
                yield on_delete, (old, flag)
            if self._failure is not None:
                error, self._failure = self._failure, None
                if not self._counts_as_delivered(feed, kind, keyed, error):
                    return False
            self._counts[kind] += 1
        return True

    def _counts_as_delivered(
        self, feed: Feed, kind: int, keyed: Keyed, error: BaseException
    ) -> bool:
        """Whether a call that raised was the handler's fault: counted then, and not repeated."""
        if isinstance(error, StaleObjectError) and feed.revoked():
            return False  # the writer needed the memory: it is delivered again (G13)
        if isinstance(error, ClosedError) and self._stopped():
            return False  # close() took its objects away
        self.errors += 1
        self._errors.report(
            error,
            "handler %s of %s failed on %s %s: it goes on with the next",
            self.name,
            self.resource,
            KIND_NAMES[kind],
            _key_of(keyed),
        )
        return True

    def _until_resync(self) -> float | None:
        return None if self._resync_at is None else self._resync_at - self._informer.clock()

    def _resync(self, feed: Feed) -> Generator[Call, None, None]:
        """One page of the objects it knows, once more; the next one after newer events (G15)."""
        after = self._resync_after or ""
        found, self._resync_after = feed.replay(after, REPLAY_PAGE)
        if not (yield from self._calls(feed, iter(found))):
            self._resync_after = after  # its objects went stale
        if self._resync_after is None:
            self._resync_later()

    def _begin(self, feed: Feed) -> None:
        self._feed = feed
        self._resync_later()

    def _resync_later(self) -> None:
        if self._wanted.resync is not None:
            self._resync_at = self._informer.clock() + self._wanted.resync

    def _set_synced(self) -> None:
        self._synced.set()

    def _stopped(self) -> bool:
        return self._removed or self._informer.stopping

    def _stop(self) -> None:
        """The cache is closed: a registration that never ran has ended."""
        if self._thread is None:
            self._end()

    def _end(self) -> None:
        self._ended.set()
        self._synced.set()  # its waiters wait no longer: see wait_synced()

    # ---- the driver of threads -------------------------------------------------------------------

    def _start(self, feed: Feed) -> None:
        self._begin(feed)
        self._thread = threading.Thread(
            target=self._run, args=(feed,), name=f"shmcache {self.name}", daemon=True
        )
        self._thread.start()

    def _run(self, feed: Feed) -> None:
        pid = os.getpid()
        try:
            self._drive(feed)
        except ForkedError:
            return  # a handler forked, and this is the child: nothing here is its own (G19)
        except ClosedError:
            if not self._stopped():
                raise
        finally:
            if pid == os.getpid():
                self._informer.leave(feed)
                self._end()

    def _drive(self, feed: Feed) -> None:
        on_hub = waiting.cooperative() is not None
        slice_end = 0.0
        for call in self._deliver(feed):
            if call is None:
                self._informer.wait(feed, self.resource, self._left, self._stopped)
                continue
            try:
                result = call[0](*call[1])
                if result is not None:
                    refuse_awaitable(result, "the handler")
            except BaseException as error:  # noqa: BLE001 - not ours: sys.exit() as well (G14)
                self._failure = error
            if on_hub and time.monotonic() >= slice_end:
                time.sleep(0)  # other greenlets
                slice_end = time.monotonic() + SLICE_SECONDS


def _key_of(keyed: Keyed) -> str:
    try:
        return str(keyed.key)
    except StaleObjectError:
        return "(its key is gone)"


def monotonic() -> float:
    """The clock of resyncs."""
    return time.monotonic()


assert (ADD, UPDATE, DELETE) == (0, 1, 2)  # indexes of counts
