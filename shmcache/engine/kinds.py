"""Kinds of configuration values: from TOML as they are, from flags and the environment as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from shmcache.settings import parse_size

Read = Callable[[object], Any]
"""Returns the value as settings want it; ValueError says what is wanted instead."""

_SECONDS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def text(value: object) -> str:
    """A str."""
    if not isinstance(value, str):
        raise ValueError("a text is wanted")  # noqa: TRY004 - one kind of error for every value
    return value


def texts(value: object) -> tuple[str, ...]:
    """Several, as a list or separated by commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ValueError("a list of texts is wanted")
    return tuple(value)


def flag(value: object) -> bool:
    """A bool, or its word."""
    if isinstance(value, bool):
        return value
    found = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("true or false is wanted")
    return found


def size(value: object) -> int:
    """Bytes, or a text such as "200MiB"."""
    try:
        return parse_size(value)  # type: ignore[arg-type]  # it says so itself
    except TypeError as error:
        raise ValueError(str(error)) from error


def count(value: object) -> int:
    """An integer that is not negative."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number is wanted")
    return value


def seconds(value: object) -> float:
    """A number of seconds, or a text such as "2m"."""
    if isinstance(value, str):
        match = _SECONDS.fullmatch(value)
        if match is not None:
            return float(match[1]) * _UNITS[match[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    raise ValueError("seconds, or a text such as '90s' or '2m', is wanted")


def mode(value: object) -> int:
    """File permissions, in octal: "0640", or 0o640."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(text(value), 8)
    except ValueError:
        raise ValueError("permissions in octal, such as '0640', are wanted") from None


def table(value: object) -> dict[str, str]:
    """Names to texts."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError("a table of texts is wanted")
    return dict(value)


def one_of(*choices: str) -> Read:
    """One of these texts."""

    def choice(value: object) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)} is wanted")
        return str(value)

    return choice
