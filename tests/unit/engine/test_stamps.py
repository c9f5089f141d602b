"""Behaviour tested: the age of time stamps in events is found, an upper bound of their way."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from time import monotonic_ns
from typing import Any

import pytest

import shmcache
from shmcache import states
from shmcache.engine.stamps import LARGEST, LONGEST, LOOK_SECONDS, WINDOW, StampAges, stamps_of
from shmcache.monitor.metering import Meter
from shmcache.protocol.items import Item
from shmcache.reader.freshness import STAMP_SECONDS
from shmcache.testing import ManualClock

NOW = 1_700_000_000.0


def stamp(age: float) -> str:
    return datetime.fromtimestamp(NOW - age, UTC).isoformat().replace("+00:00", "Z")


def event(change: str, obj: dict[str, Any], *, kind: str = "Pod") -> Item:
    return Item(change, "prod/a", "7", "u-1", kind, "v1", json.dumps(obj).encode())


def ages(*items: Item) -> set[float]:
    return {NOW - found for item in items for found in stamps_of(item)}


CREATED = {"metadata": {"creationTimestamp": stamp(9)}}
WRITTEN = {
    "metadata": {
        "creationTimestamp": stamp(9),
        "managedFields": [{"time": stamp(4)}, {"manager": "m"}, {"time": stamp(3)}],
    }
}
LEASE = {"metadata": {}, "spec": {"renewTime": stamp(2.5)}}
OCCURRED = {"eventTime": None, "lastTimestamp": stamp(5), "series": {"lastObservedTime": stamp(1)}}


def test_a_stamp_is_a_time_of_this_change() -> None:
    assert {9.0} == ages(event("ADDED", CREATED))
    assert set() == ages(event("MODIFIED", CREATED))  # it may be created long ago
    assert {3.0, 4.0} == ages(event("MODIFIED", WRITTEN))
    assert set() == ages(event("DELETED", WRITTEN))  # those of the change before
    assert {2.5} == ages(event("MODIFIED", LEASE, kind="Lease"))
    assert set() == ages(event("MODIFIED", LEASE))  # a custom resource may mean anything by it
    assert {1.0, 5.0} == ages(event("MODIFIED", OCCURRED, kind="Event"))


@pytest.mark.parametrize(
    "odd",
    [[], {"metadata": 7}, {"metadata": {"creationTimestamp": 7}},
     {"metadata": {"creationTimestamp": "yesterday Z", "managedFields": [None, {"time": "Z"}]}}],
)  # fmt: skip
def test_odd_objects_have_no_stamp(odd: Any) -> None:
    assert set() == ages(event("ADDED", odd))
    assert set() == ages(event("ADDED", odd)._replace(raw=b"{"))


def test_the_smallest_age_of_a_minute_counts() -> None:
    clock = ManualClock()
    seen = StampAges(clock, lambda: NOW)

    def look(age: float, *, after: float = LOOK_SECONDS) -> float | None:
        clock.advance(after)
        obj = {"metadata": {"creationTimestamp": stamp(age)}}
        found = seen.look([event("ADDED", obj)])
        assert found is None or clock() == found.at
        return found and found.seconds

    assert 5.0 == look(5)
    assert look(2, after=LOOK_SECONDS / 2) is None  # STAMP2
    assert 3.0 == look(3)
    assert 3.0 == look(8)
    assert 8.0 == look(8, after=WINDOW)  # the smallest one is too old
    assert 0.0 == look(-4)  # the other clock is ahead: STAMP3


def test_an_object_of_any_depth_has_no_stamp() -> None:
    depth = 10_000
    deep = b'{"metadata":{"creationTimestamp":' + b"[" * depth + b"]" * depth + b"}}"

    assert [] == list(stamps_of(Item("ADDED", "a/b", "7", None, "Pod", "v1", deep)))


def test_the_time_zero_has_an_age_that_can_be_noted(name: str) -> None:
    """Go writes the year 1 for a time that was never set."""
    first = {"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}}
    found = StampAges(wall=lambda: NOW).look([event("ADDED", first)])

    assert found is not None
    with shmcache.Writer(name, resources=["pods"]) as writer, shmcache.attach(name) as cache:
        writer.set_state("pods", states.SYNCED, "10")
        at, age = int(found.at * 1e9), int(found.seconds * 1e9)
        writer.note("pods", contact_ns=monotonic_ns(), stamp_ns=age, stamped_ns=at)
        assert LONGEST == cache["pods"].status.stamp_age


def test_only_small_objects_are_decoded() -> None:
    seen = StampAges(ManualClock(), lambda: NOW)
    large = event("ADDED", {**CREATED, "data": "x" * LARGEST})
    bookmark = Item("BOOKMARK", "", "9", None, "Pod", "v1", b"{}")
    assert seen.look([large, bookmark]) is None
    found = seen.look([event("ADDED", CREATED), large, bookmark])
    assert found is not None
    assert 9.0 == found.seconds


def test_an_age_is_shown_for_a_while(name: str) -> None:
    def shown(cache: shmcache.Cache) -> float | None:
        with_metric = "shmcache_resource_stamp_age_seconds{" in Meter(cache).text()
        found = cache["pods"].status.stamp_age
        assert with_metric == (found is not None)
        return found

    with shmcache.Writer(name, ["pods"]) as writer, shmcache.attach(name) as cache:
        writer.set_state("pods", states.SYNCED, "1")
        assert shown(cache) is None
        at = monotonic_ns()
        writer.note("pods", stamp_ns=2_500_000_000, stamped_ns=at)
        assert 2.5 == shown(cache)
        assert cache.snapshot()["pods"].status.stamp_age is None
        writer.note("pods", stamp_ns=0, stamped_ns=at)
        assert 0.0 == shown(cache)
        writer.note("pods", stamp_ns=0, stamped_ns=at - int(STAMP_SECONDS * 1e9))
        assert shown(cache) is None
