"""Files that another user made under names of a cache stop, mislead and hang no command (GC1)."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest
from workers import Worker

import shmcache
from shmcache.__main__ import main
from shmcache.cli.commands import gc
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX, Place, cache_names
from shmcache.monitor import observing
from shmcache.monitor.metering import Meter
from shmcache.serve.ui.pictures import Pictures

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as other users"),
]

OWNER, STRANGER = 12345, 65534
LATER = 3600.0
ENDS = [
    ".a.queue",
    "@a.board",
    f".{7:016x}.seats",
    f".{7:016x}.data",
    ".times",
    ".ask",
    ".recorder",
]


def plant(name: str, end: str, mode: int = 0o600) -> Path:
    """A stranger's file, of tomorrow."""
    path = Path(SharedMemory().file(PREFIX + name + end))
    path.touch()
    path.chmod(mode)
    os.chown(path, STRANGER, STRANGER)
    tomorrow = time.time() + 86400
    os.utime(path, (tomorrow, tomorrow))
    return path


def sweep(pipe: Connection, name: str, uid: int, dry_run: bool) -> None:
    """As another user, an hour later."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    vars(gc)["time"] = SimpleNamespace(time=lambda: time.time() + LATER)
    said: list[str] = []
    swept = gc.Sweep(SharedMemory(), dry_run=dry_run)
    swept.run(lambda one: one == name, said.append)
    pipe.send((said, swept.failed, swept.freed))


def swept_by(uid: int, name: str, *, dry_run: bool = False) -> tuple[str, int, int]:
    """The line about the cache, failures, bytes."""
    with Worker("fork", sweep, name, uid, dry_run) as worker:
        said, failed, freed = worker.hear()
    [line] = said
    return line, failed, freed


def files_of(name: str) -> list[str]:
    return SharedMemory().names(PREFIX + name)


@pytest.fixture
def left(name: str) -> str:
    """A cache of OWNER that its writer has left."""
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.leave()
    for file in files_of(name):
        os.chown(SharedMemory().file(file), OWNER, OWNER)
    return name


@pytest.mark.parametrize("mode", [0o600, 0o666])
@pytest.mark.parametrize("end", ENDS)
def test_a_strangers_file_keeps_nothing_else_from_being_removed(
    left: str, end: str, mode: int
) -> None:
    planted = plant(left, end, mode)
    expected = swept_by(OWNER, left, dry_run=True)
    line, failed, freed = swept_by(OWNER, left)

    assert [planted.name] == files_of(left)
    assert freed > 0
    assert 1 == failed
    assert "removed: no process uses it; 4 files" in line
    assert f"kept: {planted.name}: it belongs to uid {STRANGER}" in line
    assert f"`sudo shmcache gc --cache {left}`" in line
    assert expected == (line.replace("removed:", "would be removed:"), failed, freed)

    assert 0 == swept_by(0, left)[1]  # the command that it named
    assert [] == files_of(left)


@pytest.mark.parametrize("uid", [OWNER, 0])
def test_a_strangers_lock_keeps_its_own_file_alone(left: str, uid: int) -> None:
    planted = plant(left, ".a.queue", 0o666)
    with planted.open("r+b") as file:
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 1, 1, 0)
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, lock)
        line, failed, _ = swept_by(uid, left)
    assert 0 == failed
    assert f"kept: {planted.name}: 1 process uses it" in line
    assert [planted.name] == files_of(left)
    planted.unlink()


def test_files_that_stay_are_named_up_to_a_number(left: str) -> None:
    planted = [plant(left, f".a{number}.queue") for number in range(10)]
    line, failed, _ = swept_by(OWNER, left)
    assert 1 == failed
    assert gc.MOST_NAMED == line.count("it belongs to uid")
    assert "kept: 7 further files" in line
    for one in planted:
        one.unlink()


def test_a_name_of_a_file_forges_no_line(left: str) -> None:
    planted = plant(left, ".a\nb\x1b[2J.queue")
    line, _, _ = swept_by(OWNER, left)
    assert "\n" not in line
    assert "\x1b" not in line
    planted.unlink()


def test_another_users_cache_stays(left: str) -> None:
    before = files_of(left)
    line, failed, freed = swept_by(STRANGER, left)
    assert "it belongs to another user" in line
    assert (1, 0) == (failed, freed)
    assert before == files_of(left)


# ---- the other commands --------------------------------------------------------------------------


@pytest.fixture
def cache(name: str) -> Iterator[shmcache.Cache]:
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.put("pods", "n/a", {"metadata": {"name": "a"}})
        planted = [plant(name, end, mode)
                   for mode, letter in ((0o600, "a"), (0o666, "b"))
                   for end in (f".{letter}.queue", f"@{letter}.board",
                               f".{letter} \x1b\n.queue", f"@{letter}\x1b.board")]  # fmt: skip
        for end in (".c.queue", "@c.board"):
            link = Path(SharedMemory().file(PREFIX + name + end))
            link.symlink_to(link)  # a circle
            planted.append(link)
        with shmcache.attach(name) as found:
            yield found
        for one in planted:
            one.unlink()


@pytest.mark.parametrize(
    "look",
    [
        lambda cache: observing.queues(cache),
        lambda cache: observing.controllers(cache),
        lambda cache: Pictures(cache).take()["queues"],
    ],
    ids=["queues", "controllers", "page"],
)
def test_queues_and_boards_of_strangers_are_not_shown(
    cache: shmcache.Cache, look: Callable[[shmcache.Cache], object]
) -> None:
    assert not look(cache)


def test_metrics_are_those_of_the_cache(cache: shmcache.Cache) -> None:
    assert "shmcache_resource_objects" in Meter(cache).text()


@pytest.mark.parametrize(
    "words", [["inspect"], ["inspect", "-o", "json"], ["top", "--once"], ["metrics"]],
    ids=" ".join,
)  # fmt: skip
def test_commands_show_a_cache_next_to_strangers_files(
    cache: shmcache.Cache, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main([*words, "--cache", cache.name])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    if words == ["inspect", "-o", "json"]:
        assert json.loads(shown)["queues"] == {}


@pytest.mark.parametrize("end", [".cache", ".lock"])
def test_a_strangers_file_does_not_count_as_a_cache(name: str, end: str) -> None:
    with shmcache.Writer(name, ["pods"]):
        planted = plant(name + "-other", end, 0o666)
        found = cache_names()
        planted.unlink()
    assert name in found
    assert name + "-other" not in found


def test_a_strangers_file_of_another_version_does_not_count_as_a_release(name: str) -> None:
    path = Path(SharedMemory().file(f"shmcache-v1-{name}.cache"))
    path.touch()
    assert "another release" in Place(name).missing()
    os.chown(path, STRANGER, STRANGER)
    assert "another release" not in Place(name).missing()
    path.unlink()
