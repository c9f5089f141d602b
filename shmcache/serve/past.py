"""States of the past: for the pages of a list that is under way, and for exact versions.

kept      the roots of lists that were cut, for a time and up to a number; each is a pin
undone    a state that no root is kept of, as in another server process: the latest root, and
          what each key that changed since then had before. The ring says so, as far back as
          its window goes.

P1  A page is of exactly the generation that its token names: never of "about that version".
P2  What cannot be had exactly any more is refused (410). A kept root that was revoked, because
    its writer needed the memory, is such a case.
P3  Kept are at most `MOST` roots, none longer than `SECONDS`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache.errors import Lapped, ShmCacheError, StaleObjectError
from shmcache.serve.watch_told import number_of

if TYPE_CHECKING:
    from shmcache._hot import Delta, Root, View

MOST = 8
SECONDS = 300.0
"""As long as kube-apiserver's etcd remembers, at least."""
TAKE = 1024

Key = tuple[int, int]
"""Instance and generation."""


class State(NamedTuple):
    """One state of one resource: a root, and what was different then."""

    root: Root
    number: int
    """Of the resource."""
    version: str
    at: Key | None
    """None: a version within a generation, or one that no generation was told of."""
    changed: dict[str, View | None]
    """Key -> the object as it was, or None where there was none; empty for the root's own state."""


def state_of(root: Root, number: int, version: str) -> State:
    """A root's own state."""
    return State(root, number, version, (root.instance, root.generation), {})


class Past:
    """The states of one cache that one process can still show."""

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[Root, float]] = OrderedDict()

    def keep(self, root: Root) -> None:
        """Holds a root for a list that will go on."""
        self.tidy()
        self._kept.pop((root.instance, root.generation), None)
        self._kept[root.instance, root.generation] = (root, self._clock() + SECONDS)
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)

    def tidy(self) -> None:
        """Lets go what was kept long enough."""
        now = self._clock()
        for key in [key for key, (_, until) in self._kept.items() if until <= now]:
            del self._kept[key]

    def clear(self) -> None:
        """Lets all go."""
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)

    def at(self, latest: Root, number: int, key: Key, version: str) -> State | None:
        """The state of a generation; None where it cannot be had any more."""
        self.tidy()
        found = self._kept.get(key)
        if found is not None:
            return state_of(found[0], number, version) if found[0].valid else None
        instance, generation = key
        if instance != latest.instance or generation > latest.generation:
            return None
        changed = undone(latest, number, generation)
        return None if changed is None else State(latest, number, version, key, changed)

    def of_version(self, latest: State, version: str) -> State | None:
        """The state of exactly this version; None where nobody knows it any more."""
        self.tidy()
        for root, _ in reversed(self._kept.values()):
            if root.valid and _version(root, latest.number) == version:
                return state_of(root, latest.number, version)
        changed = undone_to_version(latest.root, latest.number, number_of(version))
        if changed is None:
            return None
        return State(latest.root, latest.number, version, None, changed)


def _version(root: Root, number: int) -> str | None:
    try:
        found: str | None = root.record(number)["version"]
    except (ShmCacheError, LookupError):
        return None
    return found


def undone(root: Root, number: int, generation: int) -> dict[str, View | None] | None:
    """What must be put back to come from a root to an older generation; None: nobody knows."""
    if root.record(number)["generation"] <= generation:
        return {}
    try:
        position = _first_after(root, generation)
        return None if position is None else _put_back(root, number, position)
    except Lapped:
        return None


def undone_to_version(root: Root, number: int, version: int) -> dict[str, View | None] | None:
    """undone(), to what the resource was at a version: W1 of watch_history.py; None: nobody knows.

    Everything in the window that is told as it happened is looked at: only where versions rise
    strictly can a version be told from the next one.
    """
    record = root.record(number)
    if record["marks"] or not 0 <= version <= number_of(record["version"]):
        return None  # namespaces with versions of their own; a version that is none, or to come
    position, floor = max(root.tail, record["unbroken"]), number_of(record["listed"])
    if root.tail > record["unbroken"]:
        floor = -1  # what has left the window was before the first that is there
    changed: dict[str, View | None] = {}
    try:
        last = floor
        while position < root.head:
            deltas, position = root.take(position, TAKE, [number])
            for delta in deltas:
                found = number_of(delta.version)
                if delta.key is None or delta.kind == "RELIST" or found <= last:
                    return None
                floor, last = (found - 1 if floor < 0 else floor), found
                if found > version and not _put_one_back(changed, delta):
                    return None
    except (Lapped, StaleObjectError):
        return None
    return changed if 0 <= floor <= version else None


def _first_after(root: Root, generation: int) -> int | None:
    """The position of the first change after a generation; None if it may have been before."""
    low, high = root.tail, root.head
    if low == high:
        return None
    first, _ = root.take(low, 1)
    if low > 0 and first and first[0].generation > generation:
        return None
    while low < high:
        middle = (low + high) // 2
        found, _ = root.take(middle, 1)
        if found and found[0].generation <= generation:
            low = middle + 1
        else:
            high = middle
    return low


def _put_back(root: Root, number: int, position: int) -> dict[str, View | None] | None:
    changed: dict[str, View | None] = {}
    while position < root.head:
        deltas, position = root.take(position, TAKE, [number])
        for delta in deltas:
            if delta.kind == "RELIST" or delta.key is None:
                return None
            if not _put_one_back(changed, delta):
                return None
    return changed


def _put_one_back(changed: dict[str, View | None], delta: Delta) -> bool:
    """Whether it is known what the object was before."""
    assert delta.key is not None
    if delta.key in changed:
        return True
    changed[delta.key] = delta.old
    return delta.old is not None or delta.kind == "ADDED"
