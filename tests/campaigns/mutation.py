"""A sample of mutants of the Python side, each run against the tests that reach its line.

    python tests/campaigns/mutation.py --seed 7 --count 60 shmcache/protocol

Works on a copy of the project, so that nothing here is ever broken. Tests run in children of one
process that has imported what they need except shmcache; the most specific tests come first, and
the first failure ends the run. A test that fails without the mutant, too, does not count. The tests
come from maps (mutation_map.py) if there are any, else from what the files import.

A mutant that no test notices is printed and makes the status 1, unless equivalent_mutants.txt lists
it with the reason why it changes nothing. The seed and the sources determine the sample.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mutation_map import TestMap
from pymutants import Mutant, mutants

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    import pytest

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
FOLDERS = ("shmcache", "tests", "examples", "docs", "csrc", "deploy", "benchmarks")
FILES = ("*.md", "*.toml", "*.cfg", "setup.py", "Makefile")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "seeds")
PATIENCE = 6.0
LEAST_SECONDS = 20.0
"""A run has noticed the mutant, as it hangs, if it takes so many times as long as usual, and at
least so many seconds."""
GROUPS = (8, 60, 150)
"""Tests of a mutant run in groups of these sizes: most mutants die in the first."""


def main(arguments: list[str] | None = None) -> int:
    """Prints survivors; 1 if there are any."""
    options = _options(arguments)
    chosen = sample(options.paths, options.count, options.seed)[options.first : options.until]
    known = equivalents()
    print(f"{len(chosen)} mutants of {', '.join(options.paths)}, seed {options.seed}", flush=True)
    survivors = []
    counts = {"killed": 0, "equivalent": 0, "SURVIVES": 0}
    with tempfile.TemporaryDirectory(prefix="mutants-") as room:
        for part in [ROOT / name for name in FOLDERS]:
            shutil.copytree(part, Path(room) / part.name, ignore=LEFT_OUT)
        for part in [file for pattern in FILES for file in ROOT.glob(pattern)]:
            shutil.copy(part, room)
        killing = Killing(room, options)
        for number, mutant in enumerate(chosen, options.first + 1):
            begun = time.monotonic()
            fate = "equivalent" if mutant.name in known else killing.fate(mutant)
            seconds = time.monotonic() - begun
            counts[fate] += 1
            print(f"{number:4} {fate:10} {seconds:5.1f} s  {_shown(mutant)}", flush=True)
            if fate == "SURVIVES":
                survivors.append(mutant)
    share = counts["killed"] / max(1, counts["killed"] + len(survivors))
    print(f"{counts['killed']} killed ({share:.1%} of those that may change behaviour), "
          f"{counts['equivalent']} equivalent, {len(survivors)} survive:")  # fmt: skip
    for mutant in survivors:
        print(f"  {_shown(mutant)}")
    return 1 if survivors else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("paths", nargs="*", default=["shmcache"], help="files or folders")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="leave out so many of the sample")
    parser.add_argument("--until", type=int, help="and those from this one on")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 1))
    parser.add_argument("--tests", nargs="*", default=[], help="instead of the related ones")
    parser.add_argument("--map", nargs="*", default=[], help="files of mutation_map.py")
    return parser.parse_args(arguments)


def _shown(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line} {mutant.rule}: {mutant.before} -> {mutant.after}"[:160]


def sample(paths: list[str], count: int, seed: int) -> list[Mutant]:
    """So many mutants of these files; the seed determines them."""
    files = [file for path in paths for file in sorted((ROOT / path).rglob("*.py"))]
    files += [ROOT / path for path in paths if path.endswith(".py")]
    found: list[Mutant] = []
    for file in files:
        name = str(file.relative_to(ROOT))
        found += mutants(name, file.read_text(encoding="utf-8"))
    return random.Random(seed).sample(found, min(count, len(found)))


def equivalents() -> set[str]:
    """Names of mutants that change nothing; each is followed by its reason, indented."""
    if not EQUIVALENT.exists():
        return set()
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and line[0] not in "# "}


class Outcome(NamedTuple):
    """How a group of tests ended."""

    passed: bool
    killer: str
    """The first test that failed; "" if none did, or if the run was ended."""


class Killing:
    """The copy of the project, its tests, and what is known of them."""

    def __init__(self, room: str, options: argparse.Namespace) -> None:
        self._room = room
        self._tests: list[str] = options.tests
        self._map = TestMap(*map(Path, options.map)) if options.map else None
        self._sound: dict[str, bool] = {}
        os.environ.update(PYTHONPATH=room, PYTHONDONTWRITEBYTECODE="1")
        os.chdir(room)
        sys.path[:0] = [room]
        _import_what_tests_need()

    def fate(self, mutant: Mutant) -> str:
        """Whether a test notices it."""
        for group in self._groups(mutant):
            if not self._passes(mutant, group):
                return "killed"
        return "SURVIVES"

    def _passes(self, mutant: Mutant, tests: list[str]) -> bool:
        """Whether all of them do; tests that fail without the mutant are left out."""
        while tests:
            with self._mutated(mutant):
                outcome = run_tests(tests, self._limit(tests))
            failed = outcome.killer or tests[0]  # the module cannot be imported, or hangs
            if outcome.passed or self._is_sound(failed):
                return outcome.passed
            tests = [test for test in tests if test != failed]
        return True

    @contextlib.contextmanager
    def _mutated(self, mutant: Mutant) -> Iterator[None]:
        file = Path(self._room) / mutant.path
        whole = file.read_text(encoding="utf-8")
        file.write_text(mutant.source, encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(whole, encoding="utf-8")

    def _is_sound(self, test: str) -> bool:
        """Whether a test passes without any mutant."""
        if test not in self._sound:
            self._sound[test] = run_tests([test], 3 * self._limit([test])).passed
            if not self._sound[test]:
                print(f"     {test} fails without a mutant: left out", flush=True)
        return self._sound[test]

    def _limit(self, tests: list[str]) -> float:
        usual = [self._map.seconds[test] for test in tests] if self._map else [10.0 * len(tests)]
        return max(LEAST_SECONDS, PATIENCE * sum(usual))

    def _groups(self, mutant: Mutant) -> Iterator[list[str]]:
        if self._tests:
            yield self._tests
        elif self._map is None:
            yield from related(mutant.path)
        else:
            source = (Path(self._room) / mutant.path).read_text(encoding="utf-8")
            tests = [test for test in self._map.reaching(mutant.path, mutant.line, source)
                     if self._sound.get(test, True)]  # fmt: skip
            for size in GROUPS:
                if tests:
                    yield tests[:size]
                tests = tests[size:]


def _import_what_tests_need() -> None:
    """Imports everything but the project, so that a forked child begins with the tests."""
    import asyncio  # noqa: F401
    import concurrent.futures  # noqa: F401
    import http.client  # noqa: F401

    import cffi  # noqa: F401
    import hypothesis.stateful  # noqa: F401
    import orjson  # noqa: F401
    import psutil  # noqa: F401
    import pytest  # noqa: F401
    import urllib3  # noqa: F401
    import yaml  # noqa: F401

    mine = [name for name in sys.modules if name.partition(".")[0] == "shmcache"]
    assert not mine, mine


class _First:
    """A plugin of pytest: writes the first failed test into a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self._pipe, report.nodeid.encode())


