"""A server of `shmcache serve` in a thread of this process, for tests of what speaks with it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TypeVar

from shmcache.serve.server import Server, Serving

if TYPE_CHECKING:
    from shmcache.reader.cache import Cache

T = TypeVar("T")
WAIT_SECONDS = 60.0


class ServeThread:
    """Serves a cache on a port of this machine, from __enter__() to __exit__()."""

    def __init__(
        self, cache: Cache, serving: Serving | None = None, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.server = Server(cache, self._listener, serving, tls=tls)
        self._tls = tls is not None
        self._thread = threading.Thread(target=self.server.loop.run, name="serve", daemon=True)

    @property
    def port(self) -> int:
        """At which it listens."""
        found: int = self._listener.getsockname()[1]
        return found

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function in the server's thread, and returns what it returns."""
        done = threading.Event()
        found: list[T] = []

        def run() -> None:
            try:
                found.append(function())
            finally:
                done.set()

        self.server.loop.call_threadsafe(run)
        if not done.wait(WAIT_SECONDS):
            raise TimeoutError("the server's thread does not answer")
        return found[0]

    def __enter__(self) -> Self:
        self.server.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        loop = self.server.loop
        loop.call_threadsafe(lambda: self.server.drain(loop.stop))
        self._thread.join(WAIT_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError("the server did not end")
        self._listener.close()
        loop.close()
