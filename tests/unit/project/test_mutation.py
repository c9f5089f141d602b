"""Invariant tested: mutants change one thing (MUT1), and nothing that no test can see (MUT2); a
mutant meets the tests that reach its line."""

from __future__ import annotations

import ast
import difflib
import json
from pathlib import Path

import pytest
from mutation import ROOT, Fates, equivalents, sample
from mutation_map import TestMap
from mutation_runs import Outcome, run_tests
from pymutants import Mutant, mutants

SOURCE = '''"""A docstring with 1 < 2."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    LEFT = 1 < 2
RIGHT = False

__slots__ = ("a", "b")[0:1]


@dataclass(slots=True)
class Two: ...


def one(a: list[1], b: int = 3) -> list[2]:
    """Not 4."""
    if a and not b:
        a.append(1)
    b += 1
    return a[b:] if a is None else max(a)
'''


def found() -> list[Mutant]:
    return list(mutants("one.py", SOURCE))


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("condition", "a and not b", "not (a and (not b))"),
        ("condition", "a[b:] if a is None else max(a)", "a[b:] if not a is None else max(a)"),
        ("comparison", "a is None", "a is not None"),
        ("and/or", "a and not b", "a or not b"),
        ("not", "not b", "b"),
        ("dropped", "a.append(1)", "pass"),
        ("dropped", "b += 1", "pass"),
        ("constant", "3", "4"),
        ("constant", "3", "2"),
        ("slice", "a[b:]", "a[b + 1:]"),
        ("call", "max(a)", "min(a)"),
        ("constant", "False", "True"),
    ],
)
def test_each_rule_makes_its_mutant(rule: str, before: str, after: str) -> None:
    assert (rule, before, after) in {(one.rule, one.before, one.after) for one in found()}


def test_a_mutant_is_valid_and_changes_one_place() -> None:
    for one in found():
        ast.parse(one.source)
        changed = [
            line for line in difflib.ndiff(SOURCE.splitlines(), one.source.splitlines())
            if line[0] in "+-"
        ]  # fmt: skip
        assert 0 < len(changed) <= 6
        assert all(SOURCE.splitlines()[one.line - 1].strip() or line for line in changed)


def test_nothing_is_changed_that_no_test_can_see() -> None:
    kept = [
        "TYPE_CHECKING = False",
        "1 < 2",
        "list[1]",
        "list[2]",
        '"b")[0:1]',
        "slots=True",
        "Not 4",
    ]

    for one in found():
        assert all(text in one.source for text in kept), one.name


def test_a_seed_decides_the_sample() -> None:
    first, again, other = (sample(["shmcache/protocol"], 20, seed) for seed in (1, 1, 2))

    assert first == again
    assert first != other
    assert len({one.name for one in first}) == 20


def test_a_change_of_a_file_keeps_the_sample_of_others(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "b.py").write_text(SOURCE)
    before = sample(["a.py", "b.py"], 12, 1, tmp_path)
    (tmp_path / "a.py").write_text("")
    kept = [one for one in before if one.path == "b.py"]

    assert 0 < len(kept) < 12
    assert kept == sample(["a.py", "b.py"], len(kept), 1, tmp_path)


CALLS = """import os

LIMIT = 3


def one(flag: bool) -> int:
    if flag:
        return (
            LIMIT
        )
    return 0
"""


def test_a_map_names_the_tests_that_reach_a_line(tmp_path: Path) -> None:
    tests = ["wide", "narrow", "other"]
    lines = {"7": [0, 1], "8": [0, 1], "11": [0, 2], "3": [0]}
    more = {"a.py": lines, "b.py": {"1": [0], "2": [0]}}
    file = tmp_path / "map"
    file.write_text(json.dumps({"tests": tests, "seconds": [0.1, 0.1, 9.0], "lines": more}))
    found = TestMap(file)

    assert found.reaching("a.py", 9, CALLS) == ["narrow", "wide"]
    assert found.reaching("a.py", 11, CALLS) == ["wide", "other"]
    assert found.reaching("a.py", 6, CALLS) == ["narrow", "wide", "other"]
    assert found.reaching("a.py", 3, CALLS) == ["narrow", "wide", "other"]
    assert found.reaching("c.py", 9, CALLS) == []


TESTS = """
import pytest
@pytest.fixture
def failing():
    yield
    assert 0
def test_a(): pass
def test_b(failing): assert 0
def test_c(): assert 0
"""


def test_tests_of_a_child_pass_or_name_the_first_that_fails(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(TESTS)
    hanging = tmp_path / "test_hangs.py"
    hanging.write_text("import time\ndef test_a(): time.sleep(600)\n")
    ending = tmp_path / "test_ends.py"
    ending.write_text("import os\ndef test_a(): os._exit(0)\n")
    broken = tmp_path / "test_broken.py"
    broken.write_text("import nothing_of_this_name\n")

    good, bad, hangs, ends, unread = (
        run_tests(list(words), seconds)
        for *words, seconds in (
            (f"{file}::test_a", 60.0),
            (str(file), 60.0),
            (str(hanging), 0.5),
            (str(ending), 60.0),
            (str(broken), 60.0),
        )
    )

    assert good == Outcome(passed=True, killer="")
    assert not bad.passed
    assert bad.killer.endswith("::test_b")
    assert hangs == Outcome(passed=False, killer="", late=True)
    assert ends == Outcome(passed=False, killer="")
    assert not unread.passed


def test_a_fate_is_known_until_a_larger_budget_may_tell_more(tmp_path: Path) -> None:
    file = tmp_path / "fates"
    dead, alive, new = found()[:3]
    Fates(file).note(dead, "killed", 5.0, "a test")
    Fates(file).note(alive, "SURVIVES", 5.0, "")
    fates = Fates(file)

    assert [fates.of(one) for one in (dead, alive, new)] == ["killed", "SURVIVES", ""]
    assert [fates.is_known(one, 5.0) for one in (dead, alive, new)] == [True, True, False]
    assert [fates.is_known(one, 6.0) for one in (dead, alive, new)] == [True, False, False]


def test_equivalent_mutants_exist_as_they_are_listed() -> None:
    listed = equivalents()
    names = {
        one.name
        for path in {name.partition(":")[0] for name in listed}
        for one in mutants(path, (ROOT / path).read_text(encoding="utf-8"))
    }

    assert listed <= names
