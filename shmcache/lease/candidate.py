"""LeaseCandidates (KEP-4355): tell a server that chooses holders that this one is there.

CAND1  The candidate has the name of the holder's identity, which is how the server names it.
CAND2  A ping that is later than the last renewal is answered by a renewal, within a period.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from shmcache.lease.election import LeaseRequest, ReplyKind, Verb
from shmcache.lease.record import later, micro_time, wall_of
from shmcache.lease.requests import GROUP, LeaseRequests
from shmcache.lease.settings import Candidacy
from shmcache.protocol.jsontext import decoded
from shmcache.source.base import SourceFailed
from shmcache.source.client import ApiConnection, Client

if TYPE_CHECKING:
    from shmcache.lease.elector import Elector

logger = logging.getLogger(__name__)

PLURAL, KIND = "leasecandidates", "LeaseCandidate"
VERSIONS = ("v1", "v1beta1", "v1alpha2")
RENEW_SECONDS = 300.0
"""A candidate is renewed this often, also without a ping."""


def candidates_of(server: ApiConnection, timeout: float) -> str | None:
    """The group version in which a server has LeaseCandidates; "" without, None if unknown."""
    client = Client(server)
    try:
        for version in VERSIONS:
            path = f"/apis/{GROUP}/{version}"
            try:
                found = decoded(client.document(path, silence=timeout))
            except SourceFailed as failed:
                if failed.failure.code != 404:
                    return None
                continue
            if any(one.get("name") == PLURAL for one in found.get("resources") or ()):
                return path
    except (ValueError, AttributeError, TypeError):
        return None
    finally:
        client.close()
    return ""


class CandidateKeeper:
    """Creates the candidate, answers its pings, and removes it, in a thread of its own."""

    def __init__(self, elector: Elector, version: str, candidacy: Candidacy) -> None:
        self._identity = elector.identity
        self._lease = elector.settings.name
        self._namespace = elector.namespace
        self._candidacy = candidacy
        self._period = elector.settings.retry_period
        self._api_version = version.removeprefix("/apis/")
        self._requests = LeaseRequests(
            elector.server,
            elector.namespace,
            self._identity,  # CAND1
            timeout=elector.settings.request_timeout,
            version=version,
            plural=PLURAL,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease candidate", daemon=True)

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def end(self) -> None:
        """Removes the candidate. Waits for a request under way."""
        self._stop.set()
        self._thread.join()
        self._requests.ask(LeaseRequest(Verb.DELETE))
        self._requests.close()

    def _run(self) -> None:
        said = ""
        while not self._stop.is_set():
            failure = self._keep()
            if failure and failure != said:
                logger.warning("candidate %s/%s: %s", self._namespace, self._identity, failure)
            said = failure
            self._stop.wait(self._period)

    def _keep(self) -> str:
        """Creates it, or renews it if that is due; the text of a failure."""
        reply = self._requests.ask(LeaseRequest(Verb.READ))
        if reply.kind is ReplyKind.MISSING:
            reply = self._requests.ask(LeaseRequest(Verb.CREATE, self._new()))
        elif reply.kind is ReplyKind.DONE and reply.body is not None:
            spec = reply.body.get("spec")
            spec = spec if isinstance(spec, dict) else {}
            if not _due(spec, time.time()):
                return ""
            renewed = {**spec, "renewTime": later(time.time(), str(spec.get("renewTime")))}
            reply = self._requests.ask(LeaseRequest(Verb.REPLACE, {**reply.body, "spec": renewed}))
        return "" if reply.kind in {ReplyKind.DONE, ReplyKind.CONFLICT} else reply.message

    def _new(self) -> dict[str, Any]:
        spec = {
            "leaseName": self._lease,
            "binaryVersion": self._candidacy.binary_version,
            "strategy": self._candidacy.strategy,
            "renewTime": micro_time(time.time()),
        }
        if self._candidacy.emulation_version:
            spec["emulationVersion"] = self._candidacy.emulation_version
        return {
            "apiVersion": self._api_version,
            "kind": KIND,
            "metadata": {"name": self._identity, "namespace": self._namespace},
            "spec": spec,
        }


def _due(spec: dict[str, Any], now: float) -> bool:
    """Whether the server asks for a renewal (CAND2), or the last one was long ago."""
    renewed = wall_of(str(spec.get("renewTime") or ""))
    pinged = wall_of(str(spec.get("pingTime") or ""))
    if renewed is None:
        return True
    return (pinged is not None and pinged > renewed) or abs(now - renewed) >= RENEW_SECONDS
