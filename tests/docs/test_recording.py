"""Invariant tested: the recording of the demo shows today's demo, without paths and scripts, and
rests on its last screen where viewers want less motion."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from shmcache.cli.demo.lags import Lags
from shmcache.cli.demo.view import TITLES

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "pictures" / "demo.svg"
SVG = "{http://www.w3.org/2000/svg}"


def screens() -> list[str]:
    """The text of each frame."""
    groups = ET.parse(FILE).getroot().iter(f"{SVG}g")  # noqa: S314 - a file of ours
    return ["\n".join("".join(line.itertext()) for line in group) for group in groups]


def test_the_last_screen_is_the_demos() -> None:
    """Else: python release/recording.py."""
    last = screens()[-1]

    assert " ".join(TITLES.split()) in " ".join(last.split())
    assert " ".join(Lags().picture()[1].split()) in " ".join(last.split())
    assert re.search(r"4 workers", last)
    assert re.search(r"saved +[\d.]+ MiB", last)
    assert last.rstrip().endswith("done: nothing was left behind")


def test_the_recording_has_one_frame_a_second_and_no_secrets() -> None:
    text = FILE.read_text()

    assert len(screens()) >= 8
    assert text.count("@keyframes") == len(screens())
    assert "prefers-reduced-motion" in text
    assert not re.search(r"<script|href=|/home|/root|/tmp|https?://(?!www\.w3\.org)", text)
    assert FILE.stat().st_size < 200_000


def test_the_readme_shows_it() -> None:
    assert "(docs/pictures/demo.svg)" in (ROOT / "README.md").read_text()
