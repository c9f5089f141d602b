"""Limits on requests, connections and backlogs of each client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of each server process. Times are seconds, sizes bytes."""

    connections: int = 4096
    """A new connection replaces one that waits for its client."""
    held_bytes: int = 24 << 20
    """Memory for all clients together: bytes that came and are not used, bytes that they have not
    taken. See holding.py."""
    kept_bytes: int = 8 << 20
    """Memory for all requests together that wait or whose answers go on: long heads, selectors,
    exact versions. See weights.py."""
    head_bytes: int = 64 << 10
    headers: int = 100
    body_bytes: int = 3 << 20
    """As kube-apiserver's; bodies are read only to be passed on."""
    target_bytes: int = 16 << 10
    selector_bytes: int = 8 << 10
    head_seconds: float = 10.0
    """From the first byte of a request to the end of its head."""
    body_seconds: float = 60.0
    idle_seconds: float = 180.0
    """Between two requests."""
    stall_seconds: float = 60.0
    """A client that reads nothing for this long is cut."""
    drain_seconds: float = 25.0
    """For requests under way when the server drains."""
    backlog_bytes: int = 1 << 20
    """A list is read on when less than this waits for the client."""

    @property
    def proxied(self) -> int:
        """Requests passed on at once; further ones get 429."""
        return max(min(64, self.connections // 16), 1)

    @property
    def lasting(self) -> int:
        """Watches at once: five eighths of the connections."""
        return max(self.connections * 5 // 8, 1)

    @property
    def handshakes(self) -> int:
        """TLS handshakes under way at once: a sixteenth of the connections, 60 KiB each."""
        return max(self.connections // 16, 4)

    @property
    def waiting(self) -> int:
        """Requests that wait for a version or a review at once; further ones get 429."""
        return max(min(512, self.connections // 8), 1)
