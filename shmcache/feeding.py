"""Turning what happens in a cache into keys of a queue: one process at a time does it.

    feeder = Feeder(cache, queue, [("deployments.apps", by_key), ("pods", by_owner)])
    feeder.run(stop)        # in a thread of each worker: one of them feeds, the others sleep

    lock ──▸ where did the last one come to? ──▸ deltas from there ──▸ keys ──▸ where we are
                 └─ nowhere, too far back, rebuilt ──▸ all keys, with a low priority

Who holds the feeder's lock (the kernel drops it at death) follows the ring, adds the keys of each
delta, and then stores how far it came, in the queue: its successor goes on from there, so a delta
may be added twice, and none is left out. The others do not look at the ring at all.
"""

from __future__ import annotations

import threading
import time

from shmcache import waiting
from shmcache.errors import BusyError, ClosedError, StaleObjectError
from shmcache.feed import KIND_NAMES, Feed
from shmcache.known import Known
from shmcache.queue import INITIAL_PRIORITY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from shmcache.feed import Told
    from shmcache.queue import WorkQueue
    from shmcache.reader import Cache

    KeysOf = Callable[["Event"], Iterable[str]]

TAKEOVER_SECONDS = 0.2
"""How often who does not feed tries the lock."""
_LOOK_SECONDS = 0.5  # how long who feeds may miss that the queue was rebuilt
_FULL_SECONDS = 0.5  # how long a full queue may hide that it is to end
_STORE_EVERY = 256  # events between two stored positions
_SYNC_SECONDS = 0.02


class Event:
    """What happened to an object. `kind`: ADDED, MODIFIED or DELETED.

    old and new are as handlers are given them: None where there is none, a Tombstone for what
    cannot be had any more.
    """

    __slots__ = ("initial", "key", "kind", "new", "old", "resource")

    def __init__(
        self, resource: str, kind: str, key: str, old: Any, new: Any, *, initial: bool = False
    ) -> None:
        self.resource = resource
        self.kind = kind
        self.key = key
        self.old = old
        self.new = new
        self.initial = initial

    def __repr__(self) -> str:
        return f"<shmcache.Event {self.kind} {self.resource} {self.key}>"


class Source:
    """One resource's way into the queue, while this process feeds."""

    def __init__(self, feeder: Feeder, resource: str, keys_of: KeysOf) -> None:
        self._feeder = feeder
        self._queue = feeder.queue
        self.resource = resource
        self._keys_of = keys_of
        self._known = Known(feeder.cache, resource)
        self.feed = Feed(self._known)
        instance, position, self.rebuilds, whole = feeder.queue.fed(resource)
        root, number = feeder.cache.look(resource)
        if whole and number >= 0 and instance == root.instance and root.tail <= position:
            self.feed.resume(root, number, position)
        else:
            self._anew()
        self._stored = (0, 0)

    def _anew(self) -> None:
        """All there is; and what the queue remembers, for it may be gone from the cache."""
        self._queue.add_known(INITIAL_PRIORITY)
        self.feed.begin()

    def rebuilt(self) -> bool:
        """Whether the queue has lost keys since all were added."""
        return self._queue.fed(self.resource)[2] != self.rebuilds

    def close(self) -> None:
        """What is kept for it goes."""
        self.feed.close()

    def drain(self) -> bool:
        """Adds the keys of all there is now; False if that was interrupted."""
        if self.rebuilt():
            self.rebuilds = self._queue.fed(self.resource)[2]
            self._anew()
        lapses = self.feed.lapses
        for count, told in enumerate(self.feed.drain(), 1):
            if self._lost(lapses) or not self._tell(told):
                break
            if count % _STORE_EVERY == 0:
                self._store()
        else:
            if not self._lost(lapses):
                self.feed.resumed = False
                self._store()
                self.feed.rest()
                return True
        if self._lost(lapses):
            self._anew()
        return False

    def _lost(self, lapses: int) -> bool:
        """Whether the ring moved on before we were at its head: our map knows too little."""
        return self.feed.resumed and self.feed.lapses != lapses

    def _tell(self, told: Told) -> bool:
        kind, keyed, old, new, flag = told
        initial = KIND_NAMES[kind] == "ADDED" and flag
        try:
            event = Event(
                self.resource, KIND_NAMES[kind], str(keyed.key), old, new, initial=initial
            )
            keys = list(self._keys_of(event))
        except StaleObjectError as error:
            if self.feed.revoked():
                return False  # the writer needed the memory: told again
            self._feeder.failed(self.resource, kind, error)
            return True
        except Exception as error:  # noqa: BLE001 - the user's: the next event may do
            self._feeder.failed(self.resource, kind, error)
            return True
        priority = INITIAL_PRIORITY if initial else 0
        return all(self._feeder.add(key, priority) for key in keys)

    def _store(self) -> None:
        """Only what was added: neither inside of a difference, nor once adds are ignored."""
        if self.feed.pieces is not None or not self.feed.whole or self._queue.shutting_down:
            return
        known = self._known.map
        place = (known.instance, self.feed.position - known.offset)
        if place != self._stored:
            self._queue.store_fed(self.resource, (*place, self.rebuilds, True))
            self._stored = place

    def behind(self) -> tuple[Any, int]:
        """The reader and the generation that all is known of."""
        return self.feed.reader, self.feed.generation


