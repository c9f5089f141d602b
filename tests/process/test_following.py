"""Invariant tested: a cache, its resources, sleepers and handlers follow from one writer to the
next, and serve the last state between two writers."""

from __future__ import annotations

import gc
import os
import queue
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

import pytest
from workers import METHODS, PATIENCE, Method, Worker, await_sleep, eventually, state_of_process

import shmcache
from shmcache import states
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.errors import Lapped, SegmentNotFound
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def pod(name: str, version: int, uid: str | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "p", "uid": uid or f"uid-of-{name}"}
    return {"metadata": metadata | {"resourceVersion": str(version)}}


def writing(pipe: Connection, name: str, names: list[str]) -> None:
    """A writer that runs commands until it is killed; it never resumes another's cache."""
    with shmcache.Writer(name, names, fresh=True, arena_max="64MiB", ring_slots=64) as writer:
        pipe.send("open")
        while (order := pipe.recv()) is not None:
            getattr(writer, order[0])(*order[1:])
            pipe.send(order[0])


def names_of(pods: Any) -> list[str]:
    return [key.split("/")[1] for key in pods]


def test_reads_go_on_while_no_writer_lives_and_move_to_the_next_one(name: str) -> None:
    with Worker("fork", writing, name, ["nodes", "pods"]) as first:
        first.hear()
        first.ask(("apply", "pods", [pod("a", 1), pod("b", 2)]))
        cache = shmcache.attach(name)
        pods, instance = cache["pods"], cache.instance
        view = pods["p/a"]
        first.kill()
        assert ["a", "b"] == names_of(pods)

        with Worker("fork", writing, name, ["pods", "nodes"]) as second:  # in another order
            second.hear()
            assert ["a", "b"] == names_of(pods)  # the new one was not listed yet
            second.ask(("set_state", "pods", states.LISTING))
            second.ask(("apply", "nodes", [pod("n", 1)]))
            assert ["a", "b"] == names_of(pods)
            second.ask(("apply", "pods", [pod("c", 3)]))
            second.ask(("set_state", "pods", states.SYNCED))

            assert ["c"] == names_of(pods) == names_of(cache["pods"])
            assert instance != cache.instance
            assert "a" == view["metadata"]["name"]  # an object that was handed out stays whole
            assert 1 == len(cache["nodes"])
    cache.close()


def test_a_writer_that_ends_in_order_leaves_its_state_until_the_next_one(name: str) -> None:
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.apply("pods", [pod("a", 1)])
        cache = shmcache.attach(name)
    assert ["a"] == names_of(cache["pods"])
    with pytest.raises(SegmentNotFound):
        shmcache.attach(name)
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.apply("pods", [pod("b", 2)])
        assert ["b"] == names_of(cache["pods"])
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.apply("pods", [pod("c", 3)])
        assert ["c"] == names_of(cache["pods"])
    cache.close()


def test_a_resource_that_the_next_writer_lacks_reports_it(name: str) -> None:
    with shmcache.Writer(name, ["pods", "nodes"]) as writer:
        writer.apply("pods", [pod("a", 1)])
        cache = shmcache.attach(name)
        pods = cache["pods"]
        assert 1 == len(pods)
    with shmcache.Writer(name, ["nodes"]) as writer:
        writer.apply("nodes", [pod("n", 1)])
        with pytest.raises(KeyError, match="no resource 'pods'"):
            pods.get("p/a")
    cache.close()


def sleeper(pipe: Connection, name: str) -> None:
    """Sleeps; reports what it finds after each wake-up."""
    with shmcache.attach(name) as cache:
        cursor = cache.follow(["pods"])
        pipe.send(cache.seat)
        while True:
            assert cache.wait(cursor, PATIENCE), "a wake-up was lost"
            try:
                taken = [delta.key for delta in cursor.take()]
            except Lapped:
                with cache.snapshot() as at:
                    taken = ["lapped", *at["pods"]]
                    cursor.resume(at)
            if taken:
                pipe.send(taken)


class Undecided(KubeOpener):
    """Its server does not know yet whether secrets are namespaced."""

    answer = threading.Event()

    def is_namespaced(self, plan: Plan) -> bool:
        if plan.name == "secrets":
            assert self.answer.wait(PATIENCE)
        return super().is_namespaced(plan)


def test_a_resource_that_the_next_writer_has_not_listed_yet_stays_readable(name: str) -> None:
    """The arena differs, so nothing is taken over; one of two resources is listed, the other will
    be."""
    plans = [Plan(name=kind, namespaces=("p",)) for kind in ("configmaps", "secrets")]
    with shmcache.Writer(name, [plan.resource for plan in plans], arena_max="16MiB") as writer:
        for plan in plans:
            writer.apply(plan.name, [pod("old", 1)])
            writer.set_state(plan.name, states.SYNCED, "1")
        cache = shmcache.attach(name)
        writer.leave()
    Undecided.answer.clear()
    with cache, ApiServer(seed=1) as server:
        for plan in plans:
            server.create(plan.name, {"metadata": {"name": "new", "namespace": "p"}})
        opener = Undecided(ApiConnection(lambda: ServerAccess(url=server.url)))
        with shmcache.Writer(name, [plan.resource for plan in plans], arena_max="32MiB") as writer:
            engine = Engine(writer, plans, opener)
            engine.start()
            try:
                eventually(
                    lambda: engine.standings()["configmaps"][0] == states.SYNCED, "it is not listed"
                )
                assert ["old"] == names_of(cache["secrets"]) == names_of(cache["configmaps"])
                Undecided.answer.set()
                eventually(
                    lambda: ["new"] == names_of(cache["secrets"]), "the cache does not move to it"
                )
                assert ["new"] == names_of(cache["configmaps"])
            finally:
                Undecided.answer.set()
                assert engine.stop()


