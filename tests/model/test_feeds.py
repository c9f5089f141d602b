"""Invariants tested: G11, G13, G15 to G18, on feeds that stop anywhere, fall behind the window, and
see objects deleted, re-created, relabelled and replaced in between.

The events of a feed are always a legal history of each key, and end at the cache's state.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

import shmcache
from shmcache.handlers.delivered import KnownResources
from shmcache.handlers.feed import ADD, DELETE, UPDATE, Feed
from shmcache.handlers.registering import selecting
from shmcache.handlers.tombstone import Tombstone
from shmcache.reader.sharding import bounds, shard_hash

STEPS = 40 * int(os.environ.get("SHMCACHE_EXAMPLES") or 40)
KEYS = [f"{namespace}/{name}" for namespace in ("one", "two") for name in "abcdefghijklmnop"]


class Replica:
    """A feed, and the state that its events lead to."""

    def __init__(self, maps: KnownResources, rng: random.Random) -> None:
        self.labels = rng.choice([None, None, "x=1", "x in (1,2)"])
        self.namespace = rng.choice([None, None, "one"])
        self.shard = rng.choice([None, None, (0, 2), (1, 2)])
        match = selecting(self.labels, None)
        known, bit = maps.find("pods", by_content=match is not None)
        self.match = match
        self.feed = Feed(known, bit, match=match, namespace=self.namespace, shard=self.shard)
        self.objects: dict[str, tuple[str, str]] = {}

    def wants(self, key: str, obj: Any) -> bool:
        first, last = bounds(self.shard)
        return (
            (self.namespace is None or key.startswith(self.namespace + "/"))
            and (self.match is None or self.match(obj))
            and first <= shard_hash(obj["metadata"]["uid"]) <= last
        )

    def take(self, limit: int | None) -> None:
        """Handles `limit` events, or all of them; the next one is not delivered yet."""
        stream = self.feed.drain()
        for number, event in enumerate(stream):
            if number == limit:
                break
            self.check(*event)
        self.feed.rest()

    def check(self, kind: int, keyed: Any, old: Any, new: Any, _flag: bool) -> None:
        key = keyed.key
        now = None if new is None else _identity(new)
        before = None if old is None else _identity(old)
        if kind == ADD:
            assert before is None
            assert key not in self.objects, f"{key} is added twice"
            assert now is not None
            self.objects[key] = now
        elif kind == UPDATE:
            assert now is not None
            assert before is not None
            uid, version = self.objects[key]
            assert uid == now[0] == before[0], f"{key} changed its uid in an update"
            assert isinstance(old, Tombstone) or version == before[1]
            assert version != now[1], f"{key} is delivered a second time"
            self.objects[key] = now
        else:
            assert DELETE == kind
            assert before is not None
            uid, _ = self.objects.pop(key)
            assert uid == before[0]

    def settle(self, state: dict[str, Any]) -> None:
        self.take(None)
        expected = {key: _identity(obj) for key, obj in state.items() if self.wants(key, obj)}
        assert expected == self.objects


def _identity(obj: Any) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata["uid"], metadata.get("resourceVersion")


class World:
    """The writer, and the true state."""

    def __init__(self, writer: shmcache.Writer, rng: random.Random) -> None:
        self.writer = writer
        self.rng = rng
        self.state: dict[str, Any] = {}
        self.versions = map(str, itertools.count(1))

    def fresh(self, key: str) -> dict[str, Any]:
        rng = self.rng
        namespace, name = key.split("/")
        old = self.state.get(key)
        uid = f"{rng.getrandbits(32):08x}-0000-4000-8000-{rng.getrandbits(48):012x}"
        if old is not None and rng.random() < 0.8:
            uid = old["metadata"]["uid"]
        elif rng.random() < 0.1:
            uid = f"odd uid {rng.random()}"
        return {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "resourceVersion": next(self.versions),
                "labels": {"x": rng.choice("123")},
            }
        }

    def change(self) -> None:
        rng = self.rng
        key = rng.choice(KEYS)
        if rng.random() < 0.7:
            obj = self.state[key] = self.fresh(key)
            self.writer.apply("pods", [obj])
        elif self.state.pop(key, None) is not None:
            self.writer.delete("pods", key, next(self.versions))

    def replace(self) -> None:
        rng = self.rng
        kept = {key: obj for key, obj in self.state.items() if rng.random() < 0.6}
        self.state = kept | {key: self.fresh(key) for key in rng.sample(KEYS, 8)}
        self.writer.replace("pods", list(self.state.values()), next(self.versions))


@pytest.fixture
def world(name: str, rng: random.Random) -> Iterator[World]:
    """A ring so small that a feed that rests for a moment falls behind it."""
    with shmcache.Writer(name, ["nodes", "pods"], arena_max="64MiB", ring_slots=32) as writer:
        yield World(writer, rng)
        writer.check()


@pytest.mark.slow
def test_g13_feeds_that_stop_anywhere_end_at_the_caches_state(
    world: World, rng: random.Random
) -> None:
    with shmcache.attach(world.writer.name) as cache:
        maps = KnownResources(cache)
        feeds: list[Replica] = []
        for _ in range(STEPS):
            for _ in range(rng.choice([0, 1, 3, 40])):
                world.change()
            if rng.random() < 0.1:
                world.replace()
            if len(feeds) < 24 and rng.random() < 0.2:
                feeds.append(Replica(maps, rng))
            if feeds and rng.random() < 0.05:
                feeds.pop(rng.randrange(len(feeds))).feed.close()
                maps.drop_empty()
            for told in rng.sample(feeds, min(3, len(feeds))):
                if rng.random() < 0.3:
                    told.settle(world.state)
                else:
                    told.take(rng.randrange(1, 12))
        for told in feeds:
            told.settle(world.state)
        assert any(told.feed.lapses for told in feeds)
        for told in feeds:  # all are at the head: no reader needs the ended instances
            told.feed.known._trim(told.feed.position)
            assert 0 == told.feed.known.map.ended
            assert len(world.state) == len(told.feed.known.map)
