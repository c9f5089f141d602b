"""Turns the changes of a cache into keys of a queue: one process at a time does it.

    feeder = Feeder(cache, queue, [("deployments.apps", by_key), ("pods", by_owner)])
    feeder.run(stop)        # in a thread of each worker: one of them feeds, the others sleep

    lock ──▸ where did the last one come to? ──▸ deltas from there ──▸ keys ──▸ where we are
                 └─ nowhere, too far back, rebuilt ──▸ all keys, with a low priority

The holder of the feeder's lock (the kernel drops it at death) follows the ring, adds the keys of
each delta, and then stores its position in the queue: its successor goes on from there, so a delta
may be added twice, and none is left out. The others do not look at the ring at all.

FEED1  A position is stored only when the keys of all events before it were added: while an event
       waits to be tried again, since its function raised, the stored position stays.
FEED2  Sources take turns of SLICE events each, so a noisy resource delays the others by that.
FEED3  A start that wants everything (Starts) is finished when any feeding process has added the
       whole content of all sources after the start.
"""

from __future__ import annotations

import os
import threading
import time
from itertools import islice

from shmcache._native import lib
from shmcache.callables import check_plain
from shmcache.errors import (
    BusyError,
    ClosedError,
    ForkedError,
    QueueShutDown,
    StaleObjectError,
)
from shmcache.handlers.delivered import Known
from shmcache.handlers.distinct import Distinct
from shmcache.handlers.feed import KIND_NAMES, Feed
from shmcache.handlers.tombstone import Tombstone
from shmcache.queue.workqueue import INITIAL_PRIORITY
from shmcache.reader import waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Protocol

    from shmcache.handlers.feed import FeedEvent
    from shmcache.queue.workqueue import WorkQueue
    from shmcache.reader.cache import Cache

    KeysOf = Callable[["SourceEvent"], Iterable[str]]

    class Gains(Protocol):
        """Keys that become ours without an event."""

        def gained(self) -> Iterable[str]:
            """Those that are to be added."""

        def added(self) -> None:
            """All of these were."""

    class Starts(Protocol):
        """Counts starts that want everything, and those that have it: shared by all processes."""

        @property
        def wanted(self) -> int:
            """The latest start."""

        @property
        def finished(self) -> int:
            """The latest start whose content was added."""

        def finish(self, start: int) -> None:
            """The content of this start was added."""


TAKEOVER_SECONDS = 0.5
"""How often a process that does not feed tries the lock."""
_LOOK_SECONDS = 1.0  # how long who feeds may miss that the queue was rebuilt
_SPENT_SECONDS = 2.0  # the same without a writer, where a look costs more; a new one wakes it
_GAIN_SECONDS = 0.1  # how long a gain of keys may wait to be noticed
_FULL_SECONDS = 0.5  # how long a full queue may hide that it is to end
_STORE_EVERY = 256  # events between two stored positions
_SYNC_SECONDS = 0.02
SLICE = 512
"""Events of one source before the next one has its turn."""
RETRIES = 4096
"""Events whose functions raised that are kept; of more, everything is added once they pass."""
_RETRY_SECONDS, _RETRY_MAX_SECONDS = 0.005, 30.0


class SourceEvent:
    """A change of an object. `kind`: ADDED, MODIFIED or DELETED.

    old and new are as handlers receive them: None where no object exists, a Tombstone for an object
    that is not available any more.
    """

    __slots__ = ("initial", "key", "kind", "new", "old", "resource", "state")

    def __init__(
        self,
        resource: str,
        kind: str,
        key: str,
        old: Any,
        new: Any,
        *,
        initial: bool = False,
        state: object = None,
    ) -> None:
        self.resource = resource
        self.kind = kind
        self.key = key
        self.old = old
        self.new = new
        self.initial = initial
        self.state = state
        """Equal for events that were read from one state of the cache; None where unknown."""

    def kept(self) -> SourceEvent:
        """The same, of plain dicts that outlive the cache's memory."""
        old, new = (one if one is None else one.to_dict() for one in (self.old, self.new))
        if old is not None and isinstance(self.old, Tombstone):
            old = self.old
        return SourceEvent(self.resource, self.kind, self.key, old, new, initial=self.initial)

    def __repr__(self) -> str:
        return f"<shmcache.SourceEvent {self.kind} {self.resource} {self.key}>"


