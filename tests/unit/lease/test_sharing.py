"""Invariant tested: a member leaves slots alone that another one took while it drained them
(SPREAD3, SPREAD4); the simulations of tests/model show the whole protocol."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace

from shmcache.lease.sharing import Holdings, Sharing
from shmcache.lease.slots import SLOTS, SlotTable, assignment


class Working(Holdings):
    """Each slot has a key that is being worked on, at first."""

    def __init__(self) -> None:
        self.slots: Collection[int] = range(SLOTS)

    def busy(self) -> Collection[int]:
        return self.slots


def test_a_slot_that_another_member_took_is_not_moved_again() -> None:
    holdings, living = Working(), {"one", "two"}
    election = SimpleNamespace(identity="one")
    sharing = Sharing(election, "demo", "default", holdings, clock=lambda: 0.0)  # type: ignore[arg-type]
    sharing._term = 1
    table = SlotTable(1, ("one",) * SLOTS)
    wanted = assignment(frozenset(living))
    theirs = {slot for slot in range(SLOTS) if wanted[slot] == "two"}

    assert sharing._moves(table, living, 1) is None
    assert (theirs, SLOTS - len(theirs)) == (sharing.draining, len(sharing.held))

    holdings.slots = ()
    assert dict.fromkeys(theirs, "two") == sharing._moves(table, living, 1)
    table = table.changed(dict.fromkeys(theirs, "two"), frozenset())
    assert sharing._moves(table, living, 1) is None
    assert set() == sharing.draining
