"""How much one client may ask, hold and leave waiting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of each server process. Times are seconds, sizes bytes."""

    connections: int = 4096
    """More wait in the kernel until one ends."""
    head_bytes: int = 64 << 10
    headers: int = 100
    body_bytes: int = 3 << 20
    """As kube-apiserver's; bodies are taken only to be passed on."""
    target_bytes: int = 16 << 10
    selector_bytes: int = 8 << 10
    head_seconds: float = 10.0
    """From the first byte of a request to the end of its head."""
    body_seconds: float = 60.0
    idle_seconds: float = 180.0
    """Between two requests."""
    stall_seconds: float = 60.0
    """A client that takes nothing for so long is cut."""
    drain_seconds: float = 25.0
    """For requests under way when the server is to end."""
    backlog_bytes: int = 1 << 20
    """A list is read on when less than this waits for the client."""
    waiting: int = 512
    """Requests that wait for a version or a review at once; more are told to come again (429)."""
    proxied: int = 64
    """Requests passed on at once."""
