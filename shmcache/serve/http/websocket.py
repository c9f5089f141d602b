"""WebSocket (RFC 6455) as far as watches need it: the handshake, frames of text out, control in.

As in the real server: an Origin is mandatory, one protocol next to a token is echoed whatever it
is, each event is one frame of text, and the end is a close frame with 1000.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from shmcache.protocol import failures

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL = b"\x03\xe8"
BROKEN = b"\x03\xea"
NOT_TEXT = b"\x03\xef"
TOO_BIG = b"\x03\xf1"
LONGEST = 64 << 10
"""Clients have nothing to send: a longer frame ends the connection."""
CONTROL_MAX = 125
CODES = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
"""Why a client may close."""
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
    protocols = members(headers.get("upgrade", ""))
    return protocols if protocols and "upgrade" in members(headers.get("connection", "")) else []


def members(value: str) -> list[str]:
    """The members of a header's list, in lower case."""
    return [member.strip() for member in value.lower().split(",")] if value else []


def wanted(headers: Mapping[str, str]) -> bool:
    """Whether a request asks for a WebSocket."""
    return offered(headers) == ["websocket"]


def token(headers: Mapping[str, str]) -> str:
    """The token that browsers, which can set no headers, offer as a protocol; or nothing.

    As in the real server: one token, in base64url without padding, of UTF-8 text, and another
    protocol with it that the answer can name. Anything else does not count as a token.
    """
    offers = [member.strip() for member in headers.get("sec-websocket-protocol", "").split(",")]
    texts = [member.removeprefix(BEARER) for member in offers if member.startswith(BEARER)]
    if len(texts) != 1 or len(offers) < 2:
        return ""
    try:
        found = base64.b64decode(texts[0] + "=" * (-len(texts[0]) % 4), b"-_", validate=True)
        return "" if "=" in texts[0] else found.decode()
    except ValueError:
        return ""


def offers_token(headers: Mapping[str, str]) -> bool:
    """Whether a handshake brings a token as a protocol."""
    return BEARER in headers.get("sec-websocket-protocol", "")


def accept(headers: Mapping[str, str]) -> bytes:
    """The head that answers a handshake, but for what more it says, and the empty line.

    Refused, or a Failure (401) of a token without another protocol, as by the real server.
    """
    if "origin" not in headers:
        raise Refused(b"HTTP/1.1 403 Forbidden\r\n\r\n")
    key = headers.get("sec-websocket-key", "")
    if not key or headers.get("sec-websocket-version") != "13":
        raise Refused(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    named = [member.strip() for member in headers.get("sec-websocket-protocol", "").split(",")]
    chosen = [member for member in named if member and not member.startswith(BEARER)]
    tokens = [member for member in named if member.startswith(BEARER)]
    if len(tokens) > 1 or (tokens and not chosen):
        raise failures.unauthorized()
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
    """A control frame of a client."""

    kind: int
    data: bytes


class Broken(Exception):
    """The client does not speak WebSocket; `code` goes into the close frame."""

    def __init__(self, code: bytes) -> None:
        super().__init__("a frame that no client may send")
        self.code = code


class Frames:
    """A client's control frames, out of bytes cut anywhere.

    FRAME1  messages of clients are skipped as they come: only a head of them is kept. Control
            frames are kept whole, and have at most CONTROL_MAX bytes.
    FRAME2  a frame is as RFC 6455 has it, or Broken: no reserved bits and kinds, always a mask,
            lengths in their shortest form, control frames whole and short, a continuation only of
            a message that has begun, and no other message before its end.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._left = 0
        """Bytes of a message to be read over."""
        self._open = False
        """A message has begun, and goes on in other frames."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, data: bytes) -> None:
        """Bytes that came."""
        self._held += data

    def feed(self, data: bytes) -> Iterator[Frame]:
        """add(), and all frames that are whole then."""
        self.add(data)
        while (found := self.next()) is not None:
            yield found

    def next(self) -> Frame | None:
        """The next control frame, or None until more has come. Broken where it makes no sense."""
        held = self._held
        while True:
            if self._left:
                count = min(self._left, len(held))
                del held[:count]
                self._left -= count
            if len(held) < 2:
                return None
            size, at = _length(held)
            if at > len(held):
                return None
            kind = self._kind(held[0], size)
            if kind < CLOSE:
                del held[:at]
                self._left = size
                continue
            if len(held) < at + size:
                return None
            data = _unmasked(held[at - 4 : at], held[at : at + size])
            del held[: at + size]
            if kind == CLOSE:
                _check_close(data)
            return Frame(kind, data)

    def _kind(self, first: int, size: int) -> int:
        """Of a frame, by FRAME2."""
        whole, kind = bool(first & 0x80), first & 0x0F
        if kind >= CLOSE:
            if kind > PONG or not whole or size > CONTROL_MAX:
                raise Broken(BROKEN)
            return kind
        if kind > BINARY or (kind == CONTINUATION) != self._open:
            raise Broken(BROKEN)
        if size > LONGEST:
            raise Broken(TOO_BIG)
        self._open = not whole
        return kind


def _length(held: bytearray) -> tuple[int, int]:
    """Of a frame's data, and where they begin; missing bytes count as none."""
    if held[0] & 0x70 or not held[1] & 0x80:
        raise Broken(BROKEN)
    size = held[1] & 0x7F
    if size < _SMALL:
        return size, 6
    width, least = (2, _SMALL) if size == _SMALL else (8, _MEDIUM)
    if len(held) < 2 + width:
        return 0, 6 + width
    size = int.from_bytes(held[2 : 2 + width], "big")
    if size < least or size >> 63:
        raise Broken(BROKEN)
    return size, 6 + width


def _unmasked(mask: bytearray, data: bytearray) -> bytes:
    size = len(data)
    pattern = (bytes(mask) * (size // 4 + 1))[:size]
    mixed = int.from_bytes(data, "big") ^ int.from_bytes(pattern, "big")
    return mixed.to_bytes(size, "big")


def _check_close(data: bytes) -> None:
    """A close frame has no data, or a code and a reason in UTF-8."""
    if not data:
        return
    code = int.from_bytes(data[:2], "big")
    if len(data) < 2 or not (code in CODES or 3000 <= code < 5000):
        raise Broken(BROKEN)
    try:
        data[2:].decode()
    except UnicodeDecodeError as error:
        raise Broken(NOT_TEXT) from error
