"""Invariant tested: a run of some benchmarks keeps the tables of others, and reports failures."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks import harness, run
from benchmarks.report import tables
from benchmarks.scenes import sides
from benchmarks.scenes.sides import Cost, Found

MIB = 1 << 20


def answer(question: str, *, quick: bool = False, met: bool | None = None) -> tables.Answer:
    row = harness.Row(question=question, ours="1 µs", peer="2 µs", ratio=0.5, met=met)
    return {
        "machine": {"cpu": "one", "cores": "2", "python": "3.11.7", "commit": "abc", "orjson": "3"},
        "quick": quick,
        "rows": [{name: getattr(row, name) for name in ("question", "ours", "peer", "met")}],
    }


def failure(reason: str) -> tables.Answer:
    return {**answer("none", quick=True), "rows": [], "date": "2026-01-01", "failed": reason}


@pytest.fixture
def kept(tmp_path: Path) -> tables.Kept:
    found = tables.Kept(tmp_path)
    found.merge("reads", answer("how long"), replace=False)
    found.merge("wake", answer("how soon", met=False), replace=False)
    return found


def text(kept: tables.Kept) -> str:
    places = ("reads", "wake", "ring", "missed", "machines")
    empty = "".join(f"# {place}\n<!-- {place} -->\n<!-- end of {place} -->\n" for place in places)
    made = tables.with_tables(empty, kept.results)
    assert made == tables.with_tables(made, kept.results)
    return made


def test_one_answer_leaves_the_others_as_they_were(kept: tables.Kept) -> None:
    tables.Kept(kept.place).merge("ring", answer("how many"), replace=False)
    kept.merge("reads", answer("how fast"), replace=False)

    assert ["reads", "ring", "wake"] == sorted(
        json.loads((kept.place / "results.json").read_text())
    )
    assert "how fast" in text(kept)
    assert "how long" not in text(kept)
    assert 2 == text(kept).count("how soon")  # in its table, and among those that missed
    assert "how many" in text(kept)


def test_a_quick_answer_replaces_no_full_one(kept: tables.Kept) -> None:
    assert not kept.merge("reads", answer("smaller", quick=True), replace=False)
    assert "smaller" not in text(kept)

    assert kept.merge("reads", answer("smaller", quick=True), replace=True)
    assert "A quick run of commit abc" in text(kept)


def test_a_failure_is_shown_above_older_results(kept: tables.Kept) -> None:
    kept.merge("reads", failure("ended with 1: no server"), replace=False)
    kept.merge("ring", failure("stopped after 20 s"), replace=False)

    assert "**Failed** in a quick run" in text(kept)
    assert "ended with 1: no server" in text(kept)
    assert "how long" in text(kept)
    assert "stopped after 20 s" in text(kept)

    kept.merge("reads", answer("how fast"), replace=False)
    assert "no server" not in text(kept)


@pytest.mark.parametrize(
    ("code", "seconds", "reason"),
    [
        ("pass", 60, ""),
        ("raise SystemExit('no redis here')", 60, "ended with 1: no redis here"),
        ("import time\ntime.sleep(600)", 0.1, "stopped after 0 s"),
    ],
)
def test_why_a_question_has_no_answer(code: str, seconds: float, reason: str) -> None:
    ran = run.Ran([sys.executable, "-c", f"print('hello', flush=True)\n{code}"], seconds)
    while not ran.ended():
        time.sleep(0.01)
    assert reason == ran.close()
    assert "stopped" in reason or ran.said == "hello"


def test_a_question_that_ends_without_an_answer_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.QUESTIONS, "__init__", (1, 1))
    asked = run.Asked("__init__", quick=True)
    while not asked.ran.ended():
        time.sleep(0.01)
    assert "ended without an answer" == asked.answer()["failed"]


def test_each_question_is_a_program() -> None:
    for question in run.QUESTIONS:
        file = harness.ROOT / "benchmarks" / "questions" / f"{question}.py"
        assert "harness.main(" in file.read_text(), question


class Pretended:
    """A question that ends at a later look; notes the questions that ran at the same time."""

    concurrent: ClassVar[list[set[str]]] = []
    now: ClassVar[list[Pretended]] = []

    def __init__(self, question: str, *, quick: bool) -> None:
        self.question, self.ran, self.looks = question, self, 0
        Pretended.now.append(self)
        Pretended.concurrent.append({each.question for each in Pretended.now})
        assert quick or len(Pretended.now) == 1

    def ended(self) -> bool:
        self.looks += 1
        return self.looks > len(self.question)

    def answer(self) -> dict[str, Any]:
        Pretended.now.remove(self)
        return {"question": self.question}

    def close(self) -> None:
        raise AssertionError("it was not asked to its end")


@pytest.mark.parametrize("quick", [False, True])
def test_questions_about_time_between_processes_run_alone(
    monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    Pretended.concurrent, Pretended.now = [], []
    monkeypatch.setattr(run, "Asked", Pretended)
    monkeypatch.setattr(run, "LOOK_S", 0)

    found = [question for question, _ in run._answers(list(run.QUESTIONS), quick=quick)]

    assert sorted(run.QUESTIONS) == sorted(found)
    assert quick or found == list(run.QUESTIONS)
    assert ({1, 2} if quick else {1}) == {len(each) for each in Pretended.concurrent}
    assert all(len(each) == 1 or each <= set(run.IN_PAIRS) for each in Pretended.concurrent)


def test_no_number_has_an_exponent() -> None:
    for power in range(-9, 16):
        for digits in (1, 1.5, 9.994, 9.9951, 9.9999):
            value = digits * 10.0**power
            for shown in (harness.show(value), harness.show_ns(value), harness.show_bytes(value)):
                assert "e" not in shown
    assert "1,000 MiB" == harness.show_bytes(1000 * MIB)
    assert "≤ 1/45 ×" == harness.at_most(1 / 45, 0.01)["must"]


class Growing:
    """A side whose workers take 100 MiB each."""

    def __init__(self) -> None:
        self.workers = 0
        self.took: list[float] = []

    def grow(self, more: int) -> None:
        self.workers += more
        self.took += [0.1] * more

    def cost(self) -> Cost:
        size = 100 * MIB * self.workers
        return Cost(workers=self.workers, net=size, gross=size, peak=size)


@pytest.mark.parametrize(
    ("limit", "reached", "stopped"),
    [(5_000, [1, 2, 4, 8, 16], ""), (900, [1, 2, 4, 8], "before 16"), (150, [1], "before 2")],
)
def test_a_side_ends_before_half_of_the_machine(
    limit: int, reached: list[int], stopped: str
) -> None:
    def scene(*_: Any) -> Any:
        side = Growing()
        return side, side.grow

    found = sides.grown(scene, Found("one", 1), "", [1, 2, 4, 8, 16], limit * MIB)

    assert reached == list(found.costs)
    assert stopped in found.stopped
    assert bool(stopped) == bool(found.stopped)
