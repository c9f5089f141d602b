"""The states of a resource, as readers see them (enum shmc_state of shmcache.h)."""

from __future__ import annotations

ABSENT, LISTING, SYNCED, RETRYING, STALED, EXCEEDED, GONE = range(7)

NAMES = ("absent", "listing", "synced", "retrying", "stale", "exceeded", "gone")
"""Names of the states, for people."""

_FROM = "from "

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def has_content(record: Mapping[str, Any]) -> bool:
    """Whether a resource's record shows a whole content, be it old: it was listed once.

    A writer that never sets states has content if it has objects or a version. One that gives the
    reason for an absence may have listed a part: a version says that it has the whole.
    """
    if record["state"] == ABSENT and not record["reason"]:
        return bool(record["version"] or record["count"])
    return record["state"] == SYNCED or bool(record["version"])


def from_upstream(name: str) -> str:
    """The reason of a synced resource that names the server it comes from; "" without a name."""
    return f"{_FROM}{name}" if name else ""


def upstream_of(reason: str) -> str:
    """The server that such a reason names; "" for any other reason."""
    return reason.removeprefix(_FROM) if reason.startswith(_FROM) else ""
