"""Fragments of a watch: etcd cuts answers that are large, also in the middle of a revision.

FRAGMENT1  the events of a revision leave together, when its last one has come; an answer
without events in between ends nothing.
FRAGMENT2  a revision in parts costs at most HELD_BYTES and one look at each event; a larger one
(millions of keys that were deleted at once) is listed, which needs less.
"""

from __future__ import annotations

from typing import Any

from shmcache.source.etcd.answers import WatchAnswer, revision_of
from shmcache.source.etcd.failures import expired

HELD_BYTES = 256 << 20


class Fragments:
    """The events of a revision that may go on in the next answer."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._held: list[Any] = []
        self._revision = 0
        self._size = 0

    def __bool__(self) -> bool:
        """Whether a revision has begun, and not ended."""
        return self._revision != 0

    def whole(self, answer: WatchAnswer, size: int) -> tuple[list[Any], int]:
        """The events of revisions that this answer completes, and up to which revision that is.

        0: it completes none. `size`: its bytes. A 410 if one revision is too large.
        """
        came, last = answer.events, answer.last_revision
        if not last:
            return [], 0
        if not answer.fragment:
            return self._take(came), last
        cut = len(came)
        while cut and revision_of(came[cut - 1]) == last:
            cut -= 1
        goes_on = not cut and self._revision == last
        ready = [] if goes_on else self._take(came[:cut])
        self._held += came[cut:]
        self._revision = last
        self._size += size
        if self._size > HELD_BYTES:
            raise expired(
                f"{self._what}: revision {last} changes more than {HELD_BYTES >> 20} MiB at once; "
                "its objects are listed"
            )
        return ready, 0 if goes_on else last - 1

    def _take(self, more: list[Any]) -> list[Any]:
        found = self._held + more if self._held else more
        self._held, self._revision, self._size = [], 0, 0
        return found
