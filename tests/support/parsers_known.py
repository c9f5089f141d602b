"""Parsers of which it is known how their work grows: the measure of `growing.py` has to see it."""

from __future__ import annotations

import re
from collections.abc import Callable

from growing import Parser

REFUSALS = (ValueError,)


def copied(size: int) -> Callable[[], object]:
    """Copies all that came before for each piece of 64 bytes."""

    def read() -> None:
        kept: tuple[int, ...] = ()
        for at in range(size // 64):
            kept = (*kept, at)

    return read


def limited(size: int) -> Callable[[], object]:
    return lambda: [b"x" * size for _ in range(size)] if size <= 1 << 12 else None


PARSERS: dict[str, Parser] = {
    "linear": lambda n: lambda: [b"x" for _ in range(n)],
    "linear, up to a limit": lambda n: lambda: [b"x" for _ in range(n if n < 1 << 12 else 0)],
    "constant": lambda n: lambda: n,
    "quadratic": lambda n: lambda: re.search("a*b", "a" * n),
    "quadratic by copies": copied,
    "quadratic, up to a limit": limited,
}
