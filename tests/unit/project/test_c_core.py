"""Invariant tested: the C core's own tests pass, compiled with warnings as errors."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = sorted(
    path.stem for kind in ("unit", "stress") for path in ROOT.glob(f"tests/c/{kind}/*.c")
)


@pytest.fixture(scope="module")
def binaries() -> Path:
    done = subprocess.run(
        ["make", f"-j{os.cpu_count()}", "VARIANT=plain", "c-binaries"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build" / "plain"


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_c_program_passes(binaries: Path, program: str) -> None:
    done = subprocess.run(
        [binaries / program], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
