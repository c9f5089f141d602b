"""Heads of HTTP/1.1 requests: from bytes to method, target and headers, strictly.

HEAD1  a head that two readers could take for different messages is refused, and the connection
    ends: bare LF, a space before a colon, folded lines, Content-Length twice or together with
    Transfer-Encoding, a coding other than chunked, several Hosts.
HEAD2  an accepted head is bounded in bytes and in lines.
HEAD3  clients repeat their headers: a block that was accepted once is not parsed again. This memory
    is bounded and shared: parsed heads are never changed.
HEAD4  the work is linear in bytes: every repetition in a pattern is possessive (`*+`, `++`), so
    that no pattern ever backtracks over its match.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

END = b"\r\n\r\n"
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}+) ([\x21-\x7e]++) HTTP/1\.([01])")
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_NAME = re.compile(TOKEN)
_FIELD = re.compile(rb"(%b):[ \t]*+([\t\x20-\x7e\x80-\xff]*+)\r\n" % TOKEN)
_FIELDS = re.compile(rb"(?:%b:[\t\x20-\x7e\x80-\xff]*+\r\n)*+" % TOKEN)
_DIGITS = re.compile(r"[0-9]{1,15}")
_KEPT = 512
_KEPT_BYTES = 2048
"""Larger blocks are read again each time."""
SINGLE = frozenset({"host", "content-length", "transfer-encoding", "authorization", "expect",
                    "content-type", "upgrade", "origin"})  # fmt: skip
"""Headers that must not come twice: two readers might choose differently."""
IMPERSONATE = "impersonate-"
"""Each header that begins so asks to be taken for somebody else."""


class BadRequest(Exception):
    """No request, or one too large: answered with `code`, then the connection ends."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Fields:
    """The headers of a request; names in lower case, values of repeated ones joined by commas.

    Where one begins with IMPERSONATE, that beginning is a name of the map as well.
    """

    __slots__ = ("_block", "chunked", "close", "continues", "length", "map")

    def __init__(self, block: bytes) -> None:
        self._block = block
        self.map = found = _joined(block)
        self.length = _length(found)
        self.chunked = _chunked(found)
        if self.chunked and "content-length" in found:
            raise BadRequest(400, "Content-Length together with Transfer-Encoding")
        options = {option.strip() for option in found.get("connection", "").lower().split(",")}
        self.close = "close" in options
        self.continues = found.get("expect", "").lower() == "100-continue"
        if "expect" in found and not self.continues:
            raise BadRequest(417, "only 100-continue can be expected")

    @property
    def size(self) -> int:
        """Bytes of their text."""
        return len(self._block)

    def pairs(self) -> list[tuple[str, str]]:
        """Names and values as they came, one line after another."""
        return _pairs(self._block)


_kept: dict[bytes, Fields] = {}


def line(head: bytes) -> tuple[str, str, bool, int]:
    """Method, target, whether it is HTTP/1.1, and where the headers begin."""
    end = head.find(b"\r\n")
    match = _LINE.fullmatch(head, 0, end)
    if match is None:
        raise BadRequest(400, "a malformed request line")
    method, target, minor = match.groups()
    return method.decode(), target.decode(), minor == b"1", end + 2


def fields(head: bytes, start: int, most: int) -> Fields:
    """The headers of a whole head, which begin at `start`; BadRequest if they are invalid."""
    block = head[start:-2]
    found = _kept.get(block)
    if found is not None:
        return found
    if block.count(b"\r\n") > most:
        raise BadRequest(431, f"more than {most} headers")
    if _FIELDS.fullmatch(block) is None:
        raise BadRequest(400, "a malformed header")
    found = Fields(block)
    if len(block) <= _KEPT_BYTES:
        if len(_kept) >= _KEPT:
            _kept.clear()
        _kept[block] = found
    return found


def is_name(text: str) -> bool:
    """Whether a text is a name of a header."""
    return _NAME.fullmatch(text.encode("latin-1", "replace")) is not None


def is_field(line: bytes) -> bool:
    """Whether a line, without its CRLF, is a header (or a trailer)."""
    return _FIELDS.fullmatch(line + b"\r\n") is not None


def _pairs(block: bytes) -> list[tuple[str, str]]:
    return [
        (name.decode(), value.decode("latin-1").rstrip(" \t"))
        for name, value in _FIELD.findall(block)
    ]


def _joined(block: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    for raw, text in _pairs(block):
        name = raw.lower()
        if name not in found:
            found[name] = text
        elif name in SINGLE:
            raise BadRequest(400, f"{name} twice")
        else:
            repeated.setdefault(name, [found[name]]).append(text)
        if name.startswith(IMPERSONATE):
            found.setdefault(IMPERSONATE, name)
    for name, texts in repeated.items():
        found[name] = ", ".join(texts)
    return found


def _length(found: Mapping[str, str]) -> int:
    text = found.get("content-length")
    if text is None:
        return 0
    if _DIGITS.fullmatch(text) is None:
        raise BadRequest(400, "Content-Length is not a number")
    return int(text)


def _chunked(found: Mapping[str, str]) -> bool:
    coding = found.get("transfer-encoding")
    if coding is None:
        return False
    if coding.lower() != "chunked":
        raise BadRequest(501, "the only supported Transfer-Encoding is chunked")
    return True
