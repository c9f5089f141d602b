"""Running controllers: processes that are restarted, drained, and killed when they hang."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import Literal

from shmcache.controllers.board import Board
from shmcache.controllers.outcomes import NotCached
from shmcache.controllers.tenure import Tenure
from shmcache.controllers.worker import Worker
from shmcache.errors import SegmentNotFound, SourceError
from shmcache.memory.segments import Place
from shmcache.processes.child import Body, spawned
from shmcache.processes.supervisor import BACKOFF, DRAIN_SECONDS, Supervisor
from shmcache.reader.cache import Cache, attach
from shmcache.reflector.backoff import BackoffSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.controllers.declaring import Controller

HUNG, LOST, FAILED, MISCONFIGURED = 71, 72, 70, 78
"""Exit statuses of a worker process: a reconcile was over its time limit; the Lease was lost during
one; a thread ended; a resource that it reads is not cached, which ends all processes."""
ATTACH_SECONDS = 1.0
"""How long a wait for the cache goes on before it looks whether it is to end."""
MARGIN_SECONDS = 2.0
"""After the time limit: the process itself says where it hangs, and ends; if it still can."""

logger = logging.getLogger(__name__)


def run_controllers(
    *controllers: Controller,
    cache: str | None = None,
    trusted_uids: Sequence[int] = (),
    method: Literal["fork", "spawn"] = "fork",
    drain_seconds: float = DRAIN_SECONDS,
    backoff: BackoffSettings | None = None,
    resume: bool = False,
) -> int:
    """Runs controllers, each in its processes, until SIGTERM or SIGINT; the exit status.

    To be called in the main thread, and with "fork" before other threads are started. `cache` is
    the name of a cache, or the environment's SHMCACHE_NAME; run() waits for it. A process that does
    not drain within `drain_seconds` is killed. A start reconciles all objects, since its code may
    be new; with `resume` it goes on where the last run ended, with what has changed since.
    """
    name = cache or os.environ.get("SHMCACHE_NAME", "")
    place = Place(name, tuple(trusted_uids))  # ValueError for an invalid name
    if len({controller.name for controller in controllers}) < len(controllers):
        raise ValueError("controllers that run together need different names")
    bodies: list[Body] = []
    for controller in controllers:
        for _ in range(controller.processes):
            what = (controller, name, tuple(trusted_uids), drain_seconds)
            bodies.append(spawned(work, *what) if method == "spawn" else lambda w=what: work(*w))  # type: ignore[misc]
    workers = len(bodies)
    shared = [controller for controller in controllers if controller.shared]
    bodies += [_coordination(one, name, tuple(trusted_uids), method) for one in shared]
    watched = [one for one in controllers if one.time_limit is not None or one.shared]
    watch = Watchdog(watched, place)
    if not resume:
        place.location.prepare()
        for controller in controllers:
            want_all(place, controller)
    supervisor = Supervisor(
        bodies,
        drain_seconds=drain_seconds,
        tick=watch.look,
        backoff=backoff or BACKOFF,
        fatal=(MISCONFIGURED,),
        last=range(workers, len(bodies)),
    )
    watch.supervisor = supervisor
    try:
        return supervisor.run()
    finally:
        watch.close()


def _coordination(controller: Controller, name: str, trusted: tuple[int, ...], method: str) -> Body:
    """The body of the process that keeps a controller's Lease."""
    if method == "spawn":
        return spawned(coordinate, controller, name, trusted)
    return lambda: coordinate(controller, name, trusted)


def want_all(place: Place, controller: Controller) -> None:
    """A start: all keys of the controller are reconciled once more."""
    board = Board(place, controller.name)
    try:
        board.want_all()
    finally:
        board.close()


