"""An incident as a test: an API server that goes through a flight record.

INCIDENT1  The server has the recorded objects with their own metadata, and makes the recorded
changes in their order, under their recorded versions where these rise.
INCIDENT2  It is a real server: clients, caches and controllers see lists and watches.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from shmcache.recorder import lines
from shmcache.recorder.changes import kinds_of
from shmcache.recorder.contents import Contents, RecordedObject, Slot
from shmcache.recorder.history import FlightRecord, RecordedStep
from shmcache.recorder.player import RecordedSteps
from shmcache.recorder.versioned import version_of
from shmcache.testing.cluster import Cluster

if TYPE_CHECKING:
    from datetime import datetime

    from shmcache.protocol.kinds import Kind

Object = dict[str, Any]


class Incident:
    """A cluster with the objects of a flight record, and the changes that followed.

    The record is a directory that `shmcache run --recorder` wrote. A context manager; with a
    cluster of the caller's, that one is filled, and stays.
    """

    def __init__(
        self, directory: str, *, since: datetime | None = None, cluster: Cluster | None = None
    ) -> None:
        """`since`: begin with the state at this time, instead of the first one.

        PastUnknown if the directory has no record, or the state is unknown.
        """
        self._record = FlightRecord(directory)
        self._kinds = kinds_of(self._record)
        self._steps = RecordedSteps(self._record, _nanoseconds(since))
        self._own = cluster is None
        self.cluster = cluster if cluster is not None else Cluster()
        """The cluster: `server`, `kubeconfig`, `reflect()`, `settle()`."""
        self.missing: list[str] = []
        """Why changes were missing in the record, as texts, as far as it was played."""

    @property
    def resources(self) -> tuple[str, ...]:
        """The recorded resources."""
        return tuple(self._kinds)

    def start(self) -> Self:
        """The server has the first state when this returns."""
        if self._own:
            self.cluster.start()
        for kind in self._kinds.values():
            self.cluster.server.add_kind(kind)
        self._settle(sorted(self._steps.contents.objects))
        return self

    def stop(self) -> None:
        """Ends the cluster, if it is the incident's own."""
        if self._own:
            self.cluster.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- the changes -----------------------------------------------------------------------------

    def play(
        self,
        until: datetime | None = None,
        *,
        speed: float | None = None,
        wait: Callable[[float], object] = time.sleep,
    ) -> int:
        """Makes the changes up to a time, or all; how many. `speed` 1 is as it happened."""
        made = 0
        for step, missing in self._steps.until(_nanoseconds(until)):
            if speed is not None:
                wait(max(0, step.time_ns - self._steps.time_ns) / 1e9 / speed)
            self.missing += missing
            made += self._make(step)
        return made

    def _make(self, step: RecordedStep) -> int:
        contents = self._steps.contents
        if step.is_checkpoint:
            before = dict(contents.objects)
            self._steps.take(step)
            return self._settle(_differing(before, contents))
        made = 0
        for line in step.text:
            if line[0] not in lines.CHANGES:
                continue
            found = lines.change(line)
            slot = (found.resource, found.key)
            contents.change(found)
            made += self._put(slot, version_of(found))
        self._steps.take(RecordedStep(step.time_ns, _without_changes(step)))
        return made

    # ---- the server ------------------------------------------------------------------------------

    def _settle(self, slots: list[Slot]) -> int:
        """Makes the server have these objects as the record does, in the order of versions."""
        objects = self._steps.contents.objects
        gone = [slot for slot in slots if slot not in objects]
        there = [(_version_of(objects[slot]), slot) for slot in slots if slot in objects]
        made = sum(self._put(slot, None) for slot in gone)
        return made + sum(self._put(slot, None) for _, slot in sorted(there))

    def _put(self, slot: Slot, version: str | None) -> bool:
        number, text = slot
        kind, name = self._of(number)
        found = self._steps.contents.objects.get(slot)
        if found is None:
            namespace, _, last = json.loads(text).rpartition("/")
            ahead = version if self._is_ahead(version) else ""
            return self.cluster.server.unload(name, last, namespace, ahead or "")
        obj = found.value()
        self._steps.contents.set(slot, obj)
        self._load(kind, name, obj)
        return True

    def _load(self, kind: Kind, name: str, obj: Object) -> None:
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        obj["metadata"] = dict(obj["metadata"])
        if not self._is_ahead(obj["metadata"].get("resourceVersion")):
            obj["metadata"].pop("resourceVersion", None)
        self.cluster.server.load(name, obj)

    def _is_ahead(self, version: str | None) -> bool:
        return (
            version is not None
            and version.isdecimal()
            and int(version) > int(self.cluster.server.version)
        )

    def _of(self, number: int) -> tuple[Kind, str]:
        kind = self._kinds[self._steps.contents.about[number]["name"]]
        return kind, kind.key


def _nanoseconds(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} needs a time zone, such as datetime.UTC")
    return int(moment.timestamp() * 1e6) * 1000


def _version_of(found: RecordedObject) -> int:
    version = lines.own_version(found.value())
    return int(version) if version is not None and version.isdecimal() else 0


def _differing(before: dict[Slot, RecordedObject], contents: Contents) -> list[Slot]:
    """The objects of a checkpoint that differ from those before it: all changes of a gap."""
    now = contents.objects
    return [slot for slot in before if slot not in now] + [
        slot
        for slot, obj in now.items()
        if slot not in before or before[slot].value() != obj.value()
    ]


def _without_changes(step: RecordedStep) -> list[bytes]:
    return [line for line in step.text if line[0] not in lines.CHANGES]
