"""Invariant tested: the reflector waits for the recorder's process at its end, and not for long
(RECCHILD2).
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from workers import PATIENCE, eventually

from shmcache.engine.recorder_child import RecorderChild

STUBBORN = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
while True:
    signal.pause()
"""
ORDERLY = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
pathlib.Path(sys.argv[1]).touch()
while True:
    signal.pause()
"""


@pytest.mark.parametrize(("program", "killed"), [(STUBBORN, True), (ORDERLY, False)])
def test_a_recorder_that_does_not_end_is_killed_with_a_warning_recchild2(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, program: str, *, killed: bool
) -> None:
    begun = tmp_path / "begun"
    child = RecorderChild([])
    child._command = [sys.executable, "-c", program, str(begun)]
    child.start()
    eventually(begun.exists, "the process does not begin")
    assert child.pid
    try:
        with caplog.at_level(logging.WARNING):
            child.stop(0.2 if killed else PATIENCE)
    except BaseException:
        child._signal("kill")
        raise
    words = [record.getMessage() for record in caplog.records]
    assert words == killed * ["the recorder has not ended within 0.2 s: it is killed"]
    assert 0 == child.pid
