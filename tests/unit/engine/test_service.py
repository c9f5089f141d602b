"""Invariant tested: a signal drains, its repetition at the same moment is the same one, and a later
signal ends the process at once.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from shmcache.engine.service import Signals
from shmcache.processes.stop_requests import AGAIN_SECONDS
from shmcache.testing import ManualClock


def test_only_a_later_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ended = ManualClock(), list[int]()
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(os, "_exit", ended.append)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    sighup = signal.getsignal(signal.SIGHUP)
    signals = Signals()
    try:
        signals.install()
        assert not signals.drain.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert signals.drain.is_set()
        clock.advance(AGAIN_SECONDS / 2)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert [] == ended
        clock.advance(AGAIN_SECONDS / 2)
        signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in {**before, signal.SIGHUP: sighup}.items():
            signal.signal(number, handler)

    assert [128 + signal.SIGINT] == ended
