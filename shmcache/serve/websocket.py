"""WebSocket (RFC 6455) as far as watches need it: the handshake, frames of text out, control in.

As the real server has it: an Origin is mandatory, one protocol beside a token is echoed whatever it
is, each event is one frame of text, and the end is a close frame with 1000.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
NORMAL = b"\x03\xe8"
BROKEN = b"\x03\xea"
TOO_BIG = b"\x03\xf1"
LONGEST = 64 << 10
"""Clients have nothing to say: a longer frame ends the connection."""
BEARER = "base64url.bearer.authorization.k8s.io."
"""A protocol that begins so is a token, as browsers send it."""
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SMALL, _MEDIUM = 126, 1 << 16


class Refused(Exception):
    """No handshake: `line` is all that is answered, then the connection ends."""

    def __init__(self, line: bytes) -> None:
        super().__init__(line.decode().strip())
        self.line = line


def offered(headers: Mapping[str, str]) -> list[str]:
    """The protocols that a request would change to; none unless its connection is to be changed."""
    protocols = words(headers.get("upgrade", ""))
    return protocols if protocols and "upgrade" in words(headers.get("connection", "")) else []


def words(value: str) -> list[str]:
    """The members of a header's list, in lower case."""
    return [word.strip() for word in value.lower().split(",")] if value else []


def wanted(headers: Mapping[str, str]) -> bool:
    """Whether a request asks for a WebSocket."""
    return offered(headers) == ["websocket"]


def token(headers: Mapping[str, str]) -> str:
    """The token that browsers, which can set no headers, offer as a protocol; or nothing."""
    for word in headers.get("sec-websocket-protocol", "").split(","):
        text = word.strip().removeprefix(BEARER)
        if text != word.strip():
            try:
                return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
            except ValueError:
                return ""
    return ""


def accept(headers: Mapping[str, str]) -> bytes:
    """The head that answers a handshake, but for what more it says, and the empty line.

    Refused if it is none that the real server takes.
    """
    if "origin" not in headers:
        raise Refused(b"HTTP/1.1 403 Forbidden\r\n\r\n")
    key = headers.get("sec-websocket-key", "")
    if not key or headers.get("sec-websocket-version") != "13":
        raise Refused(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    named = [word.strip() for word in headers.get("sec-websocket-protocol", "").split(",")]
    chosen = [word for word in named if word and not word.startswith(BEARER)]
    if len(chosen) > 1:
        raise Refused(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()
    head = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n" % base64.b64encode(digest)
    )
    if chosen:
        head += b"Sec-WebSocket-Protocol: %b\r\n" % chosen[0].encode("latin-1")
    return head


def frame(kind: int, data: bytes) -> bytes:
    """One whole frame, unmasked as servers send it."""
    size = len(data)
    if size < _SMALL:
        return b"%c%c%b" % (0x80 | kind, size, data)
    if size < _MEDIUM:
        return b"%c\x7e%b%b" % (0x80 | kind, size.to_bytes(2, "big"), data)
    return b"%c\x7f%b%b" % (0x80 | kind, size.to_bytes(8, "big"), data)


class Frame(NamedTuple):
    """What a client sent."""

    kind: int
    data: bytes


class Broken(Exception):
    """The client does not speak WebSocket; `code` goes into the close frame."""

    def __init__(self, code: bytes) -> None:
        super().__init__("a frame that no client may send")
        self.code = code


class Frames:
    """A client's frames, out of bytes cut anywhere."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now. Broken where there is no sense in them."""
        self._held += data
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> Frame | None:
        held = self._held
        if len(held) < 2:
            return None
        if held[0] & 0x70 or not held[1] & 0x80:
            raise Broken(BROKEN)
        size, at = held[1] & 0x7F, 2
        if size >= _SMALL:
            width = 2 if size == _SMALL else 8
            size, at = int.from_bytes(held[2 : 2 + width], "big"), 2 + width
            if len(held) < at:
                return None
        if size > LONGEST:
            raise Broken(TOO_BIG)
        end = at + 4 + size
        if len(held) < end:
            return None
        mask = bytes(held[at : at + 4])
        data = bytes(byte ^ mask[place & 3] for place, byte in enumerate(held[at + 4 : end]))
        kind = held[0] & 0x0F
        del held[:end]
        return Frame(kind, data)
