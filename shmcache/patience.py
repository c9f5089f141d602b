"""Patience: how long the reflector waits, for what, and how often it tries; its settings.

Numbers only: what is done when a time is over is decided in reflector.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from shmcache.backoff import Backoff, BackoffSettings
from shmcache.source.base import Failure

BOOKMARK_PERIOD = 60.0
"""Seconds between two bookmarks of a quiet watch; measured with a real server: 59.5 to 60.5."""
LEAST_WATCH = 300.0
"""No watch is asked to last less, whatever is wished for."""
QUIET_MINUTE = 60.0
"""Without an internal error for so long, the next one is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorSettings:
    """What a reflector can be told; the defaults are meant to be left alone."""

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
    """Seconds without any byte after which a connection is taken for dead. A bookmark comes every
    60 s: one that is late by half a period was not delayed but lost. (client-go finds a dead
    connection in 45 s by HTTP/2 pings; HTTP/1.1 has none, TCP keepalive is the source's.)"""
    end_bookmark_wait: float = 30.0
    """Seconds in which a watch-list neither adds an initial object nor says that it has ended
    them, although it talks. Upstream warns after 10 s, and waits for ever (R-RF-16)."""
    short_watch: float = 1.0
    """A watch that ends within so many seconds brought nothing, or is not followed at once."""
    internal_error_retry: float = 0.0
    """Seconds for which in-stream internal errors are retried without listing again (R-RF-08)."""
    request_retries: int = 10
    """How often in a row one request is repeated because the server said when (R-HT-01)."""
    retry_after_cap: float = 120.0
    """The longest wait that a server can impose; kube-apiserver itself asks for 1 to 30 s."""
    early_ends: int = 3
    """So many watch-lists in a row that end before they are complete: LIST instead."""
    stale_after: float = 300.0
    """No word from the server for so long, while it fails: what readers see is stale."""
    backoff: BackoffSettings = field(default_factory=BackoffSettings)

    def __post_init__(self) -> None:
        if self.page_size < 1 or self.silence <= 0 or self.early_ends < 1:
            raise ValueError("page_size, silence and early_ends must be positive")


class Patience:
    """What is left of it for one resource."""

    __slots__ = (
        "_backoff", "_internal_last", "_internal_since", "_rng", "_settings", "_tries",
        "silence", "stretch",
    )  # fmt: skip

    def __init__(self, settings: ReflectorSettings, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self._backoff = Backoff(settings.backoff, rng)
        self._tries = 0
        self._internal_since: float | None = None
        self._internal_last = 0.0
        self.silence = settings.silence
        """For the next watch; longer where silence turned out to mean nothing."""
        self.stretch = 1
        """By how much the next watch-list may last longer (R-RF-15)."""

    def delay(self, now: float, failure: Failure | None) -> float:
        """By the backoff, and at least as long as the server asked for."""
        return max(self._backoff.next(now), self._asked(failure))

    def lasting(self) -> int:
        """The timeoutSeconds of the next watch, at random: not all end together (R-RF-06)."""
        least = max(self._settings.watch_seconds, LEAST_WATCH) * self.stretch
        return int(least * (1 + self._rng.random()))

    def renew(self) -> None:
        """A request was answered: repetitions count from none."""
        self._tries = 0

    def once_more(self) -> bool:
        """Whether the same request may be repeated again."""
        self._tries += 1
        return self._tries <= self._settings.request_retries

    def is_told_when(self, failure: Failure) -> bool:
        """Whether to repeat just this request: throttled or failing, and told when (R-HT-01)."""
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

    def bookmark_came(self) -> None:
        """So there are bookmarks, and silence means something."""
        self.silence = self._settings.silence

    def be_quiet_longer(self) -> None:
        """Up to what the longest watch lasts: then it is the server that ends it."""
        longest = 2 * max(self._settings.watch_seconds, LEAST_WATCH) + BOOKMARK_PERIOD
        self.silence = min(2 * self.silence, longest)

    def _asked(self, failure: Failure | None) -> float:
        if failure is None:
            return 0.0
        asked = [failure.retry_after or 0.0]
        if failure.status is not None:
            asked.append(failure.status.retry_after or 0.0)
        return min(max(asked), self._settings.retry_after_cap)
