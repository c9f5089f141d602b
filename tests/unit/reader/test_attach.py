"""Invariant tested: an attached cache answers from one state, sleeps until the next one, and
reports clearly when it cannot."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import shmcache
from shmcache.errors import (
    BusyError,
    ClosedError,
    CorruptSegment,
    Lapped,
    LayoutMismatch,
    SegmentNotFound,
)

AGES = 30.0
"""Longer than any test takes: a wait of that length has missed something."""


def pod(name: str, node: str = "node-1") -> dict[str, Any]:
    return {"metadata": {"namespace": "prod", "name": name}, "spec": {"nodeName": node}}


# ---- attaching ---------------------------------------------------------------------------------


def test_attach_finds_existing_content(writer: shmcache.Writer) -> None:
    writer.apply("pods", [pod("a")])

    with shmcache.attach(writer.name) as cache:
        assert pod("a") == cache["pods"]["prod/a"].to_dict()
        assert ("pods", "nodes") == cache.resources == tuple(cache)
        assert "pods" in cache
        assert "podz" not in cache


def test_the_name_comes_from_the_environment(
    writer: shmcache.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHMCACHE_NAME", raising=False)
    with pytest.raises(ValueError, match="SHMCACHE_NAME"):
        shmcache.attach()

    monkeypatch.setenv("SHMCACHE_NAME", writer.name)
    with shmcache.attach() as cache:
        assert writer.name == cache.name


def test_attach_gives_up_on_a_missing_cache_in_time(name: str) -> None:
    with pytest.raises(SegmentNotFound, match=name):
        shmcache.attach(name)
    start = time.monotonic()
    with pytest.raises(SegmentNotFound):
        shmcache.attach(name, timeout=0.1)
    assert 0.1 <= time.monotonic() - start < AGES


def test_attach_finds_a_cache_that_starts_later(name: str) -> None:
    found: list[shmcache.Cache] = []
    thread = threading.Thread(target=lambda: found.append(shmcache.attach(name, timeout=AGES)))
    thread.start()
    with shmcache.Writer(name, ["pods"]):
        thread.join(AGES)
        assert ("pods",) == found[0].resources
        found[0].close()


def test_all_seats_taken_is_busy_until_a_seat_is_free(name: str) -> None:
    with shmcache.Writer(name, seats=2):
        first, second = shmcache.attach(name), shmcache.attach(name)
        with pytest.raises(BusyError, match="seats="):
            shmcache.attach(name)

        seat = first.seat
        first.close()
        third = shmcache.attach(name)
        assert seat == third.seat != second.seat
        second.close()
        third.close()


def test_a_hundred_attachments_leave_no_descriptor(writer: shmcache.Writer) -> None:
    shmcache.attach(writer.name).close()
    gc.collect()  # of tests before this one
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(100):
        with shmcache.attach(writer.name) as cache:
            cache["pods"].get("x")

    assert before == len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("offset", "with_what", "error"),
    [
        (0, b"NOTSHMC!", CorruptSegment),
        (8, b"\xff", LayoutMismatch),
        (12, b"\xff", LayoutMismatch),
        (16, b"\xff" * 8, LayoutMismatch),
        (24, b"\xff" * 16, LayoutMismatch),
        (48, b"\x03", CorruptSegment),
    ],
    ids=["magic", "version", "signature", "instance", "boot", "geometry"],
)
def test_a_foreign_file_is_refused(
    writer: shmcache.Writer, offset: int, with_what: bytes, error: type[Exception]
) -> None:
    (data,) = (file for file in writer.place.instances() if file.endswith(".data"))
    with open(writer.place.location.file(data), "r+b") as file:
        file.seek(offset)
        kept = file.read(len(with_what))
        file.seek(offset)
        file.write(with_what)
        file.flush()
        with pytest.raises(error, match=writer.name):
            shmcache.attach(writer.name)
        file.seek(offset)
        file.write(kept)

    shmcache.attach(writer.name).close()


def test_a_pointer_to_a_removed_cache_is_not_found(writer: shmcache.Writer) -> None:
    writer._names._next = math.inf  # it does not notice
    for file in writer.place.instances():
        writer.place.location.unlink(file)

    with pytest.raises(SegmentNotFound, match="start its writer again"):
        shmcache.attach(writer.name)


def test_a_restarted_writer_is_found(name: str) -> None:
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.put("pods", "a", {"x": 1})
        old = shmcache.attach(name)
    with shmcache.Writer(name, ["pods"]), shmcache.attach(name) as new:
        assert {"x": 1} == old["pods"]["a"]
        assert 0 == len(new["pods"])
        assert old.instance != new.instance
        old.close()


# ---- reading -----------------------------------------------------------------------------------


def test_lists_are_pages_in_key_order(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    objects = {f"{space}/pod-{n}": {"n": n} for space in ("a", "a-b", "b") for n in range(5)}
    writer.put_many("pods", [(key, obj, None) for key, obj in objects.items()])
    pods = cache["pods"]

    assert [objects[key] for key in sorted(objects)] == pods.list()
    assert [{"n": n} for n in range(5)] == pods.list("a")
    assert [{"n": 2}, {"n": 3}] == pods.list("a", after="a/pod-1", limit=2)
    assert [] == pods.list("c")
    assert {"a/pod-1": {"n": 1}, "a/pod-2": {"n": 2}} == dict(pods.range("a/pod-1", "a/pod-3"))
    assert [2] == [obj.n for _, obj in pods.range("a/pod-1", after="a/pod-1", limit=1)]


def test_indices_are_used_by_name(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    writer.apply("pods", [pod("a", "n2"), pod("b", "n1"), pod("c", "n2")])
    pods = cache["pods"]

    assert ("node",) == pods.indices
    assert ["n1", "n2"] == pods.index_values("node")
    assert ["n2"] == pods.index_values("node", after="n1")
    assert ["prod/a", "prod/c"] == pods.index_keys("node", "n2")
    assert ["c"] == [p.metadata.name for p in pods.by_index("node", "n2", after="prod/a")]
    assert [("n1", "prod/b"), ("n2", "prod/a")] == [
        (value, key) for value, key, _ in pods.scan_index("node", limit=2)
    ]
    writer.add_index("pods", "name", "metadata.name")
    assert ["prod/b"] == pods.index_keys("name", "b")


def test_a_snapshot_is_one_state_of_everything(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.apply("pods", [pod("a")])
    writer.set_state("pods", 1, "10")
    with cache.snapshot() as at:
        writer.apply("pods", [pod("b", "node-2")])
        writer.set_state("pods", 1, "11")
        writer.add_resource("late")

        assert ["prod/a"] == list(at["pods"])
        assert ["node-1"] == at["pods"].index_values("node")
        assert {"pods": "10", "nodes": None} == at.resource_versions
        assert ("pods", "nodes") == at.resources
        assert at.generation < cache.latest
        with pytest.raises(KeyError, match="late"):
            at["late"]
        assert 0 == len(cache["late"])
    with pytest.raises(ClosedError, match="snapshot"):
        at["pods"]


def test_a_snapshot_and_the_deltas_after_it_make_up_the_present(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.apply("pods", [pod("a"), pod("b")])
    with cache.snapshot() as at:
        known = {key: obj.to_dict() for key, obj in at["pods"].items()}
        cursor = cache.follow(["pods"], start=at.head)
        writer.apply("pods", [pod("a", "node-2"), pod("c")])
        writer.put("nodes", "n", {})
        writer.delete("pods", "prod/b")

    for delta in cursor.take():
        assert known.get(str(delta.key)) == delta.old
        if delta.new is None:
            del known[str(delta.key)]
        else:
            known[str(delta.key)] = delta.new.to_dict()

    assert known == {key: obj.to_dict() for key, obj in cache["pods"].items()}
    assert [] == cursor.take()


def test_a_lapped_cursor_resumes_after_a_snapshot(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    cursor = cache.follow("pods")
    for n in range(600):
        writer.put("pods", "a", {"n": n})

    with pytest.raises(Lapped) as lapped:
        cursor.take()
    with pytest.raises(Lapped):
        cursor.take()
    assert cache.wait(cursor, 0)
    with cache.snapshot() as at:
        assert lapped.value.position == at.head
        cursor.resume(at)
    assert [] == cursor.take()
    writer.put("pods", "a", {"n": -1})
    assert [{"n": -1}] == [delta.new for delta in cursor.take()]


def test_a_position_of_another_cache_is_lapped(cache: shmcache.Cache) -> None:
    with pytest.raises(Lapped):
        cache.follow(start=1 << 40).take()


# ---- waiting -------------------------------------------------------------------------------------


def test_a_wait_without_events_ends_in_time(cache: shmcache.Cache) -> None:
    for since in (cache.follow(), cache.latest):
        start = time.monotonic()
        assert not cache.wait(since, 0.05)
        assert not cache.wait(since, 0)
        assert 0.05 <= time.monotonic() - start < AGES


def test_waiting_for_an_existing_state_does_not_sleep(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    cursor, latest = cache.follow(), cache.latest
    writer.put("pods", "a", {})

    assert cache.wait(cursor)
    assert cache.wait(latest)
    assert cache.wait(0)
    assert 1 == len(cursor.take())
    assert not cache.wait(cursor, 0)


def test_a_sleeper_wakes(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    cursor = cache.follow("pods")
    for n in range(50):
        timer = threading.Timer(0.001, writer.put, ("pods", "a", {"n": n}))
        timer.start()
        assert cache.wait(cursor, AGES)
        assert [{"n": n}] == [delta.new for delta in cursor.take()]
        timer.join()


def test_a_sleeper_sleeps_through_changes_of_other_resources(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    latest, cursor = cache.latest, cache.follow("pods")
    timer = threading.Timer(0.01, writer.put, ("nodes", "a", {}))
    timer.start()

    assert not cache.wait(latest, 0.1, "pods")
    timer.join()
    assert cache.wait(latest, 0, "nodes")
    assert cache.wait(latest, 0, ["pods", "nodes"])
    assert [] == cursor.take()
    assert not cache.wait(cursor, 0)


def test_a_signal_is_handled_during_a_wait_which_goes_on(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    seen: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        first = threading.Timer(0.02, signal.raise_signal, (signal.SIGUSR1,))
        killer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1))
        last = threading.Timer(0.1, writer.put, ("pods", "a", {}))
        for timer in (first, killer, last):
            timer.start()
        assert cache.wait(cache.latest, AGES)
    finally:
        for timer in (first, killer, last):
            timer.join()
        signal.signal(signal.SIGUSR1, old)
    assert signal.SIGUSR1 in seen


def test_a_handler_that_raises_ends_the_wait(cache: shmcache.Cache) -> None:
    def interrupt(_: int, __: Any) -> None:
        raise ZeroDivisionError

    old = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(ZeroDivisionError):
            cache.wait(cache.latest, AGES)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, old)


def test_wake_ends_the_waits_of_this_process(cache: shmcache.Cache) -> None:
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(cache.wait(cache.latest, AGES)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + AGES
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < deadline
        cache.wake()
        threads[0].join(0.01)

    assert [False] * 3 == results


# ---- the end -------------------------------------------------------------------------------------


def test_use_after_close_is_refused(writer: shmcache.Writer) -> None:
    writer.put("pods", "a", {"x": {}})
    cache = shmcache.attach(writer.name)
    pods, cursor, snapshot = cache["pods"], cache.follow(), cache.snapshot()
    view = pods["a"]

    cache.close()
    cache.close()

    assert cache.closed
    assert "closed" in repr(cache)
    for refused in (
        lambda: cache["pods"].get("a"),
        lambda: cache.resources,
        lambda: cache.latest,
        lambda: cache.seat,
        lambda: cache.wait(0, 1),
        lambda: cache.snapshot(),
        lambda: pods.get("a"),
        lambda: view["x"],
        lambda: snapshot["pods"].get("a"),
        cursor.take,
        cache.wake,
    ):
        with pytest.raises(ClosedError):
            refused()


def test_closing_while_another_thread_sleeps_is_safe(writer: shmcache.Writer) -> None:
    cache = shmcache.attach(writer.name)
    latest, raised = cache.latest, []

    def sleep() -> None:
        with pytest.raises(ClosedError) as error:
            cache.wait(latest, AGES)
        raised.append(error.value)

    threads = [threading.Thread(target=sleep) for _ in range(3)]
    for thread in threads:
        thread.start()
    threads[0].join(0.05)  # they sleep by now; if not, the test is only easier
    cache.close()
    for thread in threads:
        thread.join(AGES)

    assert 3 == len(raised)
    with shmcache.attach(writer.name) as again:
        assert 0 == again.seat


def test_closing_in_the_middle_of_lookups_is_safe(writer: shmcache.Writer) -> None:
    writer.put_many("pods", [(f"k{n}", {"n": n}, None) for n in range(100)])
    for _ in range(20):
        cache = shmcache.attach(writer.name)
        threads = [threading.Thread(target=read_until_closed, args=(cache,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        threads[0].join(0.005)
        cache.close()
        for thread in threads:
            thread.join(AGES)
            assert not thread.is_alive()


def read_until_closed(cache: shmcache.Cache) -> None:
    with pytest.raises(ClosedError):
        while True:
            assert 100 == len([view["n"] for view in cache["pods"].values()])
            cache.wait(cache.latest, 0.0001)


CLEARED = """
import sys
import shmcache

cache = shmcache.attach(sys.argv[1])
view = cache["pods"]["a"]
del cache.reader.owner.segments
print(view.x)
"""


def test_a_reader_keeps_the_maps_when_the_collector_has_cleared_their_owner(
    writer: shmcache.Writer,
) -> None:
    """OWNED4."""
    writer.put("pods", "a", {"x": 1})
    command = [sys.executable, "-c", CLEARED, writer.name]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, timeout=60)
    assert (0, "1\n") == (done.returncode, done.stdout)
