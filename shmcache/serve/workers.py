"""Threads for what would block the loop: requests to the API server."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmcache.serve.loop import Loop

Done = Callable[[Any, BaseException | None], object]


class Workers:
    """Started when first needed, so that a process may fork before."""

    def __init__(self, loop: Loop, count: int) -> None:
        self._loop = loop
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    def run(self, function: Callable[[], Any], done: Done) -> None:
        """Calls a function in a thread, then done(value, error) in the loop's."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="serve")

        def work() -> None:
            value, error = None, None
            try:
                value = function()
            except BaseException as raised:  # noqa: BLE001 - told to the loop
                error = raised
            self._loop.call_threadsafe(lambda: done(value, error))

        self._pool.submit(work)

    def close(self) -> None:
        """Waits for none of them."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
