"""Invariant tested: the man pages are those of the parsers, and man shows them without warnings."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from shmcache.__main__ import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "docs" / "man"
MANUAL = runpy.run_path(str(ROOT / "release" / "manual.py"))
NAMES = ["shmcache.1", *(f"shmcache-{name}.1" for name in COMMANDS if name != "help")]


def test_the_pages_are_up_to_date() -> None:
    """Else: python release/manual.py."""
    assert dict(MANUAL["pages"]()) == {file.name: file.read_text() for file in PLACE.iterdir()}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_every_option(name: str) -> None:
    text = (PLACE / name).read_text().replace("\\-", "-")
    if name == "shmcache.1":
        assert all(f".B shmcache-{one}(1)" in text for one in COMMANDS if one != "help")
        return
    parser = MANUAL["parser_of"](name.removeprefix("shmcache-").removesuffix(".1"))
    assert [] == [option for option in parser.options() if f"\\fB{option}\\fR" not in text]


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man: apt install man-db")
@pytest.mark.parametrize("name", NAMES)
def test_man_shows_a_page_without_a_warning(name: str) -> None:
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(PLACE / name)],
        capture_output=True,
        text=True,
        env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
        check=False,
        timeout=60,
    )

    assert (0, "") == (done.returncode, done.stderr)


def test_man_finds_the_page_that_the_wheel_installs(tmp_path: Path) -> None:
    """As pip lays it out: bin/ in PATH, share/man next to it."""
    if shutil.which("man") is None:
        pytest.skip("needs man: apt install man-db")
    (tmp_path / "bin").mkdir()
    shutil.copytree(PLACE, tmp_path / "share" / "man" / "man1")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"}
    environment.pop("MANPATH", None)
    done = subprocess.run(
        ["man", "-w", "shmcache-get"],
        capture_output=True, text=True, env=environment, check=False, timeout=60,
    )  # fmt: skip

    assert str(tmp_path / "share" / "man" / "man1" / "shmcache-get.1") == done.stdout.strip()
