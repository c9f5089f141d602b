"""Invariant tested: the C core's own tests pass, compiled with warnings as errors."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shmcache import _build

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


def test_an_extension_is_built_from_each_of_its_files() -> None:
    python = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("csrc/python/**/*.c")}
    core = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("csrc/**/*.c")} - python

    assert python == {*_build.hot_sources()}
    assert core == {*_build.core_sources()}
