"""Whether a server has watch-lists: learned once, for all of its resources.

A server without them refuses the first watch of each resource, which then lists (R-AS-05). Of
resources that start together, those that have not asked yet take the first refusal for their own.

WATCHLIST1  a refusal of a built-in group is that of the server itself, for all groups; another
    group may be another program's, behind the same URL, and speaks for itself alone.
WATCHLIST2  no resource waits for the answer to another one that is under way: it sends its own
    request, as client-go does.
WATCHLIST3  a refusal is forgotten after FORGET_SECONDS, as the server may have been upgraded.
"""

from __future__ import annotations

from collections.abc import Callable

from shmcache.source.base import FailureKind, SourceFailed, SourceFailure
from shmcache.source.discovery import ApiResource

FORGET_SECONDS = 600.0
FIELDS = ("sendInitialEvents", "resourceVersionMatch")
"""A server where watch-lists are off refuses the first; one that does not know them, the second."""
EVERYWHERE = ""


class WatchListRefusals:
    """Of one server. Thread-safe: each entry is written whole, and may be late."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found: dict[str, tuple[float, SourceFailure]] = {}

    def check(self, resource: ApiResource) -> None:
        """SourceFailed: the server would refuse a watch-list of this resource."""
        for group in (EVERYWHERE, resource.group):
            until, failure = self._found.get(group, (0.0, None))
            if failure is not None and self._clock() < until:
                raise SourceFailed(failure)

    def note(self, resource: ApiResource, failure: SourceFailure) -> None:
        """How a watch-list of this resource failed."""
        status = failure.status
        text = status.message if status is not None and status.code == 422 else ""
        if not any(field in text for field in FIELDS):
            return
        from shmcache.protocol.builtins import builtin

        own = resource.group in {kind.group for kind in builtin()}
        message = f"the server has refused a watch-list of {resource.plural}: HTTP 422: {text}"
        known = SourceFailure(FailureKind.HTTP, message, status)
        group = EVERYWHERE if own else resource.group
        self._found[group] = (self._clock() + FORGET_SECONDS, known)
