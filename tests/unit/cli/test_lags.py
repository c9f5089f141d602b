"""Invariant tested: lags of any number of processes add up, and quantiles are exact to a bucket."""

from __future__ import annotations

import random

import pytest

from shmcache.cli.demo.lags import CELL, EDGES, STEPS, Lags


def of(milliseconds: list[float]) -> Lags:
    lags = Lags()
    for one in milliseconds:
        lags.add(int(one * 1e6))
    return lags


@pytest.mark.parametrize("part", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_a_quantile_is_exact_to_a_bucket(rng: random.Random, part: float) -> None:
    values = sorted(rng.lognormvariate(0, 2) + 0.001 for _ in range(1000))
    exact = values[max(0, int(part * 1000) - 1)]

    assert exact <= of(values).quantile(part) * 1.000001
    assert of(values).quantile(part) <= exact * 2 ** (1 / STEPS) * 1.000001


def test_lags_of_processes_add_up(rng: random.Random) -> None:
    values = [rng.uniform(0.01, 200) for _ in range(500)]
    parts = Lags()
    for part in (of(values[:100]), of(values[100:])):
        parts.merge(part.counts)

    assert of(values).counts == parts.counts
    assert 500 == len(parts)


def test_each_lag_is_in_one_column() -> None:
    lags = of([0.1, 0.4, 0.9, 3, 3, 1000])

    assert 6 == sum(lags.columns())
    assert [2, 1, 0, 2, 0, 0, 0, 0, 1] == lags.columns()


def test_the_picture_fits_a_terminal_of_80_columns() -> None:
    for lags in (Lags(), of([0.1] * 10_000 + [3, 500])):
        lines = lags.picture()
        width = CELL * (len(EDGES) + 1)
        assert [width, width + len(" ms"), width] == [len(line) for line in lines]
        assert max(map(len, lines)) <= 80


def test_without_events_nothing_is_invented() -> None:
    assert 0.0 == Lags().quantile(0.5)
    assert not Lags().picture()[0].strip()


def test_the_titles_of_the_picture_are_apart() -> None:
    title = Lags().picture()[1]

    assert title.endswith("≤ 100   > 100 ms")
    assert "100>" not in title
