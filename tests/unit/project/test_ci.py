"""Invariant tested: a part of .ci/run that could not be run counts as failed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOLS = ["apt-get", "clang", "gcc", "make", "python3.11", "python3.12", "python3.13", "spin"]
README = "echo 3 passed # python -m pytest\n"
NO_ROOM = 'case "$*" in *"$BROKEN -xf -") exit 2;; esac\n'


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


MAKE = """mkdir -p .venv/bin
printf '#!/bin/sh\\n' >.venv/bin/python
chmod +x .venv/bin/python
echo 3 passed
"""


def run(home: Path, tools: dict[str, str], **environment: str) -> subprocess.CompletedProcess[str]:
    """.ci/run in a project of its own, with these tools before those of the machine."""
    project, found = home / "project", home / "tools"
    (project / ".ci").mkdir(parents=True)
    found.mkdir()
    (project / "tests" / "packages").mkdir(parents=True)
    for name in (".ci/run", "tests/packages/interpreters.sh"):
        shutil.copy(ROOT / name, project / name)
    (project / "README.md").write_text(README)
    for tool, text in (dict.fromkeys(TOOLS, "echo 3 passed") | tools).items():
        script(found / tool, text)
    path = f"{found}:{os.environ['PATH']}"
    return subprocess.run(
        [project / ".ci" / "run"],
        env=os.environ | {"PATH": path, "TMPDIR": str(home), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("part", ["python3.11", "python3.13", "core"])
def test_a_copy_that_cannot_be_made_fails_the_run(tmp_path: Path, part: str) -> None:
    """As on a full disk."""
    tools = {"unshare": "exit 1", "tar": NO_ROOM, "make": MAKE}

    ran = run(tmp_path, tools, BROKEN=f"/{part}")

    assert ran.returncode == 1, ran.stdout
    assert "FAILED: " + {"core": "copied core"}.get(part, "readme_test") in ran.stdout


@pytest.mark.parametrize("apart", ["", "exit 1"], ids=["together", "in turn"])
def test_all_parts_are_counted(tmp_path: Path, apart: str) -> None:
    """Three suites and two variants of the C tests, of three tests each, and nine other steps."""
    tools = {"make": MAKE} | ({"unshare": apart} if apart else {})

    ran = run(tmp_path, tools)

    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "24 passed, 0 failed"), ran.stdout
