"""Invariants tested: one holder of a Lease at a time, and it knows when its time is over.

LEAD1 to LEAD3 of leader.py and LEAD4 of leader_async.py, over HTTP with the API server
for tests.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from workers import PATIENCE, eventually

import shmcache
from shmcache.errors import ForkedError
from shmcache.lease.candidate import _due
from shmcache.lease.election import (
    RESTED,
    Election,
    LeaseReply,
    LeaseRequest,
    ReplyKind,
    Rest,
)
from shmcache.lease.record import micro_time
from shmcache.lease.settings import boot_seconds
from shmcache.protocol import failures
from shmcache.testing import ApiServer

LEASES = "leases.coordination.k8s.io"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        yield started


def calm(server: ApiServer, **more: Any) -> shmcache.LeaseSettings:
    """A Lease that nobody loses for being slow."""
    settings = {"duration": 60.0, "renew_deadline": 40.0, "retry_period": 0.1, **more}
    return shmcache.LeaseSettings("demo", server=server.url, **settings)


def hasty(server: ApiServer, **more: Any) -> shmcache.LeaseSettings:
    """A Lease that is lost soon."""
    return calm(server, duration=2.0, renew_deadline=1.0, retry_period=0.1, **more)


def spec(server: ApiServer) -> dict[str, Any]:
    found: dict[str, Any] = server.get(LEASES, "demo", "default")["spec"]
    return found


def test_the_holder_is_in_the_lease_and_leaves_it_empty(server: ApiServer) -> None:
    with shmcache.leader(calm(server)) as lead:
        lead.check()
        assert spec(server)["holderIdentity"] == lead.identity == lead.holder
        assert spec(server)["leaseDurationSeconds"] == 60
        assert lead.token == int(
            server.get(LEASES, "demo", "default")["metadata"]["resourceVersion"]
        )
    assert lead.held is False
    assert spec(server)["holderIdentity"] == ""
    assert spec(server)["leaseDurationSeconds"] == 1
    with pytest.raises(shmcache.LeadershipLost, match="demo"):
        lead.check()


def test_the_lease_is_renewed_while_the_body_runs(server: ApiServer) -> None:
    with shmcache.leader(calm(server)):
        first = spec(server)["renewTime"]
        eventually(lambda: spec(server)["renewTime"] != first, "no renewal")
        assert spec(server)["acquireTime"] <= first
        assert spec(server)["leaseTransitions"] == 0


def test_a_second_leader_waits_for_the_release_and_gets_a_greater_token(server: ApiServer) -> None:
    second = shmcache.leader(calm(server))
    with shmcache.leader(calm(server)) as first:
        second.start()
        eventually(lambda: second.holder == first.identity, "the second one sees no holder")
        assert not second.wait(0.0)
        token = first.token
    assert second.wait(PATIENCE)
    assert second.token > token
    assert spec(server)["leaseTransitions"] == 1
    second.stop()


def test_an_expired_lease_is_taken_over(server: ApiServer) -> None:
    record = {
        "holderIdentity": "somebody", "leaseDurationSeconds": 1, "leaseTransitions": 6,
        "acquireTime": "2038-01-01T00:00:00.000000Z", "renewTime": "2038-01-01T00:00:00.000000Z",
    }  # fmt: skip
    server.create(LEASES, {"metadata": {"name": "demo", "namespace": "default"}, "spec": record})

    with shmcache.leader(calm(server)):  # although its renewal is in the future
        assert spec(server)["leaseTransitions"] == 7


def test_a_refused_renewal_ends_the_term_by_the_deadline(server: ApiServer) -> None:
    lost = threading.Event()
    with pytest.raises(shmcache.LeadershipLost, match="no renewal"):  # noqa: SIM117 - its end raises
        with shmcache.leader(hasty(server), on_lost=lost.set) as lead:
            server.faults.refuse(failures.plain(503, "no"), "*", LEASES, times=None)
            assert lost.wait(PATIENCE)
            assert not lead.held
            server.faults.clear()
            assert not lead.wait(0.3), "LEAD2: it does not come back in the same body"


def test_a_request_that_hangs_does_not_keep_the_lease(server: ApiServer) -> None:
    """client-go's TestLeaderElectionHealthChecker: a stuck elector does not lead for ever."""
    with pytest.raises(shmcache.LeadershipLost):  # noqa: SIM117
        with shmcache.leader(hasty(server)) as lead:
            server.faults.slow(30.0, "update", LEASES, times=None)
            assert lead.wait_lost(PATIENCE)
            assert not lead.held
            server.faults.clear()


