"""Runs tests against one mutant after the other, in a copy of the project.

Tests run in children of one process that has imported what they need except shmcache. Compiled
files are made once, for all children; the file of a mutant gets a time of its own, so that no
compiled one stands for it. Processes, memory and files that a child leaves behind go with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    import pytest
    from mutation_map import TestMap
    from pymutants import Mutant

FOLDERS = ("shmcache", "tests", "examples", "docs", "csrc", "deploy", "benchmarks")
FILES = ("*.md", "*.toml", "*.cfg", "setup.py", "Makefile")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "seeds")
PATIENCE = 6.0
LEAST_SECONDS = 20.0
"""A run has noticed the mutant, as it hangs, if it takes so many times as long as usual, and at
least so many seconds."""
GROUPS = ((8, 2.0), (40, 6.0), (200, 20.0))
"""Tests of a mutant run in groups of so many, or so many seconds: most mutants die in the first."""
MOST_BYTES = 6 << 30
"""For the data of one child."""
COLLECTED = ("tests/unit", "tests/conformance", "tests/peers", "tests/model")
PASSED = 42
"""The status of a child whose tests have passed: a mutant may end its process with 0."""
PR_SET_CHILD_SUBREAPER = 36


def copies(source: Path, room: Path, count: int) -> list[Path]:
    """So many copies of a project, with their compiled files."""
    first = room / "1"
    for part in [source / name for name in FOLDERS]:
        shutil.copytree(part, first / part.name, ignore=LEFT_OUT)
    for part in [file for pattern in FILES for file in source.glob(pattern)]:
        shutil.copy2(part, first)
    with _inside(first):
        run_tests(["--collect-only", *COLLECTED], 600.0, compiling=True)
    others = [room / str(number) for number in range(2, count + 1)]
    for other in others:
        shutil.copytree(first, other)
    return [first, *others]


@contextlib.contextmanager
def _inside(room: Path) -> Iterator[None]:
    before = os.getcwd()
    _enter(room)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(room))


def _enter(room: Path) -> None:
    os.environ.update(PYTHONPATH=str(room), PYTHONDONTWRITEBYTECODE="1")
    os.chdir(room)
    sys.path.insert(0, str(room))
    _import_what_tests_need()


class Outcome(NamedTuple):
    """How a group of tests ended."""

    passed: bool
    killer: str
    """The first test that failed; "" if none did, or if the run was ended."""
    late: bool = False


class Killing:
    """A copy of the project, its tests, and what is known of them. In a process of its own."""

    def __init__(self, room: Path, tests: TestMap, budget: float) -> None:
        """`budget`: seconds of tests for each mutant."""
        self._room = room
        self._map = tests
        self.budget = budget
        self._sound: dict[str, bool] = {}

    def begin(self) -> None:
        """In the process that is to run the tests."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _enter(self._room)
        gc.collect()
        gc.freeze()  # tests collect garbage now and then: not among the objects of this process

    def fate(self, mutant: Mutant) -> tuple[str, str]:
        """Whether tests notice it, and the first that does."""
        groups = list(self._groups(mutant))
        for group in groups:
            outcome = self._outcome(mutant, group)
            if not outcome.passed:
                return ("hangs" if outcome.late else "killed"), outcome.killer or group[0]
        return ("SURVIVES", "") if groups else ("unreached", "")

    def _outcome(self, mutant: Mutant, tests: list[str]) -> Outcome:
        """Of these tests; those that fail without the mutant are left out."""
        while tests:
            with self._mutated(mutant):
                outcome = run_tests(tests, self._limit(tests))
            if outcome.passed:
                return outcome
            if outcome.killer:
                if self._is_sound(outcome.killer) and self._fails_again(mutant, [outcome.killer]):
                    return outcome
                tests = [test for test in tests if test != outcome.killer]
                continue
            begun = time.monotonic()
            if not self._passes(tests):
                print(f"     {len(tests)} tests are late or fail without a mutant", flush=True)
                tests = tests[: len(tests) // 2]
                continue
            # The module cannot be imported, or hangs; or the machine was busy.
            if self._fails_again(mutant, tests, PATIENCE * (time.monotonic() - begun)):
                return outcome
            break
        return Outcome(passed=True, killer="")

    @contextlib.contextmanager
    def _mutated(self, mutant: Mutant) -> Iterator[None]:
        file = self._room / mutant.path
        whole, times = file.read_bytes(), file.stat()
        file.write_text(mutant.source, encoding="utf-8")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 3600 * 10**9))
        try:
            yield
        finally:
            file.write_bytes(whole)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _is_sound(self, test: str) -> bool:
        """Whether a test passes without any mutant."""
        if test not in self._sound:
            self._sound[test] = self._passes([test])
            if not self._sound[test]:
                print(f"     {test} fails without a mutant: left out", flush=True)
        return self._sound[test]

    def _passes(self, tests: list[str]) -> bool:
        """Whether all of them do, in time."""
        return run_tests(tests, self._limit(tests)).passed

    def _fails_again(self, mutant: Mutant, tests: list[str], seconds: float = 0.0) -> bool:
        """Whether tests that failed with the mutant, or were late, did not so by chance."""
        with self._mutated(mutant):
            return not run_tests(tests, max(seconds, self._limit(tests))).passed

    def _limit(self, tests: list[str]) -> float:
        usual = sum(self._map.seconds.get(test, 1.0) for test in tests)
        return max(LEAST_SECONDS, PATIENCE * usual)

    def _groups(self, mutant: Mutant) -> Iterator[list[str]]:
        source = (self._room / mutant.path).read_text(encoding="utf-8")
        tests = [test for test in self._map.reaching(mutant.path, mutant.line, source)
                 if self._sound.get(test, True)]  # fmt: skip
        sizes = list(GROUPS)
        spent = 0.0
        while tests and spent < self.budget:
            most, seconds = sizes.pop(0) if len(sizes) > 1 else sizes[0]
            group: list[str] = []
            used = 0.0
            while tests and len(group) < most and used < seconds and spent + used < self.budget:
                group.append(tests.pop(0))
                used += self._map.seconds[group[-1]]
            spent += used
            yield group


