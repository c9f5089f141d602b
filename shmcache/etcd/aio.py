"""AsyncStore: a Store in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

from shmcache.etcd.errors import error_of
from shmcache.etcd.operations import Object, Steps, StorePage, StoreRequest, Update
from shmcache.etcd.store import StoreBase
from shmcache.source.base import SourceFailed


class AsyncStore(StoreBase):
    """The methods of Store as coroutines. A cancelled task cancels its call, not its effect."""

    async def _run(self, steps: Steps) -> Any:
        try:
            request = next(steps)
            while True:
                request = steps.send(await self._call(request))
        except StopIteration as ended:
            return ended.value

    async def _call(self, request: StoreRequest) -> Any:
        method, message, what, writes = request
        try:
            return await self.connection.call_async(
                method, message, what, timeout=self._timeout, writes=writes
            )
        except SourceFailed as failed:
            raise error_of(failed, writes=writes) from failed

    async def get(self, key: str) -> Object | None:
        """As Store.get()."""
        found: Object | None = await self._run(self._operations.get(key))
        return found

    async def create(self, key: str, obj: Object, *, ttl: int = 0) -> Object:
        """As Store.create()."""
        made: Object = await self._run(self._operations.create(key, obj, await self._lease(ttl)))
        return made

    async def delete(self, key: str, *, uid: str = "", version: str = "") -> Object:
        """As Store.delete()."""
        last: Object = await self._run(self._operations.delete(key, uid, version))
        return last

    async def guaranteed_update(
        self,
        key: str,
        function: Update,
        *,
        uid: str = "",
        version: str = "",
        create: bool = False,
        ttl: int = 0,
    ) -> Object | None:
        """As Store.guaranteed_update(); the function is an ordinary one."""
        steps = self._operations.update(
            key,
            function,
            uid=uid,
            version=version,
            lease=await self._lease(ttl),
            missing=create,
        )
        made: Object | None = await self._run(steps)
        return made

    async def page(
        self, limit: int = 0, continue_token: str = "", *, version: str = ""
    ) -> StorePage:
        """As Store.page()."""
        revision = int(version) if version else 0
        found: StorePage = await self._run(self._operations.page(limit, continue_token, revision))
        return found

    async def list(self, *, limit: int = 500, version: str = "") -> AsyncIterator[Object]:
        """As Store.list()."""
        token = ""
        while True:
            page = await self.page(limit, token, version=version)
            for obj in page.items:
                yield obj
            token = page.continue_token
            if not token:
                return

    async def count(self) -> int:
        """As Store.count()."""
        return int(await self._run(self._operations.count()))

    async def reads(self, written: Object | str, timeout: float | None = None) -> bool:
        """As wait_for(), without blocking the loop."""
        return await asyncio.to_thread(self.wait_for, written, timeout)

    async def _lease(self, ttl: int) -> int:
        if not ttl:
            return 0
        found = self._shared_lease(ttl)
        if found:
            return found
        request, until = self._grant(ttl)
        return self._granted(ttl, (await self._call(request)).ID, until)

    async def close(self) -> None:
        """Ends the connection, unless it was passed in."""
        self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
