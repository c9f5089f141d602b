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
        with self.source.page(options) as page:
            found = [item for items in page for item in items if item.key == key]
        return Identity(found[0].uid or "", found[0].version or "") if found else None

    def contents(self, take: Callable[[list[Item]], object], limit: int) -> str | None:
        """Lists all objects in one page of so many; the version, or None if there are more."""
        with self.source.page(self._selected(limit=limit)) as page:
            for items in page:
                take(items)
            meta = page.meta
        return None if meta.continue_token else meta.version

    def shown_since(self, version: str, wanted: str) -> WatchedSpan | None:
        """A watch from `version` on, until it has passed `wanted`; None: no bookmark."""
        options = self._selected(
            watch=True,
            resource_version=version,
            allow_bookmarks=True,
            timeout_seconds=WATCH_SECONDS,
        )
        last: str | None = None
        with self.source.watch(options, silence=WATCH_SILENCE) as stream:
            for items in stream:
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
        watch: bool = False,
        resource_version: str = "",
        allow_bookmarks: bool = False,
        timeout_seconds: int | None = None,
    ) -> ListOptions:
        return ListOptions(
            watch=watch,
            limit=limit,
            resource_version=resource_version,
            allow_bookmarks=allow_bookmarks,
            timeout_seconds=timeout_seconds,
            label_selector=self._plan.labels,
            field_selector=self._plan.fields,
        )


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
