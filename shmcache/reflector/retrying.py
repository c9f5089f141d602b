"""Patience: how long the reflector waits, for what, and how often it tries; its settings.

Numbers only: machine.py decides what happens when a time is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from shmcache.reflector.backoff import Backoff, BackoffSettings
from shmcache.source.base import FailureKind, SourceFailure

BOOKMARK_PERIOD = 60.0
"""Seconds between two bookmarks of a quiet watch; measured with a real server: 59.5 to 60.5."""
LEAST_WATCH = 300.0
"""No watch is asked to last less, whatever is wished for."""
QUIET_WATCH, QUIET_SPREAD = 80, 8
"""The duration of a watch, in seconds, where no bookmarks come: shorter than the 90 s after which
readers take a resource for silent, and long enough for one request a minute."""
QUIET_PROBES = 8
"""So many of those in a row are followed by a probe."""
SERVER, ACCESS = "server", "access"
"""Failures of a whole server: it does not answer; it does not know our identity (401)."""
OUTAGE = BackoffSettings(cap=2.0, jitter=0.5)
"""Between the attempts of one feed on a server that does not answer; they are cheap, and shared."""
DENIED = BackoffSettings(cap=20.0, jitter=0.5, reset_after=60.0)
"""Between the attempts on a resource that we may not read (403). Rights are granted for one
resource at a time, so each feed asks for itself, after at most 30 s."""
ASIDE = (0.02, 0.3)
"""Seconds, by chance: the clients of a relay that dies do not come to the next one together."""
_UNANSWERED = frozenset(
    {
        FailureKind.REFUSED,
        FailureKind.NETWORK,
        FailureKind.ENDED,
        FailureKind.SILENT,
        FailureKind.ELSEWHERE,
    }
)
LONGEST_RETRY_AFTER = 120.0
"""The longest wait that a server can impose; kube-apiserver itself asks for 1 to 30 s."""
QUIET_MINUTE = 60.0
"""Without an internal error for so long, the next one is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorSettings:
    """Settings of a reflector; the defaults suit nearly everybody."""

    use_watch_list: bool = True
    kind: str | None = None
    """Of the objects, as they come (PartialObjectMetadata if only that is asked); None: any."""
    api_version: str | None = None
    label_selector: str = ""
    field_selector: str = ""
    page_size: int = 500
    page_always: bool = False
    """Pages also where the server could answer from its cache (needs less memory there)."""
    watch_seconds: float = LEAST_WATCH
    """A watch is asked to last this long to twice as long; less than 5 min is not."""
    silence: float = 1.5 * BOOKMARK_PERIOD
    """Seconds without an event or bookmark after which a watch is taken for dead. A bookmark comes
    every 60 s: one that is late by half a period was not delayed but lost. (client-go finds a dead
    connection in 45 s by HTTP/2 pings; HTTP/1.1 has none, TCP keepalive is the source's.)"""
    end_bookmark_wait: float = 30.0
    """Seconds in which a watch-list neither adds an initial object nor says that it has ended
    them, although it talks. Upstream warns after 10 s, and waits for ever (R-RF-16)."""
    short_watch: float = 1.0
    """A watch that ends within so many seconds brought nothing, or is not followed at once."""
    short_watches: int = 0
    """So many of those in a row are repeated before a list: where relays come and go."""
    internal_error_retry: float = 0.0
    """Seconds for which in-stream internal errors are retried without listing again (R-RF-08)."""
    request_retries: int = 10
    """How often in a row one request is repeated because the server said when (R-HT-01)."""
    retry_after_cap: float = LONGEST_RETRY_AFTER
    early_ends: int = 3
    """So many watch-lists in a row that end before they are complete: LIST instead."""
    backoff: BackoffSettings = field(default_factory=BackoffSettings)
    broken: BackoffSettings | None = None
    """Between an open watch that broke and the next one; None: `backoff`."""

    def __post_init__(self) -> None:
        if self.page_size < 1 or self.silence <= 0 or self.early_ends < 1:
            raise ValueError("page_size, silence and early_ends must be positive")


