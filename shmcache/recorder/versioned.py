"""The state of a record at a resourceVersion.

ATVERSION1  Each resource shows all its changes up to the version, and no later one. Where that
cannot be known (a difference, versions that do not rise, a feed for each namespace) it is
PastUnknown.
"""

from __future__ import annotations

import json
from typing import Any

from shmcache.errors import PastUnknown
from shmcache.protocol.versions import is_version, number_of
from shmcache.recorder import lines
from shmcache.recorder.contents import Contents
from shmcache.recorder.history import FlightRecord, RecordedStep, take
from shmcache.recorder.lines import ObjectLine


def at_version(record: FlightRecord, version: str) -> Contents:
    """PastUnknown if the record does not lead there."""
    if not is_version(version):
        raise PastUnknown(f"{version!r} is not a version that can be compared")
    wanted = number_of(version)
    names = [name for name, found in record.reels[-1].head["versions"].items() if found]
    walk = VersionWalk(wanted, names)
    reel = record.reel_before(dict.fromkeys(names, wanted))
    for each in record.reels[record.reels.index(reel) :]:
        for step in each.steps():
            walk.take(step, first=step.is_checkpoint)
            if walk.over:
                return walk.contents
        if each.fault:
            raise PastUnknown(f"{each.fault}: version {version} is not reached before that")
    if walk.reached():
        return walk.contents
    raise PastUnknown(f"{record.directory} ends before version {version}")


class VersionWalk:
    """Applies the changes of each resource up to a version."""

    def __init__(self, wanted: int, names: list[str]) -> None:
        self.contents = Contents()
        self._wanted = wanted
        self._names = frozenset(names)
        self._last: dict[int, int] = {}
        self._begun = False
        self._differs = False

    @property
    def over(self) -> bool:
        """Each resource is past the version."""
        return bool(self._names) and all(found > self._wanted for found in self._versions())

    def reached(self) -> bool:
        """Each resource is at the version, or past it."""
        return bool(self._names) and all(found >= self._wanted for found in self._versions())

    def _versions(self) -> list[int]:
        states = self.contents.states
        return [
            number_of(states[number]["version"] or "0") if number in states else -1
            for number, about in self.contents.about.items()
            if about["name"] in self._names
        ] or [-1]

    def take(self, step: RecordedStep, *, first: bool) -> None:
        """The next step; the checkpoint of a further reel adds nothing."""
        if first and self._begun:
            gap = json.loads(lines.fields(step.text[0])[0])["gap"]
            if gap:
                raise PastUnknown(f"version {self._wanted} is not reached before a gap: {gap}")
            return
        self._begun = True
        for line in step.text:
            letter = line[:1]
            if letter == b"O" or first:
                take(self.contents, [line])
            elif line[0] in lines.CHANGES:
                self._change(lines.change(line))
            elif letter == b"S":
                self._note(line)
            elif letter in b"RG":
                take(self.contents, [line])

    def _note(self, line: bytes) -> None:
        """The state of a resource."""
        number, text = lines.fields(line)
        state: dict[str, Any] = json.loads(text)
        if state.get("marks"):
            name = self.contents.about[int(number)]["name"]
            raise PastUnknown(f"{name}: its namespaces have versions of their own")
        self.contents.note(line)

    def _change(self, found: ObjectLine) -> None:
        if found.kind.islower():
            self._difference(found)
            return
        version = version_of(found)
        if version is None or number_of(version) <= self._last.get(found.resource, -1):
            raise PastUnknown("the versions of the recorded changes do not rise")
        self._last[found.resource] = number_of(version)
        if number_of(version) <= self._wanted:
            self.contents.change(found)

    def _difference(self, found: ObjectLine) -> None:
        """Up to the version of its resource at the end of the step, which is known by now."""
        version = number_of(self.contents.states[found.resource]["version"] or "0")
        if version > self._wanted:
            raise PastUnknown(
                f"version {self._wanted} lies in a difference: the order of its changes is unknown"
            )
        self._last[found.resource] = version
        self.contents.change(found)


def version_of(found: ObjectLine) -> str | None:
    """Of a change: the one in its line, or that of its object."""
    if found.version:
        stated: str = json.loads(found.version)
        return stated
    if found.kind in "Dd":
        return None
    value = json.loads(found.rest)
    if found.kind not in "Mm":
        return lines.own_version(value)
    for path, *rest in value:
        if path == ["metadata", "resourceVersion"]:
            return str(rest[0])
        if path in ([], ["metadata"]) and len(rest) == 1:
            return lines.own_version(rest[0] if not path else {"metadata": rest[0]})
    return None
