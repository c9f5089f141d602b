"""States of the past: for the pages of a list that is under way, and for exact versions.

kept      the roots of lists that were cut, for a time and up to a number; each is a pin
undone    a state that no root is kept of, as in another server process: the latest root, and
          the earlier value of each key that changed since then. The ring has these values
          as far back as its window goes.

PAST1  A page is of exactly the generation that its token names: never of "about that version".
PAST2  What cannot be had exactly any more is refused (410). A kept root that was revoked, because
    its writer needed the memory, is such a case.
PAST3  Kept are at most `MOST` roots, none longer than `SECONDS`.
PAST4  A version alone names a state only as far as the ring leads back, change by change. A kept
    root does not answer for its version: the server may have been restored since, and have given
    that version to another state, or a repair may have shown that an event was missing there.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from shmcache.protocol.versions import number_of
from shmcache.reader.undoing import undone, undone_to_version

if TYPE_CHECKING:
    from shmcache._hot import Root, View

MOST = 8
SECONDS = 300.0
"""At least as long as kube-apiserver's etcd keeps versions."""

Key = tuple[int, int]
"""Instance and generation."""


class State(NamedTuple):
    """One state of one resource: a root, and the differences from it then."""

    root: Root
    number: int
    """Of the resource."""
    version: str
    at: Key | None
    """None: a version within a generation, or one that no generation reached."""
    changed: dict[str, View | None]
    """Key -> the object as it was, or None if it did not exist; empty for the root's own state."""


def state_of(root: Root, number: int, version: str) -> State:
    """A root's own state."""
    return State(root, number, version, (root.instance, root.generation), {})


class PastStates:
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
        """Releases states that were kept long enough."""
        now = self._clock()
        for key in [key for key, (_, until) in self._kept.items() if until <= now]:
            del self._kept[key]

    def clear(self) -> None:
        """Releases everything."""
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)

    def at(self, latest: Root, number: int, key: Key, version: str) -> State | None:
        """The state of a generation; None if it is not available any more."""
        self.tidy()
        found = self._kept.get(key)
        if found is not None:
            return state_of(found[0], number, version) if found[0].valid else None
        instance, generation = key
        if instance != latest.instance or generation > latest.generation:
            return None
        changed = undone(latest, number, generation)
        return None if changed is None else State(latest, number, version, key, changed)

    @staticmethod
    def of_version(latest: State, version: str) -> State | None:
        """The state of exactly this version; None if it is not known any more (PAST4)."""
        changed = undone_to_version(latest.root, latest.number, number_of(version))
        if changed is None:
            return None
        return State(latest.root, latest.number, version, None, changed)
