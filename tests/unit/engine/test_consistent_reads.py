"""Invariant tested: a consistent read shows the server's state of its beginning or a later one, or
fails with a reason (G50); each invariant of asking.py, desk.py and confirming.py has a test here.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from confirmed_reads import DEADLINE, Running, eventually, pod, running, way

import shmcache
from shmcache import states
from shmcache.engine import confirming, desk, scope_way
from shmcache.engine.plans import Plan
from shmcache.memory import sockets
from shmcache.memory.segments import Place
from shmcache.protocol.items import Identity
from shmcache.reader import asking
from shmcache.reflector.retrying import LONGEST_RETRY_AFTER

MANY = scope_way.PAGE + 1
"""Objects of which no list is made."""


PLANS = {
    "all": Plan(name="pods"),
    "namespaces": Plan(name="pods", namespaces=("prod", "test")),
    "selected": Plan(name="pods", labels="app!=other"),
    "metadata": Plan(name="pods", metadata_only=True),
    "transformed": Plan(name="pods", transform=lambda obj: {"metadata": obj["metadata"]}),
}


# ---- reads ----------------------------------------------------------------------------


@pytest.mark.parametrize("plan", PLANS)
def test_a_consistent_read_shows_the_write_before_it(name: str, plan: str) -> None:
    with running(name, PLANS[plan]) as run:
        pods = run.pods
        for number in range(15):
            run.server.create("pods", pod(f"new-{number}"))
            assert pods.get(f"prod/new-{number}", consistent=True) is not None
            run.server.delete("pods", f"new-{number}", "prod")
            assert pods.get(f"prod/new-{number}", consistent=True) is None
            run.server.create("pods", pod(f"other-{number}", "test"))
            assert number + 1 == len(pods.list("test", consistent=True))
            assert number + 4 == len(pods.list(consistent=True))
            run.server.update("pods", pod("web-0", step=str(number)))
            with run.cache.snapshot(consistent=["pods"]) as at:
                assert str(number) == at["pods"]["prod/web-0"]["metadata"]["labels"]["step"]
        assert 0 == run.confirmer.refusals == run.confirmer.contradictions


def test_async_reads_show_the_write_before_them(name: str) -> None:
    async def read(run: Running) -> None:
        for number in range(10):
            run.server.create("pods", pod(f"new-{number}"))
            assert await run.pods.get_async(f"prod/new-{number}") is not None
            assert number + 4 == len(await run.pods.list_async("prod"))
            with await run.cache.snapshot_async(["pods"]) as at:
                assert number + 4 == len(at["pods"])

    with running(name) as run:
        asyncio.run(read(run))


def test_a_read_waits_for_the_event_that_is_on_its_way(name: str) -> None:
    """CONFIRM2: while the event is not stored, the version alone keeps the read from returning."""
    with running(name) as run, ThreadPoolExecutor(4) as pool:
        with run.deaf():
            run.server.create("pods", pod("late"))
            reads = [
                pool.submit(lambda: run.pods.get("prod/late", consistent=True, timeout=60)),
                pool.submit(lambda: run.pods.list("prod", consistent=True, timeout=60)),
                pool.submit(lambda: run.cache.snapshot(consistent=["pods"], timeout=60)["pods"]),
            ]
            time.sleep(0.5)  # a read that did not wait would be over
            assert not any(read.done() for read in reads)
        assert reads[0].result() is not None
        assert [4, 4] == [len(read.result()) for read in reads[1:]]


def test_a_wait_ends_although_a_worker_has_wiped_the_seat(name: str) -> None:
    """SHOWN2: the bell is off, and nobody is known to sleep."""
    with running(name, bookmark_seconds=3600) as run, ThreadPoolExecutor(1) as pool:
        looked, true = threading.Event(), threading.Event()

        def fact() -> bool:
            looked.set()
            return true.is_set()

        shown = run.confirmer.shown
        waiting = pool.submit(shown.reaches, fact, time.monotonic() + 2 * DEADLINE)
        assert looked.wait(DEADLINE)
        place, seat = run.cache.place, shown._cache().seat
        [file] = [one for one in place.location.names(place.stem) if one.endswith(".seats")]
        with open(place.location.file(file), "r+b", buffering=0) as seats:
            seats.seek(4096 + 256 * seat)
            seats.write(bytes(48))  # semaphore, interest, incarnation, in_use, progress
        true.set()
        assert waiting.result(DEADLINE)


def test_a_deletion_that_is_on_its_way_is_waited_out(name: str) -> None:
    with running(name) as run, ThreadPoolExecutor(1) as pool:
        with run.deaf():
            run.server.delete("pods", "web-0", "prod")
            read = pool.submit(lambda: run.pods.get("prod/web-0", consistent=True, timeout=60))
            time.sleep(0.3)
            assert not read.done()
        assert read.result() is None


def test_a_change_before_the_deletion_is_not_the_present(name: str) -> None:
    """CONFIRM2: the object was changed, then deleted; both events are on their way."""
    with running(name) as run, ThreadPoolExecutor(1) as pool:
        arrived, asked, steps = threading.Event(), threading.Event(), threading.Semaphore(0)
        [feed] = run.engine._kept[0].feeds
        applying = feed.parts.content.apply
        evidence = run.confirmer.server.evidence("prod")
        asking_one = evidence.identity

        def apply(items: Any, version: str) -> None:
            arrived.set()
            steps.acquire(timeout=DEADLINE)
            applying(items, version)

        def identity(namespace: str, name: str) -> Identity | None:
            found = asking_one(namespace, name)
            asked.set()
            return found

        feed.parts.content.apply = apply  # type: ignore[method-assign]
        evidence.identity = identity  # type: ignore[method-assign]
        run.server.update("pods", pod("web-0", step="1"))
        assert arrived.wait(DEADLINE)
        run.server.delete("pods", "web-0", "prod")
        read = pool.submit(lambda: run.pods.get("prod/web-0", consistent=True, timeout=60))
        assert asked.wait(DEADLINE)
        steps.release()
        eventually(lambda: "labels" in run.pods["prod/web-0"]["metadata"], "no change")
        time.sleep(0.3)  # a read that took the change for the present would be over
        assert not read.done()
        steps.release(100)
        assert read.result() is None


def test_a_name_that_no_object_can_have_is_not_requested(name: str) -> None:
    """GET of an empty name would be a list of everything."""
    with running(name) as run:
        before = run.requests()
        for key in ("prod/", "prod/.", "prod/..", "/"):
            assert run.pods.get(key, consistent=True) is None
        assert before == run.requests()


def test_a_resource_without_changes_is_confirmed_by_a_watch(name: str) -> None:
    """CONFIRM2: the server has moved on, no event ever comes, and the objects are many."""
    with running(name, objects=MANY) as run:
        run.server.advance(int(run.server.version) + 1000)
        before = run.requests()

        assert MANY == len(run.pods.list(consistent=True))
        after = run.requests()
        assert 1 == after["list", "pods"] - before.get(("list", "pods"), 0)
        assert 1 == after["watch", "pods"] - before["watch", "pods"]
        assert 0 == run.confirmer.refusals


def test_a_change_that_a_watch_shows_is_waited_for(name: str) -> None:
    """The change is of the cache's future, and the bookmark after it proves nothing about it."""
    with running(name, objects=MANY) as run, ThreadPoolExecutor(1) as pool:
        with run.deaf():
            run.server.create("pods", pod("late"))
            run.server.advance(int(run.server.version) + 1000)
            read = pool.submit(lambda: len(run.pods.list(consistent=True, timeout=60)))
            eventually(lambda: run.requests().get(("watch", "pods"), 0) > 1, "no watch")
            time.sleep(2.5)
            assert not read.done()
        assert MANY + 1 == read.result()


