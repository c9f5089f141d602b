"""Invariant tested: commits that the track record names are in the history that readers get."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from english import ROOT, history

_ROW = re.compile(r"^\| ([0-9a-f]{7,40}) \|", re.MULTILINE)


def missing(commits: list[str], place: Path) -> list[str]:
    """Those that are not in the history of HEAD, even if this copy has them besides."""
    asked = ["git", "-C", str(place), "rev-list", "HEAD"]
    there = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    return [commit for commit in commits if not any(one.startswith(commit) for one in there)]


def test_each_commit_of_the_track_record_can_be_built() -> None:
    place = history()
    if place is None:
        pytest.xfail("no history to read: a copy without .git, or a shallow clone")
    commits = _ROW.findall((ROOT / "docs/track-record.md").read_text())
    assert len(commits) > 50
    assert [] == missing(commits, place)


def test_a_commit_that_is_gone_is_found() -> None:
    place = history()
    if place is None:
        pytest.xfail("no history to read: a copy without .git, or a shallow clone")
    assert ["0000000"] == missing(["b95aafe", "0000000"], place)
