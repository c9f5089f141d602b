r"""Paths of JSONPath as kubectl and definitions of custom resources have them.

.metadata.name    .status.conditions[?(@.type=="Ready")].status    ..image    .a['b\.c']    .l[-1]

A quoted name in brackets is a path of its own, as in kubectl: a dot in a name needs a backslash.
"""

from __future__ import annotations

import re

from shmcache.protocol.jsontext import decoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Step = Callable[[list[Any]], list[Any]]

DIGITS = 18
"""Of a number in a path: no list is longer."""
_STEP = re.compile(
    r"""\.\.(?P<deep>[\w*-]+)            # anywhere below
      | \.?\[\?\((?P<filter>.*?)\)\]     # those for which something holds
      | \.?\[(?P<quoted>\s*'[^']*'\s*(?:,\s*'[^']*'\s*)*)\]
      | \.?\[(?P<index>[^\]]*)\]
      | \.(?P<name>(?:\\.|[^.\[\\{}\s])+)
      | (?P<root>[$@])""",
    re.VERBOSE,
)
_FILTER = re.compile(r"(?P<left>@.*?)(?:(?P<op>==|!=|<=|>=|<|>)(?P<right>.*+))?")
"""Of a text without blanks around it; linear, since no blanks belong to two repetitions."""


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


class OutOfBounds(LookupError):
    """A strict path names an element that a list does not have."""


def _indexed(text: str, *, strict: bool) -> Step:
    if text.strip() == "*":
        return _named("*")
    bounds = [_bound(part) if part.strip() else None for part in text.split(":")]
    if len(bounds) > 3 or bounds == [None] or bounds[2:] == [0]:
        raise ValueError(text)

    def step(found: list[Any]) -> list[Any]:
        lists = [list(one) for one in found if _is_list(one)]
        if len(bounds) > 1:
            if strict and not all(map(len, lists)):
                raise OutOfBounds(f"an empty list has no elements [{text}]")
            return [value for one in lists for value in one[slice(*bounds)]]
        at = bounds[0] or 0
        for one in lists if strict else ():
            if not -len(one) <= at < len(one):
                raise OutOfBounds(f"a list of {len(one)} has no element {at}")
        return [one[at] for one in lists if -len(one) <= at < len(one)]

    return step


def _bound(text: str) -> int:
    """A number of an index. The time for a long one grows with the square of its digits."""
    if len(text) > DIGITS:
        raise ValueError(text)
    return int(text)


def _union(steps: list[Step]) -> Step:
    if len(steps) == 1:
        return steps[0]
    return lambda found: [value for step in steps for value in step(found)]


def _filtered(text: str) -> Step:
    match = _FILTER.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    left, operator = path(match["left"]), match["op"]
    right = _literal(match["right"].strip()) if operator else None

    def holds(one: Any) -> bool:
        found = walk(left, one)
        if not operator:
            return bool(found)
        return bool(found) and _compares(found[0], operator, right)

    return lambda found: [value for one in found for value in _values(one) if holds(value)]


def _literal(text: str) -> Any:
    try:
        return decoded(text.replace("'", '"'))
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


def path(text: str, *, strict: bool = False) -> list[Step]:
    """A path without its braces. ValueError where it cannot be read.

    `strict`: an element that a list does not have is OutOfBounds, as for `kubectl get -o jsonpath`.
    """
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
            _add(steps, match, strict=strict)
        except ValueError:
            raise _unreadable(text, at) from None
        at = match.end()
    return steps


def _add(steps: list[Step], match: re.Match[str], *, strict: bool) -> None:
    if match["deep"] is not None:
        steps.append(_deep(match["deep"]))
    elif match["filter"] is not None:
        steps.append(_filtered(match["filter"]))
    elif match["quoted"] is not None:
        names = re.findall(r"'([^']*)'", match["quoted"])
        steps.append(_union([_along(path("." + name, strict=strict)) for name in names]))
    elif match["index"] is not None:
        parts = match["index"].split(",")
        steps.append(_union([_indexed(part, strict=strict) for part in parts]))
    elif match["name"] is not None:
        steps.append(_named(re.sub(r"\\(.)", r"\1", match["name"])))


def _along(steps: list[Step]) -> Step:
    """The steps of a path as one."""

    def step(found: list[Any]) -> list[Any]:
        for one in steps:
            found = one(found)
        return found

    return step


def repeats(text: str) -> int:
    """How many steps of a path can lead to a value again (parts of unions, `..`), at most.

    The work of several such steps is their product: exponential in the length of the path.
    """
    return text.count(",") + text.count("..")


def _unreadable(text: str, at: int) -> ValueError:
    return ValueError(f"invalid JSONPath {text!r}: unexpected {text[at:]!r}")


def walk(steps: list[Step], obj: Any) -> list[Any]:
    """The values that a path leads to."""
    found = [obj]
    for step in steps:
        found = step(found)
        if not found:
            break
    return found
