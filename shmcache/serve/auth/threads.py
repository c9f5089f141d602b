"""Threads for what would block the loop: requests to the API server.

They do not keep a process alive: whatever a thread waits for, the process ends without it. Jobs of
one holder are done in their order, and holders in turn: one with many jobs delays the others by
one job for each thread, not by all of them.
"""

from __future__ import annotations

import collections
import queue
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmcache.serve.http.loop import Loop

Done = Callable[[Any, BaseException | None], object]
Job = Callable[[], None]


class Workers:
    """Started when first needed, so that a process may fork before. For the loop's thread."""

    def __init__(self, loop: Loop, count: int) -> None:
        self._loop = loop
        self._count = count
        self._lock = threading.Lock()
        self._lines: collections.OrderedDict[Hashable, collections.deque[Job]] = (
            collections.OrderedDict()
        )
        """The jobs of each holder that has some, and whose turn is next."""
        self._ready: queue.SimpleQueue[None] = queue.SimpleQueue()
        """An item for each job, and one for each thread at the end."""
        self._under_way = 0
        self._threads = 0
        self._closed = False

    def run(self, function: Callable[[], Any], done: Done, *, holder: Hashable = None) -> None:
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
        with self._lock:
            self._lines.setdefault(holder, collections.deque()).append(work)
        self._ready.put(None)
        if self._threads < min(self._under_way, self._count):
            self._threads += 1
            threading.Thread(target=self._work, name="serve-worker", daemon=True).start()

    def _done(self, done: Done, value: Any, error: BaseException | None) -> None:
        self._under_way -= 1
        done(value, error)

    def _work(self) -> None:
        while True:
            self._ready.get()
            if self._closed:
                return
            job = self._next()
            job()
            del job  # do not keep its data alive until the next job

    def _next(self) -> Job:
        with self._lock:
            holder, line = next(iter(self._lines.items()))
            job = line.popleft()
            if line:
                self._lines.move_to_end(holder)
            else:
                del self._lines[holder]
            return job

    def close(self) -> None:
        """The threads end after their current job. Does not wait for them. Idempotent."""
        self._closed = True
        for _ in range(self._threads):
            self._ready.put(None)
