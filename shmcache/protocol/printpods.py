"""How `kubectl get pods` words the state of a pod: what the API server works out for its tables.

One pass over the statuses of init containers, sidecars and containers; the last word is that of the
container named first. Objects are dicts or Views.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Object = Any

_DONE = ("Succeeded", "Failed")


class _Told:
    """What is found on the way through a pod's statuses."""

    __slots__ = ("last", "ready", "reason", "restarts", "sidecar_last", "sidecar_restarts")

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.ready = self.restarts = self.sidecar_restarts = 0
        self.last = self.sidecar_last = ""


def pod(obj: Object) -> tuple[str, str, int, str]:
    """Ready, Status, Restarts, and when a container was restarted last ("" if none was)."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    told = _Told(str(status.get("reason") or status.get("phase") or ""))
    containers = spec.get("containers")
    total = len(containers) if containers else 0
    waits = False
    inits = spec.get("initContainers")
    if inits:
        sidecars = {one["name"] for one in inits if one.get("restartPolicy") == "Always"}
        total += len(sidecars)
        waits = _initialize(told, status.get("initContainerStatuses") or (), sidecars, len(inits))
    conditions = status.get("conditions") or ()
    if told.reason == "Pending" and _gated(conditions):
        told.reason = "SchedulingGated"
    if not waits or _holds(conditions, "Initialized"):
        _run(told, status.get("containerStatuses") or (), conditions)
    if obj["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            told.reason = "Unknown"
        elif status.get("phase") not in _DONE:
            told.reason = "Terminating"
    return f"{told.ready}/{total}", told.reason, told.restarts, told.last


def _restarted(one: Object, last: str) -> str:
    """The later one of `last` and when this container ended before it was started again."""
    before = one.get("lastState")
    ended = before.get("terminated") if before else None
    return max(last, str(ended.get("finishedAt") or "")) if ended else last


def _initialize(told: _Told, statuses: Any, sidecars: set[str], count: int) -> bool:
    """Whether the pod still waits for an init container, which then is its state."""
    for number, one in enumerate(statuses):
        state = one.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        told.restarts += one.get("restartCount") or 0
        told.last = _restarted(one, told.last)
        sidecar = one.get("name") in sidecars
        if sidecar:
            told.sidecar_restarts += one.get("restartCount") or 0
            told.sidecar_last = _restarted(one, told.sidecar_last)
        if ended is not None and not ended.get("exitCode"):
            continue
        if sidecar and one.get("started"):
            told.ready += bool(one.get("ready"))
            continue
        if ended is not None:
            told.reason = f"Init:{ended.get('reason') or _end_of(ended)}"
        elif waiting is not None and waiting.get("reason") not in {None, "", "PodInitializing"}:
            told.reason = f"Init:{waiting['reason']}"
        else:
            told.reason = f"Init:{number}/{count}"
        return True
    return False


def _end_of(ended: Object) -> str:
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode') or 0}"


def _run(told: _Told, statuses: Any, conditions: Any) -> None:
    """The containers, last to first, so that the first one's word stands."""
    told.restarts, told.last = told.sidecar_restarts, told.sidecar_last
    running = False
    for one in reversed(statuses):
        told.restarts += one.get("restartCount") or 0
        told.last = _restarted(one, told.last)
        state = one.get("state") or {}
        waiting = state.get("waiting")
        ended = None if waiting is not None and waiting.get("reason") else state.get("terminated")
        if waiting is not None and waiting.get("reason"):
            told.reason = waiting["reason"]
        elif ended is not None:
            told.reason = ended.get("reason") or _end_of(ended)
        elif one.get("ready") and state.get("running") is not None:
            running = True
            told.ready += 1
    if running and told.reason == "Completed":
        told.reason = "Running" if _holds(conditions, "Ready") else "NotReady"


def _holds(conditions: Any, kind: str) -> bool:
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions)


def _gated(conditions: Any) -> bool:
    return any(
        one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated"
        for one in conditions
    )