def test_another_holder_in_the_lease_ends_the_term_at_once(server: ApiServer) -> None:
    """ELECT5."""
    with pytest.raises(shmcache.LeadershipLost, match="names usurper"):  # noqa: SIM117
        with shmcache.leader(calm(server)) as lead:
            eventually(lambda: usurped(server, "usurper"), "every write lost its race")
            assert lead.wait_lost(PATIENCE)
    assert spec(server)["holderIdentity"] == "usurper", "it is not released by another one"


def usurped(server: ApiServer, holder: str) -> bool:
    lease = server.get(LEASES, "demo", "default")
    lease["spec"]["holderIdentity"] = holder
    try:
        server.update(LEASES, lease)
    except failures.Failure:
        return False
    return True


def test_an_error_of_the_body_wins_over_a_lost_lease(server: ApiServer) -> None:
    with pytest.raises(ZeroDivisionError), shmcache.leader(hasty(server)) as lead:
        server.faults.refuse(failures.plain(503, "no"), "*", LEASES, times=None)
        assert lead.wait_lost(PATIENCE)
        _ = 1 / 0


def test_changes_by_others_are_kept_and_do_not_end_the_term(server: ApiServer) -> None:
    """client-go's TestUpdateWithNilLabels and TestLabelUpdate; a conflict leads to a new read."""
    with shmcache.leader(calm(server)) as lead:
        eventually(lambda: labelled(server), "every write lost its race")
        before = spec(server)["renewTime"]
        eventually(lambda: spec(server)["renewTime"] != before, "no renewal after the change")
        assert lead.held
        metadata = server.get(LEASES, "demo", "default")["metadata"]
        assert metadata["labels"] == {"mine": "kept"}


def labelled(server: ApiServer) -> bool:
    lease = server.get(LEASES, "demo", "default")
    lease["metadata"]["labels"] = {"mine": "kept"}
    try:
        server.update(LEASES, lease)
    except failures.Failure:
        return False
    return True


def test_each_new_holder_is_reported_once(server: ApiServer) -> None:
    seen: list[str] = []
    watching = shmcache.leader(calm(server), on_holder=seen.append)
    with shmcache.leader(calm(server, identity="first")):
        watching.start()
        eventually(lambda: seen == ["first"], "the first holder was not seen")
    assert watching.wait(PATIENCE)
    assert seen[0] == "first"
    assert seen[-1] == watching.identity
    assert len(seen) == len(set(seen))
    watching.stop()


def test_a_leader_can_be_entered_again(server: ApiServer) -> None:
    lead = shmcache.leader(calm(server))
    for _ in range(2):
        with lead:
            assert lead.held
        assert not lead.held
    with lead, pytest.raises(RuntimeError, match="begun"):
        lead.start()


def test_a_child_of_fork_does_not_lead(server: ApiServer) -> None:
    with shmcache.leader(calm(server)) as lead:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                lead.check()
            except ForkedError:
                status = 0 if not lead.held else 2
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert lead.held


def test_a_stopped_process_finds_its_term_over(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEAD1: by the clock alone, before any thread has noticed."""
    with pytest.raises(shmcache.LeadershipLost):  # noqa: SIM117
        with shmcache.leader(calm(server)) as lead:
            later = boot_seconds() + 41.0
            monkeypatch.setattr("shmcache.lease.leader.boot_seconds", lambda: later)
            assert not lead.held
            with pytest.raises(shmcache.LeadershipLost):
                lead.check()


def test_a_wait_that_is_interrupted_leaves_no_candidate(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = shmcache.leader(calm(server))

    def interrupted(timeout: float | None = None) -> bool:
        del timeout
        raise KeyboardInterrupt

    monkeypatch.setattr(lead, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lead.__enter__()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if "leader demo" in name]


def other_holds(server: ApiServer) -> None:
    """The Lease is another one's, for an hour."""
    record = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}
    server.create(LEASES, {"metadata": {"name": "demo", "namespace": "default"}, "spec": record})