@pytest.mark.parametrize(
    ("question", "objects", "advance", "expected"),
    [
        ({"key": "prod/web-0"}, 3, 100, "get"),
        ({}, 3, 100, "list"),
        ({"namespace": "prod"}, 3, 100, "list"),
        ({}, 100, 0, "list"),
        ({}, 101, 0, "event"),
        ({}, 101, 100, "list"),
    ],
)
def test_the_cheapest_way_is_taken(
    name: str, question: dict[str, str], objects: int, advance: int, expected: str
) -> None:
    with running(name, objects=objects) as run:
        run.server.advance(int(run.server.version) + advance)
        eventually(lambda: run.pods.version is not None, "not listed")
        assert expected == way(run, **question)


# ---- costs -----------------------------------------------------------------------------


def test_readers_who_wait_at_once_share_a_flight(name: str) -> None:
    """CONFIRM1 and CONFIRM3: at most the flight under way, and the one after it."""
    with running(name, objects=150) as run:
        before = run.requests().get(("list", "pods"), 0)
        with ThreadPoolExecutor(64) as pool:
            counts = list(pool.map(lambda _: len(run.pods.list(consistent=True)), range(256)))
        flights = run.confirmer.flights

        assert {150} == set(counts)
        assert 256 == run.confirmer.questions
        assert flights < 100
        assert run.requests()["list", "pods"] - before <= flights


