"""Invariant tested: whatever is called in whatever order, two handles of one shared queue answer as
one plain client-go queue does (G28); a delay and an add lead to one hand-out, as
controller-runtime's.

Small: every slot is used, tickets suffice, and the order is exact. Grown: more keys than a level of
the index and a ring of tickets can hold, so that keys are spilled and the order within one priority
is open.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import ExitStack

import pytest
from conftest import MINE, SEED
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shmcache.errors import BusyError, QueueShutDown
from shmcache.memory.segments import Place
from shmcache.queue.queuefile import QueueFile
from shmcache.queue.workqueue import WorkQueue

EXAMPLES = int(os.environ.get("SHMCACHE_EXAMPLES") or 40)
KEYS = ["a", "b", "ns/c", "x" * 56, "x" * 57, "é" * 100, *(f"many/{n}" for n in range(90))]
CROWD = [f"crowd/{n}" for n in range(80)]
PRIORITIES = [-100, 0, 0, 0, 7]
SOON, LATE = 0.004, 3600.0

keys = st.sampled_from(KEYS[:6]) | st.sampled_from(KEYS)
parts = st.integers(0, 1)


class Plain:
    """The two sets and the queue of client-go, with controller-runtime's priorities."""

    def __init__(self) -> None:
        self.queued: list[tuple[str, int]] = []  # in the order of adding
        self.dirty: dict[str, int] = {}  # while in progress
        self.processing: dict[str, int] = {}  # by holder
        self.waiting: dict[str, tuple[float, int]] = {}
        self.requeues: Counter[str] = Counter()
        self.closing = False

    def known(self) -> set[str]:
        """Keys that need a slot."""
        return {
            *(key for key, _ in self.queued),
            *self.processing,
            *self.waiting,
            *(key for key, count in self.requeues.items() if count),
        }

    def add(self, key: str, priority: int) -> None:
        if self.closing:
            return
        if key in self.processing:
            self.dirty[key] = max(priority, self.dirty.get(key, priority))
            return
        for at, (queued, before) in enumerate(self.queued):
            if queued == key:
                if priority > before:  # it joins the end of the higher ones
                    del self.queued[at]
                    self.queued.append((key, priority))
                return
        self.queued.append((key, priority))

    def next(self) -> list[str]:
        """The keys of the highest priority, in order."""
        best = max((priority for _, priority in self.queued), default=0)
        return [key for key, priority in self.queued if priority == best]

    def comes(self, key: str) -> bool:
        """Whether it will be handed out in any case."""
        return key in self.dirty or any(key == queued for queued, _ in self.queued)

    def take(self, key: str, part: int) -> None:
        self.queued = [(queued, priority) for queued, priority in self.queued if queued != key]
        self.processing[key] = part
        self.waiting.pop(key, None)

    def done(self, key: str, part: int) -> None:
        if self.processing.get(key) != part:
            return
        del self.processing[key]
        if key in self.dirty:
            self.queued.append((key, self.dirty.pop(key)))

    def add_after(self, key: str, due: float, priority: int) -> None:
        if self.closing or self.comes(key):
            return
        before = self.waiting.get(key, (due, priority))
        self.waiting[key] = (min(due, before[0]), max(priority, before[1]))

    def fall_due(self) -> None:
        """Due times are either past or far in the future: see the rule."""
        due = sorted(
            (at, key, priority) for key, (at, priority) in self.waiting.items() if at < LATE
        )
        for _, key, priority in due:
            del self.waiting[key]
            self.add(key, priority)


