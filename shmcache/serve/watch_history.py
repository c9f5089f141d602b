"""Where in the ring a watch from a resourceVersion begins.

The ring knows positions, clients know versions. A mark says: what stands before this position is of
no later version than this.

    versions    ... 40 ........... 47 ........... 52 ....          (of marks: never falling)
    positions   ... 1017 ......... 1021 ......... 1030 ...  head   (rising)

Invariants
    W1  every change of a version after `floor` stands in [first mark, head) of the window.
    W2  every change that stands before a mark's position is of a version not after the mark's.
    W3  who starts at the last mark whose version is not after X, and leaves out what is not after
        X, is told exactly what came after X: nothing later stands before the mark (W2), and
        nothing was lost if X is not before the floor (W1).
    W4  a mark whose position has left the window raises the floor to the version of the next one,
        the last mark to the version of the content.
        What a list found instead of a watch begins a new history: what happened within such a gap
        nobody knows, so a version inside of it is too old.
"""

from __future__ import annotations

from bisect import bisect_right

from shmcache.protocol import failures

STEP = 32
"""Marks closer to each other than this many deltas are one."""


class History:
    """The marks of one resource (or one of its namespaces). Versions are numbers here."""

    __slots__ = ("_positions", "_versions", "floor")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        """The first version that can be resumed at."""
        self._versions: list[int] = []
        self._positions: list[int] = []

    def mark(self, version: int, position: int) -> None:
        """What stands before `position` is of no later version than `version` (W2)."""
        if self._positions and position - self._positions[-1] < STEP:
            return
        self._versions.append(version)
        self._positions.append(position)

    def locate(self, version: int, latest: int, tail: int, head: int) -> int:
        """Where a watch from this version begins (W3); a Failure (410) if it is too old.

        The window begins at `tail`; at `head`, where the next change will stand, the content is of
        the version `latest`.
        """
        gone = bisect_right(self._positions, tail - 1)
        if gone:
            left = gone < len(self._versions)
            self.floor = max(self.floor, self._versions[gone] if left else latest)  # W4
            del self._versions[:gone]
            del self._positions[:gone]
        if version < self.floor:
            raise failures.too_old(version, self.floor)
        if not self._positions:
            return head
        return self._positions[max(bisect_right(self._versions, version) - 1, 0)]

    def __len__(self) -> int:
        return len(self._versions)
