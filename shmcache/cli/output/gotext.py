"""Values as Go prints them: its JSON, its `%v`, and the columns of its tabwriter."""

from __future__ import annotations

import shmcache
from shmcache.reasons import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_ESCAPES = "<>&\u2028\u2029"
LEAST, PADDING = 6, 3


def escaped(text: str) -> str:
    """The characters that Go escapes in JSON; JSON has them in strings only."""
    for character in _ESCAPES:
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def marshalled(value: Any, indent: int | None = None) -> str:
    """JSON with sorted keys."""
    import json

    separators = (",", ":") if indent is None else (",", ": ")
    return escaped(
        json.dumps(value, indent=indent, separators=separators, sort_keys=True,
                   default=shmcache.default, ensure_ascii=False)
    )  # fmt: skip


def printed(value: Any) -> str:
    """A value as `%v`: map[a:1 b:[x y]], <nil>, 1e+06."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    if isinstance(value, int | float):
        return real(value) if isinstance(value, float) else str(value).lower()
    if hasattr(value, "keys"):
        pairs = [f"{name}:{printed(value[name])}" for name in sorted(value)]
        return f"map[{' '.join(pairs)}]"
    return f"[{' '.join(map(printed, value))}]"


def real(value: float) -> str:
    """As Go's %g with the fewest digits: an exponent below 1e-4 and from 1e+06 on."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    shortest = repr(value)
    if "e" not in shortest and -4 <= int(exponent) < 6:
        return shortest
    for digits in range(17):
        mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
        if float(f"{mantissa}e{exponent}") == value:
            break
    return f"{mantissa}e{exponent}"


class Tabs:
    """Lines of cells in the columns of Go's tabwriter.

    Cells may hold tabs and line breaks. A column goes down for as long as lines have a cell to the
    right of it; widths never shrink from one such block, or one write, to the next one.
    """

    def __init__(self) -> None:
        self._widest: list[int] = []

    def lines(self, rows: Iterable[Iterable[str]]) -> str:
        """The rows as text."""
        text = printable("\n".join("\t".join(row) for row in rows))
        out: list[str] = []
        if text:
            self._block([line.split("\t") for line in text.split("\n")], [], out)
        return "".join(out)

    def _block(self, rows: list[list[str]], widths: list[int], out: list[str]) -> None:
        column = len(widths)
        at = 0
        while at < len(rows):
            end = at
            while end < len(rows) and column < len(rows[end]) - 1:
                end += 1
            if end == at:
                out.append(_padded(rows[at], widths))
                at += 1
            else:
                cells = [row[column] for row in rows[at:end]]
                self._block(rows[at:end], [*widths, self._width(column, cells)], out)
                at = end

    def _width(self, column: int, cells: list[str]) -> int:
        width = max(LEAST, PADDING + max(map(len, cells)))
        if column == len(self._widest):
            self._widest.append(width)
        self._widest[column] = max(self._widest[column], width)
        return self._widest[column]


def _padded(cells: list[str], widths: list[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "".join([*padded, *cells[len(padded) :]]) + "\n"
