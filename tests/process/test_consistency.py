"""Invariant tested: no reader, in any process or thread, ever sees half of a batch or replace.

Every object carries the number of the batch that wrote it. A snapshot must show one number in all
objects of all resources, and its indices must agree; deltas of one generation carry one number (G1,
G4). SHMCACHE_EXAMPLES= requests more batches.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from workers import METHODS, PATIENCE, Method, Worker, hear_all

import shmcache
from shmcache import states
from shmcache.errors import Lapped, StaleObjectError

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

BATCHES = 4 * int(os.environ.get("SHMCACHE_EXAMPLES") or 40)
PODS, NODES, RELISTED = 90, 20, 70
STATES = states.GONE  # of those that a resource can have
INDICES = {"batch": "spec.batch", "labels": "metadata.labels"}


def obj(number: int, n: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"o{n}", "labels": {"batch": number, "app": f"app-{n % 5}"}},
        "spec": {"batch": number, "node": f"node-{n % 7}", "args": [number] * (number % 4)},
        "status": {"text": f"{number}-" * (number % 50)},
    }


def keys_of(number: int, count: int) -> list[str]:
    """Different keys in each batch, so that a late deletion shows."""
    return sorted(f"ns-{n % 3}/o{n:03d}" for n in range(number % 3, count + number % 3))


def content(number: int, count: int) -> list[tuple[str, Any, str]]:
    return [(key, obj(number, n), str(number)) for n, key in enumerate(keys_of(number, count))]


def write(writer: shmcache.Writer, number: int) -> None:
    """One batch over two resources, and one staged replace next to it."""
    with writer.begin_replace("relisted", str(number)) as staged:
        for key, each, version in content(number, RELISTED):
            staged.put(key, each, version)
        with writer.batch():
            for name, count in (("pods", PODS), ("nodes", NODES)):
                writer.put_many(name, content(number, count))
                for key in set(keys_of(number - 1, count)) - set(keys_of(number, count)):
                    writer.delete(name, key)
                writer.set_state(name, number % STATES, str(number))


# ---- readers ------------------------------------------------------------------------------------


def check_resource(resource: shmcache.CachedResource, count: int) -> int:
    """Checks that everything in it agrees; returns its number."""
    number = int(resource.version or 0)
    assert resource.state == (number % STATES if resource.name != "relisted" else states.ABSENT)
    assert list(resource) == keys_of(number, count)
    assert len(resource) == count
    seen = Counter(view["spec"]["batch"] for view in resource.list())
    assert seen == {number: count}
    assert resource.index_values("batch") == [str(number)]
    assert resource.index_keys("batch", str(number)) == list(resource)
    assert len(resource.by_index("labels", f"batch={number}")) == count
    labels = {f"app=app-{n}" for n in range(5)} | {f"batch={number}"}
    assert set(resource.index_values("labels")) == labels
    return number


def check_snapshot(cache: shmcache.Cache) -> int:
    with cache.snapshot() as at:
        number = check_resource(at["pods"], PODS)
        assert number == check_resource(at["nodes"], NODES)
        assert number - 1 <= check_resource(at["relisted"], RELISTED) <= number
        return number


def check_latest(cache: shmcache.Cache, rng: random.Random) -> None:
    """Single reads of the live cache: each belongs to one state."""
    name, count = rng.choice([("pods", PODS), ("nodes", NODES), ("relisted", RELISTED)])
    items = cache[name].range()
    numbers = {view["spec"]["batch"] for _, view in items}
    assert len(numbers) == 1
    assert [key for key, _ in items] == keys_of(numbers.pop(), count)


class Follower:
    """Rebuilds pods and nodes from deltas; they agree at the end of each generation."""

    def __init__(self, cache: shmcache.Cache) -> None:
        self.cache = cache
        self.lapped = 0
        self.generation = 0
        self.known: dict[int, dict[str, Any]] = {}
        with cache.snapshot() as at:
            self.cursor = cache.follow(start=at.head)
            self.load(at)

    def load(self, at: shmcache.Snapshot) -> None:
        self.known = {
            number: {key: view["spec"]["batch"] for key, view in at[name].items()}
            for number, name in enumerate(at.resources)
        }

    def follow(self) -> None:
        try:
            deltas = self.cursor.take(300)
        except Lapped:
            self.lapped += 1
            with self.cache.snapshot() as at:
                self.load(at)
                self.cursor.resume(at)
                self.check()
            return
        for delta in deltas:
            if delta.generation != self.generation:
                self.check()
            self.generation = delta.generation
            self.apply(delta)

    def apply(self, delta: shmcache.Delta) -> None:
        known, key = self.known[delta.resource], delta.key
        assert key is not None
        if delta.old is not None:
            assert known[key] == delta.old["spec"]["batch"]
        else:
            assert key not in known
        if delta.new is None:
            del known[key]
        else:
            known[key] = delta.new["spec"]["batch"]
            assert delta.version == str(known[key])

    def check(self) -> None:
        """Everything before this generation has arrived."""
        pods, nodes, relisted = (self.known[number] for number in range(3))
        assert 1 == len({*pods.values(), *nodes.values()})
        assert 1 == len(set(relisted.values()))
        number = next(iter(nodes.values()))
        assert sorted(pods) == keys_of(number, PODS)


def look(
    cache: shmcache.Cache, last: int, seed: str, begun: threading.Semaphore
) -> tuple[int, int, int]:
    """Runs until the last batch; returns the counts of snapshots, distinct numbers, and laps."""
    rng, follower = random.Random(seed), Follower(cache)
    looks, numbers = 0, set()
    while last not in numbers:
        try:
            numbers.add(check_snapshot(cache))
            check_latest(cache, rng)
            follower.follow()
        except StaleObjectError:
            continue  # too slow for the small garbage limit: a valid answer, not a wrong one
        looks += 1
        if looks == 1:
            begun.release()
    while follower.cursor.ready():
        follower.follow()
    follower.check()
    return looks, len(numbers), follower.lapped


def reader(pipe: Connection, name: str, last: int, threads: int, seed: str) -> None:
    results: list[Any] = []
    begun = threading.Semaphore(0)

    def run(number: int) -> None:
        try:
            results.append(look(cache, last, f"{seed} {number}", begun))
        except BaseException as error:  # noqa: BLE001 - raised below
            results.append(error)
            begun.release()

    with shmcache.attach(name) as cache:
        running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for _ in running:
            assert begun.acquire(timeout=PATIENCE)  # each has seen the first batch
        pipe.send("ready")
        for thread in running:
            thread.join(PATIENCE)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        assert len(results) == threads
    pipe.send(results)
    pipe.recv()  # the parent decides when it ends


@pytest.fixture
def churning(name: str) -> Iterator[shmcache.Writer]:
    resources = [shmcache.Resource(each, INDICES) for each in ("pods", "nodes", "relisted")]
    with shmcache.Writer(name, resources, arena_max="64MiB", ring_slots=4096) as writer:
        write(writer, 1)
        yield writer
        writer.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "processes", "threads"),
    [*((method, 2, 2) for method in METHODS), ("fork", 8, 3)],
)
def test_snapshots_and_deltas_are_whole_for_every_kind_of_reader(
    churning: shmcache.Writer, rng: random.Random, method: Method, processes: int, threads: int
) -> None:
    batches = BATCHES if processes > 2 else BATCHES // 2
    workers = [
        Worker(method, reader, churning.name, batches, threads, str(rng.random()))
        for _ in range(processes)
    ]
    try:
        hear_all(workers)
        for number in range(2, batches + 1):
            write(churning, number)
        results = [result for worker in workers for result in worker.hear()]
    finally:
        for worker in workers:
            worker.__exit__()

    assert processes * threads == len(results)
    looks, numbers, _ = (sum(column) for column in zip(*results, strict=True))
    assert looks > len(results), "no reader looked while it was written"
    assert numbers > len(results), "every reader saw the same"
