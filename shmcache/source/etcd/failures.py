"""Failures of etcd, in the terms by which the reflector decides.

gRPC has one code for many causes; etcd's own text, which clients of every language match, tells
them apart. Compaction becomes 410, so that the reflector lists again by difference.
"""

from __future__ import annotations

import grpc

from shmcache.protocol.status import ServerStatus
from shmcache.source.base import FailureKind, SourceFailed, SourceFailure

COMPACTED = "required revision has been compacted"
FUTURE = "required revision is a future revision"
NO_LEADER = "etcdserver: no leader"
OLD_TOKEN = ("invalid auth token", "revision of auth store is old")
"""Failures that a new token mends."""
_CODE = grpc.StatusCode
_PLAIN = {
    _CODE.DEADLINE_EXCEEDED: FailureKind.SILENT,
    _CODE.CANCELLED: FailureKind.CANCELLED,
    _CODE.DATA_LOSS: FailureKind.GARBAGE,
    _CODE.UNIMPLEMENTED: FailureKind.GARBAGE,
}
_HTTP = {
    _CODE.UNAUTHENTICATED: 401,
    _CODE.PERMISSION_DENIED: 403,
    _CODE.RESOURCE_EXHAUSTED: 429,
    _CODE.INVALID_ARGUMENT: 400,
    _CODE.FAILED_PRECONDITION: 400,
    _CODE.OUT_OF_RANGE: 400,
    _CODE.NOT_FOUND: 404,
    _CODE.INTERNAL: 500,
    _CODE.UNKNOWN: 500,
}
_TEXTS = (
    (COMPACTED, 410, "Expired"),
    (FUTURE, 504, "Timeout"),
    ("authentication failed", 401, "Unauthorized"),
    ("user name is empty", 401, "Unauthorized"),
    *((old, 401, "Unauthorized") for old in OLD_TOKEN),
    ("permission denied", 403, "Forbidden"),
)
"""Parts of etcd's texts, with the code and reason that an API server would send."""


def failure_of(error: grpc.RpcError, what: str) -> SourceFailed:
    """The failure that an error of gRPC stands for; `what` was being done."""
    code: grpc.StatusCode = error.code()
    text: str = error.details() or code.name
    return failed(text, what, code)


def failed(text: str, what: str, code: grpc.StatusCode = _CODE.UNKNOWN) -> SourceFailed:
    """The same from etcd's text, which also cancel a watch without an error of gRPC."""
    message = f"{what}: {text}"
    for part, answer, reason in _TEXTS:
        if part in text:
            causes = (("ResourceVersionTooLarge", text),) if part is FUTURE else ()
            return _status(answer, reason, message, *causes)
    if NO_LEADER in text or "leader changed" in text:
        return SourceFailed(SourceFailure(FailureKind.ENDED, message))
    if code is _CODE.UNAVAILABLE:
        refused = "refused" in text.lower()
        kind = FailureKind.REFUSED if refused else FailureKind.NETWORK
        return SourceFailed(SourceFailure(kind, message))
    if _is_late(text):
        return SourceFailed(SourceFailure(FailureKind.SILENT, message))
    if code in _PLAIN:
        return SourceFailed(SourceFailure(_PLAIN[code], message))
    return _status(_HTTP.get(code, 500), "", message)


def _is_token(text: str) -> bool:
    return any(old in text for old in OLD_TOKEN)


def needs_token(error: grpc.RpcError) -> bool:
    """Whether a new token may mend it."""
    return _is_token(error.details() or "")


def is_passing(error: grpc.RpcError) -> bool:
    """Whether another member may answer what this one did not."""
    return error.code() is _CODE.UNAVAILABLE or is_late(error)


def is_late(error: grpc.RpcError) -> bool:
    """Whether a member took too long; up to 3.5, some of these errors have the code UNKNOWN."""
    return error.code() is _CODE.DEADLINE_EXCEEDED or _is_late(error.details() or "")


def _is_late(text: str) -> bool:
    return "request timed out" in text or "context deadline exceeded" in text


def was_not_sent(error: grpc.RpcError) -> bool:
    """Whether no member can have seen the request: only then a write may be repeated."""
    text = (error.details() or "").lower()
    return error.code() is _CODE.UNAVAILABLE and (
        "failed to connect" in text or "name resolution" in text or "refused" in text
    )


def expired(message: str) -> SourceFailed:
    """410: the server does not have that history."""
    return _status(410, "Expired", message)


def _status(code: int, reason: str, message: str, *causes: tuple[str, str]) -> SourceFailed:
    status = ServerStatus(code=code, reason=reason, message=message, causes=causes)
    return SourceFailed(SourceFailure(FailureKind.HTTP, message, status))
