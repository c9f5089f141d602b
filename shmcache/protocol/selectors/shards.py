"""Shard selectors (KEP-5866): objects by the 64-bit FNV-1a hash of their uid or their namespace.

    shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')

The hashes from the first bound to the one before the second; bounds have sixteen digits, the end of
all hashes is '0x10000000000000000'. Ranges of one field are joined with `||`. The expression is
CEL, of which nothing else is allowed: parentheses, spaces, comments and both quotes are read.

SHARD1  an object never changes its shard: neither its uid nor its namespace ever changes.
SHARD2  shards of one n have no hash in common, and together they have all.
"""

from __future__ import annotations

import re
from functools import lru_cache

from shmcache.errors import InvalidSelector
from shmcache.protocol.selectors.hashing import bounds, shard_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Span = tuple[int, int]

UID, NAMESPACE = "uid", "namespace"
_FUNCTION = "shardRange"
_TOKEN = re.compile(
    r"(?:[ \t\r\n\f]++|//[^\n]*+)*+(?:(?P<name>[A-Za-z_]\w*)|(?P<text>'[^'\\\n]*'|\"[^\"\\\n]*\")"
    r"|(?P<sign>\|\||[().,])|(?P<end>\Z)|(?P<other>.))",
    re.ASCII | re.DOTALL,
)
_HASH = re.compile(r"0x[0-9a-f]{16}")
_SHORT = re.compile(r"0x[0-9a-f]{1,15}")
_LAST = "0x10000000000000000"
DIGITS = 18
"""Of a number of shares: the time for a long one grows with the square of its digits."""


_hash = lru_cache(maxsize=8192)(shard_hash)
"""Each of n watches with a shard asks about the same object."""


class ShardSelector:
    """Ranges of hashes of one field. Immutable, hashable, and str() parses back."""

    __slots__ = ("_ranges", "asked", "field")

    field: str
    """uid or namespace, of the metadata."""
    asked: tuple[Span, ...]
    """The ranges as they were given, their ends excluded."""

    def __init__(self, field: str, asked: tuple[Span, ...]) -> None:
        self.field = field
        self.asked = asked
        self._ranges = _merged(asked)

    @classmethod
    def parse(cls, text: str) -> ShardSelector:
        """Parses an expression; else InvalidSelector."""
        return _ShardParser(text).selector()

    @classmethod
    def of(cls, index: int, count: int, field: str = UID) -> ShardSelector:
        """The part `index` of `count` equal ones. ValueError."""
        first, last = bounds((index, count))
        return cls(field, ((first, last + 1),))

    @property
    def hashes(self) -> tuple[str, tuple[Span, ...]]:
        """The field, and its ranges with the first and the last hash of each."""
        return self.field, self._ranges

    def matches(self, obj: Any) -> bool:
        """Whether an object, a dict or a View, is in one of the ranges."""
        metadata: Any = obj.get("metadata")
        text = metadata.get(self.field) if hasattr(metadata, "items") else None
        return self.has(text if isinstance(text, str) else None)

    def has(self, text: str | None) -> bool:
        """Whether the objects of this uid or namespace are."""
        found = _hash(text)
        return any(first <= found <= last for first, last in self._ranges)

    def is_within(self, other: ShardSelector) -> bool:
        """Whether all objects of this selector are the other's, too."""
        return self.field == other.field and all(
            any(first <= mine[0] and mine[1] <= last for first, last in other._ranges)
            for mine in self._ranges
        )

    def __str__(self) -> str:
        return " || ".join(
            f"{_FUNCTION}(object.metadata.{self.field}, '0x{first:016x}', '0x{end:016x}')"
            for first, end in self.asked
        )

    def __repr__(self) -> str:
        return f"<ShardSelector {str(self)!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardSelector) and self.hashes == other.hashes

    def __hash__(self) -> int:
        return hash(self.hashes)


def parse_share(text: str) -> ShardSelector:
    """A share of a configuration: I/N, or the whole expression; else InvalidSelector."""
    index, slash, count = text.partition("/")
    if not slash or not (index + count).isdecimal() or not index or not count:
        return ShardSelector.parse(text)
    if len(index) > DIGITS or len(count) > DIGITS or not int(index) < int(count):
        raise InvalidSelector(f"the share {text} does not exist: the first is 0/{count}")
    return ShardSelector.of(int(index), int(count))


