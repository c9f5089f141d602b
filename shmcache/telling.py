"""Telling: which state of a resource its readers are shown, and why; each thing once."""

from __future__ import annotations

from shmcache import states
from shmcache.events import Report
from shmcache.source.base import Failure


class Standing:
    """What was said last, and since when the source has been failing."""

    __slots__ = ("_failing_since", "_said", "_stale_after", "filled", "word")

    def __init__(self, stale_after: float) -> None:
        self._stale_after = stale_after
        self._said: Report | None = None
        self._failing_since: float | None = None
        self.filled = False
        """There is content, of this life or an earlier one."""
        self.word: float | None = None
        """When the server last said anything of the objects."""

    def report(self, state: int, reason: str = "") -> Report | None:
        """What to say; None if it was said already."""
        report = Report(state, reason)
        if report == self._said:
            return None
        self._said = report
        return report

    def synced(self) -> Report | None:
        """The content is the server's, as far as anybody can know."""
        self._failing_since = None
        return self.report(states.SYNCED)

    def trouble(self, text: str, failure: Failure | None, now: float) -> Report | None:
        """Absent if the server says so; stale if it goes on for long; else being retried."""
        if self._failing_since is None:
            self._failing_since = now if self.word is None else self.word
        if failure is not None and failure.code == 404:
            return self.report(states.ABSENT, text)
        if self.filled and now - self._failing_since > self._stale_after:
            return self.report(states.STALED, text)
        return self.report(states.RETRYING, text)
