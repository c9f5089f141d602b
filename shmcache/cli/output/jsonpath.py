r"""JSONPath as in kubectl: templates of text, {paths}, {range}...{end}, filters and quotes.

{.metadata.name}    {.items[*].metadata.name}    {range .items[*]}{.metadata.name}{"\n"}{end}
{.status.conditions[?(@.type=="Ready")].status}   {..image}   {.a['b\.c']}  {.list[-1]}  {.l[0:2]}
"""

from __future__ import annotations

import json
import re

from shmcache.cli.output import gotext
from shmcache.cli.output.finding import MISSING, USAGE, Trouble
from shmcache.protocol import jsonpath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from shmcache.protocol.jsonpath import Step

    Part = str | list[Step] | tuple[list[Step], list["Part"]]  # text, a path, a range over parts


def path(text: str, *, strict: bool = True) -> list[Step]:
    """A path without its braces. Trouble if it is invalid."""
    try:
        return jsonpath.path(text, strict=strict)
    except ValueError as error:
        raise Trouble(str(error), USAGE) from None


def walk(steps: list[Step], obj: Any) -> list[Any]:
    """The values that a path leads to. Trouble if it names an element that a list does not have."""
    try:
        return jsonpath.walk(steps, obj)
    except jsonpath.OutOfBounds as error:
        raise Trouble(f"the path cannot be followed: {error}", MISSING) from None


# ---- templates -----------------------------------------------------------------------------------


class Template:
    """A whole template, parsed once."""

    def __init__(self, text: str) -> None:
        stack: list[tuple[list[Step], list[Part]]] = [([], [])]
        for part in _split(text):
            inner = part[1:-1].strip() if part.startswith("{") else None
            if inner is None:
                stack[-1][1].append(part)
            elif inner == "end":
                if len(stack) == 1:
                    raise Trouble(f"invalid JSONPath {text!r}: {{end}} without {{range}}", USAGE)
                done = stack.pop()
                stack[-1][1].append(done)
            elif inner.startswith("range"):
                stack.append((path(inner[5:]), []))
            elif inner[:1] in {'"', "'"}:
                stack[-1][1].append(_unquoted(inner))
            else:
                stack[-1][1].append(path(inner))
        if len(stack) > 1:
            raise Trouble(f"invalid JSONPath {text!r}: {{range}} without {{end}}", USAGE)
        self._parts = stack[0][1]

    def render(self, obj: Any) -> str:
        """The text for an object."""
        return "".join(_render(self._parts, obj))


def _split(text: str) -> list[str]:
    """Literal text and {expressions}; braces within quotes do not count."""
    found = re.findall(r"""\{(?:[^{}"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*\}|[^{]+""", text)
    if "".join(found) != text:
        raise Trouble(f"invalid JSONPath {text!r}: unbalanced braces or quotes", USAGE)
    return found


def _unquoted(text: str) -> str:
    quote = text[0]
    body = text[1:-1] if text.endswith(quote) and len(text) > 1 else text[1:]
    if quote == "'":
        body = body.replace('"', '\\"')
    try:
        return str(json.loads(f'"{body}"'))
    except ValueError:
        raise Trouble(f"invalid JSONPath: {text} is not a valid string", USAGE) from None


def _render(parts: list[Part], obj: Any) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, tuple):
            for one in walk(part[0], obj):
                yield from _render(part[1], one)
        else:
            yield " ".join(map(shown, walk(part, obj)))


def shown(value: Any) -> str:
    """A value as kubectl prints it: objects and lists as JSON, everything else as Go does."""
    if hasattr(value, "keys") or (hasattr(value, "__getitem__") and not isinstance(value, str)):
        return gotext.marshalled(value)
    return gotext.printed(value)
