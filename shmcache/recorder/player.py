"""Plays a flight record: a cache goes through its states, one look of the recorder at a time.

PLAY1  After each step the cache is as the recorded one was then. Changes that were found by one
look become visible together, resource by resource.
PLAY2  Gaps and damage are stated where they are; the cache goes on with what follows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Self

from shmcache.errors import PastUnknown
from shmcache.reader.cache import Cache
from shmcache.recorder import history
from shmcache.recorder.contents import Contents
from shmcache.recorder.history import FlightRecord, RecordedStep, Reel
from shmcache.recorder.rebuilding import RebuiltCache


class RecordedSteps:
    """The steps of a record from a time on, applied to one state."""

    def __init__(self, record: FlightRecord, since_ns: int | None = None) -> None:
        """PastUnknown if the state at that time is unknown."""
        self.contents = Contents()
        self._record = record
        self._reel: Reel | None = None
        self.time_ns = since_ns or 0
        self._steps = record.play()
        if since_ns is not None:
            self._skip_to(since_ns)
        else:
            self.begin(next(self._steps, None))

    def _skip_to(self, since_ns: int) -> None:
        self.contents = self._record.at_time(since_ns)
        reels = self._record.reels
        self._reel = [reel for reel in reels if reel.time_ns <= since_ns][-1]
        steps = self._record.play(reels[reels.index(self._reel) :])
        for reel, step in steps:
            if step.time_ns > since_ns:
                self._steps = chain([(reel, step)], steps)
                return
        self._steps = iter(())

    def begin(self, first: tuple[Reel, RecordedStep] | None) -> None:
        """With the first state of the record."""
        if first is None:
            raise PastUnknown(f"{self._record.directory} has no whole state")
        self._reel, step = first
        self.time_ns = step.time_ns
        history.take(self.contents, step.text)

    def until(self, time_ns: int | None) -> Iterator[tuple[RecordedStep, list[str]]]:
        """Each further step up to a time, for take(), and the gaps before it as text."""
        for reel, step in self._steps:
            if time_ns is not None and step.time_ns > time_ns:
                self._steps = chain([(reel, step)], self._steps)
                return
            missing = [history.gap_of(line) for line in step.text if line[:1] == b"G"]
            if reel is not self._reel:
                why = reel.gap or (self._reel.fault if self._reel is not None else "")
                missing += [why] if why else []
                self._reel = reel
            yield step, missing
        if self._reel is not None and self._reel.fault:
            yield RecordedStep(self.time_ns, []), [self._reel.fault]

    def take(self, step: RecordedStep) -> None:
        """Applies a step."""
        if step.is_checkpoint:
            self.contents.restart()
        history.take(self.contents, step.text)
        self.time_ns = step.time_ns


class Player:
    """A cache that plays a record. A context manager."""

    def __init__(self, record: FlightRecord, name: str, *, since_ns: int | None = None) -> None:
        """The cache `name` has the state of that time, or the first one, when this returns."""
        self._steps = RecordedSteps(record, since_ns)
        self._rebuilt = RebuiltCache(name)
        try:
            self._rebuilt.show(self._steps.contents)
        except BaseException:
            self._rebuilt.close()
            raise

    @property
    def cache(self) -> Cache:
        """The cache."""
        return self._rebuilt.cache

    @property
    def clock(self) -> str:
        """The time of the state that the cache shows."""
        return history.clock(self._steps.time_ns)

    def play(
        self,
        *,
        until_ns: int | None = None,
        speed: float | None = None,
        over: threading.Event | None = None,
        wait: Callable[[float], object] = time.sleep,
    ) -> Iterator[str]:
        """Goes on to a time, or to the end; yields what is missing, as text.

        `speed` 1 is as it happened; without one there are no pauses. `over` ends it early.
        """
        stopped = over or threading.Event()
        pause = wait if over is None else stopped.wait
        for step, missing in self._steps.until(until_ns):
            if speed is not None:
                pause(max(0, step.time_ns - self._steps.time_ns) / 1e9 / speed)
            if stopped.is_set():
                return
            self._steps.take(step)
            self._rebuilt.show(self._steps.contents)
            for why in missing:
                yield f"{self.clock}: changes are missing before this: {why}"

    def close(self) -> None:
        """Removes the cache. Idempotent."""
        self._rebuilt.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
