"""Objects as YAML, in the form that kubectl writes: keys in order, lists not indented.

A text stands bare where nobody could take it for something else.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_./$(<][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]*")
_ELSE = re.compile(
    r"[-+]?(0[xo][0-9a-f_]+|[0-9][0-9_]*(\.[0-9_]*)?(e[-+]?[0-9]+)?|\.[0-9_]+(e[-+]?[0-9]+)?"
    r"|\.inf|\.nan|[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?)"
    r"|\d{4}-\d\d?-\d\d?([Tt ].*)?|~|null|true|false|yes|no|on|off|y|n|",
    re.IGNORECASE,
)


def text(value: Any) -> str:
    """A whole document."""
    return "".join(_node(value, ""))


def _node(value: Any, indent: str) -> Iterator[str]:
    if hasattr(value, "keys"):
        for key in sorted(value):
            yield f"{indent}{_scalar(key)}:"
            yield from _member(value[key], indent, "  ")
    elif _is_list(value):
        for one in value:
            if (hasattr(one, "keys") or _is_list(one)) and len(one):
                first, *rest = "".join(_node(one, indent + "  ")).splitlines(keepends=True)
                yield f"{indent}- {first.removeprefix(indent + '  ')}"
                yield from rest
            else:
                yield f"{indent}-"
                yield from _member(one, indent, "  ")
    else:
        yield f"{_scalar(value)}\n"


def _member(value: Any, indent: str, deeper: str) -> Iterator[str]:
    """What stands behind a key's colon, or a list's dash."""
    if hasattr(value, "keys"):
        yield "\n" if len(value) else " {}\n"
        yield from _node(value, indent + deeper)
    elif _is_list(value):
        yield "\n" if len(value) else " []\n"
        yield from _node(value, indent)
    elif isinstance(value, str) and "\n" in value and _fits_block(value):
        yield from _block(value, indent + deeper)
    else:
        yield f" {_scalar(value)}\n"


def _is_list(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, str) and not hasattr(value, "keys")


def _fits_block(value: str) -> bool:
    return all(line == "\n" or line.rstrip("\n").isprintable() for line in value.split("\n")) and (
        not value.startswith((" ", "\n"))
    )


def _block(value: str, indent: str) -> Iterator[str]:
    ends = len(value) - len(value.rstrip("\n"))
    yield f" |{'-' if ends == 0 else '' if ends == 1 else '+'}\n"
    for line in value.removesuffix("\n").split("\n"):
        yield f"{indent}{line}\n" if line else "\n"


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _ELSE.fullmatch(value):
        return '""' if not value else json.dumps(value, ensure_ascii=False)
    risky = ": " in value or " #" in value or value.endswith((":", " ")) or "\n" in value
    if _BARE.fullmatch(value) and not risky:
        return value
    if value.isprintable() and not risky and "'" not in value and '"' not in value:
        return f"'{value}'"
    if value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value, ensure_ascii=False)
