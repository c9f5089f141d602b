"""Invariant tested: each small part of the engine is right by itself: budget, pace, standing,
transform."""

from __future__ import annotations

import logging
import os
import threading
import time
from multiprocessing.connection import Connection

import orjson
import pytest
from confirmed_reads import eventually
from workers import Worker

import shmcache
from shmcache import states
from shmcache.engine import resource_state
from shmcache.engine.budget import Budget, OverBudget, Weights
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.engine.resource_state import ResourceState, smallest
from shmcache.engine.transforms import Transforming
from shmcache.protocol.items import Item
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer, ManualClock


def item(kind: str, key: str, size: int) -> Item:
    return Item(kind, key, "1", None, None, None, b"x" * size)


# ---- budget --------------------------------------------------------------------------------


def test_a_budget_weighs_the_content_and_refuses_an_excess() -> None:
    budget = Budget("pods", 100)
    weights = Weights(budget)
    weights.count([item("ADDED", "a", 60), item("ADDED", "b", 30)])

    with pytest.raises(OverBudget, match=r"pods.*max_bytes is 100 B"):
        weights.check([item("ADDED", "c", 20)])
    weights.check([item("ADDED", "c", 20), item("DELETED", "b", 30)])
    weights.check([item("MODIFIED", "a", 70)])
    weights.check([item("ADDED", "c", 90), item("MODIFIED", "c", 10)])

    assert 90 == budget.total == weights.total


def test_a_shrinking_resource_that_is_too_heavy_may_shrink() -> None:
    weights = Weights(Budget("pods", 100))
    weights.count([item("ADDED", "a", 90), item("ADDED", "b", 90)])  # before the bound was known

    weights.check([item("MODIFIED", "a", 50)])
    weights.check([item("DELETED", "a", 90)])


def test_staged_content_counts_in_place_of_the_old() -> None:
    budget = Budget("pods", 100)
    ours, others = Weights(budget), Weights(budget)
    others.count([item("ADDED", "other/a", 40)])
    ours.count([item("ADDED", "a", 60)])

    ours.begin()
    ours.stage([item("LISTED", "b", 50)])
    with pytest.raises(OverBudget):
        ours.stage([item("LISTED", "c", 11)])
    ours.cancel()
    assert 100 == budget.total

    ours.begin()
    ours.stage([item("LISTED", "b", 50), item("DELETED", "b", 50), item("LISTED", "c", 10)])
    ours.finish()
    assert (50, 10) == (budget.total, ours.total)


# ---- pace ----------------------------------------------------------------------------------


def test_a_burst_may_start_at_once_and_the_rest_follows_at_the_rate() -> None:
    clock = ManualClock()
    pace = Pace(10, burst=3, clock=clock)

    waits = [pace.reserve() for _ in range(6)]

    assert pytest.approx([0.0] * 4, abs=1e-9) == waits[:4]
    assert pytest.approx([0.1, 0.2]) == waits[4:]
    clock.advance(60)
    assert pytest.approx([0.0] * 4, abs=1e-9) == [pace.reserve() for _ in range(4)]
    assert pytest.approx(0.1) == pace.reserve()


def test_stopping_wakes_the_waiter() -> None:
    pace, stop = Pace(0.001, burst=0), threading.Event()
    pace.wait(stop)
    stop.set()

    pace.wait(stop)  # a thousand seconds, otherwise


# ---- standing --------------------------------------------------------------------------------


class Readers:
    """The published states, in order."""

    def __init__(self, *feeds: str) -> None:
        self.clock = ManualClock()
        self.seen: list[tuple[int, str]] = []
        self.full = False
        self.standing = ResourceState(90.0, self._publish, self.clock)
        self.standing.join(feeds or ("",))

    def _publish(self, state: int, reason: str) -> bool:
        if not self.full:
            self.seen.append((state, reason))
        return not self.full


def test_a_relist_during_a_good_state_is_not_published() -> None:
    readers = Readers()
    standing = readers.standing

    for state in (states.LISTING, states.SYNCED, states.LISTING, states.SYNCED):
        standing.report("", state, "")

    assert [(states.LISTING, ""), (states.SYNCED, "")] == readers.seen


