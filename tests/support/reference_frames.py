"""A slow decoder of watch lines, list bodies and chunks, in plain Python: `_hot`'s must equal it.

A decoder's promise is structural: it finds the end of a JSON value by brackets and strings alone,
and reads the members of an event, of its object and of the object's metadata. Whether all the rest
is JSON is for the parser to decide, object by object.
"""

from __future__ import annotations

import json
import re

from shmcache.protocol.items import GARBAGE, LISTED, Item

MAX_LINE = 64 << 20
MAX_ITEM = 64 << 20
MAX_REST = 1 << 20
"""A list may have this much in addition to its items."""
SHOWN = 1024
"""GARBAGE shows at most this much of a line that is too long."""
MAX_CHUNK_LINE = 4096

_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BARE = re.compile(rb"[A-Za-z0-9+.-]+")
_BRACKET_OR_STRING = re.compile(rb'\\.|[\[\]{}]|"(?:[^"\\]|\\.)*("?)', re.DOTALL)


class Short(Exception):
    """The text ends before the value does."""


# ---- values ---------------------------------------------------------------------------------


def spaces(text: bytes, at: int) -> int:
    """The first place from `at` that is not white space; Short at the end."""
    found = _SPACE.match(text, at)
    assert found is not None
    if found.end() == len(text):
        raise Short
    return found.end()


def string_end(text: bytes, at: int) -> int:
    found = _STRING.match(text, at)
    if found is None:
        raise Short
    return found.end()


def value_end(text: bytes, at: int) -> int:
    """The end of the value at `at`; brackets are counted whatever their kind, and a backslash takes
    the meaning of the next byte, in a string or not."""
    if text[at : at + 1] == b'"':
        return string_end(text, at)
    if text[at : at + 1] in {b"{", b"["}:
        depth = 0
        for part in _BRACKET_OR_STRING.finditer(text, at):
            bracket = part.group()
            if bracket in {b"{", b"["}:
                depth += 1
            elif bracket in {b"}", b"]"}:
                depth -= 1
            elif bracket[:1] == b'"' and not part.group(1):
                raise Short
            if depth == 0:
                return part.end()
        raise Short
    found = _BARE.match(text, at)
    if found is None:
        raise ValueError(f"no value at {at}")
    if found.end() == len(text):
        raise Short
    return found.end()


def text_of(raw: bytes) -> str | None:
    """The text of a JSON string; None for another value, and for invalid Unicode."""
    if raw[:1] != b'"':
        return None
    try:
        found = json.loads(raw.decode())
        found.encode()
    except ValueError:
        return None
    assert isinstance(found, str)
    return found


def members(text: bytes, at: int) -> tuple[dict[str | None, bytes], int]:
    """The values of an object as written, the last of each name; and its end."""
    found: dict[str | None, bytes] = {}
    at = spaces(text, at + 1)
    if text[at : at + 1] == b"}":
        return found, at + 1
    while True:
        if text[at : at + 1] != b'"':
            raise ValueError(f"no name at {at}")
        end = string_end(text, at)
        name = text_of(text[at:end])
        at = spaces(text, end)
        if text[at : at + 1] != b":":
            raise ValueError(f"no colon at {at}")
        at = spaces(text, at + 1)
        end = value_end(text, at)
        found[name] = text[at:end]
        at = spaces(text, end)
        if text[at : at + 1] == b"}":
            return found, at + 1
        if text[at : at + 1] != b",":
            raise ValueError(f"no comma at {at}")
        at = spaces(text, at + 1)


def item(kind: str, raw: bytes) -> Item:
    """The Item of an object's text; ValueError or Short if its members cannot be separated."""
    outer, _ = members(raw, 0)
    inner: dict[str | None, bytes] = {}
    if outer.get("metadata", b"")[:1] == b"{":
        inner, _ = members(outer["metadata"], 0)
    name = text_of(inner.get("name", b""))
    namespace = text_of(inner.get("namespace", b""))
    return Item(
        kind,
        f"{namespace}/{name}" if name and namespace else name or "",
        text_of(inner.get("resourceVersion", b"")),
        text_of(inner.get("uid", b"")),
        text_of(outer.get("kind", b"")),
        text_of(outer.get("apiVersion", b"")),
        raw,
    )


