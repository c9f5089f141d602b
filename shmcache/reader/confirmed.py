"""Consistent reads of one resource: the state is at least as new as the call (asking.py)."""

from __future__ import annotations

from shmcache.errors import UnconfirmedError
from shmcache.reader.asking import TIMEOUT, Question, confirm, confirm_async
from shmcache.reader.awaiting import AwaitableResource
from shmcache.reader.freshness import instead, key_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmcache.errors import ShmCacheError


class ConfirmableResource(AwaitableResource):
    """The part of a CachedResource that asks the reflector whether it is current."""

    __slots__ = ()

    async def get_async(
        self,
        key: str,
        default: Any = None,
        *,
        timeout: float = TIMEOUT,
        fallback: Callable[[], Any] | None = None,
    ) -> Any:
        """get(consistent=True) on asyncio."""
        error = await self._unconfirmed_async(Question(self.name, key), timeout)
        return self.get(key, default) if error is None else instead(error, fallback)

    def _get_fresh(
        self,
        key: str,
        default: Any = None,
        *,
        namespace: str | None = None,
        max_age: float | None = None,
        fallback: Callable[[], Any] | None = None,
        busy: bool = False,
        consistent: bool = False,
        timeout: float = TIMEOUT,
    ) -> Any:
        """get() with a namespace or a bound, or a consistent one: called by it."""
        key = key_in(namespace, key)
        error = self._unfit(max_age, busy=busy)
        if error is None and consistent:
            error = self._unconfirmed(Question(self.name, key), timeout)
        return self.get(key, default) if error is None else instead(error, fallback)

    def _unconfirmed(self, question: Question, timeout: float) -> ShmCacheError | None:
        """The error of a consistent read; None when the cache is current."""
        self._must_be_live()
        try:
            confirm(self.cache, [question], timeout)
        except UnconfirmedError as error:
            return error
        return None

    async def _unconfirmed_async(
        self, question: Question, timeout: float
    ) -> UnconfirmedError | None:
        self._must_be_live()
        try:
            await confirm_async(self.cache, [question], timeout)
        except UnconfirmedError as error:
            return error
        return None

    def _must_be_live(self) -> None:
        if self.root is not None:
            raise ValueError(f"{self.name}: a snapshot is past: use snapshot(consistent=...)")
