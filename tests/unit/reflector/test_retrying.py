"""Invariant tested: how often and how long the reflector tries, from the first request on."""

from __future__ import annotations

import random
from itertools import takewhile

import pytest

from shmcache.reflector.backoff import BackoffSettings
from shmcache.reflector.retrying import (
    ACCESS,
    QUIET_SPREAD,
    QUIET_WATCH,
    SERVER,
    Patience,
    ReflectorSettings,
    cause_of,
)
from shmcache.source.base import FailureKind, SourceFailure
from shmcache.testing import statuses


def patience(**settings: float) -> Patience:
    return Patience(ReflectorSettings(**settings), random.Random(1))  # type: ignore[arg-type]


def test_the_very_first_request_is_repeated_as_often_as_any_later_one() -> None:
    made = patience(request_retries=4)
    for _ in range(2):
        assert 4 == len(list(takewhile(bool, (made.once_more() for _ in range(20)))))
        made.renew()


def test_a_quiet_watch_ends_before_readers_call_it_silent() -> None:
    """CONTACT5; a bookmark makes watches long again, and a watch-list is never short."""
    made = patience()
    made.quiet = True
    lasting = {made.lasting() for _ in range(500)}
    assert set(range(QUIET_WATCH, QUIET_WATCH + QUIET_SPREAD)) == lasting
    assert max(lasting) < 90.0 < made.silence
    assert 300 <= made.lasting(stream=True)

    made.quiet = False
    assert 300 <= made.lasting()
    assert 90.0 == made.silence


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (statuses.refused(), SERVER),
        (statuses.reset(), SERVER),
        (statuses.hung_up(), SERVER),
        (SourceFailure(FailureKind.SILENT, "no byte"), SERVER),
        (statuses.http(500, "InternalError"), SERVER),
        (statuses.http(503, "ServiceUnavailable"), SERVER),
        (statuses.http(599, "Unknown"), SERVER),
        (statuses.http(401, "Unauthorized"), ACCESS),
        (statuses.http(403, "Forbidden"), ""),
        (statuses.http(400, "BadRequest"), ""),
        (statuses.http(404, "NotFound"), ""),
        (statuses.http(429, "TooManyRequests"), ""),
        (statuses.http(499, "Odd"), ""),
        (statuses.http(600, "Odd"), ""),
        (statuses.expired(), ""),
        (statuses.too_large(9, 1), ""),
        (SourceFailure(FailureKind.GARBAGE, "no list"), ""),
        (SourceFailure(FailureKind.CANCELLED, "ours"), ""),
    ],
    ids=str,
)
def test_only_failures_of_the_whole_server_have_a_cause(failure: SourceFailure, cause: str) -> None:
    assert cause == cause_of(failure)


def test_a_resource_that_is_denied_asks_at_least_every_thirty_seconds() -> None:
    """By a backoff of its own, which begins again once other failures have come for a minute."""
    made, denied, now = patience(), statuses.http(403, "Forbidden"), 0.0
    waits = []
    for _ in range(40):
        waits.append(made.delay(now, denied))
        now += waits[-1]

    assert 0.8 <= waits[0] <= 1.2
    assert all(20.0 <= wait <= 30.0 for wait in waits[8:])
    assert made.delay(now, statuses.http(404, "NotFound")) <= 1.6  # others are not affected
    assert made.delay(now + 61.0, denied) <= 1.2


def test_a_watch_that_broke_has_a_backoff_of_its_own() -> None:
    """A member of etcd died: the search for the next one is cheap. Others wait as before."""
    broken = BackoffSettings(initial=0.1, cap=0.4, jitter=0.0, reset_after=5.0)
    usual = BackoffSettings(initial=3.0, cap=9.0, jitter=0.0)
    own = Patience(ReflectorSettings(backoff=usual, broken=broken), random.Random(1))
    plain = Patience(ReflectorSettings(backoff=usual), random.Random(1))

    assert [own.broken_delay(n, None) for n in (0, 1, 2, 3, 9)] == [0.1, 0.2, 0.4, 0.4, 0.1]
    assert own.delay(10, None) == 3.0
    assert [plain.broken_delay(0, None), plain.delay(0, None)] == [3.0, 6.0]
