"""The memory that this process's cgroups leave it: where they are, and what a refusal means.

Found once, when a writer starts; the room that they leave is read again before each growth
(limits.c). A container sees its own group and what is mounted above it, nothing of its host.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from shmcache._native import ffi, lib
from shmcache.settings import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PROCESS = "/proc/self"
_LIMIT = {"1": "memory.limit_in_bytes", "2": "memory.max"}
_ESCAPE = re.compile(r"\\([0-7]{3})")

Group = tuple[str, str]
"""The version of its hierarchy ("1" or "2"), and its directory."""


def groups() -> list[Group]:
    """The groups that pay for our memory, each before the one around it; none without cgroups."""
    found: list[Group] = []
    paths = dict(_paths())
    for version, root, mount in _mounts():
        path = paths.pop(version, None)
        if path is not None:
            found += [(version, directory) for directory in _upwards(path, root, mount)]
    return [group for group in found if "\n" not in group[1]]


def _lines(file: str) -> list[str]:
    try:
        with open(f"{PROCESS}/{file}", encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read().splitlines()
    except (FileNotFoundError, PermissionError):
        return []  # no /proc, or a kernel without cgroups


def _paths() -> Iterator[tuple[str, str]]:
    """Our group in each hierarchy that counts memory: (version, path in it)."""
    for line in _lines("cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield "2", path
        elif "memory" in controllers.split(","):
            yield "1", path


def _mounts() -> Iterator[tuple[str, str, str]]:
    """Where such a hierarchy is mounted: (version, the path that is its top there, directory)."""
    for line in _lines("mountinfo"):
        if " - cgroup" not in line:  # of containers there may be hundreds
            continue
        front, _, back = line.partition(" - ")
        root, mount = (_unescaped(field) for field in front.split(" ")[3:5])
        kind, _, options = back.split(" ", 2)
        if kind == "cgroup2":
            yield "2", root, mount
        elif kind == "cgroup" and "memory" in options.split(","):
            yield "1", root, mount


def _unescaped(field: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)


def _upwards(path: str, root: str, mount: str) -> Iterator[str]:
    """The directories from our group up to the mount; of a group outside of it the mount alone."""
    inside = os.path.relpath(path, root)
    outside = ".." in path.split("/") or inside.startswith("..")
    directory = mount if outside else os.path.normpath(f"{mount}/{inside}")
    while directory != mount:
        yield directory
        directory = os.path.dirname(directory)
    yield mount


class GrowthLimits:
    """The limits that the core reads before a segment grows. Lives as long as the segments."""

    __slots__ = ("_groups", "_text", "handle")

    def __init__(self) -> None:
        self._groups = groups()
        text = "".join(version + directory + "\n" for version, directory in self._groups)
        self._text = ffi.new("char[]", os.fsencode(text))
        self.handle: Any = ffi.new("struct shmc_limits *", {"groups": self._text})

    def refusal(self) -> str | None:
        """Why memory was refused last, if it would be so now; None for any other reason."""
        last = self.handle
        if not last.refused or lib.shmc_limits_allow(last, last.asked):
            return None
        version, directory = self._groups[last.refused - 1]
        return (
            f"{_LIMIT[version]} of {directory} is {format_size(last.limit)}, of which "
            f"{format_size(last.used)} are in use, and {format_size(last.needed)} more are needed. "
            "Raise it (Kubernetes: resources.limits.memory of the container that writes the cache, "
            "which pays for it; docker run --memory=...; systemd: MemoryMax=), or cache less"
        )
