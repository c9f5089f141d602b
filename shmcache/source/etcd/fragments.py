"""Fragments of a watch: etcd cuts answers that are large, also in the middle of a revision.

FRAGMENT1  the events of a revision leave together, when its last one has come; an answer
without events in between ends nothing.
FRAGMENT2  a revision in parts costs at most HELD_BYTES and one look at each event; a larger one
(millions of keys that were deleted at once) is listed, which needs less.
"""

from __future__ import annotations

from typing import Any

from shmcache.source.etcd.failures import expired

HELD_BYTES = 256 << 20


class Fragments:
    """The events of a revision that may go on in the next answer."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._held: list[Any] = []
        self._size = 0

    def __bool__(self) -> bool:
        """Whether a revision has begun, and not ended."""
        return bool(self._held)

    def whole(self, answer: Any) -> list[Any]:
        """The events of revisions that this answer completes. A 410 if one is too large."""
        came = list(answer.events)
        if not came:
            return []
        if not answer.fragment:
            return self._take(came)
        last, cut = came[-1].kv.mod_revision, len(came)
        while cut and came[cut - 1].kv.mod_revision == last:
            cut -= 1
        goes_on = not cut and self._held and self._held[-1].kv.mod_revision == last
        ready = [] if goes_on else self._take(came[:cut])
        self._held += came[cut:]
        self._size += answer.ByteSize()
        if self._size > HELD_BYTES:
            raise expired(
                f"{self._what}: revision {last} changes more than {HELD_BYTES >> 20} MiB at once; "
                "its objects are listed"
            )
        return ready

    def _take(self, more: list[Any]) -> list[Any]:
        found, self._held, self._size = self._held + more, [], 0
        return found
