"""Objects as YAML, byte for byte as kubectl writes them.

kubectl uses go-yaml v2, whose emitter is libyaml's. These are its rules:

YAML1  Mappings are sorted with numbers in natural order; sequences in mappings are not indented.
YAML2  A string is plain unless a YAML parser could read it as something else, or as an indicator;
       then it is in single quotes if it only looks like an indicator, else in double quotes.
YAML3  A string with line breaks is a literal block, unless it ends with a space or has a space
       before a break or a character that is not printable; then it is in double quotes.
YAML4  Lines longer than 80 columns are folded at the next single space, except in keys.
YAML5  A key of more than 128 bytes, or with a line break, is written as `? key`.
"""

from __future__ import annotations

import functools
import json
import re

from shmcache.cli.output import gotext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

WIDTH = 80
LONGEST_KEY = 128  # bytes
BREAKS = "\n\r\x85\u2028\u2029"
_SEPARATORS = "\u2028\u2029"
_SPACED = re.compile(f" [{_SEPARATORS}]|[{_SEPARATORS}] ")
_LINE = re.compile(f"[{_SEPARATORS}](?=[^{_SEPARATORS}'])|[{_SEPARATORS}](?='')")
_BLANKS = frozenset(" \t\0" + BREAKS)
_UNPRINTABLE = re.compile("[^\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd]")
_USUAL = re.compile(r"[A-Za-z/][-A-Za-z0-9_./]*")
"""Strings that are plain, unless they are keywords of YAML; nothing in them can be folded."""
_FIRST = frozenset("#,[]{}&*!|>'\"%@`")
_ESCAPES = {
    0: "0", 7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 27: "e", 34: '"', 92: "\\",
    0x85: "N", 0xA0: "_", 0x2028: "L", 0x2029: "P",
}  # fmt: skip
_KEYWORDS = frozenset(
    form
    for each in ("y", "yes", "true", "on", "n", "no", "false", "off", "null", ".nan", ".inf",
                 "+.inf", "-.inf")
    for form in (each, each.capitalize(), each.upper(), each.replace("inf", "Inf"))
) | {"", "~", ".NaN"}  # fmt: skip
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|[1-9][0-9]*|0)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_TIME = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)"
    r"([Tt](\d\d?):(\d\d?):(\d\d?)([.,]\d+)?(Z|[-+]\d\d:\d\d)| (\d\d?):(\d\d?):(\d\d?)([.,]\d+)?)?",
    re.ASCII,
)


def text(value: Any) -> str:
    """A whole document."""
    return "".join(_node(value, 0))


def _node(value: Any, indent: int) -> Iterator[str]:
    """The lines of a value that begins a line of its own."""
    if hasattr(value, "keys"):
        for key in _sorted(tuple(value)):
            yield from _entry(key, value[key], indent)
    elif is_list(value):
        for one in value:
            yield " " * indent + "-"
            yield from _item(one, indent)
    else:
        yield scalar(value, indent, indent + 2) + "\n"


def _entry(key: str, value: Any, indent: int) -> Iterator[str]:
    """One key with its value."""
    if _is_long(key):
        yield f"{' ' * indent}? {scalar(key, indent + 2, indent + 2)}\n{' ' * indent}:"
        yield from _item(value, indent)
        return
    shown = " " * indent + key_text(key) + ":"
    yield shown
    if is_list(value) and len(value):
        yield "\n"
        yield from _node(value, indent)
    elif hasattr(value, "keys") and len(value):
        yield "\n"
        yield from _node(value, indent + 2)
    else:
        yield f" {_leaf(value, len(shown) + 1, indent + 2)}\n"


@functools.lru_cache(4096)
def key_text(key: str) -> str:
    """A key that fits its line: it is never folded."""
    return scalar(key, 0, 0, folds=False)


@functools.lru_cache(4096)
def _is_long(key: str) -> bool:
    return len(key.encode(errors="surrogatepass")) > LONGEST_KEY or any(c in key for c in BREAKS)


def _item(value: Any, indent: int) -> Iterator[str]:
    """The rest of a line that began with `-` or `:`."""
    if (hasattr(value, "keys") or is_list(value)) and len(value):
        yield " " + "".join(_node(value, indent + 2))[indent + 2 :]
    else:
        yield f" {_leaf(value, indent + 2, indent + 2)}\n"


def _leaf(value: Any, column: int, indent: int) -> str:
    if hasattr(value, "keys"):
        return "{}"
    return "[]" if is_list(value) else scalar(value, column, indent)


def is_list(value: Any) -> bool:
    """Whether a value is written as a sequence."""
    return hasattr(value, "__iter__") and not isinstance(value, str) and not hasattr(value, "keys")


# ---- order ---------------------------------------------------------------------------------------


