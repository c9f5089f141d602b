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

from typing import NamedTuple

from shmcache.engine.plans import Plan
from shmcache.engine.proof import digest
from shmcache.protocol import versions
from shmcache.protocol.options import ListOptions
from shmcache.source.base import AskedSource

WATCH_SECONDS = 3
"""Below it a server sends no bookmark at all; longer watches send it later."""
WATCH_SILENCE = 8.0


class ListedContents(NamedTuple):
    """A metadata-only list: its version, and the digest of its keys and versions."""

    version: str
    digest: tuple[int, int]


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

    def object_version(self, namespace: str, name: str) -> str | None:
        """The version of one object; None if the server has no such object in the plan."""
        if not (self._plan.labels or self._plan.fields or self._plan.shard):
            return self.source.object_version(namespace, name)
        fields = ",".join(filter(None, [self._plan.fields, f"metadata.name={name}"]))
        key = f"{namespace}/{name}" if namespace else name
        options = ListOptions(label_selector=self._plan.labels, field_selector=fields)
        with self.source.page(options) as page:
            found = [item.version for items in page for item in items if item.key == key]
        return found[0] if found else None

    def contents(self, limit: int) -> ListedContents | None:
        """All objects, if the server lists them in one page of so many."""
        count = total = 0
        with self.source.page(self._selected(limit=limit)) as page:
            for items in page:
                found, part = digest((item.key, item.version) for item in items)
                count, total = count + found, (total + part) & ((1 << 64) - 1)
            meta = page.meta
        return None if meta.continue_token else ListedContents(meta.version, (count, total))

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


class Refusal(Exception):
    """Nothing could be confirmed; the text names the reason, for the reader."""
