"""The service manager hears how we are, and whatever became of it stops nothing."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from shmcache.engine import notify as module
from shmcache.engine.notify import notify

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(str(tmp_path / "notify"))
    made.settimeout(30)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    return made


def test_the_manager_receives_the_lines(manager: socket.socket) -> None:
    with manager:
        assert notify("READY=1", "STATUS=well")
        assert manager.recv(100) == b"READY=1\nSTATUS=well"


def test_without_a_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")


@pytest.mark.parametrize("address", ["/nowhere/notify", "@nobody", "/" + "x" * 200, "/dev/null"])
def test_a_manager_that_is_not_there_stops_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)

    assert not notify("READY=1")
    assert "no message to the manager: " in caplog.text


def test_a_manager_that_takes_nothing_stops_nothing(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.05)
    with manager:
        while notify("STATUS=again"):
            pass  # until its queue is full
        assert manager.recv(100) == b"STATUS=again"
        assert notify("STATUS=again")
