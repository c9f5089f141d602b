"""The server's thread: an event loop that listens, and wakes watches when something was written.

APISERVER1: each accepted socket is known until it is closed, so that stop() leaves none to the
garbage collector: neither one in its TLS handshake, nor one whose client does not read.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import socket
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
BACKLOG = 100
PAUSE_SECONDS = 0.1
"""Before accept() is tried again in a process that has no descriptor left."""
FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
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
        self._listener: socket.socket | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._open: dict[socket.socket, asyncio.StreamWriter | None] = {}
        """Without a writer during the TLS handshake."""
        self._accepted: set[socket.socket] = set()
        """Those among them whose task has not begun, and which no transport closes yet."""
        self._dirty: set[str] = set()
        api.store.subscribe(self._written)

    def start(self) -> None:
        """Starts the thread; listens when this returns."""
        try:
            self._listen()
        except OSError:  # the port is not free
            self._loop.close()
            raise
        self._thread.start()

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
        self._listen()

    async def go_down(self) -> None:
        """Refuses connections, and ends those that are there."""
        await self._close()

    async def abort(self, then: Callable[[], None] | None = None) -> None:
        """Resets every connection, and calls `then` before anything else can happen."""
        for writer in self._writers():
            reset(writer)
        if then is not None:
            then()
        await self._cancelled()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _listen(self) -> None:
        family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
        self._listener = socket.create_server(self.address, family=family, backlog=BACKLOG)
        self._listener.setblocking(False)
        self.address = self._listener.getsockname()[:2]
        self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        """Called when a client waits; a cancelled sock_accept() could lose the client's socket."""
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionError):  # the client has gone already
            return
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._loop.remove_reader(listener)
            self._loop.call_later(PAUSE_SECONDS, self._accept_again, listener)
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does so for its own
        for closed in [sock for sock in self._open if sock.fileno() == -1]:
            del self._open[closed]
        self._open[client] = None
        self._accepted.add(client)
        task = self._loop.create_task(self._serve(client))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    def _accept_again(self, listener: socket.socket) -> None:
        if listener is self._listener:
            self._loop.add_reader(listener, self._accept, listener)

    async def _serve(self, client: socket.socket) -> None:
        self._accepted.discard(client)
        reader = asyncio.StreamReader(loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, client, ssl=self.tls
            )
        except OSError:  # the handshake failed, which the client sees
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        self._open[client] = writer
        transport.set_write_buffer_limits(high=BUFFERED)
        await ClientConnection(self, reader, writer).serve()

    def _writers(self) -> list[asyncio.StreamWriter]:
        return [writer for writer in self._open.values() if writer is not None]

    async def _close(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for writer in self._writers():
            if self.tls is None:
                writer.close()
            else:  # the end of TLS would wait for a client that is idle
                writer.transport.abort()
        await self._cancelled()

    async def _end(self) -> None:
        """Returns once every socket is closed (APISERVER1)."""
        await self._close()
        for writer in self._writers():  # the rest reaches nobody any more
            writer.transport.abort()
        for client in self._open:
            if client.fileno() != -1:
                with contextlib.suppress(OSError):  # the other side has closed it
                    client.shutdown(socket.SHUT_RDWR)
        while any(client.fileno() != -1 for client in self._open):
            await asyncio.sleep(0)

    async def _cancelled(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._accepted:
            self._accepted.pop().close()

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
