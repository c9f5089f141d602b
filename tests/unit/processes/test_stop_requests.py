"""Invariant tested: requests to end that come together are one; a later one insists."""

from __future__ import annotations

import pytest

from shmcache.processes.stop_requests import AGAIN_SECONDS, StopRequests

JUST_BEFORE = AGAIN_SECONDS * 0.999


@pytest.mark.parametrize(
    ("moments", "insists"),
    [
        ([5.0], [False]),
        ([5.0, 5.0, 5.0], [False, False, False]),
        ([5.0, 5.0 + JUST_BEFORE], [False, False]),
        ([5.0, 5.0 + AGAIN_SECONDS], [False, True]),
        ([0.0, 0.5, JUST_BEFORE, AGAIN_SECONDS], [False, False, False, True]),
    ],
)
def test_only_a_later_request_insists(moments: list[float], insists: list[bool]) -> None:
    clock = iter(moments)
    requests = StopRequests(clock=lambda: next(clock))

    assert insists == [requests.insists() for _ in moments]
