"""leader(): one holder of a Lease among all machines, as a context manager of threads and asyncio.

with shmcache.leader("reports") as lead:        # waits until it is ours
    while lead.held:
        ...
async with shmcache.leader("reports") as lead:  # the body is cancelled when it is lost
    ...

LEAD1  `held` compares a clock with the end of the term, whatever the threads do: a process
    that was stopped and goes on finds that it is over.
LEAD2  A Leader that lost its Lease does not get it again before the body has ended, and the
    body's end raises LeadershipLost if the body does not raise.
LEAD3  The Lease is released after the body, and never while it runs.
LEAD5  A body begins with the Lease: if the candidacy ends before, by stop() from another thread
    or by an error of its own, the entry raises LeadershipLost.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from shmcache.errors import ForkedError, LeadershipLost
from shmcache.lease.election import Election
from shmcache.lease.elector import Elector
from shmcache.lease.settings import LeaseSettings, boot_seconds

if TYPE_CHECKING:
    from shmcache.lease.leader_async import LeaderScope

logger = logging.getLogger(__name__)

_BREAK_SECONDS = 0.5
"""How long an end waits for a request under way before it breaks the connection."""
_WAITING, _LEADING, _LOST, _ENDED = range(4)


class Leader:
    """A candidate for one Lease; make it with leader(). May be entered again when it was left."""

    def __init__(
        self,
        lease: LeaseSettings,
        *,
        on_lost: Callable[[], object] | None = None,
        on_holder: Callable[[str], object] | None = None,
    ) -> None:
        self.lease = lease
        self._on_lost = on_lost
        self._on_holder = on_holder
        self._changed = threading.Condition()
        self._life = threading.RLock()
        """One thread at a time begins or ends a candidacy; others wait until it has."""
        self._elector: Elector | None = None
        self._threads: list[threading.Thread] = []
        self._state = _ENDED
        self._until = 0.0
        self._term = 0
        self._token = 0
        self._reason = ""
        self._holder = ""
        self._pid = os.getpid()
        self._scope: LeaderScope | None = None
        self._listeners: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        state = "held" if self.held else ("waiting", "lost", "lost", "idle")[self._state]
        return f"<shmcache leader {self.lease.name}: {state}>"

    # ---- for the body ----------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether the Lease is ours at this moment, by our own clock (LEAD1)."""
        return self._mine and self._state == _LEADING and boot_seconds() < self._until

    @property
    def _mine(self) -> bool:
        return self._pid == os.getpid()

    @property
    def token(self) -> int:
        """A number that is greater for each later holder: the resourceVersion of its first write.

        For what does not know the API server's versions, and must refuse a holder of the past.
        """
        return self._token

    @property
    def holder(self) -> str:
        """The identity of the holder, as it was last seen; "" without one."""
        return self._holder

    @property
    def identity(self) -> str:
        """Our own identity, between start and end; "" otherwise."""
        return "" if self._elector is None else self._elector.identity

    @property
    def reason(self) -> str:
        """Why the Lease was lost; "" if it was not."""
        return self._reason

    def check(self) -> None:
        """LeadershipLost if the Lease is not ours; call it before an act that cannot be undone."""
        if not self._mine:
            raise ForkedError(f"{self!r} belongs to the parent process")
        if not self.held:
            raise self._lost()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the Lease is ours; False after `timeout` seconds, or without a candidacy."""
        with self._changed:
            self._changed.wait_for(lambda: self._state != _WAITING, timeout)
            return self._state == _LEADING

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Waits until the Lease is lost; False if `timeout` seconds passed."""
        with self._changed:
            self._changed.wait_for(lambda: self._state in {_LOST, _ENDED}, timeout)
            return self._state in {_LOST, _ENDED}

    def _lost(self) -> LeadershipLost:
        return LeadershipLost(self.lease.name, self._reason or "it was not acquired")

    # ---- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Becomes a candidate; wait() for the Lease. SourceError if no server is configured."""
        with self._life:  # a stop() finds all threads, or none
            if self._state != _ENDED or self._elector is not None:
                raise RuntimeError(f"{self!r} has begun already")
            self._pid = os.getpid()
            self._elector = Elector(self.lease, on_step=self._note)
            self._state, self._reason, self._until, self._term = _WAITING, "", 0.0, 0
            self._spawn("elector", self._elect)
            self._spawn("guard", self._guard)

    def stop(self) -> None:
        """Ends the candidacy, and releases the Lease if it is ours still (LEAD3). Idempotent."""
        elector = self._elector
        if elector is None or not self._mine:
            return
        with self._changed:
            patience = self.lease.renew_deadline if self._state == _LEADING else 0.0
            self._set(_ENDED)
        elector.stop()
        if threading.current_thread() in self._threads:
            raise RuntimeError(f"stop() of {self!r} in its own thread cannot wait for that thread")
        with self._life:
            if self._elector is elector:
                self._finish(elector, patience)

    def _finish(self, elector: Elector, patience: float) -> None:
        for thread in self._threads:
            thread.join(_BREAK_SECONDS)
            if thread.is_alive():
                elector.interrupt()
            thread.join()
        self._threads.clear()
        if elector.election.term:
            elector.release(patience=patience)
        else:
            elector.close()
        self._elector = None

    def __enter__(self) -> Self:
        self.start()
        try:
            if not self.wait():
                raise self._lost()  # LEAD5
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._mine:
            return
        lost, reason = self.is_lost, self._reason
        self.stop()
        if lost and error is None:
            raise LeadershipLost(self.lease.name, reason)  # LEAD2

    async def __aenter__(self) -> Self:
        from shmcache.lease.leader_async import LeaderScope

        self._scope = LeaderScope(self)
        await self._scope.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        scope, self._scope = self._scope, None
        if scope is not None and self._mine:
            await scope.exit(error)

    def listen(self, listener: Callable[[], object]) -> None:
        """Calls it in one of our threads at each change of our state, until unlisten()."""
        with self._changed:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], object]) -> None:
        """Calls it no more."""
        with self._changed:
            self._listeners.remove(listener)

    @property
    def waits(self) -> bool:
        """Whether the candidacy goes on without the Lease."""
        return self._state == _WAITING

    @property
    def is_lost(self) -> bool:
        """Whether the Lease was ours, and is not any more, before the end."""
        with self._changed:
            self._expire()
            return self._state == _LOST

    # ---- threads ---------------------------------------------------------------------------------

    def _spawn(self, name: str, run: Callable[[], object]) -> None:
        title = f"leader {self.lease.name} {name}"
        thread = threading.Thread(target=run, name=title, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _elect(self) -> None:
        """The elector's thread: an error that nobody expected ends the candidacy (LEAD5)."""
        assert self._elector is not None
        try:
            self._elector.run()
        except Exception as error:
            logger.exception("lease %s: the election has failed", self.lease.name)
            with self._changed:
                if self._state in {_WAITING, _LEADING}:
                    self._lose(f"the election has failed: {error!r}")

    def _note(self, election: Election) -> None:
        """After each step of the election, in its thread."""
        holder = election.record.holder
        with self._changed:
            if self._state == _WAITING and election.leads:
                self._term, self._token = election.term, election.token
                self._until = election.until
                self._set(_LEADING)
            elif self._state == _LEADING:
                if election.leads and election.term == self._term:
                    self._until = election.until
                else:
                    self._lose(election.reason)
        if holder != self._holder:
            self._holder = holder
            self._call(self._on_holder, holder)

    def _guard(self) -> None:
        """Notices the end of the term by the clock, though the other thread hang in a request."""
        lost = False
        with self._changed:
            while self._state in {_WAITING, _LEADING}:
                self._expire()
                left = self._until - boot_seconds() if self._state == _LEADING else None
                if self._state != _LOST:
                    self._changed.wait(left)
            lost = self._state == _LOST
        if lost:
            logger.error("lease %s: leadership is lost: %s", self.lease.name, self._reason)
            self._call(self._on_lost)

    def _expire(self) -> None:
        if self._state == _LEADING and boot_seconds() >= self._until:
            self._lose(f"no renewal succeeded for {self.lease.renew_deadline:g} s")

    def _lose(self, reason: str) -> None:
        self._reason = reason or "the term ended"
        self._until = 0.0
        if self._elector is not None:
            self._elector.stop()  # LEAD2
        self._set(_LOST)

    def _set(self, state: int) -> None:
        self._state = state
        self._changed.notify_all()
        for listener in self._listeners:
            listener()

    def _call(self, function: Callable[..., object] | None, *arguments: object) -> None:
        if function is None:
            return
        try:
            function(*arguments)
        except Exception:
            logger.exception("lease %s: %r raised", self.lease.name, function)


def leader(
    lease: str | LeaseSettings,
    *,
    on_lost: Callable[[], object] | None = None,
    on_holder: Callable[[str], object] | None = None,
) -> Leader:
    """A candidate for a Lease, as a context manager: its body runs in one process of all machines.

    `lease` is a name, or LeaseSettings with times and server. `on_lost` is called in a thread as
    soon as the Lease is lost while the body runs; `on_holder` with the identity of each new holder.
    """
    settings = LeaseSettings(lease) if isinstance(lease, str) else lease
    return Leader(settings, on_lost=on_lost, on_holder=on_holder)
