"""Durable consumers (G49): nothing is lost over restarts and kills; gaps become differences."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import json
import logging
import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmcache
from shmcache import states
from shmcache.handlers import cursorfile
from shmcache.handlers.aio import bell_of
from shmcache.handlers.consumer import ConsumedEvent, Consumer

PATIENCE = 30.0
Story = list[tuple[str, str]]


def pod(name: str, version: int, app: str = "web", uid: str | None = None) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "prod",
            "name": name,
            "uid": uid or f"u-{name}",
            "resourceVersion": str(version),
            "labels": {"app": app},
        },
    }


def story(events: list[ConsumedEvent]) -> Story:
    return [(event.type, event.key.removeprefix("prod/")) for event in events]


def drained(consumer: Consumer, limit: int = 512) -> list[ConsumedEvent]:
    """Everything there is now, acknowledged."""
    found = []
    while events := consumer.take(limit, timeout=0):
        consumer.acknowledge()
        found += events
    return found


@pytest.fixture
def opened(
    cache: shmcache.Cache, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., Consumer]:
    def open_one(name: str = "scheduler", **options: Any) -> Consumer:
        consumer = cache["pods"].consumer(name, str(tmp_path), **options)
        request.addfinalizer(consumer.close)
        return consumer

    return open_one


def test_a_successor_goes_on_behind_the_last_acknowledgement(
    writer: shmcache.Writer, opened: Callable[..., Consumer]
) -> None:
    writer.apply("pods", [pod("a", 1), pod("b", 2)])
    with opened() as first:
        events = first.take()
        assert story(events) == [("ADDED", "a"), ("ADDED", "b")]
        assert all(event.initial for event in events)
        first.acknowledge(events[0])
    writer.apply("pods", [pod("c", 3)])
    writer.delete("pods", "prod/a")

    with opened() as second:
        events = drained(second)
        assert sorted(story(events)) == [("ADDED", "b"), ("ADDED", "c"), ("DELETED", "a")]
    writer.apply("pods", [pod("b", 4)])
    with opened() as third:
        (event,) = third.take(timeout=PATIENCE)
        assert (event.type, event.initial, event.unknown) == ("MODIFIED", False, False)
        assert (event.old, event.new) == (pod("b", 2), pod("b", 4))
        assert third.lapses == 0


def test_nothing_comes_twice_once_it_was_acknowledged(
    writer: shmcache.Writer, opened: Callable[..., Consumer]
) -> None:
    writer.apply("pods", [pod("a", 1)])
    with opened() as first:
        assert story(first.take()) == story(first.take()) == [("ADDED", "a")]
        first.acknowledge()
        first.acknowledge()
        assert first.take(timeout=0) == []
    with opened() as second:
        assert second.take(timeout=0) == []


def test_an_object_that_left_the_selection_is_not_deleted(
    writer: shmcache.Writer, opened: Callable[..., Consumer]
) -> None:
    writer.apply("pods", [pod("a", 1), pod("b", 2), pod("other", 3, "db")])
    consumer = opened(labels="app=web")
    assert story(drained(consumer)) == [("ADDED", "a"), ("ADDED", "b")]
    writer.apply("pods", [pod("a", 4, "db"), pod("other", 5, "web")])
    writer.delete("pods", "prod/b")
    writer.delete("pods", "prod/a")  # it is not one of ours any more

    events = drained(consumer)

    assert story(events) == [("LEFT", "a"), ("ADDED", "other"), ("DELETED", "b")]
    assert events[0].new == pod("a", 4, "db")
    assert not events[1].initial


@pytest.mark.parametrize("gap", ["lapse", "instance"])
def test_over_a_gap_the_difference_comes(
    name: str, tmp_path: Path, gap: str, caplog: pytest.LogCaptureFixture
) -> None:
    pods = [pod(letter, number) for number, letter in enumerate("abcde", 1)]
    writer = shmcache.Writer(name, ["pods"])
    writer.apply("pods", pods)
    with shmcache.attach(name) as cache:
        with cache["pods"].consumer("x", str(tmp_path), labels="app=web") as consumer:
            drained(consumer)
        changes = [pod("b", 7), pod("c", 8, "db"), pod("d", 9, uid="new"), pod("f", 10)]
        if gap == "lapse":
            writer.apply("pods", changes)
            writer.delete("pods", "prod/e")
            writer.drop_window()
        else:
            writer.close()
            writer = shmcache.Writer(name, ["pods"], fresh=True)
            writer.apply("pods", [pods[0], *changes])
    with shmcache.attach(name) as cache:
        with cache["pods"].consumer("x", str(tmp_path), labels="app=web") as consumer:
            events = drained(consumer, limit=2)
            assert consumer.lapses == 1
            assert drained(consumer) == []
        with cache["pods"].consumer("x", str(tmp_path), labels="app=web") as consumer:
            assert consumer.take(timeout=0) == []
    writer.close()

    assert story(events) == [
        ("DELETED", "e"),
        ("MODIFIED", "b"),
        ("LEFT", "c"),
        ("DELETED", "d"),
        ("ADDED", "d"),
        ("ADDED", "f"),
    ]
    assert all(event.unknown or event.type == "ADDED" for event in events)
    assert events[0].old == shmcache.Tombstone("prod/e", "u-e", "5")
    assert not any(event.initial for event in events)
    assert not caplog.records


def test_no_difference_is_taken_to_a_resource_that_is_not_listed(name: str, tmp_path: Path) -> None:
    """CONSUME4: a new instance that has begun to list would look like the end of everything."""
    with shmcache.Writer(name, ["pods"]) as writer, shmcache.attach(name) as cache:
        writer.apply("pods", [pod("a", 1)])
        with cache["pods"].consumer("x", str(tmp_path)) as consumer:
            drained(consumer)
    with shmcache.Writer(name, ["pods"], fresh=True) as writer, shmcache.attach(name) as cache:
        writer.set_state("pods", states.LISTING)
        with cache["pods"].consumer("x", str(tmp_path)) as consumer:
            assert consumer.take(timeout=0) == []
            writer.apply("pods", [pod("b", 1)])
            assert consumer.take(timeout=0) == []
            writer.set_state("pods", states.SYNCED, "2")
            assert story(drained(consumer)) == [("DELETED", "a"), ("ADDED", "b")]


def test_another_selection_is_a_difference(
    writer: shmcache.Writer, opened: Callable[..., Consumer]
) -> None:
    writer.apply("pods", [pod("a", 1, "web"), pod("b", 2, "db")])
    with opened(labels="app=web") as consumer:
        drained(consumer)
    with opened(labels="app=db") as consumer:
        assert story(drained(consumer)) == [("LEFT", "a"), ("ADDED", "b")]


def test_another_uid_is_an_end_and_a_beginning_even_if_only_one_is_acknowledged(
    writer: shmcache.Writer, opened: Callable[..., Consumer]
) -> None:
    writer.apply("pods", [pod("a", 1)])
    with opened() as consumer:
        drained(consumer)
        writer.apply("pods", [pod("a", 2, uid="new")])
        (ended, added) = consumer.take()
        assert story([ended, added]) == [("DELETED", "a"), ("ADDED", "a")]
        consumer.acknowledge(ended)
    with opened() as consumer:
        assert story(drained(consumer)) == [("ADDED", "a")]


def test_limits_hold_and_only_returned_events_are_acknowledged(
    writer: shmcache.Writer, opened: Callable[..., Consumer]
) -> None:
    writer.apply("pods", [pod("a", 1)])
    consumer = opened()
    drained(consumer)
    writer.apply("pods", [pod("a", 2, uid="new"), pod("b", 3)])

    first = consumer.take(1)
    consumer.acknowledge()

    assert story(first) == [("DELETED", "a")]
    assert story(drained(consumer, limit=1)) == [("ADDED", "a"), ("ADDED", "b")]
    with pytest.raises(ValueError, match="at least 1"):
        consumer.take(0)
    with pytest.raises(ValueError, match="not an event of the last"):
        consumer.acknowledge(first[0])


def test_a_loop_acknowledges_as_it_goes(
    writer: shmcache.Writer, opened: Callable[..., Consumer]
) -> None:
    writer.apply("pods", [pod("a", 1), pod("b", 2), pod("c", 3)])
    with opened() as consumer:
        for number, _ in enumerate(consumer):
            if number == 2:
                break  # the third one is not dealt with
    with opened() as consumer:
        assert story(drained(consumer)) == [("ADDED", "c")]


@pytest.mark.parametrize("named", [True, False])
def test_in_a_loop_an_acknowledgement_is_of_the_event_at_hand(
    writer: shmcache.Writer, opened: Callable[..., Consumer], *, named: bool
) -> None:
    """It once covered the rest of the batch, which a death of the process then lost."""
    writer.apply("pods", [pod(key, 1) for key in "abcd"])
    consumer = opened()
    for event in consumer:
        consumer.acknowledge(event if named else None)
        if event.key == "prod/b":
            break
    consumer.close()
    assert story(opened().take(timeout=0)) == [("ADDED", "c"), ("ADDED", "d")]


def test_events_on_asyncio(writer: shmcache.Writer, opened: Callable[..., Consumer]) -> None:
    writer.apply("pods", [pod("a", 1)])
    consumer = opened()

    async def main() -> Story:
        found: Story = []
        assert await opened("other").take_async(timeout=0.01) != []
        async for event in consumer:
            found += story([event])
            if event.key == "prod/b":
                break
            writer.apply("pods", [pod("b", 2)])
        assert await opened("idle").take_async(timeout=0.01) != []
        bell_of(consumer._cache.informer).close()
        return found

    assert asyncio.run(main()) == [("ADDED", "a"), ("ADDED", "b")]


def test_a_sleeping_consumer_is_woken(
    writer: shmcache.Writer, opened: Callable[..., Consumer]
) -> None:
    import threading

    consumer = opened()
    timer = threading.Timer(0.05, lambda: writer.apply("pods", [pod("a", 1)]))
    timer.start()

    assert story(consumer.take(timeout=PATIENCE)) == [("ADDED", "a")]
    timer.join()


# ---- the file ------------------------------------------------------------------------------------


def test_a_name_has_one_process(opened: Callable[..., Consumer], tmp_path: Path) -> None:
    first = opened()
    with pytest.raises(shmcache.BusyError, match="another one has"):
        opened()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            opened()
        except shmcache.BusyError:
            os.write(writing, b"busy")
        try:
            first.take(timeout=0)
        except shmcache.ForkedError:
            os.write(writing, b" forked")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 99) == b"busy forked"
    os.close(reading)
    os.close(writing)
    first.close()
    opened().close()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "scheduler.cursor",
        "scheduler.lock",
    ]


def test_a_name_has_one_consumer_by_any_way_to_its_directory(
    cache: shmcache.Cache, opened: Callable[..., Consumer], tmp_path: Path
) -> None:
    """CURSOR5: two that share a file would each cut off what the other acknowledged."""
    way = tmp_path.with_name(tmp_path.name + "-way")
    way.symlink_to(tmp_path)
    first = opened()
    with pytest.raises(shmcache.BusyError, match="another one has"):
        cache["pods"].consumer("scheduler", str(way))
    first.close()
    cache["pods"].consumer("scheduler", str(way)).close()


def test_of_threads_that_open_a_name_one_has_it(
    opened: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CURSOR5: the second thread comes while the first one opens the lock's file."""
    came: list[object] = []
    lockf = fcntl.lockf

    def crossed(file: int, how: int) -> None:
        if not came:
            came.append(None)
            with pytest.raises(shmcache.BusyError, match="another one has"):
                opened()
        lockf(file, how)

    monkeypatch.setattr(fcntl, "lockf", crossed)
    opened().close()
    assert came


