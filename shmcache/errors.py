"""What can go wrong, by what the caller can do about it.

One root, `ShmCacheError`. Answers (nothing new, time limit passed, no such key) are return values
and never exceptions; system calls that fail raise OSError with their errno. Every exception here
takes positional arguments and survives pickling.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
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
    "LimitExceeded",
    "QueueShutDown",
    "SegmentNotFound",
    "ShmCacheError",
    "SourceError",
    "StaleObjectError",
    "UnsupportedValue",
    "UntrustedSegment",
]


class ShmCacheError(Exception):
    """The root of all errors of this package. Catch it to catch them all."""


class ClosedError(ShmCacheError):
    """The handle was closed, or its cache was. Attach again, or keep the handle open longer."""


class ForkedError(ShmCacheError):
    """The handle belongs to the parent process. Attach (or create the writer) in the child."""


class StaleObjectError(ShmCacheError):
    """The object's memory was given to newer ones. Look it up again; keep `.to_dict()` copies."""


class SegmentNotFound(ShmCacheError):
    """There is no such cache. Start its writer first, check the name, or attach with a timeout."""


class LayoutMismatch(ShmCacheError):
    """The segment is of another version, build or boot. Use the same shmcache on both sides."""


class UntrustedSegment(ShmCacheError):
    """The segment may be someone's forgery. If it is not, name its owner in `trusted_uids`."""


class CacheFull(ShmCacheError):
    """No room; the last good state is still served. The text says what to enlarge, and how."""


class CacheTooOld(ShmCacheError):
    """The cache is older than the caller accepts. Wait, accept more, or ask the server."""


class CorruptSegment(ShmCacheError):
    """What was read cannot be. Stop using this segment; restart its writer to build a new one."""


class UnsupportedValue(ShmCacheError, TypeError):
    """A value that JSON does not have. The text has the path to it; convert or drop it there."""


class LimitExceeded(ShmCacheError, ValueError):
    """Longer, deeper or more than the format holds. The text names the limit."""


class InvalidSelector(ShmCacheError, ValueError):
    """No label or field selector. The text is the API server's own, and says where it ends."""


class BusyError(ShmCacheError):
    """Held by another process: the writer's lock, or every seat. Wait, or end the holder."""


class FencedError(ShmCacheError):
    """Another writer took over. Stop writing; close this writer and attach as a reader."""


class QueueShutDown(ShmCacheError):
    """The queue is shut down and empty, or stop() ended our part in it. End the worker's loop."""


class SourceError(ShmCacheError):
    """Where the objects come from failed. It is retried; the cache serves its last state."""


class Lapped(ShmCacheError):
    """Deltas were overwritten before they were read. Compare with a snapshot, then go on.

    `position` is where to go on: the head of the snapshot that the difference is taken against.
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
