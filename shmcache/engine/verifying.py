"""Comparisons that people ask for: `shmcache verify`, by way of the desk (desk.py).

VERIFY1  the prover's thread compares, so that at most one list of metadata is under way; a few
questions wait, further ones are refused.
VERIFY2  what differs is repaired as after any other comparison (repairing.py).
VERIFY3  the answer is bounded: FEEDS feeds, SHOWN keys in all; the rest is counted.
VERIFY4  readers cannot have the server listed all the time: questions about one resource that wait
share a comparison, which begins after they came and is left out when all of them have left; the
next one comes after a rest (PROOF7).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from shmcache.engine import desk
from shmcache.engine.evidence import Refusal
from shmcache.errors import ShmCacheError
from shmcache.source.base import SourceFailed

if TYPE_CHECKING:
    from shmcache.engine.comparing import Disagreement
    from shmcache.engine.desk import Asked
    from shmcache.engine.difference import ServerDifference
    from shmcache.engine.feed import SourceFeed
    from shmcache.engine.proving import PlanProof

SHOWN, FEEDS = 100, 64
ERROR_MAX = 300

Job = Callable[[threading.Event], None]


class PlanVerifier:
    """The comparisons of one plan: submit() from any thread."""

    def __init__(
        self,
        proof: PlanProof,
        feeds: Callable[[], Iterable[SourceFeed]],
        ask: Callable[[Job], bool],
    ) -> None:
        """`ask` has a job done by the prover's thread; False if too many wait."""
        self._proof = proof
        self._feeds = feeds
        self._ask = ask
        self._lock = threading.Lock()
        self._waiting: list[Asked] = []

    def submit(self, asked: Asked) -> None:
        """See desk.py."""
        with self._lock:
            if len(self._waiting) >= 2 * desk.CONNECTIONS:  # DESK2: half of them have left
                self._waiting = [one for one in self._waiting if one.lives()]
            self._waiting.append(asked)
            begins = len(self._waiting) == 1
        if begins and not self._ask(self._verify):
            for one in self._taken():
                one.answer({"error": "too many comparisons wait"})

    def _taken(self) -> list[Asked]:
        with self._lock:
            found, self._waiting = self._waiting, []
        return found

    def _verify(self, stop: threading.Event) -> None:
        asked = self._taken()
        feeds = list(self._feeds())
        answer: dict[str, Any] = {"error": "the first list is not stored yet"}
        if feeds:
            found = []
            for feed in feeds:
                now = time.monotonic()
                if not any(one.deadline > now and one.lives() for one in asked):
                    return  # nobody waits any more
                found.append(self._compared(feed, max(SHOWN // len(feeds), 1), stop))
            answer = {"feeds": found[:FEEDS], "more": len(found[FEEDS:])}
        for one in asked:
            one.answer(answer)

    def _compared(self, feed: SourceFeed, shown: int, stop: threading.Event) -> dict[str, Any]:
        namespace = {"namespace": feed.parts.namespace}
        try:
            found = self._proof.difference(feed, stop)
        except (Refusal, SourceFailed, ShmCacheError) as error:
            return namespace | {"error": str(error)[:ERROR_MAX]}
        self._proof.correct(feed, found)
        return namespace | _report(found, shown)


def _report(found: ServerDifference, shown: int) -> dict[str, Any]:
    return {
        "version": found.version,
        "objects": found.objects,
        "differences": [_one(each) for each in found.found[:shown]],
        "more": max(len(found.found) - shown, 0) + found.more,
    }


def _one(each: Disagreement) -> dict[str, Any]:
    return {
        "key": each.key,
        "server": None if each.theirs is None else each.theirs._asdict(),
        "cache": None if each.ours is None else each.ours._asdict(),
    }
