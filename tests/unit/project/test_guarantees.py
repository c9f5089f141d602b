"""Invariant tested: each guarantee of docs/guarantees.md is cited by a test that checks it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = [
    file
    for kind in ("*.py", "*.c", "*.pml")
    for file in sorted((ROOT / "tests").rglob(kind))
    if file != Path(__file__).resolve()
]
PAGE = ROOT / "docs" / "guarantees.md"
GUARANTEES = re.findall(r"^\* \*\*(G\d+)\*\*", PAGE.read_text(), re.MULTILINE)


def test_guarantees_are_numbered_without_gaps() -> None:
    assert [f"G{number}" for number in range(1, len(GUARANTEES) + 1)] == GUARANTEES
    assert GUARANTEES


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_each_guarantee_is_cited_by_a_test(guarantee: str) -> None:
    cited = re.compile(rf"\b{guarantee}\b|_{guarantee.lower()}_")
    assert any(cited.search(file.read_text()) for file in TESTS)


def test_nothing_else_is_cited() -> None:
    """A guarantee that was taken back is no longer claimed by a test."""
    found = {name for file in TESTS for name in re.findall(r"\bG\d+\b", file.read_text())}
    assert found <= set(GUARANTEES)
