"""Failures as a Kubernetes API server writes them: for tests that want one of them to happen."""

from __future__ import annotations

import json
from collections.abc import Iterable

from shmcache.protocol.items import Item
from shmcache.protocol.status import ServerStatus
from shmcache.source.base import FailureKind, SourceFailure

Cause = tuple[str, str]


def http(
    code: int,
    reason: str = "",
    message: str = "",
    *,
    causes: Iterable[Cause] = (),
    retry_after: float | None = None,
) -> SourceFailure:
    """An HTTP error with a Status; `retry_after` is the header."""
    text = message or reason or f"HTTP {code}"
    status = ServerStatus(code=code, reason=reason, message=text, causes=tuple(causes))
    return SourceFailure(FailureKind.HTTP, text, status, retry_after)


def expired(message: str = "too old resource version: 1 (10)") -> SourceFailure:
    """410: the server has forgotten that version."""
    return http(410, "Expired", message)


def too_large(version: int, current: int) -> SourceFailure:
    """504: the version is ahead of the server; the spelling since 1.18.6."""
    return http(
        504,
        "Timeout",
        f"Too large resource version: {version}, current: {current}",
        causes=[("ResourceVersionTooLarge", "Too large resource version")],
        retry_after=1,
    )


def throttled(retry_after: float | None = 1) -> SourceFailure:
    """429, as priority and fairness answers: no Status in the body."""
    text = "Too many requests, please try again later."
    return SourceFailure(FailureKind.HTTP, text, ServerStatus(code=429, message=text), retry_after)


def refused() -> SourceFailure:
    """Nobody listens."""
    return SourceFailure(FailureKind.REFUSED, "connection refused")


def reset() -> SourceFailure:
    """The connection broke."""
    return SourceFailure(FailureKind.NETWORK, "connection reset by peer")


def hung_up() -> SourceFailure:
    """The server ended the connection where it should not have."""
    return SourceFailure(FailureKind.ENDED, "the server hung up")


def as_event(failure: SourceFailure) -> Item:
    """The ERROR event that says the same inside a watch (R-AS-04)."""
    status = failure.status
    if status is None:
        raise ValueError(f"{failure.kind} is not an answer of a server")
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": status.message,
        "reason": status.reason,
        "details": {
            "causes": [{"reason": reason, "message": message} for reason, message in status.causes],
            **({"retryAfterSeconds": status.retry_after} if status.retry_after else {}),
        },
        "code": status.code,
    }
    return Item("ERROR", "", None, None, "Status", "v1", json.dumps(body).encode())