def test_an_idle_confirmer_ends_its_thread_and_connections(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirming, "IDLE_SECONDS", 0.05)
    with running(name) as run:
        for _ in range(3):
            assert run.pods.get("prod/web-0", consistent=True) is not None
            eventually(lambda: not run.confirmer._running, "its thread goes on")
            assert not run.confirmer.server._sources


def test_a_question_is_not_answered_by_an_earlier_request(name: str) -> None:
    """CONFIRM1: the server's answer to the first question is held back; a write happens; the
    second question must not share that answer."""
    with running(name, objects=150) as run, ThreadPoolExecutor(2) as pool:
        began, go_on = threading.Event(), threading.Event()
        evidence = run.confirmer.server.evidence("")
        probing = evidence.version

        def version() -> str:
            found = probing()
            began.set()
            go_on.wait(DEADLINE)
            return found

        evidence.version = version  # type: ignore[method-assign]
        first = pool.submit(lambda: run.pods.list(consistent=True, timeout=60))
        assert began.wait(DEADLINE)
        with run.deaf():
            run.server.create("pods", pod("between"))
            second = pool.submit(lambda: run.pods.list(consistent=True, timeout=60))
            eventually(lambda: bool(run.confirmer._waiting), "it does not wait")
            go_on.set()
            assert 150 == len(first.result())
            time.sleep(0.3)
            assert not second.done()
        assert 151 == len(second.result())
        assert 2 == run.confirmer.flights


# ---- refusals ------------------------------------------------------------------------


def test_without_a_reflector_the_fallback_counts(writer: shmcache.Writer, name: str) -> None:
    """ASK2."""
    writer.put("pods", "prod/a", pod("a"))
    with shmcache.attach(name) as cache:
        pods = cache["pods"]
        with pytest.raises(shmcache.UnconfirmedError, match="no reflector runs"):
            pods.get("prod/a", consistent=True)
        with pytest.raises(shmcache.UnconfirmedError, match="shmcache run"):
            cache.snapshot(consistent="pods")
        assert pods.get("prod/a", consistent=True, fallback=lambda: 7) == 7
        assert [7] == pods.list(consistent=True, fallback=lambda: [7])
        assert pods.get("prod/a", consistent=False) is not None


