"""Invariant tested: evidence that contradicts the cache, or is older than it, confirms nothing, by
whatever way it came; and no question keeps others from their answers (CONFIRM4 to CONFIRM8).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from confirmed_reads import DEADLINE, Running, eventually, pod, running, way

import shmcache
from shmcache.engine import confirming, evidence, repairing
from shmcache.engine.engine import Engine
from shmcache.engine.evidence import Evidence
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.protocol.items import Identity, Item
from shmcache.reader import asking
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.source.discovery import ApiResource
from shmcache.testing import ApiServer

READS: dict[str, Callable[[Running], Any]] = {
    "get": lambda run: run.pods.get("prod/web-0", consistent=True),
    "list": lambda run: run.pods.list(consistent=True),
    "namespace": lambda run: run.pods.list("prod", consistent=True),
}


@contextmanager
def losing(run: Running) -> Iterator[None]:
    """Inside, the feed loses each event on its way, and only learns the version."""
    [feed] = run.engine._kept[0].feeds
    content = feed.parts.content
    applying = content.apply

    def lose(items: list[Item], version: str) -> None:
        assert items
        content.advance(version)

    content.apply = lose  # type: ignore[method-assign]
    try:
        yield
        eventually(lambda: run.pods.version == run.server.version, "the version does not come")
    finally:
        content.apply = applying  # type: ignore[method-assign]


LOSSES: dict[str, Callable[[Running], object]] = {
    "created": lambda run: run.server.create("pods", pod("web-9")),
    "changed": lambda run: run.server.update("pods", pod("web-0", lost="yes")),
    "deleted": lambda run: run.server.delete("pods", "web-0", "prod"),
}
KEYS = {"created": "prod/web-9", "changed": "prod/web-0", "deleted": "prod/web-0"}


def states(run: Running) -> dict[str, str]:
    return {key: obj["metadata"]["resourceVersion"] for key, obj in run.pods.items()}


def of_server(run: Running) -> dict[str, str]:
    found = [obj["metadata"] for obj in run.server.list("pods")]
    return {f"{one['namespace']}/{one['name']}": one["resourceVersion"] for one in found}


class Endless:
    """A source whose watch goes on for an hour, and never says how far it is."""

    @contextmanager
    def watch(self, *_: object, **__: object) -> Iterator[Iterator[list[Item]]]:
        yield self._bytes()

    @staticmethod
    def _bytes() -> Iterator[list[Item]]:
        for _ in range(3_600_000):
            time.sleep(0.001)
            yield []


def test_a_watch_that_does_not_end_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONFIRM7: bytes come all the time, so that it is never silent."""
    monkeypatch.setattr(evidence, "WATCH_SECONDS", 0)
    monkeypatch.setattr(evidence, "WATCH_SILENCE", 0.1)
    found: list[object] = []
    asked = Evidence(Plan(name="pods"), Endless())  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: found.append(asked.shown_since("5", "9")), daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert found == [None]


# ---- contradictions ------------------------------------------------------------------------------


@pytest.mark.parametrize("read", ["get", "list", "namespace"])
@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_event_is_an_error_and_is_repaired_without_a_list(
    name: str, loss: str, read: str, *, later: bool
) -> None:
    """CONFIRM4, COMPARE1, COMPARE2, REPAIR1: also when the cache has moved on since."""
    with running(name, bookmark_seconds=0.05) as run:
        with losing(run):
            LOSSES[loss](run)
        if later:
            run.server.create("pods", pod("later"))
            eventually(lambda: "prod/later" in run.pods, "it does not follow")
        assert states(run) != of_server(run)
        counts = run.pods.status.counters

        def reading() -> object:
            if read == "get":
                return run.pods.get(KEYS[loss], consistent=True)
            return run.pods.list("prod" if read == "namespace" else None, consistent=True)

        with pytest.raises(shmcache.UnconfirmedError, match="not the server's"):
            reading()
        assert 1 == run.confirmer.contradictions
        eventually(lambda: states(run) == of_server(run), "not repaired")
        eventually(lambda: run.pods.status.counters["repaired"] == 1, "not counted")
        after = run.pods.status.counters
        assert (counts["lists"], counts["relists"]) == (after["lists"], after["relists"])
        assert reading() is not None or loss == "deleted"
        assert "synced" == run.pods.status.state