@pytest.mark.parametrize("end", ["cursor", "lock", "cursor.draft"])
def test_a_link_in_the_directory_leads_nowhere(
    opened: Callable[..., Consumer], tmp_path: Path, end: str
) -> None:
    """CURSOR6: in a directory of many users, another one may have put it there."""
    other = tmp_path / "other"
    other.write_text("somebody's")
    (tmp_path / f"scheduler.{end}").symlink_to(other)
    if end == "cursor.draft":
        opened().close()
    else:
        with pytest.raises(shmcache.ShmCacheError, match="is a symbolic link: remove it"):
            opened()
    assert other.read_text() == "somebody's"
    (tmp_path / f"scheduler.{end}").unlink(missing_ok=True)
    opened("scheduler").close()


@pytest.mark.parametrize("end", ["cursor", "lock"])
def test_a_file_of_another_user_is_refused(
    opened: Callable[..., Consumer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    """CURSOR7: who writes the state of a consumer decides which objects it never sees."""
    opened().close()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(shmcache.UntrustedSegment, match=rf"{end} belongs to uid \d+: remove"):
            cursorfile._opened(str(tmp_path / f"scheduler.{end}"), os.O_RDONLY)
        with pytest.raises(shmcache.UntrustedSegment, match=r"lock belongs to uid"):
            opened()
    opened().close()


@pytest.mark.parametrize("end", ["cursor", "lock"])
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_refused(
    opened: Callable[..., Consumer], tmp_path: Path, mode: int, end: str
) -> None:
    opened().close()
    (tmp_path / f"scheduler.{end}").chmod(mode)
    with pytest.raises(shmcache.UntrustedSegment, match=f"{end} is writable for others"):
        opened()
    (tmp_path / f"scheduler.{end}").chmod(0o600)
    opened().close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as other users")
def test_a_file_that_cannot_be_opened_is_refused_with_its_owner() -> None:
    """CURSOR7, in a process of another user: BusyError would let it try for ever."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        (Path(directory) / "scheduler.lock").touch(0o600)
        child = os.fork()
        if child == 0:
            try:
                os.setuid(65534)
                with pytest.raises(shmcache.UntrustedSegment, match="lock belongs to uid 0"):
                    cursorfile.CursorFile(directory, "scheduler", "pods", "")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_pipe_is_refused_and_blocks_nobody(
    opened: Callable[..., Consumer], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "scheduler.cursor")
    with pytest.raises(shmcache.ShmCacheError, match="is not a plain file: remove it"):
        opened()


@pytest.mark.parametrize("wrong", ["", "../other", "a/b", ".hidden", "x" * 101])
def test_a_name_is_the_name_of_a_file(opened: Callable[..., Consumer], wrong: str) -> None:
    with pytest.raises(ValueError, match="the name of a consumer"):
        opened(wrong)


def test_a_name_belongs_to_a_resource(cache: shmcache.Cache, tmp_path: Path) -> None:
    cache["pods"].consumer("x", str(tmp_path)).close()
    with pytest.raises(ValueError, match=r"is of pods, not of nodes: give this consumer another"):
        cache["nodes"].consumer("x", str(tmp_path))


def test_a_directory_must_exist(cache: shmcache.Cache, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cache["pods"].consumer("x", str(tmp_path / "missing"))


def test_a_file_that_is_something_else_is_refused(
    opened: Callable[..., Consumer], tmp_path: Path
) -> None:
    (tmp_path / "scheduler.cursor").write_text("my notes\n")
    with pytest.raises(shmcache.ShmCacheError, match="remove it, and the consumer begins with all"):
        opened()
    assert (tmp_path / "scheduler.cursor").read_text() == "my notes\n"


def test_any_cut_and_any_flipped_byte_leaves_an_earlier_state(
    writer: shmcache.Writer, opened: Callable[..., Consumer], tmp_path: Path, rng: random.Random
) -> None:
    """CURSOR1: what a damaged file says was true once, so a difference from there is right."""
    for number in range(12):
        writer.apply("pods", [pod(f"p-{number % 5}", number + 1)])
        with opened() as consumer:
            drained(consumer)
    path = tmp_path / "scheduler.cursor"
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    for damaged in [
        *(whole[:end] for end in range(header, len(whole), 7)),
        *(
            whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :]
            for at in rng.sample(range(header, len(whole)), 40)
        ),
    ]:
        path.write_bytes(damaged)
        with opened() as consumer:
            drained(consumer)
            assert consumer._file.known == {
                f"prod/p-{n}": (f"u-p-{n}", str(11 + n if n < 2 else 6 + n)) for n in range(5)
            }
        path.unlink()
        path.write_bytes(whole)


def test_a_full_disk_acknowledges_nothing(
    writer: shmcache.Writer,
    opened: Callable[..., Consumer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CURSOR3, with the first half of the record written."""
    writer.apply("pods", [pod("a", 1)])
    consumer = opened()
    events = consumer.take()
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[: len(data) - 10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            consumer.acknowledge(events[0])
    assert story(consumer.take()) == [("ADDED", "a")]
    consumer.acknowledge()
    consumer.close()
    assert opened().take(timeout=0) == []


def test_a_file_that_has_grown_is_replaced_by_a_short_one(
    writer: shmcache.Writer,
    opened: Callable[..., Consumer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where each write leaves its last byte for the next one."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: len(data) - 1 or 1]))
    monkeypatch.setattr(cursorfile, "GROWN", 2_000)
    consumer = opened()
    sizes = []
    for number in range(200):
        writer.apply("pods", [pod("a", number)])
        drained(consumer)
        sizes.append((tmp_path / "scheduler.cursor").stat().st_size)
    assert max(sizes) < 2_200
    assert sum(a > b for a, b in itertools.pairwise(sizes)) >= 5

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "fsync", _raise_full)
        for number in range(200, 300):
            writer.apply("pods", [pod("a", number)])
            drained(consumer)  # it grows, and goes on
    assert "cannot be replaced by a shorter one yet" in caplog.text
    assert not list(tmp_path.glob("*.draft"))  # the records need the room of a full disk
    consumer.close()
    assert opened()._file.known == {"prod/a": ("u-a", "299")}


def _raise_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# ---- against a twin ------------------------------------------------------------------------------


class Twin:
    """The objects of a program that believes its events."""

    def __init__(self) -> None:
        self.objects: dict[str, str] = {}

    def apply(self, event: ConsumedEvent) -> None:
        match event.type:
            case "ADDED":
                assert event.key not in self.objects
                self.objects[event.key] = event.new.metadata.resourceVersion
            case "MODIFIED":
                assert event.key in self.objects
                self.objects[event.key] = event.new.metadata.resourceVersion
            case _:
                del self.objects[event.key]
                assert (event.new is None) == (event.type == "DELETED")


def test_random_changes_restarts_and_lapses_end_at_the_same_objects(
    writer: shmcache.Writer,
    cache: shmcache.Cache,
    opened: Callable[..., Consumer],
    rng: random.Random,
) -> None:
    twin, version = Twin(), 0
    writer.apply("pods", [pod("always", 1, "web")])
    consumer = opened(labels="app=web")
    for _ in range(600):
        match rng.randrange(12):
            case 0 | 1 | 2 | 3 | 4 | 5:
                version += 1
                name = f"p-{rng.randrange(8)}"
                uid = f"u-{name}-{rng.randrange(40) // 39}"
                app = rng.choice(["web", "web", "db"])
                writer.apply("pods", [pod(name, version, app, uid)])
            case 6 | 7:
                writer.delete("pods", f"prod/p-{rng.randrange(8)}")
            case 8:
                writer.drop_window()
            case 9:
                consumer.close()
                consumer = opened(labels="app=web")
            case _:
                events = consumer.take(rng.randrange(1, 5), timeout=0)
                if events:
                    last = rng.randrange(len(events))
                    consumer.acknowledge(events[last])
                    for event in events[: last + 1]:
                        twin.apply(event)
    for event in drained(consumer):
        twin.apply(event)

    selected = cache["pods"].list(labels="app=web")
    assert twin.objects == {
        f"prod/{one.metadata.name}": one.metadata.resourceVersion for one in selected
    }


def test_events_whose_memory_was_taken_back_come_again(name: str, tmp_path: Path) -> None:
    """The writer needed the memory of a batch that was not acknowledged (G2)."""
    with (
        shmcache.Writer(
            name, ["pods"], arena_max="64MiB", ring_slots=1 << 14, garbage_max=4096
        ) as writer,
        shmcache.attach(name) as cache,
        cache["pods"].consumer("x", str(tmp_path), labels="app=web") as consumer,
    ):
        writer.apply("pods", [pod(f"n{n}", 4, "noise") for n in range(300)])
        writer.apply("pods", [pod("a", 1), pod("b", 2)])
        drained(consumer)
        writer.apply("pods", [pod("a", 3), pod("c", 4)])
        writer.delete("pods", "prod/b")
        batch = consumer.take()
        assert story(batch) == [("MODIFIED", "a"), ("ADDED", "c"), ("DELETED", "b")]
        _take_back(writer, batch[0].new)

        again = drained(consumer)

        assert consumer.lapses == 0

    assert sorted(story(again)) == [("ADDED", "c"), ("DELETED", "b"), ("MODIFIED", "a")]


def _take_back(writer: shmcache.Writer, view: Any) -> None:
    for version in range(5, 1000):
        writer.apply("pods", [pod(f"n{n}", version, "noise") for n in range(300)])
        writer.reclaim()
        if repr(view).startswith("<View: Stale"):
            return
    raise AssertionError("nothing was taken back: the test proves nothing")


# ---- kill -9 -------------------------------------------------------------------------------------

STEPS = ("open", "write", "ftruncate", "fsync", "rename", "close")


class Dying:
    """os, whose n-th call ends the process: before it, or in the middle of a write."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in STEPS:
            return real

        def step(*args: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args)

        return step


def _consume(name: str, directory: str, log: int, steps: int) -> None:
    """In a child: notes each event before it is acknowledged, and each acknowledgement."""
    vars(cursorfile)["os"] = Dying(steps)
    cursorfile.GROWN = 700
    with (
        shmcache.attach(name) as cache,
        cache["pods"].consumer("x", directory, labels="app=web") as consumer,
    ):
        while events := consumer.take(3, timeout=0):
            for event in events[:2]:
                os.write(log, _note(event))
            consumer.acknowledge(events[:2][-1])
            os.write(log, b'"acknowledged"\n')


def _note(event: ConsumedEvent) -> bytes:
    return (
        json.dumps([event.type, event.key, event.object.metadata.resourceVersion]).encode() + b"\n"
    )


def _history(writer: shmcache.Writer) -> Iterator[tuple[str, str, str]]:
    """Changes of 4 pods, and the events that they are."""
    version = 1
    for turn in range(4):
        for name in ("a", "b", "c", "d"):
            version += 1
            writer.apply("pods", [pod(name, version)])
            yield ("MODIFIED" if turn else "ADDED"), f"prod/{name}", str(version)
        if turn == 2:
            writer.delete("pods", "prod/d")
            yield "DELETED", "prod/d", str(version)
            version += 1
            writer.apply("pods", [pod("d", version)])
            yield "ADDED", "prod/d", str(version)


def test_a_kill_at_any_step_loses_no_event(writer: shmcache.Writer, tmp_path: Path) -> None:
    """The successor goes on: behind the last acknowledgement at the earliest, without a gap."""
    writer.apply("pods", [pod("z", 1)])
    survived = False
    steps = 0
    with shmcache.attach(writer.name) as cache:
        while not survived:
            steps += 1
            directory = tmp_path / str(steps)
            directory.mkdir()
            for old in ("a", "b", "c", "d"):
                writer.delete("pods", f"prod/{old}")
            with cache["pods"].consumer("x", str(directory), labels="app=web") as consumer:
                drained(consumer)
            expected = [list(event) for event in _history(writer)]
            before, survived = _killed(writer.name, directory, steps)
            with cache["pods"].consumer("x", str(directory), labels="app=web") as consumer:
                rest = [json.loads(_note(event)) for event in drained(consumer)]
                assert consumer.lapses == 0
            acknowledged = max(
                (n for n, one in enumerate(before) if one == "acknowledged"), default=0
            )
            sure = [one for one in before[:acknowledged] if one != "acknowledged"]
            seen = [one for one in before if one != "acknowledged"]
            with cache["pods"].consumer("x", str(directory), labels="app=web") as consumer:
                assert consumer.take(timeout=0) == []  # CURSOR1: it wrote behind whole records
            taken = len(expected) - len(rest)
            assert expected[taken:] == rest
            assert seen[:taken] == expected[:taken]
            assert len(sure) <= taken <= len(seen)
    assert steps > 20


def _killed(name: str, directory: Path, steps: int) -> tuple[list[Any], bool]:
    log = os.open(directory / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    child = os.fork()
    if child == 0:
        try:
            _consume(name, str(directory), log, steps)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    os.close(log)
    survived = os.waitstatus_to_exitcode(status) == 0
    assert survived or os.WIFSIGNALED(status)
    lines = (directory / "log").read_text().splitlines()
    return [json.loads(line) for line in lines], survived


def test_a_consumer_remembers_nothing_of_acknowledged_events(
    writer: shmcache.Writer, opened: Callable[..., Consumer]
) -> None:
    """Not of deleted objects either, of which there are ever more."""
    with opened() as consumer:
        for number in range(3):
            writer.apply("pods", [pod(f"a-{number}", 2 * number + 1)])
            assert 1 == len(drained(consumer))
            writer.delete("pods", f"prod/a-{number}", str(2 * number + 2))
            assert 1 == len(drained(consumer))
            assert {} == consumer._after == dict(consumer._file.known)


@pytest.mark.parametrize("metadata", ["text", None, 5, [], {"resourceVersion": 7, "uid": []}])
def test_an_object_of_another_shape_ends_no_consumer(
    writer: shmcache.Writer, opened: Callable[..., Consumer], metadata: Any
) -> None:
    """By deltas, and by the difference of a successor."""
    with opened() as consumer:
        writer.put("pods", "prod/odd", {"metadata": metadata})
        writer.put("pods", "prod/none", {})
        writer.apply("pods", [pod("a", 1)])
        events = drained(consumer)
        assert sorted(story(events)) == [("ADDED", "a"), ("ADDED", "none"), ("ADDED", "odd")]
    writer.replace("pods", [pod("a", 1)])
    writer.put("pods", "prod/odd", {"metadata": metadata})
    with opened() as successor:
        assert ("DELETED", "none") in story(drained(successor))
