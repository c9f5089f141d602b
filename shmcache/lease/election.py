"""Leader election by a Lease, as client-go does it, and stricter: what to send next, and no I/O.

    read ▸ nobody's, or expired? ▸ write our record ▸ leading ▸ renew, renew, renew ▸ release

attempt() is one try to acquire or renew, run() the endless row of them, release() the end. All are
generators: they yield requests and rests, and are sent replies. A driver executes a request at
once when it is yielded, in whatever thread; a clock is given.

    ELECT1  The moment of a renewal is that before its request is sent, and the term ends
        `renew_deadline` after the last one that succeeded, by our own clock. A success that
        comes after the end of the term begins another one.
    ELECT2  Nobody else's clock counts: a record expires when it was not seen to change for as
        long as it says itself, by our own clock, from when we first saw it.
    ELECT3  Each write carries the resourceVersion of the record that it was decided on, so the
        server refuses it (409) if the record changed meanwhile.
    ELECT4  Each renewal changes the record, even if the wall clock stands still or goes back:
        the server would not count an equal one as a change, and others would see none.
    ELECT5  A holder that reads another's name, or none, in the Lease ends its term at once,
        although its deadline has not come.
    ELECT6  Only a release after the work has ended empties the record.
    ELECT7  A server that asks for patience (Retry-After) makes no holder miss its renewals, and
        keeps others away for RETRY_AFTER_CAP at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from shmcache.lease.record import LeaseRecord, empty_lease, micro_time, version_of
from shmcache.lease.settings import JITTER, LeaseSettings, boot_seconds
from shmcache.protocol.versions import number_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random


RETRY_AFTER_CAP = 120.0
"""The longest wait, in seconds, that a server can impose; as the reflector has it."""


class Verb(Enum):
    """The effect of a request on its object."""

    READ = "GET"
    LIST = "LIST"  # those of our label
    CREATE = "POST"
    REPLACE = "PUT"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """One request about one object; its body, if it writes."""

    verb: Verb
    body: dict[str, Any] | None = None
    name: str = ""
    """Another object than that of the election."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is due for so many seconds."""

    seconds: float


class ReplyKind(Enum):
    """How a request or a rest ended."""

    DONE = "done"  # the object, as the server has it
    MISSING = "missing"  # no object has this name
    CONFLICT = "conflict"  # it has changed meanwhile, or exists already
    FAILED = "failed"  # not done, or nobody knows
    RESTED = "rested"


@dataclass(frozen=True, slots=True)
class LeaseReply:
    """The end of a request."""

    kind: ReplyKind
    body: dict[str, Any] | None = None
    message: str = ""
    retry_after: float = 0.0


Requests = Generator[LeaseRequest, LeaseReply, bool]
Steps = Generator[LeaseRequest | Rest, LeaseReply, bool]
RESTED = LeaseReply(ReplyKind.RESTED)