class Queues(RuleBasedStateMachine):
    """Two handles of one queue, and the plain queue."""

    slots, ring = 64, 0

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.plain = Plain()

    @initialize()
    def open(self) -> None:
        place = Place(f"{MINE}model-{time.monotonic_ns()}")
        self.stack.callback(place.unlink)
        made = QueueFile(place, "model", (self.slots, self.ring, 4)).hot()
        self.parts = [
            self.stack.enter_context(
                WorkQueue(place, "model", rate=None, base_delay=LATE, max_delay=1e9)
            )
            for _ in range(2)
        ]
        made.close()

    def teardown(self) -> None:
        self.stack.close()

    def _has_room(self, key: str) -> bool:
        return (
            self.plain.closing or key in self.plain.known() or len(self.plain.known()) < self.slots
        )

    @rule(part=parts, key=keys, priority=st.sampled_from(PRIORITIES))
    def add(self, part: int, key: str, priority: int) -> None:
        if self._has_room(key):
            self.parts[part].add(key, priority, timeout=0)
            self.plain.add(key, priority)
        else:
            with pytest.raises(BusyError):
                self.parts[part].add(key, priority, timeout=0)

    @rule(part=parts, key=keys, priority=st.sampled_from(PRIORITIES))
    def add_late(self, part: int, key: str, priority: int) -> None:
        if self._has_room(key):
            self.parts[part].add_after(key, LATE, priority, timeout=0)
            self.plain.add_after(key, LATE, priority)

    @precondition(lambda self: not self.plain.closing)
    @rule(part=parts, key=keys, priority=st.sampled_from(PRIORITIES))
    def add_soon(self, part: int, key: str, priority: int) -> None:
        """Adds, and waits until the key has fallen due, so that the two clocks agree."""
        if not self._has_room(key):
            return
        self.parts[part].add_after(key, SOON, priority, timeout=0)
        self.plain.add_after(key, SOON, priority)
        self.plain.fall_due()
        time.sleep(SOON * 1.5)
        self.parts[part].tend()
        self.settle(part)

    def settle(self, part: int) -> None:
        """A get() fires due keys; if it takes one, that is the plain queue's next."""
        self.get(part)

    @rule(part=parts, key=keys)
    def fail(self, part: int, key: str) -> None:
        if not self._has_room(key) or self.plain.closing:
            return
        self.parts[part].add_rate_limited(key, timeout=0)
        self.plain.add_after(key, LATE, 0)
        self.plain.requeues[key] += 1

    @rule(part=parts, key=keys)
    def forget(self, part: int, key: str) -> None:
        self.parts[part].forget(key)
        self.plain.requeues[key] = 0

    @rule(part=parts)
    def get(self, part: int) -> None:
        expected = self.plain.next()
        try:
            found = self.parts[part].get(timeout=0)
        except QueueShutDown:
            assert self.plain.closing
            found = None
        if self.ring or found is None:
            assert found in expected or (found is None and not expected)
        else:
            assert expected[0] == found
        if found is not None:
            self.plain.take(found, part)

    @rule(at=st.integers(0, 255), part=parts)
    def done(self, at: int, part: int) -> None:
        """By its holder, or by another handle.

        A number is drawn and not a key: in a grown queue the shared queue chooses the keys in
        progress, by a seed that differs in each run, and drawn data must not depend on it.
        """
        held = sorted(self.plain.processing)
        if not held:
            return
        key = held[at % len(held)]
        self.parts[part].done(key)
        self.plain.done(key, part)

    @rule(chance=st.integers(0, 30))
    def shut_down(self, chance: int) -> None:
        if chance == 0:
            self.parts[0].shut_down()
            self.plain.closing = True

    @rule(part=parts, key=keys)
    def look(self, part: int, key: str) -> None:
        queue = self.parts[part]
        stats = queue.stats()
        assert len(self.plain.queued) == len(queue) == stats["depth"]
        assert len(self.plain.processing) == stats["in_progress"]
        waiting = [key for key in self.plain.waiting if not self.plain.comes(key)]
        assert len(waiting) == stats["delayed"]
        failing = [key for key, count in self.plain.requeues.items() if count]
        assert len(failing) == stats["failing"]
        assert self.plain.requeues[key] == queue.num_requeues(key)


class GrownQueues(Queues):
    """With 256 slots in two levels and 64 tickets, most of which are in use."""

    slots, ring = 256, 64

    @rule(part=parts, priority=st.sampled_from(PRIORITIES))
    def add_crowd(self, part: int, priority: int) -> None:
        for key in CROWD:
            self.add(part, key, priority)

    @rule(part=parts, count=st.integers(1, 80))
    def work(self, part: int, count: int) -> None:
        for _ in range(count):
            self.get(part)
        for key, holder in list(self.plain.processing.items()):
            self.parts[holder].done(key)
            self.plain.done(key, holder)


@pytest.mark.parametrize("kind", [Queues, GrownQueues])
def test_two_handles_answer_as_one_plain_queue(kind: type[Queues]) -> None:
    machine = seed(SEED)(kind)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=80,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
