"""More columns of built-in resources, of those that are listed less often: see printers.py."""

from __future__ import annotations

from shmcache.protocol.printers import (
    AGE,
    CREATED,
    NAME,
    NONE,
    WIDE,
    Column,
    at,
    each,
    labels,
    number,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Object = Any

UNKNOWN = "<unknown>"
METRICS = 2
"""So many metrics of an autoscaler are shown."""


def _length(path: str) -> Callable[[Object], int]:
    return lambda obj: len(at(obj, path) or ())


# ---- quotas --------------------------------------------------------------------------------------


def _quota(limits: bool) -> Callable[[Object], str]:  # noqa: FBT001 - a choice of two columns
    def cell(obj: Object) -> str:
        hard, used = at(obj, "status.hard") or {}, at(obj, "status.used") or {}
        return ", ".join(
            f"{name}: {used.get(name, '0')}/{hard[name]}"
            for name in sorted(hard)
            if name.startswith("limits.") == limits
        )

    return cell


# ---- autoscalers ---------------------------------------------------------------------------------


def _reference(obj: Object) -> str:
    found = at(obj, "spec.scaleTargetRef") or {}
    return f"{found.get('kind', '')}/{found.get('name', '')}"


def _metric(spec: Object, status: Object) -> str:
    """What one metric is, and should be."""
    kind = str(spec.get("type", ""))
    part = kind[:1].lower() + kind[1:]
    named = part in {"resource", "containerResource"}
    if not named and part not in {"external", "pods", "object"}:
        return "<unknown type>"
    target = at(spec, f"{part}.target") or {}
    current = at(status, f"{part}.current") or {}
    if target.get("averageValue") is not None:
        shown = f"{current.get('averageValue') or UNKNOWN}/{target['averageValue']}"
        shown += " (avg)" if part in {"external", "object"} else ""
    elif named:
        shown = f"{_percent(current, UNKNOWN)}/{_percent(target, '<auto>')}"
    else:
        shown = f"{current.get('value') or UNKNOWN}/{target.get('value', '')}"
    return f"{at(spec, f'{part}.name')}: {shown}" if named else shown


def _percent(found: Object, nothing: str) -> str:
    value = found.get("averageUtilization")
    return nothing if value is None else f"{value}%"


def _targets(obj: Object) -> str:
    specs = list(at(obj, "spec.metrics") or ())
    known = list(at(obj, "status.currentMetrics") or ())
    found = [
        _metric(spec, known[place] if place < len(known) else {})
        for place, spec in enumerate(specs)
    ]
    if not found:
        return NONE
    rest = len(found) - METRICS
    return ", ".join(found[:METRICS]) + (f" + {rest} more..." if rest > 0 else "")


# ---- the rest ------------------------------------------------------------------------------------


def _controller(obj: Object) -> str:
    for one in obj["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            group = str(one.get("apiVersion", "")).rpartition("/")[0]
            kind = str(one.get("kind", "")).lower() + (f".{group}" if group else "")
            return f"{kind}/{one.get('name', '')}"
    return NONE


def _parameters(obj: Object) -> str:
    found = at(obj, "spec.parameters")
    if found is None:
        return NONE
    group = found.get("apiGroup")
    return f"{found.get('kind', '')}{f'.{group}' if group else ''}/{found.get('name', '')}"


def _role(obj: Object) -> str:
    found = obj.get("roleRef") or {}
    return f"{found.get('kind', '')}/{found.get('name', '')}"


def _subjects(kind: str) -> Callable[[Object], str]:
    def cell(obj: Object) -> str:
        found = [one for one in obj.get("subjects") or () if one.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{one.get('namespace', '')}/{one['name']}" for one in found)
        return ", ".join(str(one["name"]) for one in found)

    return cell


_BINDING = [
    NAME,
    Column("Role", _role),
    AGE,
    Column("Users", _subjects("User"), priority=WIDE),
    Column("Groups", _subjects("Group"), priority=WIDE),
    Column("ServiceAccounts", _subjects("ServiceAccount"), priority=WIDE),
]
_WEBHOOKS = [NAME, Column("Webhooks", _length("webhooks"), "integer"), AGE]

MORE: dict[str, list[Column]] = {
    "podtemplates": [
        NAME,
        Column("Containers", each("template.spec.containers", "name")),
        Column("Images", each("template.spec.containers", "image")),
        Column("Pod Labels", lambda obj: labels(at(obj, "template.metadata.labels"))),
    ],
    "resourcequotas": [
        NAME,
        Column("Request", _quota(limits=False)),
        Column("Limit", _quota(limits=True)),
        AGE,
    ],
    "limitranges": [NAME, CREATED],
    "horizontalpodautoscalers.autoscaling": [
        NAME,
        Column("Reference", _reference),
        Column("Targets", _targets),
        Column("MinPods", text("spec.minReplicas", "<unset>")),
        Column("MaxPods", number("spec.maxReplicas")),
        Column("Replicas", number("status.currentReplicas")),
        AGE,
    ],
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "controllerrevisions.apps": [
        NAME,
        Column("Controller", _controller),
        Column("Revision", number("revision")),
        AGE,
    ],
    "ingressclasses.networking.k8s.io": [
        NAME,
        Column("Controller", text("spec.controller", "")),
        Column("Parameters", _parameters),
        AGE,
    ],
    "priorityclasses.scheduling.k8s.io": [
        NAME,
        Column("Value", number("value"), "integer"),
        Column("Global-Default", lambda obj: bool(obj.get("globalDefault")), "boolean"),
        AGE,
        Column("PreemptionPolicy", text("preemptionPolicy", "")),
    ],
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
}
