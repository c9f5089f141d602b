"""The state of one resource as readers see it: that of the worst of its feeds, and its version.

A resource has a feed for each of its namespaces, or one. Each feed passes on the
reports of its reflector; the age of its contact and whether its objects fit are added here.

Invariants
    STATE1  the state is SYNCED only if every feed has stored a first list, hears from its server,
        and what it heard fitted.
    STATE2  the version is the smallest of the feeds' versions, and missing if one of them is.
    STATE3  what did not change is not published, and neither is trouble that is over within GRACE
        seconds: a relist that finds nothing new wakes nobody. A cache that is disproved
        (proof.py) is not such trouble.
    STATE4  what a writer has to list, and has not begun with, is LISTING, not ABSENT: who reads the
        instance before this one waits for it (succession.py).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shmcache import states
from shmcache.protocol.jsontext import decoded
from shmcache.protocol.versions import compare, is_version

_WORST_FIRST = (
    states.EXCEEDED,
    states.STALED,
    states.RETRYING,
    states.ABSENT,
    states.LISTING,
    states.SYNCED,
)
GRACE = 5.0
"""Longer than the first two delays of the backoff; readers see the age grow meanwhile."""

Publish = Callable[[int, str], bool]
"""Takes the new state and its reason; returns whether readers see it now."""


@dataclass(slots=True)
class _Feed:
    contact: float
    """The last contact; before the first one: when it began."""
    state: int = states.LISTING
    reason: str = ""
    behind_since: float | None = None
    """Since when events have arrived faster than they were stored; None: they do not."""
    good_until: float = -GRACE
    """When it was synced last, if there is trouble since."""
    exceeded: str = ""
    listed: bool = False
    version: str | None = None
    upstream: str = ""
    """The server in use, where there are several."""

    def standing(self, now: float, max_age: float) -> tuple[int, str]:
        if self.exceeded:
            return states.EXCEEDED, self.exceeded
        age = now - self.contact
        if self.listed and age > max_age and self.state != states.ABSENT:
            why = f": {self.reason}" if self.reason else ""
            return states.STALED, f"silent for more than {max_age:g} s{why}"
        if self.state == states.RETRYING and now - self.good_until < GRACE:
            return states.SYNCED, states.from_upstream(self.upstream)
        if self.state == states.SYNCED:
            return self.state, self._of_synced(now)
        return self.state, self.reason

    def _of_synced(self, now: float) -> str:
        if self.behind_since is not None and now - self.behind_since > GRACE:
            return f"more than {GRACE:g} s behind the events of the server"
        return states.from_upstream(self.upstream)


class ResourceState:
    """The standing of one resource. Thread-safe; `publish` is called under its lock."""

    def __init__(self, max_age: float, publish: Publish, now: Callable[[], float]) -> None:
        self._feeds: dict[str, _Feed] = {}
        self._max_age = max_age
        self._publish = publish
        self._now = now
        self._lock = threading.Lock()
        self._published: tuple[int, str] = (states.ABSENT, "")

    def join(self, feeds: Iterable[str]) -> None:
        """These are its feeds from now on, by namespace; one without a name is all of it."""
        with self._lock:
            self._feeds = {feed: _Feed(self._now()) for feed in feeds}

    def begin(self) -> None:
        """Before anybody asks which feeds there are (STATE4)."""
        self.join(("",))
        self.look()

    def go_on(self, state: int, reason: str, contact: float, versions: dict[str, str]) -> None:
        """Before any feed begins: of an earlier life that ended at `versions`, in this state.

        Readers see it still, unless this life has published trouble. A good state stays
        good for GRACE seconds, in which the watch is open again.
        """
        with self._lock:
            if self._published == (states.ABSENT, ""):
                self._published = (state, reason)
            for name, feed in self._feeds.items():
                feed.version = versions.get(name)
                feed.listed = feed.version is not None
                feed.state, feed.reason = state, reason
                feed.contact = contact or feed.contact

    def report(self, feed: str, state: int, reason: str) -> None:
        """A report of the reflector. A relist behind a good state is nothing readers must know."""
        with self._lock:
            found = self._feeds[feed]
            if state == states.LISTING and found.listed:
                return
            found.listed = found.listed or state == states.SYNCED
            if found.state == states.SYNCED:
                found.good_until = self._now()
            found.state, found.reason = state, reason
            self._update()

    def disproved(self, feed: str, reason: str) -> None:
        """The objects are not the server's: readers know at once, without GRACE."""
        with self._lock:
            found = self._feeds[feed]
            found.state, found.reason, found.good_until = states.RETRYING, reason, -GRACE
            self._update()

    def contact(self, feed: str, at: float) -> float:
        """Contact of this feed at that time; returns the earliest one of all feeds."""
        with self._lock:
            self._feeds[feed].contact = at
            if self._published[0] == states.STALED:
                self._update()
            return min(found.contact for found in self._feeds.values())

    def upstream(self, feed: str, name: str) -> None:
        """The server that this feed is at now."""
        with self._lock:
            self._feeds[feed].upstream = name
            self._update()

    def behind(self, feed: str, *, behind: bool) -> None:
        """Whether this feed has yet to read events that have arrived."""
        with self._lock:
            found = self._feeds[feed]
            if behind != (found.behind_since is not None):
                found.behind_since = self._now() if behind else None
                self._update()

    @property
    def behind_ns(self) -> int:
        """Since when a feed is behind the events of its server, at the longest; 0: none is."""
        with self._lock:
            since = [each.behind_since for each in self._feeds.values()]
            return int(min((at for at in since if at is not None), default=0.0) * 1e9)

    def exceeded(self, feed: str, reason: str) -> None:
        """The objects do not fit; an empty reason: they fit again."""
        with self._lock:
            self._feeds[feed].exceeded = reason
            self._update()

    def look(self) -> None:
        """Time has passed."""
        with self._lock:
            self._update()

    def advance(self, feed: str, version: str | None) -> str | None:
        """The resource's version, now that this feed is at `version`."""
        with self._lock:
            self._feeds[feed].version = version
            return smallest([each.version for each in self._feeds.values()])

    def marks(self) -> str:
        """The feeds' own versions, for the next life; "" where that of the resource says it."""
        with self._lock:
            if len(self._feeds) == 1:
                return ""
            return json.dumps({name: feed.version for name, feed in sorted(self._feeds.items())})

    @property
    def current(self) -> tuple[int, str]:
        """State and reason as published."""
        return self._published

    def is_settled(self) -> bool:
        """Whether each feed has stored a first list, or knows that there is nothing to list."""
        with self._lock:
            each = self._feeds.values()
            return bool(each) and all(
                feed.listed or (feed.state == states.ABSENT and feed.reason) for feed in each
            )

    def _update(self) -> None:
        now = self._now()
        each = [(feed, *found.standing(now, self._max_age)) for feed, found in self._feeds.items()]
        if not each:
            return
        feed, state, reason = min(each, key=lambda found: _WORST_FIRST.index(found[1]))
        if feed and reason:
            reason = f"namespace {feed}: {reason}"
        if (state, reason) != self._published and self._publish(state, reason):
            self._published = (state, reason)


def smallest(versions: list[str | None]) -> str | None:
    """The smallest version; None where one is missing, or several cannot be compared."""
    if len(versions) == 1:
        return versions[0] or None
    found: str | None = None
    for version in versions:
        if not version or not is_version(version):
            return None
        if found is None or compare(version, found) < 0:
            found = version
    return found


def versions_of(version: str, marks: str, feeds: Iterable[str]) -> dict[str, str]:
    """Where each feed of an earlier life ended, by its marks(); what is missing is to be listed."""
    names = list(feeds)
    if not marks:
        return {name: version for name in names if version and len(names) == 1}
    try:
        found = decoded(marks)
    except ValueError:
        return {}
    return {name: str(found[name]) for name in names if found.get(name)}
