"""The interface between the reflector and its source, and the failures of a source.

A source is used by one thread, apart from cancel(), which any thread may call. Bytes become items
here; what they mean for the cache is the reflector's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from shmcache.protocol.items import Identity, Item, ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.protocol.status import ServerStatus


class FailureKind(Enum):
    """How a request failed, as far as it decides what to do next."""

    REFUSED = "refused"  # nobody listens: ECONNREFUSED
    NETWORK = "network"  # reset, DNS, TLS: the connection broke, or never came to be
    ENDED = "ended"  # the server hung up: before its headers, or in the middle of a body
    SILENT = "silent"  # no byte, or too few, for longer than was allowed: half-open, or worse
    HTTP = "http"  # an HTTP error: `status` says which
    GARBAGE = "garbage"  # not what the protocol allows
    CANCELLED = "cancelled"  # by us
    ELSEWHERE = "elsewhere"  # this server cannot go on where we are: others may


@dataclass(frozen=True, slots=True)
class SourceFailure:
    """Why a request ended without its answer."""

    kind: FailureKind
    message: str
    status: ServerStatus | None = None
    retry_after: float | None = None
    at_once: bool = False
    """Another server is there: the next request goes to it."""

    @property
    def code(self) -> int:
        """The HTTP code, of the answer or inside an ERROR event; 0: there was no answer."""
        return self.status.code if self.status is not None else 0


class SourceFailed(Exception):
    """Carries a Failure out of a source's stream."""

    def __init__(self, failure: SourceFailure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.message


class ListStream(Protocol):
    """The items of one LIST page, as they come; `meta` is known when they have ended."""

    def __iter__(self) -> Iterator[list[Item]]: ...

    @property
    def meta(self) -> ListMeta:
        """Of the page; known only when its items have ended."""


class Source(Protocol):
    """One resource at one server (or recording). Failures are raised as SourceFailed."""

    def page(self, options: ListOptions) -> AbstractContextManager[ListStream]:
        """One page; its body is never held as a whole."""

    def watch(
        self, options: ListOptions, *, silence: float
    ) -> AbstractContextManager[Iterator[list[Item]]]:
        """Items as they arrive, several at once; ends where the server ends the stream cleanly.

        An empty list means that bytes came which complete no item. `silence`: seconds without
        an item after which it fails as SILENT.
        """

    def probe(self, options: ListOptions) -> str:
        """The version of the whole server, by the cheapest LIST; "" if it cannot be known."""

    @property
    def behind(self) -> bool:
        """Whether more of the open watch has arrived at this host than was read."""

    @property
    def speaks_for_all(self) -> bool:
        """Whether the version of the last probe is that of every resource of the server."""

    def interrupt(self) -> None:
        """Ends the open watch, as if its connection had broken. From any thread."""

    def close(self) -> None:
        """Closes the connection that is kept for the next request."""

    def cancel(self) -> None:
        """Makes the request under way fail as CANCELLED, and every later one. From any thread."""


class AskedSource(Source, Protocol):
    """A source that also answers questions about single objects."""

    def identity(self, namespace: str, name: str) -> Identity | None:
        """The state of an object as the server has it now; None if it does not exist."""
