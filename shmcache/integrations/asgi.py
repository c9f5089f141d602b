"""shmcache in ASGI applications: uvicorn, hypercorn, granian; Starlette, FastAPI, or neither.

    app = FastAPI(lifespan=lifespan("web"))

    @app.get("/pods")
    def pods(request: Request):
        return len(request.state.cache["pods"])

Each worker process attaches for itself when it starts, and takes requests only when the cache is
full. Reading takes microseconds and blocks nobody; what sleeps (`wait_for`, `cache.wait`) belongs
into a thread, or is `async for event in pods.events()`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from shmcache.integrations import WAIT_SECONDS, attached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from shmcache import Cache

    Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]


def lifespan(
    name: str | None = None,
    *,
    wait: float = WAIT_SECONDS,
    inner: Lifespan | None = None,
    start: bool = False,
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """A lifespan whose state has the full cache of this process: `request.state.cache`.

    Startup takes up to `wait` seconds, and fails where there is no cache by then; with `start` the
    handlers that were added are called from then on. `inner` is another lifespan, run inside, which
    finds `app.state.cache` if the application has a state. Shutdown closes the cache.
    """

    @asynccontextmanager
    async def with_cache(app: Any) -> AsyncIterator[dict[str, Any]]:
        cache = await asyncio.to_thread(attached, name, wait=wait)
        if hasattr(app, "state"):
            app.state.cache = cache
        try:
            if start:
                cache.start()
            if inner is None:
                yield {"cache": cache}
            else:
                async with inner(app) as state:
                    yield {**(state or {}), "cache": cache}
        finally:
            await asyncio.to_thread(cache.close)

    return with_cache


class WithCache:
    """An ASGI application of no framework, in the lifespan: `scope["state"]["cache"]`."""

    def __init__(self, app: Any, name: str | None = None, *, wait: float = WAIT_SECONDS) -> None:
        self._app = app
        self._name = name
        self._wait = wait

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers the server's lifespan itself, and hands on the rest."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await receive()
        try:
            cache: Cache = await asyncio.to_thread(attached, self._name, wait=self._wait)
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        scope["state"]["cache"] = cache
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.to_thread(cache.close)
        await send({"type": "lifespan.shutdown.complete"})
