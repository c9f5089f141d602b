"""The server's thread: an event loop that listens, and wakes watches when something was written."""

from __future__ import annotations

import asyncio
import collections
import ssl
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, NamedTuple

from shmcache.testing.apiserver.api import Api
from shmcache.testing.apiserver.connection import ClientConnection
from shmcache.testing.apiserver.faults import Fault, Faults
from shmcache.testing.apiserver.requests import ApiRequest
from shmcache.testing.apiserver.watches import ServedWatch
from shmcache.testing.apiserver.wire import reset

LOG_MAX = 10_000
START_SECONDS = 30.0
ON_THE_WAY = 10
"""Turns of the loop that a connection takes, at most, from the listener to _accept()."""
BUFFERED = 1 << 20
"""So many bytes wait for a slow client in this process; the kernel has its own."""


class RequestRecord(NamedTuple):
    """One request that came."""

    seconds: float
    """time.monotonic() when it was read."""
    verb: str
    resource: str
    namespace: str
    query: dict[str, str]
    headers: dict[str, str]
    path: str
    """Without the query."""


class ServerLoop:
    """Owns the thread, the listener and the connections."""

    def __init__(self, api: Api, faults: Faults, address: tuple[str, int]) -> None:
        self.api = api
        self.tls: ssl.SSLContext | None = None
        self.watches: set[ServedWatch] = set()
        self.changed = threading.Condition()
        """Notified whenever a watch comes or goes."""
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.log: collections.deque[RequestRecord] = collections.deque(maxlen=LOG_MAX)
        self.address = address
        self._faults = faults
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="apiserver", daemon=True)
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._dirty: set[str] = set()
        api.store.subscribe(self._written)

    def start(self) -> None:
        """Starts the thread; listens when this returns."""
        self._thread.start()
        self.do(self._listen())

    def stop(self) -> None:
        """Ends every connection and the thread."""
        self.do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine in the loop, from another thread, and waits for it."""
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.result(START_SECONDS)

    def call(self, function: Callable[[], None]) -> None:
        """Calls a function in the loop's thread, some time soon."""
        self._loop.call_soon_threadsafe(function)

    def enter(self, watch: ServedWatch) -> None:
        """A watch is being served from now on."""
        with self.changed:
            self.watches.add(watch)
            self.changed.notify_all()

    def leave(self, watch: ServedWatch) -> None:
        """It is not any more."""
        with self.changed:
            self.watches.discard(watch)
            self.changed.notify_all()

    def met(self, request: ApiRequest) -> list[Fault]:
        """Counts a request, and says which faults it meets."""
        self.counts[request.verb, request.resource] += 1
        namespace = request.target.namespace if request.target else ""
        query, headers = dict(request.query), dict(request.headers)
        now = self._loop.time()
        self.log.append(
            RequestRecord(
                now, request.verb, request.resource, namespace, query, headers, request.path
            )
        )
        return self._faults.take(request.verb, request.resource)

    async def listen(self) -> None:
        """Listens again, at the same address."""
        await self._listen()

    async def go_down(self) -> None:
        """Refuses connections, and ends those that are there."""
        await self._close()

    async def abort(self, then: Callable[[], None] | None = None) -> None:
        """Resets every connection, and calls `then` before anything else can happen."""
        for writer in self._writers:
            reset(writer)
        if then is not None:
            then()
        await self._cancelled()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self) -> None:
        host, port = self.address
        self._listener = await asyncio.start_server(self._accept, host, port, ssl=self.tls)
        self.address = self._listener.sockets[0].getsockname()[:2]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._listener is None:  # it closed while this connection was on its way here
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._writers.add(writer)
        writer.transport.set_write_buffer_limits(high=BUFFERED)
        try:
            await ClientConnection(self, reader, writer).serve()
        except asyncio.CancelledError:
            pass
        finally:
            self._connections.discard(task)
            self._writers.discard(writer)

    async def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for writer in self._writers:
            if self.tls is None:
                writer.close()
            else:  # the end of TLS would wait for a client that is idle, beyond the loop's life
                writer.transport.abort()
        await self._cancelled()
        for _ in range(ON_THE_WAY):
            await asyncio.sleep(0)

    async def _end(self) -> None:
        writers = list(self._writers)
        await self._close()
        for writer in writers:  # nobody sends or ends the rest any more
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _cancelled(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _written(self, resource: str) -> None:
        """Called under the store's lock, in whichever thread wrote."""
        first = not self._dirty
        self._dirty.add(resource)
        if first:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        with self.api.store.lock:
            dirty, self._dirty = self._dirty, set()
        for watch in self.watches:
            if watch.kind.key in dirty:
                watch.wake.set()
        self.api.written.set()
        self.api.written = asyncio.Event()