def stop_when_it_waits(lead: shmcache.Leader) -> threading.Thread:
    """stop() from another thread, after the holder was seen."""

    def stop() -> None:
        eventually(lambda: lead.holder == "somebody", "the holder was not seen")
        lead.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    return thread


def test_a_candidate_that_is_stopped_while_it_waits_gets_no_body(server: ApiServer) -> None:
    """LEAD5."""
    other_holds(server)
    lead = shmcache.leader(calm(server))
    thread = stop_when_it_waits(lead)
    with pytest.raises(shmcache.LeadershipLost, match="not acquired"), lead:
        raise AssertionError("a body without the Lease")
    thread.join()
    lead.start()  # nothing is left of the first candidacy
    lead.stop()


def test_a_stop_within_a_thread_of_the_leader_is_refused(server: ApiServer) -> None:
    refused = threading.Event()

    def on_holder(_: str) -> None:
        try:
            lead.stop()
        except RuntimeError:
            refused.set()

    lead = shmcache.leader(calm(server), on_holder=on_holder)
    lead.start()
    assert refused.wait(PATIENCE)
    lead.stop()


def test_an_election_that_fails_ends_the_candidacy(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEAD5: nobody waits for a thread that is dead."""

    def broken(_: Election) -> float:
        raise OverflowError("timestamp too large")

    monkeypatch.setattr(Election, "rest", broken)
    other_holds(server)
    lead = shmcache.leader(calm(server))
    lead.start()
    assert lead.wait_lost(PATIENCE)
    with pytest.raises(shmcache.LeadershipLost, match="timestamp too large"):
        lead.check()
    lead.stop()


def test_a_server_that_asks_for_much_patience_ends_no_term() -> None:
    """ELECT7."""
    now = [0.0]
    election = Election(
        shmcache.LeaseSettings("demo"), "me", "default", Random(1),
        clock=lambda: now[0], wall=lambda: now[0],
    )  # fmt: skip
    lease = {"metadata": {"name": "demo", "resourceVersion": "1"}, "spec": {}}
    refused = LeaseReply(ReplyKind.FAILED, None, "429", 99999999999.0)
    steps = election.run()
    assert isinstance(next(steps), LeaseRequest)
    assert isinstance(steps.send(LeaseReply(ReplyKind.DONE, lease)), LeaseRequest)
    rest = steps.send(LeaseReply(ReplyKind.DONE, lease))

    def leads() -> bool:
        return election.leads

    assert leads()
    while leads():
        assert isinstance(rest, Rest)
        assert rest.seconds <= election.settings.retry_period
        now[0] += max(rest.seconds, 0.1)
        action = steps.send(RESTED)
        while isinstance(action, LeaseRequest):
            action = steps.send(refused)
        rest = action
    assert isinstance(rest, Rest)
    assert 120.0 <= rest.seconds < 125.0


# ---- asyncio -------------------------------------------------------------------------------------


def test_an_async_body_holds_and_releases(server: ApiServer) -> None:
    async def main() -> None:
        async with shmcache.leader(calm(server)) as lead:
            assert lead.held
            assert spec(server)["holderIdentity"] == lead.identity
        assert spec(server)["holderIdentity"] == ""

    asyncio.run(main())


def test_an_async_body_is_cancelled_when_the_lease_is_lost(server: ApiServer) -> None:
    async def main() -> None:
        with pytest.raises(shmcache.LeadershipLost, match="no renewal"):
            async with shmcache.leader(hasty(server)):
                server.faults.refuse(failures.plain(503, "no"), "*", LEASES, times=None)
                await asyncio.sleep(PATIENCE)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # and the task goes on

    asyncio.run(main())


def test_a_cancelled_async_wait_leaves_no_candidate(server: ApiServer) -> None:
    async def main() -> None:
        async with shmcache.leader(calm(server)):
            task = asyncio.create_task(second())
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert spec(server)["holderIdentity"] == ""

    async def second() -> None:
        async with shmcache.leader(calm(server)):
            raise AssertionError("two leaders")

    asyncio.run(main())


def test_a_cancellation_from_outside_stays_one(server: ApiServer) -> None:
    async def body(began: asyncio.Event) -> None:
        async with shmcache.leader(calm(server)):
            began.set()
            await asyncio.sleep(PATIENCE)

    async def main() -> None:
        began = asyncio.Event()
        task = asyncio.create_task(body(began))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert spec(server)["holderIdentity"] == ""

    asyncio.run(main())


def test_a_candidate_that_is_stopped_gets_no_async_body(server: ApiServer) -> None:
    """LEAD5."""
    other_holds(server)

    async def main() -> None:
        lead = shmcache.leader(calm(server))
        thread = stop_when_it_waits(lead)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(shmcache.LeadershipLost, match="not acquired"):
                async with lead:
                    raise AssertionError("a body without the Lease")
        thread.join()

    asyncio.run(main())


def test_an_async_body_leaves_nothing_at_its_leader(server: ApiServer) -> None:
    async def once(lead: shmcache.Leader) -> weakref.ref[asyncio.Task[None]]:
        async def body() -> None:
            async with lead:
                assert lead.held

        task = asyncio.create_task(body())
        await task
        return weakref.ref(task)

    async def main() -> None:
        lead = shmcache.leader(calm(server))
        left = [await once(lead) for _ in range(3)]
        async with asyncio.timeout(PATIENCE):
            while any(task() is not None for task in left):  # its last thread may be ending
                await asyncio.sleep(0.01)
                gc.collect()

    asyncio.run(main())


# ---- coordinated leader election (KEP-4355) ------------------------------------------------------

CANDIDATE = shmcache.Candidacy(binary_version="1.4.0", emulation_version="1.3.0")
CANDIDATES = "leasecandidates.coordination.k8s.io"


@pytest.fixture
def choosing() -> Iterator[ApiServer]:
    """A server that has candidates; the tests choose in its place."""
    with ApiServer(seed=1, optional_resources=True) as started:
        yield started


def test_the_server_chooses_among_candidates(choosing: ApiServer) -> None:
    server = choosing
    lead = shmcache.leader(calm(server, candidacy=CANDIDATE, identity="one"))
    lead.start()
    eventually(lambda: server.list(CANDIDATES), "no candidate")
    (candidate,) = server.list(CANDIDATES)
    assert candidate["metadata"]["name"] == "one"
    assert candidate["spec"]["leaseName"] == "demo"
    assert candidate["spec"]["binaryVersion"] == "1.4.0"
    assert candidate["spec"]["emulationVersion"] == "1.3.0"
    assert candidate["spec"]["strategy"] == "OldestEmulationVersion"
    assert server.list(LEASES) == [], "it creates no Lease of its own"

    chosen = {"holderIdentity": "one", "leaseDurationSeconds": 60,
              "strategy": "OldestEmulationVersion"}  # fmt: skip
    server.create(LEASES, {"metadata": {"name": "demo", "namespace": "default"}, "spec": chosen})
    assert lead.wait(PATIENCE)
    eventually(lambda: spec(server).get("renewTime"), "no renewal")
    assert spec(server)["strategy"] == "OldestEmulationVersion"

    eventually(lambda: preferred(server), "every write lost its race")
    assert lead.wait_lost(PATIENCE), "the server ends the term"
    assert "preferred" in lead.reason
    lead.stop()
    assert server.list(CANDIDATES) == []


def preferred(server: ApiServer) -> bool:
    lease = server.get(LEASES, "demo", "default")
    lease["spec"]["preferredHolder"] = "two"
    try:
        server.update(LEASES, lease)
    except failures.Failure:
        return False
    return True


def test_a_ping_of_a_candidate_is_answered(choosing: ApiServer) -> None:
    """client-go's TestLeaseCandidateAck."""
    server = choosing
    lead = shmcache.leader(calm(server, candidacy=CANDIDATE, identity="one"))
    lead.start()
    eventually(lambda: server.list(CANDIDATES), "no candidate")
    ping = "2099-01-01T00:00:00.000000Z"
    candidate = server.list(CANDIDATES)[0]
    candidate["spec"]["pingTime"] = ping
    before = candidate["spec"]["renewTime"]
    server.update(CANDIDATES, candidate)
    eventually(
        lambda: server.list(CANDIDATES)[0]["spec"]["renewTime"] != before, "the ping has no answer"
    )
    lead.stop()


@pytest.mark.parametrize(
    ("renewed", "pinged", "expected"),
    [
        (None, None, True), (0, None, False), (-299, None, False), (-300, None, True),
        (300, None, True), (-20, -10, True), (-20, -30, False), (None, -30, True),
    ],
)  # fmt: skip
def test_a_candidate_is_renewed_when_it_is_due(
    renewed: int | None, pinged: int | None, expected: bool
) -> None:
    now = 1_700_000_000.0
    times = {"renewTime": renewed, "pingTime": pinged}
    found = {key: micro_time(now + at) for key, at in times.items() if at is not None}

    assert expected == _due(found, now)


def test_a_server_without_candidates_gets_a_plain_lease(server: ApiServer) -> None:
    with shmcache.leader(calm(server, candidacy=CANDIDATE)) as lead:
        assert spec(server)["holderIdentity"] == lead.identity


# ---- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"duration": 10.0}, "duration .* must be greater than renew_deadline"),
        ({"renew_deadline": 2.4}, "must be greater than 1.2 x"),
        ({"duration": 0}, "greater than zero"),
        ({"renew_deadline": 0}, "greater than zero"),
        ({"retry_period": 0}, "greater than zero"),
        ({"retry_period": -1}, "greater than zero"),
        ({"duration": float("nan")}, "greater than zero"),
        ({"duration": 0.9, "renew_deadline": 0.5, "retry_period": 0.1}, "at least one second"),
        ({"identity": "Not A Name"}, "an identity must have"),
        ({"namespace": "-"}, "letters"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any], text: str) -> None:
    """client-go's NewLeaderElector and TestLeaderElectionConfigValidation."""
    with pytest.raises(ValueError, match=text):
        shmcache.LeaseSettings("demo", **wrong)


