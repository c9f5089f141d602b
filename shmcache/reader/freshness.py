"""How old a resource may be, and waiting until it is what the caller needs.

Five figures that are easily confused:

    version     the resourceVersion of the content that readers see now
    age         how long ago the reflector was last in contact with the server: the end of a list,
                an event or a bookmark of a watch, or a watch that the server accepted
    since       how long the resource has been in its state
    lag         how long events of the server that are known to exist have not been stored
    stamp_age   how old the time stamps in changed objects were when they arrived

A server sends a bookmark about every minute when nothing changes, or accepts a new watch, so an age
up to a minute and a half is normal. A reader that sees an age reads everything that the reflector
had received by that time.
"""

from __future__ import annotations

import time

from shmcache import _hot, states
from shmcache.errors import CacheTooOld
from shmcache.protocol import versions
from shmcache.reader import waiting
from shmcache.reader.sharding import uid_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmcache.errors import ShmCacheError

QUIET_SECONDS = 90.0
"""A bound below it is reached by a healthy resource in which nothing changes."""
STAMP_SECONDS = 120.0
"""So long a stamp's age is shown: it says nothing about later events."""
_STORED = ("stored", "storing_ns", "stored_1ms", "stored_10ms", "stored_100ms")


class Status:
    """A resource and its source at one moment. Compare nothing across moments."""

    __slots__ = ("age", "counters", "lag", "objects", "reason", "since", "stamp_age", "state",
                 "stored", "synced", "version")  # fmt: skip

    state: str
    """absent, listing, synced, retrying, stale, exceeded or gone."""
    reason: str
    """The reason for the state, as text; often empty."""
    since: float
    """Seconds in this state."""
    synced: bool
    """Whether its first list is stored; stays true whatever happens to the source."""
    version: str | None
    """The content is everything up to this resourceVersion."""
    age: float | None
    """Seconds since the last contact with the server; None if unknown, or of a snapshot."""
    lag: float | None
    """Seconds that the content is known to be behind the events of the server; 0.0 if it is not
    known to be; None if there is no contact yet, or of a snapshot."""
    stamp_age: float | None
    """How many seconds old the time stamps in changed objects were when the changes arrived: the
    smallest age of about a minute. An upper bound of the way from the server, by two clocks: it
    contains their difference, and up to a second where stamps have no fractions. None if no change
    with a stamp came within two minutes."""
    objects: int
    counters: dict[str, int]
    """lists, watches, events, bookmarks, errors, relists, bytes, refused, repaired, cut, in all;
    cut: watches that ended early while events that had arrived were yet to be read."""
    stored: dict[str, int]
    """The way of events of watches from their arrival until readers saw them: how many were timed,
    their nanoseconds in all (storing_ns), and how many took at most 1 ms, 10 ms, 100 ms."""

    def __init__(self, record: _hot.Record, contact: dict[str, int], *, live: bool) -> None:
        at = contact.pop("contact_ns") or _first_contact(record)
        behind = contact.pop("behind_ns")
        state = record["state"]
        now = time.monotonic_ns()
        self.state = states.NAMES[state] if state < len(states.NAMES) else f"state {state}"
        self.reason = record["reason"]
        self.since = max(0, now - record["since_ns"]) / 1e9
        self.synced = is_synced(state, record["version"])
        self.version = record["version"]
        self.age = max(0, now - at) / 1e9 if at and live else None
        self.lag = None
        if self.age is not None:
            self.lag = max(0, now - behind) / 1e9 if behind else 0.0
        stamp, stamped = contact.pop("stamp_ns"), contact.pop("stamped_ns")
        shown = live and stamped and now - stamped < STAMP_SECONDS * 1e9
        self.stamp_age = stamp / 1e9 if shown else None
        self.objects = record["count"]
        self.stored = {name: contact.pop(name) for name in _STORED}
        self.counters = contact

    @property
    def upstream(self) -> str:
        """The server that the content comes from, where there are several; else empty."""
        return states.upstream_of(self.reason) if self.state == "synced" else ""

    def __repr__(self) -> str:
        age = "no contact" if self.age is None else f"contact {self.age:.1f} s ago"
        why = f" ({self.reason})" if self.reason else ""
        return (
            f"<shmcache.Status: {self.state}{why} for {self.since:.1f} s, {self.objects} objects "
            f"at version {self.version}, {age}>"
        )


def is_synced(state: int, version: str | None) -> bool:
    """Whether a first list is stored, by state and version."""
    return state == states.SYNCED or (state != states.ABSENT and version is not None)


