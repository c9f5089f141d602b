"""Invariant tested: a process that waits for its cache logs the cause of the delay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import shmcache
from shmcache import integrations, states
from shmcache.integrations import gunicorn


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has attached to nothing yet, and takes short turns."""
    caches: dict[str, shmcache.Cache] = {}
    monkeypatch.setattr(integrations, "_caches", caches)
    monkeypatch.setattr(integrations, "_asked", set())
    monkeypatch.setattr(integrations, "_TURN_SECONDS", 0.01)
    yield
    for cache in caches.values():
        cache.close()


def test_a_missing_cache_is_logged_once_while_its_reflector_is_awaited(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(shmcache.SegmentNotFound):
        integrations.attached(name, wait=0.1)

    [told] = caplog.messages
    assert told == f"cache {name}: waiting for its reflector, `shmcache run`, 0.1 s at most"


def test_first_lists_that_are_missing_are_logged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with shmcache.Writer(name, resources=["pods"]):
        assert not integrations.attached(name, wait=0.1)["pods"].synced

    [told] = caplog.messages
    assert told == f"cache {name}: waiting for its first lists, 0.1 s at most"


def test_a_worker_of_gunicorn_that_has_waited_long_enough_logs_what_is_missing(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    worker = SimpleNamespace(notify=lambda: None, ppid=os.getppid())
    gunicorn.await_content(name, 0.1, worker)
    assert "no cache" in caplog.messages[-1]
    with shmcache.Writer(name, resources=["pods", "nodes"]) as writer:
        writer.set_state("nodes", states.SYNCED, "1")
        writer.set_state("pods", states.RETRYING, reason="403 Forbidden")
        caplog.clear()
        gunicorn.await_content(name, 0.1, worker)

    [told] = [one for one in caplog.messages if "after" in one]
    assert told == "shmcache: after 0.1 s: no first list of pods: retrying, 403 Forbidden"


def test_a_worker_of_gunicorn_whose_master_has_gone_waits_no_longer(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("os._exit", leave)
    worker = SimpleNamespace(notify=lambda: None, ppid=os.getppid() + 1)
    with pytest.raises(SystemExit) as ended:
        gunicorn.await_content(name, 20, worker)
    assert ended.value.code == 0


def test_a_full_cache_is_attached_to_without_a_word(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with shmcache.Writer(name, resources=["pods"]) as writer:
        writer.set_state("pods", states.SYNCED, "1")
        assert len(integrations.attached(name)["pods"]) == 0

    assert caplog.messages == []