class Retry:
    """An event whose function raised."""

    __slots__ = ("attempts", "due", "event")

    def __init__(self, event: SourceEvent) -> None:
        self.event = event
        self.attempts = 0
        self.due = 0.0

    def later(self) -> None:
        """Waits twice as long as before."""
        wait = min(_RETRY_SECONDS * 2.0 ** min(self.attempts, 30), _RETRY_MAX_SECONDS)
        self.attempts += 1
        self.due = time.monotonic() + wait


class KeySource:
    """One resource's way into the queue, while this process feeds."""

    def __init__(self, feeder: Feeder, resource: str, keys_of: KeysOf, *, fresh: bool) -> None:
        self._feeder = feeder
        self._queue = feeder.queue
        self.resource = resource
        self._keys_of = keys_of
        self._known = Known(feeder.cache, resource)
        self.feed = Feed(self._known)
        self._stream: Iterator[FeedEvent] | None = None
        self._lapses = 0
        self.retries: list[Retry] = []
        self._overflowed = False
        self._stored = (0, 0)
        instance, position, self.rebuilds, whole = feeder.queue.fed(resource)
        root, number = feeder.cache.look(resource)
        known = whole and number >= 0 and instance == root.instance and root.tail <= position
        if known and not fresh:
            self.feed.resume(root, number, position)
        else:
            self.begin()

    def begin(self) -> None:
        """All there is; and all that the queue remembers, for it may be gone from the cache."""
        self._stream = None
        self._queue.add_known(INITIAL_PRIORITY)
        self.feed.begin()

    def rebuilt(self) -> bool:
        """Whether the queue has lost keys since all were added."""
        return self._queue.fed(self.resource)[2] != self.rebuilds

    def close(self) -> None:
        """Frees the map that is kept for it."""
        self.feed.close()

    def drain(self) -> bool:
        """Adds the keys of the next SLICE events; whether that was all there is now."""
        if self.rebuilt():
            self.rebuilds = self._queue.fed(self.resource)[2]
            self.begin()
        self._try_again()
        if self._stream is None:
            self._stream, self._lapses = self.feed.drain(), self.feed.lapses
        count = 0
        for count, change in enumerate(islice(self._stream, SLICE), 1):
            if self._lost() or not self._deliver(change):
                self._stream = None
                break
            if count % _STORE_EVERY == 0:
                self._store()
        else:
            if count < SLICE:
                self._stream = None
                if not self._lost():
                    self.feed.resumed = False
                    self._store()
                    self.feed.rest()
                    return True
        if self._lost():
            self.begin()
        return False

    def _lost(self) -> bool:
        """Whether the ring moved on before we were at its head: our map knows too little."""
        return self.feed.resumed and self.feed.lapses != self._lapses

    def _deliver(self, change: FeedEvent) -> bool:
        """Adds the keys of an event; False if it is to be delivered again, or the feeder ends."""
        kind, keyed, old, new, flag = change
        initial = KIND_NAMES[kind] == "ADDED" and flag
        root = self.feed.root
        state = None if root is None else (root.instance, root.generation)
        event = SourceEvent(
            self.resource, KIND_NAMES[kind], "", old, new, initial=initial, state=state
        )
        try:
            event.key = str(keyed.key)
            return self._add(event)
        except BaseException as error:
            if self._feeder.over(error):
                raise
            if isinstance(error, StaleObjectError) and self.feed.revoked():
                return False  # the writer needed the memory: the event is delivered again
            return self._failed(event, error)

    def _add(self, event: SourceEvent) -> bool:
        """The keys of an event; False if the feeder is to end. Raises what the function raises."""
        keys = list(self._keys_of(event))
        if self._feeder.pid != os.getpid():
            raise ForkedError("the function of a source forked: only the parent feeds")
        priority = INITIAL_PRIORITY if event.initial else 0
        return all(self._feeder.add(key, priority) for key in keys)

    # ---- functions that raise --------------------------------------------------------------------

    def _failed(self, event: SourceEvent, error: BaseException) -> bool:
        """Keeps the event for later; False if it cannot be read any more: it is delivered again."""
        try:
            retry = Retry(event.kept())
        except StaleObjectError:
            return False
        self._feeder.failed(self.resource, event.kind, error)
        if len(self.retries) >= RETRIES:
            self._overflowed = True
        else:
            retry.later()
            self.retries.append(retry)
        return True

    def _try_again(self) -> None:
        """The events that are due; when all have passed, also those for which there was no room."""
        now = time.monotonic()
        for retry in [retry for retry in self.retries if retry.due <= now]:
            try:
                self._add(retry.event)
            except BaseException as error:
                if self._feeder.over(error):
                    raise
                self._feeder.failed(self.resource, retry.event.kind, error)
                retry.later()
            else:
                self.retries.remove(retry)
        if self._overflowed and not self.retries:
            self._overflowed = False
            self.begin()

    # ---- how far it came -------------------------------------------------------------------------

    def _store(self) -> None:
        """Only after adding keys (FEED1): not within a difference, nor once adds are ignored."""
        if self.feed.pieces is not None or not self.feed.whole or self._queue.shutting_down:
            return
        if self.retries or self._overflowed:
            self._store_whole()
            return
        known = self._known.map
        point = (known.instance, self.feed.position - known.offset)
        if point != self._stored:
            self._queue.store_fed(self.resource, (*point, self.rebuilds, True))
            self._stored = point

    def _store_whole(self) -> None:
        """FEED1: the first content is added but for some events: a successor begins with all."""
        if not self._queue.fed(self.resource)[3]:
            self._queue.store_fed(self.resource, (0, 0, self.rebuilds, True))

    def behind(self) -> tuple[Any, int]:
        """The reader and the generation that all is known of."""
        return self.feed.reader, self.feed.generation


