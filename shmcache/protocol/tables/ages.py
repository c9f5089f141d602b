"""Ages and durations as kubectl prints them: at most two units, as short as people read them."""

from __future__ import annotations

import datetime as dt
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNKNOWN, INVALID = "<unknown>", "<invalid>"
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400
UNITS = (
    (2 * MINUTE, 1, "s", 0, ""),
    (10 * MINUTE, MINUTE, "m", 1, "s"),
    (3 * HOUR, MINUTE, "m", 0, ""),
    (8 * HOUR, HOUR, "h", MINUTE, "m"),
    (2 * DAY, HOUR, "h", 0, ""),
    (8 * DAY, DAY, "d", HOUR, "h"),
    (2 * YEAR, DAY, "d", 0, ""),
    (8 * YEAR, YEAR, "y", DAY, "d"),
)
"""Below which duration it is shown how: unit, and the smaller one behind it if any."""

_MOST_KEPT = 4096
_parsed: dict[str, float] = {}  # texts of times that come again and again


def human(seconds: float) -> str:
    """The text of a duration."""
    left = int(seconds)
    if left < 0:
        return INVALID if left < -1 else "0s"
    for limit, size, unit, smaller, name in UNITS:
        if left < limit:
            second = left % size // smaller if smaller else 0
            return f"{left // size}{unit}" + (f"{second}{name}" if second else "")
    return f"{left // YEAR}y"


def timestamp(stamp: Any) -> float | None:
    """Seconds since the epoch of an RFC 3339 text; None of any other text."""
    key = str(stamp)
    found = _parsed.get(key)
    if found is None:
        try:
            found = dt.datetime.fromisoformat(key).timestamp()
        except ValueError:
            return None
        if len(_parsed) >= _MOST_KEPT:
            _parsed.clear()
        _parsed[key] = found
    return found


def now() -> float:
    """Seconds since the epoch."""
    return time.time()


def since(stamp: Any) -> str:
    """How long ago that was."""
    then = timestamp(stamp)
    return UNKNOWN if then is None else human(now() - then)


def duration(start: Any, end: Any) -> str:
    """From one time to another one, or to now."""
    first = timestamp(start)
    last = now() if end is None else timestamp(end)
    return UNKNOWN if first is None or last is None else human(last - first)
