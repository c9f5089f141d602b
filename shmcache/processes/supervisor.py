"""Supervision: several child processes that are started again until the supervisor ends.

    supervisor = Supervisor([body, body, body], name="worker")
    sys.exit(supervisor.run())                 # in the main thread, until SIGTERM or SIGINT

A child that ends is started again, after a delay that doubles while it goes on ending. When it is
asked to end, the supervisor sends SIGTERM to all children, waits until they have drained, and kills
those that have not within `drain_seconds`; a later signal (STOP1 and STOP2 of stop_requests.py)
kills at once. It is one thread that sleeps in poll() on the children's descriptors, its signals and
its clock; a loop of one's own calls start(), turn() and drain() instead of run().

    SUPERVISOR1  While it is not draining, each body has a child, or a moment when it gets the next
        one.
    SUPERVISOR2  Every child is reaped, and signalled only through its own descriptor: a reused pid
        is never met. It waits for no other children.
    SUPERVISOR3  No child outlives it, however it ends (child.py, CHILD1).
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from types import FrameType

from shmcache.processes import child as offspring
from shmcache.processes.child import Body, command, spawned
from shmcache.processes.stop_requests import StopRequests
from shmcache.reasons import reason_of
from shmcache.reflector.backoff import Backoff, BackoffSettings

__all__ = ["Body", "Child", "Exit", "Supervisor", "command", "spawned"]

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 25.0
"""Less than the 30 s after which Kubernetes kills a pod."""
LAST_SECONDS = 4.0
"""For children that end after the others, to leave what they kept for them."""
BACKOFF = BackoffSettings(initial=0.1, cap=30.0, jitter=0.5, reset_after=120.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a child ended."""

    index: int
    """Which of the bodies it ran."""
    pid: int
    status: int | None
    """As of subprocess: an exit status, or minus a signal; None if somebody else reaped it."""
    seconds: float
    """How long it lived."""
    wanted: bool
    """Whether it should have ended."""

    def __str__(self) -> str:
        return f"(pid {self.pid}) {self._manner()} after {self.seconds:.1f} s"

    def _manner(self) -> str:
        if self.status is None:
            return "ended, nobody knows how,"
        if self.status < 0:
            try:
                return f"was killed by {signal.Signals(-self.status).name}"
            except ValueError:
                return f"was killed by signal {-self.status}"
        return f"ended with status {self.status}"


class Child:
    """Runs one process after the other."""

    def __init__(self, index: int, body: Body, backoff: Backoff) -> None:
        self.index = index
        self.pid = 0
        """Of the process that runs or ran last; 0 before the first."""
        self.started = 0.0
        self.due: float | None = 0.0
        """When the next one is started; None while there is one, or none is to come."""
        self.fd = -1
        self.told = False
        self.body = body
        self._backoff = backoff

    @property
    def alive(self) -> bool:
        """Whether there is a process that was not reaped."""
        return self.fd >= 0

    def start(self, now: float, close: Iterable[int]) -> None:
        """Starts a process; where there is no room for one, tries again later."""
        try:
            pid, self.fd = self._fork(close)
        except OSError as error:
            self.due = now + self._backoff.next(now)
            logger.error("no process can be started: %s", reason_of(error))  # noqa: TRY400
            return
        self.pid, self.started, self.due, self.told = pid, now, None, False

    def _fork(self, close: Iterable[int]) -> tuple[int, int]:
        """A process, and the descriptor of it. Without one it is ended: nobody would look after it.

        It cannot be reaped before we have it.
        """
        os.close(os.pidfd_open(os.getpid()))  # without a free descriptor it starts nothing
        pid = offspring.fork(self.body, close)
        try:
            return pid, os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def send(self, number: int) -> None:
        """A signal; nothing happens if it has ended."""
        if self.alive:
            try:
                signal.pidfd_send_signal(self.fd, number)
            except ProcessLookupError:
                pass

    def reap(self, now: float, *, again: bool) -> Exit:
        """How the process has ended; if `again`, the next one is due after a while."""
        try:
            status: int | None = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            status = None
        os.close(self.fd)
        ended = Exit(
            index=self.index,
            pid=self.pid,
            status=status,
            seconds=now - self.started,
            wanted=self.told,
        )
        self.fd = -1
        self.due = now + self._backoff.next(now) if again else None
        return ended


