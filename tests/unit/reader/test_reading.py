"""Invariant: each answer of a root belongs to one published state; a read that is no longer
possible raises, and never lies, crashes or hangs."""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import pytest

import shmcache
from shmcache import Resource, _hot, _native
from shmcache._native import ffi, lib
from shmcache.errors import ClosedError, ForkedError, Lapped, StaleObjectError
from shmcache.memory.mapping import Attached
from shmcache.memory.segments import boot_id
from shmcache.monitor.observing import observe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shmcache import Cache, Writer

NODES = 7
PODS = "pods"


def pod(number: int, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"pod-{number}", "labels": {"app": f"app-{number % 5}"}},
        "spec": {"nodeName": f"node-{number % NODES}"},
        "number": number,
        **more,
    }


def key_of(number: int) -> str:
    return f"space-{number % 3}/pod-{number}"


@pytest.fixture
def writer(name: str) -> Iterator[Writer]:
    """A small cache of its own, with a tiny window and a tiny garbage limit."""
    pods = Resource(PODS, {"node": "spec.nodeName", "label": "metadata.labels"})
    with shmcache.Writer(
        name, [pods, "nodes"], arena_max="64MiB", ring_slots=256, garbage_max="1MiB"
    ) as made:
        yield made
        made.check()


@pytest.fixture
def cache(writer: Writer) -> Iterator[Cache]:
    with shmcache.attach(writer.name) as attached:
        yield attached


@pytest.fixture
def filled(writer: Writer) -> dict[str, dict[str, Any]]:
    objects = {key_of(number): pod(number) for number in range(1000)}
    with writer.batch():
        for key, obj in objects.items():
            writer.put(PODS, key, obj, "1")
    return objects


def reader_of(cache: Cache) -> Any:
    return cache._reader


class Attachment:
    """Maps and a handle of their own, without a seat. Objects in the traceback of a failed test
    still use them: only release() frees them, as the contract of Reader has it."""

    def __init__(self, cache: Cache) -> None:
        self.segments = Attached(cache._place, boot_id())
        made = ffi.addressof(self.segments.owner, "reader")
        _native.check(lib.shmc_reader_create(self.segments.data, ffi.NULL, made), "testing")
        self.address = _native.address(made[0])

    def release(self) -> None:
        self.segments.close()


def root_of(cache: Cache) -> Any:
    return reader_of(cache).root()


