"""A writer in a real cgroup, whose limit it reaches. Needs root, and the right to create a cgroup.

memory_limit.py      (`make memory-limit`)

Without the check of the limit the kernel kills it: a first run shows that, so that the rest proves
something.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from workers import Worker

import shmcache
from shmcache.errors import CacheFull
from shmcache.memory import limits

MIB = 1 << 20
FILES = {
    "1": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    "2": ("memory.max", "memory.current"),
}
NAME = f"memory-limit-{os.getpid()}"


class Group:
    """A new cgroup, below that of this process."""

    def __init__(self) -> None:
        for version, parent in limits.groups():
            self.limit, self.used = FILES[version]
            self.path = Path(parent, NAME)
            try:
                if version == "2":
                    Path(parent, "cgroup.subtree_control").write_text("+memory")
                self.path.mkdir()
            except OSError as error:
                sys.stderr.write(f"{self.path}: {error}\n")
                continue
            if (self.path / self.limit).exists():
                return
            self.path.rmdir()
        raise SystemExit("no cgroup with a memory limit can be made here: it takes root")

    def set(self, size: int) -> None:
        (self.path / self.limit).write_text(str(size))

    def enter(self) -> None:
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def in_use(self) -> int:
        return int((self.path / self.used).read_text())


@contextmanager
def own_group(size: int) -> Iterator[Group]:
    group = Group()
    group.set(size)
    try:
        yield group
    finally:
        group.path.rmdir()


def fill(writer: shmcache.Writer, stored: dict[str, Any]) -> str:
    for number in range(len(stored), 1_000_000):
        obj = {"text": f"{number:06d}" * 5000}
        try:
            writer.put("pods", f"k{number}", obj)
        except CacheFull as full:
            return str(full)
        stored[f"k{number}"] = obj
    raise AssertionError("nothing is refused")


def write(pipe: Connection, group: Group, look: bool) -> None:
    group.enter()
    if not look:
        limits.groups = list
    stored: dict[str, Any] = {}
    with shmcache.Writer(NAME, ["pods"], ring_slots=64, arena_max="1GiB") as writer:
        while True:
            pipe.send((fill(writer, stored), len(stored)))
            pipe.recv()
            writer.check()


def try_it(what: Callable[[Worker, Group], None], *, look: bool) -> None:
    with own_group(96 * MIB) as group:
        with Worker("fork", write, group, look) as worker:
            what(worker, group)
        shmcache.memory.segments.Place(NAME).remove()


def is_killed(worker: Worker, _group: Group) -> None:
    try:
        answer = worker.hear()
    except EOFError:
        worker.process.join()
        assert worker.process.exitcode == -signal.SIGKILL, worker.process.exitcode
    else:
        raise AssertionError(f"it lives: {answer}")


def goes_on(worker: Worker, group: Group) -> None:
    answer, first = worker.hear()
    assert group.limit in answer, answer
    assert str(group.path) in answer, answer
    assert "96 MiB" in answer, answer
    with shmcache.attach(NAME) as cache:
        assert len(cache["pods"]) == first
    print(f"refused with {group.in_use / MIB:.0f} of 96 MiB in use: {answer}")  # noqa: T201
    group.set(160 * MIB)
    _, second = worker.ask("go on")
    with shmcache.attach(NAME) as cache:
        assert len(cache["pods"]) == second > first
    print(f"{first} objects, and {second} of them with 160 MiB")  # noqa: T201


if __name__ == "__main__":
    try_it(is_killed, look=False)
    try_it(goes_on, look=True)
    print("good")  # noqa: T201
