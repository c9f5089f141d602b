"""Invariant tested: plain English; no folder exceeds its allowance of places to mend."""

from __future__ import annotations

import os

import pytest
from english import (
    PATTERNS,
    ROOT,
    Place,
    allowances,
    bad_titles,
    counts,
    faults_of_title,
    files,
    history,
    places,
    places_of,
    titles,
)

ALLOWED = allowances()
FOLDERS = sorted({os.path.dirname(file) or "." for file in files()})


@pytest.fixture(scope="session")
def found() -> dict[str, list[Place]]:
    by_folder: dict[str, list[Place]] = {folder: [] for folder in FOLDERS}
    for place in places():
        by_folder[place.folder].append(place)
    return by_folder


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_keeps_to_its_allowance(folder: str, found: dict[str, list[Place]]) -> None:
    here, allowed = found[folder], ALLOWED.get(folder, 0)

    assert len(here) <= allowed, (
        f"{len(here)} places in {folder}, {allowed} allowed (tests/style/allowances.txt):\n"
        + "\n".join(map(str, here))
        + "\nfiles that only moved: python -m tests.style.english --settle"
    )


def test_allowances_name_folders_that_exist() -> None:
    assert set() == set(ALLOWED) - set(FOLDERS)
    assert counts().total() <= sum(ALLOWED.values())


def test_commit_titles_are_short_and_imperative() -> None:
    place = history()
    if place is None:
        pytest.xfail("no history to read: a copy without .git, or a shallow clone")
    assert [] == bad_titles(titles(place))


STUMBLES = {
    "begins with a headless who or what": "It ends. Who sleeps is woken.",
    "whether/if/since who": "Nobody knows whether who asks may.",
    "whoever": "Taken by whoever comes.",
    "told": "A handler is told of it.",
    "is said": "That is said once.",
    "says so/who/what": "An error says what is missing.",
    "anew": "It begins anew.",
    "is no X": "A tuple is no list.",
    "there is none": "Zero if there is none.",
    "is asked for": "A key that is asked for.",
    "stands": "The count stands in the root.",
    "beside": "It lies beside the other.",
    "is wanted": "A number is wanted.",
    "is looked at, waited for": "The seat is looked at.",
    "he, his": "The client closes his socket.",
    "in place of": "A text in place of a number.",
}


@pytest.mark.parametrize(("rule", "sentence"), STUMBLES.items())
def test_each_pattern_finds_its_place_in_each_language(rule: str, sentence: str) -> None:
    python = f'def f():\n    """Does it. {sentence}"""\n'
    texts = {
        "a.md": f"# Title\n\n* {sentence}\n",
        "a.py": python,
        "b.py": f"# First.\n# {sentence}\n",
        "c.py": f"raise E({sentence!r})\n",
        "a.c": f"/* First.\n * {sentence} */\n",
        "a.h": f'const char *a = "{sentence}";\n',
    }
    for file, text in texts.items():
        assert rule in {place.rule for place in places_of(file, text)}, file


def test_each_pattern_has_its_sentence() -> None:
    assert set(PATTERNS) == set(STUMBLES)


@pytest.mark.parametrize(
    "sentence",
    [
        "What does a put cost?",
        "The client that holds it, who may be asleep.",
        "There is no cache of this name.",
        "It is no longer than a page.",
        "It stands by until the lock is free.",
        "Besides, the whole of it is theirs.",
    ],
)
def test_good_sentences_pass(sentence: str) -> None:
    assert [] == list(places_of("a.md", sentence))


def test_code_in_pages_is_not_prose() -> None:
    assert [] == list(places_of("a.md", "```text\nwho sleeps anew\n```\n\nSee `told`.\n"))


def test_a_place_names_its_line() -> None:
    (place,) = places_of("a.md", "One.\n\nTwo is\nnot here. What is, is.\n")
    assert (4, "a.md") == (place.line, place.file)
    (place,) = places_of("a.py", "a = 1\n\n\n# One.\n# It goes on anew.\n")
    assert 5 == place.line


@pytest.mark.parametrize(
    "name", ["test_who_sleeps_is_woken", "what_is_left", "_told", "test_a_list_is_no_dict"]
)
def test_names_are_read_too(name: str) -> None:
    for file, text in (("a.py", f"def {name}(): pass\n"), ("a.c", f"int {name}(void);\n")):
        assert 1 == len({place.line for place in places_of(file, text)}), file
    assert [] == list(places_of("a.py", "def test_somewhat_unfolded(whole): pass\n"))


@pytest.mark.parametrize(
    ("title", "fault"),
    [
        ("serve: reject an invalid --proxy URL at startup", ""),
        ("tests/style: bypass git", ""),
        ("serve: " + "x" * 70, "77 characters"),
        ("reject an invalid URL", "stage: imperative"),
        ("serve: what is no URL is said", "imperative: what"),
        ("serve: rejects URLs", "imperative: rejects"),
        ("serve: rejected URLs", "imperative: rejected"),
        ("serve: the URL", "imperative: the"),
        ("serve: begin anew", "anew"),
    ],
)
def test_titles(title: str, fault: str) -> None:
    faults = faults_of_title(title)
    assert any(fault in each for each in faults) if fault else [] == faults


def test_the_history_reaches_back_to_the_rule() -> None:
    """A fresh clone has it; a copy without .git is allowed to have none."""
    assert history() is not None or not (ROOT / ".git").exists() or (ROOT / ".git/shallow").exists()
