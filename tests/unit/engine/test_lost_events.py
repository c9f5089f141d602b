"""Invariant tested: each event that a proxy leaves out of a watch is found by the next comparison,
and repaired without a list of everything: `make lost-events` in short.
"""

from __future__ import annotations

import os
import secrets

import lost_events
import pytest


def test_every_lost_event_is_found_and_repaired(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmcache.engine.engine.LOOK_SECONDS", 0.05)
    monkeypatch.setattr(lost_events, "PERIOD", 0.1)
    seed = int(os.environ.get("SEED") or secrets.randbits(32))
    found = None
    try:
        found = lost_events.run(60, 12, seed, name)
    finally:
        assert found is not None, f"SEED={seed}"
    assert 60 <= found.lost == found.repaired + found.late
