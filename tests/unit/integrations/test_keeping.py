"""Invariant tested: a master replaces each keeper that died once, whenever its signals come, and is
root for nobody else."""

from __future__ import annotations

import os
from typing import Any

import pytest

from shmcache.integrations import gunicorn, keeper


class Dying:
    """A keeper that is found dead, while another SIGCHLD arrives."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        self.started = 0
        self.looks = 0

    def ended(self) -> bool:
        self.looks += 1
        found = self.deaths > self.started
        if found:
            gunicorn._look()  # the signal's handler, before the answer is used
        return found

    def renew(self) -> None:
        gunicorn._look()
        self.started += 1


@pytest.mark.parametrize("deaths", [0, 1, 3])
def test_a_signal_in_the_middle_of_a_look_neither_loses_nor_doubles_a_start(
    deaths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying: Any = Dying(deaths)
    monkeypatch.setattr(gunicorn, "_master", os.getpid())
    monkeypatch.setattr(gunicorn, "_kept", {"web": dying})

    gunicorn._look()

    assert deaths == dying.started
    assert [] == gunicorn._looks


def test_a_worker_never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    dying: Any = Dying(1)
    monkeypatch.setattr(gunicorn, "_master", os.getpid() + 1)
    monkeypatch.setattr(gunicorn, "_kept", {"web": dying})

    gunicorn._look()
    gunicorn.release()

    assert 0 == dying.looks


def test_the_hooks_are_those_of_gunicorn_and_start_nothing_by_themselves() -> None:
    from gunicorn.config import Config

    made = gunicorn.hooks("pods", name="web")

    settings = Config().settings
    for name, hook in made.items():
        settings[name].set(hook)  # gunicorn checks how many arguments each takes
    assert {} == gunicorn._kept
    del os.environ["SHMCACHE_NAME"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_keeper_of_root_becomes_the_workers_user() -> None:
    child = os.fork()
    if not child:
        try:
            keeper.become(65534, 65534)
            same = os.getresuid() == (65534,) * 3 and os.getresgid() == (65534,) * 3
            os._exit(0 if same and 0 not in os.getgroups() else 1)
        finally:
            os._exit(2)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