def test_an_invalid_name_is_refused() -> None:
    for name in ("", "Demo", "a/b", "a" * 254, "a..b", "-a"):
        with pytest.raises(ValueError, match="the name of a Lease"):
            shmcache.LeaseSettings(name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"binary_version": "", "emulation_version": "1"},
        {"binary_version": "1"},
        {"binary_version": "1", "emulation_version": "1", "strategy": ""},
    ],
)
def test_an_incomplete_candidacy_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"candidate|strategy"):
        shmcache.Candidacy(**wrong)


def test_the_lease_has_whole_seconds_and_never_fewer() -> None:
    found = shmcache.LeaseSettings("demo", duration=15.2)
    assert (found.seconds, replace(found, duration=15.0).seconds) == (16, 15)


def test_the_environment_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHMCACHE_SERVER", "http://127.0.0.1:1")
    assert shmcache.LeaseSettings("demo").access().url == "http://127.0.0.1:1"
    other = shmcache.LeaseSettings("demo", server="http://127.0.0.1:2")
    assert other.access().url == "http://127.0.0.1:2"
    assert shmcache.LeaseSettings("demo", kubeconfig="file").access().url is None


def test_the_last_of_several_servers_keeps_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before it may be relays."""
    monkeypatch.setenv("SHMCACHE_KUBECONFIG", "file")
    for text, url in (
        ("https://relay-a:8443,kube", None),
        ("https://relay-a:8443, https://api:6443,", "https://api:6443"),
        ("kube", None),
        ("", None),
    ):
        monkeypatch.setenv("SHMCACHE_SERVER", text)
        found = shmcache.LeaseSettings("demo").access()
        assert (found.url, found.kubeconfig) == (url, "file")
        if text:
            assert shmcache.LeaseSettings("demo", server=text).access().url == url
