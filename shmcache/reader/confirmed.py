"""Consistent reads of one resource: the state is at least as new as the call (asking.py)."""

from __future__ import annotations

from shmcache.errors import UnconfirmedError
from shmcache.reader.asking import TIMEOUT, Question, confirm, confirm_async
from shmcache.reader.awaiting import AwaitableResource
from shmcache.reader.freshness import instead, key_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from shmcache import _hot


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
        found = await self._confirmed_async(Question(self.name, key), timeout)
        if isinstance(found, UnconfirmedError):
            return instead(found, fallback)
        return found.get(key, default)

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
        if error is not None:
            return instead(error, fallback)
        if not consistent:
            return self.get(key, default)
        found = self._confirmed(Question(self.name, key), timeout)
        if isinstance(found, UnconfirmedError):
            return instead(found, fallback)
        return found.get(key, default)

    def _confirmed(self, question: Question, timeout: float) -> Self | UnconfirmedError:
        """This resource in a state that is confirmed (ASK1), or the error of a consistent read."""
        self._must_be_live()
        try:
            return self._in(confirm(self.cache, [question], timeout))
        except UnconfirmedError as error:
            return error

    async def _confirmed_async(self, question: Question, timeout: float) -> Self | UnconfirmedError:
        self._must_be_live()
        try:
            return self._in(await confirm_async(self.cache, [question], timeout))
        except UnconfirmedError as error:
            return error

    def _in(self, root: _hot.Root) -> Self:
        """This resource in one state."""
        return type(self)(root.reader, root.names().index(self.name), root)

    def _must_be_live(self) -> None:
        if self.root is not None:
            raise ValueError(
                f"{self.name}: a snapshot shows the past: use snapshot(consistent=...)"
            )
