"""Invariant tested: the example on the README's first screen does what it says."""

from __future__ import annotations

import re
from pathlib import Path

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
