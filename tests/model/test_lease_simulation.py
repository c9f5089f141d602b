"""Invariants tested: days of upgrades, kills, stops and partitions, and never two leaders (ELECT1
to ELECT6, TIMES1), nor long without one.

DAYS= lets it run for so many simulated days; SEED= repeats one.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from lease_world import TIMEOUT, LeaseMachine, LeaseWorld

import shmcache
from shmcache.lease.election import Election

DAYS = float(os.environ.get("DAYS") or 0.2)
DAY = 86_400.0
SETTINGS = shmcache.LeaseSettings("demo")
SLOWEST, FASTEST = 0.82, 1.22
"""Rates of clocks: their ratio is just below duration / renew_deadline."""


class Candidate:
    """A process on a machine of its own."""

    def __init__(self, world: Leaders, number: int) -> None:
        self.world = world
        self.machine = LeaseMachine(world.net, world.rng.uniform(SLOWEST, FASTEST))
        self.election = Election(
            SETTINGS,
            f"candidate-{number}",
            "default",
            Random(world.rng.random()),
            clock=self.machine.clock,
            wall=self.machine.wall,
        )
        self.draining = False
        self.released = False
        run = self.election.run()
        self.machine.drive("demo", run, lambda: self.draining, self._ended, self._stepped)

    @property
    def leads(self) -> bool:
        """Whether it may act at this moment, by its own clock."""
        return not self.machine.dead and self.election.leads

    def drain(self) -> None:
        """SIGTERM: the work ends, then the Lease is released, then the process ends."""
        self.draining = True

    def _ended(self, _: bool) -> None:
        work = self.world.rng.uniform(0.0, 5.0)
        self.machine.later(work, self._release)

    def _release(self) -> None:
        steps = self.election.release(patience=SETTINGS.renew_deadline)
        self.machine.drive("demo", steps, ended=self._gone)

    def _gone(self, _: bool) -> None:
        self.machine.dead = True
        self.released = True

    def _stepped(self) -> None:
        self.world.look()


class Leaders:
    """The candidates of one Lease, and what is seen of them."""

    def __init__(self, rng: Random, replicas: int = 3) -> None:
        self.rng = rng
        self.net = LeaseWorld(rng)
        self.started = 0
        self.candidates: list[Candidate] = []
        self.terms = 0
        self.tokens: list[int] = []
        self.leader: Candidate | None = None
        self.gaps: list[float] = []
        self._since = 0.0
        self._led_until = 0.0
        for _ in range(replicas):
            self.start()

    def start(self) -> Candidate:
        self.started += 1
        self.candidates.append(Candidate(self, self.started))
        return self.candidates[-1]

    def look(self) -> None:
        """At most one leads, and the tokens of leaders rise."""
        leads = [one for one in self.candidates if one.leads]
        assert len(leads) <= 1, f"two leaders at {self.net.now:.1f} s"
        if leads:
            (one,) = leads
            if one is not self.leader or one.election.token != self.tokens[-1]:
                assert not self.tokens or one.election.token > self.tokens[-1]
                self.tokens.append(one.election.token)
                self.gaps.append(self.net.now - self._led_until)
                self.leader = one
            left = (one.election.until - one.machine.clock()) / one.machine.rate
            self._led_until = self.net.now + left

    def drain(self, old: Candidate) -> None:
        """Drains it, or another one if it was killed, as that starts again: their number stays."""
        living = self.living
        if living:
            (old if old in living else self.rng.choice(living)).drain()

    def sweep(self) -> None:
        """Forgets processes that have ended."""
        self.candidates = [one for one in self.candidates if not one.machine.dead]

    @property
    def living(self) -> list[Candidate]:
        return [one for one in self.candidates if not one.machine.dead and not one.draining]


def upgrade(world: Leaders) -> None:
    """A rolling upgrade: each replica is drained when its successor has started."""
    for number, old in enumerate(world.living):

        def replace(old: Candidate = old) -> None:
            if old in world.living:
                world.start()
                world.net.at(world.rng.uniform(1.0, 20.0), lambda: world.drain(old))

        world.net.at(number * 30.0, replace)
    world.net.at(world.rng.uniform(600.0, 3600.0), lambda: upgrade(world))


def trouble(world: Leaders) -> None:
    """Something goes wrong with somebody, or with the server."""
    world.sweep()
    rng, living = world.rng, world.living
    if not living:
        world.net.at(1.0, lambda: trouble(world))
        return
    one = rng.choice(living)
    if world.leader in living and rng.random() < 0.5:
        one = world.leader
    kind = rng.randrange(5)
    now = world.net.now
    if kind == 0:
        one.machine.dead = True
        world.net.at(rng.uniform(0.1, 30.0), world.start)
    elif kind == 1:
        one.machine.stopped_until = now + rng.uniform(0.1, 60.0)
    elif kind == 2:
        one.machine.cut_until = now + rng.uniform(0.1, 60.0)
    elif kind == 3:
        world.net.down = True

        def up() -> None:
            world.net.down = False

        world.net.at(rng.uniform(0.1, 40.0), up)
    else:
        one.machine.stopped_until = one.machine.cut_until = now + rng.uniform(5.0, 20.0)
    world.net.at(rng.expovariate(1 / 120.0), lambda: trouble(world))


def test_days_of_trouble_never_see_two_leaders(rng: Random) -> None:
    world = Leaders(rng)
    world.net.at(60.0, lambda: trouble(world))
    world.net.at(300.0, lambda: upgrade(world))
    world.net.run(DAYS * DAY)
    print(  # noqa: T201 - for people who let it run for long
        f"{DAYS} days: {len(world.tokens)} terms of {world.started} processes, "
        f"{world.net.requests} requests"
    )
    assert len(world.tokens) > DAYS * 20
    assert len(world.living) <= 6, "there were three"


def test_upgrades_without_trouble_leave_no_long_gap(rng: Random) -> None:
    """A drained leader releases: the next one needs no expiry, but its own next attempt."""
    world = Leaders(rng)
    world.net.at(60.0, lambda: upgrade(world))
    world.net.run(DAYS * DAY)
    limit = (SETTINGS.duration + 2.2 * SETTINGS.retry_period) / SLOWEST + 2 * TIMEOUT + 6.0
    assert max(world.gaps) < limit
    assert len(world.gaps) > 3


def test_a_killed_leader_is_followed_in_time(rng: Random) -> None:
    for _ in range(20):
        world = Leaders(rng)
        world.net.run(60.0)
        assert world.leader is not None
        world.leader.machine.dead = True
        killed, before = world.net.now, len(world.tokens)
        limit = (SETTINGS.duration + 2.2 * SETTINGS.retry_period) / SLOWEST + 4 * TIMEOUT
        world.net.run(killed + limit)
        assert len(world.tokens) > before


@pytest.mark.parametrize("mutant", ["late", "foreign", "equal", "blind"])
def test_the_simulation_finds_planted_mistakes(
    rng: Random, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    """ELECT1, ELECT2, ELECT4 and ELECT3 broken, one at a time."""
    plant(mutant, monkeypatch)
    with pytest.raises(AssertionError):
        for _ in range(40):
            world = Leaders(rng)
            world.net.at(30.0, lambda world=world: trouble(world))  # type: ignore[misc]
            world.net.run(0.2 * DAY)


def plant(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from shmcache.lease import election
    from shmcache.lease.record import LeaseRecord

    if mutant == "late":
        hold = Election._hold

        def late(self: Election, until: float) -> bool:
            del until
            return hold(self, self._clock() + 3 * self.settings.renew_deadline)

        monkeypatch.setattr(Election, "_hold", late)
    elif mutant == "foreign":
        monkeypatch.setattr(Election, "expires", property(lambda self: self._seen_at))
    elif mutant == "equal":
        monkeypatch.setattr(LeaseRecord, "at", lambda self, _: self)
        monkeypatch.setattr(election, "micro_time", lambda _: "2000-01-01T00:00:00.000000Z")
    else:
        monkeypatch.setattr(
            LeaseWorld, "execute", lambda self, name, request: blind(self, name, request)
        )


def blind(world: LeaseWorld, name: str, request: object) -> object:
    """A server that does not compare versions."""
    from shmcache.lease.election import LeaseReply, LeaseRequest, ReplyKind, Verb

    assert isinstance(request, LeaseRequest)
    found = world.objects.get(name)
    if request.verb is Verb.READ:
        return LeaseReply(ReplyKind.DONE, found) if found else LeaseReply(ReplyKind.MISSING)
    return world._store(name, request.body)
