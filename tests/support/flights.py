"""Flight records for tests: a cache that changes, a recorder with faults, and all states it saw."""

from __future__ import annotations

import errno
import json
import os
import random
from typing import Any

import shmcache
from shmcache.recorder.contents import Contents
from shmcache.recorder.disk import Disk
from shmcache.recorder.history import FlightRecord
from shmcache.recorder.recorder import FlightRecorder
from shmcache.recorder.shelf import RecorderLimits

KINDS = ("pods", "nodes")
State = dict[str, dict[str, Any]]


class Killed(BaseException):
    """Instead of SIGKILL: nothing after it runs in the recorder."""


class FaultyDisk(Disk):
    """Dies at one of its calls, or has no room from one on."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.calls = 0
        self.die_at = 1 << 40
        self.room = 1 << 40
        """Bytes that may be written still."""
        self._rng = rng or random.Random(0)

    def _called(self) -> None:
        """A dead process does nothing any more: not even what follows an exception."""
        self.calls += 1
        if self.calls >= self.die_at:
            raise Killed

    def create(self, path: str) -> int:
        self._called()
        return super().create(path)

    def write(self, fd: int, data: bytes, at: int) -> int:
        self.calls += 1
        if self.calls >= self.die_at:
            if self.calls == self.die_at:
                super().write(fd, data[: self._rng.randrange(len(data) + 1)], at)
            raise Killed
        if self.room < len(data):
            super().write(fd, data[: self.room], at)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(data)
        return super().write(fd, data, at)

    def truncate(self, fd: int, size: int) -> None:
        self._called()
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._called()
        super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self._called()
        super().sync_directory(path)

    def unlink(self, path: str) -> None:
        self._called()
        super().unlink(path)


class RecordedScene:
    """A cache with a history, and recorders of it, by clocks of its own."""

    def __init__(self, name: str, directory: str, seed: int, **settings: Any) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.writer = shmcache.Writer(name, list(KINDS), **settings)
        self.cache = shmcache.attach(name)
        self.now = 1_000_000.0
        self.set_by = 0.0
        """Seconds by which somebody has set the wall clock."""
        self.version = 0
        self.states: dict[int, State] = {}
        """All states by the time of the look that saw them."""

    def close(self) -> None:
        self.cache.close()
        self.writer.close()

    def recorder(self, disk: Disk | None = None, **limits: Any) -> FlightRecorder:
        return FlightRecorder(
            self.cache,
            self.directory,
            RecorderLimits(**limits),
            disk=disk,
            clock=lambda: self.now,
            wall_ns=lambda: self.now_ns,
        )

    @property
    def now_ns(self) -> int:
        return int((self.now + self.set_by) * 1e9)

    def change(self, count: int = 10) -> None:
        for _ in range(self.rng.randrange(count)):
            self.version += 1
            kind, key = self.rng.choice(KINDS), f"d/n{self.rng.randrange(20)}"
            if self.rng.random() < 0.2:
                self.writer.delete(kind, key, str(self.version))
            else:
                self.writer.put(kind, key, self.object(key), str(self.version))
        for kind in KINDS:
            self.writer.set_version(kind, str(self.version + 1))

    def object(self, key: str) -> dict[str, Any]:
        metadata = {"namespace": "d", "name": key[2:], "resourceVersion": str(self.version)}
        status = {"n": self.rng.randrange(3), "of": [self.rng.random(), {"text": "a\tb\nü"}]}
        if self.rng.random() < 0.5:
            status = {"more": [1] * self.rng.randrange(4), **status}
        return {"metadata": metadata, "status": status, "spec": {"text": "x" * 200}}

    def seen(self) -> State:
        return {
            kind: {key: view.to_dict() for key, view in self.cache[kind].items()} for kind in KINDS
        }

    def step(self, recorder: FlightRecorder, seconds: float = 0.5) -> None:
        """Time passes, and the recorder looks."""
        self.now += seconds
        self.states[self.now_ns] = self.seen()
        recorder.step()

    def run(self, recorder: FlightRecorder, steps: int) -> None:
        for _ in range(steps):
            self.change()
            self.step(recorder)


def abandon(recorder: FlightRecorder) -> None:
    """The kernel's part of the end of a process: descriptors are closed, nothing is written."""
    reel = recorder._reel
    if reel is not None:
        reel.close()
    recorder._shelf.close()


def read_back(found: Contents) -> State:
    state: State = {kind: {} for kind in KINDS}
    for (number, key), obj in found.objects.items():
        state[found.about[number]["name"]][json.loads(key)] = obj.value()
    return state


def at(record: FlightRecord, time_ns: int) -> State:
    return read_back(record.at_time(time_ns))