def test_an_earlier_life_that_was_good_is_good_still() -> None:
    readers = Readers()
    readers.standing.go_on(states.SYNCED, "", readers.clock(), {"": "7"})
    readers.standing.report("", states.RETRYING, "going on at 7")
    readers.standing.report("", states.SYNCED, "")

    assert [] == readers.seen


def test_reports_of_this_life_differ_from_an_earlier_one() -> None:
    readers = Readers()
    readers.standing.report("", states.RETRYING, "nobody says where to look")
    readers.standing.join(("prod", "test"))
    readers.standing.go_on(states.SYNCED, "", readers.clock(), {"prod": "7", "test": "7"})
    for namespace in ("prod", "test"):
        readers.standing.report(namespace, states.SYNCED, "")

    assert [states.RETRYING, states.SYNCED] == [state for state, _ in readers.seen]


def test_a_failed_report_is_repeated_later() -> None:
    readers = Readers()
    standing = readers.standing
    standing.report("", states.SYNCED, "")
    readers.full = True
    standing.exceeded("", "the arena is full")
    assert states.SYNCED == standing.current[0]

    readers.full = False
    standing.look()

    assert [states.SYNCED, states.EXCEEDED] == [state for state, _ in readers.seen]


def test_a_resource_is_as_good_as_the_worst_of_its_namespaces() -> None:
    readers = Readers("a", "b")
    standing = readers.standing
    standing.report("a", states.SYNCED, "")
    assert [(states.LISTING, "")] == readers.seen  # of b nothing is known, but it is to come
    assert not standing.is_settled()

    standing.report("b", states.RETRYING, "forbidden")
    standing.report("b", states.SYNCED, "")
    readers.clock.advance(10)
    standing.exceeded("a", "too much")
    standing.report("a", states.RETRYING, "lists again")
    readers.clock.advance(10)
    standing.exceeded("a", "")

    assert [
        (states.LISTING, ""),
        (states.RETRYING, "namespace b: forbidden"),
        (states.SYNCED, ""),
        (states.EXCEEDED, "namespace a: too much"),
        (states.RETRYING, "namespace a: lists again"),
    ] == readers.seen
    assert standing.is_settled()


def test_trouble_that_is_soon_over_is_not_published() -> None:
    readers = Readers()
    standing, clock = readers.standing, readers.clock
    standing.report("", states.SYNCED, "")

    standing.report("", states.RETRYING, "lists again")
    clock.advance(4)
    standing.look()
    standing.report("", states.SYNCED, "")
    clock.advance(1)
    standing.report("", states.RETRYING, "refused")
    clock.advance(3)
    standing.report("", states.RETRYING, "refused once more")
    assert [(states.SYNCED, "")] == readers.seen
    clock.advance(3)
    standing.look()

    assert [(states.SYNCED, ""), (states.RETRYING, "refused once more")] == readers.seen


def test_silence_makes_it_stale_and_contact_makes_it_good_again() -> None:
    readers = Readers()
    standing, clock = readers.standing, readers.clock
    standing.report("", states.SYNCED, "")

    clock.advance(89)
    standing.look()
    assert states.SYNCED == standing.current[0]
    clock.advance(2)
    standing.look()
    clock.advance(50)
    standing.look()  # said once
    standing.contact("", clock())

    assert [states.SYNCED, states.STALED, states.SYNCED] == [state for state, _ in readers.seen]


def test_trouble_that_lasts_makes_a_listed_resource_stale_with_its_reason() -> None:
    readers = Readers()
    standing, clock = readers.standing, readers.clock
    standing.report("", states.SYNCED, "")
    standing.report("", states.RETRYING, "refused")

    clock.advance(91)
    standing.look()

    assert (states.STALED, "silent for more than 90 s: refused") == readers.seen[-1]


