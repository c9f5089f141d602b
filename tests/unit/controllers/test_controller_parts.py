"""Invariants tested: what makes keys dirty, what is declared, what the board keeps (BOARD1 to
BOARD4)."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import re
import subprocess
import sys
from typing import Any

import pytest

import shmcache
from shmcache._native import lib
from shmcache.controllers import numbers, predicates, reports, rows, share
from shmcache.controllers.board import TENURE, Board
from shmcache.controllers.numbers import Numbers
from shmcache.controllers.rows import digest
from shmcache.controllers.sources import Owns, Sources, Type, Watches
from shmcache.controllers.tenure import Tenure
from shmcache.errors import BusyError, LayoutMismatch
from shmcache.handlers.tombstone import Tombstone
from shmcache.lease.slots import SLOTS, slot_of
from shmcache.memory.companions import ROWS
from shmcache.memory.segments import Place
from shmcache.queue.feeder import SourceEvent


def obj(name: str = "a", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "prod", "uid": f"u-{name}", **metadata}}


def update(old: Any, new: Any) -> SourceEvent:
    return SourceEvent("pods", "MODIFIED", "prod/a", old, new)


# ---- predicates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predicate", "changes", "passes"),
    [
        (predicates.generation_changed, {"generation": 2}, True),
        (predicates.generation_changed, {"resourceVersion": "9"}, False),
        (predicates.generation_changed, {"uid": "another"}, True),  # R-KR-08
        (predicates.generation_changed, {"deletionTimestamp": "now"}, True),
        (predicates.labels_changed, {"labels": {"x": "y"}}, True),
        (predicates.labels_changed, {"generation": 2}, False),
        (predicates.annotations_changed, {"annotations": {"x": "y"}}, True),
        (predicates.annotations_changed, {"labels": {"x": "y"}}, False),
        (predicates.resource_version_changed, {"resourceVersion": "9"}, True),
        (predicates.resource_version_changed, {}, False),
    ],
)
def test_predicates_of_updates(predicate: Any, changes: dict[str, Any], passes: bool) -> None:
    old = obj(generation=1, resourceVersion="8")
    new = {"metadata": {**old["metadata"], **changes}}

    assert predicate(update(old, new)) is passes
    assert predicates.not_(predicate)(update(old, new)) is not passes
    assert predicate(SourceEvent("pods", "ADDED", "prod/a", None, new)) is True
    assert predicate(SourceEvent("pods", "DELETED", "prod/a", old, None)) is True


def test_an_object_without_a_generation_always_passes() -> None:
    assert predicates.generation_changed(update(obj(), obj(labels={"x": "y"})))


def test_predicates_combine() -> None:
    def yes(_: SourceEvent) -> bool:
        return True

    no = predicates.not_(yes)
    event = update(obj(), obj())
    assert predicates.all_of(yes, yes)(event)
    assert not predicates.all_of(yes, no)(event)
    assert predicates.any_of(no, yes)(event)
    assert not predicates.any_of(no, no)(event)


# ---- owners, watches, shards ---------------------------------------------------------------------


def reference(name: str, **given: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": True,
        **given,
    }  # fmt: skip


def owned_by(*references: dict[str, Any]) -> dict[str, Any]:
    return obj(ownerReferences=list(references))


def keys_of(cache: shmcache.Cache, event: SourceEvent, **given: Any) -> list[str]:
    """The keys that an event of pods makes dirty."""
    kind = given.pop("kind", None) or Type("replicasets.apps")
    shard = given.pop("shard", None)
    owns = (Owns("pods", **given),)
    sources = Sources(kind, (), owns, (), shard)
    return list(dict(sources.feeds(cache))["pods"](event))


@pytest.mark.parametrize(
    ("references", "keys"),
    [
        ([reference("web")], ["prod/web"]),
        ([reference("web", apiVersion="apps/v1beta1")], ["prod/web"]),  # by group, not version
        ([reference("web", apiVersion="extensions/v1")], []),
        ([reference("web", apiVersion="v1")], []),
        ([reference("web", kind="StatefulSet")], []),
        ([reference("web", controller=False)], []),
        ([{**reference("web"), "controller": None}, reference("db")], ["prod/db"]),
        ([], []),
    ],
)
def test_the_controlling_owner_is_found_by_group_and_kind(
    cache: shmcache.Cache, references: list[dict[str, Any]], keys: list[str]
) -> None:
    assert (
        keys_of(cache, SourceEvent("pods", "ADDED", "prod/a", None, owned_by(*references))) == keys
    )


def test_any_owner_counts_if_asked_for(cache: shmcache.Cache) -> None:
    pod = owned_by(reference("web", controller=False), reference("db"))
    found = keys_of(cache, SourceEvent("pods", "ADDED", "prod/a", None, pod), any_owner=True)
    assert found == ["prod/web", "prod/db"]


def test_both_owners_of_an_object_that_changed_hands_are_dirty(cache: shmcache.Cache) -> None:
    event = update(owned_by(reference("web")), owned_by(reference("db")))
    assert keys_of(cache, event) == ["prod/web", "prod/db"]
    assert keys_of(cache, update(event.old, event.old)) == ["prod/web"]  # each once


def test_the_last_owner_of_a_deleted_object_is_dirty(cache: shmcache.Cache) -> None:
    event = SourceEvent("pods", "DELETED", "prod/a", owned_by(reference("web")), None)
    assert keys_of(cache, event) == ["prod/web"]


def test_an_owner_of_cluster_scope_has_no_namespace(cache: shmcache.Cache) -> None:
    pod = owned_by(reference("node-1", apiVersion="v1", kind="Node"))
    event = SourceEvent("pods", "ADDED", "prod/a", None, pod)
    assert keys_of(cache, event, kind=Type("nodes")) == ["node-1"]


def test_the_kind_of_a_custom_resource_is_learned(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """Until there is an object, its kind is not known: another kind of the group is dirty, too."""
    mine = reference("web", apiVersion="x.example.com/v1", kind="Widget")
    other = reference("lid", apiVersion="x.example.com/v2", kind="Gadget")
    event = SourceEvent("pods", "ADDED", "prod/a", None, owned_by(mine, other))
    kind = Type("nodes")  # the table of built-in ones knows it; this one is not there
    kind.resource, kind.group, kind.kind, kind.namespaced = "nodes", "x.example.com", None, None
    assert keys_of(cache, event, kind=kind, any_owner=True) == ["prod/web", "prod/lid"]
    writer.apply("nodes", [{**obj("b", resourceVersion="1"), "kind": "Widget"}])
    assert keys_of(cache, event, kind=kind, any_owner=True) == ["prod/web"]
    assert kind.key(mine, "prod") == "prod/web"
    assert kind.key(other, "prod") is None


def test_when_nobody_knows_whose_it_was_all_keys_are_dirty(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    for name in ("web", "db"):
        writer.apply("nodes", [obj(name, resourceVersion="1")])
    event = SourceEvent("pods", "DELETED", "prod/a", Tombstone("prod/a", "u", None), None)
    kind = Type("nodes")
    assert keys_of(cache, event, kind=kind) == ["prod/db", "prod/web"]


def test_a_watch_gives_the_keys_of_its_function(cache: shmcache.Cache) -> None:
    def mapped(found: Any, given: shmcache.Cache) -> list[str] | None:
        assert given is cache
        return (
            [f"prod/{found['metadata']['name']}"] if found["metadata"]["name"] != "none" else None
        )

    watched = (Watches("nodes", mapped, (predicates.labels_changed,)),)
    feed = dict(Sources(Type("pods"), (), (), watched, None).feeds(cache))["nodes"]
    assert list(feed(update(obj("b"), obj("c", labels={"x": "y"})))) == ["prod/b", "prod/c"]
    assert list(feed(update(obj("b"), obj("c")))) == ["prod/b", "prod/c"]  # another uid
    assert list(feed(update(obj("b"), obj("b")))) == []
    assert list(feed(SourceEvent("nodes", "ADDED", "x", None, obj("none")))) == []


def test_a_resource_may_be_owned_and_watched(cache: shmcache.Cache) -> None:
    watched = (Watches("pods", lambda *_: ["prod/web", "prod/more"]),)
    sources = Sources(Type("replicasets.apps"), (), (Owns("pods"),), watched, None)
    event = SourceEvent("pods", "ADDED", "prod/a", None, owned_by(reference("web")))
    assert sources.resources == ("replicasets.apps", "pods")
    assert list(dict(sources.feeds(cache))["pods"](event)) == ["prod/web", "prod/more"]


def test_shards_take_each_key_once(cache: shmcache.Cache) -> None:
    keys = [f"prod/{n}" for n in range(100)]
    events = [SourceEvent("pods", "ADDED", key, None, obj()) for key in keys]
    shards = [
        {
            key
            for event in events
            for key in dict(Sources(Type("pods"), (), (), (), (n, 3)).feeds(cache))["pods"](event)
        }
        for n in range(3)
    ]
    assert set(keys) == set.union(*shards)
    assert len(keys) == sum(map(len, shards))
    assert all(shards)


# ---- declaring -----------------------------------------------------------------------------------


@shmcache.controller("pods", owns=["nodes"], watches={"nodes": lambda *_: ["x"]}, processes=2)
def declared(key: str, cache: Any) -> str:
    """Says what it does."""
    return f"{key} {cache}"


def test_a_declared_controller_is_its_function_still() -> None:
    assert declared("k", "c") == "k c"
    assert declared.__doc__ == "Says what it does."
    assert declared.name == "pods"
    assert ("pods", "nodes") == declared.sources.resources
    assert pickle.loads(pickle.dumps(declared)) is declared  # noqa: S301 - our own


def test_a_controller_that_cannot_be_sent_is_a_clear_error() -> None:
    local = shmcache.controller("pods")(lambda _key, _cache: None)
    with pytest.raises(TypeError, match="cannot be sent"):
        pickle.dumps(local)


@pytest.mark.parametrize(
    "given",
    [
        {"name": "a/b"},
        {"name": "a@b"},
        {"processes": 0},
        {"processes": 129},
        {"concurrency": 0},
        {"concurrency": 65},
        {"shard": (3, 3)},
        {"owns": [f"things-{number}" for number in range(1024)]},
    ],
)
def test_wrong_declarations_are_refused(given: dict[str, Any]) -> None:
    wanted = "name|processes must be 1 to 128|shard|at most 1,024 resources"
    with pytest.raises(ValueError, match=wanted):
        shmcache.controller("pods", **given)(lambda _key, _cache: None)


def test_a_requeue_is_in_the_future() -> None:
    assert shmcache.Requeue(after=0).after == 0
    shown = [repr(shmcache.Requeue()), repr(shmcache.Requeue(after=5, priority=-1))]
    assert shown == ["Requeue()", "Requeue(after=5, priority=-1)"]
    for wrong in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="seconds"):
            shmcache.Requeue(after=wrong)


def test_declaring_imports_no_processes() -> None:
    """A web worker that only adds keys pays for no supervisor, and nobody for asyncio."""
    code = (
        "import shmcache, sys; shmcache.controller('pods')(print);"
        "print(*{'asyncio', 'logging', 'multiprocessing', 'kubernetes'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"logging"}


def test_written_is_for_reconciles() -> None:
    with pytest.raises(RuntimeError, match="outside of one there is no key"):
        shmcache.written("pods", obj(resourceVersion="5"))


# ---- the board -----------------------------------------------------------------------------------


@pytest.fixture
def place(writer: shmcache.Writer) -> Place:
    return writer.place


def test_places_are_held_by_a_lock(place: Place) -> None:
    one, other = Board(place, "c"), Board(place, "c")
    mine, theirs = one.take_row(1), other.take_row(1)
    assert (mine.number, theirs.number) == (0, 1)
    assert [row.pid for row in one.rows] == [os.getpid()] * 2
    assert other.held(0)
    assert not one.held(0)  # by itself
    other.close()  # as death does: the lock falls
    third = Board(place, "c")
    assert third.take_row(1).number == 1
    third.close()
    one.close()


def test_a_place_left_in_a_key_is_taken_last(place: Place) -> None:
    """BOARD3: until somebody has dealt with the key."""
    dead, board = Board(place, "c"), Board(place, "c")
    dead.take_row(2).fill(1, "prod/web", digest("prod/web"))
    dead.close()
    mine = board.take_row(1)
    assert mine.number == 1
    found = [(row.number, row.runners_in(digest("prod/web"))) for row in board.rows]
    assert found == [(0, [1]), (1, [])]
    assert [runner.key for runner in board.rows[0].runners()] == ["prod/web"]
    board.rows[0].empty(1)
    other = Board(place, "c")
    assert other.take_row(1).number == 0
    other.close()
    board.close()


def test_the_newest_version_is_remembered(place: Place) -> None:
    """B2."""
    board = Board(place, "c")
    mine, pods = board.take_row(1), board.resource("pods")
    for version in (7, 9, 8):
        mine.wrote(5, pods, version)
    assert board.rows[0].written(5, pods)[1] == 9
    assert board.rows[0].written(6, pods) == (0, 0)
    assert board.rows[0].written(5, board.resource("nodes")) == (0, 0)
    board.close()


def test_resources_have_the_same_numbers_for_all(place: Place) -> None:
    one, other = Board(place, "c"), Board(place, "c")
    assert [one.resource("pods"), other.resource("nodes"), other.resource("pods")] == [0, 1, 0]
    assert ["pods", "nodes"] == one.resources([]) == other.resources(["pods"])
    for number in range(rows.RESOURCES - 2):
        one.resource(f"more-{number}")
    assert len(other.resources([])) == rows.RESOURCES == lib.SHMC_QUEUE_RESOURCES_MAX
    with pytest.raises(ValueError, match=r"at most 1,024 resources, not 'too-many'"):
        one.resource("too-many")
    one.close()
    other.close()


def test_versions_of_every_resource_are_apart(place: Place) -> None:
    """Those of the last one lie before the first deletion."""
    board = Board(place, "c")
    mine = board.take_row(1)
    assert mine.deleted(3, 0, "prod/web", "u") is None
    numbers = [0, 1, 15, 16, 17, rows.RESOURCES - 1]
    for number in numbers:
        for bucket in (0, rows.BUCKETS - 1):
            mine.wrote(bucket, number, 1000 * number + bucket + 1)
    for number in numbers:
        for bucket in (0, rows.BUCKETS - 1):
            assert mine.written(bucket, number)[1] == 1000 * number + bucket + 1
    assert [one.key for one in mine.deletions()] == ["prod/web"]
    board.close()


def test_deletions_are_never_overwritten_unseen(place: Place) -> None:
    board = Board(place, "c")
    mine = board.take_row(1)
    for number in range(rows.DELETIONS):
        assert mine.deleted(3, 0, f"prod/{number}", f"u-{number}") is None
    oldest = mine.deleted(3, 0, "prod/more", "u-more")
    assert oldest is not None
    assert (oldest.key, oldest.uid, oldest.bucket) == ("prod/0", "u-0", 3)
    mine.forget(oldest)
    assert mine.deleted(4, 0, "prod/more", "u-more") is None
    seen = list(board.rows[0].deletions())
    assert len(seen) == rows.DELETIONS
    assert board.rows[0].deleted_at(4) == next(one.when for one in seen if one.key == "prod/more")
    board.close()


def test_longest_names_have_room(place: Place) -> None:
    board = Board(place, "c")
    mine = board.take_row(1)
    key, uid = "n" * 63 + "/" + "x" * 253, "0" * 36
    mine.fill(0, key, digest(key))
    mine.deleted(0, 0, key, uid)
    assert [runner.key for runner in mine.runners()] == [key]
    assert [(one.key, one.uid) for one in mine.deletions()] == [(key, uid)]
    board.close()


def test_errors_are_counted_by_all(place: Place) -> None:
    one, other = Board(place, "c"), Board(place, "c")
    counts = [board.happened(77, 60.0) for board in (one, other, one)]
    assert counts == [1, 2, 3]
    assert one.happened(78, 60.0) == 1
    assert one.happened(77, 0.0) == 1  # it rested for long enough
    one.close()
    other.close()


def test_distinct_errors_are_logged_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    def fail(key: str) -> None:
        if key == "cause":
            try:
                raise KeyError(key)
            except KeyError as error:
                raise ValueError("because") from error
        raise ValueError(f"with {key} in it")

    board = Board(place, "c")
    with caplog.at_level(logging.ERROR):
        for number in itertools.chain(range(10), ["cause"]):
            try:
                fail(str(number))
            except ValueError as error:
                reports.report(board, "c", f"prod/{number}", error, "tried again")
    said = [(bool(record.exc_info), record.getMessage()) for record in caplog.records]
    assert [traced for traced, _ in said] == [True, False, True]
    assert "prod/0" in said[0][1]
    assert "for the 10th time, now prod/9" in said[1][1]
    assert "because" in said[2][1]
    board.close()


def test_numbers_are_those_of_all_processes(place: Place) -> None:
    one, other = Board(place, "c"), Board(place, "c")
    for board, spent in ((one, 4_000_000), (other, 70_000_000_000)):
        mine = board.take_row(3)
        mine.add((numbers.SUCCESS, 2), (numbers.NANOSECONDS, spent), (numbers.bound(spent), 1))
        mine.fill(0, "prod/web", digest("prod/web"))
    found = Numbers(one)
    assert found.results == {"success": 4, "error": 0, "requeue": 0, "requeue_after": 0}
    assert (found.active, found.concurrent, found.reconciles) == (2, 6, 4)
    text = found.text("c")
    assert 'controller_runtime_reconcile_total{controller="c",result="success"} 4\n' in text
    assert 'reconcile_time_seconds_bucket{controller="c",le="0.005"} 1\n' in text
    assert 'reconcile_time_seconds_bucket{controller="c",le="60"} 1\n' in text
    assert 'reconcile_time_seconds_bucket{controller="c",le="+Inf"} 2\n' in text
    assert 'reconcile_time_seconds_sum{controller="c"} 70.004\n' in text
    upstream = """0.005 0.01 0.025 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5 0.6 0.7 0.8 0.9 1
        1.25 1.5 1.75 2 2.5 3 3.5 4 4.5 5 6 7 8 9 10 15 20 25 30 40 50 60 inf"""
    bounds = re.findall(r'reconcile_time_seconds_bucket\{controller="c",le="([^"]*)"\}', text)
    assert [float(bound) for bound in upstream.split()] == [float(bound) for bound in bounds]
    one.close()
    other.close()


def test_a_board_goes_with_its_cache(name: str) -> None:
    with shmcache.Writer(name, ["pods"], arena_max="64MiB", ring_slots=64) as writer:
        place = writer.place
        board = Board(place, "c")
        mine = board.take_row(1)
        writer.close()
        assert place.location.identity(board.file) is not None  # somebody works at it
        mine.leave()
        board.close()
        assert place.location.identity(board.file) is None


def test_a_board_that_nobody_holds_goes_first(name: str) -> None:
    with shmcache.Writer(name, ["pods"], arena_max="64MiB", ring_slots=64) as writer:
        place = writer.place
        board = Board(place, "c")
        board.take_row(1).leave()
        board.close()
        assert place.location.identity(board.file) is not None  # its versions are needed still
    assert place.location.identity(board.file) is None


def test_a_board_of_another_layout_is_refused(place: Place) -> None:
    board = Board(place, "c")
    board.words[1] += 1
    board.close()
    with pytest.raises(LayoutMismatch, match="another version"):
        Board(place, "c")


def test_a_board_has_as_many_rows_as_processes_may_be(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmcache.controllers.board.ROWS", 3)
    boards = [Board(place, "c") for _ in range(4)]
    boards[0].take_row(1).fill(0, "prod/web", digest("prod/web"))
    boards[0].close()
    assert [board.take_row(1).number for board in boards[1:3]] == [1, 2]
    boards[0] = Board(place, "c")
    assert boards[0].take_row(1).number == 0  # though nobody has dealt with its key
    with pytest.raises(BusyError, match="3 processes"):
        boards[3].take_row(1)
    for board in boards:
        board.close()


def test_of_many_deletions_in_slots_of_others_the_oldest_are_forgotten_sharefeed1(
    cache: shmcache.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "REMEMBERED", 3)
    one = shmcache.controller("pods", name="web", machines=shmcache.LeaseSettings("web"))(print)
    board = Board(cache.place, "web")
    tenure = Tenure(board)
    ours = share.TenureShare(tenure, cache, one)
    for number in (1, 2, 3, 1, 4):  # the first is created and deleted once more
        key = f"prod/web-{number}"
        assert ours.ours([key], SourceEvent("pods", "DELETED", key, {}, None)) == []

    tenure.set_slots(range(SLOTS), 1)
    assert list(ours.gained()) == ["prod/web-3", "prod/web-1", "prod/web-4"]
    board.close()


def test_a_gained_slot_brings_its_objects_and_its_late_deletions_once_sharefeed1(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    one = shmcache.controller("pods", name="web", machines=shmcache.LeaseSettings("web"))(print)
    keys = [f"prod/web-{number}" for number in range(40)]
    writer.replace("pods", [obj(key[5:]) for key in keys[:20]])
    board = Board(cache.place, "web")
    tenure = Tenure(board)
    half = {slot for slot in range(SLOTS) if slot % 2}
    tenure.set_slots(half, 1)
    tenure.set_slots({slot for slot in half if slot > SLOTS // 2}, 2)
    ours = share.TenureShare(tenure, cache, one)
    of_half = {key for key in keys if slot_of(key) in half}
    assert 0 < len(of_half & {*keys[:20]}) < 20
    assert set(ours.gained()) == of_half & {*keys[:20]}
    ours.added()
    assert list(ours.gained()) == []

    for kind, resource, key in (
        *(("DELETED", "pods", key) for key in keys[20:]),
        ("MODIFIED", "pods", "prod/modified"), ("DELETED", "nodes", "prod/other"),
    ):  # fmt: skip
        event = SourceEvent(resource, kind, key, {}, None)
        assert ours.ours([key], event) == ([key] if slot_of(key) in half else [])
    tenure.set_slots(set(range(SLOTS)) - half, 3)
    assert set(ours.gained()) == {*keys} - of_half
    assert set(ours.gained()) == {*keys[:20]} - of_half, "deletions come once"
    ours.added()
    assert list(ours.gained()) == []
    board.close()


def test_a_gained_slot_waits_for_a_resource_that_comes_late_sharefeed1(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    one = shmcache.controller("jobs", name="web", machines=shmcache.LeaseSettings("web"))(print)
    board = Board(cache.place, "web")
    ours = share.TenureShare(Tenure(board), cache, one)
    for slots in ((), range(SLOTS)):
        Tenure(board).set_slots(slots, 1)
        assert list(ours.gained()) == []
        ours.added()
    writer.add_resource("jobs")
    writer.apply("jobs", [obj("late")])
    assert list(ours.gained()) == ["prod/late"]
    board.close()


def test_a_deletion_is_remembered_for_ten_minutes_sharefeed1(
    cache: shmcache.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("shmcache.controllers.share.time.monotonic", lambda: clock[0])
    one = shmcache.controller("pods", name="web", machines=shmcache.LeaseSettings("web"))(print)
    board = Board(cache.place, "web")
    ours = share.TenureShare(Tenure(board), cache, one)
    for when in (1000.0, 1001.0):
        clock[0] = when
        key = f"prod/at-{when:.0f}"
        assert ours.ours([key], SourceEvent("pods", "DELETED", key, {}, None)) == []
    clock[0] = 1601.0
    Tenure(board).set_slots(range(SLOTS), 1)
    assert list(ours.gained()) == ["prod/at-1001"]
    board.close()


def test_a_tenure_writes_to_no_row(place: Place) -> None:
    board = Board(place, "c")
    for _ in range(ROWS):
        board.take_row(1)
    rows_before = list(board.words[: TENURE // 8])
    tenure = Tenure(board)
    tenure.identity = "machine"
    tenure.fed = 3
    tenure.extend(1e6)
    tenure.join()
    tenure.set_slots(range(SLOTS), 7)
    assert list(board.words[: TENURE // 8]) == rows_before
    assert ("machine", 3, True) == (tenure.identity, tenure.fed, tenure.joined)
    assert dict.fromkeys(range(SLOTS), 7) == tenure.gained()
    board.close()


@pytest.mark.parametrize(("name", "fits"), [("c" * 100, True), ("c" * 101, False), ("C", False)])
def test_a_controllers_name_has_at_most_a_hundred_characters(name: str, fits: bool) -> None:
    def declare() -> str:
        return shmcache.controller("pods", name=name)(print).name

    if fits:
        assert name == declare()
    else:
        with pytest.raises(ValueError, match="a controller's name must have"):
            declare()
