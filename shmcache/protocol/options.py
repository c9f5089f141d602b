"""ListOptions: the parameters of list and watch requests, to a query and back."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The options of a list or watch; an empty resource_version means the most recent."""

    watch: bool = False
    resource_version: str = ""
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""
    label_selector: str = ""
    field_selector: str = ""
    allow_bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_seconds: int | None = None
    shard_selector: str = ""

    def query(self) -> str:
        """As a client sends it."""
        pairs = {
            "watch": "true" if self.watch else "",
            "resourceVersion": self.resource_version,
            "resourceVersionMatch": self.resource_version_match,
            "limit": str(self.limit) if self.limit else "",
            "continue": self.continue_token,
            "labelSelector": self.label_selector,
            "fieldSelector": self.field_selector,
            "allowWatchBookmarks": "true" if self.allow_bookmarks else "",
            "sendInitialEvents": _flag(self.send_initial_events),
            "timeoutSeconds": "" if self.timeout_seconds is None else str(self.timeout_seconds),
            "shardSelector": self.shard_selector,
        }
        return urlencode({name: value for name, value in pairs.items() if value})


def _flag(value: bool | None) -> str:  # noqa: FBT001 - a value, not an option
    return "" if value is None else str(value).lower()
