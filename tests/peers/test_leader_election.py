"""Leader election does what client-go's does: its tests, by behaviour.

Their origin is named by the test function of client-go's tools/leaderelection. Differences on
purpose are those of docs/leader.md: a holder that reads another's name stops at once, and a release
of an expired Lease is left to the next holder.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import shmcache
from shmcache.lease.election import (
    RESTED,
    Election,
    LeaseReply,
    LeaseRequest,
    ReplyKind,
    Rest,
    Verb,
)
from shmcache.lease.record import LeaseRecord, empty_lease, micro_time, wall_of
from shmcache.testing import ManualClock

Script = list[Callable[[LeaseRequest], LeaseReply]]
TEN = shmcache.LeaseSettings("bar", duration=10.0, renew_deadline=6.0, retry_period=2.0)


def lease(record: dict[str, Any] | None, version: str = "1") -> dict[str, Any]:
    metadata = {"name": "bar", "namespace": "foo", "resourceVersion": version}
    return {"metadata": metadata, "spec": record or {}}


def got(record: dict[str, Any] | None, version: str = "1") -> Callable[[LeaseRequest], LeaseReply]:
    """GET finds this record."""

    def reply(request: LeaseRequest) -> LeaseReply:
        assert request.verb is Verb.READ
        return LeaseReply(ReplyKind.DONE, lease(record, version))

    return reply


def missing(request: LeaseRequest) -> LeaseReply:
    assert request.verb is Verb.READ
    return LeaseReply(ReplyKind.MISSING)


def stored(verb: Verb, version: str = "2") -> Callable[[LeaseRequest], LeaseReply]:
    """The write succeeds."""

    def reply(request: LeaseRequest) -> LeaseReply:
        assert request.verb is verb
        assert request.body is not None
        return LeaseReply(ReplyKind.DONE, lease(request.body["spec"], version))

    return reply


def refused(kind: ReplyKind, verb: Verb) -> Callable[[LeaseRequest], LeaseReply]:
    def reply(request: LeaseRequest) -> LeaseReply:
        assert request.verb is verb
        return LeaseReply(kind, message="refused")

    return reply


def play(steps: Any, script: Script) -> bool:
    """Runs an attempt; each request takes the next reply, and all are taken."""
    left, reply = list(script), None
    try:
        while True:
            action = steps.send(reply)
            reply = left.pop(0)(action) if isinstance(action, LeaseRequest) else RESTED
    except StopIteration as ended:
        assert left == [], "a request was not made"
        return bool(ended.value)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def elector(clock: ManualClock, **more: Any) -> Election:
    return Election(TEN, "baz", "foo", Random(1), clock=clock, wall=clock, **more)


BING = {"holderIdentity": "bing"}


def test_acquire_from_no_object(clock: ManualClock) -> None:
    """testTryAcquireOrRenew: "acquire from no object"."""
    one = elector(clock)
    assert play(one.attempt(), [missing, stored(Verb.CREATE)])
    assert one.leads
    assert (one.record.holder, one.record.transitions) == ("baz", 0)


@pytest.mark.parametrize("record", [None, {}, {"holderIdentity": ""}])
def test_acquire_from_an_object_that_nobody_holds(
    clock: ManualClock, record: dict[str, Any] | None
) -> None:
    """ "acquire from object without annotations", "from unled object", "from empty led, acked
    object"."""
    one = elector(clock)
    assert play(one.attempt(), [got(record), stored(Verb.REPLACE)])
    assert (one.record.holder, one.record.transitions) == ("baz", 1)


def test_acquire_from_led_object_with_the_lease_duration_seconds(clock: ManualClock) -> None:
    """The record's own duration counts, not the candidate's."""
    one = elector(clock)
    led = {**BING, "leaseDurationSeconds": 3}
    assert not play(one.attempt(), [got(led)])
    clock.advance(2.9)
    assert not play(one.attempt(), [got(led)])
    clock.advance(0.1)
    assert play(one.attempt(), [got(led), stored(Verb.REPLACE)])
    assert (one.record.holder, one.record.transitions) == ("baz", 1)


def test_acquire_from_led_unacked_object(clock: ManualClock) -> None:
    """A record without a duration has expired."""
    one = elector(clock)
    assert play(one.attempt(), [got(BING), stored(Verb.REPLACE)])