def test_trouble_before_the_first_list_is_not_stale() -> None:
    readers = Readers()
    readers.standing.report("", states.RETRYING, "refused")

    readers.clock.advance(1000)
    readers.standing.look()

    assert [(states.RETRYING, "refused")] == readers.seen


def test_an_earlier_life_whose_last_contact_is_long_ago_is_stale() -> None:
    """Of its contact, not of the moment at which this life began."""
    for known, state in ((0.0, states.SYNCED), (1000.0 - 91.0, states.STALED)):
        readers = Readers()
        readers.standing.go_on(states.SYNCED, "", known, {"": "7"})

        readers.standing.look()

        assert state == readers.standing.current[0]


def test_the_age_is_that_of_the_quietest_namespace() -> None:
    readers = Readers("a", "b")
    clock = readers.clock
    began = clock()
    clock.advance(10)

    assert began == readers.standing.contact("a", clock())
    assert began + 10 == readers.standing.contact("b", clock())


def test_an_absent_resource_is_settled_and_not_stale() -> None:
    readers = Readers()
    standing = readers.standing
    assert not standing.is_settled()
    standing.report("", states.SYNCED, "")
    standing.report("", states.ABSENT, "the server has none")

    readers.clock.advance(1000)
    standing.look()

    assert standing.is_settled()
    assert (states.ABSENT, "the server has none") == standing.current


def test_the_version_is_the_smallest_and_none_without_one() -> None:
    standing = Readers("a", "b").standing

    assert standing.advance("a", "100") is None
    assert "99" == standing.advance("b", "99")
    assert "100" == standing.advance("b", "18446744073709551617")
    assert "opaque" == smallest(["opaque"])
    assert smallest(["opaque", "5"]) is None


# ---- transform ---------------------------------------------------------------------------------


def test_a_transform_that_raises_isolates_its_object(caplog: pytest.LogCaptureFixture) -> None:
    def slim(obj: dict[str, object]) -> dict[str, object] | None:
        if obj.get("bad"):
            raise ValueError("bad object")
        return None if obj.get("dull") else {"metadata": obj["metadata"]}

    def added(name: str, **more: bool) -> Item:
        metadata = {"name": name, "managedFields": [1]}
        raw = orjson.dumps({"metadata": metadata, "spec": 1, **more})
        return Item("ADDED", name, "1", None, None, None, raw)

    transforming = Transforming("pods", slim, keep_managed_fields=False)
    gone = Item("DELETED", "gone", "1", None, None, None, b"not even JSON")
    items = [added("a"), added("b", bad=True), added("c", dull=True), added("d", bad=True), gone]

    with caplog.at_level(logging.ERROR):
        found = [obj for _, obj in transforming.each(items)]

    assert [{"metadata": {"name": "a"}}, None, None, None, None] == found
    assert (2, 1) == (transforming.failures, transforming.left_out)
    assert ["pods: the transform fails on b"] == [record.message for record in caplog.records]


# ---- two lives ---------------------------------------------------------------------------------


def die(_: Connection, name: str, url: str, version: str) -> None:
    """As a reflector that is killed while all is well."""
    writer = shmcache.Writer(name, [Plan(name="pods").resource_at(url, ())])
    writer.replace("pods", [], version=version)
    writer.set_state("pods", states.SYNCED, version)
    writer.note("pods", contact_ns=time.monotonic_ns())
    os._exit(0)


def test_a_successor_of_a_killed_reflector_shows_its_good_state_while_the_server_is_down(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_state, "GRACE", 3600.0)
    plan = Plan(name="pods")
    with ApiServer(seed=1) as server:
        with Worker("spawn", die, name, server.url, server.version) as killed:
            killed.process.join()
        server.go_down()
        opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
        with (
            shmcache.Writer(name, [plan.resource_at(server.url, ())]) as writer,
            shmcache.attach(name) as cache,
        ):
            engine = Engine(writer, [plan], opener)
            engine.start()
            pods = cache["pods"]
            eventually(lambda: pods.status.counters["errors"] > 0, "no request fails")
            assert ("synced", "") == (pods.status.state, pods.status.reason)
            assert engine.stop()
