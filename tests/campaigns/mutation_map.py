"""Which tests run which lines of shmcache/: the map by which a mutant finds its tests.

    PYTHONPATH=. python tests/campaigns/mutation_map.py build/mutation.map tests/unit tests/peers

Runs the tests once under coverage, with the test as the context of each line. A mutant then needs
only the tests that reach its line, most specific first; a thousand tests that pass it by are not
run. Lines that run at import belong to all tests of their module.

Python processes that a test starts are measured as well: `sitecustomize.py`, written into the
current directory, starts coverage in each of them, and `current-test` names the test. Run it in a
copy of the project.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import time
from array import array
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable


SLOW_SECONDS = 3.0
"""Tests that take longer come last."""
CHILDREN = """
import os
ROOM = os.path.dirname(os.path.abspath(__file__))
try:
    with open(os.path.join(ROOM, "current-test"), encoding="utf-8") as file:
        TEST = file.read()
except FileNotFoundError:
    TEST = ""
if TEST:
    import atexit
    import coverage
    MEASURED = coverage.Coverage(data_file=os.path.join(ROOM, "children", "data"), data_suffix=True,
        context=TEST, source=[os.path.join(ROOM, "shmcache")], config_file=False)
    MEASURED.start()
    atexit.register(lambda: (MEASURED.stop(), MEASURED.save()))
"""
"""The sitecustomize module of processes that tests start."""


class Mapper:
    """A plugin of pytest that notes the time of each test, and switches the context of coverage."""

    def __init__(self, coverage: Any, current: Path) -> None:
        self._coverage = coverage
        self._current = current
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._coverage.switch_context(item.nodeid)
        self._current.write_text(item.nodeid, encoding="utf-8")
        begun = time.monotonic()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.monotonic() - begun
            self._coverage.switch_context("")
            self._current.unlink()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


class TestMap:
    """Maps as their files hold them, joined."""

    __test__ = False

    def __init__(self, *files: Path) -> None:
        self._tests: list[str] = []
        self._lines: dict[str, dict[str, array[int]]] = {}
        self._breadth: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        """How long each test took under coverage."""
        for file in files:
            found = json.loads(file.read_text(encoding="utf-8"))
            first = len(self._tests)
            self._tests += found["tests"]
            self.seconds.update(zip(found["tests"], found["seconds"], strict=True))
            for path, lines in found["lines"].items():
                for line, numbers in lines.items():
                    reached = array("I", [first + number for number in numbers])
                    self._lines.setdefault(path, {}).setdefault(line, array("I")).extend(reached)
                    self._breadth.update(self._tests[number] for number in reached)

    def reaching(self, path: str, line: int, source: str) -> list[str]:
        """Tests that run this line, those that run the fewest other lines first.

        A line that runs at import belongs to all tests of its module: those of a function come
        first whose header it is in, or those of lines that name what it assigns.
        """
        lines = self._lines.get(path, {})
        span, inside = _span(source, line)
        near = self._names(lines[str(one)] for one in span if str(one) in lines)
        found = near if inside else near | self._names(lines.values())
        return sorted(found, key=lambda test: (test not in near, self.seconds[test] > SLOW_SECONDS,
                                               self._breadth[test], test))  # fmt: skip

    def _names(self, numbers: Iterable[array[int]]) -> set[str]:
        return {self._tests[number] for number in set().union(*numbers)}


def _span(source: str, line: int) -> tuple[set[int], bool]:
    """Lines that show how a line matters, and whether it runs with them, in a function."""
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    best, inside = _innermost(statements, line)
    if inside:
        return {*range(best.lineno, line + 1)}, True
    if isinstance(best, ast.FunctionDef | ast.AsyncFunctionDef):
        return {*range(best.body[0].lineno, (best.end_lineno or 0) + 1)}, False
    targets = best.targets if isinstance(best, ast.Assign) else [getattr(best, "target", None)]
    names = "|".join(one.id for one in targets if isinstance(one, ast.Name))
    found: set[int] = set()
    for number, text in enumerate(source.splitlines() if names else [], 1):
        if re.search(rf"\b({names})\b", text):
            user, inside = _innermost(statements, number)
            found.update(range(user.lineno, number + 1) if inside else ())
    return found, False


def _innermost(statements: list[ast.stmt], line: int) -> tuple[ast.stmt, bool]:
    """The innermost statement at this line, and whether a function's body has it."""
    best: ast.stmt = ast.Pass(lineno=0)
    inside = False
    for node in statements:
        if node.lineno <= line <= (node.end_lineno or 0):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = inside or line >= node.body[0].lineno
            if node.lineno >= best.lineno:
                best = node
    return best, inside


def main(arguments: list[str]) -> int:
    """Writes the map of these tests."""
    from coverage import Coverage

    target, *tests = arguments
    room = Path.cwd()
    (room / "sitecustomize.py").write_text(CHILDREN, encoding="utf-8")
    children = room / "children"
    children.mkdir(exist_ok=True)
    coverage = Coverage(data_file=str(children / "whole"), source=[str(room / "shmcache")],
                        config_file=False)  # fmt: skip
    coverage.erase()
    mapper = Mapper(coverage, room / "current-test")
    coverage.start()
    try:
        pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[mapper])
    finally:
        coverage.stop()
    coverage.combine([str(one) for one in children.glob("data.*")], keep=False)
    made = _joined(coverage.get_data(), mapper, room)
    Path(target).write_text(json.dumps(made), encoding="utf-8")
    print(f"{len(made['tests'])} tests; left out, as they fail: {len(mapper.failed)}")
    return 0


def _joined(data: Any, mapper: Mapper, room: Path) -> dict[str, Any]:
    names = [test for test in mapper.seconds if test not in mapper.failed]
    numbers = {test: number for number, test in enumerate(names)}
    lines: dict[str, dict[str, list[int]]] = {}
    for file in data.measured_files():
        reached = {
            str(line): sorted({numbers[one] for one in contexts if one in numbers})
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        lines[os.path.relpath(file, room)] = reached
    return {"tests": names, "seconds": [mapper.seconds[test] for test in names], "lines": lines}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