@pytest.mark.parametrize("renewed", [-3600.0 * 1000, 3600.0 * 1000])
def test_do_not_acquire_from_led_acked_object(clock: ManualClock, renewed: float) -> None:
    """ "don't acquire from led, acked object": whatever the holder's clock shows."""
    one = elector(clock)
    led = {**BING, "leaseDurationSeconds": 10, "renewTime": micro_time(4e6 + clock() + renewed)}
    assert not play(one.attempt(), [got(led)])
    assert (one.record.holder, one.leads) == ("bing", False)


def test_each_change_of_the_record_prolongs_it(clock: ManualClock) -> None:
    one = elector(clock)
    for second in range(5):
        led = {**BING, "leaseDurationSeconds": 3, "renewTime": micro_time(second)}
        assert not play(one.attempt(), [got(led, str(second))])
        clock.advance(2.5)


def test_renew_already_acquired_object(clock: ManualClock) -> None:
    """An identity that finds itself in the record goes on: no transition, the old acquireTime."""
    one = elector(clock)
    ours = {"holderIdentity": "baz", "acquireTime": "2020-01-01T00:00:00.000000Z"}
    assert play(one.attempt(), [got(ours), stored(Verb.REPLACE)])
    assert (one.record.transitions, one.record.acquired) == (0, ours["acquireTime"])


def test_coordinated_does_not_acquire_or_create(clock: ManualClock) -> None:
    """TestTryCoordinatedRenew: "don't acquire from led, acked object"; nor what is missing."""
    one = elector(clock, coordinated=True)
    assert not play(one.attempt(), [missing])
    assert not play(one.attempt(), [got(BING)])
    assert not play(one.attempt(), [got({"holderIdentity": ""})])
    assert not one.leads


def test_coordinated_renews_what_the_server_gave(clock: ManualClock) -> None:
    """TestTryCoordinatedRenew: "renew already acquired object"; the strategy stays."""
    one = elector(clock, coordinated=True)
    given = {"holderIdentity": "baz", "leaseDurationSeconds": 5, "strategy": "Some"}
    assert play(one.attempt(), [got(given), stored(Verb.REPLACE)])
    assert one.leads
    assert one.record.strategy == "Some"
    assert play(one.attempt(), [got(one.record.spec(), "2"), stored(Verb.REPLACE, "3")])


def test_coordinated_ends_the_term_when_another_is_preferred(clock: ManualClock) -> None:
    """tryCoordinatedRenew 2b: "end of term"."""
    one = elector(clock, coordinated=True)
    given = {"holderIdentity": "baz", "leaseDurationSeconds": 5, "strategy": "Some"}
    assert play(one.attempt(), [got(given), stored(Verb.REPLACE)])
    marked = {**one.record.spec(), "preferredHolder": "bing"}
    assert not play(one.attempt(), [got(marked, "3")])
    assert not one.leads


def test_coordinated_does_not_renew_what_has_expired(clock: ManualClock) -> None:
    one = elector(clock, coordinated=True)
    given = {"holderIdentity": "baz", "leaseDurationSeconds": 1, "strategy": "Some"}
    assert not play(one.attempt(), [got({**given, "holderIdentity": "bing"})])
    clock.advance(1.5)
    assert not play(one.attempt(), [got({**given, "holderIdentity": "bing"})])


def test_the_record_survives_a_round_trip() -> None:
    """TestLeaseSpecToLeaderElectionRecordRoundTrip, TestLeaseConversion."""
    record = LeaseRecord(
        holder="foo", seconds=10, acquired=micro_time(1e9), renewed=micro_time(1e9 + 0.5),
        transitions=1, preferred="bar", strategy="OldestEmulationVersion",
    )  # fmt: skip
    assert LeaseRecord.of(lease(record.spec())) == record
    assert wall_of(record.renewed) == 1e9 + 0.5


@pytest.mark.parametrize("spec", [None, [], {"holderIdentity": 7, "leaseTransitions": "x"}])
def test_a_malformed_record_is_an_empty_one(spec: object) -> None:
    assert LeaseRecord.of({"spec": spec}) == LeaseRecord()


# ---- the fast path -------------------------------------------------------------------------------


def test_the_holder_renews_with_one_request(clock: ManualClock) -> None:
    """TestFastPathLeaderElection: "Exercise fast path after lock acquired"."""
    one = elector(clock)
    assert play(one.attempt(), [missing, stored(Verb.CREATE)])
    assert play(one.attempt(), [stored(Verb.REPLACE, "3")])
    assert play(one.attempt(), [stored(Verb.REPLACE, "4")])


