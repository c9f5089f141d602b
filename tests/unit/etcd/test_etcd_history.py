"""Invariants tested: ORDERED1, UNIQUE1, RELIABLE1, ATOMIC1, RESUMABLE1, BOOKMARK1 by the checker.

Each violation that is planted into a good history is found, under its name.
"""

from __future__ import annotations

import pytest
from etcd_history import Change, Ledger, Sample, problems

W, G = "widgets", "gadgets"


def ledger() -> Ledger:
    found = Ledger()
    found.wrote(2, {(W, "tokens/1"): True})
    found.wrote(3, {(W, "a"): True})
    found.wrote(4, {(W, "tokens/1"): False, (G, "tokens/1"): True})
    found.wrote(6, {(W, "a"): True, (G, "b"): True})
    return found


CHANGES = [
    Change(W, "ADDED", "tokens/1", 2),
    Change(W, "ADDED", "a", 3),
    Change(W, "DELETED", "tokens/1", 4),
    Change(G, "ADDED", "tokens/1", 4),
    Change(W, "MODIFIED", "a", 6),
    Change(G, "ADDED", "b", 6),
]
SAMPLES = [
    Sample({W: 3, G: 2}, {W: {"tokens/1": 2, "a": 3}, G: {}}),
    Sample({W: 6, G: 5}, {W: {"a": 6}, G: {"tokens/1": 4}}),
    Sample({W: 6, G: 6}, {W: {"a": 6}, G: {"tokens/1": 4, "b": 6}}),
]
TWICE = {W: {"a": 3, "tokens/1": 2}, G: {"tokens/1": 4}}


def found(changes: list[Change], samples: list[Sample], gaps: list[tuple[int, int]]) -> set[str]:
    texts = problems(ledger(), changes, samples, gaps, (1, 6))
    return {text.partition(":")[0] for text in texts}


def test_a_good_history_has_no_problem() -> None:
    assert found(CHANGES, SAMPLES, []) == set()


@pytest.mark.parametrize(
    ("changes", "samples", "name"),
    [
        ([CHANGES[1], CHANGES[0], *CHANGES[2:]], SAMPLES, "ordered"),
        ([*CHANGES, CHANGES[-1]], SAMPLES, "unique"),
        (CHANGES[:1] + CHANGES[2:], SAMPLES, "reliable"),
        ([*CHANGES, Change(G, "ADDED", "c", 7)], SAMPLES, "reliable"),
        (CHANGES, [Sample({W: 3, G: 3}, {W: {"a": 3}, G: {}})], "bookmarkable"),
        (CHANGES, [Sample({W: 4, G: 4}, TWICE)], "atomic"),
    ],
)
def test_a_planted_violation_is_found(
    changes: list[Change], samples: list[Sample], name: str
) -> None:
    assert name in found(changes, samples, [])


def test_a_gap_excuses_what_a_relist_stepped_over_and_nothing_else() -> None:
    assert found(CHANGES[:1] + CHANGES[2:], [], [(2, 3)]) == set()
    assert found(CHANGES[:1] + CHANGES[2:], [], [(3, 4)]) == {"reliable"}


def test_a_lost_answer_excuses_its_keys() -> None:
    doubtful = ledger()
    doubtful.lost([(G, "c")])
    changes = [*CHANGES, Change(G, "ADDED", "c", 7)]

    assert problems(doubtful, changes, [], [], (1, 7)) == []
