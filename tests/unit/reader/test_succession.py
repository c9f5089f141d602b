"""Invariant tested: between two writers a sleeper looks for the next one when the kernel reports
that it may be there, and seldom otherwise."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import shmcache
from shmcache.memory.inotify import Notice
from shmcache.memory.segments import Place
from shmcache.reader import succession
from shmcache.reader.succession import Succession


@pytest.fixture
def over(name: str) -> tuple[Any, Succession]:
    """The reader of an instance whose writer has ended, and its succession."""
    with shmcache.Writer(name, ["pods"], arena_max="64MiB"):
        cache = shmcache.attach(name)
    return cache._reader, Succession(cache._place)


def sleeps(times: int) -> Any:
    """Whether a wait is to end: after so many sleeps."""
    count = itertools.count()
    return lambda: next(count) >= times


def test_a_sleeper_that_nothing_notifies_looks_once(
    over: tuple[Any, Succession], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, one = over
    looks = []
    monkeypatch.setattr(Notice, "wait", lambda *_: False)
    monkeypatch.setattr(Place, "named", lambda _: looks.append(1))
    assert not one.wait(old, None, sleeps(50))
    assert 1 == len(looks)


def test_a_sleeper_looks_at_times_though_nothing_notifies_it(
    name: str, over: tuple[Any, Succession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory may have been replaced, which its watch does not report."""
    old, one = over
    monkeypatch.setattr(Notice, "wait", lambda *_: False)
    monkeypatch.setattr(succession, "_SURE_SECONDS", 0.001)
    with shmcache.Writer(name, ["pods"], arena_max="64MiB") as after:
        real, before = Place.named, itertools.count()
        late = lambda place: real(place) if next(before) >= 3 else None  # noqa: E731
        monkeypatch.setattr(Place, "named", late)
        assert one.wait(old, 20, lambda: False)
        assert after.name == name


def test_a_sleeper_looks_again_soon_after_a_refusal(
    name: str, over: tuple[Any, Succession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next instance is there already: nothing is named later."""
    old, one = over
    with shmcache.Writer(name, ["pods"], arena_max="64MiB") as after:
        one._refuse(Place(name).current().data, OSError("no descriptor is left"))
        monkeypatch.setattr(succession, "_SURE_SECONDS", 3600.0)
        monkeypatch.setattr(Notice, "wait", lambda *_: False)
        assert one.wait(old, 20, lambda: False)
        assert after.name == name
