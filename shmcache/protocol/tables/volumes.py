"""Columns of the groups storage.k8s.io and storagemigration.k8s.io."""

from __future__ import annotations

from shmcache.protocol.tables.columns import (
    AGE,
    DEFAULT,
    NAME,
    Column,
    at,
    default_name,
    flag,
    joined,
    length,
    named,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Object = Any

_ENDS = ("Running", "Failed", "Succeeded")


def _audiences(obj: Object) -> str:
    found = at(obj, "spec.tokenRequests")
    return "<unset>" if found is None else ",".join(one.get("audience") or "" for one in found)


def _migrated(obj: Object) -> str:
    found = at(obj, "spec.resource") or {}
    group = found.get("group")
    return f"{found.get('resource', '')}.{group}" if group else str(found.get("resource", ""))


def _migration(obj: Object) -> str:
    state = "Unknown"
    for one in at(obj, "status.conditions") or ():
        if one.get("status") == "True" and one.get("type") in _ENDS:
            state = one["type"]
    return state


COLUMNS: dict[str, list[Column]] = {
    "csidrivers.storage.k8s.io": [
        NAME,
        Column("AttachRequired", flag("spec.attachRequired", default=True), "boolean"),
        Column("PodInfoOnMount", flag("spec.podInfoOnMount"), "boolean"),
        Column("StorageCapacity", flag("spec.storageCapacity"), "boolean"),
        Column("TokenRequests", _audiences),
        Column("RequiresRepublish", flag("spec.requiresRepublish"), "boolean"),
        Column("Modes", joined("spec.volumeLifecycleModes")),
        AGE,
    ],
    "csinodes.storage.k8s.io": [NAME, Column("Drivers", length("spec.drivers"), "integer"), AGE],
    "csistoragecapacities.storage.k8s.io": DEFAULT,
    "storageclasses.storage.k8s.io": [
        named(
            default_name(
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            )
        ),
        Column("Provisioner", text("provisioner", "")),
        Column("ReclaimPolicy", text("reclaimPolicy", "Delete")),
        Column("VolumeBindingMode", text("volumeBindingMode", "Immediate")),
        Column("AllowVolumeExpansion", flag("allowVolumeExpansion")),
        AGE,
    ],
    "volumeattachments.storage.k8s.io": [
        NAME,
        Column("Attacher", text("spec.attacher", ""), form="name"),
        Column("PV", text("spec.source.persistentVolumeName", "")),
        Column("Node", text("spec.nodeName", "")),
        Column("Attached", flag("status.attached"), "boolean"),
        AGE,
    ],
    "volumeattributesclasses.storage.k8s.io": [
        NAME,
        Column("DriverName", text("driverName", "")),
        AGE,
    ],
    "storageversionmigrations.storagemigration.k8s.io": [
        Column("Name", NAME.cell, description=NAME.description),
        Column("Resource", _migrated),
        Column("Status", _migration),
    ],
}
