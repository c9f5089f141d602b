"""Faults on demand: what networks, proxies and API servers do to clients now and then.

Each method asks for a fault; requests that match take it, in the order of asking, `times` times
(None: until `clear`). A request may meet one fault of each kind. Bytes are changed on the wire,
behind the HTTP framing, so that clients see exactly what they would see in earnest.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from shmcache.protocol import failures

ANY = "*"

SILENT = "silent"
CLEAN = "clean"
LINE = "line"
CHUNK = "chunk"
TRUNCATED = "truncated"
"""Where a stream ends: between events, properly; in a line or a chunk, with the connection; in a
line, with a proper end of the body."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """One fault: which requests, how often, and what happens to them."""

    verb: str
    resource: str
    times: int | None
    refuse: failures.Failure | None = None
    text: bytes | None = None
    content_type: str | None = None
    delay: float = 0.0
    each_chunk: float = 0.0
    cut: str = ""
    after: int = 0
    """How many events (of a watch) or pieces (of a list) go out whole before the cut or garbage."""
    reset: bool = False
    drip: bytes = b""
    every: float = 0.0
    garbage: bytes | None = None
    no_end_bookmark: bool = False
    no_bookmarks: bool = False
    gzip: bool = False
    met: int = 0
    """Requests that took it."""
    happened: int = 0
    """Answers in which it showed: a stream can end before a cut, and a client can refuse gzip."""

    def matches(self, verb: str, resource: str) -> bool:
        """Whether this request meets it."""
        return self.verb in {ANY, verb} and self.resource in {ANY, resource}


@dataclass(slots=True)
class Faults:
    """The faults that wait for their requests. Thread-safe."""

    _waiting: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, verb: str, resource: str) -> list[Fault]:
        """The faults that this request meets; each counts it."""
        with self._lock:
            met = [fault for fault in self._waiting if fault.matches(verb, resource)]
            for fault in met:
                fault.met += 1
                if fault.times is not None:
                    fault.times -= 1
            self._waiting = [fault for fault in self._waiting if fault.times != 0]
        return met

    @property
    def waiting(self) -> bool:
        """Whether a request to come may meet one."""
        return bool(self._waiting)

    def clear(self) -> None:
        """No faults any more, for requests to come."""
        with self._lock:
            self._waiting.clear()

    def add(self, fault: Fault) -> Fault:
        """Asks for a fault; what is returned counts the requests that `met` it."""
        with self._lock:
            self._waiting.append(fault)
        return fault

    def cut(
        self,
        verb: str = "watch",
        resource: str = ANY,
        *,
        where: str = LINE,
        after: int = 0,
        reset: bool = False,
        times: int | None = 1,
    ) -> Fault:
        """Ends the connection after some events: in a line, in a chunk, or cleanly; or resets it.

        A list is counted in pieces: its beginning, each item, its end.
        """
        return self.add(
            Fault(verb=verb, resource=resource, times=times, cut=where, after=after, reset=reset)
        )

    def half_open(
        self,
        verb: str = "watch",
        resource: str = ANY,
        *,
        after: int = -1,
        drip: bytes = b"",
        every: float = 0.0,
        times: int | None = 1,
    ) -> Fault:
        """Goes silent, with the connection open, after some events; -1: before any answer.

        `drip`: with these bytes `every` so many seconds, instead of none.
        """
        return self.add(
            Fault(
                verb=verb, resource=resource, times=times, cut=SILENT, after=after,
                drip=drip, every=every,
            )
        )  # fmt: skip

    def slow(
        self,
        seconds: float,
        verb: str = ANY,
        resource: str = ANY,
        *,
        each_chunk: float = 0.0,
        times: int | None = 1,
    ) -> Fault:
        """Waits before the answer, and between the chunks of its body."""
        return self.add(
            Fault(verb=verb, resource=resource, times=times, delay=seconds, each_chunk=each_chunk)
        )

    def garbage(
        self,
        verb: str = "watch",
        resource: str = ANY,
        *,
        text: bytes = b"\x00\xff{]no JSON\n",
        after: int = 0,
        times: int | None = 1,
    ) -> Fault:
        """Puts bytes between two events that are not an event."""
        return self.add(Fault(verb=verb, resource=resource, times=times, garbage=text, after=after))

    def refuse(
        self,
        failure: failures.Failure,
        verb: str = ANY,
        resource: str = ANY,
        *,
        times: int | None = 1,
    ) -> Fault:
        """Answers with this Failure, whatever the request."""
        return self.add(Fault(verb=verb, resource=resource, times=times, refuse=failure))

    def too_many_requests(
        self,
        verb: str = ANY,
        resource: str = ANY,
        *,
        retry_after: int = 1,
        times: int | None = 1,
    ) -> Fault:
        """429 with Retry-After, and a body that is plain text."""
        return self.refuse(failures.too_many_requests(retry_after), verb, resource, times=times)

    def error(
        self,
        code: int,
        verb: str = ANY,
        resource: str = ANY,
        *,
        text: bytes = b"upstream connect error or disconnect/reset before headers",
        times: int | None = 1,
    ) -> Fault:
        """An error as a proxy in front of the server gives it: any code, no Status."""
        failure = failures.plain(code, text.decode())
        return self.refuse(failure, verb, resource, times=times)

    def unauthorized(self, verb: str = ANY, resource: str = ANY, *, times: int | None = 1) -> Fault:
        """401: the token is not taken any more."""
        return self.refuse(failures.unauthorized(), verb, resource, times=times)

    def wrong_content_type(
        self,
        content_type: str = "text/html",
        verb: str = ANY,
        resource: str = ANY,
        *,
        body: bytes | None = b"<html>please log in</html>",
        times: int | None = 1,
    ) -> Fault:
        """200 with a page of something else; without `body`, the right one under a wrong name."""
        return self.add(
            Fault(verb=verb, resource=resource, times=times, content_type=content_type, text=body)
        )

    def no_end_bookmark(self, resource: str = ANY, *, times: int | None = 1) -> Fault:
        """A WatchList whose end bookmark never comes; the other bookmarks do."""
        return self.add(Fault(verb="watch", resource=resource, times=times, no_end_bookmark=True))

    def no_bookmarks(self, resource: str = ANY, *, times: int | None = 1) -> Fault:
        """A watch without any bookmark, the one after initial events included."""
        return self.add(Fault(verb="watch", resource=resource, times=times, no_bookmarks=True))

    def gzip_members(self, resource: str = ANY, *, times: int | None = 1) -> Fault:
        """A watch in gzip, one member for each flush, for clients that accept gzip (R-HT-07)."""
        return self.add(Fault(verb="watch", resource=resource, times=times, gzip=True))
