"""Columns of tables, and the cells that several of them have. Cells work on dicts and Views."""

from __future__ import annotations

from shmcache.protocol.tables.ages import UNKNOWN, since

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Object = Any
    Cell = Callable[[Object], Any]

NONE = "<none>"
WIDE = 1
"""The priority of columns that only `-o wide` shows."""


class Column:
    """One column, and what it shows of an object."""

    __slots__ = ("cell", "description", "format", "name", "priority", "type")

    def __init__(
        self,
        name: str,
        cell: Cell,
        kind: str = "string",
        priority: int = 0,
        form: str = "",
        *,
        description: str = "",
    ) -> None:
        self.name = name
        self.cell = cell
        self.type = kind
        self.priority = priority
        self.format = form
        self.description = description

    def definition(self) -> dict[str, Any]:
        """As the table's head has it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


# ---- cells ---------------------------------------------------------------------------------------


def at(obj: Object, path: str) -> Any:
    """The value at a path of names; None if there is nothing."""
    for step in path.split("."):
        try:
            obj = obj.get(step)
        except AttributeError:
            return None
    return obj


def text(path: str, nothing: str = NONE) -> Cell:
    """The text at a path."""

    def cell(obj: Object) -> str:
        value = at(obj, path)
        return nothing if value is None or value == "" else str(value)

    return cell


def number(path: str) -> Cell:
    """The number at a path, 0 without one."""
    return lambda obj: at(obj, path) or 0


def length(path: str) -> Cell:
    """The number of elements at a path."""
    return lambda obj: len(at(obj, path) or ())


def flag(path: str, *, default: bool = False) -> Cell:
    """The boolean at a path."""

    def cell(obj: Object) -> bool:
        value = at(obj, path)
        return default if value is None else bool(value)

    return cell


def ready_of(ready: str, wanted: str) -> Cell:
    """Two numbers, as 1/3."""
    return lambda obj: f"{at(obj, ready) or 0}/{at(obj, wanted) or 0}"


def joined(path: str, nothing: str = NONE) -> Cell:
    """The elements at a path, with commas."""
    return lambda obj: ",".join(map(str, at(obj, path) or ())) or nothing


def age(path: str = "metadata.creationTimestamp", nothing: str = UNKNOWN) -> Cell:
    """The age of a time at a path."""

    def cell(obj: Object) -> str:
        value = at(obj, path)
        return nothing if value is None else since(value)

    return cell


def holds(path: str, kind: str) -> Cell:
    """The status of the first condition of a kind, None without one."""
    return lambda obj: next(
        (one.get("status") for one in at(obj, path) or () if one.get("type") == kind), None
    )


def default_name(*annotations: str) -> Cell:
    """The name of a class, marked where one of these annotations makes it the default."""

    def cell(obj: Object) -> str:
        notes = obj["metadata"].get("annotations") or {}
        is_default = any(notes.get(one) == "true" for one in annotations)
        return str(obj["metadata"].get("name", "")) + (" (default)" if is_default else "")

    return cell


def more(found: Sequence[str], most: int, total: int, nothing: str) -> str:
    """The first `most` of `total` texts, and how many are left out."""
    rest = f" + {total - most} more..." if total > most else ""
    return (",".join(found[:most]) or ("" if rest else nothing)) + rest


# ---- labels --------------------------------------------------------------------------------------


def labels(found: Mapping[str, Any] | None) -> str:
    """k=v,k2=v2 in order, as selectors and --show-labels have it."""
    return ",".join(f"{key}={found[key]}" for key in sorted(found)) if found else NONE


def labels_at(path: str) -> Cell:
    """The labels at a path."""
    return lambda obj: labels(at(obj, path))


def selector(path: str, nothing: str = NONE) -> Cell:
    """The label selector at a path as text, its terms in the order of their keys."""

    def cell(obj: Object) -> str:
        found = at(obj, path) or {}
        terms = [(key, f"{key}={value}") for key, value in (found.get("matchLabels") or {}).items()]
        terms += [(one["key"], _term(one)) for one in found.get("matchExpressions") or ()]
        return ",".join(term for _, term in sorted(terms, key=_first)) or nothing

    return cell


def _first(pair: tuple[str, str]) -> str:
    return pair[0]


def _term(one: Object) -> str:
    key, operator = one["key"], one["operator"]
    if operator in {"In", "NotIn"}:
        return f"{key} {operator.lower()} ({','.join(sorted(one.get('values') or ()))})"
    return str(key) if operator == "Exists" else f"!{key}"


# ---- columns -------------------------------------------------------------------------------------


def wide(name: str, cell: Cell, kind: str = "string") -> Column:
    """A column that only `-o wide` shows."""
    return Column(name, cell, kind, WIDE)


def named(cell: Cell) -> Column:
    """A column Name with a cell of its own."""
    return Column("Name", cell, form="name", description=_NAME)


def each(path: str, key: str) -> Cell:
    """One member of each element at a path, with commas."""
    return lambda obj: ",".join(str(one.get(key) or "") for one in at(obj, path) or ())


def containers(path: str = "spec.template.spec.containers") -> list[Column]:
    """The columns about the containers of a template."""
    return [wide("Containers", each(path, "name")), wide("Images", each(path, "image"))]


_NAME = (
    "Name must be unique within a namespace. Is required when creating resources, although some "
    "resources may allow a client to request the generation of an appropriate name automatically. "
    "Name is primarily intended for creation idempotence and configuration definition. Cannot be "
    "updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
NAME = named(lambda obj: obj["metadata"].get("name", ""))
AGE = Column("Age", age())
CREATED = Column("Created At", text("metadata.creationTimestamp", UNKNOWN), "date")
DEFAULT = [NAME, CREATED]
"""The columns of resources for which the server has no printer."""
