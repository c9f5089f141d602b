"""Whether cached data may be shown: synced, and not older than allowed.

Looked at a few times a second for each resource, not at each request: an age is seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shmcache import states
from shmcache.protocol import failures, relays

if TYPE_CHECKING:
    from shmcache.reader.cache import Cache
    from shmcache.serve.catalogue import Served
    from shmcache.serve.http.loop import Loop

LOOK_SECONDS = 0.25


class Seen(NamedTuple):
    """The state of a resource, and how long it counts as fresh."""

    served: Served
    until: float
    lines: bytes
    failure: failures.Failure | None


class Standing:
    """How each answer reports its freshness, and which requests are refused as stale."""

    def __init__(self, cache: Cache, loop: Loop, max_age: float | None) -> None:
        self._cache = cache
        self._loop = loop
        self._max_age = max_age
        self._seen: dict[str, Seen] = {}

    def headers(self, served: Served) -> bytes:
        """The headers of an answer: Age, how the objects differ, a deprecation.

        A Failure (429, 503) where there is nothing to show, or nothing that is fresh enough.
        """
        found = self._seen.get(served.name)
        if found is None or found.until <= self._loop.now or found.served is not served:
            lines, failure = self._look(served)
            until = self._loop.now + LOOK_SECONDS
            found = self._seen[served.name] = Seen(served, until, lines, failure)
        if found.failure is not None:
            raise found.failure
        return found.lines

    def lag(self) -> float | None:
        """Seconds since anything was heard for this cache; None if nobody records it."""
        found = []
        for name in self._cache.resources:
            try:
                found.append(self._cache[name].age)
            except KeyError:
                continue  # another instance, which does not have it
        return min((age for age in found if age is not None), default=None)

    def _look(self, served: Served) -> tuple[bytes, failures.Failure | None]:
        try:
            resource = self._cache[served.name]
            age, record = resource.age, resource.record()
        except KeyError:
            return b"", failures.not_listed()  # another instance, which does not have it
        declared = served.scope.known
        if declared and not states.has_content(record):
            return b"", failures.not_listed()
        lines = served.scope.headers()
        if age is not None:
            lines += b"Age: %d\r\n" % age + relays.lines(lag=age)
        if served.kind.warning:
            lines += b'Warning: 299 - "%b"\r\n' % served.kind.warning.encode()
        return lines, self._stale(served, age, record["state"], declared=declared)

    def _stale(
        self, served: Served, age: float | None, state: int, *, declared: bool
    ) -> failures.Failure | None:
        if self._max_age is None:
            return None
        name = served.kind.key
        if state == states.EXCEEDED:
            return failures.stale(f"{name}: its content has grown over its limit, and is of before")
        if age is None:
            text = f"{name}: its writer does not record the age of the data"
            return failures.stale(text) if declared else None
        if age <= self._max_age:
            return None
        return failures.stale(
            f"{name}: the last data from the server is {age:.0f} s old, "
            f"more than {self._max_age:g} s"
        )
