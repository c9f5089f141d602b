"""The one thing that is under way for a resource, and the actions that start it.

Comes in: decisions of machine.py and passes.py. Goes out: actions, reports, counts. Never here: a
decision which request comes next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from shmcache import states
from shmcache.protocol.options import ListOptions
from shmcache.reflector.events import (
    Action,
    Await,
    BeginReplace,
    CancelReplace,
    Contact,
    FinishReplace,
    List,
    Log,
    Probe,
    Report,
    Sleep,
    Watch,
)
from shmcache.reflector.filtering import Position, Sifted
from shmcache.reflector.retrying import SERVER, Patience, ReflectorSettings, cause_of
from shmcache.source.base import FailureKind, SourceFailure


class Phase(Enum):
    """The one thing that is under way."""

    IDLE = "idle"
    LISTING = "listing"
    STREAMING = "streaming"  # a watch-list, its initial objects not yet complete
    WATCHING = "watching"
    WAITING = "waiting"
    PROBING = "probing"
    STOPPED = "stopped"


@dataclass(slots=True)
class Counts:
    """Requests and their results since the start."""

    lists: int = 0
    pages: int = 0
    streams: int = 0
    watches: int = 0
    replaces: int = 0
    changes: int = 0
    bookmarks: int = 0
    probes: int = 0
    skipped: int = 0
    failures: int = 0
    expired: int = 0
    rewinds: int = 0


class Underway:
    """Exactly one thing: a request, a wait, or nothing for ever."""

    then: Callable[[], None]
    """The request that waits; set by each wait."""

    def __init__(self, settings: ReflectorSettings, rng: Random) -> None:
        self.settings = settings
        self.phase = Phase.IDLE
        self.counts = Counts()
        self.now = 0.0
        self.patience = Patience(settings, rng)
        self.position = Position()
        self.proved = False  # the server answered a probe, and has not served us since
        self.refused = False  # the last probe failed, and the server has not served us since
        # of the open watch
        self.began = 0.0
        self.lasting = 0
        self.open = self.heard = self.moved = False
        self._out: list[Action] = []
        self._reported: Report | None = None
        self._staging = False

    @property
    def version(self) -> str:
        """Up to which everything is known; "" before the first content."""
        return self.position.version

    def taken(self) -> list[Action]:
        """The actions since the last call."""
        actions, self._out = self._out, []
        return actions

    # ---- requests --------------------------------------------------------------------------------

    def list(self, options: ListOptions) -> None:
        """Asks for a page."""
        self.counts.pages += 1
        self.phase, self.open = Phase.LISTING, False
        self.do(List(self._selected(options)))

    def probe(self) -> None:
        """Asks for the server's version (CONTACT3)."""
        self.counts.probes += 1
        self.phase, self.open = Phase.PROBING, False
        self.do(Probe(self._selected(ListOptions(limit=1))))

    def open_watch(
        self,
        phase: Phase,
        version: str,
        *,
        send_initial_events: bool | None = None,
        match: str = "",
    ) -> None:
        """R-RF-06. Its duration counts from before the request."""
        self.phase = phase
        self.began, self.open, self.heard, self.moved = self.now, False, False, False
        self.lasting = self.patience.lasting(stream=phase is Phase.STREAMING)
        options = ListOptions(
            watch=True,
            resource_version=version,
            resource_version_match=match,
            allow_bookmarks=True,
            send_initial_events=send_initial_events,
            timeout_seconds=self.lasting,
        )
        self.do(Watch(self._selected(options), self.patience.silence))

    def _selected(self, options: ListOptions) -> ListOptions:
        return replace(
            options,
            label_selector=self.settings.label_selector,
            field_selector=self.settings.field_selector,
        )

    def stop(self) -> None:
        """For ever."""
        self.drop_staging()
        self.phase = Phase.STOPPED

    def cancelled(self, failure: SourceFailure) -> bool:
        """Stops if the failure is that of a request that was cancelled."""
        if failure.kind is not FailureKind.CANCELLED:
            return False
        self.stop()
        return True

    # ---- waiting ---------------------------------------------------------------------------------

    def wait(self, then: Callable[[], None], failure: SourceFailure | None = None) -> None:
        """By the backoff, and at least as long as the server asked for.

        After a failure of the whole server it lasts until that answers, so that its own backoff
        may stay short. Not so if the server answers probes, and then fails us again.
        """
        in_stream = failure is None or (self.open and failure.status is not None)
        cause = "" if failure is None or in_stream else cause_of(failure)
        if failure is not None and failure.at_once:
            self.wait_for(self.patience.aside(), cause or SERVER, then)
        elif not cause:
            self.sleep(self.patience.delay(self.now, failure), then)
        elif self.open or self.proved:
            self.wait_for(self.patience.broken_delay(self.now, failure), cause, then)
        else:
            self.wait_for(self.patience.outage_delay(self.now, failure), cause, then)

    def sleep(self, seconds: float, then: Callable[[], None]) -> None:
        """Before `then`, come what may."""
        self.phase, self.then = Phase.WAITING, then
        self.do(Sleep(seconds))

    def wait_for(self, seconds: float, cause: str, then: Callable[[], None]) -> None:
        """Before `then`, for the end of what ails the whole server."""
        self.phase, self.then = Phase.WAITING, then
        self.do(Await(seconds, cause, self.refused))

    # ---- actions and reports ---------------------------------------------------------------------

    def do(self, action: Action) -> None:
        """After those before."""
        self._out.append(action)

    def log(self, level: int, text: str) -> None:
        """In the reflector's log."""
        self.do(Log(level, text))

    def report(self, state: int, reason: str = "") -> None:
        """Unless it would repeat the last report."""
        report = Report(state, reason)
        if report != self._reported:
            self._reported = report
            self.do(report)

    def trouble(self, text: str, failure: SourceFailure | None) -> None:
        """Absent if the server states that; the engine calls it stale if it lasts."""
        absent = failure is not None and failure.code == 404
        self.report(states.ABSENT if absent else states.RETRYING, text)

    def tell(self, found: Sifted) -> None:
        """Counts what was sifted out, and logs why."""
        self.counts.skipped += found.skipped
        self.counts.bookmarks += found.bookmarks
        for text in found.complaints:
            self.log(logging.WARNING, text)

    def note(self, failure: SourceFailure) -> None:
        """Counts a failure."""
        self.counts.failures += 1
        if failure.status is not None and failure.status.is_expired:
            self.counts.expired += 1

    def contact(self) -> None:
        """CONTACT1."""
        self.proved = False
        self.do(Contact())
        self.report(states.SYNCED)

    # ---- staging ---------------------------------------------------------------------------------

    def restage(self) -> None:
        """From here on items are staged, for a replacement."""
        self._staging = True
        self.do(BeginReplace())

    def drop_staging(self) -> None:
        """Unless nothing is staged."""
        if self._staging:
            self._staging = False
            self.do(CancelReplace())

    def replace(self, version: str) -> None:
        """All of the new content is staged: it becomes visible."""
        self._staging = False
        self.counts.replaces += 1
        self.do(FinishReplace(version))
        self.contact()
