"""Columns of the groups that run pods: apps, autoscaling, batch, policy, scheduling."""

from __future__ import annotations

from shmcache.protocol.tables.ages import UNKNOWN, duration
from shmcache.protocol.tables.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    age,
    at,
    containers,
    flag,
    labels_at,
    length,
    number,
    ready_of,
    selector,
    text,
    wide,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache.protocol.tables.columns import Cell

    Object = Any

METRICS = 2
"""So many metrics of an autoscaler are shown."""


def _count(name: str, path: str) -> Column:
    return Column(name, number(path), "integer")


_SELECTOR = wide("Selector", selector("spec.selector"))
_READY = Column("Ready", ready_of("status.readyReplicas", "spec.replicas"))


# ---- apps ----------------------------------------------------------------------------------------


def _controller(obj: Object) -> str:
    for one in obj["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            group = str(one.get("apiVersion", "")).rpartition("/")[0]
            kind = str(one.get("kind", "")).lower() + (f".{group}" if group else "")
            return f"{kind}/{one.get('name', '')}"
    return NONE


# ---- batch ---------------------------------------------------------------------------------------


def _job_status(obj: Object) -> str:
    held = {
        one.get("type") for one in at(obj, "status.conditions") or () if one.get("status") == "True"
    }
    if obj["metadata"].get("deletionTimestamp"):
        held.add("Terminating")
    for kind in ("Complete", "Failed", "Terminating", "Suspended", "FailureTarget",
                 "SuccessCriteriaMet"):  # fmt: skip
        if kind in held:
            return kind
    return "Running"


def _job_completions(obj: Object) -> str:
    done, wanted = at(obj, "status.succeeded") or 0, at(obj, "spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = at(obj, "spec.parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(obj: Object) -> str:
    start, end = at(obj, "status.startTime"), at(obj, "status.completionTime")
    return "" if start is None else duration(start, end)


def _suspended(obj: Object) -> str:
    value = at(obj, "spec.suspend")
    return "<unset>" if value is None else str(bool(value))


# ---- autoscaling ---------------------------------------------------------------------------------


def _reference(obj: Object) -> str:
    found = at(obj, "spec.scaleTargetRef") or {}
    return f"{found.get('kind', '')}/{found.get('name', '')}"


def _metric(spec: Object, status: Object) -> str:
    """The current and the target value of one metric."""
    kind = str(spec.get("type", ""))
    part = kind[:1].lower() + kind[1:]
    resource = part in {"resource", "containerResource"}
    if not resource and part not in {"external", "pods", "object"}:
        return "<unknown type>"
    target = at(spec, f"{part}.target") or {}
    current = at(status, f"{part}.current") or {}
    if target.get("averageValue") is not None:
        shown = f"{current.get('averageValue') or UNKNOWN}/{target['averageValue']}"
        shown += " (avg)" if part in {"external", "object"} else ""
    elif resource:
        shown = f"{_percent(current, UNKNOWN)}/{_percent(target, '<auto>')}"
    else:
        shown = f"{current.get('value') or UNKNOWN}/{target.get('value', '')}"
    return f"{at(spec, f'{part}.name')}: {shown}" if resource else shown


def _percent(found: Object, nothing: str) -> str:
    value = found.get("averageUtilization")
    return nothing if value is None else f"{value}%"


def _targets(obj: Object) -> str:
    specs = list(at(obj, "spec.metrics") or ())
    known = list(at(obj, "status.currentMetrics") or ())
    found = [
        _metric(spec, known[number] if number < len(known) else {})
        for number, spec in enumerate(specs)
    ]
    if not found:
        return NONE
    rest = len(found) - METRICS
    return ", ".join(found[:METRICS]) + (f" + {rest} more..." if rest > 0 else "")


# ---- policy, scheduling --------------------------------------------------------------------------


def _disruption(path: str) -> Cell:
    def cell(obj: Object) -> str:
        found = at(obj, path)
        return "N/A" if found is None else str(found)

    return cell


def _gang(obj: Object) -> str:
    return "Basic" if at(obj, "spec.schedulingPolicy.gang") is None else "Gang"


def _group_status(obj: Object) -> str:
    held = {one.get("type"): one for one in at(obj, "status.conditions") or ()}
    disrupted, scheduled = held.get("DisruptionTarget"), held.get("PodGroupScheduled")
    if disrupted is not None:
        return str(disrupted.get("reason") or "")
    if scheduled is None:
        return "Pending"
    return "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"


def _workload(obj: Object) -> str:
    reference = at(obj, "spec.podGroupTemplateRef")
    return NONE if reference is None else str(at(reference, "workload.workloadName") or "")


COLUMNS: dict[str, list[Column]] = {
    "controllerrevisions.apps": [
        NAME,
        Column("Controller", _controller),
        Column("Revision", number("revision")),
        AGE,
    ],
    "daemonsets.apps": [
        NAME,
        _count("Desired", "status.desiredNumberScheduled"),
        _count("Current", "status.currentNumberScheduled"),
        _count("Ready", "status.numberReady"),
        _count("Up-to-date", "status.updatedNumberScheduled"),
        _count("Available", "status.numberAvailable"),
        Column("Node Selector", labels_at("spec.template.spec.nodeSelector")),
        AGE,
        *containers(),
        _SELECTOR,
    ],
    "deployments.apps": [
        NAME,
        _READY,
        Column("Up-to-date", number("status.updatedReplicas")),
        Column("Available", number("status.availableReplicas")),
        AGE,
        *containers(),
        wide("Selector", selector("spec.selector", "")),
    ],
    "replicasets.apps": [
        NAME,
        _count("Desired", "spec.replicas"),
        _count("Current", "status.replicas"),
        _count("Ready", "status.readyReplicas"),
        AGE,
        *containers(),
        _SELECTOR,
    ],
    "statefulsets.apps": [NAME, _READY, AGE, *containers()],
    "horizontalpodautoscalers.autoscaling": [
        NAME,
        Column("Reference", _reference),
        Column("Targets", _targets),
        Column("MinPods", text("spec.minReplicas", "<unset>")),
        Column("MaxPods", number("spec.maxReplicas")),
        Column("Replicas", number("status.currentReplicas")),
        AGE,
    ],
    "cronjobs.batch": [
        NAME,
        Column("Schedule", text("spec.schedule", "")),
        Column("Timezone", text("spec.timeZone")),
        Column("Suspend", _suspended, "boolean"),
        Column("Active", length("status.active"), "integer"),
        Column("Last Schedule", age("status.lastScheduleTime", NONE)),
        AGE,
        *containers("spec.jobTemplate.spec.template.spec.containers"),
        wide("Selector", selector("spec.jobTemplate.spec.selector")),
    ],
    "jobs.batch": [
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        *containers(),
        _SELECTOR,
    ],
    "poddisruptionbudgets.policy": [
        NAME,
        Column("Min Available", _disruption("spec.minAvailable")),
        Column("Max Unavailable", _disruption("spec.maxUnavailable")),
        _count("Allowed Disruptions", "status.disruptionsAllowed"),
        AGE,
    ],
    "podgroups.scheduling.k8s.io": [
        NAME,
        Column("Policy", _gang),
        Column("Workload", _workload),
        Column("Status", _group_status),
        AGE,
    ],
    "priorityclasses.scheduling.k8s.io": [
        NAME,
        Column("Value", number("value"), "integer"),
        Column("Global-Default", flag("globalDefault"), "boolean"),
        AGE,
        Column("PreemptionPolicy", text("preemptionPolicy", "")),
    ],
    "workloads.scheduling.k8s.io": [NAME, AGE],
}
