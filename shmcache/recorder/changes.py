"""All recorded changes of one object, and what people call the resources of a record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from shmcache.protocol.describing import known_as
from shmcache.protocol.kinds import Kind
from shmcache.recorder import lines
from shmcache.recorder.contents import Contents
from shmcache.recorder.history import FlightRecord, RecordedStep, Reel, gap_of, take
from shmcache.recorder.patches import same
from shmcache.recorder.versioned import version_of

_KINDS = {"A": "ADDED", "M": "MODIFIED", "W": "MODIFIED", "D": "DELETED"}


class RecordedChange(NamedTuple):
    """One change of an object, or a note about changes that are missing."""

    time_ns: int
    kind: str
    """ADDED, MODIFIED, DELETED; "" of a note alone, and of an object as it was at the beginning."""
    version: str | None
    old: Any
    new: Any
    why: str = ""
    """The reason why changes are missing before this one."""


def kinds_of(record: FlightRecord) -> dict[str, Kind]:
    """The kind of each resource in the newest reel, by its name there."""
    contents = Contents()
    for step in record.reels[-1].steps():
        take(contents, [line for line in step.text if line[:1] == b"R"])
    return {
        about["name"]: known_as(about["name"], about["settings"] or {})
        for about in contents.about.values()
    }


def changes_of(record: FlightRecord, resource: str, key: str) -> Iterator[RecordedChange]:
    """The changes of one object, oldest first."""
    follower = ObjectFollower(resource, lines.compact(key))
    known: Reel | None = None
    for reel, step in record.play():
        if reel is not known:
            yield from follower.begin(reel, step, known)
            known = reel
        else:
            yield from follower.follow(step)


class ObjectFollower:
    """Follows one object through the steps of a record."""

    def __init__(self, resource: str, key: bytes) -> None:
        self._resource = resource
        self._needle = b"\t" + key + b"\t"
        self._number = -1
        self._value: Any = None

    def begin(
        self, reel: Reel, step: RecordedStep, before: Reel | None
    ) -> Iterator[RecordedChange]:
        """The checkpoint of the next reel."""
        contents = Contents()
        for line in step.text:
            self._learn(line)
            if line[:1] == b"O" and self._is_mine(line):
                contents.change(lines.change(line))
        old, new = self._value, next((obj.value() for obj in contents.objects.values()), None)
        self._value = new
        if before is None:
            yield RecordedChange(step.time_ns, "", None, None, new)
            return
        why = before.fault or reel.gap
        if why or not same(old, new):
            kind = _kind_of(old, new)
            version = lines.own_version(new) if new is not None else None
            yield RecordedChange(step.time_ns, kind, version, old, new, why)

    def follow(self, step: RecordedStep) -> Iterator[RecordedChange]:
        """A further step of the same reel."""
        for line in step.text:
            self._learn(line)
            if line[:1] == b"G" and self._concerns(line):
                yield RecordedChange(step.time_ns, "", None, self._value, self._value, gap_of(line))
            elif line[0] in lines.CHANGES and self._is_mine(line):
                found = lines.change(line)
                contents = Contents()
                slot = (found.resource, found.key)
                if self._value is not None:
                    contents.set(slot, self._value)
                contents.change(found)
                old, obj = self._value, contents.objects.get(slot)
                self._value = obj.value() if obj is not None else None
                kind = _KINDS[found.kind.upper()]
                yield RecordedChange(step.time_ns, kind, version_of(found), old, self._value)

    def _learn(self, line: bytes) -> None:
        if line[:1] == b"R":
            number, text = lines.fields(line)
            if json.loads(text)["name"] == self._resource:
                self._number = int(number)

    def _is_mine(self, line: bytes) -> bool:
        if self._needle not in line:
            return False
        found = lines.change(line)
        return found.resource == self._number and found.key == self._needle[1:-1]

    def _concerns(self, line: bytes) -> bool:
        resources = json.loads(lines.fields(line)[0])["resources"]
        return resources is None or self._number in resources


def _kind_of(old: Any, new: Any) -> str:
    if same(old, new):
        return ""
    if old is None:
        return "ADDED"
    return "DELETED" if new is None else "MODIFIED"
