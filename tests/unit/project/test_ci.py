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


@pytest.mark.parametrize("part", ["python3.11", "python3.13", "core"])
def test_a_copy_that_cannot_be_made_fails_the_run(tmp_path: Path, part: str) -> None:
    """As on a full disk."""
    project, tools = tmp_path / "project", tmp_path / "tools"
    (project / ".ci").mkdir(parents=True)
    tools.mkdir()
    (project / "tests" / "packages").mkdir(parents=True)
    for name in (".ci/run", "tests/packages/interpreters.sh"):
        shutil.copy(ROOT / name, project / name)
    (project / "README.md").write_text(README)
    for tool in TOOLS:
        script(tools / tool, "echo 3 passed")
    script(tools / "unshare", "exit 1")
    script(tools / "tar", NO_ROOM)
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
        "BROKEN": f"/{part}",
    }

    ran = subprocess.run(
        [project / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 1, ran.stdout
    assert "FAILED: " + {"core": "copied core"}.get(part, "readme_test") in ran.stdout
