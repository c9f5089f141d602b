"""Invariant tested: another process reads a write exactly when its wait has ended.

The five scenarios of client-go's mutation_cache_test.go, where the overlay is a wait: a worker that
wrote to the server waits for the version it got, or for the deletion of the UID, and then reads.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from workers import METHODS, Method, Worker, await_sleep

import shmcache
from shmcache import states

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def writer(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, ["pods", "nodes"], arena_max="16MiB", ring_slots=256) as made:
        yield made
        made.check()


def asker(pipe: Connection, name: str) -> None:
    """Reports its seat; then calls the requested methods of pods, and reports their results."""
    with shmcache.attach(name) as cache:
        pipe.send(cache.seat)
        while True:
            method, *arguments = pipe.recv()
            answer = getattr(cache["pods"], method)(*arguments)
            found = cache["pods"].get("pod")
            pipe.send((answer, found and (found["metadata"]["uid"], found["rv"])))


def follower(pipe: Connection, name: str) -> None:
    with shmcache.attach(name) as cache:
        cursor = cache.follow("pods")
        pipe.send(cache.seat)
        cache.wait(cursor)
        pipe.send([delta.key for delta in cursor.take()])


def put(writer: shmcache.Writer, uid: str, version: str) -> None:
    with writer.batch():
        writer.put("pods", "pod", {"metadata": {"uid": uid}, "rv": version}, version)
        writer.set_state("pods", states.SYNCED, version)


def delete(writer: shmcache.Writer, version: str) -> None:
    with writer.batch():
        writer.delete("pods", "pod", version)
        writer.set_state("pods", states.SYNCED, version)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_write_is_readable_when_its_version_has_arrived(
    writer: shmcache.Writer, method: Method
) -> None:
    """OnAddOrUpdate: an older version does not end the wait, an equal or newer one does."""
    put(writer, "uid-1", "1")
    with Worker(method, asker, writer.name) as worker:
        seat = worker.hear()
        for awaited, older, comes in (("3", "2", "3"), ("5", "4", "6")):
            worker.tell(("wait_for", awaited))
            await_sleep(writer, [seat])
            put(writer, "uid-1", older)
            await_sleep(writer, [seat])
            assert worker.silent()
            put(writer, "uid-1", comes)
            assert worker.hear() == (True, ("uid-1", comes))


@pytest.mark.slow
def test_a_bookmark_wakes_only_waits_for_its_version(writer: shmcache.Writer) -> None:
    put(writer, "uid-1", "1")
    with (
        Worker("spawn", asker, writer.name) as worker,
        Worker("spawn", follower, writer.name) as other,
        shmcache.attach(writer.name) as cache,
    ):
        seats = [worker.hear(), other.hear()]
        worker.tell(("wait_for", "2"))
        await_sleep(writer, seats)
        before, wakes = cache.latest, writer.stats()["wakes"]

        writer.set_state("nodes", states.ABSENT, "7")  # another resource's version
        writer.set_state("pods", states.SYNCED, "2")  # the state stays as it was

        assert worker.hear() == (True, ("uid-1", "1"))
        assert writer.stats()["wakes"] == wakes + 1
        assert not cache.wait(before, 0)  # it does not wake waits for objects
        assert other.silent()
        delete(writer, "3")
        assert other.hear() == ["pod"]


@pytest.mark.slow
def test_a_deletion_is_recognized_by_its_uid(writer: shmcache.Writer) -> None:
    """OnDelete: only the deletion of this UID counts, whatever version it had."""
    put(writer, "uid-1", "2")
    with Worker("spawn", asker, writer.name) as worker:
        seat = worker.hear()
        worker.tell(("wait_deleted", "pod", "uid-1"))
        await_sleep(writer, [seat])
        put(writer, "uid-1", "3")
        await_sleep(writer, [seat])
        assert worker.silent()
        delete(writer, "4")
        assert worker.hear() == (True, None)
        assert worker.ask(("wait_deleted", "pod", "uid-1", 0)) == (True, None)
        put(writer, "uid-2", "5")
        assert worker.ask(("wait_deleted", "pod", "uid-1", 0)) == (True, ("uid-2", "5"))
        assert worker.ask(("wait_deleted", "pod", "uid-2", 0)) == (False, ("uid-2", "5"))


@pytest.mark.slow
def test_an_update_of_a_deleted_object_resurrects_nothing(writer: shmcache.Writer) -> None:
    """UpdateConcurrentDelete: the deletion came before the updating worker reads."""
    put(writer, "uid-1", "1")
    with Worker("spawn", asker, writer.name) as worker:
        worker.hear()
        put(writer, "uid-1", "2")
        delete(writer, "3")

        assert worker.ask(("wait_for", "2")) == (True, None)


@pytest.mark.slow
def test_an_update_of_a_recreated_object_shows_the_new_one(writer: shmcache.Writer) -> None:
    """UpdateConcurrentRecreate."""
    put(writer, "uid-1", "1")
    with Worker("spawn", asker, writer.name) as worker:
        worker.hear()
        put(writer, "uid-1", "2")
        delete(writer, "3")
        put(writer, "uid-2", "4")

        assert worker.ask(("wait_for", "2")) == (True, ("uid-2", "4"))
        assert worker.ask(
            (
                "wait_deleted",
                "pod",
                "uid-1",
                0,
            )
        ) == (True, ("uid-2", "4"))


@pytest.mark.slow
def test_a_write_that_never_shows_ends_with_the_deletion(writer: shmcache.Writer) -> None:
    """OnDeleteClearsStaleMutation: the update's own event never came, only the deletion."""
    put(writer, "uid-1", "1")
    with Worker("spawn", asker, writer.name) as worker:
        seat = worker.hear()
        worker.tell(("wait_for", "2"))
        await_sleep(writer, [seat])
        delete(writer, "3")
        assert worker.hear() == (True, None)


@pytest.mark.slow
def test_synced_and_a_time_limit(writer: shmcache.Writer) -> None:
    with Worker("spawn", asker, writer.name) as worker:
        seat = worker.hear()
        worker.tell(("wait_synced",))
        await_sleep(writer, [seat])
        writer.set_state("pods", states.LISTING)
        writer.put("pods", "pod", {"metadata": {"uid": "u"}, "rv": "1"})
        await_sleep(writer, [seat])
        assert worker.silent()
        writer.set_state("pods", states.SYNCED, "1")
        assert worker.hear() == (True, ("u", "1"))
        assert worker.ask(("wait_for", "2", 0.01)) == (False, ("u", "1"))


def interrupted(pipe: Connection, name: str) -> None:
    def handler(number: int, _: Any) -> None:
        raise RuntimeError(f"signal {number}")

    signal.signal(signal.SIGUSR1, handler)
    with shmcache.attach(name) as cache:
        pipe.send(cache.seat)
        try:
            cache["pods"].wait_for("99")
        except RuntimeError as error:
            pipe.send(str(error))


@pytest.mark.slow
def test_a_signal_ends_the_wait_with_its_exception(writer: shmcache.Writer) -> None:
    with Worker("spawn", interrupted, writer.name) as worker:
        await_sleep(writer, [worker.hear()])
        worker.send_signal(signal.SIGUSR1)

        assert worker.hear() == f"signal {signal.SIGUSR1:d}"
