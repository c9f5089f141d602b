"""shmcache as a channel: the same sender and receiver as the peers', see ring.py."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import shmcache
from benchmarks.scenes.objects import FIRST_UPDATE_VERSION
from benchmarks.scenes.shared import RESOURCE, variants

TAKE = 256
WAIT_S = 10.0
VERSIONS = itertools.count(FIRST_UPDATE_VERSION)


class Sender:
    def __init__(self, name: str, writer: Any) -> None:
        self._writer = writer
        self._cache = shmcache.attach(name)
        self._turn = 0

    def encoded(self, count: int) -> list[tuple[str, Any, str]]:
        """`count` status-only updates whose values are Views of the arena they are put into."""
        known = variants(self._cache)
        turns, rest = divmod(count, len(known))
        if rest:
            raise ValueError(
                f"{count} is not a multiple of {len(known)}: a put would change nothing"
            )
        changes = []
        for _ in range(turns):
            self._turn ^= 1
            changes += [(key, views[self._turn], str(next(VERSIONS))) for key, views in known]
        return changes

    def send(self, batch: Sequence[tuple[str, Any, str]]) -> None:
        self._writer.put_many(RESOURCE, batch)

    def close(self) -> None:
        self._cache.close()


class Receiver:
    def __init__(self, name: str, _consumers: int) -> None:
        self._cache = shmcache.attach(name)
        self._cursor = self._cache.follow()

    def consume(self, count: int) -> None:
        """Takes `count` deltas and reads one field of each; waits asleep; Lapped is an error."""
        take, wait, cursor = self._cursor.take, self._cache.wait, self._cursor
        taken = 0
        while taken < count:
            deltas: list[Any] = take(TAKE)
            for delta in deltas:
                delta.new["spec"]["nodeName"]
            if not deltas:
                wait(cursor, WAIT_S)
            taken += len(deltas)

    def close(self) -> None:
        self._cache.close()
