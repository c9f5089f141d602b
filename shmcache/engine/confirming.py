"""Confirms for readers that the cache is current: that it shows the server's state of now.

A confirmer has one plan, and a thread while there are questions about it. A *flight* takes all
questions that wait, and answers them with the same few requests.

    question ▸ flight ▸ evidence of the server (evidence.py) ▸ the cache reaches it ▸ answer

Invariants
    CONFIRM1  the requests of a flight begin after its questions came: a question that comes while a
        flight is under way waits for the next one.
    CONFIRM2  an answer names a generation whose content is at least the version that the server had
        in that evidence; or holds the very versions that the server listed; or is of a version
        after which, as a watch has shown, nothing happened up to it. Versions are compared, never
        times: an event that arrives says by its version whether it is late enough.
    CONFIRM3  one flight at a time for each resource, and after it a pause in proportion to the
        questions that it and those just before it answered (half a millisecond for each, half a
        second at most): one reader does not notice it, a thousand in a closed loop cost the server
        two to four requests a second.
    CONFIRM4  evidence that contradicts the cache is an error for its readers, never an answer; the
        feed then lists again.
    CONFIRM5  a server whose version is before the cache's proves nothing (members of a pair that
        disagree, a restored backup): the question is asked once more, then refused.
    CONFIRM6  with several feeds, one for each namespace, each is confirmed by itself; a generation
        counts that holds all of it.

A refusal (429, no answer, no bookmark) is passed on to the readers, who have their own fallback.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache.engine.evidence import Evidence, ListedContents, Refusal
from shmcache.engine.proof import digest
from shmcache.engine.resource_state import versions_of
from shmcache.errors import ShmCacheError
from shmcache.protocol import versions
from shmcache.source.base import SourceFailed

if TYPE_CHECKING:
    from shmcache import _hot
    from shmcache.engine.desk import Asked
    from shmcache.engine.feed import SourceFeed
    from shmcache.engine.open_source import Opener
    from shmcache.engine.plans import Plan
    from shmcache.reader.cache import Cache

logger = logging.getLogger(__name__)

FEW_KEYS = 4
"""For so many different objects of a flight there is one GET each."""
FEW_OBJECTS = 100
"""A list of so many is as cheap as the question for the server's version."""
PAGE = 2000
"""Of so many objects the metadata is listed, if no event comes; more need a watch."""
BRIEF = 0.1
"""Seconds in which a busy resource gets its next event."""
TRIES = 3
SECONDS_PER_QUESTION, LONGEST_PAUSE = 0.0005, 0.5
FADING = 0.7
"""A crowd of readers comes back after its answer, not all at the same moment: the pause after the
next flight, which may find a few of them, is shorter only by this factor."""
LONGEST_WAIT = 0.25
"""Seconds after which questions are looked through while the server takes no requests (429)."""
IDLE_SECONDS = 10.0
"""A thread without questions ends, and its connections with it."""
_SOURCES = 8
"""Connections that are kept: one for all namespaces, or for each of the last ones."""


class FeedContent(NamedTuple):
    """One generation of one feed's content."""

    root: _hot.Root
    number: int
    version: str


