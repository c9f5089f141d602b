"""Columns of the groups rbac.authorization.k8s.io and certificates.k8s.io."""

from __future__ import annotations

from shmcache.protocol.tables.ages import human
from shmcache.protocol.tables.columns import (
    AGE,
    DEFAULT,
    NAME,
    NONE,
    Column,
    at,
    labels_at,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache.protocol.tables.columns import Cell

    Object = Any

WIDE = 1


def _role(obj: Object) -> str:
    found = obj.get("roleRef") or {}
    return f"{found.get('kind', '')}/{found.get('name', '')}"


def _subjects(kind: str) -> Cell:
    def cell(obj: Object) -> str:
        found = [one for one in obj.get("subjects") or () if one.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{one.get('namespace', '')}/{one['name']}" for one in found)
        return ", ".join(str(one["name"]) for one in found)

    return cell


def _lifetime(obj: Object) -> str:
    found = at(obj, "spec.expirationSeconds")
    return NONE if found is None else human(found)


def _request_state(obj: Object) -> str:
    held = {one.get("type") for one in at(obj, "status.conditions") or ()}
    decided = [kind for kind in ("Denied", "Approved") if kind in held]
    parts = [*(decided[:1] or ["Pending"])]
    if "Failed" in held:
        parts.append("Failed")
    if at(obj, "status.certificate"):
        parts.append("Issued")
    return ",".join(parts)


def _pod_request_state(obj: Object) -> str:
    kinds = [one.get("type") for one in at(obj, "status.conditions") or ()]
    decided = [kind for kind in kinds if kind in {"Issued", "Denied", "Failed"}]
    return decided[-1] if decided else "Pending"


_BINDING = [
    NAME,
    Column("Role", _role),
    AGE,
    Column("Users", _subjects("User"), priority=WIDE),
    Column("Groups", _subjects("Group"), priority=WIDE),
    Column("ServiceAccounts", _subjects("ServiceAccount"), priority=WIDE),
]

COLUMNS: dict[str, list[Column]] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterroles.rbac.authorization.k8s.io": DEFAULT,
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "roles.rbac.authorization.k8s.io": DEFAULT,
    "certificatesigningrequests.certificates.k8s.io": [
        NAME,
        AGE,
        Column("SignerName", text("spec.signerName")),
        Column("Requestor", text("spec.username", "")),
        Column("RequestedDuration", _lifetime),
        Column("Condition", _request_state),
    ],
    "clustertrustbundles.certificates.k8s.io": [
        NAME,
        Column("SignerName", text("spec.signerName")),
    ],
    "podcertificaterequests.certificates.k8s.io": [
        NAME,
        Column("PodName", text("spec.podName", "")),
        Column("ServiceAccountName", text("spec.serviceAccountName", "")),
        Column("NodeName", text("spec.nodeName", "")),
        Column("SignerName", text("spec.signerName", "")),
        Column("State", _pod_request_state),
        Column("UnverifiedUserAnnotations", labels_at("spec.unverifiedUserAnnotations")),
    ],
}
