"""Slots shared by members: one table, changed by compare-and-swap, and a Lease for each member.

    list ▸ who lives? ▸ who should own what? ▸ drain what is another's ▸ write the table

round() is one look; it yields requests and is sent replies, as election.py. It reads the table and
all members with one LIST, which is one state of the server.

    SPREAD1  A member works on a slot while the table names it, and its own term (its Lease, by its
        own clock) goes on.
    SPREAD2  A new term changes the table before it works: a write that another member decided on,
        when it took the old term for expired, is refused then.
    SPREAD3  A slot leaves a member that lives only by its own write, after its keys have ended. It
        is named another's at once, not freed.
    SPREAD4  A member takes a slot of another one only if that one's Lease expired by the observer's
        clock, or was released, in the state that its write is compared with.
        Expired at the moment before the LIST was sent: one that is renewed while the answer is on
        its way goes on, and does not touch the table. If one expires in that time, the next look
        comes at once.
    SPREAD5  An owner without a Lease counts as living until it was missed for a whole duration.
    SPREAD6  Nobody but a member itself knows whether it is leaving: one that starts again under
        the same name removes itself from `leaving` in the table.
    SPREAD7  A slot that was drained, and is to stay after all, is worked on again after its own
        write, with that write's epoch.
    SPREAD8  A refusal, but for a conflict, is followed by a pause of a look, or of as long as the
        server asks for, up to RETRY_AFTER_CAP.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from math import inf
from typing import Any, NamedTuple

from shmcache.lease.election import (
    RETRY_AFTER_CAP,
    Election,
    LeaseReply,
    LeaseRequest,
    ReplyKind,
    Verb,
)
from shmcache.lease.record import LeaseRecord, empty_lease, version_of
from shmcache.lease.slots import ANNOTATION, SlotTable, assignment

LABEL = "shmcache.io/machines"
FORGET_DURATIONS = 20.0
"""The Lease of a member that has been gone for so many durations is removed."""
SOON = 0.05
"""Seconds until a look that follows a change, or a drain."""

Rounds = Generator[LeaseRequest, LeaseReply, float]


class SeenLease(NamedTuple):
    """A member's Lease, as it was last seen to change."""

    version: str
    at: float
    seconds: float
    released: bool


class Holdings:
    """Where a member's slots are kept for its workers. The methods are called in order."""

    def begin(self, term: int) -> None:
        """A term begins: nothing is owned."""

    def gain(self, slots: Collection[int], epoch: int, term: int) -> None:
        """These may be worked on, if that is still the term."""

    def lose(self, slots: Collection[int]) -> None:
        """Nothing of these begins any more."""

    def busy(self) -> Collection[int]:
        """The slots of the keys that are being worked on."""
        return ()


