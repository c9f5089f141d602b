"""Invariant tested: a registration survives whatever its handler, its objects, the writer and the
next writer do; and an ended one keeps nothing (G13, G14, G15, G19)."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import errno
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from workers import PATIENCE, Worker, eventually

import shmcache
from shmcache import states
from shmcache.handlers.registration import Wanted
from shmcache.reader import succession
from shmcache.reader.succession import Succession

OPTIONS = ("match", "namespace", "resync", "shard", "name")

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def pod(name: str, version: int, labels: Any = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "p", "uid": f"uid-of-{name}"}
    return {"metadata": metadata | {"resourceVersion": str(version), "labels": labels}}


def name_of(obj: Any) -> str:
    return str(obj["metadata"]["name"])


@pytest.fixture
def small(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, ["pods", "nodes"], arena_max="64MiB", ring_slots=64) as writer:
        writer.set_state("pods", states.SYNCED, "1")
        yield writer
        writer.check()


@pytest.fixture
def attached(small: shmcache.Writer) -> Iterator[shmcache.Cache]:
    with shmcache.attach(small.name) as cache:
        yield cache


class Names:
    """A handler that records the names of added objects."""

    def __init__(self) -> None:
        self.added: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __call__(self, obj: Any, _initial: bool) -> None:
        self.added.put(name_of(obj))

    def hear(self) -> str:
        return self.added.get(timeout=PATIENCE)


# ---- handlers and objects ----------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
def test_g14_whatever_a_handler_raises_the_next_object_is_delivered(
    small: shmcache.Writer, attached: shmcache.Cache, error: type[BaseException]
) -> None:
    """sys.exit() in a thread would end it silently."""
    names = Names()

    def fails(obj: Any, initial: bool) -> None:
        names(obj, initial)
        raise error

    registration = attached["pods"].add_handler(fails)
    attached.start()
    small.apply("pods", [pod("a", 1)])
    small.apply("pods", [pod("b", 2)])
    assert ["a", "b"] == [names.hear(), names.hear()]
    eventually(lambda: registration.errors == 2, "errors are not counted")


@pytest.mark.parametrize("labels", [["app"], "app", 5, {"app": ["web"]}, {"app": {"a": "b"}}])
def test_an_object_with_invalid_labels_harms_no_selector(
    small: shmcache.Writer, attached: shmcache.Cache, labels: Any
) -> None:
    """No server sends such an object; selectors of handlers and of lists agree on it."""
    names = Names()
    attached["pods"].add_handler(names, labels="app=web")
    attached.start()
    small.apply("pods", [pod("odd", 1, labels)])
    small.apply("pods", [pod("good", 2, {"app": "web"})])

    assert "good" == names.hear()
    for text in ("app=web", "app!=web", "app", "!app", "app in (web)", "app>1"):
        listed = {name_of(one) for one in attached["pods"].list(labels=text)}
        selector = shmcache.LabelSelector.parse(text)
        assert ("odd" in listed) == selector.matches(pod("odd", 1, labels)), text


def test_many_handlers_blocked_at_many_generations_leave_room_to_read(
    small: shmcache.Writer, attached: shmcache.Cache
) -> None:
    """More of them than a seat has pins."""
    gate = threading.Event()
    attached.start()
    registrations = []
    for number in range(24):
        entered = threading.Event()

        def held(obj: Any, _: bool, number: int = number, entered: Any = entered) -> None:
            if name_of(obj) == f"x{number}":
                entered.set()
                assert gate.wait(PATIENCE)

        small.apply("pods", [pod(f"x{number}", number)])
        registrations.append(attached["pods"].add_handler(held))
        assert entered.wait(PATIENCE)

    assert 24 == len(attached["pods"].list())
    with attached.snapshot() as at:
        assert "x3" == name_of(at["pods"]["p/x3"])
    gate.set()
    for registration in registrations:
        assert registration.wait_synced(PATIENCE)
        assert 0 == registration.errors


# ---- adding and removing -----------------------------------------------------------------------


def test_a_registration_that_was_removed_before_it_ran_has_ended(attached: shmcache.Cache) -> None:
    registration = attached["pods"].add_handler(Names())
    assert registration.remove()
    waiter = threading.Thread(target=registration.wait_synced, daemon=True)
    waiter.start()
    waiter.join(PATIENCE)
    assert not waiter.is_alive()
    assert not registration.active


def test_g12_a_registration_that_was_removed_too_early_never_synced(name: str) -> None:
    with shmcache.Writer(name, ["pods"], arena_max="64MiB") as _, shmcache.attach(name) as cache:
        registration = cache["pods"].add_handler(Names())
        cache.start()
        assert registration.remove(wait=True, timeout=PATIENCE)
        assert not registration.has_synced


def test_the_last_registration_frees_the_map_of_known_objects(
    small: shmcache.Writer, attached: shmcache.Cache
) -> None:
    small.apply("pods", [pod("a", 1)])
    registrations = [attached["pods"].add_handler(Names()) for _ in range(3)]
    attached.start()
    for registration in registrations:
        assert registration.wait_synced(PATIENCE)
    assert 0 < attached.informer.known.bytes
    for registration in registrations:
        assert registration.remove(wait=True, timeout=PATIENCE)
    assert 0 == attached.informer.known.bytes


def test_threads_that_register_first_are_all_registered(
    small: shmcache.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them find no informer yet, and create one."""
    from shmcache.handlers import informer

    many = 4
    made = informer.Informer.__init__
    for _ in range(20):
        with shmcache.attach(small.name) as cache:
            start = threading.Barrier(many)

            def slow(self: Any, cache: Any) -> None:
                threading.Event().wait(0.001)  # gives the others their turn
                made(self, cache)

            monkeypatch.setattr(informer.Informer, "__init__", slow)

            def register(cache: shmcache.Cache = cache, start: Any = start) -> None:
                start.wait(PATIENCE)
                cache["pods"].add_handler(Names())

            threads = [threading.Thread(target=register) for _ in range(many)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            assert many == len(cache.informer.registrations)


# ---- writers -----------------------------------------------------------------------------------


def test_handlers_of_a_resource_that_the_next_writer_lacks_wait_for_it(name: str) -> None:
    names = Names()
    with shmcache.Writer(name, ["pods"], arena_max="64MiB") as first:
        first.apply("pods", [pod("a", 1)])
        first.set_state("pods", states.SYNCED, "1")
        cache = shmcache.attach(name)
        registration = cache["pods"].add_handler(names)
    with cache, shmcache.Writer(name, ["nodes"], arena_max="64MiB") as second:
        second.apply("nodes", [pod("n", 1)])
        second.set_state("nodes", states.SYNCED, "1")
        assert ("nodes",) == cache.resources
        cache.start()
        second.add_resource("pods")
        second.apply("pods", [pod("b", 1)])
        second.set_state("pods", states.SYNCED, "2")
        assert "b" == names.hear()
        assert registration.wait_synced(PATIENCE)


SITTING = """
import sys, shmcache
with shmcache.attach(sys.argv[1], timeout=60):
    print("attached", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def crowded(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], object]]:
    """The next writer, whose only seat another process keeps until `go` is set."""
    with monkeypatch.context() as patched:
        patched.setattr(Succession, "_attach", lambda *_: None)  # this test is slower
        writer = shmcache.Writer(name, ["pods"], arena_max="64MiB", seats=1)
        other = subprocess.Popen(
            [sys.executable, "-c", SITTING, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert other.stdout is not None
        assert "attached" == other.stdout.readline().strip()
    with writer:
        writer.apply("pods", [pod("b", 1)])
        writer.set_state("pods", states.SYNCED, "2")
        yield lambda: other.communicate(timeout=PATIENCE)
        other.communicate(timeout=PATIENCE)


@pytest.fixture
def left(name: str) -> Iterator[tuple[shmcache.Cache, Names, Any]]:
    """A cache whose writer has ended, with a handler."""
    names = Names()
    with shmcache.Writer(name, ["pods"], arena_max="64MiB") as first:
        first.apply("pods", [pod("a", 1)])
        first.set_state("pods", states.SYNCED, "1")
        cache = shmcache.attach(name)
        registration = cache["pods"].add_handler(names)
        cache.start()
        assert "a" == names.hear()
    with cache:
        yield cache, names, registration


def test_a_full_next_instance_is_entered_once_a_seat_is_free(
    name: str,
    left: tuple[shmcache.Cache, Names, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Until then reads keep the last state, and handlers live on."""
    cache, names, registration = left
    with crowded(name, monkeypatch) as go:
        eventually(lambda: "all seats are taken" in caplog.text, "it is not logged")
        assert ["p/a"] == list(cache["pods"])
        assert registration.active
        go()
        assert "b" == names.hear()
        assert ["p/b"] == list(cache["pods"])


def test_attaching_is_retried_at_a_slow_pace(
    name: str, left: tuple[shmcache.Cache, Names, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated refusal wakes nothing: a sleeper between two writers does not spin on it."""
    cache, _, _ = left
    old = cache._reader
    one: Any = Succession(cache._place)
    with crowded(name, monkeypatch):
        monkeypatch.setattr(succession, "_LOOK_SECONDS", 3600.0)
        assert one.possible(old)
        assert one.find(old) is None
        assert not one.possible(old)
        one._retry_at = 0.0
        assert one.possible(old)


def test_a_failure_that_cannot_even_be_logged_is_retried_at_a_slow_pace(
    name: str,
    left: tuple[shmcache.Cache, Names, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No descriptor is left to import the log with."""
    cache, _, _ = left
    one: Any = Succession(cache._place)
    real = builtins.__import__

    def refusing(module: str, *more: Any) -> Any:
        if module == "logging":
            raise OSError(errno.EMFILE, "Too many open files")
        return real(module, *more)

    with crowded(name, monkeypatch):
        monkeypatch.setattr(succession, "_LOOK_SECONDS", 3600.0)
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "__import__", refusing)
            assert one.find(cache._reader) is None
        assert not one.possible(cache._reader)
        one._retry_at = 0.0
        caplog.clear()
        assert one.find(cache._reader) is None
        assert "cannot be read yet" in caplog.text


# ---- memory that the writer takes back ---------------------------------------------------------


@pytest.fixture
def greedy(name: str) -> Iterator[shmcache.Writer]:
    """It reclaims nearly everything that readers hold."""
    with shmcache.Writer(
        name, ["pods"], arena_max="64MiB", ring_slots=16, ring_bytes=4096, garbage_max=4096
    ) as writer:
        writer.set_state("pods", states.SYNCED, "1")
        yield writer


def taken_back(writer: shmcache.Writer, cache: shmcache.Cache) -> Any:
    """A root whose memory the writer took back."""
    root = None
    for version in range(2, 1000):
        with writer.batch():
            writer.apply("pods", [pod(f"n{n}", version) for n in range(300)])
        writer.reclaim()
        if root is None:
            root, _ = cache.look("pods")  # of more than garbage_max
        elif not root.valid:
            return root
    raise AssertionError("nothing was taken back: the test proves nothing")


def test_g13_a_feed_that_loses_its_memory_during_a_pass_repeats_the_pass(
    greedy: shmcache.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was stopped for long in the middle of a pass."""
    greedy.apply("pods", [pod("a", 1)])
    with shmcache.attach(greedy.name) as cache:
        names = Names()
        gone, look = taken_back(greedy, cache), cache.look
        answers = [(gone, 0)] * 3
        monkeypatch.setattr(cache, "look", lambda name: answers.pop() if answers else look(name))
        registration = cache["pods"].add_handler(names)
        cache.start()
        assert registration.wait_synced(PATIENCE)
        assert not answers
        assert 301 == registration.handled


def test_g15_a_resync_that_loses_its_memory_repeats_its_page(
    greedy: shmcache.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy.apply("pods", [pod("a", 1)])
    with shmcache.attach(greedy.name) as cache:
        gone, look = taken_back(greedy, cache), cache.look
        feed = cache.informer.feed(Wanted("pods", (None,) * 3, **dict.fromkeys(OPTIONS)))
        assert 301 == sum(1 for _ in feed.drain())

        monkeypatch.setattr(cache, "look", lambda _: (gone, 0))
        assert ([], "p/n1") == feed.replay("p/n1", 256)
        monkeypatch.setattr(cache, "look", look)
        found, after = feed.replay("p/n1", 256)
        assert (256, found[-1][1].key) == (len(found), after)
        feed.close()


def test_g15_a_page_that_a_handler_lost_is_delivered_again(
    greedy: shmcache.Writer,
) -> None:
    now, seen = [0.0], queue.SimpleQueue[str]()
    greedy.apply("pods", [pod("a", 1), pod("b", 1)])
    with shmcache.attach(greedy.name) as cache:

        def updated(_: Any, new: Any) -> None:
            if name_of(new) == "a" and seen.empty():
                seen.put("a")
                taken_back(greedy, cache)
                name_of(new)  # raises StaleObjectError
            seen.put(name_of(new))

        cache.informer.clock = lambda: now[0]
        registration = cache["pods"].add_handler(None, updated, resync=60, labels="!x")
        cache.start()
        assert registration.wait_synced(PATIENCE)
        now[0] = 61.0
        cache.wake()
        while seen.get(timeout=PATIENCE) != "b":
            pass
        assert 0 == registration.errors


def test_g15_a_page_that_an_async_handler_lost_is_delivered_again(
    greedy: shmcache.Writer,
) -> None:
    now, seen = [0.0], list[str]()
    greedy.apply("pods", [pod("a", 1), pod("b", 1)])

    async def follow(cache: shmcache.Cache) -> None:
        ended = asyncio.Event()

        async def updated(_: Any, new: Any) -> None:
            if not seen:
                seen.append(name_of(new))
                taken_back(greedy, cache)
                name_of(new)  # raises StaleObjectError
            seen.append(name_of(new))
            if seen[-1] == "b":
                ended.set()

        cache.informer.clock = lambda: now[0]
        registration: Any = cache["pods"].add_handler(None, updated, resync=60, labels="!x")
        with pytest.raises(RuntimeError, match="does not run yet"):
            await registration.synced()
        cache.start()
        assert await asyncio.wait_for(registration.synced(), PATIENCE)
        now[0] = 61.0
        greedy.apply("pods", [pod("c", 1)])  # wakes it
        await asyncio.wait_for(ended.wait(), PATIENCE)
        assert ["a", "a"] == seen[:2]
        assert 0 == registration.errors
        await registration.removed()

    with shmcache.attach(greedy.name) as cache:
        asyncio.run(follow(cache))


# ---- fork --------------------------------------------------------------------------------------


def counting(pipe: Connection, registration: Any) -> None:
    pipe.send((registration.handled, registration.counts["ADDED"], registration.lapses))


def test_g19_a_child_has_counted_nothing_yet(
    small: shmcache.Writer, attached: shmcache.Cache
) -> None:
    small.apply("pods", [pod("a", 1)])
    registration = attached["pods"].add_handler(Names())
    attached.start()
    assert registration.wait_synced(PATIENCE)
    assert 1 == registration.handled
    with Worker("fork", counting, registration) as child:
        assert (0, 0, 0) == child.hear()


FORKING = """
import os, sys, shmcache
me, children = os.getpid(), []
def fork(obj, initial):
    print(os.getpid() == me, obj["metadata"]["name"], flush=True)
    if os.getpid() == me and not children:
        children.append(os.fork())
with shmcache.attach(sys.argv[1]) as cache:
    registration = cache["pods"].add_handler(fork)
    cache.start()
    registration.wait_synced(60)
    os.waitpid(children[0], 0)
"""


def test_g19_a_child_that_a_handler_forked_receives_nothing_after_the_fork(
    small: shmcache.Writer,
) -> None:
    small.apply("pods", [pod("a", 1), pod("b", 1), pod("c", 1)])
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, small.name],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (0, "") == (ended.returncode, ended.stderr)
    assert ["True a", "True b", "True c"] == ended.stdout.splitlines()
