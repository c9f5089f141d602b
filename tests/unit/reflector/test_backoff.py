"""Invariant tested: delays double up to the cap, are spread within the jitter, and start over only
after a quiet time.
"""

from __future__ import annotations

import random

import pytest

from shmcache.reflector.backoff import Backoff, BackoffSettings

EXACT = BackoffSettings(initial=0.010, cap=0.100, jitter=0.0)


def test_five_delays_of_10_ms_that_double_up_to_100_ms_are_250_ms(rng: random.Random) -> None:
    """client-go: NewReflectorWithCustomBackoff."""
    backoff = Backoff(EXACT, rng)

    assert 0.250 == pytest.approx(sum(backoff.next(0.0) for _ in range(5)))


def test_the_delays_are_those_of_client_go(rng: random.Random) -> None:
    """R-RF-02: 800 ms, doubling, at most 30 s; each in [d, 2d)."""
    backoff = Backoff(BackoffSettings(), rng)

    for least in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]:
        assert least <= backoff.next(0.0) < 2 * least


def test_the_jitter_reaches_both_ends() -> None:
    delays = [Backoff(BackoffSettings(), random.Random(n)).next(0.0) for n in range(500)]

    assert min(delays) < 0.82
    assert max(delays) > 1.58


@pytest.mark.parametrize(("quiet", "expected"), [(119.9, 0.080), (120.1, 0.010)])
def test_a_quiet_time_resets_the_delay_and_a_shorter_one_does_not(
    rng: random.Random, quiet: float, expected: float
) -> None:
    """R-RF-02: the quiet time counts from the last requested delay."""
    backoff = Backoff(EXACT, rng)
    now = 0.0
    for _ in range(3):
        backoff.next(now)
        now += 100.0

    assert expected == pytest.approx(backoff.next(200.0 + quiet))