def test_a_conflict_falls_back_to_the_slow_path(clock: ManualClock) -> None:
    """TestFastPathLeaderElection: "Fallback to slow path after fast path fails"."""
    one = elector(clock)
    assert play(one.attempt(), [missing, stored(Verb.CREATE)])
    assert play(
        one.attempt(),
        [
            refused(ReplyKind.CONFLICT, Verb.REPLACE),
            got({"holderIdentity": "baz", "leaseDurationSeconds": 10}, "7"),
            stored(Verb.REPLACE, "8"),
        ],
    )
    assert play(one.attempt(), [stored(Verb.REPLACE, "9")])


def test_each_write_carries_the_version_that_was_read(clock: ManualClock) -> None:
    """ELECT3."""
    one = elector(clock)
    seen: list[str] = []

    def write(request: LeaseRequest) -> LeaseReply:
        assert request.body is not None
        seen.append(request.body["metadata"]["resourceVersion"])
        return stored(Verb.REPLACE, str(len(seen) + 10))(request)

    assert play(one.attempt(), [got(None, "5"), write])
    assert play(one.attempt(), [write])
    assert seen == ["5", "11"]


def test_a_renewal_always_changes_the_record(clock: ManualClock) -> None:
    """ELECT4: also if the wall clock stands still."""
    one = elector(clock)
    assert play(one.attempt(), [missing, stored(Verb.CREATE)])
    times = [one.record.renewed]
    for version in range(3, 6):
        assert play(one.attempt(), [stored(Verb.REPLACE, str(version))])
        times.append(one.record.renewed)
    assert all(before != after for before, after in itertools.pairwise(times))


# ---- the end -------------------------------------------------------------------------------------


def test_release_reads_and_empties_the_record(clock: ManualClock) -> None:
    """TestReleaseLeaseLeases, TestReleaseMethodCallsGet."""
    one = elector(clock)
    ours = {"holderIdentity": "baz", "leaseTransitions": 4}
    assert play(one.attempt(), [got(ours), stored(Verb.REPLACE)])
    assert play(
        one.release(), [got({**ours, "leaseDurationSeconds": 10}, "2"), stored(Verb.REPLACE)]
    )
    assert (one.record.holder, one.record.seconds, one.record.transitions) == ("", 1, 4)
    assert not one.leads


def test_release_leaves_what_another_one_holds(clock: ManualClock) -> None:
    """tryRelease decides from the record just fetched."""
    one = elector(clock)
    assert play(one.attempt(), [missing, stored(Verb.CREATE)])
    assert play(one.release(), [got(BING, "9")])
    assert play(one.release(), [missing])


def test_a_release_that_meets_a_late_renewal_is_repeated(clock: ManualClock) -> None:
    """testReleaseOnCancellation: the cancelled renewal arrives after all, "release acquired lock on
    cancellation of update"; a read that fails is repeated as well ("... of get")."""
    one = elector(clock)
    ours = {"holderIdentity": "baz", "leaseDurationSeconds": 10}
    assert play(one.attempt(), [missing, stored(Verb.CREATE)])
    script: Script = [
        refused(ReplyKind.FAILED, Verb.READ),
        got(ours, "2"),
        refused(ReplyKind.CONFLICT, Verb.REPLACE),
        got(ours, "3"),
        stored(Verb.REPLACE, "4"),
    ]
    assert play(one.release(patience=6.0), script)


def test_a_release_gives_up_after_its_patience(clock: ManualClock) -> None:
    one = elector(clock)
    assert play(one.attempt(), [missing, stored(Verb.CREATE)])
    steps, reply, rests = one.release(patience=6.0), None, 0.0
    with pytest.raises(StopIteration) as ended:
        while True:
            action = steps.send(reply)  # type: ignore[arg-type]
            reply = LeaseReply(ReplyKind.FAILED) if isinstance(action, LeaseRequest) else RESTED
            if isinstance(action, Rest):
                rests += action.seconds
                clock.advance(action.seconds)
    assert ended.value.value is False
    assert rests == 6.0


# ---- the term ------------------------------------------------------------------------------------


def test_the_term_counts_from_when_the_renewal_was_sent(clock: ManualClock) -> None:
    """ELECT1: a slow answer does not make the term longer."""
    one = elector(clock)

    def slow(request: LeaseRequest) -> LeaseReply:
        clock.advance(4.0)
        return stored(request.verb)(request)

    assert play(one.attempt(), [missing, slow])
    assert one.until == clock() + 2.0
    clock.advance(2.0)
    assert not one.leads


