"""Columns of the groups that extend an API server: admission, definitions, aggregation."""

from __future__ import annotations

from shmcache.protocol.tables.columns import AGE, DEFAULT, NAME, Column, at, length, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Object = Any

_UNSET = "<unset>"


def _param_kind(obj: Object) -> str:
    found = at(obj, "spec.paramKind")
    if found is None:
        return _UNSET
    return f"{found.get('apiVersion', '')}/{found.get('kind', '')}"


def _param(obj: Object) -> str:
    found = at(obj, "spec.paramRef") or {}
    if found.get("name"):
        return f"{found.get('namespace') or '*'}/{found['name']}"
    chosen = found.get("selector")
    return _UNSET if chosen is None else _go(chosen)


def _go(chosen: Object) -> str:
    """A label selector as Go prints the structure."""
    labels = chosen.get("matchLabels") or {}
    pairs = "".join(f"{key}: {labels[key]}," for key in sorted(labels))
    terms = "".join(
        f"LabelSelectorRequirement{{Key:{one['key']},Operator:{one['operator']},"
        f"Values:[{' '.join(one.get('values') or ())}],}},"
        for one in chosen.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"
    )


def _service(obj: Object) -> str:
    found = at(obj, "spec.service")
    if found is None:
        return "Local"
    return f"{found.get('namespace', '')}/{found.get('name', '')}"


def _available(obj: Object) -> str:
    for one in at(obj, "status.conditions") or ():
        if one.get("type") == "Available":
            status, reason = str(one.get("status") or ""), one.get("reason")
            return f"{status} ({reason})" if reason and status != "True" else status
    return "Unknown"


_WEBHOOKS = [NAME, Column("Webhooks", length("webhooks"), "integer"), AGE]
_BINDING = [
    NAME,
    Column("PolicyName", text("spec.policyName", "")),
    Column("ParamRef", _param),
    AGE,
]


def _policy(name: str, path: str) -> list[Column]:
    return [NAME, Column(name, length(path), "integer"), Column("ParamKind", _param_kind), AGE]


COLUMNS: dict[str, list[Column]] = {
    "mutatingadmissionpolicies.admissionregistration.k8s.io": _policy(
        "Mutations", "spec.mutations"
    ),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _BINDING,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingadmissionpolicies.admissionregistration.k8s.io": _policy(
        "Validations", "spec.validations"
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _BINDING,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "customresourcedefinitions.apiextensions.k8s.io": DEFAULT,
    "apiservices.apiregistration.k8s.io": [
        NAME,
        Column("Service", _service),
        Column("Available", _available),
        AGE,
    ],
}
