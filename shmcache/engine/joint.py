"""Several resources that one stream keeps: their changes are published together.

A feed drives one content and one standing; here both stand for those of all resources that an etcd
watch covers. Of an item, `kind` is the name of its resource (source/etcd/objects.py).

    JOINT1  what one call applies to several resources is one generation: no reader sees a half of
            a transaction that moved something from one resource to another.
    JOINT2  each resource's version is one up to which its content is complete. A call that changes
            one resource may leave the versions of the others behind, by EVEN_SECONDS at most while
            anything changes; the highest one is that of the stream.
    JOINT3  a call that fails leaves all resources, and their versions, as they were.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from shmcache.engine.content import Content
from shmcache.engine.counters import Counters
from shmcache.engine.resource_state import ResourceState
from shmcache.protocol.items import REFUSED, Item
from shmcache.protocol.versions import compare, is_version
from shmcache.writer.writer import Writer

logger = logging.getLogger(__name__)

EVEN_SECONDS = 1.0
_KIND: Callable[[Item], str | None] = attrgetter("kind")


class JointContent:
    """The objects of one stream. Used by its feed's thread alone; as content.Content."""

    def __init__(
        self,
        writer: Writer,
        contents: Mapping[str, Content],
        version: str | None,
        marks: Callable[[], str],
    ) -> None:
        """`marks` describes the history of the source, and is stored with each new content."""
        self.version = version
        self._writer = writer
        self._contents = dict(contents)
        self._marks = marks
        self._counts = dict.fromkeys(contents, (0, 0))
        self._even = 0.0

    @property
    def refused(self) -> int:
        """Values that became no object, and objects that could not be stored."""
        return sum(content.refused for content in self._contents.values())

    @property
    def staging(self) -> bool:
        """Whether a new content is being staged."""
        return any(content.staging for content in self._contents.values())

    def begin(self) -> None:
        """Opens a staging area for each resource."""
        self.cancel()
        for content in self._contents.values():
            content.begin()

    def stage(self, items: list[Item]) -> None:
        """Puts items into the staging areas."""
        for name, part in self._runs(items):
            self._contents[name].stage(part)

    def finish(self, version: str) -> int:
        """Makes the staged content of all resources visible, at once; how many objects."""
        marks = self._marks()
        with _Whole(self), self._writer.batch():
            count = sum(content.finish(version) for content in self._contents.values())
            for name in self._contents:
                self._writer.set_marks(name, marks)
        self.version = version
        return count

    def cancel(self) -> None:
        """Forgets the staging areas."""
        for content in self._contents.values():
            content.cancel()

    def apply(self, items: list[Item], version: str) -> None:
        """Makes changes visible as one generation (JOINT1)."""
        runs = self._runs(items)
        now = time.monotonic()
        if len(runs) == 1 and (len(self._contents) == 1 or now - self._even < EVEN_SECONDS):
            name, part = runs[0]
            self._contents[name].apply(part, version)
        else:
            self._apply_all(runs, version)
            self._even = now
        self.version = version

    def advance(self, version: str) -> None:
        """Nothing changed up to this version."""
        self._apply_all([], version)
        self.version = version

    def take_counts(self, name: str) -> tuple[int, int]:
        """Items of a resource since the last call, and their bytes."""
        found, self._counts[name] = self._counts[name], (0, 0)
        return found

    def _apply_all(self, runs: list[tuple[str, list[Item]]], version: str) -> None:
        changed = {name for name, _ in runs}
        with _Whole(self), self._writer.batch():
            for name, part in runs:
                self._contents[name].apply(part, version)
            for name, content in self._contents.items():
                if name not in changed and content.version is not None:
                    content.advance(version)

    def _runs(self, items: list[Item]) -> list[tuple[str, list[Item]]]:
        """Items of one resource that follow each other; refused ones are reported here.

        Their order stays: the deltas of a generation are in the order of revisions, too.
        """
        runs: list[tuple[str, list[Item]]] = []
        for kind, group in groupby(items, _KIND):
            name, part = kind or "", list(group)
            refused = [item for item in part if item.api_version == REFUSED]
            for item in refused:
                self._contents[name].refuse(item.key, item.raw.decode())
            if refused:
                part = [item for item in part if item.api_version != REFUSED]
            runs.append((name, part))
        for name, part in runs:
            count, size = self._counts[name]
            size += sum([len(item.raw) for item in part])
            self._counts[name] = count + len(part), size
        return runs


class _Whole:
    """Takes the versions of all resources back if the batch inside fails (JOINT3)."""

    def __init__(self, joint: JointContent) -> None:
        self._contents = list(joint._contents.values())  # noqa: SLF001 - a part of it
        self._before = [content.version for content in self._contents]

    def __enter__(self) -> None:
        pass

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is not None:
            for content, version in zip(self._contents, self._before, strict=True):
                content.take_back(version)


class JointState:
    """The standings of all resources of one stream; as resource_state.ResourceState."""

    def __init__(self, standings: Iterable[ResourceState]) -> None:
        self._standings = list(standings)

    def report(self, feed: str, state: int, reason: str) -> None:
        """A report of the reflector, which is about all of them."""
        for standing in self._standings:
            standing.report(feed, state, reason)

    def disproved(self, feed: str, reason: str) -> None:
        """The objects are not the server's."""
        for standing in self._standings:
            standing.disproved(feed, reason)

    def contact(self, feed: str, at: float) -> float:
        """Contact at that time."""
        return min(standing.contact(feed, at) for standing in self._standings)

    def behind(self, feed: str, *, behind: bool) -> None:
        """Whether events that have arrived are yet to be read."""
        for standing in self._standings:
            standing.behind(feed, behind=behind)

    def exceeded(self, feed: str, reason: str) -> None:
        """The objects do not fit: none of the resources can go on without the others."""
        for standing in self._standings:
            standing.exceeded(feed, reason)


def share_of(counters: Counters, counts: tuple[int, int], *, first: bool) -> Counters:
    """The part of one resource in what a joint feed did.

    Lists, watches and errors are those of the stream, and so each resource's. Bytes and events are
    its own; refused items are counted once.
    """
    events, size = counts
    refused = counters.refused if first else 0
    times = counters.timed(events)
    return replace(counters, events=events, bytes=size, refused=refused, **times)


def resumed(versions: Iterable[str | None]) -> str | None:
    """The version at which an earlier life of the stream ended (JOINT2); None: a list comes."""
    found: str | None = None
    for version in versions:
        if not version or not is_version(version):
            return None
        if found is None or compare(version, found) > 0:
            found = version
    return found
