"""Results and errors of a reconcile that have a meaning for its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shmcache.errors import ShmCacheError


@dataclass(frozen=True, slots=True, repr=False)
class Requeue:
    """Returned by a reconcile: the key comes again, though nothing may have changed.

    With `after`, in so many seconds and as if it had succeeded, where 0 is the same as returning
    None; without `after`, as after an error. It keeps its priority unless another one is given.
    """

    after: float | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        if self.after is not None and not 0 <= self.after < float("inf"):
            raise ValueError(f"after must be a number of seconds, not {self.after!r}")

    def __repr__(self) -> str:
        fields = (("after", self.after), ("priority", self.priority))
        return f"Requeue({', '.join(f'{name}={one}' for name, one in fields if one is not None)})"


class TerminalError(Exception):
    """A reconcile that cannot succeed before the object changes. Raise it to stop retries.

    It counts wherever it is: as the cause of another error (`raise other from terminal`), or in an
    exception group.
    """


class NotCached(ShmCacheError, LookupError):
    """A resource that a controller reads is not in the cache. The text lists those that are."""


def is_terminal(error: BaseException) -> bool:
    """Whether an error, one of its causes, or a member of its group is a TerminalError."""
    return any(isinstance(one, TerminalError) for one in _tree(error))


def _tree(error: BaseException) -> Iterator[BaseException]:
    left, seen = [error], {id(error)}
    while left:
        one = left.pop()
        yield one
        causes = [one.__cause__] if one.__cause__ is not None else []
        members = list(one.exceptions) if isinstance(one, BaseExceptionGroup) else []
        for other in (*causes, *members):
            if id(other) not in seen:
                seen.add(id(other))
                left.append(other)


class NotCaughtUp(Exception):
    """The cache is not yet where this key was written: it must not be acted on."""

    after: float | None = None
    """When it makes sense to look again, in seconds; None: after a while."""
