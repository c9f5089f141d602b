"""The difference between a feed's content and its server, by a list of metadata of this moment.

Pages are compared as they come (comparing.py), so that a large resource costs no more memory than a
small one, except for eight bytes a key.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from shmcache.engine.comparing import Comparison, Disagreement
from shmcache.engine.evidence import Refusal
from shmcache.protocol import versions
from shmcache.protocol.options import ListOptions

if TYPE_CHECKING:
    from shmcache.engine.shown import ShownContent
    from shmcache.source.base import Source

PAGE = 2000
"""Objects in a page: some 500 KB of metadata."""
PATIENCE = 30.0
"""Seconds in which the events of a list's version arrive."""


class ServerDifference(NamedTuple):
    """The result of a comparison."""

    version: str
    """Of the server."""
    objects: int
    """Objects there."""
    found: list[Disagreement]
    more: int
    """Further disagreements, of which only the number is known."""


def difference(
    shown: ShownContent, feed: str, source: Source, stop: threading.Event
) -> ServerDifference:
    """Compares one feed's content with the server now. SourceFailed, Refusal.

    `source`: of the feed's namespace, metadata only.
    """
    if not shown.comparable:
        raise Refusal("a transform, or objects that the cache refused, make versions incomparable")
    before = shown.content(feed)
    comparison = Comparison(before, feed)
    version = _list(shown, source, comparison, stop)
    if not versions.is_version(version):
        raise Refusal("the server's version cannot be compared")
    if versions.compare(version, before.version) < 0:
        raise Refusal(f"the server is at version {version}, behind {before.version} of the cache")
    shown.wait(lambda: shown.content(feed).reached(version), time.monotonic() + PATIENCE)
    found = comparison.finish(shown.content(feed), version)
    return ServerDifference(version, comparison.count, found, comparison.more)


def _list(
    shown: ShownContent, source: Source, comparison: Comparison, stop: threading.Event
) -> str:
    """The version of the list."""
    plan, token, version = shown.plan, "", ""
    while True:
        options = ListOptions(
            limit=PAGE,
            continue_token=token,
            label_selector=plan.labels,
            field_selector=plan.fields,
        )
        with source.page(options) as page:
            for items in page:
                comparison.take(items)
            meta = page.meta
        if stop.is_set():
            raise Refusal("the reflector ends")
        if version and meta.version != version:
            raise Refusal("the server's list did not stay at one version")
        version, token = meta.version, meta.continue_token
        if not token:
            return version
