"""Invariant tested: sixty resources of a server that was away are equal to it within seconds of its
return, for one request each and a few probes; while it is away, only those probes are sent.

Simulated: sixty reflectors on sixty sources of one server, one gate, and a clock that the test
moves.
"""

from __future__ import annotations

import random
import threading

import pytest
from reflecting import pod

from shmcache import states
from shmcache.engine.gate import INTERVALS, PATIENCE, Gate, Turn
from shmcache.reflector.machine import ReflectorSettings
from shmcache.reflector.retrying import ACCESS, SERVER
from shmcache.source.base import SourceFailure
from shmcache.testing import Driver, FakeSource, ManualClock, statuses

RESOURCES = 60
BACK_SECONDS, BACK_REQUESTS = 5.0, 3 * 5  # and one more for each resource


class Fleet:
    """One server with many resources, a reflector for each."""

    def __init__(self, *, watch_list: bool = True, resume: bool = False) -> None:
        self.clock = ManualClock()
        self.gate = Gate(self.clock, random.Random(1))
        self.sources = [FakeSource(self.clock) for _ in range(RESOURCES)]
        for source in self.sources:
            source.create(pod("a"))
            source.create(pod("b"))
        self.settings = ReflectorSettings(use_watch_list=watch_list)
        self.drivers = [
            Driver(
                source,
                self.settings,
                random.Random(number),
                resume=str(source.version) if resume else None,
                content=dict(source.objects) if resume else None,
                gate=self.gate,
            )
            for number, source in enumerate(self.sources)
        ]

    def fail(self, failure: SourceFailure) -> None:
        for source in self.sources:
            source.refuse(failure, times=1_000_000)

    def cut(self) -> None:
        for source in self.sources:
            for watch in list(source.watches):
                watch.cut(statuses.reset())

    def forgive(self) -> None:
        for source in self.sources:
            source.forgive()

    def run(self, seconds: float) -> None:
        end = self.clock() + seconds
        while True:
            while any(driver.due() for driver in self.drivers):
                pass
            now = self.clock()
            if now >= end:
                return
            self.clock.advance(min(end, *(driver.next_time() for driver in self.drivers)) - now)

    def requests(self) -> int:
        return sum(len(driver.requests) + len(driver.probes) for driver in self.drivers)

    def equal(self) -> bool:
        return all(
            driver.content == source.objects and driver.state == states.SYNCED
            for driver, source in zip(self.drivers, self.sources, strict=True)
        )


@pytest.mark.parametrize(
    "failure",
    [statuses.refused(), statuses.reset(), statuses.http(503, "Unavailable")],
    ids=lambda failure: failure.message,
)
@pytest.mark.parametrize("outage", [3.0, 150.0, 3600.0])
def test_all_are_back_within_seconds_of_the_server(failure: SourceFailure, outage: float) -> None:
    fleet = Fleet()
    fleet.run(100.0)
    fleet.fail(failure)
    fleet.cut()
    fleet.run(outage)
    for source in fleet.sources:
        source.create(pod("c"))
    assert not fleet.equal()

    before = fleet.requests()
    fleet.forgive()
    fleet.run(BACK_SECONDS)

    assert fleet.equal()
    assert fleet.requests() - before <= RESOURCES + BACK_REQUESTS


def test_one_probe_at_a_time_is_sent_to_a_server_that_is_down() -> None:
    fleet = Fleet()
    fleet.run(100.0)
    fleet.fail(statuses.refused())
    fleet.cut()
    before = fleet.requests()

    fleet.run(600.0)

    assert 600 / 1.5 - 2 <= fleet.requests() - before <= 600 / INTERVALS[SERVER]
    senders = [driver for driver in fleet.drivers if driver.probes]
    assert len(senders) > 1  # the turn goes round


@pytest.mark.parametrize("back", [0, 11], ids=["wiped", "restored"])
def test_a_server_that_lost_its_past_is_listed_by_one_request_each(back: int) -> None:
    fleet = Fleet()
    fleet.run(100.0)
    fleet.fail(statuses.refused())
    fleet.cut()
    fleet.run(30.0)
    for source in fleet.sources:
        source.history = [change for change in source.history if change.version <= back]
        source.objects = {change.key: change.raw for change in source.history}
        source.version = max(back, 1)
        source.forget()

    before = fleet.requests()
    fleet.forgive()
    fleet.run(BACK_SECONDS)

    assert fleet.equal()
    assert all(driver.machine.counts.rewinds == 1 for driver in fleet.drivers)
    assert fleet.requests() - before <= RESOURCES + BACK_REQUESTS


def test_a_state_that_was_taken_over_is_ready_after_one_probe_for_all() -> None:
    fleet = Fleet(resume=True)

    fleet.run(0.0)

    assert fleet.equal()
    assert RESOURCES + 1 == fleet.requests()


def test_an_identity_that_is_accepted_again_lets_all_go_on() -> None:
    fleet = Fleet()
    fleet.run(100.0)
    fleet.fail(statuses.http(401, "Unauthorized"))
    fleet.cut()
    fleet.run(150.0)
    before = fleet.requests()
    fleet.run(100.0)
    assert fleet.requests() - before <= 100.0 / INTERVALS[ACCESS]

    fleet.forgive()
    fleet.run(2 * INTERVALS[ACCESS])

    assert fleet.equal()


