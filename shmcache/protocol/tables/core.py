"""Columns of the core group, but for pods (printing.py)."""

from __future__ import annotations

from shmcache.protocol.tables.ages import UNKNOWN, since
from shmcache.protocol.tables.columns import (
    AGE,
    DEFAULT,
    NAME,
    NONE,
    Column,
    at,
    containers,
    each,
    labels_at,
    length,
    more,
    number,
    text,
    wide,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from shmcache.protocol.tables.columns import Cell

    Object = Any

_ROLE = "node-role.kubernetes.io/"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_CLASS = "volume.beta.kubernetes.io/storage-class"


def _list(found: Iterable[Any], nothing: str = NONE) -> str:
    return ",".join(map(str, found)) or nothing


# ---- nodes ---------------------------------------------------------------------------------------


def _node_status(obj: Object) -> str:
    found = [one for one in at(obj, "status.conditions") or () if one.get("type") == "Ready"]
    state = "Unknown"
    if found:
        state = "Ready" if found[-1].get("status") == "True" else "NotReady"
    return state + (",SchedulingDisabled" if at(obj, "spec.unschedulable") else "")


def _node_roles(obj: Object) -> str:
    found = set()
    for key, value in (obj["metadata"].get("labels") or {}).items():
        if key.startswith(_ROLE) and key != _ROLE:
            found.add(key.removeprefix(_ROLE))
        elif key == "kubernetes.io/role" and value:
            found.add(value)
    return _list(sorted(found))


def _node_address(kind: str) -> Cell:
    def cell(obj: Object) -> str:
        for one in at(obj, "status.addresses") or ():
            if one.get("type") == kind:
                return str(one.get("address") or "")
        return NONE

    return cell


def _kernel(obj: Object) -> str:
    found = at(obj, "status.nodeInfo") or {}
    architecture = found.get("architecture")
    return (found.get("kernelVersion") or UNKNOWN) + (f" ({architecture})" if architecture else "")


# ---- services and endpoints ----------------------------------------------------------------------


def _external_ip(obj: Object) -> str:
    kind, external = at(obj, "spec.type") or "ClusterIP", list(at(obj, "spec.externalIPs") or ())
    if kind == "ExternalName":
        return str(at(obj, "spec.externalName") or "")
    if kind in {"ClusterIP", "NodePort"}:
        return _list(external)
    if kind != "LoadBalancer":
        return UNKNOWN
    return _list([*addresses(at(obj, "status.loadBalancer.ingress")), *external], "<pending>")


def addresses(ingress: Any) -> list[str]:
    """The addresses of a load balancer, each once."""
    found = {str(one.get("ip") or one.get("hostname") or "") for one in ingress or ()}
    return sorted(found - {""})


def _cluster_ip(obj: Object) -> str:
    ips = at(obj, "spec.clusterIPs")
    return str(ips[0] if ips else at(obj, "spec.clusterIP") or NONE)


def _service_ports(obj: Object) -> str:
    return _list(
        f"{one['port']}:{one['nodePort']}/{one.get('protocol', 'TCP')}"
        if one.get("nodePort")
        else f"{one['port']}/{one.get('protocol', 'TCP')}"
        for one in at(obj, "spec.ports") or ()
    )


def _endpoints(obj: Object) -> str:
    found: list[str] = []
    for subset in obj.get("subsets") or ():
        ips = [one["ip"] for one in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if ports:
            hosts = [f"[{ip}]" if ":" in ip else ip for ip in ips]
            found += [f"{host}:{port['port']}" for port in ports for host in hosts]
        else:
            found += ips
    empty = NONE if not obj.get("subsets") else ""
    return more(found, 3, len(found), empty)


# ---- volumes -------------------------------------------------------------------------------------


def _modes(path: str) -> Cell:
    return lambda obj: ",".join(_MODES.get(one, one) for one in at(obj, path) or ())


def _claim(obj: Object) -> str:
    found = at(obj, "spec.claimRef")
    return f"{found.get('namespace', '')}/{found.get('name', '')}" if found is not None else ""


def _phase(obj: Object) -> str:
    ended = obj["metadata"].get("deletionTimestamp")
    return "Terminating" if ended else str(at(obj, "status.phase") or "")


def _bound(cell: Cell) -> Cell:
    """The same cell, empty of a claim that is not bound."""
    return lambda obj: cell(obj) if at(obj, "spec.volumeName") else ""


def _class(obj: Object) -> str:
    notes = obj["metadata"].get("annotations") or {}
    return str(notes.get(_CLASS) or at(obj, "spec.storageClassName") or "")


# ---- events --------------------------------------------------------------------------------------


def _target(path: str) -> Cell:
    def cell(obj: Object) -> str:
        found = at(obj, path) or {}
        kind, name = str(found.get("kind") or "").lower(), found.get("name")
        return f"{kind}/{name}" if name else kind

    return cell


def _first_seen(first: str) -> Cell:
    def cell(obj: Object) -> str:
        found = at(obj, first) or at(obj, "eventTime")
        return since(found) if found else UNKNOWN

    return cell


def _last_seen(last: str, first: str) -> Cell:
    """The time of a series, or else of the event, or else of its creation."""
    before = _first_seen(first)

    def cell(obj: Object) -> str:
        series = obj.get("series")
        found = at(obj, last) if series is None else series.get("lastObservedTime")
        if found:
            return since(found)
        return UNKNOWN if series is not None else str(before(obj))

    return cell


def _source(source: str, controller: str) -> Cell:
    def cell(obj: Object) -> str:
        found = obj.get(source) or {}
        component = found.get("component") or obj.get(controller) or ""
        host = found.get("host") or obj.get("reportingInstance")
        return f"{component}, {host}" if host else str(component)

    return cell


def _times(count: str) -> Cell:
    def cell(obj: Object) -> int:
        series = obj.get("series")
        if series is None:
            return int(obj.get(count) or 1)
        return int(series.get("count") or 0)

    return cell


def events(names: dict[str, str]) -> list[Column]:
    """The columns of events; `names` are those of their fields."""
    return [
        Column("Last Seen", _last_seen(names["last"], names["first"])),
        Column("Type", text("type", "")),
        Column("Reason", text("reason", "")),
        Column("Object", _target(names["object"])),
        wide("Subobject", text(f"{names['object']}.fieldPath", "")),
        wide("Source", _source(names["source"], names["controller"])),
        Column("Message", lambda obj: str(obj.get(names["message"]) or "").strip()),
        wide("First Seen", _first_seen(names["first"])),
        wide("Count", _times(names["count"])),
        Column("Name", NAME.cell, priority=1, form="name", description=NAME.description),
    ]


_EVENT = {
    "last": "lastTimestamp",
    "first": "firstTimestamp",
    "object": "involvedObject",
    "source": "source",
    "controller": "reportingComponent",
    "message": "message",
    "count": "count",
}


# ---- the rest ------------------------------------------------------------------------------------


def _data(obj: Object) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _quota(*, limits: bool) -> Cell:
    def cell(obj: Object) -> str:
        hard, used = at(obj, "status.hard") or {}, at(obj, "status.used") or {}
        return ", ".join(
            f"{name}: {used.get(name, '0')}/{hard[name]}"
            for name in sorted(hard)
            if name.startswith("limits.") == limits
        )

    return cell


COLUMNS: dict[str, list[Column]] = {
    "configmaps": [NAME, Column("Data", _data), AGE],
    "endpoints": [NAME, Column("Endpoints", _endpoints), AGE],
    "events": events(_EVENT),
    "limitranges": DEFAULT,
    "namespaces": [NAME, Column("Status", text("status.phase", "")), AGE],
    "nodes": [
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", text("status.nodeInfo.kubeletVersion", "")),
        wide("Internal-IP", _node_address("InternalIP")),
        wide("External-IP", _node_address("ExternalIP")),
        wide("OS-Image", text("status.nodeInfo.osImage", UNKNOWN)),
        wide("Kernel-Version", _kernel),
        wide("Container-Runtime", text("status.nodeInfo.containerRuntimeVersion", UNKNOWN)),
    ],
    "persistentvolumeclaims": [
        NAME,
        Column("Status", _phase),
        Column("Volume", text("spec.volumeName", "")),
        Column("Capacity", _bound(text("status.capacity.storage", "0"))),
        Column("Access Modes", _bound(_modes("status.accessModes"))),
        Column("StorageClass", _class),
        Column("VolumeAttributesClass", text("spec.volumeAttributesClassName", "<unset>")),
        AGE,
        wide("VolumeMode", text("spec.volumeMode", "<unset>")),
    ],
    "persistentvolumes": [
        NAME,
        Column("Capacity", text("spec.capacity.storage", "0")),
        Column("Access Modes", _modes("spec.accessModes")),
        Column("Reclaim Policy", text("spec.persistentVolumeReclaimPolicy", "")),
        Column("Status", _phase),
        Column("Claim", _claim),
        Column("StorageClass", _class),
        Column("VolumeAttributesClass", text("spec.volumeAttributesClassName", "<unset>")),
        Column("Reason", text("status.reason", "")),
        AGE,
        wide("VolumeMode", text("spec.volumeMode", "<unset>")),
    ],
    "podtemplates": [
        NAME,
        Column("Containers", each("template.spec.containers", "name")),
        Column("Images", each("template.spec.containers", "image")),
        Column("Pod Labels", labels_at("template.metadata.labels")),
    ],
    "replicationcontrollers": [
        NAME,
        Column("Desired", number("spec.replicas"), "integer"),
        Column("Current", number("status.replicas"), "integer"),
        Column("Ready", number("status.readyReplicas"), "integer"),
        AGE,
        *containers(),
        wide("Selector", labels_at("spec.selector")),
    ],
    "resourcequotas": [
        NAME,
        Column("Request", _quota(limits=False)),
        Column("Limit", _quota(limits=True)),
        AGE,
    ],
    "secrets": [NAME, Column("Type", text("type", "")), Column("Data", length("data")), AGE],
    "serviceaccounts": [NAME, AGE],
    "services": [
        NAME,
        Column("Type", text("spec.type", "ClusterIP")),
        Column("Cluster-IP", _cluster_ip),
        Column("External-IP", _external_ip),
        Column("Port(s)", _service_ports),
        AGE,
        wide("Selector", labels_at("spec.selector")),
    ],
}