# ---- a watch ----------------------------------------------------------------------------------


def garbage(line: bytes) -> Item:
    return Item(GARBAGE, "", None, None, None, None, line)


def event(line: bytes) -> Item | None:
    """Of one line without its end; None for an empty one."""
    if not line.strip(b" \t\r"):
        return None
    try:
        start = spaces(line, 0)
        if line[start : start + 1] != b"{":
            return garbage(line)
        found, end = members(line, start)
        kind, raw = text_of(found.get("type", b"")), found.get("object", b"")
        if kind is None or raw[:1] != b"{" or line[end:].strip(b" \t\r"):
            return garbage(line)
        return item(kind, raw)
    except (ValueError, Short):
        return garbage(line)


class Frames:
    """The events of a watch body that comes in pieces, cut anywhere.

    An invalid line gives an Item of type GARBAGE; so does one longer than `max_line`, with its
    first bytes, and the rest of it is skipped. Empty lines give nothing.
    """

    def __init__(self, *, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._held = b""
        self._passing = False
        self.pending = 0
        """Bytes of the line that has not ended yet."""

    def feed(self, data: bytes) -> list[Item]:
        """The events that are complete with `data`."""
        found: list[Item] = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(line, found)
            complete = None if self._passing else event(self._held)
            if complete is not None:
                found.append(complete)
            self._held, self._passing, self.pending = b"", False, 0
        self._add(rest, found)
        return found

    def _add(self, piece: bytes, found: list[Item]) -> None:
        self.pending += len(piece)
        if self._passing:
            return
        self._held += piece
        if len(self._held) > self._max_line:
            found.append(garbage(self._held[: min(SHOWN, self._max_line)]))
            self._held, self._passing = b"", True


# ---- a list -----------------------------------------------------------------------------------


class ItemScanner:
    """The items of a list body that comes in pieces, cut anywhere.

    `kind` and `api_version` are put in front of items that lack them, as a watch has them. A body
    that is not a list raises ValueError, once the items before that place were returned.
    """

    def __init__(
        self, *, kind: str | None = None, api_version: str | None = None, max_item: int = MAX_ITEM
    ) -> None:
        self._kind = kind
        self._api_version = api_version
        self._max_item = max_item
        self._text = b""
        self._given = 0
        self._failed: ValueError | None = None
        self._rest: bytes | None = None

    def feed(self, data: bytes) -> list[Item]:
        """The items that are complete with `data`, of type LISTED."""
        self._text += data
        found: list[bytes] = []
        if self._failed is None:
            try:
                self._rest = self._scan(found)
            except Short:
                pass
            except ValueError as error:
                self._failed = error
        new = found[self._given :]
        self._given += len(new)
        if not new and self._failed is not None:
            raise self._failed
        return [self._listed(raw) for raw in new]

    def finish(self) -> bytes:
        """The body with no items in its "items"; ValueError if it has not ended."""
        if self._failed is not None:
            raise self._failed
        if self._rest is None:
            raise ValueError("the list ends too early")
        return self._rest

    def _scan(self, found: list[bytes]) -> bytes:
        text = self._text
        at = spaces(text, 0)
        if text[at : at + 1] != b"{":
            raise ValueError("a list must be an object")
        rest, at, listed = text[: at + 1], at + 1, False
        closing = spaces(text, at)
        first = True
        while text[closing : closing + 1] != b"}":
            if not first and text[closing : closing + 1] != b",":
                raise ValueError("no comma")
            start = closing if first else spaces(text, closing + 1)
            if text[start : start + 1] != b'"':
                raise ValueError("no name")
            end = string_end(text, start)
            colon = spaces(text, end)
            if text[colon : colon + 1] != b":":
                raise ValueError("no colon")
            value = spaces(text, colon + 1)
            rest += text[at:value]
            if text_of(text[start:end]) == "items":
                if listed:
                    raise ValueError("items twice")
                at, listed = self._items(text, value, found), True
                rest += b"[]"
            else:
                at = self._other(text, value, len(rest))
                rest += text[value:at]
            _limit(rest)
            closing = spaces(text, at)
            first = False
        if not listed:
            raise ValueError("no items")
        if text[closing + 1 :].strip(b" \t\r\n"):
            raise ValueError("more after the list")
        rest += text[at:]
        _limit(rest)
        return rest

    def _other(self, text: bytes, value: int, before: int) -> int:
        try:
            return value_end(text, value)
        except Short:
            if before + len(text) - value > MAX_REST:
                raise ValueError("too much outside the items") from None
            raise

    def _items(self, text: bytes, at: int, found: list[bytes]) -> int:
        if text[at : at + 1] != b"[":
            end = value_end(text, at)
            if text[at:end] != b"null":
                raise ValueError("items are not an array")
            return end
        at = spaces(text, at + 1)
        if text[at : at + 1] == b"]":
            return at + 1
        while True:
            try:
                end = value_end(text, at)
            except Short:
                if len(text) - at > self._max_item:
                    raise ValueError("an item is too long") from None
                raise
            if end - at > self._max_item:
                raise ValueError("an item is too long")
            found.append(text[at:end])
            at = spaces(text, end)
            if text[at : at + 1] == b"]":
                return at + 1
            if text[at : at + 1] != b",":
                raise ValueError("no comma between items")
            at = spaces(text, at + 1)

    def _listed(self, raw: bytes) -> Item:
        try:
            if raw[:1] != b"{":
                raise ValueError
            found = item(LISTED, raw)
        except (ValueError, Short):
            return Item(LISTED, "", None, None, None, None, raw)
        outer = members(raw, 0)[0]
        front = b""
        if self._kind is not None and "kind" not in outer:
            front += b'"kind":' + json.dumps(self._kind).encode() + b","
            found = found._replace(kind=self._kind)
        if self._api_version is not None and "apiVersion" not in outer:
            front += b'"apiVersion":' + json.dumps(self._api_version).encode() + b","
            found = found._replace(api_version=self._api_version)
        if not front:
            return found
        return found._replace(raw=b"{" + front[: None if outer else -1] + raw[1:])


def _limit(rest: bytes) -> None:
    if len(rest) > MAX_REST:
        raise ValueError("too much outside the items")


# ---- chunks -----------------------------------------------------------------------------------

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class Chunks:
    """Takes HTTP/1.1's chunked framing off a body that comes in pieces, cut anywhere.

    Invalid framing raises ValueError, once the data before that place was returned.
    """

    def __init__(self) -> None:
        self.done = False
        """The last chunk and its trailers have come."""
        self.unused = b""
        """The bytes after them."""
        self._left: int | None = None
        """Remaining bytes of the chunk; None inside a line."""
        self._line = b""
        self._after_data = False
        self._trailers = 0
        self._in_trailers = False
        self._failed: ValueError | None = None

    def feed(self, data: bytes) -> bytes:
        """The data of the body in `data`."""
        found = b""
        while data and not self.done and self._failed is None:
            if self._left:
                piece, data = data[: self._left], data[self._left :]
                found += piece
                self._left -= len(piece)
                if self._left == 0:
                    self._left, self._after_data = None, True
                continue
            self._line, data = self._line + data[:1], data[1:]
            try:
                self._byte()
            except ValueError as error:
                self._failed = error
        if self._failed is not None and not found:
            raise self._failed
        if self.done:
            self.unused += data
        return found

    def _byte(self) -> None:
        """Takes one more byte of a line: a chunk's size, the end of its data, a trailer."""
        line = self._line
        if self._in_trailers:
            self._trailers += 1
        if len(line) > MAX_CHUNK_LINE or self._trailers > MAX_CHUNK_LINE:
            raise ValueError("a line of the chunked framing is too long")
        if line[-1:] == b"\n" and line[-2:-1] != b"\r":
            raise ValueError("a line of the chunked framing ends with LF alone")
        if line[:-1].endswith(b"\r") and line[-1:] != b"\n":
            raise ValueError("a CR alone in the chunked framing")
        if self._after_data and line != b"\r\n"[: len(line)]:
            raise ValueError("a chunk is longer than its size")
        if line[-1:] != b"\n":
            return
        self._line, line = b"", line[:-2]
        if self._after_data:
            self._after_data = False
        elif self._in_trailers:
            self.done = not line
        else:
            self._size(line)

    def _size(self, line: bytes) -> None:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise ValueError("no size of a chunk")
        self._left = int(found.group(1), 16) or None
        self._in_trailers = self._left is None
