"""The reflector: how one resource is listed, watched, and kept right when the server is not.

Comes in: events (events.py), each with the time it happened. Goes out: actions, in their order.
Never here: I/O, sleeping, reading a clock; random numbers are injected.

    machine.py   the table; the watch, waits and probes
    passes.py    the whole content, by a watch-list or by pages
    underway.py  the one thing that is under way, and its actions

Two rules hold for every step. Steps alone decide what happens next, by the table below. And after
every step exactly one thing is under way: a LIST page, a watch, a probe, a sleep, a wait for the
server, or nothing for ever; the code that carries out the actions can be so simple that it needs no
test.

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
from operator import attrgetter
from random import Random

from shmcache import states
from shmcache.reflector.events import (
    Action,
    Advance,
    Answering,
    Apply,
    Closed,
    Doubted,
    Elapsed,
    Event,
    Failed,
    Hangup,
    Listed,
    Opened,
    Probed,
    Received,
    Rejected,
    Repaired,
    Started,
    Stop,
)
from shmcache.reflector.filtering import Sieve, is_older
from shmcache.reflector.passes import Passes
from shmcache.reflector.retrying import QUIET_PROBES, SERVER, ReflectorSettings, cause_of
from shmcache.reflector.underway import Counts, Phase, Underway
from shmcache.source.base import FailureKind, SourceFailure

__all__ = ["TABLE", "Counts", "Phase", "Reflector", "ReflectorSettings", "UnexpectedEvent"]


TABLE: dict[Phase, dict[type[Event], str]] = {
    # phase                event     step                   leads to
    Phase.IDLE: {
        Started: "_started",  #             STREAMING, or LISTING; WAITING to go on after a life
    },
    # Rejected: "_rejected" leads from each of these to WAITING for a new pass
    Phase.LISTING: {
        Rejected: "_rejected",
        Listed: "_passes.listed",  #        LISTING the next page; WATCHING after the last
        Failed: "_passes.list_failed",  #   LISTING otherwise, at once; WAITING for page or new pass
    },
    Phase.STREAMING: {
        Rejected: "_rejected",
        Opened: "_opened",  #               STREAMING
        Received: "_passes.streamed",  #    WATCHING the same stream once all is there; LISTING
        Closed: "_passes.stream_closed",  # WAITING to stream again, or to list
        Failed: "_passes.stream_failed",  # WAITING; LISTING in this pass; STREAMING from "" at once
    },
    Phase.WATCHING: {
        Rejected: "_rejected",
        Opened: "_opened",  #               WATCHING
        Received: "_received",  #           WATCHING; WAITING after what ends it
        Closed: "_watch_closed",  #         WATCHING on; WAITING if it was too short, or silent
        Failed: "_watch_failed",  #         WAITING for the watch, or for a new pass; WATCHING
        Doubted: "_doubted",  #             WAITING for a new pass
        Repaired: "_repaired",  #           WATCHING on, by another watch from our version
    },
    Phase.WAITING: {
        Rejected: "_rejected",
        Elapsed: "_elapsed",  #             the request that the wait was for
        Answering: "_answering",  #         the same, if the server has our version; or PROBING
    },
    Phase.PROBING: {
        Rejected: "_rejected",
        Probed: "_probed",  #               the request that waited; a new pass after a rewind
        Failed: "_probe_failed",  #         WAITING
    },
    Phase.STOPPED: {},
}
"""Which step an event makes. Stop leads to STOPPED from anywhere, and nothing leads on."""


class UnexpectedEvent(Exception):
    """The engine reported an impossible event: its fault, not the server's."""


