"""Chaos, the proof: the requests to the server, measured against the bounds of the backoff
(G22)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from chaos_reflector import Life
from chaos_world import BACKOFF, BACKOFF_CAP, FEEDS, RATE

IN_A_ROW = 7
"""Requests of a pass besides its pages, after which it waits."""
SHORT_WATCH = 1.0
BURST = 10
"""Requests of all resources at once; then RATE a second."""
WINDOWS = (1.0, 5.0, 60.0)
DOCUMENTS = 8
"""At most so many documents of discovery in one pass of a missing resource."""


class Asked(NamedTuple):
    """One request."""

    seconds: float
    verb: str
    resource: str
    namespace: str
    query: dict[str, str]
    encoding: str

    @property
    def is_page(self) -> bool:
        return bool(self.query.get("continue"))

    @property
    def is_comparison(self) -> bool:
        """A probe, or a list of metadata to compare: it brings no content."""
        return self.query == {"limit": "1"} or self.query.get("resourceVersionMatch") == "Exact"

    @property
    def is_stream(self) -> bool:
        return self.query.get("sendInitialEvents") == "true"

    @property
    def version(self) -> str:
        return self.query.get("resourceVersion", "")


def waits_in(seconds: float) -> int:
    """How many waits of the backoff can end within so many seconds, from the shortest on."""
    count, delay, left = 0, BACKOFF, seconds
    while left >= delay:
        left -= delay
        delay = min(2 * delay, BACKOFF_CAP)
        count += 1
    return count


def bound(seconds: float) -> int:
    """Requests of one feed in any window: a pass before each wait, and watches that follow."""
    return IN_A_ROW * (waits_in(seconds) + 1) + int(seconds / SHORT_WATCH) + 1


def documents_bound(seconds: float) -> int:
    """Documents of discovery in any window, by all feeds."""
    return len(FEEDS) * DOCUMENTS * (waits_in(seconds) + 1)


def most_in(times: list[float], seconds: float) -> int:
    """The number in the fullest window."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def by_life(asked: Iterable[Asked], lives: list[Life]) -> Iterator[list[Asked]]:
    """The requests of each life: a new one does not know the requests of earlier ones."""
    asked = list(asked)
    for life in lives:
        yield [one for one in asked if life.began <= one.seconds < life.ended]


def of_feeds(asked: Iterable[Asked]) -> dict[tuple[str, str], list[Asked]]:
    """Lists (without their further pages) and watches, by feed; a request that was repeated for new
    credentials counts once."""
    found: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    repeated: dict[tuple[str, str], bool] = {}
    for one in asked:
        feed = one.resource, one.namespace
        if one.verb not in {"list", "watch"} or feed not in FEEDS or one.is_page:
            continue
        before = found[feed][-1] if found[feed] else None
        again = before is not None and one.query == before.query
        if again and one.seconds - before.seconds < BACKOFF and not repeated.get(feed):  # type: ignore[union-attr]
            repeated[feed] = True
            continue
        repeated[feed] = False
        found[feed].append(one)
    return found


def longest_row(times: list[float]) -> int:
    """The longest row of requests without a wait in between."""
    longest = count = 0
    for number, at in enumerate(times):  # a busy server notes a request late, and a shorter wait
        follows = number and at - times[number - 1] < 0.4 * BACKOFF
        count = count + 1 if follows else 1
        longest = max(longest, count)
    return longest


def resumes(asked: list[Asked]) -> int:
    """Watches of one feed in a life that resumed where one, or the life before, had ended."""
    found, watched = 0, True
    for one in asked:
        if one.is_comparison:
            continue
        plain = one.verb == "watch" and not one.is_stream
        found += plain and watched
        watched = one.verb == "watch"
    return found


class Measured(NamedTuple):
    """Maxima over all feeds and lives."""

    row: int
    windows: dict[float, int]
    documents: dict[float, int]
    together: dict[float, int]
    resumes: int
    requests: Counter[str]


def measure(asked: list[Asked], lives: list[Life]) -> Measured:
    """All figures; AssertionError if one is above its bound."""
    row, resumed = 0, 0
    windows, documents, together = Counter[float](), Counter[float](), Counter[float]()
    for life in by_life(asked, lives):
        feeds = of_feeds(life)
        for requests in feeds.values():
            times = [one.seconds for one in requests]
            row = max(row, longest_row(times))
            resumed += resumes(requests)
            windows |= Counter({size: most_in(times, size) for size in WINDOWS})
        for found, which in ((documents, {"get"}), (together, {"list", "watch"})):
            times = [one.seconds for one in life if one.verb in which]
            found |= Counter({size: most_in(times, size) for size in WINDOWS})
    for size in WINDOWS:
        assert windows[size] <= bound(size), f"{windows[size]} requests of a feed in {size:g} s"
        most = documents_bound(size)
        assert documents[size] <= most, f"{documents[size]} documents in {size:g} s"
        most = int(RATE * size) + 2 * BURST  # all of them may come late, and again
        assert together[size] <= most, f"{together[size]} requests of all in {size:g} s"
    assert row <= IN_A_ROW, f"{row} requests of a feed without a wait between them"
    counted = Counter(one.verb for one in asked)
    return Measured(row, dict(windows), dict(documents), dict(together), resumed, counted)


def all_know(asked: Iterable[Asked], since: float, version: int) -> bool:
    """Whether every feed has since requested nothing later than the version.

    From then on it continues from there, or replaces its content.
    """
    sure = {
        (one.resource, one.namespace)
        for one in asked
        if one.seconds > since
        and one.verb in {"list", "watch"}
        and not one.is_comparison
        and int(one.version or 0) <= version
    }
    return sure >= set(FEEDS)
