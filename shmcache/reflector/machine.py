"""The reflector: how one resource is listed, watched, and kept right when the server is not.

Comes in: events (events.py), each with the time it happened. Goes out: actions, in their order.
Never here: I/O, sleeping, reading a clock; random numbers are injected.

Two rules hold for every step. This file alone decides what happens next, by the table below. And
after every step exactly one thing is under way: a LIST page, a watch, a probe, a sleep, a wait for
the server, or nothing for ever; the code that carries out the actions can be so simple that it
needs no test.

Contact: what readers may conclude from the age of a resource
    CONTACT1  the time of contact is the last moment at which the server was seen to serve our
              version, with everything that it had sent by then in the cache. It is set by the end
              of a list or a watch-list, by items and bookmarks of a watch, and by a watch that the
              server accepts.
    CONTACT2  an accepted watch counts because nothing of a connection just opened can be lost, and
              because the server is known to have our version: a watch from a version of the future
              is accepted as well, and silent for ever (R-AS-06). So after each failure and each
              silence, and at the start of a life, a probe comes before the watch.
    CONTACT3  a probe is LIST ?limit=1 without a version: it costs the server one consistent read,
              and returns the version of the whole server. It proves that the server answers, with
              its storage, and that its history is as long as ours. It is not contact by itself, as
              it proves nothing of what a watch has missed: the watch that follows starts at our
              version and so misses nothing. It does not prove that the history is the same one: a
              server that was restored from a backup and then wrote more than it had lost passes;
              engine/proof.py finds that out later, and the reflector lists again (Doubted).
    CONTACT4  a version before ours proves that the server was restored or wiped: its whole content
              of now replaces ours, also at a lower version (a rewind).
    CONTACT5  where no bookmark comes (the server sends none of some resources), watches are short:
              the server ends each before readers could take the resource for silent, at the cost
              of one request. A bookmark makes them long again.
    CONTACT6  under a load of events that arrive faster than they are stored, contact is the last
              moment at which nothing was left to read (engine/feed.py): the age shows the lag.

The rows R-.. that comments name are those of docs/behaviour.md.
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
    Advance,
    Answering,
    Apply,
    Await,
    BeginReplace,
    CancelReplace,
    Closed,
    Contact,
    Doubted,
    Elapsed,
    Event,
    Failed,
    FinishReplace,
    Hangup,
    List,
    Listed,
    Log,
    Opened,
    Probe,
    Probed,
    Received,
    Rejected,
    Repaired,
    Report,
    Sleep,
    Stage,
    Started,
    Stop,
    Watch,
)
from shmcache.reflector.filtering import Position, Sieve, Sifted, is_older, is_table
from shmcache.reflector.paging import Pager
from shmcache.reflector.retrying import (
    QUIET_PROBES,
    SERVER,
    Patience,
    ReflectorSettings,
    cause_of,
)
from shmcache.source.base import FailureKind, SourceFailure

__all__ = ["TABLE", "Counts", "Phase", "Reflector", "ReflectorSettings", "UnexpectedEvent"]


class Phase(Enum):
    """The one thing that is under way."""

    IDLE = "idle"
    LISTING = "listing"
    STREAMING = "streaming"  # a watch-list, its initial objects not yet complete
    WATCHING = "watching"
    WAITING = "waiting"
    PROBING = "probing"
    STOPPED = "stopped"


TABLE: dict[Phase, dict[type[Event], str]] = {
    # phase                event     step             leads to
    Phase.IDLE: {
        Started: "_started",  #       STREAMING, or LISTING; WAITING to go on where a life ended
    },
    # Rejected: "_rejected" leads from each of these to WAITING for a new pass
    Phase.LISTING: {
        Rejected: "_rejected",
        Listed: "_listed",  #         LISTING the next page; WATCHING after the last
        Failed: "_list_failed",  #    LISTING otherwise, at once; WAITING for the page or a new pass
    },
    Phase.STREAMING: {
        Rejected: "_rejected",
        Opened: "_opened",  #         STREAMING
        Received: "_streamed",  #     WATCHING the same stream once all is there; LISTING instead
        Closed: "_stream_closed",  #  WAITING to stream again, or to list
        Failed: "_stream_failed",  #  WAITING; LISTING in the same pass; STREAMING from "" at once
    },
    Phase.WATCHING: {
        Rejected: "_rejected",
        Opened: "_opened",  #         WATCHING
        Received: "_received",  #     WATCHING; WAITING after what ends it
        Closed: "_watch_closed",  #   WATCHING on; WAITING if it was too short, or silent
        Failed: "_watch_failed",  #   WAITING for the watch, or for a new pass; WATCHING
        Doubted: "_doubted",  #       WAITING for a new pass
        Repaired: "_repaired",  #     WATCHING on, by another watch from our version
    },
    Phase.WAITING: {
        Rejected: "_rejected",
        Elapsed: "_elapsed",  #       the request that the wait was for
        Answering: "_answering",  #   the same, if the server has our version; or PROBING
    },
    Phase.PROBING: {
        Rejected: "_rejected",
        Probed: "_probed",  #         the request that the wait was for; a new pass after a rewind
        Failed: "_probe_failed",  #   WAITING
    },
    Phase.STOPPED: {},
}
"""Which step an event makes. Stop leads to STOPPED from anywhere, and nothing leads on."""

REFUSES_STREAMING = frozenset({400, 405, 406, 415, 422, 501})
"""HTTP codes that say: no watch-list here, and there will be none (R-AS-05)."""


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


class UnexpectedEvent(Exception):
    """The engine reported an impossible event: its fault, not the server's."""


