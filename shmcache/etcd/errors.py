"""Errors of the store, one class for each thing that a caller can do about them."""

from __future__ import annotations

from shmcache.errors import ShmCacheError
from shmcache.source.base import FailureKind, SourceFailed


class EtcdError(ShmCacheError):
    """etcd did not do it, and has changed nothing: the text says why. Try again later."""


class KeyExists(EtcdError):
    """A create found the key. Use guaranteed_update(), or another key."""


class KeyMissing(EtcdError):
    """The key is not there."""


class KeyChanged(EtcdError):
    """A precondition, on version or uid, does not hold. Read the object, and decide again."""


class RevisionGone(EtcdError):
    """The revision was compacted. Begin the list again."""


class WriteUnknown(EtcdError):
    """The answer to a write was lost: it may have been applied. Read the key before you go on."""


def error_of(failed: SourceFailed, *, writes: bool) -> EtcdError:
    """The error that a failure of a request stands for."""
    failure = failed.failure
    if failure.status is not None and failure.status.is_expired:
        return RevisionGone(str(failed))
    refused = failure.kind is FailureKind.REFUSED or 400 <= (failure.code or 0) < 500
    return EtcdError(str(failed)) if refused or not writes else WriteUnknown(str(failed))