def churn(writer: Writer, rounds: int, size: int = 20_000) -> None:
    """Publishes until every pinned generation has been revoked."""
    for number in range(rounds):
        writer.put("nodes", "churn", {"n": number, "filler": f"{number:08}" * (size // 8)})


# ---- lookups -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("filled")
def test_a_resource_is_a_mapping_of_its_keys(cache: Cache, filled: dict[str, Any]) -> None:
    pods = _hot.Resource(reader_of(cache), 0)
    assert len(pods) == len(filled)
    assert list(pods) == list(pods.keys()) == sorted(filled, key=str.encode)
    assert dict(pods.items()) == filled
    assert list(pods.values()) == [filled[key] for key in sorted(filled)]
    for key, expected in filled.items():
        assert key in pods
        assert pods[key] == pods.get(key) == expected


def test_an_absent_key_is_the_default_or_a_key_error(cache: Cache, writer: Writer) -> None:
    pods = _hot.Resource(reader_of(cache), 0)
    assert pods.get("nowhere") is None
    assert len(pods) == 0
    assert list(pods) == []
    writer.put(PODS, "a/b", {"x": 1})
    marker = object()
    for absent in ("", "a", "a/", "a/a", "a/b\0", "a/bb", "a/c", "\ud800", "ä/b", "a/b" * 1000):
        assert absent not in pods
        assert pods.get(absent) is None
        assert pods.get(absent, marker) is marker
        assert pods.get(absent, default=marker) is marker
        with pytest.raises(KeyError):
            pods[absent]
    assert "a/b" in pods


def test_a_key_that_is_not_a_str_is_a_type_error_that_explains_keys(cache: Cache) -> None:
    pods: Any = _hot.Resource(reader_of(cache), 0)
    for wrong in (("ns", "name"), b"ns/name", 5, None):
        for use in (pods.get, pods.__getitem__, pods.__contains__):
            with pytest.raises(TypeError, match="namespace/name"):
                use(wrong)


def test_get_refuses_unknown_arguments(cache: Cache) -> None:
    pods: Any = _hot.Resource(reader_of(cache), 0)
    for arguments, keywords in (((), {}), (("a", 1, 2), {}), (("a",), {"fallback": 1})):
        with pytest.raises(TypeError):
            pods.get(*arguments, **keywords)
    with pytest.raises(TypeError):
        pods.get("a", 1, default=2)


def test_keys_of_every_kind_are_found_again(cache: Cache, writer: Writer) -> None:
    keys = ["a", "a\x01", "a\x01b", "\x01", "ä", "日本/語", "🦊" * 20, "x" * 7, "x" * 8, "y" * 5000]
    for number, key in enumerate(keys):
        writer.put(PODS, key, {"n": number})
    pods = _hot.Resource(reader_of(cache), 0)
    assert list(pods) == sorted(keys, key=str.encode)
    assert {key: pods[key]["n"] for key in keys} == {key: n for n, key in enumerate(keys)}


def test_a_resource_without_a_root_always_answers_from_the_latest(
    cache: Cache, writer: Writer
) -> None:
    pods = _hot.Resource(reader_of(cache), 0)
    for number in range(100):
        writer.put(PODS, "a/b", {"n": number}, str(number))
        assert pods["a/b"]["n"] == number
        assert pods.generation == cache.latest
    assert writer.delete(PODS, "a/b")
    assert "a/b" not in pods


def test_a_resource_with_a_root_stays_as_it_was(cache: Cache, writer: Writer) -> None:
    writer.put(PODS, "a/b", {"n": 1}, "1")
    root = root_of(cache)
    before: Any = _hot.Resource(reader_of(cache), 0, root)
    writer.put(PODS, "a/b", {"n": 2}, "2")
    writer.put(PODS, "a/c", {"n": 3}, "3")
    writer.set_state(PODS, 1, "3")
    assert before.root is root
    assert (len(before), before["a/b"]["n"], before.version, "a/c" in before) == (1, 1, None, False)
    after = _hot.Resource(reader_of(cache), 0)
    assert (len(after), after["a/b"]["n"], after.version, "a/c" in after) == (2, 2, "3", True)
    assert root.get(0, "a/b") == {"n": 1}
    assert root.get(0, "a/c", "none") == "none"


def test_a_resource_can_be_subclassed(cache: Cache, filled: dict[str, Any]) -> None:
    class Pods(_hot.Resource):
        extra = 1

    pods = Pods(reader_of(cache), 0)
    assert (pods.id, pods.name, pods.root, len(pods)) == (0, PODS, None, len(filled))
    assert pods.reader is reader_of(cache)
    assert pods[key_of(5)] == filled[key_of(5)]

    class Careless(_hot.Resource):
        def __init__(self) -> None:  # without super().__init__
            pass

    with pytest.raises(RuntimeError, match="__init__"):
        Careless().get("a")


def test_a_look_and_its_state_are_of_one_moment(
    writer: shmcache.Writer, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resource that appears while it is looked up: a sleeper after that state sees it come."""

    def slow(_: Any, name: str) -> str:
        writer.add_resource("jobs")
        raise KeyError(name)

    monkeypatch.setattr(cache, "_resolve", slow)
    root, number = cache.look("jobs")
    assert (-1, False) == (number, "jobs" in root.names())
    assert root.generation < cache.latest
    root, number = cache.look("jobs")
    assert "jobs" == root.names()[number]


def test_an_unknown_resource_is_a_lookup_error(cache: Cache) -> None:
    root = root_of(cache)
    for question in (root.count, root.record):
        with pytest.raises(LookupError):
            question(2)
    with pytest.raises(LookupError):
        _hot.Resource(reader_of(cache), 99).get("a")
    with pytest.raises(LookupError):
        root.scan(0, index=5)
    with pytest.raises(OverflowError):
        root.count(-1)


def test_a_record_describes_the_resource(cache: Cache, writer: Writer) -> None:
    assert root_of(cache).names() == [PODS, "nodes"]
    for number in range(10):
        writer.put(PODS, key_of(number), pod(number), str(number))
    writer.set_state(PODS, 3, "77")
    root = root_of(cache)
    record = root.record(0)
    assert (record["name"], record["state"], record["version"]) == (PODS, 3, "77")
    assert (
        (record["generation"], record["count"])
        == (root.generation, root.count(0))
        == (
            cache.latest,
            10,
        )
    )
    assert [(name, count) for name, _, count in record["indices"]] == [("node", 10), ("label", 10)]
    assert _hot.Resource(reader_of(cache), 0).record() == record
    assert root.record(1)["indices"] == []


# ---- scans ---------------------------------------------------------------------------------------


def test_a_scan_gives_the_same_range_as_a_sorted_list(
    cache: Cache, filled: dict[str, Any], rng: random.Random
) -> None:
    root, keys = root_of(cache), sorted(filled)
    for _ in range(200):
        start, stop, after = (rng.choice([None, rng.choice(keys), "space-1", "z"]) for _ in "abc")
        prefix = rng.choice([None, "space-1/", "space-2/pod-9", "", "none"])
        limit = rng.choice([0, 1, 17, 300])
        expected = [
            key
            for key in keys[bisect_left(keys, start or "") :]
            if (stop is None or key < stop)
            and (after is None or key > after)
            and key.startswith(prefix or "")
        ]
        expected = expected[: limit or None]
        bounds: dict[str, Any] = {
            "start": start, "stop": stop, "prefix": prefix, "after": after, "limit": limit,
        }  # fmt: skip
        assert root.scan(0, want="keys", **bounds) == expected, bounds
        assert root.scan(0, **bounds) == [(key, filled[key]) for key in expected]
        assert root.scan(0, want="values", **bounds) == [filled[key] for key in expected]


def test_pages_with_a_resume_key_make_up_the_whole(cache: Cache, filled: dict[str, Any]) -> None:
    root = root_of(cache)
    seen: list[str] = []
    while page := root.scan(0, after=seen[-1] if seen else None, limit=37, want="keys"):
        seen += page
    assert seen == sorted(filled)


def test_scans_refuse_invalid_bounds(cache: Cache) -> None:
    root = root_of(cache)
    wrong: list[dict[str, Any]] = [
        {"start": 5}, {"stop": b"x"}, {"prefix": ("a",)}, {"after": 1}, {"limit": -1},
        {"want": "everything"}, {"want": 1}, {"index": "node"}, {"index": 0, "after": "value"},
        {"start": "\ud800"}, {"unknown": 1},
    ]  # fmt: skip
    for bounds in wrong:
        with pytest.raises((TypeError, ValueError)):
            root.scan(0, **bounds)
    with pytest.raises(TypeError):
        root.scan()


def test_an_index_scan_is_ordered_by_value_then_key(cache: Cache, filled: dict[str, Any]) -> None:
    root = root_of(cache)
    entries = sorted((obj["spec"]["nodeName"], key) for key, obj in filled.items())
    assert root.scan(0, 0, want="keys") == entries
    assert root.scan(0, 0) == [(value, key, filled[key]) for value, key in entries]
    assert root.scan(0, 0, want="values") == [filled[key] for _, key in entries]
    for at in (0, 10, 500, 999):
        after = entries[at]
        assert root.scan(0, 0, after=after, limit=50, want="keys") == entries[at + 1 : at + 51]
    some = [entry for entry in entries if "node-2" <= entry[0] < "node-5"]
    assert root.scan(0, 0, start="node-2", stop="node-5", want="keys") == some
    assert root.scan(0, 0, prefix="node-3", want="keys") == [e for e in entries if e[0] == "node-3"]


def test_by_index_gives_the_objects_of_a_value_in_key_order(
    cache: Cache, filled: dict[str, Any]
) -> None:
    root = root_of(cache)
    for node in range(NODES):
        keys = sorted(key for key, obj in filled.items() if obj["number"] % NODES == node)
        value = f"node-{node}"
        assert root.by_index(0, 0, value) == [filled[key] for key in keys]
        assert root.by_index(0, 0, value, want="keys") == keys
        assert root.by_index(0, 0, value, after=keys[20], limit=5, want="items") == [
            (key, filled[key]) for key in keys[21:26]
        ]
    for absent in ("", "node", "node-", "node-1\0", "node-11", "z"):
        assert root.by_index(0, 0, absent) == []


def test_values_with_a_common_start_are_kept_apart(cache: Cache, writer: Writer) -> None:
    values = ["a", "a\0", "a\0\0", "a\0b", "a\x01", "a\x01\x01", "a\x02", "ab", "b", "ä" * 300]
    for number, value in enumerate(values):
        for copy in range(number + 1):
            writer.put(PODS, f"{copy}\x01/{number}", {"spec": {"nodeName": value}, "n": number})
    root = root_of(cache)
    ordered = sorted(values, key=str.encode)
    assert root.index_values(0, 0) == ordered
    for number, value in enumerate(values):
        found = root.by_index(0, 0, value)
        assert [obj["n"] for obj in found] == [number] * (number + 1)
        assert root.index_values(0, 0, after=value) == ordered[ordered.index(value) + 1 :]
        one = root.scan(0, 0, start=value, stop=value + "\0", want="keys")
        assert [entry[0] for entry in one] == [value] * (number + 1)
    assert root.index_values(0, 0, limit=3) == ordered[:3]
    assert root.index_values(0, 0, prefix="a\0") == ["a\0", "a\0\0", "a\0b"]


def test_distinct_values_come_in_order(cache: Cache, filled: dict[str, Any]) -> None:
    root = root_of(cache)
    assert root.index_values(0, 0) == sorted({obj["spec"]["nodeName"] for obj in filled.values()})
    assert root.index_values(0, 1) == [f"app=app-{number}" for number in range(5)]
    assert root.index_values(0, 1, after="app=app-2") == ["app=app-3", "app=app-4"]
    assert _hot.Resource(reader_of(cache), 0).index_values(0, limit=2) == ["node-0", "node-1"]


def test_an_empty_index_has_no_values(cache: Cache, writer: Writer) -> None:
    root = root_of(cache)
    assert (root.index_values(0, 0), root.by_index(0, 0, "x"), root.scan(0, 0)) == ([], [], [])
    writer.put(PODS, "a/b", {"spec": {}})
    root = root_of(cache)
    assert (root.index_values(0, 0), root.by_index(0, 0, "x"), root.scan(0, 0)) == ([], [], [])


def test_an_iterator_sees_one_state_however_long_it_takes(
    cache: Cache, writer: Writer, filled: dict[str, Any]
) -> None:
    pods = _hot.Resource(reader_of(cache), 0)
    items: Any = pods.items()
    assert items.__length_hint__() == len(filled)
    first = next(items)
    with writer.batch():
        for number in range(0, 1000, 2):
            writer.delete(PODS, key_of(number))
        writer.put(PODS, key_of(1), {"new": True})
    assert dict([first, *items]) == filled
    assert (items.__length_hint__(), list(items)) == (0, [])
    assert len(list(pods)) == 500


def test_items_of_a_scan_cause_no_work_for_the_collector(
    cache: Cache, filled: dict[str, Any]
) -> None:
    items = root_of(cache).scan(0)
    assert len(items) == len(filled)
    assert not any(map(gc.is_tracked, items))
    assert not any(gc.is_tracked(value) for _, value in items)


# ---- roots, pins, closing ------------------------------------------------------------------------


def test_a_root_shows_the_generation_that_was_the_latest(cache: Cache, writer: Writer) -> None:
    reader = reader_of(cache)
    first, again = reader.root(), reader.root()
    assert (again.generation, again.head, again.tail) == (first.generation, first.head, first.tail)
    assert (first.reader, first.valid) == (reader, True)
    writer.put(PODS, "a/b", {})
    second = reader.root()
    assert second.generation == first.generation + 1 == reader.latest
    assert (first.head + 1, second.head) == (second.head, second.head)
    assert first.instance == second.instance != 0


def test_a_dropped_root_releases_its_pin(cache: Cache, writer: Writer) -> None:
    reader = reader_of(cache)
    roots = []
    for number in range(20):
        writer.put(PODS, "a/b", {"n": number})
        roots.append(reader.root())
    assert reader.roots == 20
    assert [root.get(0, "a/b")["n"] for root in roots] == list(range(20))
    roots.clear()
    assert reader.roots == 0
    reader.release()
    assert reader.roots == 0
    assert reader.root().get(0, "a/b") == {"n": 19}


def test_a_view_alone_keeps_its_generation(cache: Cache, writer: Writer) -> None:
    writer.put(PODS, "a/b", {"deep": {"er": [1, 2, {"n": 0}]}})
    inner = root_of(cache).get(0, "a/b")["deep"]["er"][2]
    writer.delete(PODS, "a/b")
    assert "a/b" not in cache[PODS]
    assert inner == {"n": 0}
    assert reader_of(cache).roots == 2


def test_after_close_everything_raises_and_close_may_be_repeated(
    cache: Cache, writer: Writer
) -> None:
    writer.put(PODS, "a/b", {"x": {"y": 1}})
    reader = reader_of(cache)
    root, pods = reader.root(), _hot.Resource(reader, 0)
    view, keys = pods["a/b"], iter(pods)
    deltas, _ = reader.take(0, 10)
    reader.close()
    reader.close()
    uses = [
        reader.root, lambda: reader.latest, lambda: reader.take(0, 1), lambda: pods.get("a/b"),
        lambda: pods["a/b"], lambda: "a/b" in pods, lambda: len(pods), lambda: pods.version,
        lambda: list(pods), lambda: next(keys), lambda: root.scan(0), lambda: root.names(),
        lambda: root.get(0, "a/b"), lambda: root.take(0, 1), lambda: root.index_values(0, 0),
        lambda: view["x"], lambda: deltas[0].key, lambda: deltas[0].new["x"],
    ]  # fmt: skip
    for number, use in enumerate(uses):
        with pytest.raises(ClosedError):
            pytest.fail(f"use {number} gave {use()!r}")
    assert (reader.closed, root.valid, root.generation > 0) == (True, False, True)


def test_the_maps_are_released_with_the_last_view(cache: Cache, writer: Writer) -> None:
    writer.put(PODS, "a/b", {"x": {"y": 1}})
    gone: list[str] = []

    class Owner(Attachment):
        def release(self) -> None:
            gone.append("idle")
            super().release()

    owner = Owner(cache)
    reader: Any = _hot.Reader(owner.address, owner, owner.release)
    alive: Any = weakref.ref(owner)
    assert (reader.owner, reader.closed) == (owner, False)
    del owner
    inner = reader.root().get(0, "a/b")["x"]
    delta = reader.take(reader.root().tail, 1)[0][0]
    keys = _hot.Resource(reader, 0).keys()
    reader.close()
    held: list[Any] = [inner, delta, keys]
    del inner, delta, keys
    while held:
        assert (gone, reader.roots > 0, alive() is not None) == ([], True, True), held
        held.pop()
    assert (gone, reader.roots, reader.owner) == (["idle"], 0, None)
    assert alive() is None
    reader.close()
    assert gone == ["idle"]


def test_closing_an_unused_reader_releases_the_maps_at_once(cache: Cache) -> None:
    owner = Attachment(cache)
    reader = _hot.Reader(owner.address, owner, owner.release)
    reader.root()
    reader.close()
    held = owner.segments.owner
    assert (held.data_fd, held.seats_fd, reader.roots) == (-1, -1, 0)


def test_a_forgotten_reader_is_collected_with_its_root(cache: Cache) -> None:
    gone: list[int] = []

    class Owner(Attachment):
        reader: _hot.Reader
        pods: _hot.Resource

        def release(self) -> None:
            gone.append(1)
            super().release()

    owner = Owner(cache)
    owner.reader = _hot.Reader(owner.address, owner, owner.release)
    owner.pods = _hot.Resource(owner.reader, 0)
    assert len(owner.pods) == 0
    del owner
    gc.collect()
    assert gone == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_in_on_idle_does_not_disturb_the_code_that_dropped_the_last_view(
    cache: Cache,
) -> None:
    owner = Attachment(cache)

    def fail() -> None:
        owner.release()
        raise ZeroDivisionError

    reader = _hot.Reader(owner.address, owner, fail)
    root = reader.root()
    reader.close()
    with pytest.raises(ClosedError):
        root.names()
    del root


def test_a_reader_refuses_an_invalid_address(cache: Cache) -> None:
    for wrong in (0, -1, "0", None, 1 << 80):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            _hot.Reader(wrong if wrong != -1 else 0, None)  # type: ignore[arg-type]
    for kind in (_hot.Root, _hot.Delta):
        with pytest.raises(TypeError):
            kind()
    owner = Attachment(cache)
    other = _hot.Reader(owner.address, owner, owner.release)
    with pytest.raises(TypeError):
        _hot.Resource(other, 0, root_of(cache))
    other.close()


def test_a_revoked_root_raises_and_lookups_without_a_root_never_do(
    cache: Cache, writer: Writer, filled: dict[str, Any]
) -> None:
    """G2: whole, or an error; nothing in between."""
    writer.put("nodes", "large", {"text": "x" * 2_000_000})  # more than the garbage limit
    root = root_of(cache)
    pods, keys = _hot.Resource(reader_of(cache), 0), iter(_hot.Resource(reader_of(cache), 0))
    view = root.get(0, key_of(1))
    next(keys)
    writer.delete("nodes", "large")
    for _ in range(50):
        churn(writer, 20)
        with writer.batch():
            for number in range(1000):
                writer.put(PODS, key_of(number), pod(number, again=cache.latest))
        assert pods[key_of(1)]["number"] == 1
        if not root.valid:
            break
    assert not root.valid, "nothing was revoked: the test proves nothing"
    for use in (
        lambda: root.get(0, key_of(1)), lambda: root.scan(0), lambda: root.names(),
        lambda: root.by_index(0, 0, "node-1"), lambda: root.index_values(0, 0),
        lambda: root.record(0), lambda: view["number"], lambda: list(keys),
        lambda: root.take(root.tail, 5),
    ):  # fmt: skip
        with pytest.raises(StaleObjectError):
            use()
    assert len(pods.scan(want="keys")) == len(filled)


CHURN = """
import sys, shmcache
settings = {"arena_max": "64MiB", "ring_slots": 16, "ring_bytes": 4096, "garbage_max": 4096}
with shmcache.Writer(sys.argv[1], ["pods"], **settings) as writer:
    for round_ in range(1 << 62):
        with writer.batch():
            for number in range(300):
                writer.put("pods", f"a/{number}", {"round": round_, "text": f"{round_:020}"})
        writer.reclaim()
        if round_ == 1:
            print("ready", flush=True)
"""


@pytest.mark.slow
def test_lookups_without_a_root_repeat_when_a_root_goes_stale(name: str) -> None:
    """A reader without a seat pins nothing: its generations end whenever the writer likes."""
    child = subprocess.Popen([sys.executable, "-c", CHURN, name], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with shmcache.attach(name) as cache:
            owner = Attachment(cache)
            reader = _hot.Reader(owner.address, owner, owner.release)
            pods, stale = _hot.Resource(reader, 0), 0
            deadline = time.monotonic() + 60
            while stale < 5 and time.monotonic() < deadline:
                assert pods.scan(want="keys")[-1] == "a/99"
                assert len(pods) == 300
                assert "a/7" in pods
                assert pods.name == PODS
                try:
                    reader.root().scan(0, want="keys")
                except StaleObjectError:
                    stale += 1
            assert stale >= 5, "nothing went stale: the test proves nothing"
            reader.close()
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


@pytest.mark.slow
def test_lookups_during_writes_at_full_speed_see_whole_states(cache: Cache, writer: Writer) -> None:
    """Every generation holds one round number in all its objects."""
    count, enough = 50, threading.Event()

    def write() -> None:
        for round_ in itertools.count():
            with writer.batch():
                for number in range(count):
                    obj = {"round": round_, "spec": {"nodeName": f"node-{round_ % 3}"}}
                    writer.put(PODS, f"a/{number}", obj)
            if enough.is_set():
                break

    thread = threading.Thread(target=write)
    pods, round_ = _hot.Resource(reader_of(cache), 0), -1
    seen: set[int] = set()
    writer.put(PODS, "a/0", {"round": -1, "spec": {}})
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        while thread.is_alive() and (round_ < 1500 or len(seen) <= 5):
            items = pods.scan()
            rounds = {view["round"] for _, view in items}
            assert len(rounds) == 1
            round_ = rounds.pop()
            seen.add(round_)
            if round_ >= 0:
                assert len(items) == count
                root = items[0][1]  # a view: its state stays while newer ones come
                assert root["round"] == round_
            root = root_of(cache)
            assert len(root.index_values(0, 0)) <= 1
            for value in root.index_values(0, 0):
                assert len(root.by_index(0, 0, value)) == count
    finally:
        enough.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert len(seen) > 5


# ---- deltas --------------------------------------------------------------------------------------


def test_deltas_list_the_changes_in_order(cache: Cache, writer: Writer) -> None:
    reader = reader_of(cache)
    start = reader.root().head
    writer.put(PODS, "a/b", {"n": 1}, "10")
    writer.put(PODS, "a/b", {"n": 2}, "11")
    writer.put("nodes", "n", {"node": True})
    writer.delete(PODS, "a/b", "12")
    deltas, position = reader.take(start, 100)
    assert [(d.number, d.kind, d.resource, d.key, d.version) for d in deltas] == [
        (start, "ADDED", 0, "a/b", "10"),
        (start + 1, "MODIFIED", 0, "a/b", "11"),
        (start + 2, "ADDED", 1, "n", None),
        (start + 3, "DELETED", 0, "a/b", "12"),
    ]
    assert [(d.old, d.new) for d in deltas] == [
        (None, {"n": 1}),
        ({"n": 1}, {"n": 2}),
        (None, {"node": True}),
        ({"n": 2}, None),
    ]
    generations = [d.generation for d in deltas]
    assert generations == list(range(generations[0], generations[0] + 4))
    assert (deltas[0].shard, deltas[0].unknown_final_state) == (deltas[1].shard, False)
    assert deltas[0].new is deltas[0].new
    assert deltas[0].root.generation == cache.latest
    assert "ADDED" in repr(deltas[0])
    assert reader.take(position, 100) == ([], position)
    assert root_of(cache).take(start, 2)[1] == start + 2
    assert not any(map(gc.is_tracked, deltas))


def test_a_deletion_that_was_only_found_is_marked(cache: Cache, writer: Writer) -> None:
    start = root_of(cache).head
    writer.put(PODS, "a/b", {"n": 1})
    writer.delete(PODS, "a/b", unknown=True)
    added, deleted = reader_of(cache).take(start, 10)[0]
    assert (added.unknown_final_state, deleted.unknown_final_state) == (False, True)


def test_batches_join_without_gap_or_overlap(cache: Cache, writer: Writer) -> None:
    position = root_of(cache).head
    seen: list[tuple[int, int]] = []
    for number in range(500):
        writer.put(PODS, key_of(number), pod(number))
        if number % 7 == 0:
            while batch := (taken := reader_of(cache).take(position, 3))[0]:
                assert len(batch) <= 3
                position = taken[1]
                seen += [(delta.number, delta.new["number"]) for delta in batch]
    assert [number for _, number in seen] == list(range(len(seen)))
    assert [number for number, _ in seen] == list(range(seen[0][0], seen[0][0] + len(seen)))
    assert len(seen) == 498


def test_a_lapped_cursor_is_busy_until_it_goes_on(cache: Cache, writer: Writer) -> None:
    def busy() -> tuple[int, bool]:
        [worker] = [worker for worker in observe(cache).workers if worker.own]
        return worker.busy, bool(worker.lag)

    cursor = cache.follow()
    for number in range(400):
        writer.put(PODS, key_of(number), pod(number))
    with pytest.raises(Lapped):
        cursor.take()
    assert busy() == (1, True)
    with cache.snapshot() as snapshot:
        cursor.resume(snapshot)
    assert cursor.take() == []
    assert busy() == (0, False)


def test_a_lapped_consumer_gets_the_position_to_resume_at(cache: Cache, writer: Writer) -> None:
    """G5: by an error with the root and the position, and by nothing else."""
    position = root_of(cache).head
    for number in range(400):  # of 256 slots, at most half are in the window
        writer.put(PODS, key_of(number), pod(number))
    reader = reader_of(cache)
    for wrong in (position, reader.root().head + 1, 1 << 63):
        with pytest.raises(Lapped) as lapped:
            reader.take(wrong, 10)
        error: Any = lapped.value
        root = error.root
        assert error.position == root.head == position + 400
        assert root.count(0) == 400
    end = reader.root().head
    writer.put(PODS, "one/more", {})
    assert [delta.key for delta in reader.take(end, 10)[0]] == ["one/more"]


def test_filters_exclude_other_resources_and_shards(cache: Cache, writer: Writer) -> None:
    start = root_of(cache).head
    for number in range(20):
        writer.put(PODS, f"p/{number}", {"metadata": {"uid": f"uid-{number}"}})
        writer.put("nodes", f"n/{number}", {"metadata": {"uid": f"uid-{number + 100}"}})
    reader = reader_of(cache)
    shards = {delta.key: delta.shard for delta in reader.take(start, 100)[0]}
    assert len(set(shards.values())) == 40

    def keys(**filters: Any) -> list[str]:
        deltas, position = reader.take(start, 100, **filters)
        assert position == start + 40
        return [delta.key for delta in deltas]

    assert keys(resources=[0]) == [f"p/{n}" for n in range(20)]
    assert keys(resources={1}) == [f"n/{n}" for n in range(20)]
    assert keys(resources=[]) == []
    assert keys(resources=[0, 1, 4095]) == list(shards)
    for count in (1, 2, 3, 7, 1000, (1 << 64) - 1):
        for key, shard in shards.items():
            near = shard * count >> 64
            holders = [i for i in (near - 1, near, near + 1) if 0 <= i < count]
            holders = [i for i in holders if key in keys(shard=(i, count))]
            assert len(holders) == 1
            assert (holders[0] << 64) // count <= shard < (holders[0] + 1 << 64) // count
    upper = [key for key, shard in shards.items() if shard >= 1 << 63]
    assert keys(shard=(1, 2)) == upper
    assert keys(resources=[1], shard=(1, 2)) == [key for key in upper if key.startswith("n")]
    wrong: list[dict[str, Any]] = [
        {"resources": [4096]}, {"resources": 5}, {"resources": ["pods"]}, {"shard": (2, 2)},
        {"shard": (0, 0)}, {"shard": [0, 1]}, {"shard": (0,)}, {"shard": (-1, 2)},
    ]  # fmt: skip
    for filters in wrong:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            reader.take(start, 1, **filters)
    with pytest.raises(ValueError, match="max"):
        reader.take(start, 0)


def test_a_filtered_batch_continues_until_it_is_full(cache: Cache, writer: Writer) -> None:
    start = root_of(cache).head
    for number in range(100):
        writer.put("nodes" if number % 10 else PODS, f"k/{number}", {"n": number})
    deltas, position = reader_of(cache).take(start, 3, resources=[0])
    assert [delta.new["n"] for delta in deltas] == [0, 10, 20]
    rest, end = reader_of(cache).take(position, 100, resources=[0])
    assert [delta.new["n"] for delta in rest] == [30, 40, 50, 60, 70, 80, 90]
    assert end == start + 100


# ---- broken memory -------------------------------------------------------------------------------


def ask_everything(reader: _hot.Reader, keys: list[str]) -> int:
    """Tries every read; returns how many raised, because they have no answer."""
    pods = _hot.Resource(reader, 0)

    def look(views: list[Any]) -> None:
        for view in views[:20]:
            if isinstance(view, _hot.View):
                view.to_dict()
                view.json()
                dict(view)

    questions: list[Callable[[], object]] = [
        lambda: reader.root().names(), lambda: reader.root().record(0), pods.record,
        lambda: look([pods.get(key) for key in keys]), lambda: look(pods.scan(want="values")),
        lambda: pods.scan(0), lambda: pods.scan(1, prefix="app=app-1", want="keys"),
        lambda: pods.index_values(0), lambda: pods.index_values(1),
        lambda: look(pods.by_index(0, "node-1")), lambda: look(list(pods.values())),
        lambda: [(delta.key, delta.version) for delta in reader.take(reader.root().tail, 999)[0]],
        lambda: look([delta.new for delta in reader.take(reader.root().tail, 999)[0]]),
    ]  # fmt: skip
    failed = 0
    for question in questions:
        try:
            question()
        except (shmcache.ShmCacheError, LookupError):
            failed += 1
    return failed


def scribble(memory: bytearray, rng: random.Random, first: int) -> None:
    """Changes some words of a segment, as broken memory or a broken writer would."""
    for _ in range(rng.choice([1, 20, 400])):
        at, other = (rng.randrange(first, len(memory), 8) for _ in "ab")
        word = int.from_bytes(memory[at : at + 8], "little")
        change = rng.randrange(5)
        if change == 0:
            word ^= 1 << rng.randrange(64)
        elif change == 1:
            word = rng.getrandbits(64)
        elif change == 2:
            word = other | word & 7
        elif change == 3:
            word = int.from_bytes(memory[other : other + 8], "little")
        else:
            word = rng.choice([0, 1, (1 << 64) - 1, 1 << 31, 1 << 62])
        memory[at : at + 8] = word.to_bytes(8, "little")


def read_scribbled(path: Path, memory: bytes, size: int, keys: list[str]) -> int:
    path.write_bytes(memory)
    fd = os.open(path, os.O_RDONLY)  # stays open, as long as the map: the process ends soon
    segment = _native.map_segment(fd, size, writable=False, doing="scribbling")
    made = ffi.new("struct shmc_reader **")
    failed = 0
    if lib.shmc_reader_create(segment, ffi.NULL, made) == 0:
        reader = _hot.Reader(_native.address(made[0]), segment)
        failed = ask_everything(reader, keys)
        reader.close()
    return failed  # nothing is unmapped: tracebacks hold views, and the process ends soon


@pytest.mark.slow
def test_a_scribbled_arena_gives_wrong_answers_or_errors_but_no_crash_and_no_hang(
    writer: Writer, filled: dict[str, Any], tmp_path: Path, rng: random.Random
) -> None:
    segment: Any = writer._handle.segments and writer._handle.segments.data
    whole = bytes(ffi.buffer(segment.base, segment.file_size))
    keys = rng.sample(sorted(filled), 20)
    assert read_scribbled(tmp_path / "data", whole, segment.max_size, keys) == 0
    raised = 0
    for round_ in range(int(os.environ.get("SCRIBBLES", "60"))):
        memory = bytearray(whole)
        scribble(memory, rng, 384)  # the roots; then activity, ring and arena
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # a hang kills the child
            try:
                failed = read_scribbled(tmp_path / "data", bytes(memory), segment.max_size, keys)
            except BaseException as error:  # noqa: BLE001 - the child ends with it
                os.write(2, repr(error).encode())
                os._exit(255)
            os._exit(failed)
        _, status = os.waitpid(child, 0)
        assert os.WIFEXITED(status), f"round {round_}: signal {os.WTERMSIG(status)}"
        assert os.WEXITSTATUS(status) < 255, f"round {round_}"
        raised += os.WEXITSTATUS(status) > 0
    assert raised > 0, "nothing was broken: the test proves nothing"


# ---- fork ----------------------------------------------------------------------------------------


def test_a_child_of_fork_is_refused_and_leaves_the_parent_alone(
    cache: Cache, writer: Writer
) -> None:
    writer.put(PODS, "a/b", {"x": {"y": 1}})
    reader = reader_of(cache)
    root, pods = reader.root(), _hot.Resource(reader, 0)
    view, keys = pods["a/b"], iter(pods)
    deltas, _ = reader.take(root.tail, 10)
    uses = [
        reader.root, lambda: reader.latest, lambda: reader.take(0, 1), lambda: pods.get("a/b"),
        lambda: len(pods), lambda: next(keys), lambda: root.scan(0), lambda: view["x"],
        lambda: deltas[-1].key,
    ]  # fmt: skip
    alive = reader.roots
    child = os.fork()
    if child == 0:
        failed = 0
        for use in uses:
            try:
                use()
            except ForkedError:
                continue
            failed += 1
        failed += not reader.forked
        del view, keys, deltas, root
        reader.close()
        os._exit(failed)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (reader.forked, view["x"]["y"], next(keys)) == (False, 1, "a/b")
    assert reader.roots == alive
