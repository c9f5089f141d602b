"""The forms of `-o`: json, yaml, name, wide, jsonpath=..., custom-columns=...

A form turns the objects of a selection into text. Tables are made in get.py, which knows columns.
"""

from __future__ import annotations

import shmcache
from shmcache.cli.output import gotext
from shmcache.cli.output.finding import USAGE, Trouble
from shmcache.cli.output.names import called
from shmcache.reader.sharding import metadata_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Sequence
    from typing import Any, Protocol

    from shmcache.protocol.kinds import Kind

    Found = Sequence[tuple[Kind, Any]]

    class OutputForm(Protocol):
        """Takes objects with their kinds; `alone`: the command names a single object."""

        def __call__(self, found: Found, /, *, alone: bool) -> str:  # noqa: D102
            ...


FORMS = "wide, name, json, yaml, jsonpath=TEMPLATE or custom-columns=TITLE:PATH,…"
_UNSUPPORTED = frozenset(
    ("go-template", "go-template-file", "template", "templatefile", "kyaml")
)  # of kubectl


def form_of(text: str, *, headers: bool = True) -> OutputForm | None:  # noqa: PLR0911 - a table
    """The form of `-o TEXT`; None for a table. Trouble for an invalid one."""
    name, equals, rest = text.partition("=")
    name = name.lower()
    if name in {"", "wide"} and not equals:
        return None
    if name in _SIMPLE and not equals:
        return _SIMPLE[name]
    if name == "jsonpath" and rest:
        return _jsonpath(rest)
    if name == "jsonpath-file" and rest:
        return _jsonpath(_content(name, rest))
    if name == "jsonpath-as-json" and rest:
        return _jsonpath_as_json(rest)
    if name == "custom-columns" and rest:
        return _custom(rest, headers=headers)
    if name == "custom-columns-file" and rest:
        return _custom_file(_content(name, rest), headers=headers)
    raise _unknown(text, name)


def _unknown(text: str, name: str) -> Trouble:
    from shmcache.cli.arguments import closest

    if name in _UNSUPPORTED:
        return Trouble(
            f"-o {name} is not supported; use -o jsonpath=TEMPLATE, or -o json and another tool",
            USAGE,
        )
    if name in {"jsonpath", "custom-columns"}:
        return Trouble(f"-o {name} needs a value, as in -o {name}={_EXAMPLES[name]}", USAGE)
    near = closest(name, ["wide", "name", "json", "yaml", "jsonpath", "custom-columns"])
    hint = f"; did you mean {near}?" if near else ""
    return Trouble(f"-o must be {FORMS}, not {text!r}{hint}", USAGE)


_EXAMPLES = {
    "jsonpath": "'{.items[*].metadata.name}'",
    "custom-columns": "NAME:.metadata.name,NODE:.spec.nodeName",
}


def _content(form: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Trouble(f"-o {form}={path}: the file cannot be read: {reason}", USAGE) from None


def without_fields(found: Found) -> Found:
    """The objects without metadata.managedFields, as kubectl shows them."""
    return [(kind, without_managed_fields(obj)) for kind, obj in found]


def without_managed_fields(obj: Any) -> Any:
    """One object without metadata.managedFields."""
    metadata = metadata_of(obj)
    if "managedFields" not in metadata:
        return obj
    rest = {name: metadata[name] for name in metadata if name != "managedFields"}
    return {**{name: obj[name] for name in obj}, "metadata": rest}


def event_line(event: str, obj: Any) -> str:
    """An event of a watch as JSON in one line."""
    return f'{{"type":"{event}","object":{gotext.marshalled(obj)}}}\n'


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
        return gotext.marshalled(whole, indent=4) + "\n"
    import re

    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    found_text = orjson.dumps(whole, default=shmcache.default, option=options).decode()
    return gotext.escaped(re.sub("^ +", _twice, found_text, flags=re.MULTILINE)) + "\n"


def _twice(spaces: re.Match[str]) -> str:
    """By four, as kubectl; no text of JSON goes over several lines."""
    return spaces[0] * 2


def _yaml(found: Found, *, alone: bool) -> str:
    from shmcache.cli.output import yaml

    return yaml.text(_whole(found, alone=alone))


def _name(found: Found, *, alone: bool) -> str:  # noqa: ARG001 - as each form
    return "".join([f"{called(kind, metadata_of(obj).get('name', ''))}\n" for kind, obj in found])


_SIMPLE: dict[str, OutputForm] = {"json": _json, "yaml": _yaml, "name": _name}


def _jsonpath(text: str) -> OutputForm:
    from shmcache.cli.output.jsonpath import Template

    template = Template(text)

    def form(found: Found, *, alone: bool) -> str:
        return template.render(_whole(found, alone=alone))

    return form


def _jsonpath_as_json(text: str) -> OutputForm:
    from shmcache.cli.output import jsonpath

    template = text.strip()
    if not (template.startswith("{") and template.endswith("}")):
        template = "{" + template + "}"
    steps = jsonpath.path(template[1:-1])

    def form(found: Found, *, alone: bool) -> str:
        values = jsonpath.walk(steps, _whole(found, alone=alone))
        return gotext.marshalled(values, indent=4) + "\n"

    return form


def _custom_file(text: str, *, headers: bool) -> OutputForm:
    """A line of titles, and a line of paths below them."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if len(lines) != 2 or len(lines[0]) != len(lines[1]):
        raise Trouble(
            "-o custom-columns-file: the file must have a line of titles and a line of paths", USAGE
        )
    return _custom(
        ",".join(f"{title}:{path}" for title, path in zip(*lines, strict=True)), headers=headers
    )


def _custom(text: str, *, headers: bool) -> OutputForm:
    pairs = [part.partition(":") for part in text.split(",")]
    if not all(name and way for name, _, way in pairs):
        raise Trouble(f"-o custom-columns must be TITLE:PATH,TITLE:PATH, not {text!r}", USAGE)
    titles = [name for name, _, _ in pairs]
    return CustomColumns(titles if headers else [], [way.strip("{}") for _, _, way in pairs])


class CustomColumns:
    """The form of -o custom-columns."""

    def __init__(self, titles: list[str], paths: list[str]) -> None:
        from shmcache.cli.output import jsonpath

        self.titles = titles
        """Nothing with --no-headers."""
        self._walk = jsonpath.walk
        self._paths = [jsonpath.path(path) for path in paths]

    def row(self, obj: Any) -> list[str]:
        """The cells of an object."""
        return [_cell(self._walk(path, obj)) for path in self._paths]

    def __call__(self, found: Found, *, alone: bool) -> str:  # noqa: ARG002 - as each form
        """The whole table."""
        head = [self.titles] if self.titles else []
        return gotext.Tabs().lines([*head, *(self.row(obj) for _, obj in found)])


def _cell(values: list[Any]) -> str:
    return ",".join(map(gotext.printed, values)) if values else "<none>"
