"""Confirms one object, by a GET of its metadata.

    present, and the cache had reached its version before the GET    the cache must have it as it is
    present, at a later version                                      the cache gets there
    absent                                                           its deletion gets to the cache

Versions are compared, never times (CONFIRM2 of confirming.py). A version that the server gave for
the object is also one of the server, so the cache needs no other evidence.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from shmcache.engine.comparing import Disagreement
from shmcache.engine.evidence import Evidence, Refusal, ServerAsker
from shmcache.engine.shown import Confirmation
from shmcache.protocol import versions
from shmcache.protocol.paths import is_segment

if TYPE_CHECKING:
    from shmcache.engine.shown import FeedContent, ShownContent
    from shmcache.protocol.items import Identity

    Contradict = Callable[[str, list[Disagreement], str], None]

BRIEF = 0.1
"""Seconds in which a busy resource gets its next event."""
TRIES = 3
BEHIND = "the server is at version {} of {}, behind {} of the cache"


class ObjectWay:
    """For one thread."""

    def __init__(self, shown: ShownContent, server: ServerAsker, contradict: Contradict) -> None:
        """`contradict` takes a feed, what differs, and the version; it raises a Refusal."""
        self._shown = shown
        self._server = server
        self._contradict = contradict

    def confirm(self, key: str, until: float) -> Confirmation:
        """A content that shows the object as it is now, or later. Refusal."""
        namespace, _, name = key.rpartition("/")
        if not is_segment(name) or (namespace and not is_segment(namespace)):
            return Confirmation(self._shown.latest(), "none")  # no object can have this name
        feed = self._shown.feed_of(namespace)
        evidence = self._server.evidence(namespace)
        for _ in range(TRIES):
            before = self._reached(feed, until)
            with self._server.request():
                theirs = evidence.identity(namespace, name)
            if theirs is None:
                found = self._absent(feed, key, before, evidence, until)
            elif not versions.is_version(theirs.version):
                raise Refusal("the version of the object cannot be compared")
            else:
                found = self._present(feed, key, before, theirs, until)
            if found is not None:
                return Confirmation(found, "get", absent=theirs is None)
        raise Refusal("the object comes and goes faster than it can be asked about")

    def _reached(self, feed: str, until: float) -> FeedContent:
        """A content that has each object that was shown before (CONFIRM10)."""
        found = self._shown.content(feed)
        self._server.latest.begin(feed, found.version)
        latest = self._server.latest.object(feed)
        if latest is None or found.reached(latest):
            return found
        self._shown.wait(lambda: self._shown.content(feed).reached(latest), until)
        return self._shown.content(feed)

    def _present(
        self, feed: str, key: str, before: FeedContent, theirs: Identity, until: float
    ) -> FeedContent | None:
        """The content that shows it; None: to be asked once more."""
        if before.reached(theirs.version):
            if self._shown.comparable:
                self._unchanged(feed, key, before, theirs)
            return self._shown.content(feed)
        self._server.latest.show(feed, theirs.version)
        self._shown.wait(lambda: self._shown.content(feed).reached(theirs.version), until)
        found = self._shown.content(feed)
        if not self._shown.comparable:
            return found
        ours = found.identity(key)
        if ours is None and found.version != theirs.version:
            return None  # deleted since; if it was not, the next GET shows it
        if ours is None or _is_older(ours, theirs):
            self._contradict(feed, [Disagreement(key, ours, theirs)], theirs.version)
        return found

    def _unchanged(self, feed: str, key: str, before: FeedContent, theirs: Identity) -> None:
        """COMPARE1 of comparing.py, and CONFIRM5."""
        ours = before.identity(key)
        if ours == theirs:
            return
        found = Disagreement(key, ours, theirs)
        if ours is not None and found.backward:
            if source := self._shown.feed(feed):
                source.claim_soon()  # a restored backup, or a member that is behind
            raise Refusal(BEHIND.format(theirs.version, key, ours.version))
        self._contradict(feed, [found], before.version)

    def _absent(
        self, feed: str, key: str, before: FeedContent, evidence: Evidence, until: float
    ) -> FeedContent | None:
        """The content without it; None: to be asked once more."""
        shown = self._shown
        ours = before.identity(key)
        if ours is not None and not shown.reaches(
            lambda: _is_gone(shown.content(feed), key, ours), min(time.monotonic() + BRIEF, until)
        ):
            with self._server.request():
                version = evidence.version()
            if not versions.is_version(version):
                raise Refusal("the server's version cannot be compared")
            self._server.latest.check(version)
            if versions.compare(version, before.version) < 0:
                raise Refusal(BEHIND.format(version, self._shown.plan.name, before.version))
            shown.wait(lambda: shown.content(feed).reached(version), until)
            found = shown.content(feed)
            if found.identity(key) == ours and shown.comparable:
                self._contradict(feed, [Disagreement(key, ours, None)], version)
        found = shown.content(feed)
        return found if found.identity(key) is None else None


def _is_gone(found: FeedContent, key: str, ours: Identity) -> bool:
    now = found.identity(key)
    return now is None or now.uid != ours.uid


def _is_older(ours: Identity, theirs: Identity) -> bool:
    return versions.number_of(ours.version) < versions.number_of(theirs.version)
