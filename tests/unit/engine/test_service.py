"""Invariant tested: a signal drains, its repetition at the same moment is the same one, and a later
signal ends the process at once.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from shmcache.engine.config import load
from shmcache.engine.service import Signals, _settings_of
from shmcache.processes.stop_requests import AGAIN_SECONDS
from shmcache.testing import ManualClock


def test_kube_among_several_servers_has_the_kubeconfig_that_was_given() -> None:
    flags = {
        "resources": {"pods": {}},
        "server": ["http://relay:1", "kube"],
        "server_token_file": "/token",
        "kubeconfig": "/kubeconfig",
        "context": "prod",
    }
    relay, kube = (_settings_of(load(None, flags, {}), url) for url in flags["server"])

    assert (relay.url, relay.token_file, relay.kubeconfig) == ("http://relay:1", "/token", None)
    assert (kube.url, kube.token_file) == (None, None)
    assert (kube.kubeconfig, kube.context) == ("/kubeconfig", "prod")


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
