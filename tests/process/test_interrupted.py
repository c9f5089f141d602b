"""Invariant tested: wherever a signal's handler raises inside the writer, the next call works: no
batch stays open, no lock stays locked, and published content is whole (G8). Wherever one raises
inside attach(), nothing stays open (OWNED1, OWNED2)."""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import shmcache

PATIENCE = 60.0


class Alarm(Exception):
    """Raised by the handler, once each time it is armed."""


armed = [False]


def ring(*_: object) -> None:
    if armed[0]:
        armed[0] = False
        raise Alarm


@pytest.fixture
def alarms() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def work(writer: shmcache.Writer, number: int) -> None:
    """Operations that can be interrupted: both ways of putting, a nested batch, a deletion."""
    with writer.batch():
        for name in ("a", "b"):
            writer.put("pods", name, {"n": number, "pad": [number] * 50})
    writer.put("pods", "single", {"n": number})
    writer.delete("pods", "single")


def interruptions(work: Callable[[], object], often: int, rng: random.Random) -> Iterator[None]:
    """Does the work until it was interrupted so often; yields after each time.

    The alarm comes within the time that the work took the last time that it came to its end.
    """
    interrupted, took = 0, 1e-4
    deadline = time.monotonic() + PATIENCE
    while interrupted < often:
        assert time.monotonic() < deadline, f"interrupted {interrupted} times"
        start, ended = time.perf_counter(), False
        try:
            armed[0] = True
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(5e-6, took))
            work()
            armed[0] = False
            ended = True
        except Alarm:
            interrupted += 1
        if ended:
            took = max(2e-5, time.perf_counter() - start)
        yield  # the exception is gone: until then its traceback may hold the lock


@pytest.mark.slow
@pytest.mark.usefixtures("alarms")
def test_an_exception_at_any_moment_leaves_nothing_stuck(name: str, rng: random.Random) -> None:
    numbers = itertools.count()
    with shmcache.Writer(name, ["pods"]) as writer, shmcache.attach(name) as cache:
        for _ in interruptions(lambda: work(writer, next(numbers)), 200, rng):
            with cache.snapshot() as at:  # a and b always belong to one batch
                assert len({at["pods"][key]["n"] for key in ("a", "b") if key in at["pods"]}) <= 1
            generation = cache.latest
            number = next(numbers)
            writer.put("pods", "after", {"n": number})
            assert cache.latest == generation + 1
            assert number == cache["pods"]["after"]["n"]
        writer.check()


@pytest.mark.usefixtures("alarms")
def test_an_interrupted_replacement_refuses_no_later_one(name: str, rng: random.Random) -> None:
    """Wherever the exception hits, also between the beginning of a share and its first object."""
    number = 0

    def content() -> list[dict[str, Any]]:
        return [{"metadata": {"name": f"p{n}", "uid": f"u{n}"}, "n": number} for n in "abc"]

    with shmcache.Writer(name, ["pods"]) as writer:
        for _ in interruptions(lambda: writer.replace("pods", content()), 100, rng):
            number += 1
            writer.replace("pods", content())
        writer.check()


class Before:
    """Raises Alarm once, before so many instructions of Python, as a handler could."""

    def __init__(self, instructions: int) -> None:
        self.left = instructions

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise Alarm
        return self


def interrupted(name: str, instructions: int, timeout: float | None) -> bool:
    """Whether attach() was interrupted before so many instructions."""
    before, hook = sys.gettrace(), sys.unraisablehook
    unraisable: list[object] = []
    sys.unraisablehook = lambda args: unraisable.append(args.exc_type)  # in the code of close()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 heeds it only if it precedes settrace()
    sys.settrace(Before(instructions))
    try:
        shmcache.attach(name, timeout=timeout).close()
    except Alarm:
        return True
    finally:
        sys.settrace(before)
        sys.unraisablehook = hook
    return unraisable == [Alarm]


def opened() -> tuple[set[str], int]:
    """Descriptors, and the number of maps of caches."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = sum("shmcache-v" in line for line in maps)
    return set(os.listdir("/proc/self/fd")), mapped


@pytest.mark.slow
@pytest.mark.parametrize(("timeout", "step"), [(None, 1), (PATIENCE, 7)], ids=["now", "later"])
def test_an_attach_that_is_interrupted_anywhere_leaves_nothing_open(
    writer: shmcache.Writer, timeout: float | None, step: int, rng: random.Random
) -> None:
    """Before each of its instructions in turn, also those that give back what was opened; of the
    longer way each seventh, since closing an inotify waits for the kernel."""
    with shmcache.attach(writer.name, timeout=PATIENCE) as cache:  # imports, and the fork word
        seat = cache.seat
    gc.collect()
    fds, mapped = opened()
    for instructions in itertools.count(rng.randrange(1, 1 + step), step):
        if not interrupted(writer.name, instructions, timeout):
            break
        found, maps = opened()
        assert found <= fds, f"descriptors are left before instruction {instructions}"
        assert maps <= mapped, f"maps are left before instruction {instructions}"
    assert instructions > 500, f"only {instructions} instructions were interrupted"
    with shmcache.attach(writer.name) as cache:
        assert seat == cache.seat
