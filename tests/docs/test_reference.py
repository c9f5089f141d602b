"""Invariant tested: docs/api.md is complete, and as current as signatures and docstrings."""

from __future__ import annotations

import inspect
import re

import pytest
from reference import MODULES, PAGE, Entry, entries, errors, members, text

import shmcache

ENTRIES = list(entries())


def test_the_page_is_current() -> None:
    assert text() == PAGE.read_text(), "python tests/docs/reference.py writes it"


def test_every_public_name_has_an_entry() -> None:
    described = [entry.name for entry in ENTRIES] + [error.__name__ for error in errors()]
    modules = {name.removeprefix("shmcache.") for name in MODULES}

    assert set() == set(shmcache.__all__) - {*described, *modules}
    headings = re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(described)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.module}.{entry.name}")
def test_every_entry_and_each_of_its_methods_is_described(entry: Entry) -> None:
    assert inspect.getdoc(entry.found)
    if inspect.isclass(entry.found):
        listed = {re.match(r"`(\w+)", line)[1] for line in members(entry.found)}  # type: ignore[index]
        own = {
            name
            for name, member in vars(entry.found).items()
            if not name.startswith("_")
            and (inspect.isroutine(member) or isinstance(member, property))
        }
        assert set() == own - listed


@pytest.mark.parametrize("error", errors(), ids=lambda error: error.__name__)
def test_every_error_states_its_cause_and_its_cure(error: type[BaseException]) -> None:
    sentences = re.findall(r"[A-Z][^.]+\.(?:\s|$)", inspect.getdoc(error) or "")

    assert len(sentences) >= 2, "the cause, then the cure"
