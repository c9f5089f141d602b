"""Tables: the columns and cells that `kubectl get` shows, as servers work them out.

For pods and what people look at most, the real server's columns; for custom resources those of
their definition; for all else name and age. Descriptions of columns are left empty.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, NamedTuple

from shmcache.protocol.kinds import Kind

Object = dict[str, Any]
Cell = Callable[[Object], Any]

NONE = "<none>"
UNKNOWN = "<unknown>"
WIDE = 1
"""The priority of columns that only `-o wide` shows."""


MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400
UNITS = (
    (2 * MINUTE, 1, "s", 0, ""),
    (10 * MINUTE, MINUTE, "m", 1, "s"),
    (3 * HOUR, MINUTE, "m", 0, ""),
    (8 * HOUR, HOUR, "h", MINUTE, "m"),
    (2 * DAY, HOUR, "h", 0, ""),
    (8 * DAY, DAY, "d", HOUR, "h"),
    (2 * YEAR, DAY, "d", 0, ""),
    (8 * YEAR, YEAR, "y", DAY, "d"),
)
"""Below which duration it is shown how: unit, and the smaller one behind it if any."""


class Column(NamedTuple):
    """One column, and what it shows of an object."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    format: str = ""

    def definition(self) -> Object:
        """As the table's head has it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": "",
            "priority": self.priority,
        }


def columns(kind: Kind) -> list[Column]:
    """The columns of a resource."""
    name = Column("Name", lambda obj: obj["metadata"].get("name", ""), format="name")
    age = Column("Age", _age)
    if kind.custom:
        return [name, *(map(_declared, kind.columns) if kind.columns else [age])]
    return [name, *BUILTIN.get(kind.key, ()), age, *WIDER.get(kind.key, ())]


def table(shown: list[Column] | None, rows: list[Object], metadata: Object) -> Object:
    """A Table; without columns where a watch has shown them already."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": None if shown is None else [one.definition() for one in shown],
        "rows": rows,
    }


def cells(shown: list[Column], obj: Object) -> list[Any]:
    """What stands in a row."""
    return [column.cell(obj) for column in shown]


def human(seconds: float) -> str:
    """A duration in at most two units, as short as people read it."""
    left = int(seconds)
    if left < 0:
        return "<invalid>" if left < -1 else "0s"
    for limit, size, unit, smaller, name in UNITS:
        if left < limit:
            second = left % size // smaller if smaller else 0
            return f"{left // size}{unit}" + (f"{second}{name}" if second else "")
    return f"{left // YEAR}y"


def _age(obj: Object) -> str:
    return _since(obj["metadata"].get("creationTimestamp"))


def _since(stamp: Any) -> str:
    try:
        then = dt.datetime.fromisoformat(str(stamp))
    except ValueError:
        return UNKNOWN
    return human((dt.datetime.now(dt.UTC) - then).total_seconds())


def _at(obj: Any, path: str) -> Any:
    for step in path.strip(".").split("."):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(step)
    return obj


def _declared(row: Object) -> Column:
    path, kind = row["jsonPath"], row["type"]

    def cell(obj: Object) -> Any:
        value = _at(obj, path)
        if kind == "date":
            return UNKNOWN if value is None else _since(value)
        return value

    return Column(row["name"], cell, kind, row.get("priority", 0), row.get("format", ""))


def _text(path: str, nothing: str = NONE) -> Cell:
    def cell(obj: Object) -> str:
        value = _at(obj, path)
        return nothing if value in {None, ""} else str(value)

    return cell


def _number(path: str) -> Cell:
    return lambda obj: _at(obj, path) or 0


def _ready_containers(obj: Object) -> str:
    statuses = _at(obj, "status.containerStatuses") or []
    ready = sum(bool(one.get("ready")) for one in statuses)
    return f"{ready}/{len(_at(obj, 'spec.containers') or [])}"


def _pod_status(obj: Object) -> str:
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    for one in _at(obj, "status.containerStatuses") or []:
        reason = _at(one, "state.waiting.reason") or _at(one, "state.terminated.reason")
        if reason:
            return str(reason)
    return str(_at(obj, "status.reason") or _at(obj, "status.phase") or "")


def _restarts(obj: Object) -> str:
    statuses = _at(obj, "status.containerStatuses") or []
    return str(sum(one.get("restartCount", 0) for one in statuses))


def _data(obj: Object) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _node_status(obj: Object) -> str:
    for one in _at(obj, "status.conditions") or []:
        if one.get("type") == "Ready":
            return "Ready" if one.get("status") == "True" else "NotReady"
    return "Unknown"


def _ready_of(ready: str, wanted: str) -> Cell:
    return lambda obj: f"{_at(obj, ready) or 0}/{_at(obj, wanted) or 0}"


BUILTIN: dict[str, tuple[Column, ...]] = {
    "pods": (
        Column("Ready", _ready_containers),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
    ),
    "configmaps": (Column("Data", _data),),
    "secrets": (Column("Type", _text("type", "")), Column("Data", _data, "integer")),
    "namespaces": (Column("Status", _text("status.phase", "")),),
    "nodes": (
        Column("Status", _node_status),
        Column("Version", _text("status.nodeInfo.kubeletVersion", "")),
    ),
    "services": (
        Column("Type", _text("spec.type", "ClusterIP")),
        Column("Cluster-IP", _text("spec.clusterIP")),
    ),
    "deployments.apps": (
        Column("Ready", _ready_of("status.readyReplicas", "spec.replicas")),
        Column("Up-to-date", _number("status.updatedReplicas"), "integer"),
        Column("Available", _number("status.availableReplicas"), "integer"),
    ),
    "replicasets.apps": (
        Column("Desired", _number("spec.replicas"), "integer"),
        Column("Current", _number("status.replicas"), "integer"),
        Column("Ready", _number("status.readyReplicas"), "integer"),
    ),
    "statefulsets.apps": (Column("Ready", _ready_of("status.readyReplicas", "spec.replicas")),),
}
WIDER: dict[str, tuple[Column, ...]] = {
    "pods": (
        Column("IP", _text("status.podIP"), priority=WIDE),
        Column("Node", _text("spec.nodeName"), priority=WIDE),
        Column("Nominated Node", _text("status.nominatedNodeName"), priority=WIDE),
        Column("Readiness Gates", lambda _: NONE, priority=WIDE),
    ),
}
