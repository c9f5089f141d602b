"""Pickles of deeply nested values.

pickle recurses for each level of nesting, and ends with a RecursionError some hundred levels down;
a cache holds 1,024. The views of the extension therefore pickle as plain containers only up to
DEPTH levels. Beyond, they pickle as a row: each container once, with None instead of each
container in it, and a list of what belongs there.
"""

from __future__ import annotations

from typing import Any

DEPTH = 100
"""Of views that pickle as plain containers; the extension has the same number."""

Row = list[tuple[Any, list[tuple[Any, int]]]]
"""Containers, each with the keys of containers in it and where these are in the row."""


def row_of(plain: dict[str, Any] | list[Any]) -> Row:
    """The row of a value without cycles, whose containers it takes over; the value comes first."""
    row: Row = [(plain, [])]
    for container, missing in row:  # which becomes longer meanwhile
        entries = container.items() if isinstance(container, dict) else enumerate(container)
        for key, value in entries:
            if isinstance(value, dict | list):
                missing.append((key, len(row)))
                row.append((value, []))
        for key, _ in missing:
            container[key] = None
    return row


def restored(row: Row) -> Any:
    """The value that row_of() took apart; called by pickle."""
    for container, missing in row:
        for key, at in missing:
            container[key] = row[at][0]
    return row[0][0]


def reduced(plain: dict[str, Any] | list[Any]) -> tuple[Any, tuple[Row]]:
    """As of object.__reduce__()."""
    return restored, (row_of(plain),)
