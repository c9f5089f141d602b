"""Finds the position in the ring at which a watch from a resourceVersion begins.

The ring knows positions, clients know versions. A waypoint states: changes before this position are
of no later version than this.

    versions    ... 40 ........... 47 ........... 52 ....          (of waypoints: never falling)
    positions   ... 1017 ......... 1021 ......... 1030 ...  head   (rising)

Invariants
    HISTORY1  every change of a version after `floor` is in [first waypoint, head) of the window.
    HISTORY2  every change before a waypoint's position is of a version not after the waypoint's.
    HISTORY3  a watch that starts at the last waypoint whose version is not after X, and skips
        changes that are not after X, receives exactly the changes after X: nothing later is before
        the waypoint (HISTORY2), and nothing was lost if X is not before the floor (HISTORY1).
    HISTORY4  a waypoint whose position has left the window raises the floor to the version of the
        next one, the last waypoint to the version of the content. A list instead of a watch begins
        a new history: events within such a gap are unknown, so a version inside of it is too old.
"""

from __future__ import annotations

from bisect import bisect_right

from shmcache.protocol import failures

STEP = 32
"""Waypoints less than this many deltas apart are merged."""


class History:
    """The waypoints of one resource (or one of its namespaces). Versions are numbers here."""

    __slots__ = ("_positions", "_versions", "floor")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        """The first version at which a watch can resume."""
        self._versions: list[int] = []
        self._positions: list[int] = []

    def note(self, version: int, position: int) -> None:
        """Notes that changes before `position` are not of a later version (HISTORY2)."""
        if self._positions and position - self._positions[-1] < STEP:
            return
        self._versions.append(version)
        self._positions.append(position)

    def locate(self, version: int, latest: int, tail: int, head: int) -> int:
        """Where a watch from this version begins (HISTORY3); a Failure (410) if it is too old.

        The window begins at `tail`; at `head`, where the next change will be, the content is of
        the version `latest`.
        """
        gone = bisect_right(self._positions, tail - 1)
        if gone:
            left = gone < len(self._versions)
            self.floor = max(self.floor, self._versions[gone] if left else latest)  # HISTORY4
            del self._versions[:gone]
            del self._positions[:gone]
        if version < self.floor:
            raise failures.too_old(version, self.floor)
        if not self._positions:
            return head
        return self._positions[max(bisect_right(self._versions, version) - 1, 0)]

    def __len__(self) -> int:
        return len(self._versions)
