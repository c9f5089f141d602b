"""Invariant tested: a label is defined in one place, and each citation leads to its definition."""

from __future__ import annotations

import pytest
from labels import Labels, labels, read


@pytest.fixture(scope="session")
def now() -> Labels:
    return labels()


def test_a_label_is_defined_once(now: Labels) -> None:
    assert {} == {label: now.defined[label] for label in now.doubles}


def test_each_citation_leads_to_a_definition(now: Labels) -> None:
    assert [] == [str(each) for each in now.dangling]


def test_there_are_definitions_in_c_in_python_and_in_models(now: Labels) -> None:
    homes = {home for each in now.defined.values() for home in each}

    assert {"c", "h", "py", "pml", "md"} <= {home.rsplit(".")[-1] for home in homes}
    assert len(now.cited) > len(now.defined)


HEAD = """/*
 * ring.c - a ring.
 *
 *   RING1  slots exist.
 *   RING2  stamps
 *       rise.
 */
"""


def test_a_label_that_two_files_define_is_found() -> None:
    made = read({"csrc/ring.c": HEAD, "shmcache/ring.py": '"""A ring.\n\nRING2  It turns.\n"""\n'})

    assert {"RING2"} == made.doubles
    assert {"RING1": ["csrc/ring.c"]}.items() <= made.defined.items()


@pytest.mark.parametrize(
    ("file", "text", "dangling"),
    [
        ("csrc/a.c", "int a; /* RING2 */", []),
        ("csrc/a.c", "int a; /* RING3 */", ["RING3"]),
        ("csrc/a.c", "int a; /* RING1 of ring.c */", []),
        ("csrc/a.c", "int a; /* RING1 of csrc/ring.c */", []),
        ("csrc/a.c", "int a; /* RING1 of tree.c */", ["RING1 of tree.c"]),
        ("a.py", '"""Invariants tested: RING1 to RING3."""\n', ["RING3"]),
        ("a.py", "# GLUE1 of glue.py\n", ["GLUE1 of glue.py"]),
        ("tests/spin/a.pml", "/* RING4 */", ["RING4"]),
        ("tests/c/mutants.txt", "# RING5\nNO_RING test_ring\n", ["RING5"]),
        ("a.md", "See RING6.\n", ["RING6"]),
        ("a.md", "Written in C11, with HTTP2 or SHA256.\n", []),
    ],
)
def test_a_citation_that_leads_nowhere_is_found(file: str, text: str, dangling: list[str]) -> None:
    made = read({"csrc/ring.c": HEAD, file: text})

    assert dangling == [str(each).split(": ")[1] for each in made.dangling]
