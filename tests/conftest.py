"""Fixtures of all tests: a cache of its own that leaves nothing behind, and repeatable randomness.

Random tests take their seed from SEED= and print it. Where CI=true, a skipped test has failed.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

import shmcache
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX, Place

SEED = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
MINE = f"test-{os.getpid()}-"
IN_CI = os.environ.get("CI") == "true"

_numbers = itertools.count(1)

OF_TESTS = ("EXAMPLES", "TRACES", "HISTORY", "PORTABLE", "TEST_JOURNAL")
OF_CLUSTERS = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
# The settings and the cluster of the user who runs the tests reach none of their processes.
for _variable in [*os.environ]:
    _prefix, _, _setting = _variable.partition("SHMCACHE_")
    if _variable in OF_CLUSTERS or (not _prefix and _setting and _setting not in OF_TESTS):
        del os.environ[_variable]

# A shell that starts pytest in the background makes it, and the processes of tests, ignore these.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(
            _number,
            signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL,
        )


def pytest_report_header() -> str:
    return f"shmcache: SEED={SEED}" + (", a skip is a failure" if IN_CI else "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    return _failed_if_skipped(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    return _failed_if_skipped(report)


def _failed_if_skipped(report: Any) -> Any:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nothing of ours may be left in shared memory."""
    left = SharedMemory().names(PREFIX + MINE)
    for file in left:
        SharedMemory().unlink(file)
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\nFAILED: left behind in /dev/shm: {', '.join(left)}")  # noqa: T201


@pytest.fixture(scope="module", autouse=True)
def _leaks_fail_their_own_file() -> Iterator[None]:
    """Resources that a file leaves open are reported at its last test, not in an unrelated one."""
    yield
    gc.collect()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers that SEED= repeats, others in each test."""
    return random.Random(f"{SEED} {request.node.nodeid}")


@pytest.fixture
def name() -> Iterator[str]:
    """The name of a cache that is not there before, nor afterwards."""
    unique = f"{MINE}{next(_numbers)}-{random.SystemRandom().getrandbits(32):08x}"
    yield unique
    Place(unique).unlink()


@pytest.fixture
def writer(name: str) -> Iterator[shmcache.Writer]:
    """A small cache with pods, indexed by node, and nodes. Checked at the end if still open."""
    pods = shmcache.Resource("pods", {"node": "spec.nodeName"})
    with shmcache.Writer(name, [pods, "nodes"], arena_max="256MiB", ring_slots=1024) as made:
        yield made
        if not made.closed:
            made.check()


@pytest.fixture
def cache(writer: shmcache.Writer) -> Iterator[shmcache.Cache]:
    """The writer's cache, attached in this process."""
    with shmcache.attach(writer.name) as attached:
        yield attached


@pytest.fixture
def roundtrip(writer: shmcache.Writer, cache: shmcache.Cache) -> Callable[[Any], shmcache.View]:
    """Puts any dict and returns the view of what was stored."""
    keys = (f"prod/object-{n}" for n in itertools.count())

    def put_and_get(obj: Any) -> shmcache.View:
        key = next(keys)
        writer.put("pods", key, obj)
        return cache["pods"][key]

    return put_and_get
