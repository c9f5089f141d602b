"""How old a resource may be, and waiting until it is what the caller needs.

Three figures that are easily confused:

    version     up to where the content is that readers see now
    age         how long ago the server was last heard: bytes of a list or a watch, or a bookmark
    since       how long the resource has been in its state

A server sends a bookmark about every minute when nothing changes, so an age up to a minute and a
half says nothing bad. Whoever sees an age reads everything that had come by then.
"""

from __future__ import annotations

import time

from shmcache import _hot, states, waiting
from shmcache.errors import CacheTooOld
from shmcache.protocol import versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

QUIET_SECONDS = 90.0
"""A bound below it is reached by a healthy resource in which nothing changes."""


class Status:
    """What is known of a resource and its source at one moment. Compare nothing across moments."""

    __slots__ = ("age", "counters", "objects", "reason", "since", "state", "synced", "version")

    state: str
    """absent, listing, synced, retrying, stale or exceeded."""
    reason: str
    """Why, in words; often empty."""
    since: float
    """Seconds in this state."""
    synced: bool
    """Whether its first list is stored; it stays so whatever happens to the source."""
    version: str | None
    """The content is everything up to this resourceVersion."""
    age: float | None
    """Seconds since the server was last heard; None if nobody tells, or of a snapshot."""
    objects: int
    counters: dict[str, int]
    """lists, watches, events, bookmarks, errors, relists, bytes, refused: since the cache began."""

    def __init__(self, record: dict[str, Any], contact: dict[str, int], *, live: bool) -> None:
        heard = contact.pop("contact_ns") or _heard_at_the_latest(record)
        state = record["state"]
        now = time.monotonic_ns()
        self.state = states.NAMES[state] if state < len(states.NAMES) else f"state {state}"
        self.reason = record["reason"]
        self.since = max(0, now - record["since_ns"]) / 1e9
        self.synced = is_synced(state, record["version"])
        self.version = record["version"]
        self.age = max(0, now - heard) / 1e9 if heard and live else None
        self.objects = record["count"]
        self.counters = contact

    def __repr__(self) -> str:
        age = "never heard" if self.age is None else f"heard {self.age:.1f} s ago"
        why = f" ({self.reason})" if self.reason else ""
        return (
            f"<shmcache.Status: {self.state}{why} for {self.since:.1f} s, {self.objects} objects "
            f"at version {self.version}, {age}>"
        )


def is_synced(state: int, version: str | None) -> bool:
    """Whether a first list is stored, by state and version."""
    return state == states.SYNCED or (state != states.ABSENT and version is not None)


def _heard_at_the_latest(record: dict[str, Any]) -> int:
    """When a source was heard that has said nothing of it yet: its content came after its state.

    So is a first list between the moments at which it is stored and at which its contact is noted:
    readers that move to it just then must not find that nobody ever heard its server. 0: unknown.
    """
    return int(record["since_ns"]) if is_synced(record["state"], record["version"]) else 0


class Fresh(_hot.Resource):
    """The part of a CachedResource that knows of time."""

    __slots__ = ()

    @property
    def status(self) -> Status:
        """State, version, age and counters, now. Of a snapshot: the state it shows."""
        contact = self.contact()  # before the record: it is no younger than its data
        return Status(self.record(), contact, live=self.root is None)

    @property
    def age(self) -> float | None:
        """Seconds since the server was last heard; None if nobody tells, or of a snapshot."""
        if self.root is not None:
            return None
        heard = self.contact()["contact_ns"] or _heard_at_the_latest(self.record())
        return max(0, time.monotonic_ns() - heard) / 1e9 if heard else None

    @property
    def synced(self) -> bool:
        """Whether its first list is stored."""
        record = self.record()
        return is_synced(record["state"], record["version"])

    # ---- waiting -------------------------------------------------------------------------------

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Sleeps until the first list is stored; False if `timeout` seconds passed."""
        return self._await(lambda: self.synced, 0, timeout)

    def wait_for(self, version: str, timeout: float | None = None) -> bool:
        """Sleeps until the content is at least at this resourceVersion: read what you have written.

        False if `timeout` seconds passed. Only versions of this resource say something here: where
        it is idle, that of another one is reached with the next bookmark, in a minute or so.
        """
        versions.compare(version, version)  # ValueError for what is none
        return self._await(lambda: self._reaches(version), 0, timeout)

    def wait_deleted(
        self, key: str, uid: str, timeout: float | None = None, *, version: str | None = None
    ) -> bool:
        """Sleeps until no object of this UID stands under the key (another one may).

        `version`: that of the object as it was known, which must be reached first; without it, an
        object that is not here yet counts as deleted. False if `timeout` seconds passed.
        """
        if version is not None:
            versions.compare(version, version)

        def gone() -> bool:
            if version is not None and not self._reaches(version):
                return False
            found = self.get(key)
            return found is None or found["metadata"].get("uid") != uid

        return self._await(gone, 1 << (self.id & 63), timeout)

    def _reaches(self, version: str) -> bool:
        found = self.version
        if found is None or not versions.is_version(found):
            return False
        return versions.compare(found, version) >= 0

    def _await(self, fact: Callable[[], bool], interest: int, timeout: float | None) -> bool:
        if self.root is not None:
            raise ValueError(f"{self.name}: a snapshot does not move: wait on the cache's resource")
        return waiting.until(fact, lambda: (self.reader, interest, 1 << (self.id & 63)), timeout)

    # ---- bounds on reads -----------------------------------------------------------------------

    def too_old(self, max_age: float, *, busy: bool = False) -> CacheTooOld | None:
        """The error of a read that accepts this age at most; None if there is nothing to say.

        A bound below 90 s is a ValueError, since a healthy resource in which nothing changes is
        heard about once a minute; `busy` says that something keeps this one moving.
        """
        if self.root is not None:
            raise ValueError(f"{self.name}: a snapshot only ages: give max_age to cache.snapshot()")
        if max_age < QUIET_SECONDS and not busy:
            raise ValueError(
                f"max_age={max_age:g}: a resource in which nothing changes is heard once a minute "
                f"or so: ask for {QUIET_SECONDS:g} s or more, or say busy=True where it never rests"
            )
        age = self.age
        if age is None:
            return CacheTooOld(f"{self.name}: nobody says when its server was last heard")
        if age <= max_age:
            return None
        return CacheTooOld(
            f"{self.name}: its server was last heard {age:.1f} s ago, not within {max_age:g} s"
        )

    def _get_fresh(
        self,
        key: str,
        default: Any = None,
        *,
        max_age: float,
        fallback: Callable[[], Any] | None = None,
        busy: bool = False,
    ) -> Any:
        """get() with a bound: called by it."""
        error = self.too_old(max_age, busy=busy)
        if error is None:
            return self.get(key, default)
        if fallback is None:
            raise error
        return fallback()
