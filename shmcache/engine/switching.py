"""A source of one resource at several upstreams: at one of them, until that fails (upstreams.py).

request ▸ the upstream in use, or the next ▸ its answer ▸ not before our version? ▸ items
failed ▸ is another one there? ▸ `at_once`

SWITCH1  a watch goes on at the next upstream at the same version. A version that is too old for
one of them (410) is too old only when all have refused it. Servers also refuse inside a watch: one
that is open is accepted when something came, or when it lasted.
SWITCH2  an upstream that does not have the resource, or may not show it, is passed over for
this resource alone, for UNFIT_SECONDS.
SWITCH3  a watch that leaves for a better upstream ends cleanly, not as a failure.
SWITCH4  while no holder answers (SERVERS7), a request waits for one. Its failure lets the next
request follow at once: neither time nor attempts add up until a holder answers.
SWITCH5  when the last upstream has refused a version as too old, and an earlier one does not
answer, requests wait for that one as in SWITCH4, for PATIENT_SECONDS once until a list or a watch
succeeds: relays that restart together with the API server still have the changes that it has lost,
and without them each of their leaves would list at the API server.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shmcache.engine.upstreams import (
    HEARD_SECONDS,
    REWIND_SECONDS,
    WELL,
    Candidate,
    Upstreams,
)
from shmcache.protocol.items import Identity, Item, ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.protocol.relays import stated
from shmcache.protocol.status import ServerStatus
from shmcache.protocol.versions import compare, is_version
from shmcache.reflector.retrying import cause_of
from shmcache.source.base import FailureKind, ListStream, SourceFailed, SourceFailure
from shmcache.source.failures import cancelled

if TYPE_CHECKING:
    from shmcache.source.discovery import ApiResource
    from shmcache.source.kube import KubeSource

_log = logging.getLogger(__name__)

UNFIT_SECONDS = 300.0
PATIENT_SECONDS = (8.0, 15.0)
"""By chance, so that leaves whose relays do not return list one after the other (SWITCH5)."""
_SPENT = -1.0
STAY_SECONDS = 2.0
"""A watch is not left before it has lasted so long."""
INITIAL_END = b"k8s.io/initial-events-end"
TOO_MANY = 429
MISSING = frozenset({403, 404})


class SwitchingSource:
    """A source.base.AskedSource over several servers."""

    def __init__(
        self,
        upstreams: Upstreams,
        make: Callable[[Candidate], KubeSource],
        label: str,
        *,
        direct: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        """`direct`: answers of relays do not count."""
        self.label = label
        self.upstream = upstreams.choose()
        """The one in use."""
        self.used: Callable[[str], None] = _nobody
        """Takes the name of the upstream whenever a list or a watch begins at another one."""
        self.moved: Callable[[], object] = bool
        """Called when a list or a watch begins at another upstream than the one before."""
        self._upstreams = upstreams
        self._make = make
        self._direct = direct
        self._lock = threading.Lock()
        self._sources: dict[Candidate, KubeSource] = {}
        self._refused: set[Candidate] = set()
        self._unfit: dict[Candidate, float] = {}
        self._version = ""
        self._behind_since: float | None = None
        self._rng = rng or random.Random()
        self._patient_until = 0.0
        """0.0 before the first refusal, `_SPENT` when its time has passed (SWITCH5)."""
        self._named = ""
        self._opened: float | None = None
        self._cancelled = self._leaving = self._rewound = False
        if not direct:
            upstreams.join(self)

    # ---- a source ------------------------------------------------------------------------------

    def resource(self) -> ApiResource:
        """See KubeSource."""
        with self._asking() as source:
            return source.resource()

    def definition(self) -> dict[str, Any]:
        """See KubeSource."""
        with self._asking() as source:
            return source.definition()

    @contextmanager
    def page(self, options: ListOptions) -> Iterator[ListStream]:
        """See KubeSource."""
        with self._asking() as source, source.page(options) as page:
            self._check(source)
            self._begin()
            self._accepted()
            yield _NotedPage(page, self._listed)

    @contextmanager
    def watch(self, options: ListOptions, *, silence: float) -> Iterator[Iterator[list[Item]]]:
        """See KubeSource."""
        if is_version(options.resource_version):
            self._reach(options.resource_version)
        with self._asking() as source, source.watch(options, silence=silence) as stream:
            self._check(source)
            upstream = self._begin()
            with self._lock:
                self._opened, self._leaving = self._upstreams.now(), False
            yield self._events(upstream, stream, initial=bool(options.send_initial_events))
        with self._lock:
            self._opened = None

    def probe(self, options: ListOptions) -> str:
        """The version of the server; "" of a relay, which knows that of the resource alone."""
        with self._asking() as source:
            version = source.probe(options)
            relay = stated(source.client.answered)
            self._upstreams.answered(self.upstream, source.client.answered)
            if relay is None:
                if self._is_before(version):
                    self._upstreams.rewound()
                return version
            self._check(source)
            rewound, self._rewound = self._rewound, False
            return version if rewound else ""

    def identity(self, namespace: str, name: str) -> Identity | None:
        """See KubeSource."""
        with self._asking() as source:
            found = source.identity(namespace, name)
            self._check(source)
            return found

    @property
    def behind(self) -> bool:
        """See KubeSource."""
        source = self._sources.get(self.upstream)
        return source is not None and source.behind

    @property
    def speaks_for_all(self) -> bool:
        """See KubeSource."""
        return not self.upstream.is_relay

    def silence(self) -> float:
        """For how long the upstream in use has not heard its own server, if that is too long."""
        lag = self.upstream.lag
        return lag if lag > HEARD_SECONDS else 0.0

    def interrupt(self) -> None:
        """See KubeSource."""
        for source in list(self._sources.values()):
            source.interrupt()

    def cancel(self) -> None:
        """See KubeSource."""
        with self._lock:
            self._cancelled = True
            sources = list(self._sources.values())
        for source in sources:
            source.cancel()
        self._upstreams.stir()

    def close(self) -> None:
        """See KubeSource."""
        for source in list(self._sources.values()):
            source.close()

    def unfit(self) -> set[Candidate]:
        """The upstreams that do not have the resource (SWITCH2). From any thread."""
        now = self._upstreams.now()
        with self._lock:
            return {one for one, until in self._unfit.items() if until > now}

    def leave(self) -> bool:
        """Ends the open watch, for a better upstream; whether there is one to end. Any thread."""
        with self._lock:
            now = self._upstreams.now()
            if self._opened is None or now - self._opened < STAY_SECONDS:
                return False
            source = self._sources.get(self.upstream)
            if source is None:
                return False  # the watch has just failed: its next request begins elsewhere
            self._leaving, self._opened = True, None
        source.interrupt()
        return True

    # ---- the upstream of a request -------------------------------------------------------------

    @contextmanager
    def _asking(self) -> Iterator[KubeSource]:
        """The source at the upstream in use, or at the next one after a failure."""
        upstream = self.upstream = self._turn()
        source = self._source_at(upstream)
        source.client.reached = self._version
        try:
            yield source
        except SourceFailed as failed:
            if failed.failure.kind is FailureKind.CANCELLED:
                raise
            raise SourceFailed(self._judged(upstream, failed.failure)) from failed

    def _turn(self) -> Candidate:
        if 0.0 < self._patient_until <= self._upstreams.now():
            self._refused.clear()  # SWITCH5: all that answer refuse once more, and a list follows
            self._patient_until = _SPENT
        without, at = self._refused | self.unfit(), self.upstream
        if self._direct:
            without |= {one for one in self._upstreams.all if one.is_relay}
        elif not self._upstreams.wait(without, lambda: self._cancelled, self._patient_until):
            raise self._waited()  # SWITCH4, SWITCH5
        chosen = self._upstreams.choose(without, direct=self._direct)
        if not self._upstreams.is_usable(at, without, direct=self._direct):
            return chosen
        return chosen if chosen.number < at.number and chosen.well >= WELL else at

    def _waited(self) -> SourceFailed:
        if self._cancelled:
            return cancelled(self.label)
        text = "no earlier upstream answers yet"
        if self._upstreams.waits_for_holders:
            text = "no holder of the Lease answers yet"
        return SourceFailed(SourceFailure(FailureKind.ELSEWHERE, text, at_once=True))

    def _source_at(self, upstream: Candidate) -> KubeSource:
        with self._lock:
            for gone in self._sources.keys() - {*self._upstreams.all, upstream}:
                self._sources.pop(gone).close()
            source = self._sources.get(upstream)
            if source is None:
                source = self._sources[upstream] = self._make(upstream)
            if self._cancelled:
                source.cancel()
            return source

    def _begin(self) -> Candidate:
        """A list or a watch begins at the upstream in use."""
        upstream = self.upstream
        self._upstreams.answered(upstream, self._sources[upstream].client.answered)
        self._behind_since = None
        if upstream.name != self._named:
            if self._named:
                _log.info("%s: goes on at %s", self.label, upstream.name)
                self.moved()
            self._named = upstream.name
        self.used(upstream.name)
        return upstream

    # ---- failures ------------------------------------------------------------------------------

    def _judged(self, upstream: Candidate, failure: SourceFailure) -> SourceFailure:
        """The failure, and whether another upstream takes over."""
        status, code = failure.status, failure.code
        if (
            failure.kind is FailureKind.ELSEWHERE
            or (status is not None and status.is_expired)
            or (status is not None and status.is_too_large)  # API servers show it by a probe
        ):
            self._refused.add(upstream)
        elif code in MISSING:
            with self._lock:
                self._unfit[upstream] = self._upstreams.now() + UNFIT_SECONDS
        elif code == TOO_MANY:
            self._refused.add(upstream)
        elif cause_of(failure):
            self._upstreams.failed(upstream)
        else:
            return failure
        without = self._refused | self.unfit()
        comes = upstream not in without and self._upstreams.waits_for_holders  # SWITCH4
        another = comes or self._upstreams.is_another(upstream, without)
        if another or self._is_patient(upstream, without, failure):
            kind = failure.kind if status is None else FailureKind.ELSEWHERE
            return SourceFailure(kind, failure.message, at_once=True)
        self._refused.clear()
        with self._lock:
            self._unfit.clear()
        self.upstream = self._upstreams.choose()  # the next request begins at home
        if status is not None and status.is_too_large:
            return SourceFailure(FailureKind.ELSEWHERE, failure.message)
        return failure

    def _is_patient(
        self, upstream: Candidate, without: Collection[Candidate], failure: SourceFailure
    ) -> bool:
        """SWITCH5."""
        now, status = self._upstreams.now(), failure.status
        if self._patient_until:
            return now < self._patient_until
        if status is None or not status.is_expired or self._direct:
            return False
        if not self._upstreams.is_earlier_failing(upstream, without):
            return False
        seconds = self._rng.uniform(*PATIENT_SECONDS)
        self._patient_until = now + seconds
        _log.info("%s: %s does not have our version; waits %.0f s for an earlier server",
                  self.label, upstream.name, seconds)  # fmt: skip
        return True

    def _accepted(self) -> None:
        """An upstream lists, or goes on where we are."""
        self._refused.clear()
        self._patient_until = 0.0

    def _check(self, source: KubeSource) -> None:
        """SERVERS3. SourceFailed for the answer of a relay that is behind."""
        relay = stated(source.client.answered)
        if relay is None:
            return
        upstream = self.upstream
        self._upstreams.answered(upstream, source.client.answered)
        if self._direct:
            raise _elsewhere(f"{upstream.name} is a relay: its answer is not the server's of now")
        if not (is_version(relay.version) and self._is_before(relay.version)):
            return
        now = self._upstreams.now()
        if self._behind_since is None:
            self._behind_since = now
        relays_only = all(one.is_relay for one in self._upstreams.all)
        lasted = now - self._behind_since
        if relays_only and lasted > REWIND_SECONDS and relay.lag < HEARD_SECONDS:
            _log.error(
                "%s: all relays are at %s for %.0f s, before our version %s: a restored server",
                self.label, relay.version, lasted, self._version,
            )  # fmt: skip
            self._version, self._rewound = "", True
            return
        raise _elsewhere(
            f"{upstream.name} is behind: at version {relay.version}, we are at {self._version}"
        )

    # ---- versions ------------------------------------------------------------------------------

    def _is_before(self, version: str) -> bool:
        ours = self._version
        return bool(ours) and is_version(version) and compare(version, ours) < 0

    def _reach(self, version: str) -> None:
        if is_version(version) and not self._is_before(version):
            self._version = version

    def _listed(self, meta: ListMeta) -> None:
        if not meta.continue_token and is_version(meta.version):
            self._version = meta.version  # of a relay it was checked, a server may go back

    def _events(
        self, upstream: Candidate, stream: Iterator[list[Item]], *, initial: bool
    ) -> Iterator[list[Item]]:
        try:
            for items in stream:
                initial = self._note(upstream, items, initial=initial) if items else initial
                yield items
        except SourceFailed as failed:
            with self._lock:
                leaving, self._leaving = self._leaving, False
            if failed.failure.kind is FailureKind.CANCELLED:
                raise
            if leaving:
                self._refused.clear()
                return  # SWITCH3
            raise SourceFailed(self._judged(upstream, failed.failure)) from failed

    def _note(self, upstream: Candidate, items: list[Item], *, initial: bool) -> bool:
        """How far the watch is; whether its first objects still come. SourceFailed of errors."""
        for item in items:
            if item.type == "ERROR":
                self._refusal(upstream, item)
            elif initial and item.type == "BOOKMARK" and INITIAL_END in item.raw:
                initial, self._version = False, item.version or ""
        self._accepted()
        last = items[-1]
        if not initial and last.version is not None:
            self._reach(last.version)
        return initial

    def _refusal(self, upstream: Candidate, item: Item) -> None:
        """An error in the stream: where another upstream takes over, a failure of this one."""
        status = ServerStatus.parse(0, item.raw)
        failure = SourceFailure(FailureKind.HTTP, status.message or status.reason, status)
        judged = self._judged(upstream, failure)
        if judged.kind is FailureKind.ELSEWHERE:
            raise SourceFailed(replace(judged, message=f"the watch says: {judged.message}"))


class _NotedPage:
    """A page whose version is noted when it has ended."""

    def __init__(self, page: ListStream, noted: Callable[[ListMeta], None]) -> None:
        self._page = page
        self._noted = noted

    def __iter__(self) -> Iterator[list[Item]]:
        yield from self._page
        self._noted(self._page.meta)

    @property
    def meta(self) -> ListMeta:
        """See base.ListStream."""
        return self._page.meta


def _nobody(_name: str) -> None:
    return None


def _elsewhere(text: str) -> SourceFailed:
    return SourceFailed(SourceFailure(FailureKind.ELSEWHERE, text))
