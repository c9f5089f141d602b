"""Invariant tested: a probe says 0 exactly when what it asks for is so, and else why not."""

from __future__ import annotations

import pytest

import shmcache
from shmcache import states
from shmcache.integrations import probe


def test_a_cache_is_full_when_every_resource_was_listed(
    writer: shmcache.Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == probe.main(["--full", writer.name])
    writer.set_state("pods", states.SYNCED)
    capsys.readouterr()

    assert 1 == probe.main(["--full", writer.name])
    said = capsys.readouterr().err
    assert said.startswith("nodes: ")
    assert "pods" not in said
    writer.set_state("nodes", states.SYNCED)

    assert 0 == probe.main(["--full", writer.name])
    assert "" == capsys.readouterr().err


def test_a_writer_is_alive_while_it_does_its_duties(
    writer: shmcache.Writer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with shmcache.attach(writer.name) as cache:
        assert 0.0 <= probe.silence(cache) < probe.ALIVE_SECONDS
    assert 0 == probe.main(["--alive", writer.name])
    monkeypatch.setattr(probe, "ALIVE_SECONDS", -1.0)

    assert 1 == probe.main(["--alive", writer.name])
    assert "the reflector did nothing for" in capsys.readouterr().err


def test_where_there_is_no_cache_it_is_said(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == probe.main([name])
    assert name in capsys.readouterr().err
