"""`shmcache gc` among names that other users took in a directory for everybody."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

import shmcache
from shmcache.cli.commands.gc import Sweep
from shmcache.memory.locations import Directory

if TYPE_CHECKING:
    from pathlib import Path


def link(path: Path) -> None:
    path.symlink_to("/gone")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, link], ids=["directory", "FIFO", "link"])
@pytest.mark.parametrize("end", ["aaa.lock", "aaa.cache", "cache.a.queue",
                                 "cache@a.board", "cache.recorder"])  # fmt: skip
def test_strange_names_keep_nothing_else_from_being_removed(
    tmp_path: Path, end: str, make: object
) -> None:
    writer = shmcache.Writer(str(tmp_path), resources=["pods"])
    writer.leave()
    planted = tmp_path / f"shmcache-v6-{end}"
    make(planted)  # type: ignore[operator]
    said: list[str] = []

    swept = Sweep(Directory(str(tmp_path)), older=0)
    swept.run(lambda _: True, said.append)

    assert set(os.listdir(tmp_path)) <= {planted.name}
    assert bool(swept.failed) == any("kept" in line for line in said)


@pytest.mark.parametrize(
    ("readers", "users"), [(0, ""), (1, "1 process uses"), (2, "2 processes use")]
)
def test_a_cache_is_kept_for_the_processes_that_use_it(
    tmp_path: Path, readers: int, users: str
) -> None:
    with contextlib.ExitStack() as stack:
        with shmcache.Writer(str(tmp_path), resources=["pods"]) as writer:
            for _ in range(readers):
                stack.enter_context(shmcache.attach(str(tmp_path)))
            writer.leave()
        said: list[str] = []
        Sweep(Directory(str(tmp_path)), older=0).run(lambda _: True, said.append)

    (line,) = said
    assert ("kept: " in line) == bool(readers)
    assert f"{users} " in line
    assert bool(os.listdir(tmp_path)) == bool(readers)
