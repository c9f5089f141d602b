"""Evidence from the API server about the cache, by the cheapest request that can give it.

    one object             GET of its metadata: its version
    few objects            LIST of their metadata: keys and versions, and the version of the list
    anything else          LIST ?limit=1: the server's version; then, if no event of the feed proves
                           that the cache is there, a watch from the cache's version: its first
                           bookmark proves that it has shown everything before

No request here names a version for what it lists, so the server answers with its state of now, and
not with that of a cache of its own. A watch of a few seconds gets its bookmark two seconds before
its end; servers without a watch cache send none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from shmcache.engine.plans import Plan
from shmcache.protocol import versions
from shmcache.protocol.items import Identity
from shmcache.protocol.options import ListOptions
from shmcache.reflector.retrying import LONGEST_RETRY_AFTER
from shmcache.source.base import AskedSource, SourceFailed

if TYPE_CHECKING:
    from shmcache.engine.open_source import Opener
    from shmcache.protocol.items import Item

WATCH_SECONDS = 3
"""Below it a server sends no bookmark at all; longer watches send it later."""
WATCH_SILENCE = 8.0
FORGET_SECONDS = 180.0
"""After so long below the latest version that was shown, a server counts as restored."""
_SOURCES = 8
"""Connections that are kept: one for all namespaces, or for each of the last ones."""


class Refusal(Exception):
    """Nothing could be confirmed; the text names the reason, for the reader."""


class NotYet(Refusal):
    """The time was too short: the same question may be answered later."""


class WatchedSpan(NamedTuple):
    """A watch has shown everything up to `until`, and the last change at `last`."""

    until: str
    last: str | None


class Evidence:
    """Requests about one plan's objects in one namespace, or ("") all. For one thread."""

    def __init__(self, plan: Plan, source: AskedSource) -> None:
        self._plan = plan
        self.source = source

    def version(self) -> str:
        """The server's version; "" if it has none that can be compared."""
        return self.source.probe(self._selected(limit=1))

    def identity(self, namespace: str, name: str) -> Identity | None:
        """The state of one object; None if the server has no such object in the plan."""
        if not (self._plan.labels or self._plan.fields or self._plan.shard):
            return self.source.identity(namespace, name)
        fields = ",".join(filter(None, [self._plan.fields, f"metadata.name={name}"]))
        key = f"{namespace}/{name}" if namespace else name
        options = ListOptions(label_selector=self._plan.labels, field_selector=fields)
        found = None
        with self.source.page(options) as page:
            for items in page:
                found = next((item for item in items if item.key == key), found)
        return Identity(found.uid or "", found.version or "") if found else None

    def contents(
        self, take: Callable[[list[Item]], object], limit: int, *, whole: bool = False
    ) -> str | None:
        """Lists all objects, so many in a page; the version.

        None if there are more than one page, unless it is `whole`, or several versions.
        """
        version = token = ""
        while True:
            with self.source.page(self._selected(limit=limit, token=token)) as page:
                for items in page:
                    take(items)
                meta = page.meta
            if version not in {"", meta.version}:
                return None
            version, token = meta.version, meta.continue_token
            if not token:
                return version
            if not whole:
                return None

    def shown_since(self, version: str, wanted: str) -> WatchedSpan | None:
        """A watch from `version` on, until it has passed `wanted`; None: no bookmark.

        It ends in time, whatever a server sends that goes on for longer than it was asked to.
        """
        options = self._selected(
            watch=True,
            resource_version=version,
            allow_bookmarks=True,
            timeout_seconds=WATCH_SECONDS,
        )
        last: str | None = None
        with self.source.watch(options, silence=WATCH_SILENCE) as stream:
            end = time.monotonic() + WATCH_SECONDS + WATCH_SILENCE
            for items in stream:
                if time.monotonic() > end:
                    return None
                for item in items:
                    if item.version is None or not versions.is_version(item.version):
                        return None  # an error of the watch, such as 410
                    if item.type != "BOOKMARK":
                        last = item.version
                    if versions.compare(item.version, wanted) >= 0:
                        return WatchedSpan(item.version, last)
        return None

    def _selected(
        self,
        *,
        limit: int = 0,
        token: str = "",
        watch: bool = False,
        resource_version: str = "",
        allow_bookmarks: bool = False,
        timeout_seconds: int | None = None,
    ) -> ListOptions:
        return ListOptions(
            watch=watch,
            limit=limit,
            continue_token=token,
            resource_version=resource_version,
            allow_bookmarks=allow_bookmarks,
            timeout_seconds=timeout_seconds,
            label_selector=self._plan.labels,
            field_selector=self._plan.fields,
        )


