"""Invariant tested: the README's example works, and its figures are those of the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.run import QUESTIONS

ROOT = Path(__file__).resolve().parents[3]


def test_the_example_runs(name: str) -> None:
    text = (ROOT / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)

    exec(compile(example.replace('"readme"', repr(name)), "README.md", "exec"), {})  # noqa: S102


def test_the_two_commands_are_there() -> None:
    commands = re.findall(r"```sh\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)

    assert 2 == len(commands)
    assert commands[0].endswith("-m shmcache demo")
    assert commands[1].endswith("-m pytest")


def test_each_question_of_the_benchmarks_has_its_table() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    for question in QUESTIONS:
        assert 1 == text.count(f"<!-- {question} -->") == text.count(f"<!-- end of {question} -->")
        assert (ROOT / "benchmarks" / "questions" / f"{question}.py").is_file()


# A row of the README's table, and the row of the benchmarks that it quotes.
QUOTED = {
    "memory of 8 workers": "net memory of 8 workers, 10,000 pods, against urllib3 + orjson, dicts",
    "a new worker": "from a worker's start until it has read 10,000 pods: urllib3 + orjson, dicts",
    "look up a pod": 'get + ["spec"]["nodeName"], 10,000 pods',
    "a watch event": "CPU of all processes per event, 8 workers that read a field of each",
    "GET of a pod": "GET of one object: server CPU",
    "`get pods -A`": "`shmcache get pods -A` of 10,000, as a table",
}
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "MiB": 2**20, "GiB": 2**30}


def quantities(row: str) -> list[float]:
    found = re.findall(rf"([\d.]+) ({'|'.join(UNITS)})\b", row)
    return [float(number) * UNITS[unit] for number, unit in found]


def rows(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(("start", "question"), QUOTED.items())
def test_each_figure_is_the_one_that_was_measured(start: str, question: str) -> None:
    (quoted,) = [row for row in rows(ROOT / "README.md") if row[0].startswith(start)]
    (measured,) = [row for row in rows(ROOT / "benchmarks" / "README.md") if row[0] == question]

    ours, peer = quantities(quoted[1])[0], quantities(quoted[2])[-1]
    assert pytest.approx(quantities(measured[1])[0], rel=0.03) == ours
    assert any(pytest.approx(each, rel=0.03) == peer for each in quantities(measured[2]))
    assert pytest.approx(peer / ours, rel=0.05) == float(quoted[3])


def test_every_figure_of_the_readme_is_quoted() -> None:
    table = [row[0] for row in rows(ROOT / "README.md") if row[0] != "question"]

    assert len(table) == len(QUOTED)
