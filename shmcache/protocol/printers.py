"""The columns of built-in resources, as the API server prints them: what each shows of an object.

A resource that is neither here nor in printmore.py shows name and age. Cells work on dicts and
Views.
"""

from __future__ import annotations

from shmcache.protocol.ages import UNKNOWN, duration, since

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    Object = Any
    Cell = Callable[[Object], Any]

NONE = "<none>"
WIDE = 1
"""The priority of columns that only `-o wide` shows."""


class Column:
    """One column, and what it shows of an object."""

    __slots__ = ("cell", "format", "name", "priority", "type")

    def __init__(
        self, name: str, cell: Cell, kind: str = "string", priority: int = 0, form: str = ""
    ) -> None:
        self.name = name
        self.cell = cell
        self.type = kind
        self.priority = priority
        self.format = form

    def definition(self) -> dict[str, Any]:
        """As the table's head has it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": "",
            "priority": self.priority,
        }


# ---- parts of objects ----------------------------------------------------------------------------


def at(obj: Object, path: str) -> Any:
    """What a path of names leads to; None where there is nothing."""
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


def truth(path: str, *, default: bool = False) -> Cell:
    """True or False, as the server prints it (None is `default`)."""

    def cell(obj: Object) -> str:
        value = at(obj, path)
        return str(default if value is None else bool(value))

    return cell


def ready_of(ready: str, wanted: str) -> Cell:
    """Two numbers, as 1/3."""
    return lambda obj: f"{at(obj, ready) or 0}/{at(obj, wanted) or 0}"


def labels(found: Mapping[str, Any] | None) -> str:
    """k=v,k2=v2 in order, as selectors and --show-labels have it."""
    return ",".join(f"{key}={found[key]}" for key in sorted(found)) if found else NONE


def _labels_at(path: str) -> Cell:
    return lambda obj: labels(at(obj, path))


def _selector(obj: Object) -> str:
    """A label selector in words."""
    found = at(obj, "spec.selector")
    if found is None:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((found.get("matchLabels") or {}).items())]
    for one in found.get("matchExpressions") or ():
        key, operator = one["key"], one["operator"]
        values = ",".join(one.get("values") or ())
        if operator in {"In", "NotIn"}:
            parts.append(f"{key} {operator.lower()} ({values})")
        else:
            parts.append(key if operator == "Exists" else f"!{key}")
    return ",".join(parts) or NONE


def _age(path: str = "metadata.creationTimestamp", nothing: str = UNKNOWN) -> Cell:
    def cell(obj: Object) -> str:
        value = at(obj, path)
        return nothing if value is None else since(value)

    return cell


def each(path: str, key: str, inner: str = "spec.template.spec.containers") -> Cell:
    """One member of each container, with commas."""
    where = path or inner
    return lambda obj: ",".join(str(one.get(key) or "") for one in at(obj, where) or ())


def _pod_template(path: str = "spec.template.spec.containers") -> list[Column]:
    return [
        Column("Containers", each(path, "name"), priority=WIDE),
        Column("Images", each(path, "image"), priority=WIDE),
    ]


def _wide(name: str, cell: Cell) -> Column:
    return Column(name, cell, priority=WIDE)


def _count(name: str, path: str) -> Column:
    return Column(name, number(path), "integer")


def _list(found: Iterable[Any] | None, nothing: str = NONE) -> str:
    return ",".join(map(str, found or ())) or nothing


# ---- nodes ---------------------------------------------------------------------------------------

_ROLE = "node-role.kubernetes.io/"


def _node_status(obj: Object) -> str:
    found = [one for one in at(obj, "status.conditions") or () if one.get("type") == "Ready"]
    said = "Unknown"
    if found:
        said = "Ready" if found[0].get("status") == "True" else "NotReady"
    return said + (",SchedulingDisabled" if at(obj, "spec.unschedulable") else "")


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
                return str(one["address"])
        return NONE

    return cell


# ---- services, ingresses, endpoints --------------------------------------------------------------


def _external_ip(obj: Object) -> str:
    kind, external = at(obj, "spec.type"), list(at(obj, "spec.externalIPs") or ())
    if kind == "ExternalName":
        return str(at(obj, "spec.externalName") or "")
    if kind != "LoadBalancer":
        return _list(external)
    ingress = at(obj, "status.loadBalancer.ingress") or ()
    found = [str(one.get("ip") or one.get("hostname") or "") for one in ingress]
    return _list([*found, *external], "<pending>")


def _service_ports(obj: Object) -> str:
    return _list(
        f"{one['port']}:{one['nodePort']}/{one.get('protocol', 'TCP')}"
        if one.get("nodePort")
        else f"{one['port']}/{one.get('protocol', 'TCP')}"
        for one in at(obj, "spec.ports") or ()
    )


def _hosts(obj: Object) -> str:
    found = [one["host"] for one in at(obj, "spec.rules") or () if one.get("host")]
    return _more(found, 3) if found else "*"


def _ingress_address(obj: Object) -> str:
    ingress = at(obj, "status.loadBalancer.ingress") or ()
    return ",".join(str(one.get("ip") or one.get("hostname") or "") for one in ingress)


def _more(found: list[str], most: int) -> str:
    rest = len(found) - most
    return ",".join(found[:most]) + (f" + {rest} more..." if rest > 0 else "")


def _endpoints(obj: Object) -> str:
    found: list[str] = []
    for subset in obj.get("subsets") or ():
        ips = [one["ip"] for one in subset.get("addresses") or ()]
        ports = subset.get("ports")
        found += [f"{ip}:{port['port']}" for port in ports for ip in ips] if ports else ips
    return _more(found, 3) or NONE


def _slice_ports(obj: Object) -> str:
    found = [str(one.get("port") or "*") for one in obj.get("ports") or ()]
    return _more(found, 3) or "<unset>"


def _slice_endpoints(obj: Object) -> str:
    found = [ip for one in obj.get("endpoints") or () for ip in one.get("addresses") or ()]
    return _more(found, 3) or "<unset>"


# ---- jobs, storage, the rest ---------------------------------------------------------------------


def _job_status(obj: Object) -> str:
    held = {
        one.get("type"): one.get("reason") or ""
        for one in at(obj, "status.conditions") or ()
        if one.get("status") == "True"
    }
    for kind in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if kind in held:
            return kind
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else "Running"


def _job_completions(obj: Object) -> str:
    done, wanted = at(obj, "status.succeeded") or 0, at(obj, "spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = at(obj, "spec.parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(obj: Object) -> str:
    start, end = at(obj, "status.startTime"), at(obj, "status.completionTime")
    return "" if start is None else duration(start, end)


_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(path: str) -> Cell:
    return lambda obj: ",".join(_MODES.get(one, one) for one in at(obj, path) or ())


def _claim(obj: Object) -> str:
    found = at(obj, "spec.claimRef")
    return f"{found.get('namespace', '')}/{found.get('name', '')}" if found is not None else ""


def _lost(obj: Object, path: str) -> str:
    ended = obj["metadata"].get("deletionTimestamp")
    return "Terminating" if ended else str(at(obj, path) or "")


def _bound(path: str) -> Cell:
    """What a claim has only once it is bound."""
    return lambda obj: (at(obj, path) or "") if at(obj, "spec.volumeName") else ""


def _capacity(obj: Object) -> str:
    found = at(obj, "status.capacity") if at(obj, "spec.volumeName") else None
    return str((found or {}).get("storage") or "")


def _claim_modes(obj: Object) -> str:
    return str(_modes("status.accessModes")(obj)) if at(obj, "spec.volumeName") else ""


def _event_object(obj: Object) -> str:
    found = obj.get("involvedObject") or {}
    return f"{str(found.get('kind', '')).lower()}/{found.get('name', '')}"


def _event_seen(obj: Object) -> str:
    """When it was seen last: of a series, of the event, or of when it was made."""
    for path in ("series.lastObservedTime", "lastTimestamp", "eventTime"):
        found = at(obj, path)
        if found:
            return since(found)
    return UNKNOWN


def _disruption(path: str) -> Cell:
    def cell(obj: Object) -> str:
        found = at(obj, path)
        return "N/A" if found is None else str(found)

    return cell


def _data(obj: Object) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _secrets(obj: Object) -> int:
    return len(obj.get("secrets") or ())


def _created(obj: Object) -> str:
    return str(obj["metadata"].get("creationTimestamp") or UNKNOWN)


def _default_class(obj: Object) -> str:
    notes = obj["metadata"].get("annotations") or {}
    is_default = notes.get("storageclass.kubernetes.io/is-default-class") == "true"
    return str(obj["metadata"]["name"]) + (" (default)" if is_default else "")


AGE = Column("Age", _age())
NAME = Column("Name", lambda obj: obj["metadata"].get("name", ""), form="name")
CREATED = Column("Created At", _created)
_SELECTOR = _wide("Selector", _selector)

BUILTIN: dict[str, list[Column]] = {
    "nodes": [
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", text("status.nodeInfo.kubeletVersion", "")),
        _wide("Internal-IP", _node_address("InternalIP")),
        _wide("External-IP", _node_address("ExternalIP")),
        _wide("OS-Image", text("status.nodeInfo.osImage", UNKNOWN)),
        _wide("Kernel-Version", text("status.nodeInfo.kernelVersion", UNKNOWN)),
        _wide("Container-Runtime", text("status.nodeInfo.containerRuntimeVersion", UNKNOWN)),
    ],
    "services": [
        NAME,
        Column("Type", text("spec.type", "ClusterIP")),
        Column("Cluster-IP", text("spec.clusterIP")),
        Column("External-IP", _external_ip),
        Column("Port(s)", _service_ports),
        AGE,
        _wide("Selector", _labels_at("spec.selector")),
    ],
    "deployments.apps": [
        NAME,
        Column("Ready", ready_of("status.readyReplicas", "spec.replicas")),
        _count("Up-to-date", "status.updatedReplicas"),
        _count("Available", "status.availableReplicas"),
        AGE,
        *_pod_template(),
        _SELECTOR,
    ],
    "replicasets.apps": [
        NAME,
        _count("Desired", "spec.replicas"),
        _count("Current", "status.replicas"),
        _count("Ready", "status.readyReplicas"),
        AGE,
        *_pod_template(),
        _SELECTOR,
    ],
    "replicationcontrollers": [
        NAME,
        _count("Desired", "spec.replicas"),
        _count("Current", "status.replicas"),
        _count("Ready", "status.readyReplicas"),
        AGE,
        *_pod_template(),
        _wide("Selector", _labels_at("spec.selector")),
    ],
    "statefulsets.apps": [
        NAME,
        Column("Ready", ready_of("status.readyReplicas", "spec.replicas")),
        AGE,
        *_pod_template(),
    ],
    "daemonsets.apps": [
        NAME,
        _count("Desired", "status.desiredNumberScheduled"),
        _count("Current", "status.currentNumberScheduled"),
        _count("Ready", "status.numberReady"),
        _count("Up-to-date", "status.updatedNumberScheduled"),
        _count("Available", "status.numberAvailable"),
        Column("Node Selector", _labels_at("spec.template.spec.nodeSelector")),
        AGE,
        *_pod_template(),
        _SELECTOR,
    ],
    "jobs.batch": [
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        *_pod_template(),
        _SELECTOR,
    ],
    "cronjobs.batch": [
        NAME,
        Column("Schedule", text("spec.schedule", "")),
        Column("Timezone", text("spec.timeZone")),
        Column("Suspend", truth("spec.suspend")),
        Column("Active", lambda obj: len(at(obj, "status.active") or ()), "integer"),
        Column("Last Schedule", _age("status.lastScheduleTime", NONE)),
        AGE,
        *_pod_template("spec.jobTemplate.spec.template.spec.containers"),
        _wide("Selector", lambda _: NONE),
    ],
    "ingresses.networking.k8s.io": [
        NAME,
        Column("Class", text("spec.ingressClassName")),
        Column("Hosts", _hosts),
        Column("Address", _ingress_address),
        Column("Ports", lambda obj: "80, 443" if at(obj, "spec.tls") else "80"),
        AGE,
    ],
    "networkpolicies.networking.k8s.io": [
        NAME,
        Column("Pod-Selector", lambda obj: labels(at(obj, "spec.podSelector.matchLabels"))),
        AGE,
    ],
    "endpoints": [NAME, Column("Endpoints", _endpoints), AGE],
    "endpointslices.discovery.k8s.io": [
        NAME,
        Column("AddressType", text("addressType", "")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_endpoints),
        AGE,
    ],
    "persistentvolumes": [
        NAME,
        Column("Capacity", text("spec.capacity.storage", "")),
        Column("Access Modes", _modes("spec.accessModes")),
        Column("Reclaim Policy", text("spec.persistentVolumeReclaimPolicy", "")),
        Column("Status", lambda obj: _lost(obj, "status.phase")),
        Column("Claim", _claim),
        Column("StorageClass", text("spec.storageClassName", "")),
        Column("VolumeAttributesClass", text("spec.volumeAttributesClassName", "<unset>")),
        Column("Reason", text("status.reason", "")),
        AGE,
        _wide("VolumeMode", text("spec.volumeMode", "<unset>")),
    ],
    "persistentvolumeclaims": [
        NAME,
        Column("Status", lambda obj: _lost(obj, "status.phase")),
        Column("Volume", _bound("spec.volumeName")),
        Column("Capacity", _capacity),
        Column("Access Modes", _claim_modes),
        Column("StorageClass", text("spec.storageClassName", "")),
        Column("VolumeAttributesClass", text("spec.volumeAttributesClassName", "<unset>")),
        AGE,
        _wide("VolumeMode", text("spec.volumeMode", "<unset>")),
    ],
    "storageclasses.storage.k8s.io": [
        Column("Name", _default_class, form="name"),
        Column("Provisioner", text("provisioner", "")),
        Column("ReclaimPolicy", text("reclaimPolicy", "Delete")),
        Column("VolumeBindingMode", text("volumeBindingMode", "Immediate")),
        Column(
            "AllowVolumeExpansion", lambda obj: str(bool(obj.get("allowVolumeExpansion"))).lower()
        ),
        AGE,
    ],
    "events": [
        Column("Last Seen", _event_seen),
        Column("Type", text("type", "")),
        Column("Reason", text("reason", "")),
        Column("Object", _event_object),
        _wide("Subobject", text("involvedObject.fieldPath", "")),
        _wide("Source", text("source.component", "")),
        Column("Message", lambda obj: str(obj.get("message") or "").strip()),
        _wide("First Seen", _age("firstTimestamp")),
        Column("Count", lambda obj: obj.get("count") or 1, "integer", WIDE),
        Column("Name", NAME.cell, priority=WIDE, form="name"),
    ],
    "poddisruptionbudgets.policy": [
        NAME,
        Column("Min Available", _disruption("spec.minAvailable")),
        Column("Max Unavailable", _disruption("spec.maxUnavailable")),
        _count("Allowed Disruptions", "status.disruptionsAllowed"),
        AGE,
    ],
    "leases.coordination.k8s.io": [NAME, Column("Holder", text("spec.holderIdentity", "")), AGE],
    "configmaps": [NAME, Column("Data", _data), AGE],
    "secrets": [NAME, Column("Type", text("type", "")), Column("Data", _data, "integer"), AGE],
    "serviceaccounts": [NAME, Column("Secrets", _secrets), AGE],
    "namespaces": [NAME, Column("Status", text("status.phase", "")), AGE],
    "roles.rbac.authorization.k8s.io": [NAME, CREATED],
    "clusterroles.rbac.authorization.k8s.io": [NAME, CREATED],
    "customresourcedefinitions.apiextensions.k8s.io": [NAME, CREATED],
}
