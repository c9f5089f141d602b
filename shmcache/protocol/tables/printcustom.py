"""The columns that the definition of a custom resource declares (additionalPrinterColumns).

COL1  A path that leads nowhere, or to a value of another type than the column's, leaves its cell
      empty (None). Of several values a column shows the first one.
COL2  A column of strings shows every value as text: lists and maps as JSON.
COL3  Definitions and objects come from strangers, and a cell costs no more than its object is long:
      a path that is longer than LONGEST, or has more than one step that can lead to a value again
      (a union, `..`), leaves its cells empty. So do objects that are nested too deeply, and numbers
      of more than 64 bits.
"""

from __future__ import annotations

from shmcache.protocol.tables.ages import INVALID, since, timestamp
from shmcache.protocol.tables.columns import Column, at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Object = Any
    Shown = Callable[[Any], Any]

CUSTOM_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
"""The column of a resource whose definition declares none."""
LONGEST = 1024
"""Characters of a path."""
_INTEGERS = range(-(1 << 63), 1 << 63)
_LARGE = 1e21
"""Go prints floats from here on with an exponent."""


def declared_column(row: Mapping[str, Any]) -> Column:
    """One column of a definition."""
    path, kind = str(row.get("jsonPath") or ""), str(row.get("type") or "string")
    value = _value_of(path)
    shown: Shown = _SHOWN.get(kind, _nothing)

    def cell(obj: Object) -> Any:
        try:
            found = value(obj)
            return None if found is None else shown(found)
        except RecursionError:
            return None

    return Column(
        str(row.get("name") or ""),
        cell,
        kind,
        priority if isinstance(priority := row.get("priority"), int) else 0,
        str(row.get("format") or ""),
        description=str(row.get("description") or _DESCRIPTION + path),
    )


_DESCRIPTION = "Custom resource definition column (in JSONPath format): "


def _value_of(path: str) -> Callable[[Object], Any]:
    names = path.removeprefix(".")
    if names and all(part.isidentifier() for part in names.split(".")):
        return lambda obj: at(obj, names)
    from shmcache.protocol import jsonpath

    if len(path) > LONGEST or jsonpath.repeats(path) > 1:
        return _nothing
    try:
        steps = jsonpath.path(path)
    except ValueError:
        return _nothing
    return lambda obj: next(iter(jsonpath.walk(steps, obj)), None)


def _nothing(_: Any) -> None:
    return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and abs(value) < _LARGE and value.is_integer():
        return str(int(value))
    import json

    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(
        value, separators=(",", ":"), sort_keys=True, default=_plain, ensure_ascii=False
    )


def _plain(view: Any) -> Any:
    """A dict or a list of a View."""
    return dict(view.items()) if hasattr(view, "items") else list(view)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if int(value) in _INTEGERS else None


def _number(value: Any) -> float | int | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _date(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return since(value) if timestamp(value) is not None else INVALID


_SHOWN: dict[str, Shown] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
