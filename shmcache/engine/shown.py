"""The content of one plan as readers see it: what the reflector's own reader finds in the cache.

SHOWN1  a content belongs to one generation; its version is that of one feed in it, up to which
the feed's objects are complete.
SHOWN2  a wait ends in time, whatever workers do to the seat that it sleeps on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache.engine.evidence import NotYet, Refusal
from shmcache.engine.resource_state import versions_of
from shmcache.protocol import versions
from shmcache.protocol.items import Identity

if TYPE_CHECKING:
    from shmcache import _hot
    from shmcache.engine.feed import SourceFeed
    from shmcache.engine.plans import Plan
    from shmcache.reader.cache import Cache

NOT_LISTED = "the first list is not stored yet"
LONGEST_SLEEP = 1.0
"""Seconds after which a sleeper looks by itself (SHOWN2)."""


class FeedContent(NamedTuple):
    """One generation of one feed's content."""

    root: _hot.Root
    number: int
    version: str

    def reached(self, version: str) -> bool:
        """Whether it holds everything up to a version of the server."""
        return versions.compare(self.version, version) >= 0

    def identity(self, key: str) -> Identity | None:
        """The state of an object; None if there is no such object."""
        obj = self.root.get(self.number, key)
        return None if obj is None else identity_of(obj)

    def identities(self, scope: str) -> Iterator[tuple[str, Identity]]:
        """Of all objects, or those of a namespace."""
        for key, obj in self.root.scan(self.number, prefix=f"{scope}/" if scope else None):
            yield key, identity_of(obj)

    @property
    def changed(self) -> int:
        """The generation in which the resource changed last."""
        return self.root.record(self.number)["generation"]

    def size(self, scope: str, most: int) -> int:
        """How many objects there are; of a namespace, at most so many."""
        if not scope:
            return self.root.count(self.number)
        return len(self.root.scan(self.number, prefix=f"{scope}/", limit=most, want="keys"))


class Confirmation(NamedTuple):
    """A confirmed content; it holds for those after it, too (CONFIRM9 of confirming.py)."""

    content: FeedContent
    way: str
    absent: bool = False
    """As long as there is no such object."""
    until: str | None = None
    """As long as the content does not change, until it has reached this version."""

    def named(self) -> dict[str, Any]:
        """For readers."""
        root, _, version = self.content
        found: dict[str, Any] = {
            "instance": f"{root.instance:x}",
            "generation": root.generation,
            "version": version,
            "way": self.way,
        }
        if self.absent:
            found["absent"] = True
        if self.until is not None:
            found |= {"until": self.until, "unchanged": self.content.changed}
        return found


def identity_of(obj: Any) -> Identity:
    """Of a stored object; a transform may have left nothing of it."""
    metadata = obj.get("metadata") or {}
    return Identity(str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or ""))


class ShownContent:
    """The contents of a plan's feeds. From any thread."""

    def __init__(
        self,
        plan: Plan,
        cache: Callable[[], Cache],
        feeds: Callable[[], Iterable[SourceFeed]],
        refused: Callable[[], int],
    ) -> None:
        """`refused`: how many objects the cache could not store."""
        self.plan = plan
        self._cache = cache
        self._feeds = feeds
        self._refused = refused
        self._over = False

    def end(self) -> None:
        """Ends each wait with a Refusal, within LONGEST_SLEEP."""
        self._over = True

    @property
    def comparable(self) -> bool:
        """Whether keys, UIDs and versions of the cache are those of the server."""
        return self.plan.transform is None and not self._refused()

    # ---- feeds ---------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The namespaces of the feeds; [""] for all. Refusal before they have begun."""
        names = [feed.parts.namespace for feed in self._feeds()]
        if not names:
            raise Refusal(NOT_LISTED)
        return names

    def feed_of(self, namespace: str) -> str:
        """The feed that has a namespace."""
        names = self.names()
        if namespace in names:
            return namespace
        if names == [""]:
            return ""
        raise Refusal(f"namespace {namespace!r} is not cached")

    def feed(self, name: str) -> SourceFeed | None:
        """The feed of this name, if it still is one."""
        return next((one for one in self._feeds() if one.parts.namespace == name), None)

    # ---- contents ------------------------------------------------------------------------------

    def content(self, feed: str) -> FeedContent:
        """The content that readers see now. Refusal while its first list is under way."""
        try:
            reader, number = self._cache().locate(self.plan.name)
        except KeyError:
            raise Refusal(NOT_LISTED) from None  # this process reads the instance before ours
        root = reader.root()
        record = root.record(number)
        found = versions_of(record["version"] or "", record["marks"], self.names()).get(feed)
        if found is None or not versions.is_version(found):
            raise Refusal(NOT_LISTED)
        return FeedContent(root, number, found)

    def latest(self) -> FeedContent:
        """The whole resource, of which no feed is missing."""
        try:
            reader, number = self._cache().locate(self.plan.name)
        except KeyError:
            raise Refusal(NOT_LISTED) from None
        root = reader.root()
        return FeedContent(root, number, root.record(number)["version"] or "")

    def reaches(self, fact: Callable[[], bool], until: float) -> bool:
        """Whether it becomes true of the cache in time; sleeps until something is published."""
        resource = self._cache()[self.plan.name]
        while not self._over:
            left = until - time.monotonic()
            if resource.await_fact(fact, min(left, LONGEST_SLEEP)):
                return True
            if left <= 0:
                return False
        raise Refusal("the reflector ends")

    def wait(self, fact: Callable[[], bool], until: float) -> None:
        """NotYet if it does not become true of the cache in time."""
        if not self.reaches(fact, until):
            raise NotYet("the events of the server did not arrive in time")