def test_without_descriptors_the_fallback_counts(
    writer: shmcache.Writer, cache: shmcache.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ASK2."""

    def exhausted() -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    writer.put("pods", "prod/a", pod("a"))
    monkeypatch.setattr(sockets, "opened", exhausted)
    pods = cache["pods"]
    assert pods.get("prod/a", consistent=True, fallback=lambda: 7) == 7
    assert asyncio.run(pods.get_async("prod/a", fallback=lambda: 7)) == 7


def test_a_snapshot_cannot_become_current(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    writer.put("pods", "prod/a", pod("a"))
    with cache.snapshot() as at, pytest.raises(ValueError, match="snapshot"):
        at["pods"].get("prod/a", consistent=True)


@pytest.mark.parametrize("timeout", [0, -1, 61, float("nan"), "3", True])
def test_an_impossible_timeout_is_refused(
    writer: shmcache.Writer, cache: shmcache.Cache, timeout: Any
) -> None:
    assert not writer.closed
    with pytest.raises((TypeError, ValueError), match="timeout"):
        cache["pods"].get("prod/a", consistent=True, timeout=timeout)


def test_a_server_that_is_down_is_a_reason(name: str) -> None:
    with running(name) as run:
        run.server.go_down()
        for read in (
            lambda: run.pods.get("prod/web-0", consistent=True),
            lambda: run.pods.list(consistent=True),
        ):
            with pytest.raises(shmcache.UnconfirmedError, match="did not answer"):
                read()
        run.server.come_back()
        eventually(lambda: _reads(run), "it does not come back")


def _reads(run: Running) -> bool:
    return run.pods.list(consistent=True, fallback=lambda: None) is not None


def test_a_server_that_is_behind_the_cache_proves_nothing(name: str) -> None:
    """CONFIRM5: the other member of a pair that disagrees."""
    with running(name, objects=150) as run:
        evidence = run.confirmer.server.evidence("")
        evidence.version = lambda: "2"  # type: ignore[method-assign]
        with pytest.raises(shmcache.UnconfirmedError, match="behind"):
            run.pods.list(consistent=True)


def test_a_server_without_bookmarks_is_a_reason(name: str) -> None:
    with running(name, objects=MANY, watch_cache=False) as run:
        run.server.advance(int(run.server.version) + 100)
        with pytest.raises(shmcache.UnconfirmedError, match=r"no bookmark|in time"):
            run.pods.list(consistent=True, timeout=4)


def test_after_429_the_server_is_left_alone(name: str) -> None:
    with running(name, objects=150) as run:
        run.server.faults.too_many_requests("list", retry_after=30)
        before = run.requests().get(("list", "pods"), 0)
        for _ in range(5):
            with pytest.raises(shmcache.UnconfirmedError, match="did not answer"):
                run.pods.list(consistent=True)

        assert 1 == run.requests().get(("list", "pods"), 0) - before


def test_a_server_cannot_stop_reads_for_longer_than_two_minutes(name: str) -> None:
    """Retry-After is that of the server; the bound is that of its other readers."""
    with running(name, objects=150) as run:
        run.server.faults.too_many_requests("list", retry_after=10**9)
        with pytest.raises(shmcache.UnconfirmedError, match="did not answer"):
            run.pods.list(consistent=True)

        left = run.confirmer.server.not_before - time.monotonic()
        assert left <= LONGEST_RETRY_AFTER


def test_a_cache_that_lost_an_event_is_found_out(name: str) -> None:
    """CONFIRM4: the version is right, and an object is not."""
    with running(name, bookmark_seconds=0.05) as run:
        [feed] = run.engine._kept[0].feeds
        content = feed.parts.content
        applying = content.apply

        def lose(items: Any, version: str) -> None:
            assert items
            content.advance(version)

        content.apply = lose  # type: ignore[method-assign]
        run.server.update("pods", pod("web-0", lost="yes"))
        eventually(lambda: run.pods.version == run.server.version, "the version does not come")
        content.apply = applying  # type: ignore[method-assign]

        with pytest.raises(shmcache.UnconfirmedError, match="not the server's"):
            run.pods.get("prod/web-0", consistent=True)
        assert 1 == run.confirmer.contradictions
        eventually(lambda: "labels" in run.pods["prod/web-0"]["metadata"], "not mended")


# ---- the desk ------------------------------------------------------------------------------------


def connected(name: str) -> socket.socket:
    client = sockets.opened()
    client.settimeout(DEADLINE)
    with sockets.address(Place(name)) as path:
        client.connect(path)
    return client


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"[]\n",
        b"7\n",
        b'{"resource": 7, "timeout": 1}\n',
        b'{"resource": "pods"}\n',
        b'{"resource": "pods", "timeout": -1}\n',
        b'{"resource": "pods", "timeout": NaN}\n',
        b'{"resource": "pods", "timeout": 1%b}\n' % (b"0" * 400),
        b'{"resource": "pods", "timeout": 1, "key": "prod/\\ud800"}\n',
        b'{"resource": "pods", "timeout": 1, "key": []}\n',
        b"[" * 2000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_nonsense_is_answered_and_harms_nobody(name: str, line: bytes) -> None:
    """DESK3."""
    with running(name) as run:
        with connected(name) as client:
            client.sendall(line)
            assert "no sense" in json.loads(client.recv(4096))["error"]
            assert not client.recv(4096)
        assert run.pods.get("prod/web-0", consistent=True) is not None


def test_a_client_that_talks_on_or_leaves_ends_alone(name: str) -> None:
    """DESK1, DESK3."""
    with running(name) as run:
        with connected(name) as client:
            client.sendall(b"x" * (desk.LINE + 1))
            assert not client.recv(4096)
        with run.deaf():
            run.server.create("pods", pod("late"))
            left = connected(name)
            left.sendall(asking.Question("pods", "prod/late").line(30))
            eventually(lambda: run.confirmer.questions == 1, "not asked")
            left.close()
        assert run.pods.get("prod/late", consistent=True) is not None
        eventually(lambda: not run.engine._desk._clients, "a client is kept")


def test_places_are_bounded_for_each_user(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESK2: three quarters for one user; the silent ones leave after their time."""
    monkeypatch.setattr(desk, "CONNECTIONS", 8)
    monkeypatch.setattr(desk, "LINE_SECONDS", 0.5)
    with running(name) as run:
        silent = [connected(name) for _ in range(6)]
        eventually(lambda: len(run.engine._desk._clients) == 6, "not accepted")
        with connected(name) as client:
            assert not client.recv(10)
        assert 1 == run.engine._desk.refused
        for client in silent:
            assert not client.recv(10)
            client.close()
        assert run.pods.get("prod/web-0", consistent=True) is not None


def test_questions_of_clients_that_left_are_bounded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESK2: clients ask, and leave, while a flight is under way."""
    monkeypatch.setattr(confirming, "FLIGHT_SECONDS", DEADLINE)
    line = asking.Question("pods", "prod/web-0").line(60)
    with running(name) as run, run.deaf():
        run.server.create("pods", pod("late"))
        waits = connected(name)
        waits.sendall(asking.Question("pods", "prod/late").line(60))
        eventually(lambda: run.confirmer.flights == 1, "not asked")
        monkeypatch.setattr(desk, "CONNECTIONS", 8)
        submitted = list[desk.Asked]()
        submit = run.confirmer.submit

        def note(asked: desk.Asked) -> None:
            submit(asked)
            submitted.append(asked)

        monkeypatch.setattr(run.confirmer, "submit", note)
        for number in range(1, 41):
            with connected(name) as client:
                client.sendall(line)
                eventually(lambda: len(submitted) == number, "not asked")  # noqa: B023
            eventually(lambda: not submitted[-1].lives(), "a client is kept")

        assert run.confirmer.flights == 1
        assert len(run.confirmer._waiting) <= 2 * desk.CONNECTIONS
        waits.close()


def test_the_name_goes_with_the_reflector(name: str) -> None:
    """DESK4."""
    path = Place(name).location.file(Place(name).desk)
    with running(name):
        assert 0o600 == os.stat(path).st_mode & 0o777
    assert not os.path.exists(path)
    with running(name) as run:
        os.unlink(path)
        with open(path, "w"):
            pass  # another one's
        assert run.engine.stop()
        assert os.path.exists(path)


def test_the_socket_of_a_dead_reflector_is_replaced(name: str) -> None:
    with shmcache.Writer(name, ["pods"]):
        dead = sockets.listen(Place(name))
        dead.close()
        with sockets.listen(Place(name)), connected(name):
            pass


def test_an_answer_of_an_untrusted_user_does_not_count(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ASK3."""
    with running(name) as run:
        monkeypatch.setattr(sockets, "user_of", lambda _peer: 12345)
        with pytest.raises(shmcache.UntrustedSegment, match="12345"):
            run.pods.get("prod/web-0", consistent=True)


def test_a_cache_in_a_deep_directory_can_be_asked(tmp_path: Any) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    with running(str(deep)) as run:
        assert run.pods.get("prod/web-0", consistent=True) is not None


def test_an_answer_about_another_instance_is_asked_for_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ASK1: also of a generation that this process does not see."""
    monkeypatch.setattr(asking, "MOVING_SECONDS", 0.02)
    with running(name) as run:
        root = run.cache.reader.root()
        real, answers = asking.parse, list[asking.Confirmed]()

        def parse(data: bytes, resource: str) -> asking.Confirmed:
            found = answers.pop(0) if answers else real(data, resource)
            asked.append(found)
            return found

        monkeypatch.setattr(asking, "parse", parse)
        asked = list[asking.Confirmed]()
        for wrong in (
            asking.Confirmed(root.instance + 1, 0, "1", ""),
            asking.Confirmed(root.instance, run.cache.latest + 1000, "1", ""),
        ):
            answers[:], asked[:] = [wrong, wrong], []
            assert run.pods.get("prod/web-0", consistent=True) is not None
            assert 3 == len(asked)
        answers[:] = [wrong] * 1000
        with pytest.raises(shmcache.UnconfirmedError, match=r"another instance|in time"):
            run.pods.get("prod/web-0", consistent=True, timeout=0.1)


READS: dict[str, Callable[[shmcache.Cache], Any]] = {
    "get": lambda cache: cache["pods"].get("prod/new", consistent=True),
    "list": lambda cache: cache["pods"].list("prod", consistent=True)[0],
    "snapshot": lambda cache: cache.snapshot(consistent=["pods"])["pods"].get("prod/new"),
}


@pytest.mark.parametrize("read", READS)
def test_a_read_shows_what_was_confirmed_although_the_cache_changes_hands(
    name: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ASK1: between the answer and the read another writer takes over, with an older list."""
    with ExitStack() as stack:
        first = stack.enter_context(shmcache.Writer(name, ["pods"]))
        first.replace("pods", [pod("new")], "2")
        first.set_state("pods", states.SYNCED)
        cache = stack.enter_context(shmcache.attach(name))

        def confirm(*_: Any) -> Any:
            found = cache.reader.root()
            first.close()
            second = stack.enter_context(shmcache.Writer(name, ["pods"], fresh=True))
            second.replace("pods", [pod("old")], "1")
            second.set_state("pods", states.SYNCED)
            eventually(lambda: "prod/old" in cache["pods"], "it does not move")
            return found

        monkeypatch.setattr("shmcache.reader.confirmed.confirm", confirm)
        monkeypatch.setattr(asking, "confirm", confirm)
        found = READS[read](cache)

        assert found is not None
        assert "new" == found["metadata"]["name"]


def test_a_read_that_fails_leaves_no_question_behind(name: str) -> None:
    """ASK4: the desk answers the first question, and never the second one."""

    async def read(cache: shmcache.Cache) -> None:
        with pytest.raises(shmcache.UnconfirmedError, match="no luck"):
            await cache.snapshot_async(["pods", "jobs"])
        assert {asyncio.current_task()} == asyncio.all_tasks()

    def answer(listener: socket.socket) -> None:
        for _ in range(2):
            client, _ = listener.accept()
            held.append(client)
            if b"pods" in client.recv(4096):
                client.sendall(b'{"error": "no luck"}\n')

    held = list[socket.socket]()
    with shmcache.Writer(name, ["pods", "jobs"]), sockets.listen(Place(name)) as listener:
        listener.settimeout(DEADLINE)
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with shmcache.attach(name) as cache:
            asyncio.run(read(cache))
        thread.join(DEADLINE)
        for client in held:
            client.close()