class Reflector:
    """The state machine of one resource. step() is all there is to do with it."""

    def __init__(
        self, settings: ReflectorSettings | None = None, rng: Random | None = None
    ) -> None:
        self.settings = settings or ReflectorSettings()
        self._way = way = Underway(self.settings, rng or Random())
        self._sieve = Sieve(way.position, self.settings.kind, self.settings.api_version)
        self._passes = Passes(way, self._sieve, self._watch, self._received)
        self._steps = {
            phase: {event: attrgetter(name)(self) for event, name in row.items()}
            for phase, row in TABLE.items()
        }
        self._brief = 0  # very short watches in a row
        self._quiet = 0  # short watches since the last list or probe

    @property
    def version(self) -> str:
        """Up to which everything is known; "" before the first content."""
        return self._way.version

    @property
    def phase(self) -> Phase:
        """The one thing that is under way."""
        return self._way.phase

    @property
    def counts(self) -> Counts:
        """Requests and their results since the start."""
        return self._way.counts

    def step(self, event: Event, now: float) -> list[Action]:
        """The actions that this event calls for. `now` is of any clock that only goes forward."""
        way = self._way
        if way.phase is Phase.STOPPED:
            return []
        way.now = now
        if isinstance(event, Stop):
            self._stop()
        else:
            step = self._steps[way.phase].get(type(event))
            if step is None:
                raise UnexpectedEvent(f"{type(event).__name__} while {way.phase.value}")
            step(event)
        return way.taken()

    # ---- beginning and end -----------------------------------------------------------------------

    def _started(self, event: Started) -> None:
        way = self._way
        if event.version in {None, "", "0"}:
            way.report(states.LISTING, "first list")
            self._passes.begin()
            return
        way.position.reset(event.version or "")
        way.report(states.RETRYING, f"going on at {event.version}")
        way.wait_for(0.0, SERVER, self._watch)

    def _stop(self) -> None:
        way = self._way
        if way.phase in {Phase.STREAMING, Phase.WATCHING}:
            way.do(Hangup())
        way.stop()

    # ---- the watch -------------------------------------------------------------------------------

    def _watch(self) -> None:
        way = self._way
        way.counts.watches += 1
        way.position.open()
        way.open_watch(Phase.WATCHING, way.version)

    def _opened(self, _: Opened) -> None:
        """Of a watch-list it proves nothing: that may still fail before it is complete."""
        way = self._way
        way.open, way.refused = True, False
        way.patience.renew()
        if way.phase is Phase.WATCHING:
            way.contact()

    def _received(self, event: Received) -> None:
        way = self._way
        if not event.items:
            return
        before = way.version
        found = self._sieve.live(event.items)
        way.tell(found)
        way.counts.changes += len(found.changes)
        if found.bookmarks:
            way.patience.quiet = False
        if found.changes:
            way.do(Apply(found.changes, way.version))
        elif way.version != before:
            way.do(Advance(way.version))
        way.moved = way.moved or way.version != before or bool(found.changes)
        if found.failure is None:
            way.heard = True
            way.contact()
            return
        way.do(Hangup())
        self._watch_broke(found.failure)

    def _watch_closed(self, _: Closed) -> None:
        way = self._way
        lasted, brief = way.now - way.began, self._ends_briefly()
        if brief and self._brief <= self.settings.short_watches and way.position.resumable:
            way.wait_for(way.patience.aside(), SERVER, self._watch)
        elif brief:
            self._relist(f"a very short watch: closed after {lasted:.1f} s with nothing new")
        elif not way.position.resumable:
            self._relist("there is no version to go on from")
        elif self._is_silent():
            self._silent()
        elif lasted < self.settings.short_watch:
            way.sleep(self.settings.short_watch - lasted, self._watch)
        else:
            self._again()

    def _again(self) -> None:
        """After a clean end: at once."""
        self._quiet += self._way.patience.quiet
        if self._quiet < QUIET_PROBES:
            self._watch()
        else:
            self._way.wait_for(0.0, SERVER, self._watch)

    def _watch_failed(self, event: Failed) -> None:
        if not self._way.cancelled(event.failure):
            self._watch_broke(event.failure)

    def _watch_broke(self, failure: SourceFailure) -> None:
        way = self._way
        way.note(failure)
        if not (self._goes_on(failure) if way.open else self._starts_again(failure)):
            self._relist(failure.message, failure)
        elif way.open and failure.kind is FailureKind.SILENT:
            self._silent()
        else:
            way.trouble(f"watch: {failure.message}", failure)
            way.wait(self._watch, failure)

    def _starts_again(self, failure: SourceFailure) -> bool:
        """Whether a watch that did not come to be is repeated, without a list (R-RF-07)."""
        if failure.kind is FailureKind.ELSEWHERE or failure.at_once:
            return True
        if failure.kind is FailureKind.REFUSED or failure.code == 429:
            return True
        if cause_of(failure) == SERVER:  # a probe tells whether the version is still there
            return self._way.patience.once_more()
        return self._way.patience.may_repeat(failure)

    def _goes_on(self, failure: SourceFailure) -> bool:
        """Whether the next watch may go on where the open one ended (R-RF-08)."""
        way = self._way
        status = failure.status
        if status is not None:
            return status.code == 429 or (
                status.is_internal and way.patience.may_retry_internal(way.now)
            )
        if failure.kind is FailureKind.GARBAGE or not way.position.resumable:
            return False
        if failure.kind is FailureKind.ELSEWHERE or failure.at_once:
            return True
        return not self._ends_briefly() or self._brief <= self.settings.short_watches

    def _ends_briefly(self) -> bool:
        """Counts the very short watches in a row that brought nothing; whether this was one."""
        way = self._way
        brief = way.now - way.began < self.settings.short_watch and not way.moved
        self._brief = self._brief + 1 if brief else 0
        return brief

    def _is_silent(self) -> bool:
        """Whether the watch that just ended brought nothing while a bookmark was due."""
        way = self._way
        return not way.heard and way.now - way.began >= way.patience.silence

    def _silent(self) -> None:
        """The connection is dead, or there are no bookmarks here: a probe, and a new watch."""
        self._way.patience.quiet = True
        self._way.wait_for(0.0, SERVER, self._watch)

    def _relist(self, why: str, failure: SourceFailure | None = None) -> None:
        way = self._way
        way.trouble(f"lists again: {why}", failure)
        way.patience.renew()
        way.wait(self._passes.begin, failure)

    def _rejected(self, event: Rejected) -> None:
        self._way.drop_staging()
        self._relist(f"the cache did not take it: {event.message}")

    def _doubted(self, event: Doubted) -> None:
        way = self._way
        way.log(logging.ERROR, event.message)
        way.do(Hangup())
        way.open = False
        self._relist(event.message)

    def _repaired(self, _: Repaired) -> None:
        self._way.do(Hangup())
        self._watch()

    # ---- probes ----------------------------------------------------------------------------------

    def _answering(self, event: Answering) -> None:
        if event.version is not None:
            self._served(event.version)
            return
        self._way.probe()

    def _probed(self, event: Probed) -> None:
        self._served(event.version)

    def _served(self, version: str) -> None:
        """The server answers, at this version (CONTACT3): on with the request that waited."""
        way = self._way
        way.proved, self._quiet = True, 0
        if way.position.resumable and is_older(version, way.version):
            way.trouble(f"lists again: the server is back at version {version}", None)
            self._passes.rewind()
        else:
            way.then()

    def _probe_failed(self, event: Failed) -> None:
        way = self._way
        failure = event.failure
        if way.cancelled(failure):
            return
        way.note(failure)
        way.refused = True
        way.trouble(f"probe: {failure.message}", failure)
        then, cause = way.then, cause_of(failure)
        if cause:
            way.wait(then, failure)
        elif failure.kind is FailureKind.GARBAGE or failure.code == 429:
            delay = way.patience.delay(way.now, failure)
            way.wait_for(delay, SERVER, then)
        else:  # the server answers, but not this: the list or watch itself finds out more
            way.sleep(way.patience.delay(way.now, failure), then)

    def _elapsed(self, _: Elapsed) -> None:
        self._way.then()