@pytest.mark.parametrize("method", METHODS)
def test_sleepers_wake_for_the_next_writer(name: str, method: Method) -> None:
    writer = shmcache.Writer(name, ["pods"])
    writer.apply("pods", [pod("a", 1)])
    with Worker(method, sleeper, name) as worker:
        await_sleep(writer, [worker.hear()])
        writer.close()
        eventually(lambda: state_of_process(worker.pid) == "S", "it does not sleep on")
        with shmcache.Writer(name, ["pods"]) as writer:
            writer.apply("pods", [pod("b", 2)])
            assert ["lapped", "p/b"] == worker.hear()
            writer.apply("pods", [pod("c", 3)])
            assert ["p/c"] == worker.hear()


def test_handlers_receive_the_difference_to_the_next_instance(name: str) -> None:
    """R-Q-08 and G13: no deletion is delivered before the new writer has listed."""
    received: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()

    def name_of(obj: Any) -> str:
        return str(obj["metadata"]["name"])

    with Worker("fork", writing, name, ["pods"]) as first:
        first.hear()
        first.ask(("apply", "pods", [pod("kept", 1), pod("gone", 2), pod("new", 3), pod("x", 4)]))
        cache = shmcache.attach(name)
        registration = cache["pods"].add_handler(
            lambda obj, initial: received.put(("add", name_of(obj), initial)),
            lambda _, new: received.put(("update", name_of(new))),
            lambda obj, unknown: received.put(("delete", name_of(obj), unknown)),
        )
        cache.start()
        assert registration.wait_synced(PATIENCE)
        for _ in range(4):
            assert received.get(timeout=PATIENCE)[2]
        first.kill()
    with Worker("fork", writing, name, ["nodes", "pods"]) as second:
        second.hear()
        second.ask(("set_state", "pods", states.LISTING))
        second.ask(("apply", "nodes", [pod("n", 1)]))
        second.ask(
            (
                "replace",
                "pods",
                [pod("added", 9), pod("kept", 1), pod("new", 8), pod("x", 7, "other")],
                "9",
            )
        )
        second.ask(("set_state", "pods", states.SYNCED))
        assert [
            ("add", "added", False),
            ("delete", "gone", True),
            ("update", "new"),
            ("delete", "x", True),
            ("add", "x", False),
        ] == [received.get(timeout=PATIENCE) for _ in range(5)]
        second.ask(("apply", "pods", [pod("kept", 10)]))
        assert ("update", "kept") == received.get(timeout=PATIENCE)
    assert 1 == registration.lapses
    cache.close()


def attaching(pipe: Connection, name: str) -> None:
    pipe.send("here")
    with shmcache.attach(name, timeout=PATIENCE) as cache:
        pipe.send(list(cache["pods"]))


@pytest.mark.parametrize("directory", [False, True])
def test_attach_sleeps_until_there_is_a_cache(name: str, tmp_path: Any, directory: bool) -> None:
    place = str(tmp_path / "cache") if directory else name
    with Worker("spawn", attaching, place) as worker:
        assert "here" == worker.hear()
        eventually(lambda: state_of_process(worker.pid) == "S", "it does not sleep")
        with shmcache.Writer(place, ["pods"]):
            assert [] == worker.hear()


def test_attach_gives_up_when_its_time_is_over(name: str) -> None:
    with pytest.raises(SegmentNotFound):
        shmcache.attach(name, timeout=0.05)


def test_close_ends_a_sleep_between_two_writers(name: str) -> None:
    with shmcache.Writer(name, ["pods"]):
        cache = shmcache.attach(name)
    ended = threading.Event()

    def wait() -> None:
        try:
            cache.wait(cache.latest)
        except shmcache.ClosedError:
            ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    cache.close()
    assert ended.wait(PATIENCE)
    thread.join()


def test_no_seat_is_kept_in_an_instance_that_was_left(name: str) -> None:
    gc.collect()  # of tests before this one
    before = len(os.listdir("/proc/self/fd"))
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.apply("pods", [pod("a", 1)])
        cache = shmcache.attach(name)
        assert 1 == len(cache["pods"])
    for version in range(5):
        with shmcache.Writer(name, ["pods"]) as writer:
            writer.apply("pods", [pod("a", version)])
            assert str(version) == cache["pods"]["p/a"]["metadata"]["resourceVersion"]
    cache.close()
    assert before >= len(os.listdir("/proc/self/fd"))  # something of an earlier test may end now


@pytest.mark.slow
def test_workers_agree_after_many_writers_were_killed(name: str) -> None:
    received: dict[str, str] = {}

    def put(new: Any) -> None:
        received[new["metadata"]["name"]] = new["metadata"]["resourceVersion"]

    cache: shmcache.Cache | None = None
    for turn in range(6):
        with Worker("fork", writing, name, ["pods"]) as writer:
            writer.hear()
            writer.ask(("set_state", "pods", states.LISTING))
            objects = [pod(f"n{n}", turn * 100 + n) for n in range(turn, turn + 40)]
            writer.ask(("replace", "pods", objects, str(turn * 100 + 99)))
            writer.ask(("set_state", "pods", states.SYNCED))
            if cache is None:
                cache = shmcache.attach(name)
                cache["pods"].add_handler(
                    lambda obj, _: put(obj),
                    lambda _, new: put(new),
                    lambda obj, _: received.pop(obj["metadata"]["name"]),
                )
                cache.start()
            expected = {
                one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in objects
            }
            eventually(lambda: received == expected, f"turn {turn}: {received}")  # noqa: B023
            os.kill(writer.pid, signal.SIGKILL)
    assert cache is not None
    cache.close()