class Feeder:
    """Feeds one queue. run() in every worker process; exactly one of them feeds at a time."""

    def __init__(
        self,
        cache: Cache,
        queue: WorkQueue,
        sources: Sequence[tuple[str, KeysOf]],
        *,
        starts: Starts | None = None,
        gains: Gains | None = None,
        on_error: Callable[[], object] = lambda: None,
    ) -> None:
        """`starts`: which starts want everything; other starts do not add earlier objects again."""
        self.pid = os.getpid()
        self._starts = starts
        self._gains = gains
        self._on_error = on_error
        self.cache = cache
        self.queue = queue
        self._wanted = list(sources)
        for resource, keys_of in self._wanted:
            check_plain(keys_of, f"the function of {resource}", iterated=True)
        if len({resource for resource, _ in self._wanted}) != len(self._wanted):
            raise ValueError("each resource feeds a queue once: let its function name all keys")
        if len(self._wanted) > lib.SHMC_QUEUE_RESOURCES_MAX:
            raise ValueError(
                f"at most {lib.SHMC_QUEUE_RESOURCES_MAX:,} resources feed a queue, "
                f"not {len(self._wanted):,}"
            )
        self._stop = threading.Event()
        self._asked = self._stop
        self._failures = Distinct(__name__)
        self.errors = 0
        """Calls of the sources' functions that raised."""
        self.feeding = False
        """Whether this process is the one that feeds."""

    # ---- for its owner ---------------------------------------------------------------------------

    def run(self, stop: threading.Event | None = None) -> None:
        """Until stop() or `stop` is set: waits for the lock, feeds, takes over from the dead."""
        self._asked = stop or self._stop
        while not self._ended():
            if not self.queue.feed_begin():
                self.queue.tend()
                self._asked.wait(TAKEOVER_SECONDS)
                continue
            try:
                self.feeding = True
                self._feed()
            finally:
                self.feeding = False
                if self.pid == os.getpid() and not self.queue.closed:
                    self.queue.feed_end()

    def stop(self) -> None:
        """Ends run(), from any thread."""
        self._stop.set()
        if not self.cache.closed:
            self.cache.nudge()

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Waits until the first content of all sources is in the queue, added by any process."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.synced:
            if self._ended() or (deadline is not None and time.monotonic() >= deadline):
                return self.synced
            time.sleep(_SYNC_SECONDS)
        return True

    @property
    def synced(self) -> bool:
        """Whether the first content of all sources is in the queue, added by any process."""
        starts = self._starts
        if starts is not None and starts.finished != starts.wanted:
            return False
        return all(self.queue.fed(resource)[3] for resource, _ in self._wanted)

    def _ended(self) -> bool:
        return (
            self._stop.is_set()
            or self._asked.is_set()
            or self.cache.closed
            or self.queue.closed
            or self.queue.stopped
            or self.queue.shutting_down
        )

    # ---- feeding ---------------------------------------------------------------------------------

    def _feed(self) -> None:
        starts = self._starts
        wanted = starts.wanted if starts is not None else 0
        fresh = starts is not None and starts.finished != wanted
        sources = [
            KeySource(self, resource, keys_of, fresh=fresh) for resource, keys_of in self._wanted
        ]
        try:
            while not self._ended():
                if starts is not None and starts.wanted != wanted:
                    wanted = starts.wanted
                    for source in sources:
                        source.begin()
                if not all([source.drain() for source in sources]):  # noqa: C419 - each of them
                    continue
                self._add_gained()
                if starts is not None and all(source.feed.whole for source in sources):
                    starts.finish(wanted)
                self._sleep(sources)
        except ClosedError:
            if not self._ended():
                raise
        finally:
            if self.pid == os.getpid():
                for source in sources:
                    source.close()

    def _add_gained(self) -> None:
        """The keys that have become this machine's; after a death the next feeder adds them."""
        if self._gains is None:
            return
        for key in self._gains.gained():
            if not self.add(key, INITIAL_PRIORITY):
                return
        self._gains.added()

    def _sleep(self, sources: list[KeySource]) -> None:
        """Until something happens in one of the resources; not for long, for the dead's sake."""
        self.queue.tend()
        points = [source.behind() for source in sources]
        reader = self.cache.reader
        if any(point[0] is not reader for point in points):
            return
        try:
            interest = waiting.bits(self.cache.locate(source.resource)[1] for source in sources)
        except KeyError:  # the new instance does not have it, yet
            interest = waiting.EVERYTHING
        since = min(point[1] for point in points)
        dues = [retry.due for source in sources for retry in source.retries]
        left = min(dues, default=float("inf")) - time.monotonic()
        if self._gains is None:
            look = _SPENT_SECONDS if reader.spent else _LOOK_SECONDS
        else:
            look = _GAIN_SECONDS
        seconds = max(0.0, min(left, look))
        waiting.sleep(reader, interest, 0, since, seconds, unless=self._ended)

    def add(self, key: str, priority: int) -> bool:
        """The key is in the queue, however full it is; False if we are to end before it is."""
        while True:
            try:
                self.queue.add(key, priority, timeout=_FULL_SECONDS)
            except BusyError as error:
                if self._ended():
                    return False
                self._failures.report(
                    error, "queue %s: changes wait until it has room", self.queue.name
                )
            else:
                return True

    def over(self, error: BaseException) -> bool:
        """Whether an error ends the feeder: it is not the fault of a source's function."""
        ended = isinstance(error, ClosedError | QueueShutDown) and self._ended()
        return ended or isinstance(error, ForkedError)

    def failed(self, resource: str, kind: str, error: BaseException) -> None:
        """A source's function raised: counted, and logged as distinct.py says."""
        self.errors += 1
        self._on_error()
        self._failures.report(
            error,
            "queue %s: the function that gives the keys of %s %s raised: it is called again later",
            self.queue.name,
            resource,
            kind,
        )
