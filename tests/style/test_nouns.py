"""Invariant tested: nouns of the glossary that names once used for other things keep their meaning.

A *word* is 64 bits of shared memory, so nothing that a user types is one; a *place* is where the
files of a cache are, which the core and the pages of the UI do not know.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from english import ROOT, files, names_of, places_of

WORDS_OF_MEMORY = (
    "shmcache/_native.py",
    "shmcache/controllers/",
    "shmcache/memory/mapping.py",
    "shmcache/writer/handle.py",
)
"""Files that read or make words of shared memory."""
_WORD = re.compile(r"(?:^|_)words?(?:_|$)", re.IGNORECASE)
_PLACE = re.compile(r"(?:^|_)places?(?:_|$)")


def identifiers(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name


def typed_words(text: str) -> set[tuple[int, str]]:
    return {(line, name) for line, name in identifiers(text) if _WORD.search(name)}


def places_in_c(file: str, text: str) -> set[tuple[int, str]]:
    """`in_place` is not a place."""
    names = {(each.line, each.text) for each in names_of(file, text)}
    return {(line, name) for line, name in names if _PLACE.search(name) and "in_place" not in name}


@pytest.mark.parametrize(
    "file",
    [
        file
        for file in files()
        if file.startswith("shmcache/") and not file.startswith(WORDS_OF_MEMORY)
        if file.endswith(".py")
    ],
)
def test_no_name_of_python_calls_an_argument_or_a_text_a_word(file: str) -> None:
    assert set() == typed_words((ROOT / file).read_text())


@pytest.mark.parametrize("file", [file for file in files() if file.endswith((".c", ".h"))])
def test_no_name_of_c_calls_an_address_or_an_offset_a_place(file: str) -> None:
    assert set() == places_in_c(file, (ROOT / file).read_text())


def test_the_ui_names_no_variable_place_or_word() -> None:
    code = {file: file.read_text() for file in (ROOT / "shmcache/serve/ui/static").glob("*.js")}
    assert code
    names = re.compile(r"\b(?:place|words?|WORDS?)\b(?=\s*(?:[(=,\]]|\.\w))")
    assert {} == {file.name: found for file, text in code.items() if (found := names.findall(text))}


def test_both_patterns_find_what_they_are_for() -> None:
    assert {(1, "words")} == typed_words("def words(): pass\n")
    assert {(1, "word"), (1, "a_word")} == typed_words("a_word = [x for word in y]\n")
    assert set() == typed_words("password = keywords\n")
    assert {(1, "place_of")} == places_in_c("a.c", "int place_of(void);\n")
    assert set() == places_in_c("a.c", "bool in_place, replace;\n")


def test_instead_is_one_adverb() -> None:
    assert [] != list(places_of("a.md", "It is used in place of the API server.\n"))
    assert [] != list(places_of("a.md", "A cache takes the place of the server.\n"))
    assert [] == list(places_of("a.md", "A block is never changed in place. Of these, one is.\n"))
