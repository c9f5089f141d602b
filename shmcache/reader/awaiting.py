"""Waiting for a resource, in threads and in asyncio: for versions, and for the state of one object.

Each wait exists in two colours of the same meaning. Neither polls: a thread sleeps on the seat of
its process, a coroutine on the bell of its loop.
"""

from __future__ import annotations

from shmcache.reader import waiting
from shmcache.reader.freshness import FreshResource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmcache import _hot
    from shmcache.handlers.tombstone import Tombstone
    from shmcache.reader.cache import Cache

    Predicate = Callable[[Any], object]
    Reached = _hot.View | Tombstone | None


class AwaitableResource(FreshResource):
    """The part of a CachedResource that waits."""

    __slots__ = ("cache",)

    cache: Cache
    """The cache whose latest state it shows; not set on a resource of a snapshot."""

    # ---- versions --------------------------------------------------------------------------------

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Sleeps until the first list is stored; False if `timeout` seconds passed."""
        return self._await(lambda: self.synced, 0, timeout)

    async def wait_synced_async(self, timeout: float | None = None) -> bool:
        """wait_synced() on asyncio."""
        return await self._await_async(lambda: self.synced, timeout)

    def wait_for(self, version: str, timeout: float | None = None) -> bool:
        """Sleeps until the content is at least at this resourceVersion: read your own write.

        False if `timeout` seconds passed. Use versions of this resource: an idle resource reaches
        the version of another one only with its next bookmark, in a minute or so.
        """
        return self._await(self._version_fact(version), 0, timeout)

    async def wait_for_async(self, version: str, timeout: float | None = None) -> bool:
        """wait_for() on asyncio."""
        return await self._await_async(self._version_fact(version), timeout)

    def wait_deleted(
        self, key: str, uid: str, timeout: float | None = None, *, version: str | None = None
    ) -> bool:
        """Sleeps until the key has no object of this UID (it may have another one).

        `version`: the last known version of the object, which must be reached first; without it, an
        object that has not arrived yet counts as deleted. False if `timeout` seconds passed.
        """
        return self._await(self._deleted_fact(key, uid, version), 1 << (self.id & 63), timeout)

    async def wait_deleted_async(
        self, key: str, uid: str, timeout: float | None = None, *, version: str | None = None
    ) -> bool:
        """wait_deleted() on asyncio."""
        return await self._await_async(self._deleted_fact(key, uid, version), timeout)

    def _await(self, fact: Callable[[], bool], interest: int, timeout: float | None) -> bool:
        self._must_move()
        return waiting.until(fact, lambda: (self.reader, interest, 1 << (self.id & 63)), timeout)

    def await_fact(self, fact: Callable[[], bool], timeout: float | None) -> bool:
        """Sleeps until a fact about its latest state holds; False if `timeout` seconds passed."""
        return self._await(fact, 1 << (self.id & 63), timeout)

    async def _await_async(self, fact: Callable[[], bool], timeout: float | None) -> bool:
        self._must_move()
        from shmcache.handlers.until_async import until

        return await until(self.cache, fact, timeout)

    def _must_move(self) -> None:
        if self.root is not None:
            raise ValueError(f"{self.name}: a snapshot does not move: wait on the cache's resource")

    # ---- the state of one object -----------------------------------------------------------------

    def wait_until(
        self,
        key: str,
        predicate: Predicate,
        timeout: float | None = None,
        *,
        absent: bool = False,
    ) -> Reached:
        """Sleeps until the predicate is true of an object, and returns that state of it (G48).

            done = pods.wait_until(
                "prod/job-1", lambda pod: pod.status.phase in ("Succeeded", "Failed"), timeout=600
            )

        The predicate sees the present state, then each state that is published. None: `timeout`
        seconds passed. The wait may begin before the object exists; its deletion ends
        the wait with ObjectDeleted, which has its last state. `absent=True`: the absence is a state
        like others; the predicate sees it as None, and a Tombstone is returned if it is true of
        that. If the ring moves on before this process has read it, the predicate sees the latest
        state; where the object was deleted or replaced meanwhile, ObjectDeleted has `unknown`.
        """
        self._must_move()
        from shmcache.handlers.until import wait_until

        return wait_until(self.cache, self.name, key, predicate, timeout, absent=absent)

    async def wait_until_async(
        self,
        key: str,
        predicate: Predicate,
        timeout: float | None = None,
        *,
        absent: bool = False,
    ) -> Reached:
        """wait_until() on asyncio; a loop walks the ring once for all that wait there."""
        self._must_move()
        from shmcache.handlers.until_async import wait_until

        return await wait_until(self.cache, self.name, key, predicate, timeout, absent=absent)
