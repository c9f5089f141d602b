"""Errors, one class for each thing that a caller can do about them.

The root is `ShmCacheError`. Each docstring states the cause, then the cure; docs/api.md shows them.
Answers (nothing new, a timeout, a missing key) are return values, not exceptions; a failed system
call raises OSError with its errno. Every exception takes positional arguments and survives
pickling.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache._hot import Root

__all__ = [
    "BusyError",
    "CacheFull",
    "CacheTooOld",
    "ClosedError",
    "CorruptSegment",
    "FencedError",
    "ForkedError",
    "InvalidSelector",
    "Lapped",
    "LayoutMismatch",
    "LeadershipLost",
    "LimitExceeded",
    "ObjectDeleted",
    "PastUnknown",
    "QueueShutDown",
    "SegmentNotFound",
    "ShmCacheError",
    "SourceError",
    "StaleObjectError",
    "UnconfirmedError",
    "UnsupportedValue",
    "UntrustedSegment",
]


class ShmCacheError(Exception):
    """The root of all errors of this package. Catch it to catch them all.

    Each carries a note, which tracebacks show, that leads to its entry in docs/api.md.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        entry = next(cls.__name__ for cls in type(self).__mro__ if cls.__name__ in __all__)
        self.add_note(f"Cause and cure: docs/api.md#{entry.lower()}")


class ClosedError(ShmCacheError):
    """The handle, or the cache that it came from, is closed. Attach again, or close later."""


class ForkedError(ShmCacheError):
    """The handle belongs to the parent process. Attach, or create the writer, in the child."""


class StaleObjectError(ShmCacheError):
    """The writer gave the object's memory to newer objects. Look the object up again.

    Copies made by `.to_dict()` stay valid; a larger `garbage_max` lets views live longer.
    """


class SegmentNotFound(ShmCacheError):
    """No cache has this name. Start its reflector, check the name, or attach with a timeout."""


class LayoutMismatch(ShmCacheError):
    """The file is of another version, build or boot. Use the same shmcache on both sides."""


class UntrustedSegment(ShmCacheError):
    """Another user owns the file, who could forge it. Name a trusted owner in `trusted_uids`."""


class CacheFull(ShmCacheError):
    """No room is left; the last good state is still served. Enlarge the limit in the message."""


class PastUnknown(ShmCacheError):
    """The window does not lead back so far. Ask for a later state, or make the ring longer."""


class CacheTooOld(ShmCacheError):
    """The cache is older than the caller accepts. Wait, accept more, or ask the server."""


class UnconfirmedError(ShmCacheError):
    """Nobody could confirm that the cache is current. Try again, or read what is cached.

    The message names the reason: no reflector runs, the server does not answer, or it took too
    long.
    """


class CorruptSegment(ShmCacheError):
    """The memory contradicts itself. Stop reading; restart the writer to build a new instance."""


class UnsupportedValue(ShmCacheError, TypeError):
    """JSON does not have this value. Convert or drop it at the path that the message shows."""


class LimitExceeded(ShmCacheError, ValueError):
    """The value is longer, deeper or larger than the format holds. The message names the limit."""


class InvalidSelector(ShmCacheError, ValueError):
    """The label or field selector is invalid. Correct it where the message points.

    The message is the API server's own.
    """


class BusyError(ShmCacheError):
    """Another process holds the writer's lock, or all seats are taken. Wait, or end the holder."""


class FencedError(ShmCacheError):
    """Another writer took the cache over. Close this writer, and attach as a reader."""


class LeadershipLost(ShmCacheError):
    """The Lease is not ours any more, or not yet. Stop the work; another process may do it.

    `name` of the Lease, and the `reason`.
    """

    def __init__(self, name: str, reason: str = "") -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"lease {self.name}: {self.reason}"


class QueueShutDown(ShmCacheError):
    """The queue is shut down and empty, or was stopped here. End the worker's loop."""


class SourceError(ShmCacheError):
    """The source of the objects failed. Wait: it is retried, and the last state is served."""


class ObjectDeleted(ShmCacheError):
    """The object was deleted while `wait_until` waited for it. Decide by its last state.

    `key`; `last`: its last state, as a view, or a Tombstone where that state is lost; `unknown`:
    the deletion was found, not seen, so that states before it were missed. `absent=True` makes
    the absence of the object a state that the predicate sees.
    """

    def __init__(self, key: str, last: Any = None, unknown: bool = False) -> None:  # noqa: FBT001, FBT002
        super().__init__(key, last, unknown)
        self.key = key
        self.last = last
        self.unknown = unknown

    def __str__(self) -> str:
        missed = ", and its last states were missed" if self.unknown else ""
        return f"{self.key} was deleted during the wait{missed}"


class Lapped(ShmCacheError):
    """The ring overwrote deltas before they were read. Compare with a snapshot, then go on.

    `position` is the head of the snapshot to compare with: take deltas from there on.
    """

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position
        self.root: Root | None = None

    def __reduce__(self) -> tuple[type[Lapped], tuple[int]]:
        return type(self), (self.position,)  # and without the root that may hang on it

    def __str__(self) -> str:
        return (
            "the ring overwrote deltas before they were read: compare with a snapshot, "
            f"then go on from {self.position}"
        )
