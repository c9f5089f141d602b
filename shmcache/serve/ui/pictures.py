"""One picture of a cache for the page: resources, writer, workers, queues, controllers, memory.

Made in a thread of its own, once a second for all viewers, and only while the page is open: reading
/proc and the queues' files must not delay the loop that serves.

PICT1  A survey counts the bytes of each resource by walking the cache. The next one waits at least
    SURVEY_REST times as long as the last one took, so its share of a core has a bound.
PICT2  The files of queues and boards are read every SLOW_SECONDS only.
"""

from __future__ import annotations

import time
from typing import Any

from shmcache.errors import ShmCacheError
from shmcache.monitor import observing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.reader.cache import Cache

SLOW_SECONDS = 2.0
SURVEY_SECONDS = 10.0
SURVEY_REST = 100
SLOWEST = 5
"""Keys in progress that are named for each controller."""


class Pictures:
    """Makes them. Used by one thread at a time."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._due = 0.0
        self._slow: dict[str, Any] = {}
        self._survey: observing.Survey | None = None
        self._survey_due = 0.0

    def take(self) -> dict[str, Any]:
        """The picture, ready for JSON."""
        at = observing.observe(self._cache)
        now = time.monotonic()
        if now >= self._due:
            self._slow = {
                "queues": observing.queues(self._cache),
                "controllers": _controllers(self._cache),
            }
            self._due = time.monotonic() + SLOW_SECONDS
        self._look_inside(now)
        return {
            "cache": at.name,
            "instance": at.instance,
            "time": time.time(),
            "generation": at.generation,
            "window": {"changes": at.head - at.tail, "slots": at.ring_slots // 2, "head": at.head},
            "writer": _writer(at.writer),
            "memory": at.memory,
            "seats": at.seats,
            "resources": [self._resource(name, status) for name, status in at.resources.items()],
            "workers": [_worker(one) for one in at.workers if not one.own],
            **self._slow,
        }

    def _look_inside(self, now: float) -> None:
        if now < self._survey_due:
            return
        start = time.monotonic()
        try:
            self._survey = observing.survey(self._cache)
        except ShmCacheError:
            self._survey = None  # the writer is faster than the walk: no bytes by resource
        took = time.monotonic() - start
        self._survey_due = time.monotonic() + max(SURVEY_SECONDS, took * SURVEY_REST)

    def _resource(self, name: str, status: Any) -> dict[str, Any]:
        row = self._survey.resources.get(name) if self._survey else None
        return {
            "name": name,
            "state": status.state,
            "reason": status.reason,
            "since": status.since,
            "synced": status.synced,
            "version": status.version,
            "age": status.age,
            "objects": status.objects,
            "counters": status.counters,
            "bytes": None if row is None else row["value_bytes"] + row["tree_bytes"],
        }


def _writer(writer: observing.ObservedWriter) -> dict[str, Any]:
    return {
        "pid": writer.pid,
        "alive": writer.alive,
        "beats": writer.beats,
        "closed": writer.closed,
        "heartbeat": writer.heartbeat,
        "incarnation": writer.incarnation,
    }


def _worker(one: observing.ObservedWorker) -> dict[str, Any]:
    names = ("pid", "lag", "lapped", "taken", "asleep", "pins", "private", "attached", "command")
    return {name: getattr(one, name) for name in names}


def _controllers(cache: Cache) -> dict[str, dict[str, Any]]:
    from shmcache.controllers.board import Board
    from shmcache.controllers.numbers import Numbers
    from shmcache.memory.companions import board_names

    found: dict[str, dict[str, Any]] = {}
    for name in board_names(cache.place):
        try:
            board = Board(cache.place, name)
        except (ShmCacheError, OSError):
            continue  # another user's, or another version's
        try:
            numbers = Numbers(board)
            now = time.monotonic_ns()
            keys = sorted(
                ((now - runner.since) / 1e9, runner.key)
                for row in board.rows
                if row.pid
                for runner in row.runners()
            )
        finally:
            board.close()
        slowest = [{"key": key, "seconds": seconds} for seconds, key in keys[: -SLOWEST - 1 : -1]]
        found[name] = {
            "results": numbers.results,
            "reconciles": numbers.reconciles,
            "panics": numbers.panics,
            "timeouts": numbers.timeouts,
            "active": numbers.active,
            "concurrent": numbers.concurrent,
            "seconds": numbers.seconds,
            "slowest": slowest,
        }
    return found
