"""Invariant tested: the difference of two snapshots has every change, and nothing else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import shmcache
from shmcache.errors import ClosedError, StaleObjectError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache import Cache, Snapshot, Writer


@pytest.fixture
def cache(writer: Writer) -> Iterator[Cache]:
    with shmcache.attach(writer.name) as made:
        yield made


def contents(at: Snapshot, resource: str) -> dict[str, Any]:
    return {key: view.to_dict() for key, view in at[resource].items()}


def check(new: Snapshot, old: Snapshot, resource: str = "pods") -> None:
    before, after = contents(old, resource), contents(new, resource)
    found = new.diff(old, resource)

    assert [(key, view.to_dict()) for key, view in found.added] == [
        (key, after[key]) for key in sorted(after) if key not in before
    ]
    assert [(key, a.to_dict(), b.to_dict()) for key, a, b in found.modified] == [
        (key, before[key], after[key])
        for key in sorted(after)
        if key in before and before[key] != after[key]
    ]
    assert [(key, view.to_dict()) for key, view in found.deleted] == [
        (key, before[key]) for key in sorted(before) if key not in after
    ]
    assert bool(found) == (before != after)


def test_random_histories(cache: Cache, writer: Writer) -> None:
    rng = random.Random(9)
    snapshots = [cache.snapshot()]
    for _ in range(8):
        with writer.batch():
            for _ in range(rng.choice([1, 10, 300])):
                key = f"space-{rng.randrange(3)}/pod-{rng.randrange(400)}"
                if rng.random() < 0.3:
                    writer.delete("pods", key)
                else:
                    writer.put("pods", key, {"value": rng.randrange(3), "long": "x" * 30})
        snapshots.append(cache.snapshot())

    for old in snapshots:
        for new in snapshots:
            check(new, old)
            check(new, old, "nodes")


def test_a_resource_that_did_not_exist_counts_as_empty(cache: Cache, writer: Writer) -> None:
    with cache.snapshot() as old:
        writer.add_resource("jobs")
        writer.put("jobs", "a", {"x": 1})
        with cache.snapshot() as new:
            found = new.diff(old, "jobs")

            assert [(key, dict(view)) for key, view in found.added] == [("a", {"x": 1})]
            assert repr(found) == "<shmcache.Difference: 1 added, 0 modified, 0 deleted>"
            assert [key for key, _ in old.diff(new, "jobs").deleted] == ["a"]


def test_snapshots_that_cannot_be_compared_are_refused(cache: Cache, writer: Writer) -> None:
    with shmcache.attach(writer.name) as other, cache.snapshot() as here, other.snapshot() as there:
        with pytest.raises(ValueError, match="another attachment"):
            here.diff(there, "pods")
        with pytest.raises(KeyError):
            here.diff(here, "jobs")
    with cache.snapshot() as new, pytest.raises(ClosedError):
        new.diff(here, "pods")


def test_a_stale_snapshot_raises(name: str) -> None:
    with (
        shmcache.Writer(name, ["pods"], arena_max="32MiB", garbage_max="64KiB") as writer,
        shmcache.attach(name) as cache,
    ):
        writer.put("pods", "a", {"x": 0})
        writer.put("pods", "b", {"y": "y" * 100_000})  # more than the garbage limit
        old = cache.snapshot()
        writer.delete("pods", "b")
        for number in range(300):
            writer.put(
                "pods", "a", {"x": number, "much": [str(number) * 50] * 20, str(number): "y" * 3000}
            )
            writer.drop_window()
        with cache.snapshot() as new, pytest.raises(StaleObjectError):
            new.diff(old, "pods")