class Election:
    """One candidate's view of one Lease."""

    def __init__(
        self,
        settings: LeaseSettings,
        identity: str,
        namespace: str,
        rng: Random,
        *,
        clock: Callable[[], float] = boot_seconds,
        wall: Callable[[], float] = time.time,
        coordinated: bool = False,
        labels: dict[str, str] | None = None,
    ) -> None:
        """`coordinated`: the server names the holder (KEP-4355); nothing is created or taken."""
        self.settings = settings
        self.identity = identity
        self.coordinated = coordinated
        self.until = 0.0
        """The end of our term, by the clock, unless it is renewed."""
        self.term = 0
        """Counts our terms."""
        self.token = 0
        """The resourceVersion with which our term began: every later holder has a greater one."""
        self.reason = ""
        """Why our last term ended."""
        self.failure = ""
        """Why the last attempt failed, if a request did."""
        self._namespace = namespace
        self._labels = labels
        self._rng = rng
        self._clock = clock
        self._wall = wall
        self._leading = False
        self._lease: dict[str, Any] | None = None
        self._record = LeaseRecord()
        self._seen_at = clock()
        self._retry_after = 0.0

    # ---- our view --------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether our term goes on, by our own clock."""
        return self._leading and self._clock() < self.until

    @property
    def record(self) -> LeaseRecord:
        """As it was last seen or written."""
        return self._record

    @property
    def expires(self) -> float:
        """When the record that was seen expires, by our clock (ELECT2)."""
        return self._seen_at + self._record.seconds

    def lapse(self) -> bool:
        """Notes the end of the term if its time is over; whether it did."""
        if not self._leading or self._clock() < self.until:
            return False
        self._lose(f"no renewal succeeded for {self.settings.renew_deadline:g} s: {self.failure}")
        return True

    # ---- one attempt -----------------------------------------------------------------------------

    def attempt(self) -> Requests:
        """Acquires or renews; whether it succeeded."""
        self.lapse()
        if self.leads and not self.coordinated and (yield from self._renew()):
            return True
        return (yield from self._attempt_slowly())

    def _attempt_slowly(self) -> Requests:
        reply = yield LeaseRequest(Verb.READ)
        if reply.kind is ReplyKind.MISSING and not self.coordinated:
            return (yield from self._create())
        if reply.kind is not ReplyKind.DONE or reply.body is None:
            return self._failed(reply)
        self._see(reply.body)
        if self._leading and not self._ours:
            self._lose(f"the Lease names {self._record.holder or 'nobody'} as its holder")  # ELECT5
        elif self.coordinated:
            return (yield from self._renew_if_chosen())
        elif self._ours:
            return (yield from self._renew())
        elif not self._record.holder or self._clock() >= self.expires:
            return (yield from self._take())
        return False

    def look(self) -> Requests:
        """Reads the record, and tries to acquire nothing; whether it was read."""
        reply = yield LeaseRequest(Verb.READ)
        if reply.kind is ReplyKind.MISSING:
            self._see({})
            return True
        if reply.kind is not ReplyKind.DONE or reply.body is None:
            return self._failed(reply)
        self._see(reply.body)
        self.failure = ""
        return True

    @property
    def _ours(self) -> bool:
        return self._record.holder == self.identity

    def _renew_if_chosen(self) -> Requests:
        if not self._ours:
            return False
        if self._clock() >= self.expires:
            if self._leading:
                self._lose("the Lease has expired")
            return False
        if self._record.preferred:
            if self._leading:
                self._lose(f"the server ends the term: {self._record.preferred} is preferred")
            return False
        return (yield from self._renew())

    def _create(self) -> Requests:
        if self._leading:
            self._lose("the Lease was deleted")
            return False
        self._record = LeaseRecord()
        self._lease = empty_lease(self.settings.name, self._namespace, self._labels)
        return (yield from self._write(Verb.CREATE, acquired=True, transitions=0))

    def _take(self) -> Requests:
        transitions = self._record.transitions + 1
        return (yield from self._write(Verb.REPLACE, acquired=True, transitions=transitions))

    def _renew(self) -> Requests:
        transitions = self._record.transitions
        return (yield from self._write(Verb.REPLACE, acquired=False, transitions=transitions))

    def _write(self, verb: Verb, *, acquired: bool, transitions: int) -> Requests:
        sent = self._clock()  # ELECT1: before it is sent
        now = micro_time(self._wall())
        record = LeaseRecord(
            holder=self.identity,
            seconds=self.settings.seconds,
            acquired=now if acquired else self._record.acquired or now,
            renewed=self._record.renewed,
            transitions=transitions,
            strategy=self._record.strategy if self.coordinated else "",
        ).at(self._wall())
        reply = yield LeaseRequest(verb, self._with(record))
        if reply.kind is not ReplyKind.DONE or reply.body is None:
            return self._failed(reply)
        self._see(reply.body)
        return self._hold(sent + self.settings.renew_deadline)

    def _with(self, record: LeaseRecord) -> dict[str, Any]:
        """The Lease that was seen, with its resourceVersion (ELECT3) and this record."""
        return {**(self._lease or {}), "spec": record.spec()}

    def _hold(self, until: float) -> bool:
        """Our term goes on until then, or a new one begins; False if that has passed (ELECT1)."""
        self.lapse()
        if self._clock() >= until:
            self.failure = "the answer came too late"
            return False
        if not self._leading:
            self.term += 1
            version = version_of(self._lease)
            number = number_of(version)
            self.token = self._record.transitions if number < 0 else number
        self._leading = True
        self.until = until
        self.failure = ""
        return True

    def _see(self, lease: dict[str, Any]) -> None:
        record = LeaseRecord.of(lease)
        if record != self._record or version_of(lease) != version_of(self._lease or {}):
            self._seen_at = self._clock()  # ELECT2
        self._record, self._lease = record, lease

    def _lose(self, reason: str) -> None:
        self._leading = False
        self.until = 0.0
        self.reason = reason

    def _failed(self, reply: LeaseReply) -> bool:
        self.failure = reply.message or reply.kind.value
        self._retry_after = reply.retry_after
        return False

    # ---- all attempts ----------------------------------------------------------------------------

    def run(self) -> Steps:
        """Attempts without end; to be dropped when the candidacy ends."""
        while True:
            yield from self.attempt()
            self.lapse()
            yield Rest(self.rest())

    def rest(self) -> float:
        """Seconds until the next attempt is due."""
        now, period = self._clock(), self.settings.retry_period
        asked, self._retry_after = min(self._retry_after, RETRY_AFTER_CAP), 0.0  # ELECT7
        if self._leading:
            return max(0.0, min(period, self.until - now))
        waits = max(period, asked)
        waits += period * JITTER * self._rng.random()
        if self._record.holder and not self._ours and not self.coordinated:
            left = self.expires - now
            if 0 < left < waits:  # all candidates wake at its end, and not at the same moment
                waits = left + period * 0.1 * self._rng.random()
        return waits

    # ---- the end ---------------------------------------------------------------------------------

    def release(self, *, delete: bool = False, patience: float = 0.0) -> Steps:
        """Gives the Lease to the next candidate, if it is ours still; whether that is so now.

        The work must have ended (ELECT6). For `patience` seconds, what fails is tried again:
        a conflict is an earlier renewal that arrived late. `delete` removes the Lease instead.
        """
        self._lose("released")
        end = self._clock() + patience
        while True:
            done = yield from self._release_once(delete=delete)
            if done is not None:
                return done
            if self._clock() >= end:
                return False
            yield Rest(self.settings.retry_period / 4)

    def _release_once(self, *, delete: bool) -> Generator[LeaseRequest, LeaseReply, bool | None]:
        reply = yield LeaseRequest(Verb.READ)
        if reply.kind is ReplyKind.MISSING:
            return True
        if reply.kind is not ReplyKind.DONE or reply.body is None:
            self._failed(reply)
            return None
        self._see(reply.body)
        if not self._ours:
            return True
        reply = yield self._releasing(delete=delete)
        if reply.kind in {ReplyKind.DONE, ReplyKind.MISSING}:
            self._see(reply.body if reply.body is not None and not delete else {})
            return True
        self._failed(reply)
        return None

    def _releasing(self, *, delete: bool) -> LeaseRequest:
        if delete:
            version = version_of(self._lease)
            return LeaseRequest(Verb.DELETE, {"preconditions": {"resourceVersion": version}})
        released = replace(self._record, holder="", seconds=1, preferred="", strategy="")
        return LeaseRequest(Verb.REPLACE, self._with(released.at(self._wall())))