def _compare(one: str, other: str) -> int:
    """Numbers by their value, letters after everything else (YAML1)."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a == b:
            continue
        if a.isalpha() and b.isalpha():
            return -1 if a < b else 1
        if a.isalpha() or b.isalpha():
            return -1 if b.isalpha() else 1
        return _compare_numbers(one, other, at)
    return len(one) - len(other)


def _compare_numbers(one: str, other: str, at: int) -> int:
    head = 0
    if "0" in {one[at], other[at]}:
        before = re.search(r"[0-9]*\Z", one[:at])
        head = 1 if before is not None and before[0].strip("0") else 0
    (a, a_end), (b, b_end) = _number(one, at, head), _number(other, at, head)
    order = (a > b) - (a < b) or (a_end > b_end) - (a_end < b_end)
    return order or (-1 if one[at] < other[at] else 1)


def _number(text: str, at: int, head: int) -> tuple[int, int]:
    end = at
    while end < len(text) and text[end].isdigit():
        head = head * 10 + ord(text[end]) - ord("0")
        end += 1
    return head, end


@functools.lru_cache(4096)  # objects of one kind have the same keys
def _sorted(keys: tuple[str, ...]) -> list[str]:
    return sorted(keys, key=functools.cmp_to_key(_compare))


# ---- scalars -------------------------------------------------------------------------------------


def scalar(value: Any, column: int, indent: int, *, folds: bool = True) -> str:  # noqa: PLR0911 - a table
    """A scalar that begins at this column; further lines have this indent."""
    if not isinstance(value, str):
        return gotext.real(value) if isinstance(value, float) else json.dumps(value)
    if _USUAL.fullmatch(value) and value not in _KEYWORDS:
        return value
    special = _UNPRINTABLE.search(value) is not None
    fold = f"\n{' ' * indent}" if folds else ""
    if "\n" in value:
        if folds and not special and _fits_block(value):
            return _block(value, indent)
        return _double_quoted(value, column, fold)
    broken = any(c in value for c in _SEPARATORS)
    if is_ambiguous(value) or special or (broken and (not folds or _SPACED.search(value))):
        return _double_quoted(value, column, fold)
    if broken or value[0] == " " or value[-1] == " " or _looks_like_indicator(value):
        quoted = _folded(value.replace("'", "''"), column + 1, fold, inner=True)
        return f"'{_indented(quoted, indent)}'"
    return _folded(value, column, fold, inner=False)


def _indented(value: str, indent: int) -> str:
    """The text with an indent at the beginning of each line but the first."""
    return _LINE.sub(lambda found: found[0] + " " * indent, value)


def is_ambiguous(value: str) -> bool:
    """Whether a parser could take the bare string for another type (YAML2)."""
    if value in _KEYWORDS:
        return True
    if value[0] == ".":
        return _FLOAT.fullmatch(value) is not None
    if value[0] not in "+-0123456789":
        return False
    plain = value.replace("_", "")
    return bool(
        _INTEGER.fullmatch(plain)
        or _FLOAT.fullmatch(plain)
        or _BASE_60.fullmatch(value)
        or _is_time(value)
    )


def _is_time(value: str) -> bool:
    found = _TIME.fullmatch(value)
    if found is None:
        return False
    month, day = int(found[2]), int(found[3])
    clock = [int(part) for part in (*found.group(5, 6, 7), *found.group(10, 11, 12)) if part]
    if not (1 <= month <= 12 and 1 <= day <= _days(int(found[1]), month)):
        return False
    return not clock or (clock[0] < 24 and clock[1] < 60 and clock[2] < 60)


def _days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in {4, 6, 9, 11} else 31


def _looks_like_indicator(value: str) -> bool:
    """Whether a bare string would begin or end some structure."""
    if value.startswith(("---", "...")) or value[0] in _FIRST:
        return True
    if value[0] in "?:-" and (len(value) == 1 or value[1] in _BLANKS):
        return True
    for at in range(1, len(value)):
        if value[at] == ":" and (at + 1 == len(value) or value[at + 1] in _BLANKS):
            return True
        if value[at] == "#" and value[at - 1] in _BLANKS:
            return True
    return False


def _fits_block(value: str) -> bool:
    return value[-1] != " " and not re.search(f" [{BREAKS}]", value)


def _block(value: str, indent: int) -> str:
    hint = "2" if value[0] in " " + BREAKS else ""
    if value[-1] not in BREAKS:
        chomp = "-"
    else:
        chomp = "+" if len(value) == 1 or value[-2] in BREAKS else ""
    lines = value.removesuffix("\n").split("\n")
    body = "\n".join([f"{' ' * indent}{_indented(line, indent)}" if line else "" for line in lines])
    return f"|{hint}{chomp}\n{body}"


def _folded(value: str, column: int, fold: str, *, inner: bool) -> str:
    """The text with line breaks instead of single spaces after column 80 (YAML4).

    `inner`: not instead of the first or the last character, as within quotes.
    """
    if not fold or column + len(value) <= WIDTH or " " not in value:
        return value
    out: list[str] = []
    spaces = False
    last = len(value) - 1
    for at, character in enumerate(value):
        if character == " ":
            alone = not spaces and not (at < last and value[at + 1] == " ")
            if alone and column > WIDTH and (not inner or 0 < at < last):
                out.append(fold)
                column = len(fold) - 1
            else:
                out.append(character)
                column += 1
            spaces = True
        else:
            out.append(character)
            column += 1
            spaces = False
    return "".join(out)


def _double_quoted(value: str, column: int, fold: str) -> str:
    out = ['"']
    column += 1
    spaces = False
    last = len(value) - 1
    for at, character in enumerate(value):
        if character in '"\\\n' or character in BREAKS or _UNPRINTABLE.match(character):
            shown = _escaped(ord(character))
            spaces = False
        elif character == " " and fold and not spaces and column > WIDTH and 0 < at < last:
            shown = fold + ("\\" if value[at + 1] == " " else "")
            out.append(shown)
            column = len(shown) - 1
            spaces = True
            continue
        else:
            shown = character
            spaces = character == " "
        out.append(shown)
        column += len(shown)
    return "".join(out) + '"'


def _escaped(code: int) -> str:
    if code in _ESCAPES:
        return "\\" + _ESCAPES[code]
    if code <= 0xFF:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"
