"""A few machines of many that hold a Lease each; the others know where those are.

The identity in a Lease is the address at which its holder serves the others, and theirs alone.

    HOLDERS1  a machine holds one of the Leases at most: one that finds itself in two gives one
        back.
    HOLDERS2  the record decides, not the term: a machine that is named in a Lease goes on while no
        renewal succeeds, and until it reads another name there. Load is shared here, and not
        a right: for a moment one more may hold, and a server that does not answer takes nobody's
        role.
    HOLDERS3  a machine that starts again at the same address holds at once what it held.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

from shmcache.lease.election import Election, LeaseReply, LeaseRequest, Requests, Rest, Steps
from shmcache.lease.requests import LeaseRequests
from shmcache.lease.settings import LeaseSettings
from shmcache.source.client import ApiConnection

logger = logging.getLogger(__name__)

HASTE = 0.1
"""The shortest pause between two rounds, in retry periods: wake() may come often."""


class HolderView(NamedTuple):
    """The holders, as the Leases name them."""

    holds: bool
    """Whether one of them names us."""
    others: tuple[str, ...]
    """The addresses of the other holders."""


class Holders:
    """One machine's candidacy for one of several Leases. A thread between start() and stop()."""

    def __init__(
        self,
        settings: LeaseSettings,
        address: str,
        count: int,
        server: ApiConnection,
        on_change: Callable[[HolderView], object],
        *,
        rng: Random | None = None,
    ) -> None:
        """`settings` has the name of the first Lease; the next ones are NAME-2, NAME-3."""
        self._rng = rng or Random()
        self.settings = settings
        self.address = address
        self.standing: HolderView | None = None
        """None until all Leases were read."""
        self._on_change = on_change
        namespace = settings.namespace or server.access().namespace
        names = [settings.name, *(f"{settings.name}-{n}" for n in range(2, count + 1))]
        self._candidacies = [
            _Candidacy(replace(settings, name=name), address, namespace, server, self._rng)
            for name in names
        ]
        self.title = f"Lease {namespace}/{settings.name}"
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._reported = ""

    # ---- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """From now on."""
        self._thread = threading.Thread(target=self._run, name="shmcache-holders", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """A holder does not answer: reads the Leases soon. From any thread."""
        self._wake.set()

    def stop(self) -> None:
        """Ends the candidacy, and releases the Lease that is ours. Idempotent."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._wake.set()
        for one in self._candidacies:
            one.requests.interrupt()
        if self._thread is not None:
            self._thread.join()
        for one in self._candidacies:
            if one.election.record.holder == self.address:
                one.drive(one.election.release())
            one.requests.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = self.round()
            least = self.settings.retry_period * HASTE
            self._stop.wait(least)
            self._wake.wait(max(0.0, pause - least))
            self._wake.clear()

    # ---- one look --------------------------------------------------------------------------------

    def round(self) -> float:
        """Renews, or tries to acquire, and reads the others; seconds until the next one."""
        named = [one for one in self._candidacies if self._is_ours(one)]
        rest = [one for one in self._candidacies if one not in named]
        self._rng.shuffle(rest)
        held: _Candidacy | None = None
        for one in [*named, *rest]:
            if self._stop.is_set():
                break
            if held is None:
                one.drive(one.election.attempt())
                held = one if self._is_ours(one) else None  # HOLDERS2
            else:
                one.drive(one.election.look())
                if self._is_ours(one):
                    one.drive(one.election.release())  # HOLDERS1
        self._tell()
        return min(one.election.rest() for one in self._candidacies)

    def _is_ours(self, one: _Candidacy) -> bool:
        return one.election.record.holder == self.address

    def _tell(self) -> None:
        records = [one.election.record.holder for one in self._candidacies]
        self._log()
        if self.standing is None and not any(records):
            return  # nothing was read yet, or nobody holds anything
        others = tuple(sorted({name for name in records if name and name != self.address}))
        found = HolderView(self.address in records, others)
        if found != self.standing:
            self.standing = found
            where = ", ".join(others) or "nobody"
            logger.info("%s: %s", self.title, "held by us" if found.holds else f"held by {where}")
            self._on_change(found)

    def _log(self) -> None:
        """Each kind of failure once."""
        failures = [one.election.failure for one in self._candidacies]
        failure = next(filter(None, failures), "")
        if failure and failure != self._reported:
            logger.warning("%s: %s", self.title, failure)
        self._reported = failure


class _Candidacy:
    """One of the Leases: the view of it, and its requests."""

    def __init__(
        self,
        settings: LeaseSettings,
        address: str,
        namespace: str,
        server: ApiConnection,
        rng: Random,
    ) -> None:
        self.election = Election(settings, address, namespace, rng)
        timeout = settings.request_timeout
        self.requests = LeaseRequests(server, namespace, settings.name, timeout=timeout)

    def drive(self, steps: Requests | Steps) -> bool:
        """Carries the steps out, to their end."""
        reply: LeaseReply | None = None
        try:
            while True:
                action = steps.send(reply)  # type: ignore[arg-type]  # None begins it
                if isinstance(action, Rest):
                    return False  # a release without patience
                assert isinstance(action, LeaseRequest)
                reply = self.requests.ask(action)
        except StopIteration as ended:
            return bool(ended.value)