def _import_what_tests_need() -> None:
    """Imports everything but the project, so that a forked child begins with the tests."""
    import asyncio  # noqa: F401
    import concurrent.futures  # noqa: F401
    import http.client  # noqa: F401

    import cffi  # noqa: F401
    import hypothesis.stateful  # noqa: F401
    import orjson  # noqa: F401
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
            os.write(self._pipe, report.nodeid.encode() + b"\0")


def run_tests(tests: list[str], seconds: float, *, compiling: bool = False) -> Outcome:
    """Runs tests in a child, up to the first that fails, no longer than this.

    `compiling`: compiled files are kept.
    """
    if not tests:
        return Outcome(passed=True, killer="")
    before = set(psutil.Process().children())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(tests, writer, compiling=compiling)
    os.close(writer)
    ended = _wait(child, time.monotonic() + seconds)
    _clear_away(child, before)
    with os.fdopen(reader, "rb") as pipe:
        os.set_blocking(reader, False)
        killer = (pipe.read() or b"").decode().partition("\0")[0]  # its teardown may fail, too
    return Outcome(passed=ended == PASSED << 8, killer=killer, late=ended is None and not killer)


def _child(tests: list[str], pipe: int, *, compiling: bool) -> NoReturn:
    status = 70
    try:
        os.setsid()
        sys.dont_write_bytecode = not compiling
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        quiet = os.open(os.devnull, os.O_RDWR)
        for place in (0, 1, 2):
            os.dup2(quiet, place)
        import pytest

        options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:shmcache",
                   f"--basetemp={_files_of(os.getpid())}",
                   "-W", "ignore::pytest.PytestAssertRewriteWarning"]  # fmt: skip
        status = int(pytest.main([*options, *tests], plugins=[_First(pipe)]))
        if status == 0:
            status = PASSED
    finally:
        os._exit(status)


def _files_of(child: int) -> Path:
    return Path(tempfile.gettempdir(), f"mutant-{child}")


def _wait(child: int, deadline: float) -> int | None:
    """The status of a child; None: it was ended at the deadline. Its session ends with it."""
    found, status = 0, 0
    while not found and time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if not found:
            time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if found:
        return status
    os.waitpid(child, 0)
    return None


def _clear_away(child: int, before: set[psutil.Process]) -> None:
    """Ends the processes that a child has left behind, which have become ours, and their files."""
    while left := [one for one in psutil.Process().children() if one not in before]:
        for one in left:
            one.kill()
        psutil.wait_procs(left, 5.0)
    for file in Path("/dev/shm").glob(f"*test-{child}-*"):  # noqa: S108 - names of caches
        file.unlink(missing_ok=True)
    shutil.rmtree(_files_of(child), ignore_errors=True)