def _merged(asked: tuple[Span, ...]) -> tuple[Span, ...]:
    """The same hashes in rising ranges that do not touch, with their last hashes."""
    found: list[Span] = []
    for first, end in sorted(asked):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], end - 1)
        else:
            found.append((first, end - 1))
    return tuple(found)


class _ShardParser:
    """Reads an expression from left to right; the time grows with its length."""

    def __init__(self, text: str) -> None:
        if not text.strip():
            raise InvalidSelector(
                "empty shard selector is not allowed; omit the parameter for unfiltered lists"
            )
        self._text = text
        self._at = 0
        self._kind, self._symbol = "", ""
        self._step()

    def selector(self) -> ShardSelector:
        fields: list[str] = []
        asked: list[Span] = []
        depth = 0
        while True:
            depth += self._skip("(")
            field, span = self._call()
            fields.append(field)
            asked.append(span)
            closed = self._skip(")", most=depth)
            depth -= closed
            if self._symbol != "||":
                break
            self._step()
        if self._kind != "end" or depth:
            self._fail()
        if len(set(fields)) > 1:
            first = fields[0]
            other = next(field for field in fields if field != first)
            raise InvalidSelector(
                "all shard ranges must use the same field, got "
                f'"object.metadata.{first}" and "object.metadata.{other}"'
            )
        return ShardSelector(fields[0], tuple(asked))

    def _skip(self, sign: str, most: int = -1) -> int:
        found = 0
        while self._symbol == sign and self._kind == "sign" and found != most:
            self._step()
            found += 1
        return found

    def _call(self) -> tuple[str, Span]:
        name = self._take("name")
        if name != _FUNCTION:
            raise InvalidSelector(
                f'unsupported function "{name}"; only {_FUNCTION}() and || are allowed'
            )
        self._sign("(")
        path = [self._take("name")]
        while self._symbol == ".":
            self._step()
            path.append(self._take("name"))
        self._sign(",")
        first = _bound(self._take("text"), "hexStart")
        self._sign(",")
        end = _bound(self._take("text"), "hexEnd")
        self._sign(")")
        if path[:-1] != ["object", "metadata"] or path[-1] not in {UID, NAMESPACE}:
            raise InvalidSelector(
                f'unsupported field path "{".".join(path)}"; supported: object.metadata.uid, '
                "object.metadata.namespace"
            )
        if first >= end:
            raise InvalidSelector(
                f"shard range start 0x{first:016x} must be less than end 0x{end:016x}"
            )
        return path[-1], (first, end)

    def _sign(self, sign: str) -> None:
        if self._kind != "sign" or self._symbol != sign:
            self._fail()
        self._step()

    def _take(self, kind: str) -> str:
        if self._kind != kind:
            self._fail()
        token = self._symbol
        self._step()
        return token

    def _step(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        assert found is not None
        assert found.lastgroup is not None
        self._at = found.end()
        self._kind, self._symbol = found.lastgroup, found[found.lastgroup]

    def _fail(self) -> NoReturn:
        what = f'"{self._symbol[:40]}"' if self._symbol else "the end"
        at = self._at - len(self._symbol)
        raise InvalidSelector(
            f"unexpected {what} at {at}; a shard selector is one {_FUNCTION}(FIELD, "
            "'0x…', '0x…'), or several with || between them"
        )


def _bound(literal: str, name: str) -> int:
    text = literal[1:-1]
    if text == _LAST or _HASH.fullmatch(text):
        return int(text, 16)
    if not text.startswith("0x"):
        raise InvalidSelector(f"{name} must have '0x' prefix, got \"{text[:40]}\"")
    meant = f' (did you mean "0x{text[2:]:0>16}"?)' if _SHORT.fullmatch(text) else ""
    raise InvalidSelector(
        f'{name} must be a 0x-prefixed 16-digit hex value, got "{text[:40]}"{meant}'
    )
