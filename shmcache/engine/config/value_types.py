"""Types of configuration values: TOML values as they are, flags and the environment as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from shmcache.settings import parse_size

Read = Callable[[object], Any]
"""Returns the value in the form that settings take; the ValueError continues "NAME ..."."""

_SECONDS = re.compile(r"\s*+(\d++(?:\.\d++)?)\s*+(ms|s|m|h)?\s*+")
_ADDRESS = re.compile(r"unix:.+|[^:]*:(?P<port>\d{1,5})|\[[^]]*\]:\d{1,5}", re.ASCII)
MAX_PORT = 65535
MAX_SECONDS = 1e9  # every clock and every wait takes it
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def text(value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004 - one kind of error for every value
    return value


def texts(value: object) -> tuple[str, ...]:
    """Several strings: a list, or one string with commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ValueError("must be a list of strings, or one string with commas")
    return tuple(value)


def flag(value: object) -> bool:
    """A boolean, or a name of one."""
    if isinstance(value, bool):
        return value
    found = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("must be true or false")
    return found


def size(value: object) -> int:
    """Bytes, or a string such as "200MiB"."""
    try:
        return parse_size(value)  # type: ignore[arg-type]  # which it checks
    except (TypeError, ValueError):
        raise ValueError("must be a size such as 4096, '64MiB' or '2GiB'") from None


def count(value: object) -> int:
    """An integer that is not negative."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("must be a whole number, 0 or more")
    return value


def seconds(value: object) -> float:
    """A number of seconds, or a string such as "2m"."""
    found = -1.0
    if isinstance(value, str):
        match = _SECONDS.fullmatch(value)
        if match is not None:
            found = float(match[1]) * _UNITS[match[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    if 0 <= found <= MAX_SECONDS:
        return found
    raise ValueError("must be a duration such as 90, '90s' or '2m'")


def factor(value: object) -> float:
    """A number greater than 0, such as 0.5 or 10."""
    try:
        found = float(str(value))
    except ValueError:
        found = 0.0
    if 0 < found <= MAX_SECONDS:
        return found
    raise ValueError("must be a number greater than 0, such as 0.5 or 10")


def mode(value: object) -> int:
    """File permissions, in octal: "0640", or 0o640."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(text(value).strip(), 8)
    except ValueError:
        raise ValueError("must be an octal file mode such as '0640'") from None


def table(value: object) -> dict[str, str]:
    """A table of strings."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError("must be a table of strings")
    return dict(value)


def address(value: object) -> str:
    """Where to listen: HOST:PORT, :PORT or unix:PATH."""
    found = text(value)
    match = _ADDRESS.fullmatch(found)
    if match is None or int(match["port"] or 0) > MAX_PORT:
        raise ValueError("must be HOST:PORT, :PORT or unix:PATH")
    return found


def one_of(*choices: str) -> Read:
    """One of these strings."""

    def choice(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be {' or '.join(choices)}")
        return str(value)

    return choice
