"""Invariant tested: the bar of a first list moves by small steps, keeps its width, and goes."""

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

    assert out.getvalue().endswith("\r\x1b[K"), "the last bar is still there"
    bars = re.findall(r"pods: listing \[([^]]*)\]", out.getvalue())
    assert 200 == len(bars)
    assert {progress.WIDTH} == set(map(len, bars))
    places = [bar.index("━━━━") for bar in bars]
    assert {0, progress.WIDTH - 4} <= {*places}
    assert all(abs(one - other) <= 1 for one, other in itertools.pairwise(places))


@pytest.mark.parametrize(("out", "delay"), [(io.StringIO(), 0.0), (Terminal(), 3600.0)])
def test_a_quick_list_and_a_file_get_no_bar(
    cache: shmcache.Cache, monkeypatch: pytest.MonkeyPatch, out: io.StringIO, delay: float
) -> None:
    monkeypatch.setattr(progress, "DELAY_SECONDS", delay)
    with progress.Progress(out) as shown:
        shown.show("pods", cache["pods"].status)

    assert "" == out.getvalue()
