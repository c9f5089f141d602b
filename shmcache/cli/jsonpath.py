r"""JSONPath as kubectl has it: templates of text, {paths}, {range}...{end}, filters and quotes.

{.metadata.name}    {.items[*].metadata.name}    {range .items[*]}{.metadata.name}{"\n"}{end}
{.status.conditions[?(@.type=="Ready")].status}   {..image}   {.a['b.c']}   {.list[-1]}  {.l[0:2]}
"""

from __future__ import annotations

import json
import re

from shmcache.cli.finding import USAGE, Trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Step = Callable[[list[Any]], list[Any]]
    Part = str | list[Step] | tuple[list[Step], list["Part"]]  # text, a path, a range over parts

_STEP = re.compile(
    r"""\.\.(?P<deep>[\w*-]+)            # anywhere below
      | \.?\[\?\((?P<filter>.*?)\)\]     # those for which something holds
      | \.?\['(?P<quoted>[^']*)'\]
      | \.?\[(?P<index>[^\]]*)\]
      | \.(?P<name>(?:\\.|[^.\[\\{}\s])+)
      | (?P<root>[$@])""",
    re.VERBOSE,
)
_FILTER = re.compile(r"\s*(?P<left>@.*?)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<right>.*?)\s*)?")


def _values(found: Any) -> list[Any]:
    if hasattr(found, "values"):
        return list(found.values())
    return list(found) if hasattr(found, "append") or _is_list(found) else []


def _is_list(found: Any) -> bool:
    return (
        hasattr(found, "__getitem__") and not hasattr(found, "keys") and not isinstance(found, str)
    )


def _named(name: str) -> Step:
    def step(found: list[Any]) -> list[Any]:
        if name == "*":
            return [value for one in found for value in _values(one)]
        return [one[name] for one in found if hasattr(one, "keys") and name in one]

    return step


def _deep(name: str) -> Step:
    def below(one: Any) -> Iterator[Any]:
        if hasattr(one, "keys") and (name in one or name == "*"):
            yield from one.values() if name == "*" else [one[name]]
        for value in _values(one):
            yield from below(value)

    return lambda found: [value for one in found for value in below(one)]


def _indexed(text: str) -> Step:
    if text.strip() == "*":
        return _named("*")
    bounds = [int(part) if part.strip() else None for part in text.split(":")]
    if len(bounds) > 3 or bounds == [None]:
        raise ValueError(text)

    def step(found: list[Any]) -> list[Any]:
        lists = [list(one) for one in found if _is_list(one)]
        if len(bounds) > 1:
            return [value for one in lists for value in one[slice(*bounds)]]
        at = bounds[0] or 0
        return [one[at] for one in lists if -len(one) <= at < len(one)]

    return step


def _union(text: str) -> Step:
    steps = [_indexed(part) for part in text.split(",")]
    return lambda found: [value for step in steps for value in step(found)]


def _filtered(text: str) -> Step:
    match = _FILTER.fullmatch(text)
    if match is None:
        raise ValueError(text)
    left, operator = path(match["left"]), match["op"]
    right = _literal(match["right"]) if operator else None

    def holds(one: Any) -> bool:
        found = walk(left, one)
        if not operator:
            return bool(found)
        return bool(found) and _compares(found[0], operator, right)

    return lambda found: [value for one in found for value in _values(one) if holds(value)]


def _literal(text: str) -> Any:
    try:
        return json.loads(text.replace("'", '"'))
    except ValueError:
        return text


def _compares(left: Any, operator: str, right: Any) -> bool:
    equal = bool(left == right)
    if operator in {"==", "!="}:
        return equal == (operator == "==")
    try:
        less = bool(left < right)
    except TypeError:
        return False
    return {"<": less, "<=": less or equal, ">": not less and not equal, ">=": not less}[operator]


def path(text: str) -> list[Step]:
    """A path without its braces. Trouble where it cannot be read."""
    text = text.strip()
    if text and text[0] not in ".[$@":
        text = "." + text
    steps: list[Step] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            if text[at:] == ".":
                break
            raise _unreadable(text, at)
        try:
            _add(steps, match)
        except ValueError:
            raise _unreadable(text, at) from None
        at = match.end()
    return steps


def _add(steps: list[Step], match: re.Match[str]) -> None:
    if match["deep"] is not None:
        steps.append(_deep(match["deep"]))
    elif match["filter"] is not None:
        steps.append(_filtered(match["filter"]))
    elif match["quoted"] is not None:
        steps.append(_named(match["quoted"]))
    elif match["index"] is not None:
        steps.append(_union(match["index"]))
    elif match["name"] is not None:
        steps.append(_named(re.sub(r"\\(.)", r"\1", match["name"])))


def _unreadable(text: str, at: int) -> Trouble:
    return Trouble(f"jsonpath {text!r} cannot be read from {text[at:]!r} on", USAGE)


def walk(steps: list[Step], obj: Any) -> list[Any]:
    """What a path leads to: any number of values."""
    found = [obj]
    for step in steps:
        found = step(found)
    return found


# ---- templates -----------------------------------------------------------------------------------


class Template:
    """A whole template, read once."""

    def __init__(self, text: str) -> None:
        stack: list[tuple[list[Step], list[Part]]] = [([], [])]
        for part in _split(text):
            inner = part[1:-1].strip() if part.startswith("{") else None
            if inner is None:
                stack[-1][1].append(part)
            elif inner == "end":
                if len(stack) == 1:
                    raise Trouble(f"jsonpath {text!r}: an end without a range", USAGE)
                done = stack.pop()
                stack[-1][1].append(done)
            elif inner.startswith("range"):
                stack.append((path(inner[5:]), []))
            elif inner[:1] in {'"', "'"}:
                stack[-1][1].append(_unquoted(inner))
            else:
                stack[-1][1].append(path(inner))
        if len(stack) > 1:
            raise Trouble(f"jsonpath {text!r}: a range without its {{end}}", USAGE)
        self._parts = stack[0][1]

    def render(self, obj: Any) -> str:
        """What it makes of an object."""
        return "".join(_render(self._parts, obj))


def _split(text: str) -> list[str]:
    """Texts and {expressions}; a brace within quotes is none."""
    found = re.findall(r"""\{(?:[^{}"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*\}|[^{]+""", text)
    if "".join(found) != text:
        raise Trouble(f"jsonpath {text!r}: its braces do not match", USAGE)
    return found


def _unquoted(text: str) -> str:
    quote = text[0]
    body = text[1:-1] if text.endswith(quote) and len(text) > 1 else text[1:]
    if quote == "'":
        body = body.replace('"', '\\"')
    try:
        return str(json.loads(f'"{body}"'))
    except ValueError:
        raise Trouble(f"jsonpath: {text} is no text", USAGE) from None


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
    """A value as kubectl prints it: texts bare, all else as JSON."""
    if isinstance(value, str):
        return value
    import shmcache

    return json.dumps(value, separators=(",", ":"), default=shmcache.default, ensure_ascii=False)
