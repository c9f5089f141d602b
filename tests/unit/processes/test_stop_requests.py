"""Invariant tested: requests to end that come together are one; a later one insists."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from shmcache.processes.stop_requests import AGAIN_SECONDS, StopRequests

JUST_BEFORE = AGAIN_SECONDS * 0.999


@pytest.mark.parametrize(
    ("moments", "insists"),
    [
        ([5.0], [False]),
        ([5.0, 5.0, 5.0], [False, False, False]),
        ([5.0, 5.0 + JUST_BEFORE], [False, False]),
        ([5.0, 5.0 + AGAIN_SECONDS], [False, True]),
        ([0.0, 0.5, JUST_BEFORE, AGAIN_SECONDS], [False, False, False, True]),
    ],
)
def test_only_a_later_request_insists(moments: list[float], insists: list[bool]) -> None:
    clock = iter(moments)
    requests = StopRequests(clock=lambda: next(clock))

    assert insists == [requests.insists() for _ in moments]


ENDING = """
import signal, time
from shmcache.engine.service import Signals

class Slow:
    def __del__(self, sleep=time.sleep):
        print("ending", flush=True)
        sleep(SECONDS)

Signals().install()
slow = Slow()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_whose_work_is_done_keeps_its_status(number: signal.Signals) -> None:
    """STOP3: its globals go after Python has given up the handlers of signals."""
    code = ENDING.replace("SECONDS", "1")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ending\n"
        process.send_signal(number)
        assert process.wait(60) == 0
