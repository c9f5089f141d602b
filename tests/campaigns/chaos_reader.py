"""Chaos, a reader: handlers that check each event as it arrives, and mirror it."""

from __future__ import annotations

import hashlib
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import orjson
from chaos_world import NAMED
from workers import PATIENCE

import shmcache
from shmcache.handlers.tombstone import Tombstone

TIER = "tier=web"


class Fact(NamedTuple):
    """An object at the time of its event."""

    key: str
    uid: str
    version: int
    digest: bytes


class Back(NamedTuple):
    """A version that went back, as it may after a restored backup."""

    seconds: float
    since: float
    """The time of the previous version's event."""
    ended: float
    """The time of the last deletion of the object."""
    key: str
    was: int
    now: int


def digest(obj: Any) -> bytes:
    return digest_of(orjson.dumps(obj.to_dict(), option=orjson.OPT_SORT_KEYS))


def digest_of(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).digest()


def fact(obj: Any) -> Fact:
    meta = obj["metadata"]
    key = f"{meta['namespace']}/{meta['name']}"
    return Fact(key, str(meta["uid"]), int(meta["resourceVersion"]), digest(obj))


class Mirror:
    """The events of one registration; each wrong one is a problem."""

    def __init__(self) -> None:
        self.objects: dict[str, Fact] = {}
        self.last: dict[str, tuple[int, float]] = {}
        self.ended: dict[str, float] = {}
        self.problems: list[str] = []
        self.backs: list[Back] = []
        self.tombstones = 0
        self.changed = threading.Condition()

    def on_add(self, new: Any, _initial: bool) -> None:
        now = fact(new)
        self._expect(now.key not in self.objects, f"added twice: {now}")
        self._version(now)
        self._set(now)

    def on_update(self, old: Any, new: Any) -> None:
        now = fact(new)
        was = self.objects.get(now.key)
        self._expect(was is not None, f"updated, never added: {now}")
        if was is not None:
            self._expect(was.uid == now.uid, f"updated into another object: {was} {now}")
            self._expect(was != now, f"updated to the same: {now}")
            self._old(old, was)
        self._version(now)
        self._set(now)

    def on_delete(self, old: Any, _unknown: bool) -> None:
        meta = old["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        was = self.objects.get(key)
        self._expect(was is not None, f"deleted, never added: {key}")
        if was is not None:
            self._expect(was.uid == meta["uid"], f"another one deleted: {was} {meta['uid']}")
            self.ended[key] = time.monotonic()
        with self.changed:
            self.objects.pop(key, None)
            self.changed.notify_all()

    def _old(self, old: Any, was: Fact) -> None:
        if isinstance(old, Tombstone):
            self.tombstones += 1
            version = old.version
        else:
            version = old["metadata"]["resourceVersion"]
        if version is not None:
            self._expect(int(version) == was.version, f"old was {version}, not {was}")

    def _version(self, now: Fact) -> None:
        """A version that went back is recorded: the campaign knows whether a restored backup
        explains it."""
        last, since = self.last.get(now.key, (0, 0.0))
        seconds = time.monotonic()
        if now.version <= last:
            ended = self.ended.get(now.key, 0.0)
            self.backs.append(Back(seconds, since, ended, now.key, last, now.version))
        self.last[now.key] = now.version, seconds

    def _set(self, now: Fact) -> None:
        with self.changed:
            self.objects[now.key] = now
            self.changed.notify_all()

    def _expect(self, true: bool, otherwise: str) -> None:
        if not true:
            self.problems.append(otherwise)

    def settle(self, wanted: dict[str, int]) -> bool:
        """Waits until the mirror has these versions."""

        def is_there() -> bool:
            objects = self.objects
            return len(objects) == len(wanted) and all(
                key in objects and objects[key].version == version
                for key, version in wanted.items()
            )

        with self.changed:
            return self.changed.wait_for(is_there, PATIENCE / 2)


class Report(NamedTuple):
    """The report of a reader at a calm moment, by registration."""

    settled: bool
    digests: dict[str, bytes]
    problems: list[str]
    backs: list[Back]
    calls: int
    errors: int
    lapses: int
    tombstones: int


def read(pipe: Connection, name: str) -> None:
    """The process: receives the expected versions by registration, and answers for each."""
    with shmcache.attach(name, timeout=PATIENCE) as cache:
        mirrors, registrations = {}, {}
        for resource, named in NAMED.items():
            for labels in (None, TIER) if resource == "pods" else (None,):
                which = f"{resource} {labels}" if labels else resource
                mirrors[which] = mirror = Mirror()
                registrations[which] = cache[named].add_handler(
                    mirror.on_add, mirror.on_update, mirror.on_delete, labels=labels
                )
        cache.start()
        pipe.send(list(mirrors))
        while (wanted := pipe.recv()) is not None:
            pipe.send({
                which: report(mirrors[which], registrations[which], versions)
                for which, versions in wanted.items()
            })  # fmt: skip


def report(mirror: Mirror, registration: Any, wanted: dict[str, int]) -> Report:
    settled = mirror.settle(wanted)
    digests = {key: fact.digest for key, fact in mirror.objects.items()}
    return Report(
        settled,
        digests,
        list(mirror.problems),
        list(mirror.backs),
        registration.handled,
        registration.errors,
        registration.lapses,
        mirror.tombstones,
    )