class LatestShown:
    """The latest versions that evidence has shown, for what comes after it. For one thread.

    Two servers of one cluster may disagree about what is the present: one of them lags, or was
    restored from a backup. CONFIRM10 of confirming.py.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._server = 0
        self._less_since: float | None = None
        self._objects: dict[str, tuple[str, float]] = {}
        self._cached: dict[str, int] = {}

    def begin(self, feed: str, cached: str) -> None:
        """A question begins, about a feed whose content is at this version.

        A content that went back to an earlier version is of another history: nothing counts then
        that was shown of the old one.
        """
        version = versions.number_of(cached)
        if version < self._cached.get(feed, 0):
            self._forget()
        self._cached[feed] = version

    def check(self, version: str) -> None:
        """A server states that it is at this version. Refusal if one was beyond it before."""
        now, number = self._now(), versions.number_of(version)
        if number < self._server:
            if self._less_since is None:
                self._less_since = now
            if now - self._less_since < FORGET_SECONDS:
                raise Refusal(f"the server is at version {version}, behind {self._server} before")
            self._forget()
        self._server, self._less_since = number, None

    def show(self, feed: str, version: str) -> None:
        """An object has this version, whose event is yet to come to the feed."""
        latest = self.object(feed)
        if latest is None or versions.compare(version, latest) > 0:
            self._objects[feed] = version, self._now()
        self._server = max(self._server, versions.number_of(version))

    def object(self, feed: str) -> str | None:
        """The latest version of an object of this feed that was shown lately."""
        version, at = self._objects.get(feed, (None, 0.0))
        return version if self._now() - at < FORGET_SECONDS else None

    def _forget(self) -> None:
        self._server, self._less_since = 0, None
        self._objects.clear()
        self._cached.clear()


class ServerAsker:
    """The connections of one plan for evidence. For one thread, apart from cancel()."""

    def __init__(self, plan: Plan, opener: Opener) -> None:
        self._plan = plan
        self._opener = opener
        self._lock = threading.Lock()
        self._sources: dict[str, Evidence] = {}
        self._over = False
        self._why = ""
        self.requests = 0
        """Sent so far."""
        self.latest = LatestShown()
        self.not_before = 0.0
        """When the server takes requests again that it refused."""

    def evidence(self, namespace: str) -> Evidence:
        """Of one namespace, or of all. Refusal if there is no server."""
        with self._lock:
            found = self._sources.pop(namespace, None)
            if found is None:
                source = self._opener.open_metadata(self._plan, namespace, direct=True)
                if source is None:
                    raise Refusal("it is a recording, which has no server")
                found = Evidence(self._plan, source)
            if len(self._sources) >= _SOURCES:
                self._sources.pop(next(iter(self._sources))).source.close()
            self._sources[namespace] = found
            if self._over:
                found.source.cancel()
            return found

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request; none before the time that the server gave when it refused the last one."""
        if time.monotonic() < self.not_before:
            raise Refusal(self._why)
        self.requests += 1
        try:
            yield
        except SourceFailed as failed:
            text = f"the server did not answer: {failed}"
            if failed.failure.retry_after:
                wait = min(failed.failure.retry_after, LONGEST_RETRY_AFTER)
                self.not_before = time.monotonic() + wait
                self._why = text
            raise Refusal(text) from None

    def close(self) -> None:
        """Closes the connections; the next request opens its own."""
        with self._lock:
            sources, self._sources = self._sources, {}
        for evidence in sources.values():
            evidence.source.close()

    def cancel(self) -> None:
        """Cuts the request under way, and refuses every later one. From any thread."""
        with self._lock:
            self._over = True
            for evidence in self._sources.values():
                evidence.source.cancel()
