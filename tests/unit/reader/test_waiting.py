"""Invariant tested: a Reader's own wait() ends for its reasons alone and reports which it was; the
maps stay until the last sleeper has left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import shmcache
from shmcache import _hot
from shmcache._native import check, ffi, lib
from shmcache.reader import holding, waiting
from shmcache.reader.attachment import Attachment

AGES = 60.0
"""Longer than any test takes: a wait of that length has missed something."""
ALL = waiting.EVERYTHING


class _FromUnlessError(Exception):
    pass


@pytest.fixture
def reader(cache: shmcache.Cache) -> _hot.Reader:
    return cache.reader


def await_sleep(writer: shmcache.Writer, seat: int) -> None:
    """Returns when a thread sleeps on the seat, or is about to."""
    info = ffi.new("struct shmc_seat_info *")
    deadline = time.monotonic() + AGES
    while not info.asleep:
        assert time.monotonic() < deadline, "no thread fell asleep"
        seats = writer._handle.mapped.seats
        check(lib.shmc_seat_info(seats, seat, info), "looking at a seat")


def ring(reader: _hot.Reader) -> None:
    """As close() and wake() do."""
    held = holding.attachment(reader)
    try:
        lib.shmc_wake_self(held.use())
    finally:
        held.leave()


def test_it_returns_whether_a_change_came(writer: shmcache.Writer, reader: _hot.Reader) -> None:
    latest = reader.latest
    assert reader.wait(ALL, 0, latest, 0, None) is False
    assert reader.wait(ALL, 0, latest, -1.5, None) is False
    writer.put("pods", "a", {})
    assert reader.wait(ALL, 0, latest, None, None) is True
    assert reader.wait(ALL, 0, reader.latest, 0.001, None) is False
    nodes = waiting.bits([1])
    assert reader.wait(nodes, 0, latest, 0, None) is False
    assert reader.wait(0, ALL, latest, 0, None) is False  # no version, no state


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        ((ALL, 0, 0, None), TypeError),
        ((ALL, 0, 0, None, None, None), TypeError),
        (("1", 0, 0, None, None), TypeError),
        ((ALL + 1, 0, 0, None, None), OverflowError),
        ((ALL, -1, 0, None, None), OverflowError),
        ((ALL, 0, 1.5, None, None), TypeError),
        ((ALL, 0, 0, "1", None), TypeError),
        ((ALL, 0, 0, float("nan"), None), ValueError),
        ((ALL, 0, 0, float("inf"), None), OverflowError),
        ((ALL, 0, 0, 10**400, None), OverflowError),
        ((ALL, 0, 0, 1, 5), TypeError),
    ],
)
def test_wrong_arguments_are_refused(
    reader: _hot.Reader, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        reader.wait(*arguments)
    assert reader.wait(ALL, 0, reader.latest, 0, None) is False  # it still works


def test_unless_is_called_before_the_sleep(reader: _hot.Reader) -> None:
    def fail() -> bool:
        raise _FromUnlessError

    assert reader.wait(ALL, 0, reader.latest, AGES, lambda: True) is False
    with pytest.raises(_FromUnlessError):
        reader.wait(ALL, 0, reader.latest, AGES, fail)


def test_a_ring_between_unless_and_the_sleep_is_not_lost(reader: _hot.Reader) -> None:
    def ring_and_go_on() -> bool:
        ring(reader)
        return False

    assert reader.wait(ALL, 0, reader.latest, AGES, ring_and_go_on) is False


def test_closing_before_the_sleep_is_noticed(cache: shmcache.Cache, reader: _hot.Reader) -> None:
    def close_and_go_on() -> bool:
        cache.close()
        return False

    with pytest.raises(shmcache.ClosedError, match=cache.name):
        reader.wait(ALL, 0, reader.latest, AGES, close_and_go_on)
    assert reader.owner is None
    assert reader.wait(ALL, 0, 0, AGES, None) is None
    with pytest.raises(shmcache.ClosedError):
        waiting.elsewhere(reader, AGES)


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """The result or the exception of the call, once the thread has ended."""
    ended: list[object] = []

    def run() -> None:
        try:
            ended.append(call())
        except shmcache.ClosedError as error:
            ended.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ended


def test_the_maps_stay_until_the_last_sleeper_has_left(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    reader = cache.reader
    held: Attachment = holding.attachment(reader)
    latest = reader.latest
    thread, ended = in_thread(lambda: reader.wait(ALL, 0, latest, None, None))
    await_sleep(writer, cache.seat)

    reader.close()  # without the ring of Cache.close(): it sleeps on
    assert reader.owner is held
    held.use()
    held.leave()
    writer.put("pods", "a", {})
    thread.join(AGES)

    assert ended == [f"cache {cache.name!r} was closed while a thread waited"]
    with pytest.raises(shmcache.ClosedError):
        held.use()
    assert reader.owner is None


def test_a_sleeper_pins_nothing(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    writer.put("pods", "a", {})
    assert "a" in cache["pods"]
    assert cache.reader.roots == 1
    assert cache.reader.wait(ALL, 0, cache.latest, 0, None) is False
    assert cache.reader.roots == 0


def test_a_seat_shows_its_slowest_busy_consumer(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """G35: the slowest of all if none is busy, and ended consumers do not count."""
    reader, info = cache.reader, ffi.new("struct shmc_seat_info *")

    def shown() -> tuple[int, int, int, int]:
        seats = writer._handle.mapped.seats
        check(lib.shmc_seat_info(seats, cache.seat, info), "looking at a seat")
        return int(info.cursor), int(info.busy), int(info.taken), int(info.lapped)

    assert shown() == (0, 0, 0, 0)
    for consumer in range(1, 9):
        reader.note(consumer, 10 * consumer, False, 0, 0)
    assert shown() == (11, 0, 0, 0)
    reader.note(5, 70, True, 3, 0)
    reader.note(7, 60, True, 4, 1)
    assert shown() == (61, 2, 7, 1)
    reader.forget(7)
    reader.forget(7)
    assert shown() == (71, 1, 7, 1)
    reader.note(5, 70, False, 0, 0)
    reader.forget(1)
    assert shown() == (21, 0, 7, 1)
    for consumer in range(2, 9):
        reader.forget(consumer)
    assert shown() == (0, 0, 7, 1)
    reader.note(1, -1, False, 0, 0)
    assert shown() == (1, 0, 7, 1)
    with pytest.raises(TypeError):
        reader.note(1, 2, True)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        reader.forget("1")  # type: ignore[arg-type]
    reader.close()
    reader.note(1, 2, True, 0, 0)
    reader.forget(1)
