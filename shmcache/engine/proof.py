"""Proof that the cache and the server share one history, after a life or a server was away.

A server that was restored from a backup, and then wrote more than it had lost, has a version beyond
ours again: it accepts our watch, and nothing in the watch shows that earlier changes were undone. A
version is a number, not an identity. So a feed that resumes makes a claim as soon as its version
has moved on: a digest of all keys and versions at exactly that version. This thread lists the same
version of the resource, metadata only, and compares digests. Where they differ, the difference of
now (difference.py) shows which keys are wrong, and just these are repaired. Each feed also makes a
claim every few minutes (`proof_interval`), one feed after the other: an event that was lost on its
way is found by it.

Invariants
    PROOF1  a claim is about one version: the feed makes it between two batches, and an answer at
            another version proves nothing, neither way.
    PROOF2  equal digests prove that every object of the cache had the same version in the history
            of the server, and that there were no others. The digest is a sum of salted hashes: the
            order of objects does not matter, and nobody can construct a collision.
    PROOF3  different digests make the feed repair what differs still, or list again if that cannot
        be found out. An answer that proves nothing makes it claim
            again when its version has moved on.
    PROOF4  one list at a time, at the pace of the process; a feed has at most one claim that waits:
            a newer one replaces it.
    PROOF5  a claim without an answer is repeated after a wait that doubles: a server that never
            answers at an exact version is not listed for each change.
    PROOF6  claims of a feed are numbered. An answer to another than the last one is ignored, and so
            is each that comes after the feed has listed again.
    PROOF7  after a comparison that people asked for the next one rests for as long as it took, up
        to MOST_REST: claims have their turns then, and the server is not listed all the time.

Objects that a transform has left out or stripped cannot be compared: those resources make no claim.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmcache.engine.comparing import MOST_MORE, digest_of_items
from shmcache.engine.evidence import Refusal
from shmcache.errors import ShmCacheError
from shmcache.protocol.options import ListOptions
from shmcache.source.base import SourceFailed

if TYPE_CHECKING:
    from shmcache.engine.difference import ServerDifference
    from shmcache.engine.rate_limit import Pace
    from shmcache.source.base import Source

logger = logging.getLogger(__name__)

PAGE = 2000
"""Objects in a page: some 500 KB of metadata."""
MOST_JOBS = 16
"""Comparisons that people have asked for (verifying.py), and that wait."""
LEAST_REST, MOST_REST = 0.1, 5.0
"""Seconds between two of those (PROOF7)."""
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Claim:
    """The content of one feed at a version, and whom to ask for the server's."""

    label: str
    version: str
    digest: tuple[int, int]
    source: Source
    """Of the same objects, metadata only."""
    labels: str
    fields: str
    disproved: Callable[[str], None]
    """The cache is not what the server had, and nobody knows where."""
    unknown: Callable[[], None]
    """No proof came, neither way."""
    difference: Callable[[threading.Event], ServerDifference]
    """From the server now; of it the feed repairs what is wrong."""
    repair: Callable[[ServerDifference], None]
    proved: Callable[[], object] = bool


class Prover:
    """Checks claims, one after the other, in a thread of its own."""

    def __init__(self, pace: Pace, stop: threading.Event) -> None:
        self.proved = 0
        self.disproved = 0
        """Claims whose digests differed."""
        self._pace = pace
        self._stop = stop
        self._claims: dict[str, Claim] = {}  # by label, the oldest first (PROOF4)
        self._jobs: deque[Callable[[threading.Event], None]] = deque()
        self._jobs_at = 0.0
        self._ended = False
        self._lock = threading.Condition()
        self._source: Source | None = None

    def submit(self, claim: Claim) -> None:
        """From any thread."""
        with self._lock:
            replaced = self._claims.pop(claim.label, None)
            self._claims[claim.label] = claim
            self._lock.notify()
        if replaced is not None:
            replaced.source.close()

    def ask(self, job: Callable[[threading.Event], None]) -> bool:
        """Does it before the next claim; False if too much waits. From any thread."""
        with self._lock:
            if len(self._jobs) >= MOST_JOBS or self._ended:
                return False
            self._jobs.append(job)
            self._lock.notify()
            return True

    def end(self) -> None:
        """Ends run() soon, from any thread."""
        with self._lock:
            self._ended = True
            self._lock.notify()
            if self._source is not None:
                self._source.cancel()

    def run(self) -> None:
        """The thread: until end()."""
        while (claim := self._next()) is not None and not self._stop.is_set():
            self._pace.wait(self._stop)
            if not isinstance(claim, Claim):
                begun = time.monotonic()
                claim(self._stop)
                now = time.monotonic()
                self._jobs_at = now + min(max(now - begun, LEAST_REST), MOST_REST)  # PROOF7
                continue
            try:
                self._check(claim)
            except SourceFailed as failed:
                logger.debug("%s: no proof at version %s: %s", claim.label, claim.version, failed)
                claim.unknown()

    def _next(self) -> Claim | Callable[[threading.Event], None] | None:
        """A job, or the claim that has waited longest; None after end(), once none is left."""
        with self._lock:
            while True:
                rest = self._jobs_at - time.monotonic()
                if self._jobs and rest <= 0:
                    return self._jobs.popleft()
                for label in self._claims:
                    return self._claims.pop(label)
                if self._ended:
                    return None
                self._lock.wait(rest if self._jobs else None)

    def _check(self, claim: Claim) -> None:
        theirs = self._listed(claim)
        if theirs is None:
            claim.unknown()
        elif theirs == claim.digest:
            self.proved += 1
            claim.proved()
            logger.debug("%s: proved at version %s", claim.label, claim.version)
        else:
            self.disproved += 1
            text = (
                f"the server had {theirs[0]} objects at {claim.version}, the cache "
                f"{claim.digest[0]}, and they differ"
            )
            try:
                found = claim.difference(self._stop)
            except (Refusal, SourceFailed, ShmCacheError) as error:
                claim.disproved(f"{text}; it cannot be found out where: {error}")
            else:
                logger.error("%s: %s; at %s of %d", claim.label, text, found.version, found.objects)
                claim.repair(found)

    def _listed(self, claim: Claim) -> tuple[int, int] | None:
        """The server's digest; None if it is of another version (PROOF1)."""
        source = claim.source
        with self._lock:
            self._source = source
        try:
            count = total = 0
            options: ListOptions | None = self._selected(claim, claim.version)
            first = True
            while options is not None and not self._stop.is_set():
                with source.page(options) as page:
                    for items in page:
                        found, part = digest_of_items(items)
                        count, total = count + found, total + part
                        if count > claim.digest[0] + MOST_MORE:  # a list may have no end
                            return None if first else (count, total & _MASK)
                    meta = page.meta
                if first and meta.version != claim.version:
                    return None
                first, token = False, meta.continue_token
                options = self._selected(claim, token=token) if token else None
            return None if options is not None else (count, total & _MASK)
        finally:
            with self._lock:
                self._source = None
            source.close()

    @staticmethod
    def _selected(claim: Claim, version: str = "", token: str = "") -> ListOptions:
        return ListOptions(
            resource_version=version,
            resource_version_match="Exact" if version else "",
            limit=PAGE,
            continue_token=token,
            label_selector=claim.labels,
            field_selector=claim.fields,
        )
