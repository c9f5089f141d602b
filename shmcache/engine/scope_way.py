"""Confirms a whole resource or one namespace of it, by the cheapest evidence (evidence.py).

list     few objects: what the server lists is what the cache holds, or gets to hold
event    the cache reaches the version that the server had
watch    nothing came that would show this: a watch from the cache's version proves that nothing
was missed, or shows what is still to come

Where the server's history is unknown (CONFIRM11 of confirming.py), only a list proves anything.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shmcache.engine.comparing import Comparison
from shmcache.engine.evidence import Evidence, NotYet, Refusal, ServerAsker
from shmcache.engine.object_way import BRIEF, TRIES
from shmcache.engine.shown import Confirmation
from shmcache.protocol import versions
from shmcache.protocol.paths import is_segment

if TYPE_CHECKING:
    from shmcache.engine.object_way import Contradict
    from shmcache.engine.shown import FeedContent, ShownContent

FEW_OBJECTS = 100
"""A list of so many is as cheap as the question for the server's version."""
PAGE = 2000
"""Of so many objects the metadata is listed, if no event comes; more need a watch."""


class ScopeWay:
    """For one thread."""

    def __init__(self, shown: ShownContent, server: ServerAsker, contradict: Contradict) -> None:
        """`contradict`: as of ObjectWay."""
        self._shown = shown
        self._server = server
        self._contradict = contradict

    def confirm(self, scope: str, until: float) -> Confirmation:
        """A content that is current in one namespace, or ("") in all. Refusal.

        With several feeds each is confirmed by itself (CONFIRM6).
        """
        if scope and not is_segment(scope):
            return Confirmation(self._shown.latest(), "none")  # no object can be there
        names = [self._shown.feed_of(scope)] if scope else self._shown.names()
        answers = [self._feed(name, scope or name, until) for name in names]
        latest = self._shown.latest()
        held = [one for one in answers if one.until is not None]
        for name, one in zip(names, answers, strict=True):
            if one.until is not None and not self._holds_on(name, one, latest):
                raise NotYet("the objects of its namespaces change faster than they are confirmed")
        last = max((one.until or "" for one in held), key=versions.number_of, default=None)
        return Confirmation(latest, answers[-1].way, until=last)

    def _holds_on(self, feed: str, answer: Confirmation, latest: FeedContent) -> bool:
        """Whether what was confirmed of a feed is so in the latest content (CONFIRM9)."""
        same = answer.content.changed == latest.changed
        return same or self._is_at(feed, answer.until or "")

    def _feed(self, feed: str, scope: str, until: float) -> Confirmation:
        """One feed is current in this scope."""
        evidence = self._server.evidence(scope)
        start = self._shown.content(feed)
        count = start.size(scope, PAGE + 1)
        self._server.latest.begin(feed, start.version)
        source = self._shown.feed(feed)
        resumed = source.unproved if source is not None and self._shown.comparable else None
        if source is not None and resumed is not None:
            found = self._by_list(feed, scope, evidence, until, whole=True)
            if found is None:
                raise NotYet("the history of the server is yet to be compared with the cache's")
            if scope == feed:
                source.settle(resumed)
            return found
        may_list = count <= PAGE and self._shown.comparable
        few = may_list and count <= FEW_OBJECTS
        if few and (found := self._by_list(feed, scope, evidence, until)):
            return found
        version = self._server_version(evidence, feed)
        if self._shown.reaches(lambda: self._is_at(feed, version), _soon(until)):
            return Confirmation(self._shown.content(feed), "event")
        if may_list and not few and (found := self._by_list(feed, scope, evidence, until)):
            return found
        return self._by_watch(feed, evidence, version, until)

    def _is_at(self, feed: str, version: str) -> bool:
        return self._shown.content(feed).reached(version)

    # ---- a list ----------------------------------------------------------------------------------

    def _by_list(
        self, feed: str, scope: str, evidence: Evidence, until: float, *, whole: bool = False
    ) -> Confirmation | None:
        """The cache gets to hold what the server lists, or something later; None: it does not.

        CONFIRM4. `whole`: also of several pages.
        """
        listed = self._listed(feed, scope, evidence, whole=whole)
        if listed is None:
            return None
        comparison, version = listed
        if comparison.found:
            self._contradict(feed, list(comparison.found.values()), version)
        holding: list[FeedContent] = []

        def fact() -> bool:
            now = self._shown.content(feed)
            if now.reached(version) or comparison.same(now):
                holding.append(now)
            return bool(holding)

        if not self._shown.reaches(fact, until if whole else _soon(until)):
            return None
        now = holding[0]
        if not now.reached(version):
            return Confirmation(now, "list", until=version)
        found = comparison.finish(now, version)
        if found:
            self._contradict(feed, found, version)
        return Confirmation(now, "list")

    def _listed(
        self, feed: str, scope: str, evidence: Evidence, *, whole: bool
    ) -> tuple[Comparison, str] | None:
        """A list that is not behind the cache (CONFIRM5); None where the server pages it."""
        passed = listed = ""
        for _ in range(2):
            before = self._shown.content(feed)
            comparison = Comparison(before, scope)
            with self._server.request():
                version = evidence.contents(comparison.take, PAGE, whole=whole)
            if version is None or not versions.is_version(version):
                return None
            if versions.compare(version, before.version) >= 0:
                self._check(feed, version)
                if comparison.latest:
                    self._server.latest.show(feed, comparison.latest)
                return comparison, version
            passed, listed = before.version, version
        raise self._behind(feed, listed, passed)

    # ---- a version -------------------------------------------------------------------------------

    def _server_version(self, evidence: Evidence, feed: str) -> str:
        """CONFIRM5."""
        version = before = ""
        for _ in range(2):
            before = self._shown.content(feed).version
            with self._server.request():
                version = evidence.version()
            if not versions.is_version(version):
                raise Refusal("the server's version cannot be compared")
            if versions.compare(version, before) >= 0:
                self._check(feed, version)
                return version
        raise self._behind(feed, version, before)

    def _check(self, feed: str, version: str) -> None:
        """CONFIRM10."""
        try:
            self._server.latest.check(version)
        except Refusal:
            self._distrust(feed)
            raise

    def _behind(self, feed: str, version: str, passed: str) -> Refusal:
        self._distrust(feed)
        return Refusal(f"the server is at version {version}, behind {passed} of the cache")

    def _distrust(self, feed: str) -> None:
        """CONFIRM11: a server that is behind may have another history when it is ahead again."""
        if source := self._shown.feed(feed):
            source.distrust()

    def _by_watch(self, feed: str, evidence: Evidence, version: str, until: float) -> Confirmation:
        """A watch from the cache's version shows that nothing was missed, or what comes still."""
        for _ in range(TRIES):
            start = self._shown.content(feed)
            if start.reached(version):
                return Confirmation(start, "event")
            with self._server.request():
                shown = evidence.shown_since(start.version, version)
            if shown is not None:
                if shown.last is not None:
                    last = shown.last
                    self._shown.wait(lambda: self._is_at(feed, last), until)  # noqa: B023
                return Confirmation(self._shown.content(feed), "watch")
            if time.monotonic() >= until:
                break
        raise Refusal("the server sends no bookmark")


def _soon(until: float) -> float:
    return min(time.monotonic() + BRIEF, until)
