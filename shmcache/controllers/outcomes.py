"""What a reconcile may say about the key, beside nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requeue:
    """Returned by a reconcile: the key comes again, though nothing may have changed.

    With `after`, in so many seconds and as if it had succeeded; without, as after an error.
    """

    after: float | None = None

    def __post_init__(self) -> None:
        if self.after is not None and not 0 <= self.after < float("inf"):
            raise ValueError(f"after is a number of seconds, not {self.after!r}")


class TerminalError(Exception):
    """Raised by a reconcile: trying again is useless until the object changes.

    `raise TerminalError("...") from error` logs both.
    """


class NotCaughtUp(Exception):
    """The cache is not yet where this key was written: it must not be acted on."""

    after: float | None = None
    """When it makes sense to look again, in seconds; None: after a while."""