def cause_of(failure: SourceFailure) -> str:
    """SERVER or ACCESS, if the failure is that of the whole server; else ""."""
    status = failure.status
    if status is None:
        return SERVER if failure.kind in _UNANSWERED else ""
    if status.is_expired or status.is_too_large:
        return ""
    if status.code == 401:
        return ACCESS
    return SERVER if 500 <= status.code < 600 else ""


def is_refusal(failure: SourceFailure) -> bool:
    """Whether the server answered, and refused just this request or resource (403, 404, ...)."""
    return failure.status is not None and failure.code != 429 and not cause_of(failure)


class Patience:
    """The patience with one resource."""

    __slots__ = (
        "_backoff", "_breaks", "_denials", "_internal_last", "_internal_since", "_outages", "_rng",
        "_settings", "_tries", "quiet", "stretch",
    )  # fmt: skip

    def __init__(self, settings: ReflectorSettings, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self._backoff = Backoff(settings.backoff, rng)
        self._breaks = self._backoff
        if settings.broken is not None:
            self._breaks = Backoff(settings.broken, rng)
        self._tries = 0
        self._internal_since: float | None = None
        self._internal_last = 0.0
        self._outages = Backoff(OUTAGE, rng)
        self._denials = Backoff(DENIED, rng)
        self.quiet = False
        """The last watch brought nothing, no bookmark either: there may be none here."""
        self.stretch = 1
        """By how much the next watch-list may last longer (R-RF-15)."""

    def delay(self, now: float, failure: SourceFailure | None) -> float:
        """By the backoff, and at least as long as the server asked for."""
        denied = failure is not None and failure.code == 403
        backoff = self._denials if denied else self._backoff
        return max(backoff.next(now), self._asked(failure))

    def broken_delay(self, now: float, failure: SourceFailure | None) -> float:
        """The same for a watch that the server has accepted, or would have by its probe."""
        return max(self._breaks.next(now), self._asked(failure))

    def outage_delay(self, now: float, failure: SourceFailure | None) -> float:
        """The same for a server that does not answer."""
        return max(self._outages.next(now), self._asked(failure))

    def aside(self) -> float:
        """Before a request to another server that is there (SERVERS2)."""
        return self._rng.uniform(*ASIDE)

    def lasting(self, *, stream: bool = False) -> int:
        """The timeoutSeconds of the next watch, at random: not all end together (R-RF-06).

        `stream`: it begins with all objects, which may take long.
        """
        if self.quiet and not stream:
            return QUIET_WATCH + int(QUIET_SPREAD * self._rng.random())
        least = max(self._settings.watch_seconds, LEAST_WATCH) * self.stretch
        return int(least * (1 + self._rng.random()))

    def renew(self) -> None:
        """A request was answered: repetitions count from none."""
        self._tries = 0

    def once_more(self) -> bool:
        """Whether the same request may be repeated again."""
        self._tries += 1
        return self._tries <= self._settings.request_retries

    def may_repeat(self, failure: SourceFailure) -> bool:
        """Whether to repeat just this request: it failed with a time to retry (R-HT-01)."""
        code = failure.code
        throttled = code == 429 or 500 <= code < 600
        return throttled and self._asked(failure) > 0 and self.once_more()

    def may_retry_internal(self, now: float) -> bool:
        """Within a time limit that begins with the first error after a quiet minute."""
        if self._internal_since is None or now - self._internal_last >= QUIET_MINUTE:
            self._internal_since = now
        self._internal_last = now
        limit = self._settings.internal_error_retry
        return limit > 0 and now - self._internal_since <= limit

    @property
    def silence(self) -> float:
        """Seconds without an event or bookmark after which a watch is taken for dead.

        A quiet one is ended by the server before, or the server ignores how long it was to last.
        """
        return max(self._settings.silence, QUIET_WATCH + 2.0 * QUIET_SPREAD if self.quiet else 0.0)

    def _asked(self, failure: SourceFailure | None) -> float:
        if failure is None:
            return 0.0
        asked = [failure.retry_after or 0.0]
        if failure.status is not None:
            asked.append(failure.status.retry_after or 0.0)
        return min(max(asked), self._settings.retry_after_cap)
