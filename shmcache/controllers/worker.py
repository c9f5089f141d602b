"""One process of a controller: syncs, feeds or waits to feed, and works on keys until told to end.

Threads: the feeder's, one for each key at a time (of an async reconcile: one with the loop, one
that takes keys), and the caller's, which sleeps. Told to end, no new key is taken, and those in
progress come to their end.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from shmcache.controllers import numbers
from shmcache.controllers.declaring import Controller
from shmcache.controllers.part import Part
from shmcache.controllers.reconciling import Run
from shmcache.errors import ClosedError, ForkedError
from shmcache.feeding import Feeder
from shmcache.queue import QueueShutDown
from shmcache.reader import Cache

LOOK_SECONDS = 1.0
"""How long a wait for the first content goes on before it looks whether it is to end."""

logger = logging.getLogger(__name__)


class NotSynced(Exception):
    """What a controller reads did not become complete in time."""


class Worker:
    """The threads of one process. start(), then stop() and join()."""

    def __init__(self, controller: Controller, cache: Cache) -> None:
        self.controller = controller
        self.cache = cache
        self.part = Part(controller, cache)
        self.failed: BaseException | None = None
        """What ended a thread that was not told to end."""
        self.on_failure: Callable[[], object] = lambda: None
        self._feeder = Feeder(cache, self.part.queue, controller.sources.feeds(cache))
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._idents: dict[int, int] = {}

    # ---- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Works from now on. Returns at once."""
        self._spawn("feeder", lambda: self._feeder.run(self._stop))
        if self.controller.asynchronous:
            self._spawn("loop", lambda: asyncio.run(self._serve()))
        else:
            for lane in range(self.controller.concurrency):
                self._spawn(f"worker {lane}", lambda lane=lane: self._work(lane))  # type: ignore[misc]

    def stop(self) -> None:
        """No new keys. Returns at once."""
        self.part.stopping = True
        self._stop.set()
        self._feeder.stop()
        self.part.queue.stop()
        self.cache.wake()

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the keys in progress; False if `timeout` seconds passed. Leaves, if not."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                return False
        self.part.close()
        return True

    def _spawn(self, name: str, run: Callable[[], object]) -> None:
        def body() -> None:
            try:
                run()
            except ForkedError:
                pass  # a reconcile forked, and nothing here is the child's
            except BaseException as error:  # noqa: BLE001 - the process cannot go on without it
                told = self._stop.is_set() and isinstance(error, QueueShutDown | ClosedError)
                if not told:
                    self.failed = error
                    self.on_failure()

        title = f"{self.controller.name} {name}"
        thread = threading.Thread(target=body, name=title, daemon=True)
        self._threads.append(thread)
        thread.start()

    # ---- keys ------------------------------------------------------------------------------------

    def _work(self, lane: int) -> None:
        self._idents[lane] = threading.get_ident()
        self._sync()
        while not self._stop.is_set():
            key = self.part.queue.get()
            if key is not None:
                Run(self.part, lane, key).call()

    async def _serve(self) -> None:
        """An async reconcile: as many tasks as may run at a time, keys taken by a thread."""
        loop = asyncio.get_running_loop()
        free = threading.Semaphore(self.controller.concurrency)
        lanes = list(range(self.controller.concurrency))
        running: set[asyncio.Task[None]] = set()

        async def run(key: str) -> None:
            lane = lanes.pop()
            try:
                await Run(self.part, lane, key).await_()
            finally:
                lanes.append(lane)
                free.release()

        def begin(key: str) -> None:
            task = loop.create_task(run(key))
            running.add(task)
            task.add_done_callback(running.discard)

        def begin_soon(key: str) -> None:
            loop.call_soon_threadsafe(begin, key)

        self._idents = dict.fromkeys(lanes, threading.get_ident())
        try:
            await asyncio.to_thread(self._take, free, begin_soon)
        finally:
            while running:
                await asyncio.wait(running)

    def _take(self, free: threading.Semaphore, begin: Callable[[str], object]) -> None:
        self._sync()
        while not self._stop.is_set():
            free.acquire()
            try:
                key = self.part.queue.get()
            except QueueShutDown:
                return
            if key is None:
                free.release()
            else:
                begin(key)

    # ---- before the first key --------------------------------------------------------------------

    def _sync(self) -> None:
        """Returns when all resources are complete, and in the queue; or told to end."""
        deadline = time.monotonic() + self.controller.sync_timeout
        for resource in self.controller.sources.resources:
            self._until(lambda resource=resource: self._synced(resource), resource, deadline)  # type: ignore[misc]
        self._until(lambda: self._feeder.wait_synced(LOOK_SECONDS), "the queue", deadline)

    def _until(self, fact: Callable[[], bool], what: str, deadline: float) -> None:
        while not self._stop.is_set() and not fact():
            if time.monotonic() >= deadline:
                limit = self.controller.sync_timeout
                raise NotSynced(f"{self.controller.name}: {what} is not complete after {limit:g} s")

    def _synced(self, resource: str) -> bool:
        generation = self.cache.latest
        if resource in self.cache:
            return self.cache[resource].wait_synced(LOOK_SECONDS)
        self.cache.wait(generation, LOOK_SECONDS)
        return False

    # ---- the time limit --------------------------------------------------------------------------

    def overdue(self) -> tuple[float | None, str]:
        """How long until a reconcile is over its time limit, and which: 0 if one is."""
        limit = self.controller.time_limit
        if limit is None:
            return None, ""
        if self.controller.asynchronous:
            limit += LOOK_SECONDS  # it is cancelled by its loop, unless that hangs
        now = time.monotonic_ns()
        lanes = [(lane.since, lane.key) for lane in self.part.mine.lanes()]
        since, key = min(lanes, default=(now, ""))
        return max(0.0, limit - (now - since) / 1e9), key

    def say_hung(self, key: str) -> None:
        """Logs where the thread is that is in this key."""
        self.part.mine.add((numbers.TIMEOUTS, 1))
        frames: dict[int, Any] = sys._current_frames()  # noqa: SLF001 - there is no other way
        for lane in self.part.mine.lanes():
            if lane.key == key:
                frame = frames.get(self._idents.get(lane.number, 0))
                where = "".join(traceback.format_stack(frame)) if frame else "nobody knows where\n"
                logger.error(
                    "%s %s: over its time limit of %g s; this process ends, and the key goes to "
                    "another. It is at\n%s",
                    self.controller.name, key, self.controller.time_limit, where.rstrip(),
                )  # fmt: skip
