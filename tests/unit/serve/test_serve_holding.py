"""Invariant tested: connections that make room for others end one after the other (HOLD1)."""

from __future__ import annotations

from typing import Any, cast

from shmcache.serve.http.holding import Holding
from shmcache.serve.http.loop import Loop

FEW_BYTES = 10
MANY = 5_000


class FakeWire:
    """A connection that holds received bytes, and gives them back when it ends, as Wire does."""

    backlog = 0

    def __init__(self, holding: Holding) -> None:
        self.alive, self.received = True, 0
        self._holding = holding

    def receive(self, count: int) -> None:
        self.received += count
        self._holding.note(cast("Any", self), count)

    def cut(self) -> None:
        self.alive = False
        received, self.received = self.received, 0
        self._holding.note(cast("Any", self), -received)


def test_thousands_that_hold_little_make_room_for_one() -> None:
    loop = Loop()
    try:
        holding = Holding(loop, MANY * FEW_BYTES)
        small = [FakeWire(holding) for _ in range(MANY)]
        for wire in small:
            wire.receive(FEW_BYTES)
        large = FakeWire(holding)
        large.receive((MANY - 1) * FEW_BYTES)
        assert [wire.alive for wire in (*small[:-1], small[-1], large)] == [
            *[False] * (MANY - 1), True, True,
        ]  # fmt: skip
        assert holding.total == holding.most
        assert holding.ended == MANY - 1
    finally:
        loop.close()