def test_an_answer_after_the_deadline_does_not_count(clock: ManualClock) -> None:
    one = elector(clock)

    def too_slow(request: LeaseRequest) -> LeaseReply:
        clock.advance(6.0)
        return stored(request.verb)(request)

    assert not play(one.attempt(), [missing, too_slow])
    assert not one.leads


def test_a_success_after_the_end_of_the_term_begins_another(clock: ManualClock) -> None:
    one = elector(clock)
    assert play(one.attempt(), [missing, stored(Verb.CREATE)])
    assert one.term == 1
    clock.advance(6.0)
    ours = one.record.spec()
    assert not one.leads
    assert play(one.attempt(), [got(ours, "2"), stored(Verb.REPLACE, "3")])
    assert (one.term, one.token) == (2, 3)


@pytest.mark.parametrize("holder", ["bing", ""])
def test_a_holder_that_reads_another_name_stops_at_once(clock: ManualClock, holder: str) -> None:
    """ELECT5; client-go goes on to its renew deadline."""
    one = elector(clock)
    assert play(one.attempt(), [missing, stored(Verb.CREATE)])
    taken = {"holderIdentity": holder, "leaseDurationSeconds": 10}
    assert not play(one.attempt(), [refused(ReplyKind.CONFLICT, Verb.REPLACE), got(taken, "9")])
    assert not one.leads
    assert one.reason


def test_a_deleted_lease_ends_the_term(clock: ManualClock) -> None:
    one = elector(clock)
    assert play(one.attempt(), [missing, stored(Verb.CREATE)])
    assert not play(one.attempt(), [refused(ReplyKind.MISSING, Verb.REPLACE), missing])
    assert not one.leads


def rests_of(
    one: Election, clock: ManualClock, replies: Callable[[LeaseRequest], LeaseReply]
) -> list[float]:
    """The rests of a run, its requests answered by a function."""
    steps, reply = one.run(), None
    rests: list[float] = []
    while len(rests) < 200:
        action = steps.send(reply)  # type: ignore[arg-type]
        if isinstance(action, Rest):
            rests.append(action.seconds)
            clock.advance(action.seconds)
            reply = RESTED
        else:
            reply = replies(action)
    return rests


def test_candidates_wait_for_their_period_with_jitter(clock: ManualClock) -> None:
    """wait.JitterUntil with JitterFactor: from one to 2.2 periods."""
    led = {**BING, "leaseDurationSeconds": 1 << 30}
    rests = rests_of(elector(clock), clock, got(led))
    assert 2.0 <= min(rests) < 2.1
    assert 4.3 < max(rests) <= 4.4


def test_holders_renew_every_period(clock: ManualClock) -> None:
    version = iter(range(3, 1000))

    def replies(request: LeaseRequest) -> LeaseReply:
        if request.verb is Verb.READ:
            return LeaseReply(ReplyKind.MISSING)
        return stored(request.verb, str(next(version)))(request)

    assert set(rests_of(elector(clock), clock, replies)) == {2.0}


def test_a_server_that_asks_for_patience_gets_it(clock: ManualClock) -> None:
    def replies(_: LeaseRequest) -> LeaseReply:
        return LeaseReply(ReplyKind.FAILED, retry_after=30.0)

    assert min(rests_of(elector(clock), clock, replies)) >= 30.0


def test_the_view_of_a_leader_can_be_read_by_other_threads() -> None:
    """TestCheckMethodRace."""
    from shmcache.testing import ApiServer

    stop = threading.Event()
    failed: list[BaseException] = []

    def look(lead: shmcache.Leader) -> None:
        try:
            while not stop.is_set():
                _ = (lead.held, lead.holder, lead.token, repr(lead))
                lead.check()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failed.append(error)

    with ApiServer(seed=1) as server:
        settings = shmcache.LeaseSettings(
            "race", server=server.url, duration=60, renew_deadline=40, retry_period=0.005
        )
        with shmcache.leader(settings) as lead:
            threads = [threading.Thread(target=look, args=(lead,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            first = server.get("leases", "race", "default")["spec"]["renewTime"]
            while server.get("leases", "race", "default")["spec"]["renewTime"] == first:
                stop.wait(0.005)
            stop.set()
            for thread in threads:
                thread.join()
    assert failed == []


def test_an_empty_lease_has_labels_if_there_are_any() -> None:
    assert "labels" not in empty_lease("a", "b")["metadata"]
    assert empty_lease("a", "b", {"c": "d"})["metadata"]["labels"] == {"c": "d"}