class Watchdog:
    """Kills worker processes that hang so badly that they cannot end themselves."""

    def __init__(self, controllers: Sequence[Controller], place: Place) -> None:
        self._controllers = controllers
        self._place = place
        self._boards: dict[str, Board] = {}
        self.supervisor: Supervisor | None = None

    def look(self) -> float | None:
        """Kills what is overdue; seconds until the next may be."""
        if not self._controllers or self.supervisor is None:
            return None
        children = {child.pid: child.index for child in self.supervisor.children if child.alive}
        lefts = [self._look_at(controller, children) for controller in self._controllers]
        return min(lefts)

    def _look_at(self, controller: Controller, children: dict[int, int]) -> float:
        left = self._look_at_tenure(controller, children) if controller.shared else float("inf")
        if controller.time_limit is None:
            return left
        return min(left, self._look_at_limit(controller, children))

    def _look_at_tenure(self, controller: Controller, children: dict[int, int]) -> float:
        """Kills processes in a key that should have ended when the term did (TENURE2)."""
        board = self._board(controller)
        over, now = -Tenure(board).left, time.monotonic_ns()
        if over < MARGIN_SECONDS:
            return MARGIN_SECONDS - over
        for row in board.rows:
            inside = any(runner.since <= now for runner in row.runners())
            if inside and row.pid in children and self.supervisor is not None:
                logger.error("%s: hangs after its term, and is killed", controller.name)
                self.supervisor.kill(children[row.pid])
        return MARGIN_SECONDS

    def _look_at_limit(self, controller: Controller, children: dict[int, int]) -> float:
        limit = (controller.time_limit or 0.0) + MARGIN_SECONDS
        now, left = time.monotonic_ns(), limit
        for row in self._board(controller).rows:
            if row.pid not in children:
                continue
            late = False
            for runner in row.runners():
                spent = (now - runner.since) / 1e9
                left = min(left, max(MARGIN_SECONDS, limit - spent))
                if spent >= limit and now >= row.ends_at + int(MARGIN_SECONDS * 1e9):
                    logger.error("%s %s: hangs, and is killed", controller.name, runner.key)
                    late = True
            if late and self.supervisor is not None:
                self.supervisor.kill(children[row.pid])
        return left

    def _board(self, controller: Controller) -> Board:
        found = self._boards.get(controller.name)
        if found is None:
            self._place.location.prepare()
            found = self._boards[controller.name] = Board(self._place, controller.name)
        return found

    def close(self) -> None:
        """Leaves the boards."""
        for board in self._boards.values():
            board.close()


# ---- a worker process ----------------------------------------------------------------------------


class Termination:
    """SIGTERM, as a thing to sleep on: a handler may run at any line, and so only writes a byte."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.requested = False

    def install(self) -> None:
        """Takes SIGTERM from now on; SIGINT is the parent's. Main thread only."""
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
        self.wake()

    def wake(self) -> None:
        """Ends sleep(), from anywhere."""
        try:
            os.write(self._writer, b".")
        except BlockingIOError:
            pass  # it is full of such bytes

    def sleep(self, seconds: float | None) -> None:
        """Until wake(), or so long."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        if poll.poll(None if seconds is None else seconds * 1000):
            os.read(self._reader, 4096)


def work(controller: Controller, name: str, trusted: tuple[int, ...], drain_seconds: float) -> int:
    """The whole life of a worker process; its exit status."""
    termination = Termination()
    termination.install()
    found = _attached(name, trusted, termination)
    if found is None:
        return 0
    with found as cache:
        try:
            worker = Worker(controller, cache)
        except NotCached as error:
            logger.error("%s", error)  # noqa: TRY400 - the text has all of it
            return MISCONFIGURED
        worker.on_failure = termination.wake
        worker.start()
        while not termination.requested and worker.failed is None:
            _rest(worker, termination)
        worker.stop()
        if not worker.join(drain_seconds):
            logger.warning("%s: not all keys in progress came to an end", controller.name)
            os._exit(FAILED)
        if worker.failed is not None:
            logger.error("a worker ends", exc_info=worker.failed)
            return FAILED
    return 0


def _rest(worker: Worker, termination: Termination) -> None:
    """Sleeps until something is due; ends the process for a key or a term that is over."""
    left, key = worker.overdue()
    if left == 0:
        worker.retire(key)
        os._exit(HUNG)
    term = worker.tenure_left()
    if term == 0:
        logger.error("%s: the term of its Lease is over: it ends", worker.controller.name)
        worker.abandon()
        os._exit(LOST)
    termination.sleep(min((one for one in (left, term) if one is not None), default=None))


def coordinate(controller: Controller, name: str, trusted: tuple[int, ...]) -> int:
    """The whole life of the process that keeps a controller's Lease; its exit status."""
    from shmcache.controllers.coordinator import Coordinator

    termination = Termination()
    termination.install()
    place = Place(name, trusted)
    place.location.prepare()
    try:
        coordinator = Coordinator(controller, place)
        coordinator.run(lambda: termination.requested, termination.sleep)
    except SourceError as error:
        logger.error("%s", error)  # noqa: TRY400 - the text says what to do
        return MISCONFIGURED
    return 0 if termination.requested else FAILED


def _attached(name: str, trusted: tuple[int, ...], termination: Termination) -> Cache | None:
    """The cache, as soon as there is one; None if SIGTERM comes first."""
    said = False
    while not termination.requested:
        try:
            return attach(name, timeout=ATTACH_SECONDS, trusted_uids=trusted)
        except SegmentNotFound as error:
            if not said:
                logger.warning("%s: waiting for it", error)
            said = True
    return None
