"""JSON text from outside, decoded.

JSON1  text that Python cannot decode is refused with ValueError, whatever is wrong with it. For one
    that is nested too deeply the json module itself raises RecursionError, which nobody expects.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def decoded(text: str | bytes) -> Any:
    """The value of a text. ValueError if it is not JSON, or nested too deeply (JSON1)."""
    import json

    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_text(value: object) -> bool:
    """Whether it is a string that has bytes: JSON can write half of a surrogate pair, alone."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
