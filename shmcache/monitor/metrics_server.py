"""Metrics and probes over HTTP: `run --listen`, `metrics --listen`.

The server of `shmcache serve` with other answers, in a thread of its own: its deadlines, its limits
and its eviction of slow clients keep a place for every probe.

PACE1  clients cannot take more than SHARE of a core, whatever they ask: this thread has the
       interpreter in common with the one that keeps the cache. After BURST seconds of work that was
       not paid for it pauses, and requests wait in the kernel.
PACE2  an answer that was costly is given to all who ask until REST times its cost have passed.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from shmcache.monitor.health import PATHS
from shmcache.protocol import failures
from shmcache.serve.http import listeners
from shmcache.serve.http.answers import Answer
from shmcache.serve.http.listening import Listening
from shmcache.serve.http.loop import Loop
from shmcache.serve.limits import Limits

if TYPE_CHECKING:
    import socket

    from shmcache.monitor.health import Endpoint, ProbeAnswer
    from shmcache.serve.http.connection import Connection
    from shmcache.serve.http.requests import HttpRequest

LIMITS = Limits(connections=64, held_bytes=2 << 20, head_bytes=8 << 10, head_seconds=5.0,
                stall_seconds=10.0, idle_seconds=60.0, drain_seconds=1.0)  # fmt: skip
"""Scrapers and probes send little, and are few."""


SHARE = 0.25
BURST = 0.05
REST = 10.0


class _PacedLoop(Loop):
    """PACE1."""

    def __init__(self) -> None:
        super().__init__()
        self._worked = 0.0
        """CPU seconds since the last pause, as far as time has not paid for them."""
        self._looked = time.monotonic()

    def turn(self) -> None:
        """One look at everything, and sometimes a pause."""
        begun = time.thread_time()
        super().turn()
        now = time.monotonic()
        earned, self._looked = (now - self._looked) * SHARE, now
        self._worked = max(self._worked + time.thread_time() - begun - earned, 0.0)
        if self._worked > BURST:
            time.sleep(self._worked / SHARE)


class _Server(Listening):
    """Answers as an endpoint does."""

    def __init__(self, listener: socket.socket, endpoint: Endpoint) -> None:
        super().__init__(listener, LIMITS, loop=_PacedLoop())
        self._endpoint = endpoint
        self._kept: dict[tuple[str, bool], tuple[float, ProbeAnswer]] = {}
        """Answers by path and `verbose`, and until when each is given."""

    async def answer(self, request: HttpRequest, connection: Connection) -> Answer:  # noqa: ARG002
        """Any client may read; a body is not read at all."""
        if request.method not in {"GET", "HEAD"}:
            raise failures.method_not_allowed()
        found = self._found(request.path, verbose="verbose" in request.address.text)
        media = dict(found.headers)["Content-Type"].encode()
        return Answer(found.body, code=int(found.status_line[:3]), media=media, ready=True)

    def _found(self, path: str, *, verbose: bool) -> ProbeAnswer:
        """PACE2."""
        kept = self._kept.get((path, verbose))
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        begun = time.thread_time()
        found = self._endpoint.answer(path, "verbose" if verbose else "")
        cost = time.thread_time() - begun
        if path in PATHS:
            self._kept[path, verbose] = (time.monotonic() + REST * cost, found)
        return found


class MetricsServer:
    """A server that runs until close(). `url` says where."""

    def __init__(self, address: str, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        path = address.removeprefix("unix:") if address.startswith("unix:") else ""
        with ExitStack() as stack:
            if path:
                listener = listeners.unix(path, None, stack)
            else:
                listener = listeners.tcp(*parse(address), stack)
            self._stack = stack.pop_all()
        self.url = path or "http://{}:{}".format(*listener.getsockname()[:2])
        self._server = _Server(listener, endpoint)
        self._server.start()
        self._thread = threading.Thread(
            target=self._server.loop.run, name="shmcache-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Ends it, and gives back its address and its attachment."""
        loop = self._server.loop
        loop.call_threadsafe(lambda: self._server.drain(loop.stop))
        self._thread.join()
        self._stack.close()
        loop.close()
        self._endpoint.close()


def parse(address: str) -> tuple[str, int]:
    """Of ADDRESS:PORT, :PORT or [::1]:PORT. ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r}: must be ADDRESS:PORT, :PORT or unix:/path")
    return host.strip("[]"), int(port)
