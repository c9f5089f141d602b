"""The beginning of a watch, and its events: the rules that servers follow.

The table of sendInitialEvents, allowWatchBookmarks and resourceVersion (R-HT-08, R-AS-06) and the
transitions in and out of a selector (R-AS-12).
"""

from __future__ import annotations

import random
from typing import NamedTuple

from shmcache.protocol.options import ListOptions
from shmcache.protocol.validation import numeric

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"

LONGEST_SECONDS = 1800
"""A watch without timeoutSeconds lives this long, up to twice (R-AS-01)."""
BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0
"""So long before its end a watch gets a bookmark more."""


class Beginning(NamedTuple):
    """How a watch begins."""

    initial: bool
    """With an ADDED for every object that is there."""
    end_bookmark: bool
    """With the annotated bookmark after those."""
    fresh: int
    """The server must have come this far first, or refuses (in the stream, 504); 0: no matter."""
    after: int | None
    """Then what happened after this version; None: after what the initial events show, or now."""


def beginning(asked: ListOptions, *, watch_list: bool = True) -> Beginning:
    """Of checked options; without `watch_list`, a watch from 0 has no end bookmark."""
    version = numeric(asked.resource_version)
    initial = asked.send_initial_events
    if initial is None:
        legacy = version == 0
        bookmarked = legacy and watch_list and asked.allow_bookmarks
        return Beginning(legacy, bookmarked, 0, None if legacy else version)
    if initial:
        return Beginning(True, asked.allow_bookmarks, version, None)
    return Beginning(False, False, 0, version or None)


def transition(*, deleted: bool, matched: bool, matches: bool) -> str | None:
    """The type of event that a selector's watch shows, None for none.

    A DELETED carries the object as it was before, with the version of what took it away.
    """
    if deleted or not matches:
        return DELETED if matched else None
    return MODIFIED if matched else ADDED


def lifetime(asked: ListOptions, luck: random.Random) -> float:
    """Seconds until the server ends the watch, cleanly."""
    if asked.timeout_seconds:
        return asked.timeout_seconds
    return LONGEST_SECONDS * (1 + luck.random())


def next_bookmark(now: float, end: float, every: float = BOOKMARK_SECONDS) -> float:
    """When the next bookmark is due: after a period, or shortly before the end."""
    last = end - LAST_BOOKMARK_SECONDS
    return min(now + every, last) if now < last else now + every