class Reflector:
    """The state machine of one resource. step() is all there is to do with it."""

    def __init__(
        self, settings: ReflectorSettings | None = None, rng: Random | None = None
    ) -> None:
        self.settings = settings or ReflectorSettings()
        self.phase = Phase.IDLE
        self.counts = Counts()
        self._patience = Patience(self.settings, rng or Random())
        self._reported: Report | None = None
        self._pager = Pager(self.settings.page_size, page_always=self.settings.page_always)
        self._position = Position()
        self._sieve = Sieve(self._position, self.settings.kind, self.settings.api_version)
        self._out: list[Action] = []
        self._now = 0.0
        self._then: Callable[[], None] = self._pass
        self._staging = False
        self._streams = self.settings.use_watch_list  # until this resource proves otherwise
        self._skip_stream = False  # for the next pass
        self._early = 0  # watch-lists in a row that ended early
        self._proved = False  # the server answered a probe, and has not served us since
        self._refused = False  # the last probe failed, and the server has not served us since
        self._brief = 0  # very short watches in a row
        self._quiet = 0  # short watches since the last list or probe
        # of the open watch
        self._began = 0.0
        self._lasting = 0
        self._open = self._heard = self._moved = False
        self._growing = True  # a watch-list still at its initial objects
        self._grown = 0.0

    @property
    def version(self) -> str:
        """Up to which everything is known; "" before the first content."""
        return self._position.version

    def step(self, event: Event, now: float) -> list[Action]:
        """The actions that this event calls for. `now` is of any clock that only goes forward."""
        if self.phase is Phase.STOPPED:
            return []
        self._now = now
        if isinstance(event, Stop):
            self._stop()
        else:
            name = TABLE[self.phase].get(type(event))
            if name is None:
                raise UnexpectedEvent(f"{type(event).__name__} while {self.phase.value}")
            getattr(self, name)(event)
        actions, self._out = self._out, []
        return actions

    # ---- beginning and end -----------------------------------------------------------------------

    def _started(self, event: Started) -> None:
        if event.version in {None, "", "0"}:
            self._report(states.LISTING, "first list")
            self._pass()
            return
        self._position.reset(event.version or "")
        self._report(states.RETRYING, f"going on at {event.version}")
        self._await(0.0, SERVER, self._watch)

    def _stop(self) -> None:
        if self.phase in {Phase.STREAMING, Phase.WATCHING}:
            self._do(Hangup())
        self._drop_staging()
        self.phase = Phase.STOPPED

    # ---- a pass: the whole content, by a watch-list or by pages ----------------------------------

    def _pass(self) -> None:
        if self._streams and not self._skip_stream:
            self._stream()
        else:
            self._list()

    def _stream(self) -> None:
        """R-RF-13: the objects as a watch, into the staging area; it goes on as the watch."""
        self.counts.streams += 1
        self._restage()
        version = "" if self._pager.refused else self.version
        self._open_watch(Phase.STREAMING, version, send_initial_events=True, match="NotOlderThan")
        self._growing, self._grown = True, self._now

    def _list(self) -> None:
        self._skip_stream = False
        self.counts.lists += 1
        self._restage()
        self._page(self._pager.begin(self.version))

    def _page(self, options: ListOptions) -> None:
        self.counts.pages += 1
        self.phase, self._open = Phase.LISTING, False
        self._do(List(self._selected(options)))

    def _listed(self, event: Listed) -> None:
        self._refused = False
        self._patience.renew()
        meta = event.meta
        if is_table(meta.kind, meta.api_version):
            text = (
                "the list is a Table: something between us and the server asks for the wrong form"
            )
            self._fail_pass(SourceFailure(FailureKind.GARBAGE, text))
            return
        try:
            more = self._pager.listed(meta)
        except ValueError as error:
            self._fail_pass(SourceFailure(FailureKind.GARBAGE, str(error)))
            return
        if more:
            self._page(more)
            return
        self._replaced(self._pager.version)
        self._watch()

    def _list_failed(self, event: Failed) -> None:
        failure = event.failure
        if self._cancelled(failure):
            return
        self._note(failure)
        instead = self._pager.instead(failure)
        if instead:
            self._restage()
            self._page(instead)
        elif self._patience.may_repeat(failure):
            self._trouble(f"list: {failure.message}", failure)
            options = self._pager.options
            self._wait(lambda: self._page(options), failure)
        else:
            self._fail_pass(failure)

    def _fail_pass(self, failure: SourceFailure) -> None:
        """R-RF-01, 02: whatever it was, the next pass comes after the backoff."""
        self._drop_staging()
        self._trouble(f"list: {failure.message}", failure)
        self._patience.renew()
        self._wait(self._pass, failure)

    def _replaced(self, version: str) -> None:
        """All of the new content is staged: it becomes visible, also at an earlier version."""
        if is_older(version, self.version):
            self.counts.rewinds += 1
            self._log(
                logging.ERROR,
                f"the server went back from version {self.version} to {version}, as after a "
                "restored backup: its content of now replaces everything",
            )
        self._position.reset(version)
        self._staging = False
        self._early, self._patience.stretch = 0, 1
        self.counts.replaces += 1
        self._do(FinishReplace(version))
        self._contact()

    # ---- a watch-list until it is complete -------------------------------------------------------

    def _streamed(self, event: Received) -> None:
        if not event.items:
            self._check_growth()
            return
        self._heard = True
        found = self._sieve.initial(event.items)
        self._tell(found)
        if found.changes:
            self._do(Stage(found.changes))
        self._grow(found)
        if found.failure:
            self._do(Hangup())
            self._stream_broke(found.failure)
        elif found.ended_initial is not None:
            self._moved = True
            self._pager.refused = False
            self._replaced(found.ended_initial.version or "")
            self.phase = Phase.WATCHING
            if found.rest:
                self._received(Received(found.rest))
        else:
            self._check_growth()

    def _grow(self, found: Sifted) -> None:
        """Initial objects are all ADDED; once anything else comes, their end is due."""
        if any(item.type != "ADDED" for item in found.changes) or found.bookmarks:
            self._growing = False
        elif found.changes and self._growing:
            self._grown = self._now

    def _check_growth(self) -> None:
        """The deadline of R-RF-16: it talks, but will never say that this was all."""
        waited = self._now - self._grown
        lasted = self._now - self._began
        if waited <= self.settings.end_bookmark_wait and lasted <= self._lasting:
            return
        self._do(Hangup())
        if waited <= self.settings.end_bookmark_wait:
            self._ended_early("is still not complete", clean=True)
        else:
            self._list_instead(f"no end of its objects for {waited:.0f} s", for_good=True)

    def _stream_closed(self, _: Closed) -> None:
        self._ended_early("was closed", clean=True)

    def _stream_failed(self, event: Failed) -> None:
        if not self._cancelled(event.failure):
            self._stream_broke(event.failure)

    def _stream_broke(self, failure: SourceFailure) -> None:
        self._note(failure)
        status, code = failure.status, failure.code
        elsewhere = failure.at_once or failure.kind is FailureKind.ELSEWHERE
        if failure.kind is FailureKind.REFUSED or code == 429 or elsewhere:
            self._retry_stream(failure)
        elif status and (status.is_expired or status.is_too_large):
            self._stream_refused(failure)
        elif failure.kind is FailureKind.SILENT:
            self._list_instead(failure.message, for_good=self._open)
        elif failure.kind in {FailureKind.NETWORK, FailureKind.ENDED, FailureKind.GARBAGE}:
            self._ended_early(f"broke: {failure.message}", clean=False, failure=failure)
        else:
            self._list_instead(
                failure.message, for_good=not self._open and code in REFUSES_STREAMING
            )

    def _stream_refused(self, failure: SourceFailure) -> None:
        """The server does not have our version: any will do; once at once, then with backoff."""
        at_once = not self._pager.refused and self.version != ""
        self._pager.refused = True
        if at_once:
            self._stream()
        else:
            self._retry_stream(failure)

    def _retry_stream(self, failure: SourceFailure | None, why: str = "") -> None:
        self._drop_staging()
        text = why or (failure.message if failure else "")
        self._trouble(f"watch-list: {text}", failure)
        self._wait(self._pass, failure)

    def _ended_early(self, how: str, *, clean: bool, failure: SourceFailure | None = None) -> None:
        """Not complete. Always after the backoff (R-RF-14 of upstream may loop); not for ever."""
        slow = self._now - self._grown <= self.settings.end_bookmark_wait
        if (
            clean
            and slow
            and self._now - self._began >= self._lasting - 2
            and self._patience.stretch < 4
        ):
            self._patience.stretch *= 2  # it was growing all the time: it needs longer (R-RF-15)
        else:
            self._early += 1
        if self._early >= self.settings.early_ends:
            self._early = 0
            self._skip_stream = True
            if clean:
                self._stop_streaming(f"it {how} {self.settings.early_ends} times in a row")
        self._retry_stream(failure, f"it {how} before it was complete")

    def _list_instead(self, why: str, *, for_good: bool) -> None:
        """In the same pass. Remembered if it is in this server's, or proxy's, nature."""
        if for_good:
            self._stop_streaming(why)
        self._list()

    def _stop_streaming(self, why: str) -> None:
        self._streams = False
        self._log(logging.WARNING, f"lists instead of watch-lists from now on: {why}")

    # ---- the watch -------------------------------------------------------------------------------

    def _watch(self) -> None:
        self.counts.watches += 1
        self._position.open()
        self._open_watch(Phase.WATCHING, self.version)

    def _open_watch(
        self,
        phase: Phase,
        version: str,
        *,
        send_initial_events: bool | None = None,
        match: str = "",
    ) -> None:
        """R-RF-06. Its duration counts from before the request."""
        self.phase = phase
        self._began, self._open, self._heard, self._moved = self._now, False, False, False
        self._lasting = self._patience.lasting(stream=phase is Phase.STREAMING)
        options = ListOptions(
            watch=True,
            resource_version=version,
            resource_version_match=match,
            allow_bookmarks=True,
            send_initial_events=send_initial_events,
            timeout_seconds=self._lasting,
        )
        self._do(Watch(self._selected(options), self._patience.silence))

    def _opened(self, _: Opened) -> None:
        """Of a watch-list it proves nothing: that may still fail before it is complete."""
        self._open, self._refused = True, False
        self._patience.renew()
        if self.phase is Phase.WATCHING:
            self._contact()

    def _contact(self) -> None:
        """CONTACT1."""
        self._proved = False
        self._do(Contact())
        self._report(states.SYNCED)

    def _received(self, event: Received) -> None:
        if not event.items:
            return
        before = self.version
        found = self._sieve.live(event.items)
        self._tell(found)
        self.counts.changes += len(found.changes)
        if found.bookmarks:
            self._patience.quiet = False
        if found.changes:
            self._do(Apply(found.changes, self.version))
        elif self.version != before:
            self._do(Advance(self.version))
        self._moved = self._moved or self.version != before or bool(found.changes)
        if found.failure is None:
            self._heard = True
            self._contact()
            return
        self._do(Hangup())
        self._watch_broke(found.failure)

    def _watch_closed(self, _: Closed) -> None:
        lasted, brief = self._now - self._began, self._ends_briefly()
        if brief and self._brief <= self.settings.short_watches and self._position.resumable:
            self._await(self._patience.aside(), SERVER, self._watch)
        elif brief:
            self._relist(f"a very short watch: closed after {lasted:.1f} s with nothing new")
        elif not self._position.resumable:
            self._relist("there is no version to go on from")
        elif self._is_silent():
            self._silent()
        elif lasted < self.settings.short_watch:
            self._sleep(self.settings.short_watch - lasted, self._watch)
        else:
            self._again()

    def _again(self) -> None:
        """After a clean end: at once."""
        self._quiet += self._patience.quiet
        if self._quiet < QUIET_PROBES:
            self._watch()
        else:
            self._await(0.0, SERVER, self._watch)

    def _watch_failed(self, event: Failed) -> None:
        if not self._cancelled(event.failure):
            self._watch_broke(event.failure)

    def _watch_broke(self, failure: SourceFailure) -> None:
        self._note(failure)
        if not (self._goes_on(failure) if self._open else self._starts_again(failure)):
            self._relist(failure.message, failure)
        elif self._open and failure.kind is FailureKind.SILENT:
            self._silent()
        else:
            self._trouble(f"watch: {failure.message}", failure)
            self._wait(self._watch, failure)

    def _starts_again(self, failure: SourceFailure) -> bool:
        """Whether a watch that did not come to be is repeated, without a list (R-RF-07)."""
        if failure.kind is FailureKind.ELSEWHERE or failure.at_once:
            return True
        if failure.kind is FailureKind.REFUSED or failure.code == 429:
            return True
        if cause_of(failure) == SERVER:  # a probe tells whether the version is still there
            return self._patience.once_more()
        return self._patience.may_repeat(failure)

    def _goes_on(self, failure: SourceFailure) -> bool:
        """Whether the next watch may go on where the open one ended (R-RF-08)."""
        status = failure.status
        if status is not None:
            return status.code == 429 or (
                status.is_internal and self._patience.may_retry_internal(self._now)
            )
        if failure.kind is FailureKind.GARBAGE or not self._position.resumable:
            return False
        if failure.kind is FailureKind.ELSEWHERE or failure.at_once:
            return True
        return not self._ends_briefly() or self._brief <= self.settings.short_watches

    def _ends_briefly(self) -> bool:
        """Counts the very short watches in a row that brought nothing; whether this was one."""
        brief = self._now - self._began < self.settings.short_watch and not self._moved
        self._brief = self._brief + 1 if brief else 0
        return brief

    def _is_silent(self) -> bool:
        """Whether the watch that just ended brought nothing while a bookmark was due."""
        return not self._heard and self._now - self._began >= self._patience.silence

    def _silent(self) -> None:
        """The connection is dead, or there are no bookmarks here: a probe, and a new watch."""
        self._patience.quiet = True
        self._await(0.0, SERVER, self._watch)

    def _relist(self, why: str, failure: SourceFailure | None = None) -> None:
        self._trouble(f"lists again: {why}", failure)
        self._patience.renew()
        self._wait(self._pass, failure)

    def _rejected(self, event: Rejected) -> None:
        self._drop_staging()
        self._relist(f"the cache did not take it: {event.message}")

    def _doubted(self, event: Doubted) -> None:
        self._log(logging.ERROR, event.message)
        self._do(Hangup())
        self._open = False
        self._relist(event.message)

    def _repaired(self, _: Repaired) -> None:
        self._do(Hangup())
        self._watch()

    # ---- waiting ---------------------------------------------------------------------------------

    def _wait(self, then: Callable[[], None], failure: SourceFailure | None = None) -> None:
        """By the backoff, and at least as long as the server asked for.

        After a failure of the whole server it lasts until that answers, so that its own backoff
        may stay short. Not so if the server answers probes, and then fails us again.
        """
        in_stream = failure is None or (self._open and failure.status is not None)
        cause = "" if failure is None or in_stream else cause_of(failure)
        if failure is not None and failure.at_once:
            self._await(self._patience.aside(), cause or SERVER, then)
        elif not cause:
            self._sleep(self._patience.delay(self._now, failure), then)
        elif self._open or self._proved:
            self._await(self._patience.broken_delay(self._now, failure), cause, then)
        else:
            self._await(self._patience.outage_delay(self._now, failure), cause, then)

    def _sleep(self, seconds: float, then: Callable[[], None]) -> None:
        self.phase, self._then = Phase.WAITING, then
        self._do(Sleep(seconds))

    def _await(self, seconds: float, cause: str, then: Callable[[], None]) -> None:
        self.phase, self._then = Phase.WAITING, then
        self._do(Await(seconds, cause, self._refused))

    # ---- probes ----------------------------------------------------------------------------------

    def _answering(self, event: Answering) -> None:
        if event.version is not None:
            self._served(event.version)
            return
        self.counts.probes += 1
        self.phase, self._open = Phase.PROBING, False
        self._do(Probe(self._selected(ListOptions(limit=1))))

    def _probed(self, event: Probed) -> None:
        self._served(event.version)

    def _served(self, version: str) -> None:
        """The server answers, at this version (CONTACT3): on with the request that waited."""
        self._proved, self._quiet = True, 0
        if self._position.resumable and is_older(version, self.version):
            self._trouble(f"lists again: the server is back at version {version}", None)
            self._pager.refused = True  # CONTACT4
            self._pass()
        else:
            self._then()

    def _probe_failed(self, event: Failed) -> None:
        failure = event.failure
        if self._cancelled(failure):
            return
        self._note(failure)
        self._refused = True
        self._trouble(f"probe: {failure.message}", failure)
        then, cause = self._then, cause_of(failure)
        if cause:
            self._wait(then, failure)
        elif failure.kind is FailureKind.GARBAGE or failure.code == 429:
            delay = self._patience.delay(self._now, failure)
            self._await(delay, SERVER, then)
        else:  # the server answers, but not this: the list or watch itself finds out more
            self._sleep(self._patience.delay(self._now, failure), then)

    def _elapsed(self, _: Elapsed) -> None:
        self._then()

    # ---- telling ---------------------------------------------------------------------------------

    def _do(self, action: Action) -> None:
        self._out.append(action)

    def _log(self, level: int, text: str) -> None:
        self._do(Log(level, text))

    def _report(self, state: int, reason: str = "") -> None:
        """Unless it would repeat the last report."""
        report = Report(state, reason)
        if report != self._reported:
            self._reported = report
            self._do(report)

    def _trouble(self, text: str, failure: SourceFailure | None) -> None:
        """Absent if the server states that; the engine calls it stale if it lasts."""
        absent = failure is not None and failure.code == 404
        self._report(states.ABSENT if absent else states.RETRYING, text)

    def _tell(self, found: Sifted) -> None:
        self.counts.skipped += found.skipped
        self.counts.bookmarks += found.bookmarks
        for text in found.complaints:
            self._log(logging.WARNING, text)

    def _note(self, failure: SourceFailure) -> None:
        self.counts.failures += 1
        if failure.status is not None and failure.status.is_expired:
            self.counts.expired += 1

    # ---- small things ----------------------------------------------------------------------------

    def _selected(self, options: ListOptions) -> ListOptions:
        return replace(
            options,
            label_selector=self.settings.label_selector,
            field_selector=self.settings.field_selector,
        )

    def _restage(self) -> None:
        self._staging = True
        self._do(BeginReplace())

    def _drop_staging(self) -> None:
        if self._staging:
            self._staging = False
            self._do(CancelReplace())

    def _cancelled(self, failure: SourceFailure) -> bool:
        if failure.kind is not FailureKind.CANCELLED:
            return False
        self._drop_staging()
        self.phase = Phase.STOPPED
        return True
