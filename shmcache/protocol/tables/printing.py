"""Tables: the columns and cells that `kubectl get` shows, as servers work them out.

Built-in resources have the columns of a server of 1.36, one module for a few groups each; pods
have theirs here, and their state by printpods.py; custom ones have those of their definition
(printcustom.py). Of built-in resources only the column Name has its description. Objects are dicts
or Views.

PRINT1  an object that is not as its kind, as a program or an etcd may have it, costs the cells that
    cannot be worked out, and neither its row nor the table.

A new built-in resource takes a line in builtins.py, and its columns in the module of its group.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from shmcache.protocol.tables.ages import INVALID, UNKNOWN, human, since
from shmcache.protocol.tables.columns import AGE, NAME, NONE, WIDE, Column, labels
from shmcache.protocol.tables.printcustom import CUSTOM_AGE, declared_column
from shmcache.protocol.tables.printpods import pod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from shmcache.protocol.kinds import Kind

    Object = Any

__all__ = ["NONE", "WIDE", "Column", "Shown", "cells", "columns", "columns_of", "human", "labels",
           "table"]  # fmt: skip


ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of a cell that expects another object (PRINT1)."""
MODULES = ("core", "workloads", "networks", "volumes", "rights", "extensions", "machinery")
"""The modules with the columns of built-in resources, imported when the first table is shown."""


class Shown(list[Column]):
    """The columns of a resource, and the cells of a row."""

    row: Callable[[Object], list[Any]]

    def __init__(
        self, found: Sequence[Column], row: Callable[[Object], list[Any]] | None = None
    ) -> None:
        super().__init__(found)
        self.row = row or (lambda obj: [column.cell(obj) for column in self])


def columns(kind: Kind, *, bare: bool = False) -> Shown:
    """The columns of a resource. `bare`: those that metadata is enough for."""
    if bare:
        return Shown([NAME, AGE])
    return columns_of(kind.key, kind.columns if kind.custom else None)


def columns_of(key: str, declared: Sequence[Object] | None = None) -> Shown:
    """The columns of a resource by its name without a version, as pods or deployments.apps.

    `declared`: additionalPrinterColumns of a custom one, empty if it has none.
    """
    if declared is not None:
        return Shown([NAME, *map(declared_column, declared or [CUSTOM_AGE])])
    if key == "pods":
        return Shown(_PODS, _pod_row)
    return Shown(_builtin().get(key) or [NAME, AGE])


@cache
def _builtin() -> Mapping[str, list[Column]]:
    found: dict[str, list[Column]] = {}
    for name in MODULES:
        found |= import_module(f"shmcache.protocol.tables.{name}").COLUMNS
    return found


def printed() -> frozenset[str]:
    """The built-in resources that have columns of their own."""
    return frozenset({"pods", *_builtin()})


def table(
    shown: Sequence[Column] | None,
    rows: list[Object],
    metadata: Object,
    api_version: str = "meta.k8s.io/v1",
) -> dict[str, Any]:
    """A Table; without columns where a watch has shown them already."""
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": None if shown is None else [one.definition() for one in shown],
        "rows": rows,
    }


def cells(shown: Sequence[Column], obj: Object) -> list[Any]:
    """The cells of a row; PRINT1 of an object that is not as its kind."""
    try:
        return shown.row(obj) if isinstance(shown, Shown) else [one.cell(obj) for one in shown]
    except ODD:
        return [_cell(one, obj) for one in shown]


def _cell(column: Column, obj: Object) -> Any:
    try:
        return column.cell(obj)
    except ODD:
        try:
            return NAME.cell(obj) if column.name == NAME.name else INVALID
        except ODD:
            return INVALID


# ---- pods: all cells at once, since what they show is found on one way ---------------------------


def _pod_row(obj: Object) -> list[Any]:
    ready, said, restarts, last = pod(obj)
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    ago = f"{restarts} ({since(last)} ago)" if restarts and last else str(restarts)
    created = metadata.get("creationTimestamp")
    return [
        metadata.get("name", ""),
        ready,
        said,
        ago,
        UNKNOWN if created is None else since(created),
        _ip(status),
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec, status),
    ]


def _ip(status: Object) -> str:
    ips = status.get("podIPs")
    return (ips[0].get("ip") if ips else status.get("podIP")) or NONE


def _gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates")
    if not gates:
        return NONE
    held = {
        one.get("type") for one in status.get("conditions") or () if one.get("status") == "True"
    }
    return f"{sum(one.get('conditionType') in held for one in gates)}/{len(gates)}"


def _pod_cell(number: int) -> Callable[[Object], Any]:
    return lambda obj: _pod_row(obj)[number]


_POD_TITLES = "Name Ready Status Restarts Age IP Node Nominated_Node Readiness_Gates"
_PODS = [
    Column(
        name.replace("_", " "),
        _pod_cell(number),
        priority=WIDE if number > 4 else 0,
        form="" if number else "name",
        description="" if number else NAME.description,
    )
    for number, name in enumerate(_POD_TITLES.split())
]
