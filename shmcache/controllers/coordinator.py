"""The process that keeps a controller's Lease, or its share of the slots, for one machine.

    kernel lock ▸ identity ▸ elector's thread ▸ tenure.until
                                └── sharing's thread ▸ tenure's slots          (machines=)

Of several runs on a machine one has it, and the next takes it over with the identity, so that a
machine is one candidate or one member. It ends after the workers (Supervisor's `last`), and then
releases the Lease, unless workers of another run go on.

    COORD1  The slots of a term are written after those of the last one were cleared, and the end
        of the term after both.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from shmcache.controllers.board import Board
from shmcache.controllers.tenure import Tenure
from shmcache.errors import SourceError
from shmcache.lease.election import Election, LeaseReply
from shmcache.lease.elector import Elector
from shmcache.lease.requests import LeaseRequests
from shmcache.lease.settings import LeaseSettings, boot_seconds, new_identity
from shmcache.lease.sharing import LABEL, Holdings, Sharing
from shmcache.lease.slots import SLOTS

if TYPE_CHECKING:
    from shmcache.controllers.declaring import Controller
    from shmcache.memory.segments import Place

TAKE_SECONDS = 0.2
"""How often a coordinator that stands by tries the lock."""
LEAVE_SECONDS = 3.0
"""How long an end waits for the others to be given the slots."""

logger = logging.getLogger(__name__)


class TenureHoldings(Holdings):
    """Slots on the board, written by two threads of the coordinator."""

    def __init__(self, tenure: Tenure) -> None:
        self.tenure = tenure
        self._lock = threading.Lock()
        self._term = 0

    def step(self, election: Election, *, alone: bool) -> None:
        """After each step of the election; `alone`: all slots are the holder's."""
        with self._lock:
            if not election.leads:
                self.tenure.end()
                return
            if election.term != self._term:
                self.tenure.end()
                self.tenure.clear()  # COORD1
                self._term = election.term
                if alone:
                    self.tenure.set_slots(range(SLOTS), election.token)
                    self.tenure.join()
            self.tenure.extend(election.until)

    def begin(self, term: int) -> None:
        """The table knows our term."""
        with self._lock:
            if term > self._term:  # the other thread has not come to step() yet
                self.tenure.end()
                self.tenure.clear()
                self._term = term
            if term == self._term:
                self.tenure.join()

    def gain(self, slots: Collection[int], epoch: int, term: int) -> None:
        """Workers may begin."""
        with self._lock:
            if term == self._term:
                self.tenure.set_slots(slots, epoch)

    def lose(self, slots: Collection[int]) -> None:
        """Workers may not begin."""
        with self._lock:
            self.tenure.set_slots(slots, 0)

    def busy(self) -> set[int]:
        """Slots of keys in work."""
        return self.tenure.busy()


class Coordinator:
    """Keeps the tenure of one machine. run() returns after `stopped` is true."""

    def __init__(self, controller: Controller, place: Place) -> None:
        """SourceError if no server is configured."""
        self._alone = controller.leader is not None
        settings = controller.leader or controller.machines
        assert settings is not None
        self._settings: LeaseSettings = settings
        self._title = controller.name
        self._board = Board(place, controller.name)
        self._tenure = Tenure(self._board)
        self._holdings = TenureHoldings(self._tenure)
        self._stop = threading.Event()
        self._sharing: Sharing | None = None
        self._table: LeaseRequests | None = None

    def run(self, stopped: Callable[[], bool], sleep: Callable[[float], object]) -> None:
        """The whole life."""
        try:
            while not self._board.take_tenure():
                if stopped():
                    return
                sleep(TAKE_SECONDS)
            elector = self._join()
            threads = [threading.Thread(target=elector.run, name="elector", daemon=True)]
            if self._sharing is not None:
                threads.append(threading.Thread(target=self._share, name="sharing", daemon=True))
            for thread in threads:
                thread.start()
            while not stopped() and all(thread.is_alive() for thread in threads):
                sleep(1.0)
            self._leave(elector, threads)
        finally:
            self._board.close()

    def _join(self) -> Elector:
        identity = self._settings.identity or self._tenure.identity or new_identity()
        self._tenure.identity = identity
        settings, labels = self._settings, None
        if not self._alone:
            settings = replace(settings, name=f"{settings.name}-{identity}", candidacy=None)
            labels = {LABEL: self._settings.name}

        def step(election: Election) -> None:
            self._holdings.step(election, alone=self._alone)

        elector = Elector(settings, identity=identity, on_step=step, labels=labels)
        if not self._alone:
            self._sharing = Sharing(
                elector.election,
                self._settings.name,
                elector.namespace,
                self._holdings,
                clock=boot_seconds,
            )
            self._table = LeaseRequests(
                elector.server,
                elector.namespace,
                self._settings.name,
                timeout=settings.request_timeout,
                label=f"{LABEL}={self._settings.name}",
            )
        return elector

    def _share(self) -> None:
        sharing, failure, members = self._sharing, "", frozenset[str]()
        assert sharing is not None
        while not self._stop.is_set() and not sharing.gone:
            rest = self._round(sharing)
            if sharing.failure and sharing.failure != failure:
                logger.warning("%s: %s", self._title, sharing.failure)
            if sharing.members != members:
                members = sharing.members
                logger.info("%s: %d machines: %s", self._title, len(members), sorted(members))
            failure = sharing.failure
            self._stop.wait(rest)

    def _round(self, sharing: Sharing) -> float:
        assert self._table is not None
        steps = sharing.round()
        reply: LeaseReply | None = None
        try:
            while True:
                reply = self._table.ask(steps.send(reply))  # type: ignore[arg-type]
        except StopIteration as ended:
            return float(ended.value)

    def _leave(self, elector: Elector, threads: list[threading.Thread]) -> None:
        """Releases the Lease, or leaves it to another run on this machine, which has the lock next.

        The workers of our own run have ended.
        """
        others = bool(self._board.lived_in)
        if not others and self._sharing is not None:
            self._sharing.leave()
            threads[1].join(LEAVE_SECONDS)
        self._stop.set()
        elector.stop()
        for thread in threads:
            thread.join(self._settings.request_timeout)
        if not others and not any(thread.is_alive() for thread in threads):
            self._tenure.end()
            self._tenure.clear()
            elector.release(delete=not self._alone, patience=LEAVE_SECONDS)
        self._board.leave_tenure()


def check_lease(controller: Controller) -> None:
    """SourceError if the server of a controller's Lease is not configured."""
    settings = controller.leader or controller.machines
    if settings is not None:
        try:
            settings.access().load()
        except SourceError as error:
            raise SourceError(f"the Lease of controller {controller.name!r}: {error}") from error
