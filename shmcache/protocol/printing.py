"""Tables: the columns and cells that `kubectl get` shows, as servers work them out.

For built-in resources the real server's columns (printers.py, printmore.py, printpods.py); for
custom ones those of their definition; for all else name and age. Descriptions of columns are left
empty. Objects are dicts or Views.
"""

from __future__ import annotations

from shmcache.protocol.ages import UNKNOWN, human, since
from shmcache.protocol.printers import AGE, BUILTIN, NAME, NONE, WIDE, Column, at, labels
from shmcache.protocol.printmore import MORE
from shmcache.protocol.printpods import pod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from shmcache.protocol.kinds import Kind

    Object = Any

__all__ = ["NONE", "WIDE", "Column", "Shown", "cells", "columns", "columns_of", "human", "labels",
           "table"]  # fmt: skip


class Shown(list[Column]):
    """The columns of a resource, and what stands in a row."""

    row: Callable[[Object], list[Any]]

    def __init__(
        self, found: Sequence[Column], row: Callable[[Object], list[Any]] | None = None
    ) -> None:
        super().__init__(found)
        self.row = row or (lambda obj: [column.cell(obj) for column in self])


def columns(kind: Kind, *, bare: bool = False) -> Shown:
    """The columns of a resource. `bare`: those that metadata is enough for."""
    declared = kind.columns if kind.custom else None
    return columns_of(kind.key, () if bare else declared)


def columns_of(key: str, declared: Sequence[Object] | None = None) -> Shown:
    """The columns of a resource by its name without a version, as pods or deployments.apps.

    `declared`: additionalPrinterColumns of a custom one, empty if it has none.
    """
    if declared:
        return Shown([NAME, *map(_declared, declared)])
    if declared is None and key == "pods":
        return Shown(_PODS, _pod_row)
    found = (BUILTIN.get(key) or MORE.get(key)) if declared is None else None
    return Shown(found or [NAME, AGE])


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
    """What stands in a row."""
    return shown.row(obj) if isinstance(shown, Shown) else [one.cell(obj) for one in shown]


def _declared(row: Object) -> Column:
    path, kind = row["jsonPath"].strip("."), row["type"]

    def cell(obj: Object) -> Any:
        value = at(obj, path)
        if kind == "date":
            return UNKNOWN if value is None else since(value)
        return value

    return Column(row["name"], cell, kind, row.get("priority", 0), row.get("format", ""))


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
    )
    for number, name in enumerate(_POD_TITLES.split())
]