def _first_contact(record: _hot.Record) -> int:
    """The time of contact where none is noted yet: not before the resource got its state.

    A first list is stored a moment before its contact is noted: readers that move to it just then
    must not find that there was never any contact. 0: unknown.
    """
    return int(record["since_ns"]) if is_synced(record["state"], record["version"]) else 0


class FreshResource(_hot.Resource):
    """The part of a CachedResource that knows of time."""

    __slots__ = ()

    @property
    def status(self) -> Status:
        """State, version, age and counters, now. Of a snapshot: the state it shows."""
        contact = self.contact()  # before the record, whose data may be newer, never older
        return Status(self.record(), contact, live=self.root is None)

    @property
    def age(self) -> float | None:
        """Seconds since the last contact with the server; None if unknown, or of a snapshot."""
        if self.root is not None:
            return None
        at = self.contact()["contact_ns"] or _first_contact(self.record())
        return max(0, time.monotonic_ns() - at) / 1e9 if at else None

    @property
    def synced(self) -> bool:
        """Whether its first list is stored."""
        record = self.record()
        return is_synced(record["state"], record["version"])

    # ---- facts; reader/awaiting.py waits for them ------------------------------------------------

    def _reaches(self, version: str) -> bool:
        found = self.version
        if found is None or not versions.is_version(found):
            return False
        return versions.compare(found, version) >= 0

    def _version_fact(self, version: str) -> Callable[[], bool]:
        """Whether the content is at least at this version."""
        _check_version(version)
        return lambda: self._reaches(version)

    def _deleted_fact(self, key: str, uid: str, version: str | None) -> Callable[[], bool]:
        """Whether the key has no object of this UID, at this version or later."""
        if version is not None:
            _check_version(version)

        def gone() -> bool:
            if version is not None and not self._reaches(version):
                return False
            found = self.get(key)
            return found is None or uid_of(found) != uid

        return gone

    # ---- bounds on reads -----------------------------------------------------------------------

    def too_old(self, max_age: float, *, busy: bool = False) -> CacheTooOld | None:
        """The error of a read that accepts this age at most; None if the read may go on.

        A bound below 90 s is a ValueError, since there is contact about once a minute with a
        healthy resource in which nothing changes; `busy` states that this one keeps changing.
        """
        if self.root is not None:
            raise ValueError(f"{self.name}: a snapshot only ages: give max_age to cache.snapshot()")
        waiting.check_seconds("max_age", max_age)
        if max_age < QUIET_SECONDS and not busy:
            raise ValueError(
                f"max_age={max_age:g}: a resource in which nothing changes has contact with its "
                f"server once a minute or so: give {QUIET_SECONDS:g} s or more, or busy=True if it "
                "never rests"
            )
        age = self.age
        if age is None:
            return CacheTooOld(
                f"{self.name}: the time of the last contact with its server is unknown"
            )
        if age <= max_age:
            return None
        return CacheTooOld(
            f"{self.name}: the last contact with its server was {age:.1f} s ago, not within "
            f"{max_age:g} s"
        )

    def _get_fresh(
        self,
        key: str,
        default: Any = None,
        *,
        namespace: str | None = None,
        max_age: float | None = None,
        fallback: Callable[[], Any] | None = None,
        busy: bool = False,
    ) -> Any:
        """get() with a namespace or a bound: called by it."""
        key = key_in(namespace, key)
        error = self._unfit(max_age, busy=busy)
        return self.get(key, default) if error is None else instead(error, fallback)

    def _unfit(self, max_age: float | None, *, busy: bool = False) -> ShmCacheError | None:
        """too_old() if there is a bound."""
        return None if max_age is None else self.too_old(max_age, busy=busy)


def key_in(namespace: str | None, key: str) -> str:
    """The key of a name in a namespace; the key itself without a namespace."""
    if namespace is None:
        return key
    for title, text in (("namespace", namespace), ("the name of an object", key)):
        if not isinstance(text, str):
            raise TypeError(f"{title} must be a str, not {text!r}")
    return f"{namespace}/{key}"


def instead(error: ShmCacheError, fallback: Callable[[], Any] | None) -> Any:
    """The result of the fallback; raises the error if there is no fallback."""
    if fallback is None:
        raise error
    return fallback()


def _check_version(version: object) -> None:
    """TypeError or ValueError for something that is not a resourceVersion."""
    if not isinstance(version, str):
        raise TypeError(f"version must be a resourceVersion, which is a str, not {version!r}")
    versions.compare(version, version)
