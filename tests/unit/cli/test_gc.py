"""`shmcache gc` among names that other users took in a directory for everybody."""

from __future__ import annotations

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