class Supervisor:
    """Keeps one child for each body."""

    def __init__(
        self,
        bodies: Sequence[Body],
        *,
        name: str = "worker",
        drain_seconds: float = DRAIN_SECONDS,
        backoff: BackoffSettings = BACKOFF,
        fatal: Collection[int] = (),
        forward: Collection[int] = (),
        last: Collection[int] = (),
        on_exit: Callable[[Exit], object] | None = None,
        tick: Callable[[], float | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A child that ends with a status in `fatal` ends them all, and run() returns it.

        Signals in `forward` are sent on to the children. The bodies in `last` are asked to end when
        all others have, and get LAST_SECONDS for it. `tick` is called in each turn, and says
        after how many seconds it wants to be called at the latest.
        """
        self.name = name
        self.children = [
            Child(index, body, Backoff(backoff, Random())) for index, body in enumerate(bodies)
        ]
        self.draining = False
        self.status = 0
        """The result of run()."""
        self._drain_seconds = drain_seconds
        self._deadline: float | None = None
        self._fatal = frozenset(fatal)
        self._forward = frozenset(forward)
        self._last = frozenset(last)
        self._on_exit = on_exit
        self._tick = tick
        self._clock = clock
        self._told: list[int] = []
        self._requests = StopRequests(clock)
        self._pipe: tuple[int, int] | None = None

    # ---- for a loop of one's own ---------------------------------------------------------------

    @property
    def alive(self) -> int:
        """How many children there are."""
        return sum(child.alive for child in self.children)

    @property
    def over(self) -> bool:
        """Whether it drained, and no child is left."""
        return self.draining and not self.alive

    def start(self) -> None:
        """Starts what is due: at first, all."""
        now = self._clock()
        for child in self.children:
            if child.due is not None and child.due <= now and not self.draining:
                child.start(now, (*self._fds(), *(self._pipe or ())[1:]))
                self._report(child)

    def turn(self, timeout: float | None = None) -> None:
        """Sleeps until something happened, and deals with it; or `timeout` seconds."""
        limits = [self._left(), timeout, self._tick() if self._tick else None]
        wait = min((limit for limit in limits if limit is not None), default=None)
        poll = select.poll()
        for fd in self._fds():
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if wait is None else max(0.0, wait) * 1000)}
        self._hear(ready)
        for child in self.children:
            if child.fd in ready:
                self._ended(child)
        if self._deadline is not None and self._clock() >= self._deadline:
            self._kill_late()
        if self.draining:
            self._ask_last()
        self.start()

    def drain(self) -> None:
        """Asks all children to end. A turn() kills those that do not end in time."""
        if not self.draining:
            self.draining = True
            self._deadline = self._clock() + self._drain_seconds
            for child in self.children:
                child.due = None
                if child.index not in self._last:
                    self._ask(child)
            self._ask_last()

    def _ask(self, child: Child) -> None:
        child.due, child.told = None, True
        child.send(signal.SIGTERM)

    def _ask_last(self) -> None:
        """Asks the last ones when the others have ended, once."""
        lasting = [child for child in self.children if child.index in self._last]
        if any(child.alive for child in self.children if child.index not in self._last):
            return
        if any(child.alive and not child.told for child in lasting):
            self._deadline = self._clock() + LAST_SECONDS
            for child in lasting:
                self._ask(child)

    def kill(self, index: int) -> None:
        """Kills one child; the next one comes as after any other end."""
        self.children[index].send(signal.SIGKILL)

    def close(self) -> None:
        """Kills and reaps whatever is left. Idempotent."""
        self.draining = True
        for child in self.children:
            child.due, child.told = None, True
            if child.alive:
                child.send(signal.SIGKILL)
                self._ended(child)

    # ---- the whole of it -----------------------------------------------------------------------

    def run(self) -> int:
        """Until SIGTERM or SIGINT and the end of all children; the exit status. Main thread."""
        self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        heard = (signal.SIGTERM, signal.SIGINT, *self._forward)
        before = {number: signal.signal(number, self._note) for number in heard}
        wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        try:
            self.start()
            while not self.over:
                self.turn()
        finally:
            self.close()
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            for fd in self._pipe:
                os.close(fd)
            self._pipe = None
        return self.status

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._told.append(number)

    def _hear(self, ready: set[int]) -> None:
        """Does what signals said."""
        if self._pipe is not None and self._pipe[0] in ready:
            os.read(self._pipe[0], 4096)
        while self._told:
            number = self._told.pop(0)
            if number in self._forward:
                for child in self.children:
                    child.send(number)
                continue
            insists = self._requests.insists()
            if self.draining and insists:
                logger.warning("second request to end: killing %d %s(s)", self.alive, self.name)
                self._kill_all()
            elif not self.draining:
                logger.info("%s: draining %d", signal.Signals(number).name, self.alive)
                self.drain()

    def _kill_late(self) -> None:
        """Kills those that were asked to end, and have not."""
        self._deadline = None
        for child in self.children:
            if child.alive and child.told:
                logger.warning("%s %d (pid %d) is killed", self.name, child.index, child.pid)
                child.send(signal.SIGKILL)

    def _kill_all(self) -> None:
        self._deadline = None
        for child in self.children:
            if child.alive:
                logger.warning("%s %d (pid %d) is killed", self.name, child.index, child.pid)
                child.send(signal.SIGKILL)

    def _ended(self, child: Child) -> None:
        ended = child.reap(self._clock(), again=not self.draining)
        if ended.wanted:
            logger.info("%s %d %s", self.name, child.index, ended)
        elif ended.status in self._fatal:
            logger.error("%s %d %s: all end", self.name, child.index, ended)
            self.status = ended.status or 0
            self.drain()
        elif child.due is not None:
            wait = max(0.0, child.due - self._clock())  # it may be due by now
            logger.warning("%s %d %s: the next in %.1f s", self.name, child.index, ended, wait)
        if self._on_exit is not None:
            self._on_exit(ended)

    def _report(self, child: Child) -> None:
        if child.alive:
            logger.info("%s %d is pid %d", self.name, child.index, child.pid)

    def _fds(self) -> list[int]:
        """The descriptors that it sleeps on, which no child may keep."""
        fds = [child.fd for child in self.children if child.alive]
        return [*fds, *(self._pipe or ())[:1]]

    def _left(self) -> float | None:
        """Seconds until something is due."""
        moments = [child.due for child in self.children if child.due is not None]
        if self._deadline is not None:
            moments.append(self._deadline)
        return min(moments) - self._clock() if moments else None
