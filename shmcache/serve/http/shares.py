"""Amounts of which there is so much in all, shared by those who take some: requests, or bytes.

    SHARE1  no more than `most` is taken; a request that does not fit is refused (429).
    SHARE2  a holder that has some gets more only up to three times what then stays free. So one
            holder alone has at most three quarters of all, two have three sevenths each, and
            something stays free for the next one.

A holder is a user, or the peer of a client that needs no token or has not shown a valid one yet.
"""

from __future__ import annotations

from collections.abc import Hashable

from shmcache.protocol import failures

PART = 3


class Shares:
    """The amount that is taken in all, and the part of each holder."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._held: dict[Hashable, int] = {}

    def take(self, holder: Hashable, amount: int = 1) -> None:
        """Takes some; a Failure (429) where the holder cannot have it."""
        held, free = self._held.get(holder, 0), self.most - self.taken - amount
        if free < 0 or (held and held + amount > PART * free):
            raise failures.too_many_requests()
        self._held[holder] = held + amount
        self.taken += amount

    def give_back(self, holder: Hashable, amount: int = 1) -> None:
        """Returns an amount that was taken."""
        self.taken -= amount
        left = self._held[holder] - amount
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]

    def held_by(self, holder: Hashable) -> int:
        """How much a holder has."""
        return self._held.get(holder, 0)
