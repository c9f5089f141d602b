"""One process of a controller: syncs, feeds or waits to feed, and works on keys until stop().

Threads: the feeder's, one for each key at a time (of an async reconcile: one with the loop, one
that takes keys), and the caller's, which sleeps. When it is stopped, no new key is taken, and those
in progress come to their end. All threads are daemons: an interpreter can end at any time.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from shmcache.controllers import numbers
from shmcache.controllers.outcomes import NotCached
from shmcache.controllers.part import Part
from shmcache.controllers.reconciling import Run, in_thread
from shmcache.controllers.share import TenureShare
from shmcache.errors import ClosedError, ForkedError
from shmcache.queue.feeder import Feeder
from shmcache.queue.workqueue import QueueShutDown
from shmcache.reader.cache import Cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.controllers.declaring import Controller

LOOK_SECONDS = 1.0
"""How long a wait for the first content goes on before it looks whether it is to end."""
_RETIRE_SECONDS = 0.02
_TENURE_SECONDS = 0.05
"""How soon a process looks again at a term that may have ended."""
_NOBODY = 1 << 63
"""A convicted runner that hardly any process has: the others are bystanders."""
_RUNNER = "runner "  # names of tasks begin with it

logger = logging.getLogger(__name__)


class NotSynced(Exception):
    """A resource that a controller reads did not become complete in time."""


def check_cached(controller: Controller, cache: Cache) -> None:
    """NotCached if the controller reads a resource that the cache does not have."""
    known = cache.resources
    for resource in controller.sources.resources:
        if resource not in known:
            near = get_close_matches(resource, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            listed = ", ".join(known) or "nothing"
            raise NotCached(
                f"controller {controller.name!r} reads {resource!r}, which is not in cache "
                f"{cache.name!r}: it has {listed}{hint}"
            )


class Worker:
    """The threads of one process. start(), then stop() and join()."""

    def __init__(self, controller: Controller, cache: Cache) -> None:
        self.controller = controller
        self.cache = cache
        check_cached(controller, cache)
        self.part = Part(controller, cache)
        self.failed: BaseException | None = None
        """The error that ended a thread before stop()."""
        self.on_failure: Callable[[], object] = lambda: None
        share = (
            None if self.part.tenure is None else TenureShare(self.part.tenure, cache, controller)
        )
        self._feeder = Feeder(
            cache,
            self.part.queue,
            controller.sources.feeds(cache, share),
            gains=share,
            starts=self.part.board,
            on_error=lambda: self.part.mine.add((numbers.SOURCE_ERRORS, 1)),
        )
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._idents: dict[int, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Works from now on. Returns at once."""
        self._spawn("feeder", lambda: self._feeder.run(self._stop))
        if self.controller.asynchronous:
            self._spawn("loop", lambda: asyncio.run(self._serve()))
        else:
            for runner in range(self.controller.concurrency):
                self._spawn(f"worker {runner}", lambda runner=runner: self._work(runner))  # type: ignore[misc]

    def stop(self) -> None:
        """No new keys. Returns at once."""
        self.part.stopping = True
        self._stop.set()
        self._feeder.stop()
        if not self.part.queue.closed:
            self.part.queue.stop()
        if not self.cache.closed:
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
                stopped = self._stop.is_set() or self.cache.closed
                if not (stopped and isinstance(error, QueueShutDown | ClosedError)):
                    self.failed = error
                    self.on_failure()

        title = f"{self.controller.name} {name}"
        thread = threading.Thread(target=body, name=title, daemon=True)
        self._threads.append(thread)
        thread.start()

    # ---- keys ------------------------------------------------------------------------------------

    def _work(self, runner: int) -> None:
        self._idents[runner] = threading.get_ident()
        self._sync()
        while not self._stop.is_set():
            key = self.part.queue.get()
            if key is not None:
                Run(self.part, runner, key).call()

    async def _serve(self) -> None:
        """An async reconcile: as many tasks as may run at a time, keys taken by a thread."""
        loop = self._loop = asyncio.get_running_loop()
        free = threading.Semaphore(self.controller.concurrency)
        runners = list(range(self.controller.concurrency))
        running: set[asyncio.Task[None]] = set()

        async def run(key: str) -> None:
            runner = runners.pop()
            task: Any = asyncio.current_task()
            task.set_name(f"{_RUNNER}{runner}")
            try:
                await Run(self.part, runner, key).await_()
            finally:
                runners.append(runner)
                free.release()

        def begin(key: str) -> None:
            task = loop.create_task(run(key))
            running.add(task)
            task.add_done_callback(running.discard)

        def begin_soon(key: str) -> None:
            loop.call_soon_threadsafe(begin, key)

        self._idents = dict.fromkeys(runners, threading.get_ident())
        try:
            await in_thread(self._take, free, begin_soon)
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
        """Returns when all resources are complete, or the worker ends.

        Their keys may still be on the way into the queue: work overlaps with that.
        """
        deadline = time.monotonic() + self.controller.sync_timeout
        for resource in self.controller.sources.resources:
            self._until(lambda resource=resource: self._synced(resource), resource, deadline)  # type: ignore[misc]

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
        runners = [(runner.since, runner.key) for runner in self.part.mine.runners()]
        since, key = min(runners, default=(now, ""))
        return max(0.0, limit - (now - since) / 1e9), key

    def tenure_left(self) -> float | None:
        """How long until the term may end: 0 if it has, while a key is reconciled (TENURE2)."""
        if self.part.tenure is None:
            return None
        left = self.part.tenure.left
        if left > 0:
            return max(left, _TENURE_SECONDS)
        now = time.monotonic_ns()
        inside = any(runner.since <= now for runner in self.part.mine.runners())
        return 0.0 if inside else _TENURE_SECONDS

    def abandon(self) -> None:
        """The process ends because the term has: no key of its is to blame."""
        self.part.mine.convict(_NOBODY)

    def retire(self, key: str) -> None:
        """Ends the process for the sake of an overdue key, after the other keys have ended.

        Each of those has its own time limit, so this takes no longer than that. On a loop that
        hangs they cannot end.
        """
        self._log_hung(key)
        limit = self.controller.time_limit or 0.0
        if not self.controller.asynchronous:
            deadline = time.monotonic() + limit
            self.part.mine.end_by(int(deadline * 1e9))
            self.stop()
            while self._in_time(limit) and time.monotonic() < deadline:
                time.sleep(_RETIRE_SECONDS)
        self.part.mine.convict(self._blocking() or self._overdue(limit))

    def _blocking(self) -> int:
        """The runner whose coroutine does not give its loop back, as a bit; 0 if unknown."""
        task = None if self._loop is None else asyncio.current_task(self._loop)
        name = "" if task is None else task.get_name().removeprefix(_RUNNER)
        return 1 << int(name) if name.isdigit() else 0

    def _overdue(self, limit: float) -> int:
        """The runners that are over the time limit, as bits."""
        now = time.monotonic_ns()
        late = [runner for runner in self.part.mine.runners() if now - runner.since >= limit * 1e9]
        return sum(1 << runner.number for runner in late)

    def _in_time(self, limit: float) -> bool:
        """Whether a runner is in a key that may end yet."""
        return any(not self._overdue(limit) >> x.number & 1 for x in self.part.mine.runners())

    def _log_hung(self, key: str) -> None:
        """Logs where the thread is that is in this key."""
        self.part.mine.add((numbers.TIMEOUTS, 1))
        frames: dict[int, Any] = sys._current_frames()  # noqa: SLF001 - there is no other way
        for runner in self.part.mine.runners():
            if runner.key == key:
                frame = frames.get(self._idents.get(runner.number, 0))
                where = "".join(traceback.format_stack(frame)) if frame else "an unknown place\n"
                logger.error(
                    "%s %s: over its time limit of %g s; this process ends when its other keys "
                    "have, and the key goes to another. It is at\n%s",
                    self.controller.name, key, self.controller.time_limit, where.rstrip(),
                )  # fmt: skip
