"""The states of a resource, as readers see them (enum shmc_state of shmcache.h)."""

from __future__ import annotations

ABSENT, LISTING, SYNCED, RETRYING, STALED, EXCEEDED, GONE = range(7)

NAMES = ("absent", "listing", "synced", "retrying", "stale", "exceeded", "gone")
"""Names of the states, for people."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def has_content(record: Mapping[str, Any]) -> bool:
    """Whether a resource's record shows a whole content, be it old: it was listed once.

    A writer that never sets states has content if it has objects or a version.
    """
    if record["state"] == ABSENT:
        return bool(record["version"] or record["count"])
    return record["state"] == SYNCED or bool(record["version"])
