"""256 slots of keys: which slot a key is in, which member a slot is for, and the table of owners.

A slot is a range of a hash of the key, and not of the UID: nobody knows the UID of an object that
is gone, and an object that was deleted and created again has another one, so that its key would be
with two members at once. KEP-5866's hash, FNV-1a, is made for UIDs: its highest bits hardly change
with the last letters of a name.

    SLOTS1  The same members give the same assignment in every process (rendezvous hashing), and a
        member more or less moves its own share of the slots alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from shmcache.protocol.jsontext import decoded

SLOTS = 256
ANNOTATION = "shmcache.io/slots"
MOST_EPOCHS = 1 << 62
"""A board has 64 bits for an epoch."""


def slot_of(key: str) -> int:
    """The slot of a key."""
    return blake2b(key.encode(), digest_size=8).digest()[0]


def assigned(slot: int, members: Collection[str]) -> str:
    """The member for a slot (SLOTS1); "" without members."""
    return max(members, key=lambda member: (_weight(slot, member), member), default="")


@lru_cache(maxsize=64)
def assignment(members: frozenset[str]) -> tuple[str, ...]:
    """The member for each slot."""
    return tuple(assigned(slot, members) for slot in range(SLOTS))


def _weight(slot: int, member: str) -> bytes:
    return blake2b(f"{slot}/{member}".encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class SlotTable:
    """The owner of each slot, "" for none, as an annotation of one Lease has it."""

    epoch: int = 0
    """Counts the table's changes: each owner of a slot has a greater one than those before."""
    owners: tuple[str, ...] = ("",) * SLOTS
    leaving: frozenset[str] = frozenset()
    """Members that live still, and are given nothing more."""

    @classmethod
    def of(cls, lease: dict[str, Any]) -> SlotTable:
        """Of a Lease; ValueError for a malformed table."""
        try:
            text = ((lease.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
            return cls() if text is None else cls._parsed(decoded(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{ANNOTATION}: {repr(error)[:200]}") from error

    @classmethod
    def _parsed(cls, found: Any) -> SlotTable:
        epoch, slots, leaving = found["epoch"], found["slots"], found.get("leaving", [])
        if type(epoch) is not int or not 0 <= epoch < MOST_EPOCHS:
            raise ValueError("the epoch is not a number that a board can have")
        if len(slots) > SLOTS or not isinstance(leaving, list):
            raise ValueError("more owners than slots, or no list of those that leave")
        owners = [""] * SLOTS
        for member, bits in slots.items():
            for slot in _slots_in(int(bits, 16)):
                owners[slot] = member
        return cls(epoch, tuple(owners), frozenset(leaving))

    def text(self) -> str:
        """As an annotation has it: a bit for each slot of a member."""
        bits: dict[str, int] = {}
        for slot, member in enumerate(self.owners):
            if member:
                bits[member] = bits.get(member, 0) | 1 << slot
        slots = {member: f"{found:064x}" for member, found in sorted(bits.items())}
        leaving = sorted(self.leaving)
        return json.dumps({"epoch": self.epoch, "slots": slots, "leaving": leaving})

    def of_member(self, member: str) -> frozenset[int]:
        """The slots that a member owns."""
        return frozenset(slot for slot, owner in enumerate(self.owners) if owner == member)

    def changed(self, moves: dict[int, str], leaving: frozenset[str]) -> SlotTable:
        """The next table, with other owners for some slots."""
        owners = tuple(moves.get(slot, owner) for slot, owner in enumerate(self.owners))
        return SlotTable(self.epoch + 1, owners, leaving)


def _slots_in(bits: int) -> list[int]:
    if bits >> SLOTS:
        raise ValueError("a slot beyond the last one")
    return [slot for slot in range(SLOTS) if bits >> slot & 1]
