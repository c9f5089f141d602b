"""Invariant tested: a child of fork() can neither use nor harm its parent's handles."""

from __future__ import annotations

import gc
import os
import signal
import stat
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import shmcache
from shmcache.errors import ForkedError, SegmentNotFound
from shmcache.memory.segments import Place
from shmcache.reader import holding
from shmcache.reader.attachment import Attachment
from shmcache.reader.succession import Succession

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def in_child(what: Callable[[], None]) -> None:
    """Runs `what` in a forked child; its exception fails the test."""
    reader, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            what()
            os.write(sender, b"ok")
        except BaseException:  # noqa: BLE001 - whatever it is, the parent shows it
            os.write(sender, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(sender)
    with open(reader, encoding="utf-8") as pipe:
        report = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert (0, "ok") == (status, report), report


def test_the_parents_handles_are_refused_with_a_clear_text(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put("pods", "a", {"x": {"y": 1}})
    view, snapshot, cursor = cache["pods"]["a"], cache.snapshot(), cache.follow()

    def child() -> None:
        for refused in (
            lambda: writer.put("pods", "b", {}),
            writer.stats,
            lambda: view["x"]["y"],
            lambda: snapshot["pods"].get("a"),
            lambda: cache.wait(cursor, 1),
            cursor.take,
        ):
            with pytest.raises(ForkedError):
                refused()

    in_child(child)
    assert {"x": {"y": 1}} == view == cache["pods"]["a"]
    snapshot.close()


def test_a_cache_attaches_again_in_a_child_at_its_first_use(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """As under gunicorn's preload: a cache that a module attached serves each of its workers."""
    writer.put("pods", "a", {"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}})
    pods, seat = cache["pods"], cache.seat
    ways: list[Callable[[], object]] = [
        lambda: pods.get("a"),
        lambda: pods["a"],
        lambda: "a" in pods,
        lambda: len(pods),
        lambda: list(pods),
        lambda: pods.list(),
        lambda: pods.list(fields="spec.nodeName=n1"),
        lambda: pods.by_index("node", "n1"),
        lambda: pods.index_values("node"),
        lambda: pods.status,
        lambda: cache["pods"].record(),
        lambda: cache.snapshot(),
        lambda: cache.follow(),
        lambda: cache.latest,
        lambda: cache.resources,
        lambda: cache.wait(0, 1),
    ]
    for way in ways:

        def child(way: Callable[[], object] = way) -> None:
            assert way()
            assert seat != cache.seat
            view = pods["a"]
            assert "n1" == view["spec"]["nodeName"]

            def grandchild() -> None:
                assert "n1" == pods["a"]["spec"]["nodeName"]
                with pytest.raises(ForkedError):
                    len(view)

            in_child(grandchild)

        in_child(child)
    assert seat == cache.seat


def test_a_child_may_close_what_its_parent_attached(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    def child() -> None:
        assert 0 == len(cache["pods"])
        cache.close()
        with pytest.raises(shmcache.ClosedError):
            len(cache["pods"])

    in_child(child)
    writer.put("pods", "a", {})
    assert {} == cache["pods"]["a"]


def test_a_child_that_closes_everything_harms_nobody(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put("pods", "a", {"x": 1})
    seat = cache.seat

    def child() -> None:
        cache.close()
        writer.close()
        mine = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
        cache.close()
        writer.close()
        for fd in mine:
            os.close(fd)

    in_child(child)

    assert {"x": 1} == cache["pods"]["a"]
    assert seat == cache.seat
    writer.put("pods", "b", {})
    with pytest.raises(shmcache.BusyError):
        shmcache.Writer(writer.name)


def opened_as(number: int) -> list[int]:
    """Descriptors of a new pipe's end, the last of which has this number."""
    reader, sender = os.pipe()
    found = [reader, sender]
    while number not in found:
        assert len(found) < 100, "the number is in use"
        found.append(os.dup(sender))
    return found


def seats_descriptor(attachment: Attachment) -> int:
    return int(attachment.segments.owner.seats_fd)


def test_a_child_that_drops_its_parents_cache_closes_no_file_of_its_own(
    writer: shmcache.Writer,
) -> None:
    """OWNED3: the core has closed the seat's descriptor there; its number is another file's."""
    kept = [shmcache.attach(writer.name)]
    number = seats_descriptor(holding.attachment(kept[0].reader))

    def child() -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)
        mine = opened_as(number)
        kept.pop().close()
        gc.collect()
        assert stat.S_ISFIFO(os.fstat(number).st_mode)
        assert all(os.fstat(fd) for fd in mine)

    in_child(child)


def test_children_keep_files_that_got_the_number_of_a_collected_attachment(
    writer: shmcache.Writer,
) -> None:
    """OWNED3: the core forgets the descriptor of a seat before it is closed."""
    place = Place(writer.name)
    succession: Any = Succession(place)
    attachment = Attachment(place, succession)
    number = seats_descriptor(attachment)
    succession.candidate = attachment  # a cycle, as with the next instance
    del attachment, succession
    gc.collect()
    mine = opened_as(number)

    def child() -> None:
        assert stat.S_ISFIFO(os.fstat(number).st_mode)

    in_child(child)
    for fd in mine:
        os.close(fd)


def test_a_child_attaches_with_a_handle_of_its_own(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.put("pods", "a", {"x": 1})
    name, seat = writer.name, cache.seat

    def child() -> None:
        with shmcache.attach(name) as own:
            assert {"x": 1} == own["pods"]["a"]
            assert seat != own.seat

    in_child(child)


def test_a_child_does_not_keep_its_parents_locks(name: str) -> None:
    """The parent's seat and the writer's lock are released with the parent, despite its forks."""
    reader, sender = os.pipe()
    pid = os.fork()
    if pid == 0:  # the parent of the test: writes, attaches, forks, dies
        os.close(reader)
        writer = shmcache.Writer(name, ["pods"])
        cache = shmcache.attach(name)
        if os.fork() == 0:  # its child lives on
            signal.alarm(60)
            os.write(sender, b"%d\n" % os.getpid())
            os.close(sender)
            while True:
                signal.pause()
        os.write(sender, b"%d\n" % cache.seat)
        os.close(sender)
        signal.pause()
        writer.close()
    os.close(sender)
    with open(reader, encoding="ascii") as pipe:
        numbers = {int(line) for line in pipe}
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        with shmcache.Writer(name, ["pods"]) as successor, shmcache.attach(name):
            successor.put("pods", "a", {})
    finally:
        os.kill(max(numbers), signal.SIGKILL)


def test_a_killed_writer_leaves_its_readers_their_state(name: str) -> None:
    reader, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        writer = shmcache.Writer(name, ["pods"])
        writer.put("pods", "a", {"x": 1})
        os.write(sender, b"!")
        signal.pause()
    os.read(reader, 1)
    with shmcache.attach(name) as cache:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

        assert {"x": 1} == cache["pods"]["a"]
        with shmcache.Writer(name, ["pods"]):
            assert {"x": 1} == cache["pods"]["a"]
    with pytest.raises(SegmentNotFound):
        shmcache.attach(name)
    os.close(reader)
    os.close(sender)
