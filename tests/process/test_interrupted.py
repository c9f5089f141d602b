"""Invariant tested: wherever a signal's handler raises inside the writer, the next call works: no
batch stays open, no lock is kept, and what was published is whole (G8)."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator

import pytest

import shmcache


class Alarm(Exception):
    """Raised by the handler, once each time it is armed."""


armed = [False]


def ring(*_: object) -> None:
    if armed[0]:
        armed[0] = False
        raise Alarm


@pytest.fixture
def alarms() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def work(writer: shmcache.Writer, number: int) -> None:
    """What can be interrupted: both ways of putting, a nested batch, a deletion."""
    with writer.batch():
        for name in ("a", "b"):
            writer.put("pods", name, {"n": number, "pad": [number] * 50})
    writer.put("pods", "single", {"n": number})
    writer.delete("pods", "single")


@pytest.mark.slow
@pytest.mark.usefixtures("alarms")
def test_an_exception_at_any_moment_leaves_nothing_stuck(name: str, rng: random.Random) -> None:
    interrupted = 0
    with shmcache.Writer(name, ["pods"]) as writer, shmcache.attach(name) as cache:
        for number in range(600):
            try:
                armed[0] = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(5e-6, 3e-4))
                work(writer, number)
                armed[0] = False
            except Alarm:
                interrupted += 1

            with cache.snapshot() as at:  # a and b are of one batch, always
                assert len({at["pods"][key]["n"] for key in ("a", "b") if key in at["pods"]}) <= 1
            generation = cache.latest
            writer.put("pods", "after", {"n": number})
            assert cache.latest == generation + 1
            assert number == cache["pods"]["after"]["n"]
        writer.check()
    assert interrupted > 20, "hardly anything was interrupted"