class Sharing:
    """One member's view of the table."""

    def __init__(
        self,
        election: Election,
        table_name: str,
        namespace: str,
        holdings: Holdings,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.election = election
        self.member = election.identity
        self.held: set[int] = set()
        """The slots that are worked on."""
        self.draining: set[int] = set()
        """Slots that are to leave, whose keys may be in work yet."""
        self.members: frozenset[str] = frozenset()
        """Those that lived at the last look."""
        self.failure = ""
        self._name = table_name
        self._namespace = namespace
        self._holdings = holdings
        self._clock = clock
        self._term = 0
        self._seen: dict[str, SeenLease] = {}
        self._missed: dict[str, float] = {}
        self._next_end = inf
        """When the next of the others that live may be gone, by the clock."""
        self._leaving = False
        self._next_look = 0.0

    @property
    def labels(self) -> dict[str, str]:
        """Of the table and of the members' Leases."""
        return {LABEL: self._name}

    # ---- one look --------------------------------------------------------------------------------

    def round(self) -> Rounds:
        """Looks, and does what is due; seconds until the next look."""
        if not self.election.leads:
            self._drop()
            return SOON
        term = self.election.term
        asked = self._clock()
        if asked < self._next_look and not self.draining - set(self._holdings.busy()):
            return SOON  # keys are in work still, and nothing else is due
        self._next_look = asked + self._period
        reply = yield LeaseRequest(Verb.LIST)
        if reply.kind is not ReplyKind.DONE or reply.body is None:
            return self._failed(reply)
        return (yield from self._act(reply.body, term, asked))

    def _act(self, listed: dict[str, Any], term: int, asked: float) -> Rounds:
        """Does what the answer to the LIST makes due."""
        table_lease = self._see(listed)
        if table_lease is None:
            table_lease = empty_lease(self._name, self._namespace, self.labels)
        try:
            table = SlotTable.of(table_lease)
        except ValueError as error:
            self.failure = str(error)
            self._drop()
            return self._period
        self.failure = ""
        living = self._living(table, asked)
        self.members = frozenset(living)
        moves = self._moves(table, living, term)
        if moves is not None:
            leaving = (table.leaving & living) - {self.member}  # SPREAD6
            if self._leaving:
                leaving |= {self.member}
            table = table.changed(moves, leaving)
            return (yield from self._write(table_lease, table, moves, term))
        yield from self._forget_members()
        if self.draining:
            return SOON
        self._next_look = 0.0
        return min(self._period, max(0.0, self._next_end - self._clock()) + 0.001)

    def _failed(self, reply: LeaseReply) -> float:
        """Seconds until the next request (SPREAD8)."""
        self.failure = reply.message or reply.kind.value
        return max(self._period, min(reply.retry_after, RETRY_AFTER_CAP))

    @property
    def _period(self) -> float:
        return self.election.settings.retry_period / 4

    def _drop(self) -> None:
        """Our term is over: whatever the table says, nothing is ours (SPREAD1)."""
        if self.held or self.draining:
            self._holdings.lose(self.held | self.draining)
        self.held.clear()
        self.draining.clear()
        self._term = 0

    def _moves(self, table: SlotTable, living: set[str], term: int) -> dict[int, str] | None:
        """The changes of the table that are due now; None for none."""
        if self._term != term:
            self._drop()
            return {}  # SPREAD2
        named = table.of_member(self.member)
        taken = (self.held | self.draining) - named
        self._let_go(taken)
        gifts = named - self.held - self.draining
        if gifts:
            self._hold(gifts, table.epoch)
        targets = living - table.leaving - ({self.member} if self._leaving else set())
        wanted = assignment(frozenset(targets))
        leave = {slot for slot in self.held if wanted[slot] != self.member}
        if leave:
            self._holdings.lose(leave)
            self.held -= leave
            self.draining |= leave
        ended = self.draining - leave - set(self._holdings.busy())  # SPREAD3
        moves = {slot: wanted[slot] for slot in ended}
        if not self._leaving:
            for slot, owner in enumerate(table.owners):
                if wanted[slot] == self.member and owner not in living:
                    moves[slot] = self.member  # SPREAD4
        announced = not self._leaving or self.member in table.leaving
        return None if announced and not moves else moves

    def _let_go(self, slots: set[int]) -> None:
        if slots:
            self._holdings.lose(slots)
            self.held -= slots
            self.draining -= slots

    def _hold(self, slots: Collection[int], epoch: int) -> None:
        self.held |= set(slots)
        self._holdings.gain(slots, epoch, self._term)

    def _write(
        self, lease: dict[str, Any], table: SlotTable, moves: dict[int, str], term: int
    ) -> Rounds:
        metadata = dict(lease["metadata"])
        annotations = {**(metadata.get("annotations") or {}), ANNOTATION: table.text()}
        body = {**lease, "metadata": {**metadata, "annotations": annotations}}
        verb = Verb.REPLACE if version_of(lease) else Verb.CREATE
        self._next_look = 0.0
        reply = yield LeaseRequest(verb, body)
        if reply.kind is ReplyKind.CONFLICT:
            return SOON
        if reply.kind is not ReplyKind.DONE:
            return self._failed(reply)
        if not self.election.leads or self.election.term != term:
            self._drop()
            return SOON
        if self._term != term:
            self._term = term
            self._holdings.begin(term)
        named = table.of_member(self.member)
        kept = {slot for slot, owner in moves.items() if owner == self.member}
        self.draining = (self.draining & named) - kept  # SPREAD7
        gained = named - self.held - self.draining
        if gained:
            self._hold(gained, table.epoch)
        return SOON

    # ---- members ---------------------------------------------------------------------------------

    def _see(self, listed: dict[str, Any]) -> dict[str, Any] | None:
        """Notes which members' Leases have changed; the table's Lease, if there is one."""
        now, table = self._clock(), None
        found: dict[str, SeenLease] = {}
        for lease in listed.get("items") or ():
            name = lease["metadata"]["name"]
            if name == self._name:
                table = lease
                continue
            record = LeaseRecord.of(lease)
            member = name.removeprefix(f"{self._name}-")
            seen = SeenLease(version_of(lease), now, record.seconds, not record.holder)
            before = self._seen.get(member)
            found[member] = before if before and before.version == seen.version else seen
        self._seen = found
        return table

    def _living(self, table: SlotTable, asked: float) -> set[str]:
        """Members whose terms may have gone on when the LIST was sent (SPREAD4)."""
        ends = {
            member: seen.at + seen.seconds
            for member, seen in self._seen.items()
            if not seen.released
        }
        missing = set(table.owners) - {""} - set(self._seen)
        now, duration = self._clock(), self.election.settings.duration
        self._missed = {member: self._missed.get(member, now) for member in missing}
        ends |= {member: at + duration for member, at in self._missed.items()}  # SPREAD5
        living = {member for member, end in ends.items() if asked < end} - {self.member}
        self._next_end = min((ends[member] for member in living), default=inf)
        return living | {self.member}

    def _forget_members(self) -> Generator[LeaseRequest, LeaseReply, None]:
        """Removes one Lease of a member that has been gone for long."""
        now = self._clock()
        for member, seen in self._seen.items():
            gone = now - seen.at - seen.seconds
            if gone > FORGET_DURATIONS * self.election.settings.duration:
                body = {"preconditions": {"resourceVersion": seen.version}}
                yield LeaseRequest(Verb.DELETE, body, f"{self._name}-{member}")
                return

    # ---- the end ---------------------------------------------------------------------------------

    def leave(self) -> None:
        """From now on, gives all slots to the others; `gone` when that is done."""
        self._leaving = True

    @property
    def gone(self) -> bool:
        """Whether nothing is ours any more."""
        return self._leaving and not self.held and not self.draining
