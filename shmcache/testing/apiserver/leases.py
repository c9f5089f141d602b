"""The rules of the API server for Leases: positive times, and a version with each update."""

from __future__ import annotations

from typing import Any

from shmcache.protocol import failures
from shmcache.protocol.kinds import Kind

LEASES = "leases.coordination.k8s.io"


def check_lease(kind: Kind, obj: dict[str, Any], *, update: bool) -> None:
    """A Failure (422) for an invalid one."""
    if kind.key != LEASES:
        return
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    causes: list[tuple[str, str, str]] = []
    if update and not metadata.get("resourceVersion"):
        message = "Invalid value: 0: must be specified for an update"
        causes.append(("FieldValueInvalid", message, "metadata.resourceVersion"))
    for name, least, message_end in (
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ):
        value = spec.get(name)
        if value is not None and value < least:
            message = f"Invalid value: {value}: {message_end}"
            causes.append(("FieldValueInvalid", message, f"spec.{name}"))
    if spec.get("preferredHolder") and not spec.get("strategy"):
        message = "Required value: must be specified when `spec.preferredHolder` is set"
        causes.append(("FieldValueRequired", message, "spec.strategy"))
    if causes:
        name = str(metadata.get("name") or "")
        raise failures.invalid(kind.kind, kind.group, name, causes)
