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
    SERVERS7  with Leases, the servers of the configuration are for the holders: other machines
        follow those, and wait while none of them answers. They do not wait for ever: after
        a while without any, and where all holders refuse a request, they ask the servers, too.
    SERVERS8  one rank in the order may have several upstreams, which come and go: the addresses
        of a name, the holders of Leases. Nobody goes home from one to another of them.
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
    from shmcache.engine.names import ServiceName
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
SCOUT_PAUSE = 0.5
"""Between two looks at least: failures begin one."""
RESOLVE_SECONDS = 30.0
"""Between two questions for the addresses of a name, while they answer."""
TURN_SECONDS = 5.0
"""A request waits so long at once for a holder (SERVERS7)."""
HOLDERS = -1
"""The rank of the holders of Leases, before all others."""
WELL = 2
"""So many looks in a row that an earlier upstream must be well before a source goes home."""
PAUSES = BackoffSettings(initial=0.5, cap=15.0, jitter=0.5, reset_after=60.0)
READY = "/readyz"


class Candidate:
    """One of the servers, and what is known of it."""

    def __init__(self, number: int, server: ApiConnection, rng: random.Random) -> None:
        self.number = number
        """Its rank in the order of preference (SERVERS8)."""
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
        names: Mapping[int, ServiceName] | None = None,
        patience: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """`names`: the servers that stand for all addresses of a name, by their rank.

        `patience`: there are Leases (SERVERS7); seconds until the servers are asked without.
        """
        self._clock = clock
        self._rng = rng or random.Random()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.all = [Candidate(n, server, self._rng) for n, server in enumerate(servers)]
        """In the order of preference."""
        self.origin = " ".join(sorted({one.server.access().url for one in self.all}))
        """The same for each order of the same servers: a cache stays valid."""
        self._names = dict(names or {})
        self._resolved = -RESOLVE_SECONDS
        self._patience = patience
        self._leads = False
        self._alone_from = self._clock() + (patience or 0.0)
        self._sources: weakref.WeakSet[SwitchingSource] = weakref.WeakSet()
        self._relays_from = 0.0
        self._stop = self._look_soon = False
        self._thread: threading.Thread | None = None
        self.holder_failed: Callable[[], object] = _nothing
        """Called when a holder does not answer."""

    def now(self) -> float:
        """The time by which it counts."""
        return self._clock()

    # ---- choices -------------------------------------------------------------------------------

    def choose(self, without: Collection[Candidate] = (), *, direct: bool = False) -> Candidate:
        """The upstream to ask next (SERVERS1). `direct`: not through holders."""
        with self._lock:
            usable = self._usable(without, direct=direct)
            if usable:
                return usable[0]
            left = [one for one in self.all if one not in without] or self.all
            open_now = [one for one in left if not self._is_withheld(one, without)]
            return min(open_now or left, key=lambda one: (one.failed_until, one.number))

    def is_usable(
        self, upstream: Candidate, without: Collection[Candidate] = (), *, direct: bool = False
    ) -> bool:
        """Whether this one may be asked."""
        with self._lock:
            return upstream in self._usable(without, direct=direct)

    def is_another(self, than: Candidate, without: Collection[Candidate] = ()) -> bool:
        """Whether another one is usable now."""
        with self._lock:
            return any(one is not than for one in self._usable(without))

    def is_earlier_failing(self, than: Candidate, without: Collection[Candidate]) -> bool:
        """Whether one that is preferred does not answer now."""
        now = self._clock()
        with self._lock:
            earlier = [one for one in self.all if one.number < than.number and one not in without]
            return any(one.failed_until > now for one in earlier)

    def _usable(self, without: Collection[Candidate], *, direct: bool = False) -> list[Candidate]:
        now = self._clock()
        found = [
            one
            for one in self.all
            if one not in without
            and one.failed_until <= now
            and not (one.is_relay and now < self._relays_from)
            and (direct or not self._is_withheld(one, without))
        ]
        lags = [one.lag for one in found]
        return [one for one in found if one.lag <= min(lags) + LAG_SECONDS]  # SERVERS4

    # ---- holders -------------------------------------------------------------------------------

    def _is_withheld(self, one: Candidate, without: Collection[Candidate]) -> bool:
        """SERVERS7."""
        if one.number == HOLDERS or not self.waits_for_holders:
            return False
        holders = self._at(HOLDERS)
        return not holders or any(holder not in without for holder in holders)

    @property
    def waits_for_holders(self) -> bool:
        """Whether the servers are for others now (SERVERS7)."""
        now = self._clock()
        apart = self._patience is None or self._leads
        return not apart and self._relays_from <= now < self._alone_from

    def _at(self, number: int) -> list[Candidate]:
        return [one for one in self.all if one.number == number]

    def wait(
        self, without: Collection[Candidate], cancelled: Callable[[], bool], until: float = 0.0
    ) -> bool:
        """Waits for an upstream that may be asked: with Leases, or until then (SWITCH5).

        Whether there is one.
        """
        end = time.monotonic() + TURN_SECONDS
        with self._changed:
            while (self.waits_for_holders or self._clock() < until) and not self._usable(without):
                left = end - time.monotonic()
                if left <= 0 or cancelled() or self._stop:
                    return False
                self._changed.wait(min(left, SCOUT_PAUSE))
        return True

    def stir(self) -> None:
        """All that wait look at the upstreams once more."""
        with self._changed:
            self._changed.notify_all()

    def stand(self, servers: Sequence[ApiConnection], *, leads: bool) -> None:
        """The Leases name these holders; `leads`: and us. Sources go where they belong."""
        with self._changed:
            self._leads = leads
            if self._patience is not None:
                self._alone_from = self._clock() + self._patience
            self._replace(HOLDERS, servers)
            self._changed.notify_all()
            there, sources = set(self.all), list(self._sources)
        for source in sources:
            if source.upstream not in there:
                source.leave()

    def _replace(self, number: int, servers: Sequence[ApiConnection]) -> None:
        """Other upstreams at one rank; those that stay keep what is known of them."""
        known = {one.server.access().url: one for one in self._at(number)}
        at = []
        for server in servers:
            one = known.get(server.access().url) or Candidate(number, server, self._rng)
            one.is_relay = one.is_relay or number == HOLDERS
            at.append(one)
        if set(at) != set(known.values()):
            self._rng.shuffle(at)  # each machine has its own first one
            rest = [one for one in self.all if one.number != number]
            self.all = sorted([*at, *rest], key=lambda one: one.number)

    # ---- results of requests -------------------------------------------------------------------

    def failed(self, upstream: Candidate) -> None:
        """A request failed as requests to a server do that does not work."""
        with self._lock:
            upstream.fail(self._clock())
            self._look_soon = self._look_soon or upstream.number in self._names
            self._changed.notify_all()
        if upstream.number == HOLDERS:
            self.holder_failed()

    def answered(self, upstream: Candidate, headers: Mapping[str, str]) -> None:
        """An answer came."""
        with self._lock:
            self._hear(upstream, headers)

    def _hear(self, upstream: Candidate, headers: Mapping[str, str]) -> None:
        upstream.answer(headers)
        if upstream.number == HOLDERS and self._patience is not None:
            self._alone_from = self._clock() + self._patience

    def rewound(self) -> None:
        """A server has stated that its history was cut (SERVERS5)."""
        with self._lock:
            self._relays_from = self._clock() + HOLD_SECONDS

    # ---- looks ---------------------------------------------------------------------------------

    def join(self, source: SwitchingSource) -> None:
        """A source that may go home; the looks begin with the first one."""
        with self._lock:
            self._sources.add(source)
            several = len(self.all) > 1 or self._names or self._patience is not None
            if self._thread is None and several:
                self._thread = threading.Thread(
                    target=self._scout, name="shmcache-upstreams", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Ends the looks."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        thread = self._thread
        if thread is not None:
            thread.join(2 * SCOUT_SILENCE)

    def _scout(self) -> None:
        clients: dict[Candidate, Client] = {}
        try:
            while self._rests():
                self.resolve()
                with self._lock:
                    sources, there = list(self._sources), list(self.all)
                for gone in clients.keys() - there:
                    clients.pop(gone).close()
                for one in there:
                    clients.setdefault(one, Client(one.server))
                self.look(sources, clients)
        finally:
            for client in clients.values():
                client.close()

    def _rests(self) -> bool:
        """Until the next look; False at the end."""
        begin = time.monotonic()
        end = begin + SCOUT_SECONDS * (1 + 0.5 * self._rng.random())
        with self._changed:
            while not self._stop and (now := time.monotonic()) < end:
                if self._look_soon:
                    end = min(end, begin + SCOUT_PAUSE)
                self._changed.wait(max(end - now, 0.001))
            self._look_soon = False
            return not self._stop

    def resolve(self) -> None:
        """Asks for the addresses of names, if one of them failed, or after a while (SERVERS8)."""
        now = self._clock()
        with self._lock:
            failed = any(one.failed_until > now for one in self.all if one.number in self._names)
            due = failed or now >= self._resolved + RESOLVE_SECONDS
        if not due:
            return
        self._resolved = now
        for number, name in self._names.items():
            found = name.connections()
            if found:  # else those of before: a resolver that fails proves nothing
                with self._changed:
                    self._replace(number, found)
                    self._changed.notify_all()

    def look(
        self, sources: Collection[SwitchingSource], clients: Mapping[Candidate, Client]
    ) -> None:
        """Asks the upstreams up to the last one in use, and sends sources home."""
        used = {source.upstream for source in sources}
        last = max((one.number for one in used), default=HOLDERS - 1)
        for one, client in clients.items():
            if (one.number < last or one in used) and not self._stop:
                self._ask(one, client)
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
        if code >= 500:
            self.failed(upstream)
            return
        with self._lock:
            upstream.well += 1
            self._hear(upstream, client.answered)
            self._changed.notify_all()


def _nothing() -> None:
    return None


def label_of(url: str) -> str:
    """The URL as people may see it: without a user."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
