"""From a client's bytes to its requests, one after another; what comes too early waits here.

C1  one request is under way at a time. What a client sends meanwhile (pipelining) waits here
    up to one head's size, then in the kernel; so a client that only sends costs no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shmcache.serve import heads
from shmcache.serve.bodies import Body
from shmcache.serve.heads import BadRequest
from shmcache.serve.requests import Request

if TYPE_CHECKING:
    from shmcache.serve.limits import Limits


class Incoming:
    """The requests of one connection. No I/O here."""

    __slots__ = ("_body", "_head", "_limits", "body_began", "buffer", "continues", "fields",
                 "modern", "persistent")  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.buffer = bytearray()
        self.persistent = True
        """Whether another request may follow the last one."""
        self.modern = True
        """Whether the last one was HTTP/1.1."""
        self.fields: heads.Fields | None = None
        """The headers of the last one, until somebody takes them away."""
        self.body_began = False
        """Since this was last looked at (and reset) by who waits for the body."""
        self.continues = False
        """Then: whether its client waits to be told to send it."""
        self._head: tuple[str, str, heads.Fields] | None = None
        self._body: Body | None = None

    @property
    def full(self) -> bool:
        """Whether enough is here of what is not due yet."""
        return len(self.buffer) >= self._limits.head_bytes

    @property
    def between(self) -> bool:
        """Whether nothing of a request is here."""
        return not self.buffer and self._head is None

    @property
    def in_body(self) -> bool:
        """Whether the rest of a body is waited for."""
        return self._body is not None

    def next(self) -> Request | None:
        """The next whole request, or None until more has come; BadRequest for what is none."""
        if self._head is None:
            self._head = self._read_head()
            if self._head is None:
                return None
        method, uri, fields = self._head
        body = b""
        if fields.chunked or fields.length:
            if self._body is None:
                self._body = self._expect(fields)
            if not self._body.feed(self.buffer):
                return None
            body = b"".join(self._body.parts)
        self._head = self._body = None
        self.fields = fields
        return Request(method, uri, self._headers(fields), body)

    def _headers(self, fields: heads.Fields) -> Mapping[str, str]:
        """HTTP/1.0 knows no other protocols: what it says of them means nothing."""
        if self.modern or "upgrade" not in fields.map:
            return fields.map
        return {name: value for name, value in fields.map.items() if name != "upgrade"}

    def _read_head(self) -> tuple[str, str, heads.Fields] | None:
        limits, buffer = self._limits, self.buffer
        if buffer.startswith(b"\r\n"):
            del buffer[:2]  # between two requests, as some clients send it
        end = buffer.find(heads.END)
        if end < 0 or end > limits.head_bytes:
            if len(buffer) > limits.head_bytes:
                raise BadRequest(431, f"the head is larger than {limits.head_bytes} bytes")
            return None
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

    def _expect(self, fields: heads.Fields) -> Body:
        limit = self._limits.body_bytes
        body = Body(length=fields.length, chunked=fields.chunked, limit=limit)
        self.body_began = True
        self.continues = fields.continues and not self.buffer
        return body
