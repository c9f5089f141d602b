"""Invariant tested: a writer whose files were removed is found again, with its whole content;
attached readers lose nothing; another writer's cache at the name stays untouched (G41, G46)."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from workers import PATIENCE, Worker, eventually

import shmcache
from shmcache import _native, states
from shmcache.errors import FencedError
from shmcache.memory.segments import Place
from shmcache.monitor.observing import Observed
from shmcache.writer import relocating as names
from shmcache.writer.handle import Handle

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

OPTIONS: dict[str, Any] = {"arena_max": "16MiB", "ring_slots": 256, "seats": 16}
EVERYTHING = ("data", "seats", "cache", "lock")


def pod(number: int) -> dict[str, Any]:
    metadata = {"name": f"p{number}", "uid": f"u{number}", "resourceVersion": str(number + 1)}
    return {"metadata": metadata, "spec": {"node": number % 7}}


@pytest.fixture
def writer(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[shmcache.Writer]:
    """Its own thread does not check the names: the test decides when."""
    monkeypatch.setattr(names, "LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(names, "RETRY_SECONDS", 3600.0)
    pods = shmcache.Resource("pods", {"node": "spec.node"})
    with shmcache.Writer(name, [pods, "nodes"], **OPTIONS) as made:
        made.apply("pods", [pod(number) for number in range(200)])
        made.set_state("pods", states.SYNCED, "17")
        yield made
        if names_of(made):
            made.check()


def names_of(writer: shmcache.Writer) -> list[str]:
    return writer.place.location.names(writer.place.stem)


def remove(writer: shmcache.Writer, ends: tuple[str, ...]) -> None:
    for file in names_of(writer):
        if file.rpartition(".")[2] in ends:
            writer.place.location.unlink(file)


def look(writer: shmcache.Writer) -> bool:
    """Its next regular check, now; returns whether it continues."""
    writer._names._next = 0.0
    return writer._tend()


@pytest.mark.parametrize(
    "ends", [("cache",), ("lock",), ("data",), ("seats",), ("data", "seats"), EVERYTHING]
)
def test_g46_removed_names_are_recreated(
    writer: shmcache.Writer, caplog: pytest.LogCaptureFixture, ends: tuple[str, ...]
) -> None:
    with shmcache.attach(writer.name) as cache:
        view, instance = cache["pods"]["p7"], cache.instance
        remove(writer, ends)

        assert look(writer)

        assert 1 == writer.stats()["renamed"]
        assert all(f".{end}" in caplog.text for end in ends), (
            "the log does not name the removed files"
        )
        assert (instance == cache.instance) is not bool({"data", "seats"} & set(ends))
        writer.put("pods", "new", pod(1000))
        assert cache["pods"]["new"] == pod(1000)
        assert view == pod(7), "a held view has changed"
        with shmcache.attach(writer.name) as late:
            assert 201 == len(late["pods"])
            assert late["pods"]["p150"] == pod(150)
            assert 29 == len(late["pods"].by_index("node", "3"))
            assert ("synced", "17") == (late["pods"].status.state, late["pods"].status.version)
            assert 1 == seen_by(late, writer)["renamed"], "readers cannot see it"
    writer.check()
    assert sorted(EVERYTHING) == sorted(file.rpartition(".")[2] for file in names_of(writer))
    assert look(writer)
    assert 1 == writer.stats()["renamed"], "it moved twice"


def test_a_child_keeps_a_file_that_got_the_number_of_an_old_lock(writer: shmcache.Writer) -> None:
    old = writer._handle.lock_fd
    remove(writer, ("lock",))
    assert look(writer)
    assert writer._handle.lock_fd != old
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(old)  # it is free
    os.dup2(0, old)
    child = os.fork()
    if not child:
        os._exit(0 if os.path.exists(f"/proc/self/fd/{old}") else 1)
    os.close(old)
    assert os.waitpid(child, 0)[1] == 0


def seen_by(cache: shmcache.Cache, writer: shmcache.Writer) -> dict[str, int]:
    """The numbers that metrics are made of."""
    writer._tend()
    return Observed(cache, writer.place).stats


def name_of(obj: Any) -> str:
    """Of an object whose end was seen, or that the next instance does not have."""
    return str(obj.key if isinstance(obj, shmcache.Tombstone) else obj["metadata"]["name"])


def test_handlers_receive_only_real_changes(writer: shmcache.Writer) -> None:
    received: list[tuple[str, str]] = []
    with shmcache.attach(writer.name) as cache:
        registration = cache["pods"].add_handler(
            on_add=lambda obj, *_: received.append(("add", str(obj["metadata"]["name"]))),
            on_update=lambda old, _: received.append(("update", str(old["metadata"]["name"]))),
            on_delete=lambda obj, *_: received.append(("delete", name_of(obj))),
        )
        cache.start()
        eventually(lambda: registration.has_synced, "it has not synced")
        received.clear()
        remove(writer, EVERYTHING)
        assert look(writer)
        writer.put("pods", "p3", pod(3) | {"new": 1}, "9999")
        writer.delete("pods", "p5")
        writer.apply("pods", [pod(1000)])
        eventually(lambda: ("add", "p1000") in received, "handlers receive nothing any more")
        assert [("add", "p1000"), ("delete", "p5"), ("update", "p3")] == sorted(received)


def test_a_sleeper_wakes_and_sleeps_on_in_the_new_instance(writer: shmcache.Writer) -> None:
    with Worker("fork", sleeper, writer.name) as worker:
        assert "ready" == worker.hear()
        remove(writer, EVERYTHING)
        assert look(writer)
        for number in (1, 2):
            writer.put("pods", "p0", pod(number))
            assert pod(number) == worker.hear()


def sleeper(pipe: Connection, name: str) -> None:
    with shmcache.attach(name) as cache:
        last = cache["pods"]["p0"].to_dict()
        pipe.send("ready")
        while True:
            seen = cache.latest
            found = cache["pods"]["p0"].to_dict()
            if found == last:
                cache.wait(seen, timeout=PATIENCE)
            else:
                last = found
                pipe.send(found)


def test_staged_content_is_not_lost(writer: shmcache.Writer) -> None:
    with writer.begin_replace("pods", "18") as staged:
        staged.apply([pod(number) for number in range(50)])
        remove(writer, EVERYTHING)
        assert look(writer)
        staged.apply([pod(number) for number in range(50, 100)])
    with shmcache.attach(writer.name) as cache:
        assert 100 == len(cache["pods"])
        assert cache["pods"]["p99"] == pod(99)


def test_the_next_writer_resumes_in_the_new_instance(name: str) -> None:
    with Worker("fork", writing, name) as first:
        assert "ready" == first.hear()
        for file in Place(name).location.names(Place(name).stem):
            Place(name).location.unlink(file)
        assert first.ask("look")
        first.kill()
    with shmcache.Writer(name, ["pods"], **OPTIONS) as writer:
        assert ["pods"] == list(writer.inherited)
        assert 200 == sum(1 for _ in writer.objects("pods"))
        writer.check()


def writing(pipe: Connection, name: str) -> None:
    writer = shmcache.Writer(name, ["pods"], **OPTIONS)
    writer.apply("pods", [pod(number) for number in range(200)])
    writer.set_state("pods", states.SYNCED, "17")
    pipe.send("ready")
    while pipe.recv() == "look":
        pipe.send(look(writer))


def test_the_writer_notices_in_time_by_itself(name: str) -> None:
    with shmcache.Writer(name, ["pods"], **OPTIONS) as writer:
        writer.apply("pods", [pod(1)])
        remove(writer, EVERYTHING)
        eventually(lambda: writer.stats()["renamed"] == 1, "the writer does not notice")
        with shmcache.attach(name) as cache:
            assert ["p1"] == list(cache["pods"])
    assert names.LOOK_SECONDS * 2 <= 10


# ---- files of others ----------------------------------------------------------------------------


def another_writer(writer: shmcache.Writer) -> shmcache.Writer:
    remove(writer, EVERYTHING)
    other = shmcache.Writer(writer.name, ["pods"], **OPTIONS)
    other.put("pods", "theirs", {"x": 1})
    return other


def one_that_left(writer: shmcache.Writer) -> shmcache.Writer:
    other = another_writer(writer)
    other.leave()
    return other


@pytest.mark.parametrize("come", [another_writer, one_that_left])
def test_another_writers_cache_at_the_name_stays_untouched(
    writer: shmcache.Writer,
    caplog: pytest.LogCaptureFixture,
    come: Callable[[shmcache.Writer], shmcache.Writer],
) -> None:
    cache = shmcache.attach(writer.name)
    other = come(writer)
    before = names_of(writer)

    assert not look(writer)

    assert "another" in caplog.text
    for _ in range(2):
        with pytest.raises(FencedError):
            writer.put("pods", "mine", {})
    writer.close()
    assert before == names_of(writer)
    eventually(lambda: "theirs" in cache["pods"], "readers do not move to it")
    with shmcache.attach(writer.name) as late:
        assert ["theirs"] == list(late["pods"])
    cache.close()
    other.close()
    writer.place.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as other users")
def test_a_name_that_now_belongs_to_another_user_ends_the_writer(writer: shmcache.Writer) -> None:
    path = writer.place.location.file(writer.place.pointer)
    text = Path(path).read_text(encoding="ascii")
    os.unlink(path)
    Path(path).write_text(text, encoding="ascii")
    os.chown(path, 65534, 65534)

    assert not look(writer)

    with pytest.raises(FencedError):
        writer.put("pods", "mine", {})
    assert text == Path(path).read_text(encoding="ascii")


@pytest.mark.parametrize("text", ["", "no cache", "shmcache 1 2 4096\n"])
def test_a_dangling_pointer_is_written_again(writer: shmcache.Writer, text: str) -> None:
    Path(writer.place.location.file(writer.place.pointer)).write_text(text, encoding="ascii")

    assert look(writer)

    with shmcache.attach(writer.name) as cache:
        assert 200 == len(cache["pods"])


def test_a_move_that_fails_is_retried(
    writer: shmcache.Writer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remove(writer, EVERYTHING)
    with monkeypatch.context() as patch:
        patch.setattr(names, "lib", _FullLib())
        for _ in range(2):
            assert look(writer)
    assert 1 == caplog.text.count("cannot be restored yet")
    assert ["cache", "lock"] == [file.rpartition(".")[2] for file in names_of(writer)]
    writer.put("pods", "new", {})  # as before

    assert look(writer)

    with shmcache.attach(writer.name) as cache:
        assert "new" in cache["pods"]


def test_the_next_writer_finds_a_recreated_lock_at_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the check after it fails: DATA names that lock's file, or no writer could
    resume."""
    with shmcache.Writer(name, ["pods"], arena_max="64MiB") as writer:
        writer.put("pods", "a", {"n": 1})
        remove(writer, ("lock",))
        with monkeypatch.context() as patch:
            real = names._relock

            def relocked(one: Handle) -> None:
                real(one)
                raise OSError(errno.EMFILE, "Too many open files")

            patch.setattr(names, "_relock", relocked)
            assert look(writer)
        writer.leave()

    with shmcache.Writer(name, ["pods"], arena_max="64MiB") as writer:
        assert ["pods"] == list(writer.inherited)


class _FullLib:
    """The core on a system without room for a copy."""

    def __getattr__(self, name: str) -> Any:
        if name == "shmc_writer_copy":
            return lambda *_: _native.NO_SPACE
        return getattr(_native.lib, name)


def test_a_removed_directory_is_made_again(tmp_path: Path) -> None:
    with shmcache.Writer(str(tmp_path / "cache"), ["pods"], **OPTIONS) as writer:
        writer.apply("pods", [pod(1)])
        shutil.rmtree(tmp_path / "cache")

        assert look(writer)

        with shmcache.attach(writer.name) as cache:
            assert ["p1"] == list(cache["pods"])
