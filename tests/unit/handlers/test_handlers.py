"""The contract of handlers, G11 to G18, one test for each sentence; client-go's own, ported.

Nothing sleeps: handlers report their calls through queues, and clocks are set by hand.
"""

from __future__ import annotations

import logging
import pickle
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmcache
from shmcache import states
from shmcache.errors import ClosedError
from shmcache.handlers import distinct
from shmcache.handlers.registration import Registration
from shmcache.handlers.tombstone import Tombstone
from shmcache.reader.sharding import bounds, shard_hash

PATIENCE = 60.0

Event = tuple[Any, ...]


class Recorder:
    """Handlers that report their calls; each may be held up."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def _tell(self, *event: Any) -> None:
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        self.events.put(event)

    def on_add(self, obj: Any, initial: bool) -> None:
        self._tell("add", name_of(obj), initial)

    def on_update(self, old: Any, new: Any) -> None:
        self._tell("update", version_of(old), version_of(new))

    def on_delete(self, obj: Any, unknown: bool) -> None:
        self._tell("delete", name_of(obj), unknown)

    def register(self, pods: shmcache.CachedResource, **options: Any) -> Registration:
        return pods.add_handler(self.on_add, self.on_update, self.on_delete, **options)

    def hear(self) -> Event:
        return self.events.get(timeout=PATIENCE)

    def hear_all(self, count: int) -> list[Event]:
        return [self.hear() for _ in range(count)]

    @property
    def silent(self) -> bool:
        return self.events.empty()


def pod(name: str, version: int, *, uid: str | None = None, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "prod",
            "uid": uid or f"uid-of-{name}",
            "resourceVersion": str(version),
            "labels": labels,
        },
        "spec": {"version": version},
    }


def name_of(obj: Any) -> str:
    return str(obj["metadata"]["name"])


def version_of(obj: Any) -> str | None:
    version: str | None = obj["metadata"].get("resourceVersion")
    return version


@pytest.fixture
def pods(cache: shmcache.Cache) -> shmcache.CachedResource:
    return cache["pods"]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def small(name: str) -> Iterator[shmcache.Writer]:
    """A reader that does not look falls out of this ring."""
    with shmcache.Writer(name, ["pods"], arena_max="64MiB", ring_slots=16) as writer:
        yield writer
        writer.check()


def synced(writer: shmcache.Writer) -> None:
    writer.set_state("pods", states.SYNCED, "1")


# ---- delivery ------------------------------------------------------------------------------------


def test_g11_a_handler_receives_the_state_and_then_the_changes(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
) -> None:
    writer.apply("pods", [pod("b", 2), pod("a", 1)])
    registration = recorder.register(pods)
    assert recorder.silent  # nothing before start()
    cache.start()

    assert [("add", "a", True), ("add", "b", True)] == recorder.hear_all(2)
    assert registration.wait_synced(PATIENCE)
    writer.apply("pods", [pod("c", 3)])
    writer.apply("pods", [pod("a", 4)])
    writer.delete("pods", "prod/b", "5")

    assert [("add", "c", False), ("update", "1", "4"), ("delete", "b", False)] == recorder.hear_all(
        3
    )
    assert {"ADDED": 3, "MODIFIED": 1, "DELETED": 1} == registration.counts
    assert recorder.silent


def test_g11_late_registration_replays_then_goes_on_live(
    writer: shmcache.Writer, cache: shmcache.Cache, pods: shmcache.CachedResource
) -> None:
    """TestAddWhileActive: no gap, no duplicate, and not synced before its own replay."""
    writer.apply("pods", [pod("a", 1)])
    first, late = Recorder(), Recorder()
    first.register(pods)
    cache.start()
    assert ("add", "a", True) == first.hear()

    late.gate.clear()
    registration = late.register(pods)
    assert late.entered.wait(PATIENCE)
    assert not registration.has_synced
    writer.apply("pods", [pod("b", 2)])
    writer.apply("pods", [pod("a", 3)])
    assert [("add", "b", False), ("update", "1", "3")] == first.hear_all(2)
    late.gate.set()

    heard = late.hear_all(3)
    assert [("add", "a", True), ("add", "b"), ("update", "1", "3")] == [
        heard[0],
        heard[1][:2],
        heard[2],
    ]
    assert registration.wait_synced(PATIENCE)
    assert late.silent


def test_g12_not_synced_before_the_resource_is(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
) -> None:
    """RealFIFO_HasSynced: three different things are called so; handlers need the last one."""
    writer.set_state("pods", states.LISTING)
    registration = recorder.register(pods)
    cache.start()
    assert not registration.wait_synced(0)

    writer.apply("pods", [pod("a", 1)])
    assert ("add", "a", True) == recorder.hear()
    assert not registration.has_synced
    synced(writer)
    assert registration.wait_synced(PATIENCE)

    writer.apply("pods", [pod("b", 2)])
    assert ("add", "b", False) == recorder.hear()


def test_g12_an_empty_first_list_is_synced_at_once(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
) -> None:
    """RealFIFO_HasSyncedCorrectOnDeletion, and that of nothing at all."""
    registration = recorder.register(pods)
    cache.start()
    writer.replace("pods", [], "1")
    synced(writer)

    assert registration.wait_synced(PATIENCE)
    assert recorder.silent


def test_g12_a_handler_sees_the_cache_at_least_as_new_as_its_event(
    writer: shmcache.Writer, cache: shmcache.Cache, pods: shmcache.CachedResource
) -> None:
    older = queue.SimpleQueue[bool]()

    def look(_: Any, new: Any) -> None:
        found = pods.get("prod/a")
        assert found is not None
        older.put(found["spec"]["version"] < new["spec"]["version"])

    writer.apply("pods", [pod("a", 0)])
    pods.add_handler(on_update=look)
    cache.start()
    for version in range(1, 200):
        writer.apply("pods", [pod("a", version)])

    while not older.get(timeout=PATIENCE) and older.qsize():
        pass
    assert older.empty()


def test_g18_another_uid_under_the_key_is_another_object(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
) -> None:
    writer.apply("pods", [pod("a", 1)])
    recorder.register(pods)
    cache.start()
    assert ("add", "a", True) == recorder.hear()
    writer.apply("pods", [pod("a", 2, uid="another")])

    assert [("delete", "a", True), ("add", "a", False)] == recorder.hear_all(2)


@pytest.mark.parametrize("selector", [{"labels": "app=web"}, {"fields": "metadata.labels.app=web"}])
def test_g17_entering_a_selection_is_an_add_and_leaving_it_a_delete(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
    selector: dict[str, str],
) -> None:
    """R-SI-02, all transitions of FilteringResourceEventHandler."""
    writer.apply("pods", [pod("out", 1, app="db"), pod("in", 2, app="web")])
    recorder.register(pods, **selector)
    cache.start()
    writer.apply("pods", [pod("out", 3, app="db2")])
    writer.apply("pods", [pod("in", 4, app="web", more="x")])
    writer.apply("pods", [pod("out", 5, app="web")])
    writer.apply("pods", [pod("in", 6, app="db")])
    writer.delete("pods", "prod/in")
    writer.delete("pods", "prod/out")

    last: Event = ()
    heard = []
    while last != ("delete", "out", False):
        last = recorder.hear()
        heard.append(last)
    live = [event for event in heard if event != ("update", "2", "4")]
    assert [("in", "add"), ("out", "add"), ("in", "delete"), ("out", "delete")] == [
        (event[1], event[0]) for event in live
    ]


@pytest.mark.parametrize("namespace", [None, ""])
def test_no_namespace_is_all_of_them(
    writer: shmcache.Writer, cache: shmcache.Cache, recorder: Recorder, namespace: str | None
) -> None:
    """As metav1.NamespaceAll; includes objects without a namespace."""
    writer.apply("nodes", [{"metadata": {"name": "n-1", "uid": "u-1"}}])
    recorder.register(cache["nodes"], namespace=namespace)
    cache.start()
    assert ("add", "n-1", True) == recorder.hear()
    assert 1 == len(cache["nodes"].list(namespace=namespace))


def test_g17_a_namespace_selects(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
) -> None:
    recorder.register(pods, namespace="prod")
    cache.start()
    writer.put("pods", "production/x", pod("x", 1))
    writer.apply("pods", [pod("a", 2)])

    assert ("add", "a") == recorder.hear()[:2]
    assert recorder.silent


def test_g17_shards_are_disjoint_and_whole(
    writer: shmcache.Writer, cache: shmcache.Cache, pods: shmcache.CachedResource
) -> None:
    """KEP-5866: ranges of FNV-1a of the uid, filtered at the ring and in differences alike."""
    before, after = [f"before-{n}" for n in range(40)], [f"after-{n}" for n in range(40)]
    writer.apply("pods", [pod(name, 1) for name in before])
    shards = [Recorder() for _ in range(3)]
    for index, shard in enumerate(shards):
        shard.register(pods, shard=(index, 3))
    cache.start()
    writer.apply("pods", [pod(name, 2) for name in after])

    expected: list[list[str]] = [[], [], []]
    for name in sorted(before) + after:
        hashed = shard_hash(f"uid-of-{name}")
        expected[next(i for i in range(3) if bounds((i, 3))[0] <= hashed <= bounds((i, 3))[1])] += [
            name
        ]
    assert all(expected)
    for names, shard in zip(expected, shards, strict=True):
        assert sorted(names) == sorted(event[1] for event in shard.hear_all(len(names)))
        assert shard.silent


def test_g18_an_object_replaced_by_one_of_another_shard_is_deleted_in_its_own(
    writer: shmcache.Writer, cache: shmcache.Cache, pods: shmcache.CachedResource
) -> None:
    uids = {shard_hash(uid) >> 63: uid for uid in (f"{n}-uid" for n in range(40))}
    writer.apply("pods", [pod("x", 1, uid=uids[0])])
    shards = [Recorder(), Recorder()]
    for index, shard in enumerate(shards):
        shard.register(pods, shard=(index, 2))
    cache.start()
    assert ("add", "x", True) == shards[0].hear()
    writer.apply("pods", [pod("x", 2, uid=uids[1])])

    assert ("delete", "x", True) == shards[0].hear()
    assert ("add", "x") == shards[1].hear()[:2]


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0)])
def test_invalid_shard_is_refused(
    pods: shmcache.CachedResource, recorder: Recorder, shard: tuple[int, int]
) -> None:
    with pytest.raises(ValueError, match="shard"):
        recorder.register(pods, shard=shard)


# ---- outside the window ------------------------------------------------------------------------


def test_g13_a_handler_outside_the_window_receives_exactly_the_missing_events(
    small: shmcache.Writer, recorder: Recorder
) -> None:
    """TestSharedInformerWatchDisruption: changed, added and deleted meanwhile; nothing twice."""
    small.apply("pods", [pod(name, 1) for name in ("changed", "deleted", "kept", "other")])
    with shmcache.attach(small.name) as cache:
        recorder.gate.clear()
        registration = recorder.register(cache["pods"])
        cache.start()
        assert recorder.entered.wait(PATIENCE)  # it is in the first of four
        small.apply("pods", [pod("changed", 2), pod("added", 3)])
        small.delete("pods", "prod/deleted")
        small.apply("pods", [pod("other", 4, uid="another")])
        for version in range(100, 200):
            small.apply("pods", [pod("passer-by", version)])
        small.delete("pods", "prod/passer-by")
        recorder.gate.set()

        first = recorder.hear_all(4)
        assert ["changed", "deleted", "kept", "other"] == [event[1] for event in first]
        rest = recorder.hear_all(5)
        assert [
            ("add", "added", False),
            ("update", None, "2"),
            ("delete", "deleted", True),
            ("delete", "other", True),
            ("add", "other", False),
        ] == rest
        assert 1 == registration.lapses
        assert registration.has_synced
        small.apply("pods", [pod("kept", 500)])
        assert ("update", "1", "500") == recorder.hear()


def test_g13_a_replacement_too_large_for_the_ring_comes_as_a_difference(
    small: shmcache.Writer, recorder: Recorder
) -> None:
    """TestReplaceEvents, TestResetWatch (G6): events are the same on either way."""
    many = [pod(f"n{n:02}", 1) for n in range(40)]
    small.apply("pods", many)
    with shmcache.attach(small.name) as cache:
        registration = recorder.register(cache["pods"])
        cache.start()
        assert [("add", name_of(one), True) for one in many] == recorder.hear_all(40)
        assert registration.wait_synced(PATIENCE)

        small.replace("pods", [*many[20:], *(pod(f"x{n:02}", 2) for n in range(20))], "2")
        gone = [("delete", f"n{n:02}", True) for n in range(20)]
        come = [("add", f"x{n:02}", False) for n in range(20)]
        assert gone + come == recorder.hear_all(40)
        assert recorder.silent


def test_a_relist_without_changes_calls_no_handler(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
) -> None:
    """Unlike R-SI-04."""
    same = [pod(f"n{n}", 1) for n in range(20)]
    writer.replace("pods", same, "1")
    recorder.register(pods)
    cache.start()
    recorder.hear_all(20)
    writer.replace("pods", same, "2")
    writer.apply("pods", [pod("last", 3)])

    assert ("add", "last") == recorder.hear()[:2]


def test_g16_a_slow_handler_delays_no_others(
    small: shmcache.Writer,
) -> None:
    with shmcache.attach(small.name) as cache:
        slow, quick = Recorder(), Recorder()
        slow.gate.clear()
        lagging = slow.register(cache["pods"])
        quick.register(cache["pods"])
        cache.start()
        small.apply("pods", [pod("a", 0)])
        assert slow.entered.wait(PATIENCE)
        quick.hear()
        for version in range(1, 300):
            small.apply("pods", [pod("a", version)])
            assert "update" == quick.hear()[0]
        slow.gate.set()

        assert ("add", "a") == slow.hear()[:2]
        assert ("update", None, "299") == slow.hear()
        assert 1 == lagging.lapses


# ---- resync ------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_g15_resync_delivers_the_local_cache_again_at_each_period(
    writer: shmcache.Writer, cache: shmcache.Cache, pods: shmcache.CachedResource
) -> None:
    """TestListenerResyncPeriods: a handler without a period receives none."""
    clock = Clock()
    cache.informer.clock = clock
    writer.apply("pods", [pod("a", 1), pod("b", 2)])
    often, seldom, never = Recorder(), Recorder(), Recorder()
    often.register(pods, resync=2)
    seldom.register(pods, resync=3)
    never.register(pods)
    cache.start()
    for recorder in (often, seldom, never):
        assert [("add", "a", True), ("add", "b", True)] == recorder.hear_all(2)

    def after(seconds: float) -> None:
        clock.now += seconds
        cache.wake()

    same = [("update", "1", "1"), ("update", "2", "2")]
    after(2)
    assert same == often.hear_all(2)
    assert seldom.silent
    after(1)
    assert same == seldom.hear_all(2)
    after(1)
    assert same == often.hear_all(2)
    writer.apply("pods", [pod("a", 3)])
    for recorder in (often, seldom, never):
        assert ("update", "1", "3") == recorder.hear()
        assert recorder.silent


def test_g15_a_resync_never_shows_deleted_or_older_objects(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
) -> None:
    """RealFIFO_ResyncNonExisting, RealFIFO_UpdateResyncRace."""
    clock = Clock()
    cache.informer.clock = clock
    writer.apply("pods", [pod("a", 1), pod("b", 2)])
    recorder.register(pods, resync=5)
    cache.start()
    recorder.hear_all(2)
    recorder.gate.clear()
    recorder.entered.clear()
    writer.apply("pods", [pod("c", 3)])
    assert recorder.entered.wait(PATIENCE)  # it is in c; meanwhile:
    clock.now += 5
    writer.delete("pods", "prod/a")
    writer.apply("pods", [pod("b", 4)])
    recorder.gate.set()

    assert [
        ("add", "c", False),
        ("delete", "a", False),
        ("update", "2", "4"),
        ("update", "4", "4"),
        ("update", "3", "3"),
    ] == recorder.hear_all(5)


def test_a_resync_of_less_than_a_second_is_refused(
    pods: shmcache.CachedResource, recorder: Recorder
) -> None:
    with pytest.raises(ValueError, match=r"resync must be at least 1\.0 seconds"):
        recorder.register(pods, resync=0.5)
    assert recorder.register(pods, resync=0).active


# ---- handlers that fail ------------------------------------------------------------------------


def test_g14_a_handler_that_raises_is_logged_with_the_key_counted_and_goes_on(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """TestEventPanics: the others go on too, and the message names the handler."""
    calls: queue.SimpleQueue[str] = queue.SimpleQueue()

    def broken(obj: Any, _: bool) -> None:
        calls.put(name_of(obj))
        raise ZeroDivisionError("no")

    registration = pods.add_handler(on_add=broken, name="the broken one")
    recorder.register(pods)
    cache.start()
    with caplog.at_level(logging.ERROR):
        writer.apply("pods", [pod("a", 1)])
        writer.apply("pods", [pod("b", 2)])
        assert ["a", "b"] == [calls.get(timeout=PATIENCE) for _ in range(2)]
        recorder.hear_all(2)
        registration.remove(wait=True, timeout=PATIENCE)

    assert 2 == registration.errors
    assert "handler the broken one of pods failed on ADDED prod/a" in caplog.text
    assert "ZeroDivisionError: no" in caplog.text


# ---- coming and going ---------------------------------------------------------------------------


def test_g11_the_same_handlers_twice_are_two_registrations(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
) -> None:
    """TestSharedInformerMultipleRegistration."""
    writer.apply("pods", [pod("a", 1)])
    first, second = recorder.register(pods), recorder.register(pods)
    cache.start()
    assert [("add", "a", True)] * 2 == recorder.hear_all(2)
    assert first.remove(wait=True, timeout=PATIENCE)
    writer.apply("pods", [pod("a", 2)])
    assert ("update", "1", "2") == recorder.hear()
    assert second.remove(wait=True, timeout=PATIENCE)
    assert recorder.silent


def test_removal_while_active_ends_pending_calls(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    pods: shmcache.CachedResource,
    recorder: Recorder,
) -> None:
    """TestRemoveWhileActive, TestRemovingRemovedSharedInformer, ShutDownEventHandler."""
    writer.apply("pods", [pod("a", 1), pod("b", 2)])
    recorder.gate.clear()
    registration = recorder.register(pods)
    cache.start()
    assert recorder.entered.wait(PATIENCE)
    assert registration.remove()  # returns while the handler runs
    assert not registration.remove(wait=True, timeout=0)
    recorder.gate.set()
    assert registration.remove(wait=True, timeout=PATIENCE)

    assert ("add", "a", True) == recorder.hear()
    assert recorder.silent
    assert not registration.active
    assert not registration.wait_synced(PATIENCE)
    assert registration.remove(wait=True)


def test_a_handler_may_remove_itself(
    writer: shmcache.Writer, cache: shmcache.Cache, pods: shmcache.CachedResource
) -> None:
    calls: queue.SimpleQueue[str] = queue.SimpleQueue()

    def once(obj: Any, _: bool) -> None:
        assert registration.remove(wait=True)
        calls.put(name_of(obj))

    writer.apply("pods", [pod("a", 1), pod("b", 2)])
    registration = pods.add_handler(on_add=once)
    cache.start()
    assert "a" == calls.get(timeout=PATIENCE)
    assert registration._ended.wait(PATIENCE)
    assert calls.empty()


def test_a_closed_cache_takes_no_handlers_and_ends_those_it_has(
    writer: shmcache.Writer, recorder: Recorder
) -> None:
    """TestAddOnStoppedSharedInformer, TestRemoveOnStoppedSharedInformer, TestShutdown."""
    cache = shmcache.attach(writer.name)
    pods = cache["pods"]
    running = recorder.register(pods)
    cache.start()
    cache.start()  # once more does nothing
    threads = {running._thread}
    cache.close()

    for thread in threads:
        assert thread is not None
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not running.active
    with pytest.raises(ClosedError):
        recorder.register(pods)
    with pytest.raises(ClosedError):
        cache.start()
    assert running.remove(wait=True)
    writer.apply("pods", [pod("a", 1)])
    assert recorder.silent


def test_a_snapshots_resource_takes_no_handlers(cache: shmcache.Cache, recorder: Recorder) -> None:
    with cache.snapshot() as at, pytest.raises(ValueError, match="never changes"):
        recorder.register(at["pods"])


@pytest.mark.slow
def test_handlers_coming_and_going_under_churn_agree(
    small: shmcache.Writer, rng: random.Random
) -> None:
    """TestSharedInformerHandlerAbuse: no handler receives an object twice."""
    ended = threading.Event()

    def churn() -> None:
        version = 1
        while not ended.is_set():
            for name in rng.sample("abcdefghij", 3):
                version += 1
                if rng.random() < 0.3:
                    small.delete("pods", f"prod/{name}")
                else:
                    small.apply("pods", [pod(name, version)])

    class Strict:
        def __init__(self) -> None:
            self.objects: dict[str, str | None] = {}
            self.wrong: list[str] = []

        def on_add(self, obj: Any, _: bool) -> None:
            if name_of(obj) in self.objects:
                self.wrong.append(f"{name_of(obj)} is added twice")
            self.objects[name_of(obj)] = version_of(obj)

        def on_update(self, _: Any, new: Any) -> None:
            if name_of(new) not in self.objects:
                self.wrong.append(f"{name_of(new)} is updated unseen")
            self.objects[name_of(new)] = version_of(new)

        def on_delete(self, obj: Any, _: bool) -> None:
            if self.objects.pop(name_of(obj), "") == "":
                self.wrong.append(f"{name_of(obj)} is deleted unseen")

    with shmcache.attach(small.name) as cache:
        cache.start()
        thread = threading.Thread(target=churn)
        thread.start()
        active: list[tuple[Strict, Registration]] = []
        strict: list[Strict] = []
        for _ in range(60):
            one = Strict()
            strict.append(one)
            active.append(
                (one, cache["pods"].add_handler(one.on_add, one.on_update, one.on_delete))
            )
            if len(active) > 8:
                assert active.pop(0)[1].remove(wait=True, timeout=PATIENCE)
        ended.set()
        thread.join()
        small.apply("pods", [pod("last", 1)])
        state = {name_of(view): version_of(view) for view in cache["pods"].list()}
        for one, registration in active:
            assert _eventually(lambda one=one: one.objects == state)  # type: ignore[misc]
            assert registration.remove(wait=True, timeout=PATIENCE)
            assert 0 == registration.errors
        assert [] == [wrong for one in strict for wrong in one.wrong]


def _eventually(fact: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not fact():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.002)
    return True


# ---- tombstones ---------------------------------------------------------------------------------


def test_a_tombstone_has_its_identity_without_an_object() -> None:
    """TestDeletionHandlingObjectToName, TestDeletedObjectGetKey."""
    stone = Tombstone("prod/web-0", "some-uid", "17")

    assert ("prod/web-0", "prod", "web-0") == (stone.key, stone.namespace, stone.name)
    assert "web-0" == stone["metadata"]["name"]
    assert stone.get("spec") is None
    assert {
        "metadata": {
            "name": "web-0",
            "namespace": "prod",
            "uid": "some-uid",
            "resourceVersion": "17",
        }
    } == stone.to_dict()
    copied = pickle.loads(pickle.dumps(stone))  # noqa: S301
    assert (stone, "some-uid") == (copied, copied.uid)
    bare = Tombstone("node-7", None, None)
    assert (None, {"metadata": {"name": "node-7"}}) == (bare.namespace, dict(bare))


# ---- memory -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_delivered_state_takes_less_than_100_bytes_per_object(
    writer: shmcache.Writer, cache: shmcache.Cache, pods: shmcache.CachedResource
) -> None:
    count = 10_000
    writer.apply(
        "pods",
        [
            pod(f"frontend-5d4f8c7b9-{n:05}", n, uid=f"{n:08x}-0000-4000-8000-{n:012x}")
            for n in range(count)
        ],
    )
    registrations = [pods.add_handler() for _ in range(5)]
    cache.start()
    for registration in registrations:
        assert registration.wait_synced(PATIENCE)

    assert 100 * count >= cache.informer.known.bytes


@pytest.mark.parametrize(("depth", "apart"), [(6, True), (7, False)])
def test_errors_differ_by_their_eight_innermost_frames(depth: int, apart: bool) -> None:
    def fail(left: int) -> None:
        if left:
            fail(left - 1)
        raise ValueError

    def identity_of(call: Callable[[], None]) -> distinct.Identity:
        with pytest.raises(ValueError) as caught:
            call()
        return distinct.identity(caught.value)

    one = identity_of(lambda: fail(depth))
    other = identity_of(lambda: fail(depth))
    assert (one != other) == apart
