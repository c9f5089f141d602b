"""How long does a test wait for an API server, a reflector and an attached cache of its own?

pytest runs, in a process of its own, tests that use the fixture `shmcache_cache` of the plugin, and
as many that use `shmcache_server` alone; it reports how long the fixtures of each test took. The
first test also imports what they need.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.harness import Row, show_ns
from benchmarks.scenes.children import Children, Pipe

TESTS = """
import pytest

@pytest.mark.shmcache("pods", objects=[
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "prod"}}])
@pytest.mark.parametrize("number", range(COUNT))
def test_it(FIXTURE, number):
    assert LOOK
"""
CACHE = ("shmcache_cache", "shmcache_cache['pods']['prod/web-0'].metadata.name == 'web-0'")
SERVER = ("shmcache_server", "shmcache_server.list('pods', 'prod')")
FIRST_NS, NEXT_NS = 300e6, 5e6


def run(quick: bool) -> list[Row]:
    turns, count = (1, 6) if quick else (5, 41)
    setups: dict[str, list[list[float]]] = {"cache": [], "server": []}
    ends: list[float] = []
    for _ in range(turns):
        for what, (fixture, look) in (("cache", CACHE), ("server", SERVER)):
            text = TESTS.replace("FIXTURE", fixture).replace("LOOK", look)
            with Children(_tests, [(text.replace("COUNT", str(count)),)]) as children:
                ((setup, teardown),) = children.receive()
            setups[what].append(setup)
            if what == "cache":
                ends += teardown
    first = {what: statistics.median(each[0] for each in turn) for what, turn in setups.items()}
    later = {
        what: statistics.median(took for each in turn for took in each[1:])
        for what, turn in setups.items()
    }
    return [
        Row(
            question="API server, reflector and attached cache: the first test",
            ours=show_ns(first["cache"]),
            peer=f"the API server alone {show_ns(first['server'])}",
            must=f"≤ {show_ns(FIRST_NS)}",
            met=first["cache"] <= FIRST_NS,
        ),
        Row(
            question="the same, each further test",
            ours=show_ns(later["cache"]),
            peer=f"the API server alone {show_ns(later['server'])}",
            must=f"≤ {show_ns(NEXT_NS)}",
            met=later["cache"] <= NEXT_NS,
            note=f"the end of such a test takes {show_ns(statistics.median(ends))}",
        ),
    ]


class _Noted:
    """A plugin of pytest that notes how long fixtures begin and end, in nanoseconds."""

    def __init__(self) -> None:
        self.setup: list[float] = []
        self.teardown: list[float] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            raise AssertionError(str(report.longrepr))
        if report.when != "call":
            {"setup": self.setup, "teardown": self.teardown}[report.when].append(
                report.duration * 1e9
            )


def _tests(pipe: Pipe, text: str) -> None:
    noted = _Noted()
    with tempfile.TemporaryDirectory() as home:
        place = Path(home) / "test_it.py"
        place.write_text(text)
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            status = pytest.main(
                ["-q", "-p", "no:cacheprovider", f"--rootdir={home}", str(place)], plugins=[noted]
            )
    if status:
        raise AssertionError(f"pytest ended with {status!r}")
    pipe.answer((noted.setup, noted.teardown))


if __name__ == "__main__":
    harness.main(__doc__, run)
