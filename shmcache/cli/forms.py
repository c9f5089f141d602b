"""The forms of `-o`: json, yaml, name, wide, jsonpath=..., custom-columns=...

A form is given the objects of a selection, and gives text. Tables are made in get.py, which knows
columns; here is what only needs objects.
"""

from __future__ import annotations

import json

import shmcache
from shmcache.cli.finding import USAGE, Trouble
from shmcache.cli.grid import Grid, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Sequence
    from typing import Any, Protocol

    from shmcache.cli.names import Kind

    Found = Sequence[tuple[Kind, Any]]

    class Form(Protocol):
        """Of objects with their kinds; `alone`: one was asked for by its name."""

        def __call__(self, found: Found, /, *, alone: bool) -> str:  # noqa: D102
            ...


FORMS = "json, yaml, name, wide, jsonpath=TEMPLATE, custom-columns=NAME:PATH,..."


def form_of(text: str) -> Form | None:
    """What `-o TEXT` makes of objects; None is a table, as of `wide`. Trouble for what is none."""
    name, equals, rest = text.partition("=")
    if name in {"", "wide"} and not equals:
        return None
    if name in _SIMPLE and not equals:
        return _SIMPLE[name]
    if name == "jsonpath" and rest:
        return _jsonpath(rest)
    if name == "custom-columns" and rest:
        return _custom(rest)
    raise Trouble(f"-o {text!r}: one of {FORMS} is wanted", USAGE)


def json_line(obj: Any) -> str:
    """One object in one line."""
    return json.dumps(obj, default=shmcache.default, sort_keys=True, ensure_ascii=False)


def _whole(found: Found, *, alone: bool) -> Any:
    """The one object, or a List."""
    if alone and len(found) == 1:
        return found[0][1]
    items = [obj for _, obj in found]
    return {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}


def _json(found: Found, *, alone: bool) -> str:
    whole = _whole(found, alone=alone)
    try:
        import orjson
    except ModuleNotFoundError:  # it is quicker, and not needed
        text = json.dumps(whole, indent=4, sort_keys=True, default=shmcache.default)
        return text + "\n"
    import re

    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    found_text = orjson.dumps(whole, default=shmcache.default, option=options).decode()
    return re.sub("^ +", _twice, found_text, flags=re.MULTILINE) + "\n"


def _twice(spaces: re.Match[str]) -> str:
    """By four, as kubectl; no text of JSON goes over several lines."""
    return spaces[0] * 2


def _yaml(found: Found, *, alone: bool) -> str:
    from shmcache.cli import yaml

    return yaml.text(_whole(found, alone=alone))


def _name(found: Found, *, alone: bool) -> str:  # noqa: ARG001 - as each form
    return "".join([f"{kind.called(obj['metadata']['name'])}\n" for kind, obj in found])


_SIMPLE: dict[str, Form] = {"json": _json, "yaml": _yaml, "name": _name}


def _jsonpath(text: str) -> Form:
    from shmcache.cli.jsonpath import Template

    template = Template(text if "{" in text else "{" + text + "}")

    def form(found: Found, *, alone: bool) -> str:
        if alone and len(found) == 1:
            return template.render(found[0][1])
        return template.render({"items": [obj for _, obj in found], "kind": "List"})

    return form


def _custom(text: str) -> Form:
    from shmcache.cli import jsonpath

    pairs = [part.partition(":") for part in text.split(",")]
    if not all(name and way for name, _, way in pairs):
        raise Trouble(f"custom-columns={text}: NAME:PATH,NAME:PATH is wanted", USAGE)
    paths = [jsonpath.path(way.strip("{}")) for _, _, way in pairs]

    def form(found: Found, *, alone: bool) -> str:  # noqa: ARG001 - as each form
        rows = [[name for name, _, _ in pairs]]
        for _, obj in found:
            values = [jsonpath.walk(path, obj) for path in paths]
            rows.append([_cell(one) for one in values])
        return Grid().lines(rows)

    return form


def _cell(values: list[Any]) -> str:
    from shmcache.cli import jsonpath

    return one_line(",".join(map(jsonpath.shown, values))) if values else "<none>"
