"""Invariant tested: whichever process is killed or stopped, and wherever, nothing is torn, stale,
lost or leaked (G1, G2, G4, G10, G40); the long campaign is `make kills`."""

from __future__ import annotations

import random

import pytest
from kills import Campaign

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.mark.slow
def test_a_short_campaign_of_kills(name: str, rng: random.Random) -> None:
    campaign = Campaign(name, rng.getrandbits(32))
    outcome = campaign.run(60)
    print(outcome, campaign.counts())  # noqa: T201
    assert outcome.readers_killed > 0
    assert outcome.readers_stopped > 0