# ---- evidence that is older than the cache -------------------------------------------------------


def test_an_object_that_went_back_confirms_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFIRM5: a member that is behind, or a restored backup; the object there is an old one."""
    with running(name) as run:
        run.server.update("pods", pod("web-0", step="1"))
        eventually(lambda: "labels" in run.pods["prod/web-0"]["metadata"], "it does not follow")
        uid = run.pods["prod/web-0"]["metadata"]["uid"]
        old = Identity(uid, "1")
        monkeypatch.setattr(Evidence, "identity", lambda *_: old)

        with pytest.raises(shmcache.UnconfirmedError, match="behind"):
            run.pods.get("prod/web-0", consistent=True)


def test_a_member_without_the_object_does_not_prove_its_deletion(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFIRM5: 404 of a member that is behind the cache."""
    with running(name) as run:
        monkeypatch.setattr(Evidence, "identity", lambda *_: None)
        monkeypatch.setattr(Evidence, "version", lambda _: "1")

        with pytest.raises(shmcache.UnconfirmedError, match="behind"):
            run.pods.get("prod/web-0", consistent=True)
        assert "prod/web-0" in run.pods
        assert 0 == run.confirmer.contradictions


@pytest.mark.parametrize("read", ["list", "namespace"])
def test_a_list_that_is_behind_the_cache_confirms_nothing(
    name: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFIRM5: a list of few objects, the only request of such a read."""
    with running(name) as run:
        real = Evidence.contents

        def contents(self: Evidence, take: Any, limit: int, **more: Any) -> str | None:
            return real(self, take, limit, **more) and "1"

        monkeypatch.setattr(Evidence, "contents", contents)
        with pytest.raises(shmcache.UnconfirmedError, match="behind"):
            READS[read](run)


@pytest.mark.parametrize("objects", [3, 150])
def test_a_server_that_is_behind_once_is_asked_again(
    name: str, objects: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFIRM5: of several members, another one may answer the second time."""
    with running(name, objects=objects) as run:
        contents, version = Evidence.contents, Evidence.version
        behind = iter(["1"])

        def contents_(self: Evidence, take: Any, limit: int, **more: Any) -> str | None:
            return next(behind, "") or contents(self, take, limit, **more)

        monkeypatch.setattr(Evidence, "contents", contents_)
        monkeypatch.setattr(Evidence, "version", lambda self: next(behind, "") or version(self))
        assert objects == len(run.pods.list(consistent=True))
        assert not list(behind)


def test_an_object_of_another_history_is_an_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFIRM4: the version is the same number, the object is another one."""
    with running(name) as run:
        version = run.pods["prod/web-0"]["metadata"]["resourceVersion"]
        monkeypatch.setattr(Evidence, "identity", lambda *_: Identity("other", version))

        with pytest.raises(shmcache.UnconfirmedError, match="not the server's"):
            run.pods.get("prod/web-0", consistent=True)


# ---- evidence of one state -----------------------------------------------------------------------


@pytest.mark.parametrize("read", ["get", "list", "namespace", "snapshot"])
def test_an_object_created_and_deleted_before_the_call_is_not_shown(
    name: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFIRM9, ASK5: both events are on their way, and the first comes between answer and read."""
    with running(name) as run, ThreadPoolExecutor(1) as pool:
        steps, arrived, between = threading.Semaphore(0), threading.Event(), threading.Event()
        [feed] = run.engine._kept[0].feeds
        applying, real = feed.parts.content.apply, asking.parse

        def apply(items: Any, version: str) -> None:
            arrived.set()
            steps.acquire(timeout=DEADLINE)
            applying(items, version)

        def parse(data: bytes, resource: str) -> asking.Confirmed:
            found = real(data, resource)
            if not between.is_set():
                steps.release()
                eventually(lambda: "prod/brief" in run.pods, "the first event does not come")
                between.set()
            return found

        monkeypatch.setattr(asking, "parse", parse)
        feed.parts.content.apply = apply  # type: ignore[method-assign]
        run.server.create("pods", pod("brief"))
        assert arrived.wait(DEADLINE)  # so that the two do not come as one batch
        run.server.delete("pods", "brief", "prod")

        def reading() -> bool:
            if read == "get":
                return run.pods.get("prod/brief", consistent=True, timeout=60) is not None
            if read == "snapshot":
                return "prod/brief" in run.cache.snapshot(consistent=["pods"], timeout=60)["pods"]
            found = run.pods.list("prod" if read == "namespace" else None, consistent=True)
            return "brief" in [one["metadata"]["name"] for one in found]

        future = pool.submit(reading)
        assert between.wait(DEADLINE)
        time.sleep(0.3)  # a read that took the state between for the present would be over
        assert not future.done()
        steps.release(100)
        assert future.result() is False


def test_a_namespace_that_changes_while_the_next_one_is_asked_is_not_confirmed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFIRM9, as above, with the first event between the lists of two feeds."""
    plan = Plan(name="pods", namespaces=("prod", "test"))
    with running(name, plan) as run, ThreadPoolExecutor(1) as pool:
        steps, arrived, between = threading.Semaphore(0), threading.Event(), threading.Event()
        [content] = [one.parts.content for one in run.engine._kept[0].feeds
                     if one.parts.namespace == "prod"]  # fmt: skip
        applying, real, lists = content.apply, Evidence.contents, list[Evidence]()

        def apply(items: Any, version: str) -> None:
            arrived.set()
            steps.acquire(timeout=DEADLINE)
            applying(items, version)

        def contents(self: Evidence, *rest: Any, **options: Any) -> Any:
            found = real(self, *rest, **options)
            lists.append(self)
            if len(lists) == 2:
                steps.release()
                eventually(lambda: "prod/brief" in run.pods, "the first event does not come")
                between.set()
            return found

        monkeypatch.setattr(Evidence, "contents", contents)
        content.apply = apply  # type: ignore[method-assign]
        run.server.create("pods", pod("brief"))
        assert arrived.wait(DEADLINE)  # so that the two do not come as one batch
        run.server.delete("pods", "brief", "prod")
        future = pool.submit(lambda: run.pods.list(consistent=True))
        assert between.wait(DEADLINE)
        time.sleep(0.3)  # a read that took the state between for the present would be over
        assert not future.done()
        steps.release(100)
        assert "brief" not in [one["metadata"]["name"] for one in future.result()]


# ---- before there is anything to confirm ---------------------------------------------------------


def test_nothing_is_confirmed_before_the_feeds_begin(name: str) -> None:
    """CONFIRM6: content that was taken over, while discovery fails."""
    plan = Plan(name="pods", namespaces=("prod", "test"))
    with ApiServer() as server:
        server.create("pods", pod("web-0"))
        opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
        with shmcache.Writer(name, [plan.resource]) as writer:
            writer.replace("pods", [pod("old")], "1")
            writer.set_state("pods", shmcache.states.SYNCED)
            server.go_down()
            engine = Engine(writer, [plan], opener)
            engine.start()
            try:
                with shmcache.attach(name) as cache:
                    assert not engine._kept[0].feeds
                    for read in (
                        lambda: cache["pods"].list(consistent=True),
                        lambda: cache["pods"].get("prod/old", consistent=True),
                        lambda: cache.snapshot(consistent=["pods"]),
                    ):
                        with pytest.raises(shmcache.UnconfirmedError, match="first list"):
                            read()
            finally:
                assert engine.stop()


@pytest.mark.parametrize("namespace", ["..", "a/../../nodes", "a b HTTP/1.1\r\nX: y", "a%2fb", "é"])
def test_an_impossible_namespace_leads_to_no_other_path(name: str, namespace: str) -> None:
    """The reflector's credentials are not for requests that a reader composes."""
    with running(name) as run:
        before = len(run.server.log)
        assert way(run, namespace=namespace)
        assert way(run, key=f"{namespace}/x")
        for record in run.server.log[before:]:
            assert record.path.startswith("/api/v1/namespaces/"), record
            assert ".." not in record.path
        assert run.pods.get("prod/web-0", consistent=True) is not None


def test_a_namespace_is_quoted_in_a_path() -> None:
    pods = ApiResource(
        group="", version="v1", plural="pods", singular="pod", kind="Pod", namespaced=True
    )
    assert "/api/v1/namespaces/a%2F..%3Fb/pods" == pods.path("a/..?b")


# ---- several readers -----------------------------------------------------------------------------


def test_a_patient_question_does_not_hold_up_the_others(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFIRM7: an event of one namespace does not arrive for long."""
    monkeypatch.setattr(confirming, "FLIGHT_SECONDS", 0.2)
    plan = Plan(name="pods", namespaces=("prod", "test"))
    with running(name, plan) as run, ThreadPoolExecutor(1) as pool:
        run.server.create("pods", pod("web-0", "test"))
        eventually(lambda: "test/web-0" in run.pods, "it does not follow")
        with run.deaf("prod"):
            run.server.create("pods", pod("late"))
            patient = pool.submit(
                lambda: run.pods.get("prod/late", consistent=True, timeout=asking.MOST_SECONDS)
            )
            eventually(lambda: run.confirmer.questions > 0, "it is not asked")
            for _ in range(3):
                assert run.pods.get("test/web-0", consistent=True, timeout=5) is not None
            assert not patient.done()
        assert patient.result() is not None


def test_a_thread_that_fails_is_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONFIRM8."""

    class Failed(BaseException):
        pass

    def fail(*_: object) -> None:
        raise Failed

    with running(name) as run:
        monkeypatch.setattr(run.confirmer, "_fly", fail)
        monkeypatch.setattr(threading, "excepthook", lambda _: None)
        with pytest.raises(shmcache.UnconfirmedError, match="in time"):
            run.pods.get("prod/web-0", consistent=True, timeout=0.5)
        monkeypatch.undo()
        assert run.pods.get("prod/web-0", consistent=True) is not None


def test_without_threads_a_question_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONFIRM8: and the desk goes on."""
    with running(name) as run:
        real = threading.Thread.start

        def start(self: threading.Thread) -> None:
            if self.name.startswith("shmcache-confirm"):
                raise RuntimeError("can't start new thread")
            real(self)

        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.raises(shmcache.UnconfirmedError, match="can't start new thread"):
            run.pods.get("prod/web-0", consistent=True)
        monkeypatch.undo()
        assert run.pods.get("prod/web-0", consistent=True) is not None


def test_a_crowd_is_answered_by_two_requests_a_second(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFIRM3: the pause counts each request of a flight, whatever ways it went."""
    pauses = list[float]()
    with running(name) as run:
        confirmer, asked = run.confirmer, threading.Event()

        def wait_for(_: object, seconds: float) -> None:
            pauses.append(seconds)
            asked.set()
            time.sleep(0.01)

        monkeypatch.setattr(confirmer, "_fly", lambda _: _count(confirmer, 3))
        monkeypatch.setattr(confirmer, "_next", iter([[None] * 1000, []]).__next__)
        monkeypatch.setattr(confirmer._came, "wait_for", wait_for)
        confirmer._fly_on()
    assert [3 * confirming.LONGEST_PAUSE] == pauses
    assert confirming.LONGEST_PAUSE >= 0.5


def _count(confirmer: confirming.ResourceConfirmer, requests: int) -> None:
    confirmer.server.requests += requests


# ---- repairs -------------------------------------------------------------------------------------


def test_many_wrong_keys_are_listed_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPAIR5."""
    monkeypatch.setattr(repairing, "MOST_KEYS", 1)
    with running(name, bookmark_seconds=0.05) as run:
        with losing(run):
            run.server.update("pods", pod("web-0", lost="yes"))
            run.server.update("pods", pod("web-1", lost="yes"))
        with pytest.raises(shmcache.UnconfirmedError, match="not the server's"):
            run.pods.list(consistent=True)
        eventually(lambda: states(run) == of_server(run), "not mended")
        eventually(lambda: run.pods.status.counters["relists"] == 1, "nothing is listed")
        assert 0 == run.pods.status.counters["repaired"]
        assert DEADLINE
