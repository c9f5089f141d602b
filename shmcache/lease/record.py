"""The record in a Lease's spec: its holder, its times, and what a coordinator decided about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

API_VERSION, KIND = "coordination.k8s.io/v1", "Lease"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A LeaseSpec. Missing fields are empty, as a Lease that nobody ever held has them."""

    holder: str = ""
    seconds: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    preferred: str = ""
    """KEP-4355: who shall be the next holder; the present one ends its term."""
    strategy: str = ""

    @classmethod
    def of(cls, lease: Any) -> LeaseRecord:
        """The record of an object; of a field of another type, what it is when missing."""
        spec = lease.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        return cls(
            holder=_text(spec, "holderIdentity"),
            seconds=_number(spec, "leaseDurationSeconds"),
            acquired=_text(spec, "acquireTime"),
            renewed=_text(spec, "renewTime"),
            transitions=_number(spec, "leaseTransitions"),
            preferred=_text(spec, "preferredHolder"),
            strategy=_text(spec, "strategy"),
        )

    def spec(self) -> dict[str, Any]:
        """As a Lease has it."""
        fields: dict[str, Any] = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.seconds,
            "acquireTime": self.acquired,
            "renewTime": self.renewed,
            "leaseTransitions": self.transitions,
        }
        if self.preferred:
            fields["preferredHolder"] = self.preferred
        if self.strategy:
            fields["strategy"] = self.strategy
        return {name: value for name, value in fields.items() if value != ""} | {
            "holderIdentity": self.holder
        }

    def at(self, wall: float) -> LeaseRecord:
        """The same, renewed now. Always another text than before (ELECT4)."""
        return replace(self, renewed=later(wall, self.renewed))


def micro_time(wall: float) -> str:
    """Seconds since the epoch as a MicroTime."""
    return _formatted(_EPOCH + timedelta(seconds=wall))


def later(wall: float, than: str) -> str:
    """The time as a MicroTime that differs from another one, whatever the wall clock did."""
    now = micro_time(wall)
    if now != than:
        return now
    return _formatted(_parsed(now) + _MICROSECOND)


def wall_of(text: str) -> float | None:
    """Seconds since the epoch of a MicroTime; None if it is missing or invalid."""
    try:
        return (_parsed(text) - _EPOCH).total_seconds()
    except ValueError:
        return None


def _parsed(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return found


def _formatted(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _text(spec: dict[str, Any], name: str) -> str:
    found = spec.get(name)
    return found if isinstance(found, str) else ""


def _number(spec: dict[str, Any], name: str) -> int:
    """An int32, as the API has them; 0 for anything else."""
    found = spec.get(name)
    return found if isinstance(found, int) and abs(found) < 1 << 31 else 0


def empty_lease(name: str, namespace: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A Lease without a record."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {}}


def version_of(lease: Any) -> str:
    """Its resourceVersion; "" if it has none."""
    metadata = lease.get("metadata")
    found = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""
