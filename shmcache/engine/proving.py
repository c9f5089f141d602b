"""Claims, comparisons and repairs of one plan, with the requests that they need.

claim        the digest of a feed's content, for the prover (proof.py)
difference   what differs from the server now (difference.py)
repair       single keys are put right (repairing.py)
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from shmcache.engine.comparing import Disagreement, digest_of_objects
from shmcache.engine.content import Content
from shmcache.engine.difference import ServerDifference, difference
from shmcache.engine.evidence import Refusal
from shmcache.engine.proof import Claim
from shmcache.engine.repairing import fetch_one, repair

if TYPE_CHECKING:
    from shmcache.engine.feed import SourceFeed
    from shmcache.engine.open_source import Opener
    from shmcache.engine.plans import Plan
    from shmcache.engine.shown import ShownContent
    from shmcache.protocol.items import Item
    from shmcache.source.base import Source
    from shmcache.writer.writer import Writer

NO_SERVER = "its source has no lists to compare with"


class PlanProof:
    """Of one plan, for all its feeds."""

    def __init__(self, plan: Plan, opener: Opener, writer: Writer, shown: ShownContent) -> None:
        self._plan = plan
        self._opener = opener
        self._writer = writer
        self._shown = shown

    def claim(self, feed: SourceFeed) -> Claim | None:
        """The feed's claim; None where it cannot be proved. In its thread, between two batches."""
        namespace, version = feed.parts.namespace, feed.parts.content.version
        source = self._opener.open_metadata(self._plan, namespace)
        if source is None or version is None or not self._shown.comparable:
            return None
        objects = self._writer.objects(self._plan.name)
        if namespace:
            objects = (one for one in objects if one[0].startswith(f"{namespace}/"))
        return Claim(
            label=feed.parts.label,
            version=version,
            digest=digest_of_objects(objects),
            source=source,
            labels=self._plan.labels,
            fields=self._plan.fields,
            disproved=partial(feed.doubt, feed.claim_number),
            unknown=partial(feed.claim_again, feed.claim_number),
            difference=partial(self.difference, feed),
            repair=partial(self.correct, feed),
            proved=partial(feed.settle, feed.unproved or 0),
        )

    def difference(self, feed: SourceFeed, stop: threading.Event) -> ServerDifference:
        """From the server now. SourceFailed, Refusal."""
        namespace = feed.parts.namespace
        source = self._opener.open_metadata(self._plan, namespace, direct=True)
        if source is None:
            raise Refusal(NO_SERVER)
        try:
            return difference(self._shown, namespace, source, stop)
        finally:
            source.close()

    def correct(self, feed: SourceFeed, found: ServerDifference) -> None:
        """Has the feed repair what differs, soon."""
        if found.found:
            feed.disagree(found.found, found.version)

    def repair(self, feed: SourceFeed, found: list[Disagreement]) -> int:
        """Repairs keys; how many were wrong. In the feed's thread. SourceFailed, Refusal."""
        content = feed.parts.content
        if not isinstance(content, Content):
            raise Refusal(NO_SERVER)
        sources: dict[str, Source] = {}

        def fetch(key: str) -> Item | None:
            namespace = key.rpartition("/")[0]
            source = sources.get(namespace) or self._opener.open_beside(self._plan, namespace)
            if source is None:
                raise Refusal(NO_SERVER)
            sources[namespace] = source
            return fetch_one(source, self._plan, key)

        try:
            shown = self._shown.content(feed.parts.namespace)
            return repair(feed.parts.label, content, shown, found, fetch)
        finally:
            for source in sources.values():
                source.close()
