"""A world of Leases under an injected clock: a server, machines, their clocks, and what goes wrong.

The code of election.py (and sharing.py) runs unchanged; only time and the network are made here. A
machine's clock is off by any amount and runs at its own rate; its wall clock jumps. A request
takes its time, may be lost on its way or on its way back, and may arrive long after its sender
gave it up. A machine may be stopped, killed, cut off from the server, drained.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import orjson

from shmcache.lease.election import (
    RESTED,
    LeaseReply,
    LeaseRequest,
    ReplyKind,
    Rest,
    Verb,
)
from shmcache.lease.record import version_of

TIMEOUT = 4.0
"""By the true time; a client's own is of no matter here."""


def _copy(obj: Any) -> Any:
    return orjson.loads(orjson.dumps(obj))


class LeaseWorld:
    """True time, and what happens in it."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 0.0
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 1
        self.down = False
        self.requests = 0
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def at(self, delay: float, act: Callable[[], object]) -> None:
        """It happens after so many true seconds."""
        heapq.heappush(self._queue, (self.now + delay, next(self._numbers), act))

    def run(self, until: float) -> None:
        """Lets time pass."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, act = heapq.heappop(self._queue)
            act()
        self.now = until

    # ---- the server ------------------------------------------------------------------------------

    def execute(self, name: str, request: LeaseRequest) -> LeaseReply:
        """One request, as the API server's storage does it."""
        self.requests += 1
        found = self.objects.get(name)
        if request.verb is Verb.CREATE:
            taken = found is not None
            return LeaseReply(ReplyKind.CONFLICT) if taken else self._store(name, request.body)
        if found is None:
            return LeaseReply(ReplyKind.MISSING)
        if request.verb is Verb.READ:
            return LeaseReply(ReplyKind.DONE, _copy(found))
        body = request.body or {}
        wanted = body.get("preconditions", body.get("metadata", {})).get("resourceVersion")
        if wanted != version_of(found):
            return LeaseReply(ReplyKind.CONFLICT)
        if request.verb is Verb.DELETE:
            self.version += 1
            return LeaseReply(ReplyKind.DONE, self.objects.pop(name))
        return self._store(name, request.body)

    def _store(self, name: str, body: dict[str, Any] | None) -> LeaseReply:
        stored = _copy(body or {})
        before = self.objects.get(name)
        if before is not None and stored == before:
            return LeaseReply(ReplyKind.DONE, stored)  # no change, no version
        self.version += 1
        stored.setdefault("metadata", {})["resourceVersion"] = str(self.version)
        self.objects[name] = stored
        return LeaseReply(ReplyKind.DONE, _copy(stored))

    def list(self, label: str) -> list[dict[str, Any]]:
        """The objects of a label's value, consistently."""
        self.requests += 1
        return [
            _copy(one)
            for one in self.objects.values()
            if label in (one["metadata"].get("labels") or {}).values()
        ]


class LeaseMachine:
    """A machine: its clocks, and whether it runs and reaches the server."""

    loses = 0.003
    """This share of requests, and of answers, is lost."""
    strays = 0.5
    """This share of lost requests comes to the server long after."""

    def __init__(self, world: LeaseWorld, rate: float) -> None:
        self.world = world
        self.rate = rate
        self._offset = world.rng.uniform(0.0, 1e6)
        self._wall = world.rng.uniform(-3600.0, 3600.0) + 1.7e9
        self.stopped_until = 0.0
        self.cut_until = 0.0
        self.dead = False

    def clock(self) -> float:
        """Its own, of no relation to another's."""
        return self._offset + self.world.now * self.rate

    def wall(self) -> float:
        """It jumps, and goes back."""
        if self.world.rng.random() < 0.001:
            self._wall += self.world.rng.uniform(-3600.0, 3600.0)
        return max(0.0, self._wall + self.world.now * self.rate)

    def later(self, delay: float, act: Callable[[], object]) -> None:
        """It does this after so many true seconds, unless it is dead; if stopped, afterwards."""

        def do() -> None:
            if self.dead:
                return
            if self.stopped_until > self.world.now:
                self.later(self.stopped_until - self.world.now, act)
            else:
                act()

        self.world.at(delay, do)

    def send(
        self, name: str, request: LeaseRequest, receive: Callable[[LeaseReply], object]
    ) -> None:
        """A request and its reply; FAILED after TIMEOUT, whatever happens to it then."""
        self.call(lambda: self.world.execute(name, request), receive, LeaseReply(ReplyKind.FAILED))

    def call(
        self, execute: Callable[[], Any], receive: Callable[[Any], object], failed: Any
    ) -> None:
        """Something that the server does, and its answer."""
        rng, answered = self.world.rng, [False]

        def answer(reply: Any) -> None:
            if not answered[0]:
                answered[0] = True
                receive(reply)

        def arrive() -> None:
            if not self.world.down:
                reply = execute()
                if rng.random() >= self.loses:
                    self.later(self._latency(), lambda: answer(reply))

        self.later(TIMEOUT, lambda: answer(failed))
        if self.cut_until > self.world.now or rng.random() < self.loses:
            if rng.random() < self.strays:
                self.world.at(rng.uniform(0.0, 60.0), arrive)
            return
        self.world.at(self._latency(), arrive)

    def _latency(self) -> float:
        rng = self.world.rng
        return rng.expovariate(100.0) if rng.random() < 0.99 else rng.uniform(0.0, 6.0)

    def drive(
        self,
        name: str,
        steps: Any,
        stop: Callable[[], bool] = lambda: False,
        ended: Callable[[bool], object] = lambda _: None,
        on_step: Callable[[], object] = lambda: None,
    ) -> None:
        """Runs the steps of an election, as elector.py does in a thread."""

        def go(reply: LeaseReply | None) -> None:
            if stop():
                steps.close()
                ended(False)
                return
            try:
                action = steps.send(reply)
            except StopIteration as done:
                on_step()
                ended(bool(done.value))
                return
            on_step()
            if isinstance(action, Rest):
                self.later(action.seconds / self.rate, lambda: go(RESTED))
            else:
                self.send(name, action, go)

        self.later(0.0, lambda: go(None))
