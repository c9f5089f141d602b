"""How `kubectl get pods` describes the state of a pod, as the API server does in its tables.

One pass over the statuses of init containers, sidecars and containers; the state shown is that of
the container named first. Objects are dicts or Views.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Object = Any

_DONE = ("Succeeded", "Failed")
_SCHEDULED = ("Running", *_DONE)
"""Phases that a pod with scheduling gates cannot be in: most pods need no look at that."""


class _Found:
    """The state of a pod as far as its statuses have been read."""

    __slots__ = ("last", "ready", "reason", "restarts", "sidecar_last", "sidecar_restarts")

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.ready = self.restarts = self.sidecar_restarts = 0
        self.last = self.sidecar_last = ""


def pod(obj: Object) -> tuple[str, str, int, str]:
    """Ready, Status, Restarts, and when a container was restarted last ("" if none was)."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    found = _Found(str(status.get("reason") or status.get("phase") or ""))
    containers = spec.get("containers")
    total = len(containers) if containers else 0
    waits = False
    inits = spec.get("initContainers")
    if inits:
        sidecars = {one["name"] for one in inits if one.get("restartPolicy") == "Always"}
        total += len(sidecars)
        waits = _initialize(found, status.get("initContainerStatuses") or (), sidecars, len(inits))
    if status.get("phase") not in _SCHEDULED and _gated(status):
        found.reason = "SchedulingGated"
    if not waits or _holds(status, "Initialized"):
        _run(found, status)
    if obj["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            found.reason = "Unknown"
        elif status.get("phase") not in _DONE:
            found.reason = "Terminating"
    return f"{found.ready}/{total}", found.reason, found.restarts, found.last


def _restarted(one: Object, last: str) -> str:
    """The later one of `last` and when this container ended before it was started again."""
    before = one.get("lastState")
    ended = before.get("terminated") if before else None
    return max(last, str(ended.get("finishedAt") or "")) if ended else last


def _initialize(found: _Found, statuses: Any, sidecars: set[str], count: int) -> bool:
    """Whether the pod still waits for an init container, which then is its state."""
    for number, one in enumerate(statuses):
        state = one.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        found.restarts += one.get("restartCount") or 0
        found.last = _restarted(one, found.last)
        sidecar = one.get("name") in sidecars
        if sidecar:
            found.sidecar_restarts += one.get("restartCount") or 0
            found.sidecar_last = _restarted(one, found.sidecar_last)
        if ended is not None and not ended.get("exitCode"):
            continue
        if sidecar and one.get("started"):
            found.ready += bool(one.get("ready"))
            continue
        if ended is not None:
            found.reason = f"Init:{ended.get('reason') or _end_of(ended)}"
        elif waiting is not None and waiting.get("reason") not in {None, "", "PodInitializing"}:
            found.reason = f"Init:{waiting['reason']}"
        else:
            found.reason = f"Init:{number}/{count}"
        return True
    return False


def _end_of(ended: Object) -> str:
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode') or 0}"


def _run(found: _Found, status: Object) -> None:
    """The containers, last to first, so that the first one decides."""
    found.restarts, found.last = found.sidecar_restarts, found.sidecar_last
    running, failure = False, ""
    for one in reversed(status.get("containerStatuses") or ()):
        found.restarts += one.get("restartCount") or 0
        found.last = _restarted(one, found.last)
        state = one.get("state") or {}
        waiting = state.get("waiting")
        ended = None if waiting is not None and waiting.get("reason") else state.get("terminated")
        if waiting is not None and waiting.get("reason"):
            found.reason = waiting["reason"]
        elif ended is not None:
            found.reason = ended.get("reason") or _end_of(ended)
            failure = found.reason if ended.get("exitCode") else failure
        elif one.get("ready") and state.get("running") is not None:
            running = True
            found.ready += 1
    if found.reason != "Completed":
        return
    if running and _holds(status, "Ready"):
        found.reason = "Running"
    else:
        found.reason = failure or ("NotReady" if running else found.reason)


def _holds(status: Object, kind: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions)


def _gated(status: Object) -> bool:
    return any(
        one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated"
        for one in status.get("conditions") or ()
    )
