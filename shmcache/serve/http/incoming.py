"""From a client's bytes to its requests, one after another; early data waits here.

HTTP1  one request is under way at a time. Further data from the client (pipelining) waits here
    up to one head's size, then in the kernel; so a client that only sends costs no memory.
HTTP7  a request is ready when its head is: whether its body is read is for its answer to decide.
    Until then the body holds the data that came along with the head, at most EARLY bytes. A
    body that no answer has taken is read over up to that size; a longer one ends its connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shmcache.serve.http import heads
from shmcache.serve.http.bodies import Body
from shmcache.serve.http.heads import BadRequest
from shmcache.serve.http.requests import HttpRequest

if TYPE_CHECKING:
    from shmcache.serve.limits import Limits

EARLY = 64 << 10
"""Bytes of a body that are read before, or without, anybody taking it."""


class Incoming:
    """The requests of one connection. No I/O here."""

    __slots__ = ("_limits", "_scanned", "body", "buffer", "fields", "modern", "persistent")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._scanned = 0
        """Bytes of the buffer in which no head ends."""
        self.buffer = bytearray()
        self.persistent = True
        """Whether another request may follow the last one."""
        self.modern = True
        """Whether the last one was HTTP/1.1."""
        self.fields: heads.Fields | None = None
        """The headers of the last one, until somebody takes them away."""
        self.body: Body | None = None
        """The body of the last one, until it is whole and taken, or read over."""

    @property
    def full(self) -> bool:
        """Whether enough data is here that is not due yet."""
        return len(self.buffer) >= self._limits.head_bytes

    @property
    def between(self) -> bool:
        """Whether nothing of a request is here."""
        return not self.buffer and self.body is None

    @property
    def held(self) -> int:
        """Bytes that are kept for this client."""
        return len(self.buffer) + (0 if self.body is None else len(self.body.data))

    @property
    def continues(self) -> bool:
        """Whether the client waits for a 100 before it sends its body."""
        fields = self.fields
        return fields is not None and fields.continues and not self.buffer

    def next(self) -> HttpRequest | None:
        """The next request, or None until more has come; BadRequest for bytes that are not one."""
        head = self._read_head()
        if head is None:
            return None
        method, uri, fields = head
        self.fields = fields
        if fields.chunked or fields.length:
            limit = self._limits.body_bytes
            body = Body(length=fields.length, chunked=fields.chunked, limit=limit)
            if not body.feed(self.buffer, EARLY) or body.size:
                self.body = body
        return HttpRequest(method, uri, self._headers(fields))

    def drop(self) -> None:
        """All that is here is worth nothing."""
        self.buffer = bytearray()
        self.body = None
        self._scanned = 0

    def feed_body(self) -> bool:
        """Reads on in a body that is taken; whether it is whole."""
        assert self.body is not None
        return self.body.feed(self.buffer, self._limits.body_bytes)

    def skip_body(self) -> bool:
        """Reads over a body that nobody took. BadRequest where it is too long, or malformed."""
        body = self.body
        if body is not None:
            body.discard()
            if not body.feed(self.buffer, EARLY):
                if body.size >= EARLY:
                    raise BadRequest(
                        413, f"an unused body of more than {EARLY} bytes is not skipped"
                    )
                return False
            self.body = None
        return True

    @property
    def skippable(self) -> bool:
        """Whether the connection can go on after a body that nobody took."""
        body, fields = self.body, self.fields
        if body is None or body.whole:
            return True
        if fields is not None and fields.continues:
            return False  # nobody can tell whether the client sends it now
        return body.length is None or body.length < EARLY

    def _headers(self, fields: heads.Fields) -> Mapping[str, str]:
        """HTTP/1.0 knows no other protocols: an Upgrade means nothing there."""
        if self.modern or "upgrade" not in fields.map:
            return fields.map
        return {name: value for name, value in fields.map.items() if name != "upgrade"}

    def _read_head(self) -> tuple[str, str, heads.Fields] | None:
        limits, buffer = self._limits, self.buffer
        if self._scanned == 0 and buffer.startswith(b"\r\n"):
            del buffer[:2]  # between two requests, as some clients send it
        end = buffer.find(heads.END, self._scanned)
        if end < 0 or end > limits.head_bytes:
            self._scanned = max(len(buffer) - len(heads.END) + 1, 0)
            if len(buffer) > limits.head_bytes:
                raise BadRequest(431, f"the head is larger than {limits.head_bytes} bytes")
            return None
        self._scanned = 0
        head = bytes(buffer[: end + 4])
        del buffer[: end + 4]
        method, uri, modern, start = heads.line(head)
        if len(uri) > limits.target_bytes:
            raise BadRequest(414, f"the request target is larger than {limits.target_bytes} bytes")
        fields = heads.fields(head, start, limits.headers)
        if modern and "host" not in fields.map:
            raise BadRequest(400, "no Host")
        if fields.chunked and not modern:
            raise BadRequest(400, "HTTP/1.0 has no chunks")
        self.modern = modern
        self.persistent = modern and not fields.close
        return method, uri, fields
