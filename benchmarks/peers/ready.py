"""No channel at all: all data is there already, as dicts in a list, and no process sends.

No ring can be faster than four Python processes that read one field of each dict.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import orjson

from benchmarks.scenes import objects

name = "a ready list"

OBJECTS = 2_000


class Sender:
    def __init__(self, address: str, consumers: int) -> None:
        pass

    def prepare(self, payloads: Sequence[int]) -> Sequence[int]:
        return payloads

    def connect(self) -> None:
        pass

    def send(self, batch: Iterable[int]) -> None:
        pass

    def close(self) -> None:
        pass


class Receiver:
    DIFFERENT = OBJECTS

    def __init__(self, _address: str, _consumers: int) -> None:
        pods = objects.pods(self.DIFFERENT)
        decoded = [orjson.loads(orjson.dumps(pod)) for pod in pods]
        self._decoded = decoded * (OBJECTS // self.DIFFERENT)

    def consume(self, count: int) -> None:
        """Reads one field of `count` dicts from a shorter list, again and again."""
        for _ in itertools.repeat(None, count // OBJECTS):
            for thing in self._decoded:
                thing["spec"]["nodeName"]

    def close(self) -> None:
        self._decoded.clear()


class HotReceiver(Receiver):
    """The same of one dict, which never leaves the caches: Python's loop alone."""

    DIFFERENT = 1
