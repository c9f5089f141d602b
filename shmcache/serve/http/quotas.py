"""Admissions of requests that last: so many in all, shared fairly among those who hold them.

    QUOTA1  at most `most` are taken. The rest of the connections stays free for short requests, so
            that probes and GETs are served whatever watches there are.
    QUOTA2  while admissions are free one holder may have all of them. When all are taken, a new
            request takes over the oldest admission of the holder with the most, if that holder
            would still have no fewer than the newcomer; else it is refused (429).

A holder is a user, or the address of a client that needs no token.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from shmcache.protocol import failures


class Admission:
    """One admitted request; leave() gives the admission back."""

    __slots__ = ("_holder", "_quota", "end")

    def __init__(self, quota: Quota, holder: Hashable, end: Callable[[], object]) -> None:
        self._quota = quota
        self._holder = holder
        self.end = end
        """Ends the request, so that it leaves."""

    def leave(self) -> None:
        """Gives the admission back. Idempotent."""
        self._quota.leave(self._holder, self)


class Quota:
    """The admissions, and the number that each holder has."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._held: dict[Hashable, dict[Admission, None]] = {}

    def enter(self, holder: Hashable, end: Callable[[], object]) -> Admission:
        """Admits a request; `end` is called when another one takes over. A Failure (429)."""
        if self.taken >= self.most:
            self._make_room(holder)
        admission = Admission(self, holder, end)
        self._held.setdefault(holder, {})[admission] = None
        self.taken += 1
        return admission

    def leave(self, holder: Hashable, admission: Admission) -> None:
        """See Admission.leave()."""
        held = self._held.get(holder, {})
        if admission in held:
            del held[admission]
            self.taken -= 1
            if not held:
                del self._held[holder]

    def held_by(self, holder: Hashable) -> int:
        """How many admissions a holder has."""
        return len(self._held.get(holder, ()))

    def _make_room(self, holder: Hashable) -> None:
        most = max(self._held.values(), key=len, default={})
        if len(most) <= self.held_by(holder) + 1:
            raise failures.too_many_requests()
        oldest = next(iter(most))
        oldest.end()
        oldest.leave()