def run_tests(tests: list[str], seconds: float) -> Outcome:
    """Runs tests in a child, up to the first that fails, no longer than this."""
    if not tests:
        return Outcome(passed=True, killer="")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(tests, writer)
    os.close(writer)
    ended = _wait(child, time.monotonic() + seconds)
    with os.fdopen(reader, "rb") as pipe:
        os.set_blocking(reader, False)
        killer = (pipe.read() or b"").decode()
    return Outcome(passed=ended == 0, killer=killer)


def _child(tests: list[str], pipe: int) -> NoReturn:
    status = 70
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for place in (0, 1, 2):
            os.dup2(quiet, place)
        import pytest

        options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:shmcache",
                   "-W", "ignore::pytest.PytestAssertRewriteWarning"]  # fmt: skip
        status = int(pytest.main([*options, *tests], plugins=[_First(pipe)]))
        if status in {4, 5}:  # the module cannot be imported, so that no test is found
            status = 1
    finally:
        os._exit(status)


def _wait(child: int, deadline: float) -> int:
    """The status of a child; its whole session is ended afterwards."""
    found, status = 0, 0
    while not found and time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if not found:
            time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not found:
        _, status = os.waitpid(child, 0)
    return status


def related(path: str) -> list[list[str]]:
    """Test files for a module: those that name it or its package, those of its folder, and all
    others."""
    module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    parts = module.split(".")
    package, name = ".".join(parts[:-1]), parts[-1]
    room = ROOT / "tests" / "unit" / (parts[1] if len(parts) > 2 else "no room")
    named: list[str] = []
    near: list[str] = []
    far: list[str] = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        packed = f"from {package} import" in text and len(parts) > 3
        about = module in text or f"from {package} import {name}" in text
        found = str(file.relative_to(ROOT))
        if "process" in file.parts:
            continue
        if packed or (about and room in file.parents):
            named.append(found)
        elif room in file.parents:
            near.append(found)
        elif about or ("conformance" in file.parts and parts[1] in {"protocol", "testing"}):
            far.append(found)
    return [group for group in (named, near, far) if group]


if __name__ == "__main__":
    sys.exit(main())
