"""Paging: which LIST to ask for next, and what lists have taught about this server.

A pass begins at the last version known (a server that lags behind can then not send us back in
time), at "0" without one (any cached state will do), and at "" (the most recent, the costly
way) only after the server refused the version. No I/O, no clock.
"""

from __future__ import annotations

from dataclasses import replace

from shmcache.protocol.items import ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.protocol.status import ServerStatus
from shmcache.source.base import SourceFailure

INVALID = frozenset({400, 422})
"""HTTP codes of a request that is refused for what it says: its version, for instance."""


class Pager:
    """The pages of one pass after the other."""

    __slots__ = (
        "_asked",
        "_at_once",
        "_full",
        "_page",
        "_page_always",
        "_page_size",
        "_paged_cache",
        "options",
        "refused",
        "version",
    )

    def __init__(self, page_size: int, *, page_always: bool) -> None:
        self._page_size = page_size
        self._page_always = page_always
        self._paged_cache = False  # even "0" is answered in pages: there is no watch cache
        self._page = 0
        self._asked = ""
        self._at_once = self._full = False  # both spent once in a pass
        self.refused = False
        """The server does not have the version we asked at; so until a list succeeds."""
        self.options = ListOptions()
        """Of the request under way."""
        self.version = ""
        """Of the whole list: that of its first page."""

    def begin(self, last: str) -> ListOptions:
        """The first page of a new pass; `last` is the version we hold, "" for none."""
        self._at_once = self._full = False
        return self._first(last)

    def _first(self, last: str) -> ListOptions:
        self._page = 1
        self._asked = "" if self.refused else (last or "0")
        anew = self._asked in {"", "0"}
        # With a version in between, a limit would make the server ask etcd instead of its cache.
        paged = self._page_always or self._paged_cache or anew
        self.options = ListOptions(
            resource_version=self._asked, limit=self._page_size if paged else 0
        )
        return self.options

    def listed(self, meta: ListMeta) -> ListOptions | None:
        """After a page: the next one; None: that was the last. ValueError: it goes in circles."""
        if self._page == 1:
            self.version = meta.version
            if meta.continue_token and self._asked == "0":
                self._paged_cache = True
        if not meta.continue_token:
            self.refused = False
            return None
        if meta.continue_token == self.options.continue_token:
            raise ValueError(f"page {self._page} of the list leads to itself")
        self._page += 1
        self.options = ListOptions(
            limit=self.options.limit, continue_token=meta.continue_token
        )  # a token carries its version; the server refuses another one
        return self.options

    def instead(self, failure: SourceFailure) -> ListOptions | None:
        """After a failure: the list to ask for at once, from its beginning; None: it failed."""
        status = failure.status
        if status is None or not self._is_of_version(failure, status):
            return None
        if self._page > 1 and status.is_expired and not self._full:
            self._full, self._page = True, 1
            self.options = replace(
                self.options, resource_version=self._asked, limit=0, continue_token=""
            )
            return self.options
        self.refused = True
        if self._at_once:
            return None
        self._at_once = True
        return self._first("")

    def _is_of_version(self, failure: SourceFailure, status: ServerStatus) -> bool:
        """Whether another version may be listed: also after a version that it cannot read."""
        invalid = failure.code in INVALID and self._page == 1 and self._asked not in {"", "0"}
        return status.is_expired or status.is_too_large or invalid
