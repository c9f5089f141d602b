"""Drives an election in a thread: sends its requests, sleeps its rests, reports each step."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from random import Random

from shmcache.lease.candidate import CandidateKeeper, candidates_of
from shmcache.lease.election import RESTED, Election, LeaseReply, LeaseRequest, Steps
from shmcache.lease.requests import LeaseRequests
from shmcache.lease.settings import LeaseSettings, new_identity
from shmcache.source.client import ApiConnection
from shmcache.source.config import open_server

logger = logging.getLogger(__name__)


class Elector:
    """A candidate at a server. run() in a thread; stop() from any."""

    def __init__(
        self,
        settings: LeaseSettings,
        *,
        identity: str = "",
        on_step: Callable[[Election], object] = lambda _: None,
        labels: dict[str, str] | None = None,
        server: ApiConnection | None = None,
    ) -> None:
        """Reads the configuration of the server: SourceError for an invalid one."""
        self.settings = settings
        self.identity = identity or settings.identity or new_identity()
        self.server = server or open_server(settings.access())
        self.namespace = settings.namespace or self.server.access().namespace
        self.title = f"Lease {self.namespace}/{settings.name}"
        self.election = Election(settings, self.identity, self.namespace, Random(), labels=labels)
        self._requests = self._requests_of(settings.name)
        self._on_step = on_step
        self._stop = threading.Event()
        self._reported = ("", "", 0)

    def _requests_of(self, name: str) -> LeaseRequests:
        timeout = self.settings.request_timeout
        return LeaseRequests(self.server, self.namespace, name, timeout=timeout)

    def run(self) -> None:
        """Attempts until stop(); then `on_step` is called no more."""
        with ExitStack() as stack:
            self._join_candidates(stack)
            self._drive(self.election.run(), self._stop)

    def _join_candidates(self, stack: ExitStack) -> None:
        """Coordinated leader election, where the server has it (KEP-4355)."""
        if self.settings.candidacy is None:
            return
        found = None
        while found is None and not self._stop.is_set():
            found = candidates_of(self.server, self.settings.request_timeout)
            if found is None:  # nobody knows yet
                self._stop.wait(self.settings.retry_period)
        self.election.coordinated = bool(found)
        if not found:
            logger.info("%s: the server does not coordinate candidates", self.title)
            return
        keeper = CandidateKeeper(self, found, self.settings.candidacy)
        stack.callback(keeper.end)
        keeper.start()

    def stop(self) -> None:
        """Ends run() after the request under way. The Lease is not released by that."""
        self._stop.set()

    def interrupt(self) -> None:
        """Ends the request under way, as if its connection had broken."""
        self._requests.interrupt()

    def release(self, *, delete: bool = False, patience: float = 0.0) -> bool:
        """Gives the Lease back, when run() and the work have ended; whether nobody has it now."""
        steps = self.election.release(delete=delete, patience=patience)
        try:
            return self._drive(steps, threading.Event())
        finally:
            self._requests.close()

    def close(self) -> None:
        """Closes the connection; without release() the Lease expires by itself."""
        self._requests.close()

    def _drive(self, steps: Steps, stop: threading.Event) -> bool:
        reply: LeaseReply | None = None
        try:
            while not stop.is_set():
                action = steps.send(reply)  # type: ignore[arg-type]  # None begins it
                self._on_step(self.election)
                self._log()
                if isinstance(action, LeaseRequest):
                    reply = self._requests.ask(action)
                else:
                    stop.wait(action.seconds)
                    reply = RESTED
        except StopIteration as ended:
            return bool(ended.value)
        finally:
            steps.close()
        return False

    def _log(self) -> None:
        """Each change of holder and each kind of failure, once."""
        election = self.election
        now = (election.record.holder, election.failure, election.term)
        before, self._reported = self._reported, now
        if now[2] != before[2]:
            logger.info("%s: %s leads, term %d", self.title, self.identity, election.term)
        elif now[0] != before[0] and now[0] != self.identity:
            logger.info("%s: held by %s", self.title, now[0] or "nobody")
        if now[1] != before[1] and now[1]:
            logger.warning("%s: %s", self.title, now[1])
