"""Rows in columns, laid out as kubectl does: three spaces between, none behind the last."""

from __future__ import annotations

from shmcache.reasons import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

LEAST, GAP = 6, 3


def one_line(value: Any) -> str:
    """A cell as it is shown: of several lines the first one, of a missing value nothing."""
    if value is None:
        return ""
    if value is True or value is False:
        return str(value).lower()
    shown = value if isinstance(value, str) else str(value)
    return shown if "\n" not in shown else shown.partition("\n")[0] + "..."


class Grid:
    """Widths that are kept from one write to the next, so that later rows stand under the first."""

    def __init__(self) -> None:
        self._widths: list[int] = []

    def lines(self, rows: Sequence[Sequence[str]]) -> str:
        """The rows as text; columns become wider with what is in them, and never narrower."""
        if not rows:
            return ""
        columns = list(zip(*rows, strict=True))[:-1]
        found = [max(LEAST, GAP + max(map(len, column))) for column in columns]
        if len(self._widths) == len(found):
            found = list(map(max, found, self._widths))
        self._widths = found
        form = "".join(f"%-{width}s" for width in found) + "%s\n"
        return printable("".join([form % tuple(row) for row in rows]))
