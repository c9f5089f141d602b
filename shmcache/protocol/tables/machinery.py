"""Columns of the groups that keep a cluster going: leases, events, flow control, devices."""

from __future__ import annotations

from shmcache.protocol.tables.ages import since
from shmcache.protocol.tables.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    age,
    at,
    holds,
    more,
    number,
    text,
)
from shmcache.protocol.tables.core import events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache.protocol.tables.columns import Cell

    Object = Any

_EVENT = {
    "last": "deprecatedLastTimestamp",
    "first": "deprecatedFirstTimestamp",
    "object": "regarding",
    "source": "deprecatedSource",
    "controller": "reportingController",
    "message": "note",
    "count": "deprecatedCount",
}
_dangling = holds("status.conditions", "Dangling")


def _limited(path: str) -> Cell:
    """A number of a priority level that queues."""

    def cell(obj: Object) -> Any:
        parent, _, name = f"spec.limited.{path}".rpartition(".")
        found = at(obj, parent)
        return NONE if found is None else found.get(name) or 0

    return cell


def _shares(obj: Object) -> Any:
    found = at(obj, "spec.limited")
    return NONE if found is None else found.get("nominalConcurrencyShares")


def _encodings(obj: Object) -> str:
    found = [
        f"{one.get('apiServerID', '')}={one.get('encodingVersion', '')}"
        for one in at(obj, "status.storageVersions") or ()
    ]
    return more(found, 3, len(found), "<unset>")


# ---- resource.k8s.io -----------------------------------------------------------------------------


def _claim_state(obj: Object) -> str:
    deleted = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if at(obj, "status.allocation") is not None:
        states.append("allocated")
        if at(obj, "status.reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return ",".join(states)


def _observation(obj: Object) -> tuple[str, Any]:
    """The state of an observation of pools, and when it was complete."""
    status = obj.get("status") or {}
    for one in status.get("conditions") or ():
        if one.get("status") == "True" and one.get("type") == "Complete":
            seen, count = len(status.get("pools") or ()), status.get("poolCount") or 0
            state = f"Complete ({seen}/{count} pools)" if count > seen else "Complete"
            return state, one.get("lastTransitionTime")
        if one.get("status") == "True" and one.get("type") == "Failed":
            return "Failed", None
    return "Pending", None


def _completed(obj: Object) -> str:
    found = _observation(obj)[1]
    return NONE if found is None else since(found)


def _devices(key: str) -> Cell:
    def cell(obj: Object) -> str:
        status = obj.get("status")
        if status is None or _observation(obj)[0] == "Failed":
            return "-"
        pools = status.get("pools") or ()
        if key == "validationError":
            return str(sum(one.get(key) is not None for one in pools))
        return str(sum(one.get(key) or 0 for one in pools))

    return cell


COLUMNS: dict[str, list[Column]] = {
    "leasecandidates.coordination.k8s.io": [
        NAME,
        Column("LeaseName", text("spec.leaseName", "")),
        Column("BinaryVersion", text("spec.binaryVersion", "")),
        Column("EmulationVersion", text("spec.emulationVersion", "")),
        AGE,
    ],
    "leases.coordination.k8s.io": [NAME, Column("Holder", text("spec.holderIdentity", "")), AGE],
    "events.events.k8s.io": events(_EVENT),
    "flowschemas.flowcontrol.apiserver.k8s.io": [
        NAME,
        Column("PriorityLevel", text("spec.priorityLevelConfiguration.name", "")),
        Column("MatchingPrecedence", number("spec.matchingPrecedence")),
        Column("DistinguisherMethod", text("spec.distinguisherMethod.type")),
        AGE,
        Column("MissingPL", lambda obj: _dangling(obj) or "?"),
    ],
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": [
        NAME,
        Column("Type", text("spec.type", "")),
        Column("NominalConcurrencyShares", _shares),
        Column("Queues", _limited("limitResponse.queuing.queues")),
        Column("HandSize", _limited("limitResponse.queuing.handSize")),
        Column("QueueLengthLimit", _limited("limitResponse.queuing.queueLengthLimit")),
        AGE,
    ],
    "storageversions.internal.apiserver.k8s.io": [
        NAME,
        Column("CommonEncodingVersion", text("status.commonEncodingVersion", "<unset>")),
        Column("StorageVersions", _encodings),
        AGE,
    ],
    "runtimeclasses.node.k8s.io": [NAME, Column("Handler", text("handler", "")), AGE],
    "deviceclasses.resource.k8s.io": [NAME, AGE],
    "devicetaintrules.resource.k8s.io": [
        NAME,
        Column("Key", text("spec.taint.key", "")),
        Column("Value", text("spec.taint.value", "")),
        Column("Effect", text("spec.taint.effect", "")),
        Column("TimeAdded", age("spec.taint.timeAdded", "")),
        AGE,
    ],
    "resourceclaims.resource.k8s.io": [NAME, Column("State", _claim_state), AGE],
    "resourceclaimtemplates.resource.k8s.io": [NAME, AGE],
    "resourcepoolstatusrequests.resource.k8s.io": [
        NAME,
        Column("Driver", text("spec.driver", "")),
        Column("Total", _devices("totalDevices")),
        Column("Available", _devices("availableDevices")),
        Column("Allocated", _devices("allocatedDevices")),
        Column("Unavailable", _devices("unavailableDevices")),
        Column("Errors", _devices("validationError")),
        Column("Pools", number("status.poolCount"), "integer"),
        Column("Status", lambda obj: _observation(obj)[0]),
        Column("Completed", _completed),
    ],
    "resourceslices.resource.k8s.io": [
        NAME,
        Column("Node", text("spec.nodeName", "")),
        Column("Driver", text("spec.driver", "")),
        Column("Pool", text("spec.pool.name", "")),
        AGE,
    ],
}