class Feeder:
    """Feeds one queue. run() in every worker process; exactly one of them feeds at a time."""

    def __init__(
        self, cache: Cache, queue: WorkQueue, sources: Sequence[tuple[str, KeysOf]]
    ) -> None:
        self.cache = cache
        self.queue = queue
        self._wanted = list(sources)
        if len({resource for resource, _ in self._wanted}) != len(self._wanted):
            raise ValueError("each resource feeds a queue once: let its function name all keys")
        self._stop = threading.Event()
        self._asked = self._stop
        self._failures: set[tuple[str, type[BaseException], str]] = set()
        self.errors = 0
        """Calls of the sources' functions that raised."""
        self.feeding = False
        """Whether this process is the one that feeds."""

    # ---- for who runs it -------------------------------------------------------------------------

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
                if not self.queue.closed:
                    self.queue.feed_end()

    def stop(self) -> None:
        """Ends run(), from any thread."""
        self._stop.set()
        if not self.cache.closed:
            self.cache.nudge()

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Until the first content of all sources is in the queue, whoever put it there."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.synced:
            if self._ended() or (deadline is not None and time.monotonic() >= deadline):
                return self.synced
            time.sleep(_SYNC_SECONDS)
        return True

    @property
    def synced(self) -> bool:
        """Whether the first content of all sources is in the queue, whoever put it there."""
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
        sources = [Source(self, resource, keys_of) for resource, keys_of in self._wanted]
        try:
            while not self._ended():
                if all([source.drain() for source in sources]):  # noqa: C419 - each of them
                    self._sleep(sources)
        except ClosedError:
            if not self._ended():
                raise
        finally:
            for source in sources:
                source.close()

    def _sleep(self, sources: list[Source]) -> None:
        """Until something happens in one of the resources; not for long, for the dead's sake."""
        self.queue.tend()
        places = [source.behind() for source in sources]
        reader = self.cache.reader
        if any(place[0] is not reader for place in places):
            return
        try:
            interest = waiting.bits(self.cache.locate(source.resource)[1] for source in sources)
        except KeyError:  # the new instance does not have it, yet
            interest = waiting.EVERYTHING
        since = min(place[1] for place in places)
        waiting.sleep(reader, interest, 0, since, _LOOK_SECONDS, unless=self._ended)

    def add(self, key: str, priority: int) -> bool:
        """The key is in the queue, however full it is; False if we are to end before it is."""
        while True:
            try:
                self.queue.add(key, priority, timeout=_FULL_SECONDS)
            except BusyError:
                if self._ended():
                    return False
            else:
                return True

    def failed(self, resource: str, kind: int, error: BaseException) -> None:
        """A source's function raised: logged once for each kind of error, counted always."""
        self.errors += 1
        name = (resource, type(error), str(error)[:200])
        if name in self._failures or len(self._failures) > 1000:
            return
        self._failures.add(name)
        import logging

        logging.getLogger(__name__).error(
            "queue %s: the keys of %s %s cannot be told: it goes on with the next",
            self.queue.name,
            resource,
            KIND_NAMES[kind],
            exc_info=error,
        )
