"""The times of changes, and the changes of the last minutes: the page's questions about the past.

The reflector notes once a second where the ring is (reader/instants.py): a change came between
two instants, and its age is that of the later one.

AGO1  A look takes PAGE deltas in one turn of the loop, from the newest ones on, and ends when it
    has MATCHES keys: the answer has a bound, whatever the window holds, and says if it is cut.
AGO2  The instants are read at most once in KEPT_SECONDS, for all clients.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from shmcache.errors import Lapped, StaleObjectError
from shmcache.reader import instants
from shmcache.serve.ui.objects import MATCHES, PAGE, turn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmcache._hot import Delta, Root
    from shmcache.serve.server import Server

KEPT_SECONDS = 1.0


class Times:
    """When the changes of a ring came. In the loop's thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._read_at = float("-inf")
        self._instance = -1
        self._instants: list[instants.Instant] = []
        self._heads: list[int] = []

    def look(self, root: Root) -> None:
        """Reads the instants of this root's instance (AGO2)."""
        now = time.monotonic()
        if root.instance == self._instance and now - self._read_at < KEPT_SECONDS:
            return
        self._read_at, self._instance = now, root.instance
        self._instants = instants.read(self._server.cache.place, root)
        self._heads = [instant.head for instant in self._instants]

    @property
    def reach(self) -> float | None:
        """Seconds back to the first instant; None without instants."""
        return self._instants[0].age if self._instants else None

    def position(self, seconds: float) -> int | None:
        """Where the ring was so long ago, or at the first instant; None without instants."""
        if not self._instants:
            return None
        instant = instants.last_before(self._instants, time.monotonic_ns() - int(seconds * 1e9))
        return (instant or self._instants[0]).head

    def age_of(self, number: int) -> float | None:
        """Seconds since a change; None for one before the first instant."""
        at = bisect_right(self._heads, number)
        if not self._instants or (at == 0 and self._heads[0] > number):
            return None
        return self._instants[at].age if at < len(self._instants) else 0.0


async def changes(
    server: Server, times: Times, resources: Iterable[str], seconds: float
) -> dict[str, Any]:
    """The objects that changed in the last seconds, the newest change first."""
    root = server.cache.reader.root()
    times.look(root)
    names = root.names()
    numbers = tuple(names.index(name) for name in resources if name in names)
    start = times.position(seconds)
    found: dict[tuple[int, str], dict[str, Any]] = {}
    complete = True
    if start is not None and numbers:
        complete = await _walk(server, root, (max(start, root.tail), numbers), found)
    rows = [
        {**row, "resource": names[resource], "age": times.age_of(row["number"])}
        for (resource, _), row in found.items()
    ]
    return {"changes": rows, "complete": complete, "known": times.reach, "seconds": seconds}


async def _walk(
    server: Server,
    root: Root,
    span: tuple[int, tuple[int, ...]],
    found: dict[tuple[int, str], dict[str, Any]],
) -> bool:
    """AGO1. Whether it came to the start."""
    start, numbers = span
    end = root.head
    while end > start:
        begin = max(start, end - PAGE)
        try:
            deltas, _ = root.take(begin, end - begin)  # a filter would go on behind `end`
        except (Lapped, StaleObjectError):
            return False  # the writer needed the memory
        for delta in reversed(deltas):
            if delta.resource in numbers and not _note(found, delta):
                return False
        end = begin
        await turn(server.loop)
    return True


def _note(found: dict[tuple[int, str], dict[str, Any]], delta: Delta) -> bool:
    """Counts a change; False for one more key than there is room for."""
    if delta.kind == "RELIST" or delta.key is None:
        return True
    at = (delta.resource, delta.key)
    row = found.get(at)
    if row is None:
        if len(found) >= MATCHES:
            return False
        row = found[at] = {
            "kind": delta.kind[0],
            "key": delta.key,
            "version": delta.version,
            "number": delta.number,
            "times": 0,
        }
    row["times"] += 1
    return True
