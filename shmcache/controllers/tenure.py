"""The permission of this machine to work on keys: part of the board, for all of its processes.

    0     the end of the term, in ns of the clock of lease/settings.py; 0 without one
    8     whether the slots are those of this term
    16    the newest epoch whose keys were added to the queue
    64    the identity of this machine in the Lease
    512   of each slot the epoch with which it was gained; 0 if it is not ours

The coordinator writes them (coordinator.py, one process at a time by a kernel
lock); the feeder writes that one, too; workers read.

    TENURE1  A reconcile begins only while the term goes on and the slot of its key is ours. The
        worker fills its runner before it looks; the coordinator takes the slot before it looks at
        the runners, and looks at them SOON later, when each has seen the other's store.
    TENURE2  A process that is in a key when the term ends, ends itself (running.py).
    TENURE3  A key is held back while the term is in doubt, and dropped only if its slot is
        another's: that one adds all keys of the slot when it gains it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from shmcache.controllers.board import TENURE
from shmcache.lease.settings import boot_seconds
from shmcache.lease.slots import SLOTS, slot_of

if TYPE_CHECKING:
    from shmcache.controllers.board import Board
    from shmcache.controllers.part import Part

_UNTIL, _JOINED, _FED = (TENURE // 8 + number for number in range(3))
_IDENTITY, _IDENTITY_ROOM = TENURE + 64, 320
_EPOCHS = (TENURE + 512) // 8
_LOOK_SECONDS = 0.02


class Tenure:
    """The part of a board with the permission of this machine."""

    def __init__(self, board: Board) -> None:
        self.board = board

    # ---- for workers -----------------------------------------------------------------------------

    @property
    def left(self) -> float:
        """Seconds until the end of the term; 0 or less without one."""
        return self.board.words[_UNTIL] / 1e9 - boot_seconds()

    @property
    def joined(self) -> bool:
        """Whether the slots are those of a term."""
        return bool(self.board.words[_JOINED])

    def epoch(self, key: str) -> int:
        """The epoch with which the slot of a key was gained; 0 if it is not ours."""
        return self.board.words[_EPOCHS + slot_of(key)]

    def allows(self, key: str) -> bool:
        """Whether a reconcile of the key may begin (TENURE1)."""
        return self.left > 0 and self.joined and self.epoch(key) != 0

    def admit(self, key: str, part: Part) -> bool:
        """Waits until it is known whether the key is ours (TENURE3)."""
        while not self.allows(key):
            if part.stopping or (self.left > 0 and self.joined and not self.epoch(key)):
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    # ---- for the feeder --------------------------------------------------------------------------

    @property
    def fed(self) -> int:
        """The newest epoch whose keys are in the queue."""
        return self.board.words[_FED]

    @fed.setter
    def fed(self, epoch: int) -> None:
        self.board.words[_FED] = epoch

    def gained(self) -> dict[int, int]:
        """Slots whose keys are not in the queue yet, with their epochs."""
        fed = self.fed
        epochs = self.board.words[_EPOCHS : _EPOCHS + SLOTS]
        return {slot: epoch for slot, epoch in enumerate(epochs) if epoch > fed}

    # ---- for the coordinator ---------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """The identity of this machine; "" before its first one."""
        return self.board.text(_IDENTITY, _IDENTITY_ROOM)

    @identity.setter
    def identity(self, text: str) -> None:
        self.board.set_text(_IDENTITY, _IDENTITY_ROOM, text)

    def end(self) -> None:
        """No term goes on."""
        self.board.words[_UNTIL] = 0

    def extend(self, until: float) -> None:
        """The term goes on until then."""
        self.board.words[_UNTIL] = int(until * 1e9)

    def clear(self) -> None:
        """No slot is ours, and nobody knows yet which will be. All that come are new."""
        self.board.words[_JOINED] = 0
        self.board.words[_FED] = 0
        for slot in range(SLOTS):
            self.board.words[_EPOCHS + slot] = 0

    def join(self) -> None:
        """The slots are known from now on."""
        self.board.words[_JOINED] = 1

    def set_slots(self, slots: Collection[int], epoch: int) -> None:
        """These are ours since an epoch; with 0, not ours any more."""
        for slot in slots:
            self.board.words[_EPOCHS + slot] = epoch

    def busy(self) -> set[int]:
        """The slots of keys that living processes are in."""
        return {slot_of(runner.key) for row in self.board.lived_in for runner in row.runners()}
