"""Invariant tested: the bar of a first list moves by small steps, and keeps its width."""

from __future__ import annotations

import io
import itertools
import re

import pytest

import shmcache
from shmcache.engine import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_moves_by_small_steps_and_keeps_its_width(
    cache: shmcache.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(progress, "DRAW_SECONDS", 0.0)
    out, status = Terminal(), cache["pods"].status
    with progress.Progress(out) as shown:
        for step in range(200):
            status.counters["bytes"] = step << 16
            shown.show("pods", status)

    bars = re.findall(r"pods: listing \[([^]]*)\]", out.getvalue())
    assert 200 == len(bars)
    assert {progress.WIDTH} == set(map(len, bars))
    places = [bar.index("━━━━") for bar in bars]
    assert {0, progress.WIDTH - 4} <= {*places}
    assert all(abs(one - other) <= 1 for one, other in itertools.pairwise(places))