def test_one_resource_that_always_fails_does_not_stop_the_others() -> None:
    fleet = Fleet()
    fleet.run(100.0)
    bad = fleet.sources[0]
    fleet.fail(statuses.refused())
    fleet.cut()
    fleet.run(20.0)

    fleet.forgive()
    bad.refuse(statuses.http(503, "Unavailable"), times=1_000_000)
    fleet.run(10.0)

    assert all(driver.state == states.SYNCED for driver in fleet.drivers[1:])
    assert states.RETRYING == fleet.drivers[0].state


def test_resources_that_stay_broken_do_not_keep_a_healthy_one_waiting() -> None:
    """GATE5: of all but one resource, probes fail as well; the other needs a probe of its own."""
    fleet = Fleet()
    fleet.run(1.0)
    for source in fleet.sources[:-1]:
        source.refuse(statuses.http(503, "Unavailable"), times=1_000_000)
        for watch in list(source.watches):
            watch.cut(statuses.reset())
    fleet.run(2 * RESOURCES * INTERVALS[SERVER])  # a first probe of each has failed
    healthy = fleet.drivers[-1]
    cut = fleet.clock()
    for watch in list(fleet.sources[-1].watches):
        watch.cut(statuses.reset())
    fleet.run(10 * INTERVALS[SERVER])

    assert states.SYNCED == healthy.state
    assert healthy.contacts[-1] > cut


@pytest.mark.parametrize("code", [403, 404])
def test_refused_resources_leave_the_others_alone(code: int) -> None:
    """GATE2: all but one are refused for good; that one is back after the outage as ever."""
    fleet = Fleet()
    fleet.run(1.0)
    fleet.fail(statuses.refused())
    fleet.cut()
    fleet.run(30.0)
    fleet.forgive()
    for source in fleet.sources[:-1]:
        source.refuse(statuses.http(code, "Refused"), times=1_000_000)
    fleet.run(BACK_SECONDS)

    assert states.SYNCED == fleet.drivers[-1].state


def test_rights_that_come_back_are_found_by_their_own_feed() -> None:
    """Fifty resources are forbidden; one gets its rights: it need not wait for the other 49."""
    fleet = Fleet()
    fleet.run(100.0)
    for source in fleet.sources:
        source.refuse(statuses.http(403, "Forbidden"), times=1_000_000)
    fleet.cut()
    fleet.run(600.0)
    before = fleet.requests()
    fleet.run(300.0)
    # a pass is a watch-list and, as that is refused, a list
    assert fleet.requests() - before <= 2 * RESOURCES * 300 / 20

    fleet.sources[7].forgive()
    fleet.run(30.0)

    assert states.SYNCED == fleet.drivers[7].state
    assert all(driver.state != states.SYNCED for driver in fleet.drivers[:7])


# ---- the gate by itself --------------------------------------------------------------------------


def test_an_answer_from_before_the_wait_is_not_used() -> None:
    """GATE1."""
    clock = ManualClock()
    gate = Gate(clock)
    first = gate.join(SERVER, 0.0)
    assert Turn(None) == gate.ask(first)
    began = clock()
    clock.advance(1.0)
    late = gate.join(SERVER, 0.0)
    assert gate.ask(late) is None  # one probe at a time
    gate.answered(SERVER, began, "7")

    assert Turn("7") == gate.ask(first)
    assert Turn(None) == gate.ask(late)


def test_a_probe_that_hangs_does_not_keep_the_next_one_back() -> None:
    """GATE2."""
    clock = ManualClock()
    gate = Gate(clock)
    assert Turn(None) == gate.ask(gate.join(SERVER, 0.0))
    other = gate.join(SERVER, 0.0)
    assert gate.ask(other) is None
    assert clock() + PATIENCE == gate.due(other)

    clock.advance(PATIENCE)

    assert Turn(None) == gate.ask(other)


def test_its_own_wait_comes_first_and_causes_are_kept_apart() -> None:
    """GATE3."""
    clock = ManualClock()
    gate = Gate(clock)
    waiter, other = gate.join(SERVER, 9.0), gate.join(ACCESS, 0.0)
    gate.answered(SERVER, clock(), "7")

    assert gate.ask(waiter) is None
    assert clock() + 9.0 == gate.due(waiter)
    assert Turn(None) == gate.ask(other)
    clock.advance(9.0)
    assert Turn("7") == gate.ask(waiter)


def test_an_answer_wakes_threads_that_wait_and_stopping_too() -> None:
    """GATE4."""
    gate, stop = Gate(), threading.Event()
    began = 0.0
    found: list[str | None] = []
    assert gate.wait(SERVER, 0.0, stop) is None  # ours to probe
    waiting = [
        threading.Thread(target=lambda: found.append(gate.wait(SERVER, 0.0, stop)))
        for _ in range(3)
    ]
    stuck = threading.Thread(target=lambda: found.append(gate.wait(ACCESS, 1e6, stop)))
    for thread in (*waiting, stuck):
        thread.start()
    began = float("inf")
    gate.answered(SERVER, began, "7")
    for thread in waiting:
        thread.join(30.0)
    assert ["7"] * 3 == found

    stop.set()
    gate.wake()
    stuck.join(30.0)
    assert not stuck.is_alive()
