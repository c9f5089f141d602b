"""Threads for what would block the loop: requests to the API server.

They are no reason for a process to stay: whatever one waits for, the process ends without it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmcache.serve.loop import Loop

Done = Callable[[Any, BaseException | None], object]


class Workers:
    """Started when first needed, so that a process may fork before. For the loop's thread."""

    def __init__(self, loop: Loop, count: int) -> None:
        self._loop = loop
        self._count = count
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._under_way = 0
        self._threads = 0
        self._closed = False

    def run(self, function: Callable[[], Any], done: Done) -> None:
        """Calls a function in a thread, then done(value, error) in the loop's."""
        if self._closed:
            raise RuntimeError("the workers have ended")

        def work() -> None:
            value, error = None, None
            try:
                value = function()
            except BaseException as raised:  # noqa: BLE001 - told to the loop
                error = raised
            self._loop.call_threadsafe(lambda: self._done(done, value, error))

        self._under_way += 1
        self._jobs.put(work)
        if self._threads < min(self._under_way, self._count):
            self._threads += 1
            threading.Thread(target=self._work, name="serve-worker", daemon=True).start()

    def _done(self, done: Done, value: Any, error: BaseException | None) -> None:
        self._under_way -= 1
        done(value, error)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if self._closed:
                return
            job()
            del job  # what it holds is not kept until the next one

    def close(self) -> None:
        """They end when they have done what they are at. Waits for none of them. Idempotent."""
        self._closed = True
        for _ in range(self._threads):
            self._jobs.put(_nothing)


def _nothing() -> None:
    return None