class ResourceConfirmer:
    """The confirmer of one plan: submit() from any thread."""

    def __init__(
        self,
        plan: Plan,
        opener: Opener,
        cache: Callable[[], Cache],
        feeds: Callable[[], Iterable[SourceFeed]],
        refused: Callable[[], int],
    ) -> None:
        self.flights = self.questions = self.refusals = self.contradictions = 0
        self._plan = plan
        self._opener = opener
        self._attached = cache
        self._feeds = feeds
        self._refused = refused
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._waiting: list[Asked] = []
        self._running = self._over = False
        self._sources: dict[str, Evidence] = {}
        self._not_before = 0.0
        self._why = ""

    # ---- its life ------------------------------------------------------------------------------

    def submit(self, asked: Asked) -> None:
        """See desk.py."""
        with self._lock:
            self._waiting.append(asked)
            self._came.notify()
            if self._running or self._over:
                return
            self._running = True
        name = f"shmcache-confirm-{self._plan.name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def end(self) -> None:
        """Cuts the request under way, and answers nobody any more."""
        with self._lock:
            self._over = True
            self._came.notify()
            for evidence in self._sources.values():
                evidence.source.cancel()

    def _run(self) -> None:
        crowd = 0.0
        while asked := self._next():
            self._fly(asked)
            crowd = max(float(len(asked)), crowd * FADING)
            pause = min(SECONDS_PER_QUESTION * crowd, LONGEST_PAUSE)
            if self._waiting:  # they may be those for which the server takes no requests
                pause = max(pause, min(self._not_before - time.monotonic(), LONGEST_WAIT))
            with self._lock:
                self._came.wait_for(lambda: self._over, pause)

    def _next(self) -> list[Asked]:
        """All that wait (CONFIRM1); nothing when the thread is to end."""
        with self._lock:
            while not self._over:
                self._came.wait_for(lambda: self._waiting or self._over, IDLE_SECONDS)
                now, waiting, self._waiting = time.monotonic(), self._waiting, []
                found = [asked for asked in waiting if asked.deadline > now]
                if found:
                    return found
                if not waiting:
                    break
            for evidence in self._sources.values():  # here: the next thread opens its own
                evidence.source.close()
            self._sources.clear()
            self._running = False
            return []

    def _fly(self, asked: list[Asked]) -> None:
        self.flights += 1
        self.questions += len(asked)
        for some, way in self._groups(asked):
            try:
                self._answer(some, way(max(one.deadline for one in some)))
            except Refusal as refusal:
                self._refuse(self._patient(some), str(refusal))
            except ShmCacheError as error:  # no seat for the reflector's own reader, the end
                self._refuse(some, f"the reflector cannot read its cache: {error}")
            except Exception as error:
                logger.exception("%s: a confirmation failed", self._plan.name)
                self._refuse(some, f"a bug of the reflector: {error!r}")

    def _patient(self, asked: list[Asked]) -> list[Asked]:
        """Those that cannot wait until the server takes requests again; the others do."""
        if self._not_before <= time.monotonic():
            return asked
        with self._lock:
            self._waiting += [one for one in asked if one.deadline > self._not_before]
        return [one for one in asked if one.deadline <= self._not_before]

    def _refuse(self, asked: list[Asked], text: str) -> None:
        self.refusals += len(asked)
        for one in asked:
            one.answer({"error": text})

    def _answer(self, asked: list[Asked], confirmed: dict[str, Any]) -> None:
        for one in asked:
            one.answer(confirmed)

    def _groups(
        self, asked: list[Asked]
    ) -> list[tuple[list[Asked], Callable[[float], dict[str, Any]]]]:
        """The questions, and the way to answer each: by GET, or for a namespace, or for all."""
        keys = {one.key for one in asked if one.key}
        if len(keys) <= FEW_KEYS and all(one.key for one in asked):
            return [
                ([one for one in asked if one.key == key], self._object_way(key)) for key in keys
            ]
        scopes = {one.key.rpartition("/")[0] if one.key else one.namespace for one in asked}
        scope = scopes.pop() if len(scopes) == 1 else ""
        return [(asked, lambda deadline: self._scope(scope, deadline))]

    def _object_way(self, key: str) -> Callable[[float], dict[str, Any]]:
        return lambda deadline: self._object(key, deadline)

    # ---- the cache ---------------------------------------------------------------------------

    def _content(self, feed: str) -> FeedContent:
        """The content that readers see now of a feed. Refusal while its first list is under way."""
        cache = self._attached()
        reader, number = cache.locate(self._plan.name)
        root = reader.root()
        record = root.record(number)
        names = [one.parts.namespace for one in self._feeds()]
        found = versions_of(record["version"] or "", record["marks"], names).get(feed)
        if found is None or not versions.is_version(found):
            raise Refusal("the first list is not stored yet")
        return FeedContent(root, number, found)

    def _reaches(self, fact: Callable[[], bool], until: float) -> bool:
        """Whether it becomes true of the cache in time; sleeps until something is published."""
        resource = self._attached()[self._plan.name]
        while not self._over:
            left = until - time.monotonic()
            if resource.await_fact(fact, min(left, 1.0)):
                return True
            if left <= 0:
                return False
        raise Refusal("the reflector ends")

    def _named(self, found: FeedContent, way: str) -> dict[str, Any]:
        root = found.root
        return {
            "instance": f"{root.instance:x}",
            "generation": root.generation,
            "version": found.version,
            "way": way,
        }

    def _evidence(self, namespace: str) -> Evidence:
        with self._lock:
            found = self._sources.pop(namespace, None)
            if found is None:
                source = self._opener.open_metadata(self._plan, namespace)
                if source is None:
                    raise Refusal("it is a recording, which has no server")
                found = Evidence(self._plan, source)
            if len(self._sources) >= _SOURCES:
                self._sources.pop(next(iter(self._sources))).source.close()
            self._sources[namespace] = found
            if self._over:
                found.source.cancel()
            return found

    def _comparable(self) -> bool:
        """Whether keys and versions of the cache are those of the server."""
        return self._plan.transform is None and not self._refused()

    # ---- one object --------------------------------------------------------------------------

    def _object(self, key: str, deadline: float) -> dict[str, Any]:
        namespace, _, name = key.rpartition("/")
        feed = self._feed_of(namespace)
        evidence = self._evidence(namespace)
        for _ in range(TRIES):
            before = _uid(self._content(feed), key)
            with self._request():
                version = evidence.object_version(namespace, name)
            if version is not None:
                return self._at_version(feed, key, version, deadline)
            now = self._content(feed)
            if before is not None and _uid(now, key) == before:  # all its versions are past
                self._wait(partial(self._differs, feed, key, before), deadline)
                now = self._content(feed)
            if _uid(now, key) is None:
                return self._named(now, "get")
        raise Refusal("the object comes and goes faster than it can be asked about")

    def _at_version(self, feed: str, key: str, version: str, deadline: float) -> dict[str, Any]:
        self._wait(lambda: _at_least(self._content(feed), version), deadline)
        found = self._content(feed)
        stored = self._identity(found, key)
        older = stored is not None and versions.compare(stored, version) < 0
        if (older or (stored is None and found.version == version)) and self._comparable():
            self._contradict(feed, f"{key} was at version {version} at the server, not {stored}")
        return self._named(found, "get")

    def _differs(self, feed: str, key: str, before: str) -> bool:
        return _uid(self._content(feed), key) != before

    def _identity(self, found: FeedContent, key: str) -> str | None:
        """The version of a stored object; None if there is no such object."""
        obj = found.root.get(found.number, key)
        return None if obj is None else str(obj["metadata"].get("resourceVersion") or "0")

    # ---- many objects --------------------------------------------------------------------------

    def _scope(self, scope: str, deadline: float) -> dict[str, Any]:
        """Of one namespace, or of all."""
        names = [feed.parts.namespace for feed in self._feeds()]
        ways = [
            self._feed(name, scope or name, deadline)
            for name in ([self._feed_of(scope)] if scope else names)
        ]
        root, way = self._attached().reader.root(), ways[-1] if ways else "none"
        number = root.names().index(self._plan.name)
        return self._named(FeedContent(root, number, root.record(number)["version"] or ""), way)

    def _feed_of(self, namespace: str) -> str:
        """The feed that has a namespace."""
        names = [feed.parts.namespace for feed in self._feeds()]
        if not names:
            raise Refusal("the first list is not stored yet")
        if names == [""] or namespace in names:
            return namespace if namespace in names else ""
        raise Refusal(f"namespace {namespace!r} is not cached")

    def _feed(self, feed: str, scope: str, deadline: float) -> str:
        """One feed is current in this scope when it returns; the way in which that was found."""
        evidence = self._evidence(scope)
        start = self._content(feed)
        count = self._count(start, scope)
        listed = None
        if count <= FEW_OBJECTS and self._comparable():
            with self._request():
                listed = evidence.contents(PAGE)
            if self._holds(feed, scope, listed, min(time.monotonic() + BRIEF, deadline)):
                return "list"
        version = self._server_version(evidence, feed)
        brief = min(time.monotonic() + BRIEF, deadline)
        if self._reaches(lambda: _at_least(self._content(feed), version), brief):
            return "event"
        if listed is None and count <= PAGE and self._comparable():
            with self._request():
                listed = evidence.contents(PAGE)
            if self._holds(feed, scope, listed, min(time.monotonic() + BRIEF, deadline)):
                return "list"
        return self._by_watch(feed, scope, version, listed, deadline)

    def _server_version(self, evidence: Evidence, feed: str) -> str:
        """CONFIRM5."""
        version = before = ""
        for _ in range(2):
            before = self._content(feed).version
            with self._request():
                version = evidence.version()
            if not versions.is_version(version):
                raise Refusal("the server's version cannot be compared")
            if versions.compare(version, before) >= 0:
                return version
        raise Refusal(f"the server is at version {version}, behind {before} of the cache")

    def _holds(self, feed: str, scope: str, listed: ListedContents | None, until: float) -> bool:
        """Whether the cache gets to hold what the server listed, or something later."""
        if listed is None or not versions.is_version(listed.version):
            return False

        def fact() -> bool:
            found = self._content(feed)
            if _at_least(found, listed.version):
                return True
            return digest(self._versions(found, scope)) == listed.digest

        return self._reaches(fact, until)

    def _versions(self, found: FeedContent, scope: str) -> Iterable[tuple[str, str | None]]:
        prefix = f"{scope}/" if scope else None
        for key, obj in found.root.scan(found.number, prefix=prefix):
            yield key, obj["metadata"].get("resourceVersion")

    def _count(self, found: FeedContent, scope: str) -> int:
        if not scope:
            return found.root.count(found.number)
        most = PAGE + 1
        return len(found.root.scan(found.number, prefix=f"{scope}/", limit=most, want="keys"))

    def _by_watch(
        self, feed: str, scope: str, version: str, listed: ListedContents | None, deadline: float
    ) -> str:
        """A watch from the cache's version shows that nothing was missed, or what comes still."""
        evidence = self._evidence(scope)
        for _ in range(TRIES):
            start = self._content(feed)
            if _at_least(start, version):
                return "event"
            with self._request():
                shown = evidence.shown_since(start.version, version)
            if shown is not None:
                self._compare(feed, scope, start, listed, shown.last)
                if shown.last is not None:
                    last = shown.last
                    self._wait(lambda: _at_least(self._content(feed), last), deadline)  # noqa: B023
                return "watch"
            if time.monotonic() >= deadline:
                break
        raise Refusal("the server sends no bookmark")

    def _compare(
        self,
        feed: str,
        scope: str,
        start: FeedContent,
        listed: ListedContents | None,
        last: str | None,
    ) -> None:
        """A list after `start` that shows other objects, although nothing changed since then."""
        if listed is None or last is not None or _at_least(start, listed.version):
            return
        count, _ = found = digest(self._versions(start, scope))
        if found != listed.digest:
            self._contradict(
                feed,
                f"it has {count} objects at version {start.version}, the server has "
                f"{listed.digest[0]}, or other versions of them, and a watch shows no change",
            )

    # ---- trouble -------------------------------------------------------------------------------

    def _wait(self, fact: Callable[[], bool], deadline: float) -> None:
        if not self._reaches(fact, deadline):
            raise Refusal("the events of the server did not arrive in time")

    def _contradict(self, feed: str, text: str) -> None:
        """CONFIRM4."""
        self.contradictions += 1
        logger.error("%s: the cache is not the server's: %s", self._plan.name, text)
        for one in self._feeds():
            if one.parts.namespace == feed:
                one.contradicted(text)
        raise Refusal(f"the cache is not the server's, and is listed again: {text}")

    @contextmanager
    def _request(self) -> Iterator[None]:
        """A request; none before the time that the server gave when it refused the last one."""
        if time.monotonic() < self._not_before:
            raise Refusal(self._why)
        try:
            yield
        except SourceFailed as failed:
            text = f"the server did not answer: {failed}"
            if failed.failure.retry_after:
                self._not_before = time.monotonic() + failed.failure.retry_after
                self._why = text
            raise Refusal(text) from None


def _at_least(found: FeedContent, version: str) -> bool:
    return versions.compare(found.version, version) >= 0


def _uid(found: FeedContent, key: str) -> str | None:
    """The UID of a stored object; None if there is no such object."""
    obj = found.root.get(found.number, key)
    return None if obj is None else str(obj["metadata"].get("uid") or "")
