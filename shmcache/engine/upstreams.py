"""Several servers of one cluster, relays and API servers: which of them is asked next.

The order of the configuration is the preference. A source (switching.py) stays where it is until
that fails, and goes home when an earlier one has been well for a while.

    SERVERS1  an upstream that failed is not chosen while another is usable, for a time that grows
        with its failures; if all have failed, the one that may be asked soonest is next.
    SERVERS2  the clients of an upstream that fails do not come to the next one together: each
        waits a moment by chance (retrying.py).
    SERVERS3  versions never go back: an answer of a relay that has not reached the version of the
        source is refused. A lower version means a restored server only where an API server
        states it, or where all relays state it for `REWIND_SECONDS` while they are heard.
    SERVERS4  a relay whose lag is beyond that of the freshest by more than `LAG_SECONDS` is passed
        over: a relay of a quiet cluster hears its server once a minute, its clients after two.
    SERVERS5  after a rewind that a server stated, relays are not asked for `HOLD_SECONDS`: each
        has to find out by itself.
    SERVERS6  looks include the one in use: sources leave a stopped process, or a partition, within
        seconds; a silent watch alone would take a minute and a half.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shmcache.protocol.relays import stated
from shmcache.reflector.backoff import Backoff, BackoffSettings
from shmcache.source.base import SourceFailed
from shmcache.source.client import ApiConnection, Client

if TYPE_CHECKING:
    from shmcache.engine.switching import SwitchingSource

_log = logging.getLogger(__name__)

LAG_SECONDS = 120.0
REWIND_SECONDS = 180.0
HOLD_SECONDS = 120.0
HEARD_SECONDS = 90.0
"""A relay with a smaller lag hears its server."""
SCOUT_SECONDS = 5.0
"""Between two looks at the upstreams, and up to half as much more by chance."""
SCOUT_SILENCE = 5.0
WELL = 2
"""So many looks in a row that an earlier upstream must be well before a source goes home."""
PAUSES = BackoffSettings(initial=0.5, cap=15.0, jitter=0.5, reset_after=60.0)
READY = "/readyz"


class Candidate:
    """One of the servers, and what is known of it."""

    def __init__(self, number: int, server: ApiConnection, rng: random.Random) -> None:
        self.number = number
        """Its place in the order of preference."""
        self.server = server
        self.name = label_of(server.access().url)
        self.is_relay = False
        self.lag = 0.0
        """Seconds, as a relay stated it last; 0 of an API server."""
        self.failed_until = 0.0
        self.well = 0
        """Looks in a row at which it was ready."""
        self._pauses = Backoff(PAUSES, rng)

    def fail(self, now: float) -> None:
        """It did not answer as a server that works does."""
        self.well = 0
        if self.failed_until <= now:
            self.failed_until = now + self._pauses.next(now)

    def answer(self, headers: Mapping[str, str]) -> None:
        """It answered."""
        self.failed_until = 0.0
        found = stated(headers)
        if found is not None:
            self.is_relay, self.lag = True, found.lag


class Upstreams:
    """The servers of a process, for all its sources. Thread-safe."""

    def __init__(
        self,
        servers: Sequence[ApiConnection],
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self.all = [Candidate(n, server, self._rng) for n, server in enumerate(servers)]
        self._sources: weakref.WeakSet[SwitchingSource] = weakref.WeakSet()
        self._relays_from = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def origin(self) -> str:
        """The same for each order of the same servers: a cache stays valid."""
        return " ".join(sorted({upstream.server.access().url for upstream in self.all}))

    def now(self) -> float:
        """The time by which it counts."""
        return self._clock()

    # ---- choices -------------------------------------------------------------------------------

    def choose(self, without: Collection[Candidate] = ()) -> Candidate:
        """The upstream to ask next (SERVERS1)."""
        with self._lock:
            usable = self._usable(without)
            if usable:
                return usable[0]
            left = [one for one in self.all if one not in without] or self.all
            return min(left, key=lambda one: (one.failed_until, one.number))

    def is_usable(self, upstream: Candidate, without: Collection[Candidate] = ()) -> bool:
        """Whether this one may be asked."""
        with self._lock:
            return upstream in self._usable(without)

    def is_another(self, than: Candidate, without: Collection[Candidate] = ()) -> bool:
        """Whether another one is usable now."""
        with self._lock:
            return any(one is not than for one in self._usable(without))

    def _usable(self, without: Collection[Candidate]) -> list[Candidate]:
        now = self._clock()
        found = [
            one
            for one in self.all
            if one not in without
            and one.failed_until <= now
            and not (one.is_relay and now < self._relays_from)
        ]
        lags = [one.lag for one in found]
        return [one for one in found if one.lag <= min(lags) + LAG_SECONDS]  # SERVERS4

    # ---- results of requests -------------------------------------------------------------------

    def failed(self, upstream: Candidate) -> None:
        """A request failed as requests to a server do that does not work."""
        with self._lock:
            upstream.fail(self._clock())

    def answered(self, upstream: Candidate, headers: Mapping[str, str]) -> None:
        """An answer came."""
        with self._lock:
            upstream.answer(headers)

    def rewound(self) -> None:
        """A server has stated that its history was cut (SERVERS5)."""
        with self._lock:
            self._relays_from = self._clock() + HOLD_SECONDS

    # ---- looks ---------------------------------------------------------------------------------

    def join(self, source: SwitchingSource) -> None:
        """A source that may go home; the looks begin with the first one."""
        with self._lock:
            self._sources.add(source)
            if self._thread is None and len(self.all) > 1:
                self._thread = threading.Thread(
                    target=self._scout, name="shmcache-upstreams", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Ends the looks."""
        self._stop.set()
        thread = self._thread
        if thread is not None:
            thread.join(2 * SCOUT_SILENCE)

    def _scout(self) -> None:
        clients = {one: Client(one.server) for one in self.all}
        try:
            while not self._stop.wait(SCOUT_SECONDS * (1 + 0.5 * self._rng.random())):
                with self._lock:
                    sources = list(self._sources)
                self.look(sources, clients)
        finally:
            for client in clients.values():
                client.close()

    def look(
        self, sources: Collection[SwitchingSource], clients: Mapping[Candidate, Client]
    ) -> None:
        """Asks the upstreams up to the last one in use, and sends sources home."""
        last = max((source.upstream.number for source in sources), default=-1)
        for one in self.all[: last + 1]:
            if not self._stop.is_set():
                self._ask(one, clients[one])
        for source in sources:
            better = self.choose(source.unfit())
            at = source.upstream
            with self._lock:
                nearer = better.number < at.number and better.well >= WELL
                stale = at.lag > better.lag + LAG_SECONDS
            dead = not self.is_usable(at) and self.is_usable(better)
            if better is not at and (nearer or stale or dead) and source.leave():
                _log.info("%s: leaves %s for %s", source.label, at.name, better.name)

    def _ask(self, upstream: Candidate, client: Client) -> None:
        try:
            code = client.status_of(READY, silence=SCOUT_SILENCE)
        except SourceFailed:
            self.failed(upstream)
            return
        with self._lock:
            if code >= 500:
                upstream.fail(self._clock())
            else:
                upstream.well += 1
                upstream.answer(client.answered)


def label_of(url: str) -> str:
    """The URL as people may see it: without a user."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
