"""Invariant tested: the example on the README's first screen does what it says."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.run import QUESTIONS

ROOT = Path(__file__).resolve().parent.parent.parent


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
        assert (ROOT / "benchmarks" / f"{question}.py").is_file()
