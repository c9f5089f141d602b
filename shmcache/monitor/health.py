"""Whether a cache lives and is ready, in the form that Kubernetes asks for; and its endpoint.

    /livez     200 while its writer lives and tends it: one that stands still is to be restarted
    /readyz    200 once every first list is stored, as long as nothing is stale or lags
    /healthz   both
    /metrics   see metrics.py

Each lists its failures, line by line; `?verbose` lists its successes, too.
"""

from __future__ import annotations

import threading

from shmcache.errors import ShmCacheError
from shmcache.monitor.families import CONTENT_TYPE
from shmcache.monitor.metering import Meter, down
from shmcache.monitor.observing import observe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.monitor.observing import Observed, ObservedWriter
    from shmcache.reader.cache import Cache
    from shmcache.reader.freshness import Status

    Check = tuple[str, str]
    """The name of a check, and its failure, or ""."""

_UNWELL = ("stale", "exceeded")
READY_LAG = 10.0
"""Seconds that a resource may be behind its server and ready; a burst is over sooner."""
PATHS = frozenset({"/metrics", "/livez", "/readyz", "/healthz"})
_TEXT = "text/plain; charset=utf-8"


def liveness(at: Observed) -> list[Check]:
    """Whether the writer does its duties."""
    return [("writer", _writer(at.writer))]


def _writer(writer: ObservedWriter) -> str:
    if writer.beats:
        return ""
    if not writer.alive:
        return "it ended" if writer.closed else "it is gone: start it again"
    if writer.heartbeat is None:
        return "it has not begun yet"
    return f"pid {writer.pid} tended the cache {writer.heartbeat:.1f} s ago: it stands still"


def readiness(at: Observed) -> list[Check]:
    """Whether each resource can be relied on."""
    return [(name, _resource(status)) for name, status in at.resources.items()]


def _resource(status: Status) -> str:
    why = f": {status.reason}" if status.reason else ""
    if status.state == "absent" and (status.reason or status.objects):
        return ""  # the server has no such resource, or its writer tells no states
    if not status.synced:
        return f"{status.state}{why}"
    if status.state in _UNWELL:
        return f"{status.state} for {status.since:.0f} s{why}"
    if status.lag is not None and status.lag > READY_LAG:
        return f"{status.lag:.0f} s behind the events of the server"
    return ""


class ProbeAnswer:
    """The answer to a request."""

    __slots__ = ("body", "headers", "status_line")

    def __init__(self, status_line: str, content_type: str, text: str) -> None:
        self.status_line = status_line
        self.body = text.encode()
        self.headers = [
            ("Content-Type", content_type),
            ("Content-Length", str(len(self.body))),
            ("Cache-Control", "no-store"),
        ]


class Endpoint:
    """Answers requests about one cache, which need not be there yet. Thread-safe."""

    def __init__(self, name: str | None = None, cache: Cache | None = None) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._cache = cache
        self._meter = Meter(cache) if cache is not None else None

    def _attached(self) -> tuple[Cache, Meter]:
        from shmcache.reader.cache import attach

        with self._lock:
            if self._cache is None or self._meter is None:
                self._cache = attach(self._name)
                self._meter = Meter(self._cache)
            return self._cache, self._meter

    def answer(self, path: str, query: str = "") -> ProbeAnswer:
        """To GET of a path."""
        if path not in PATHS:
            return ProbeAnswer(
                "404 Not Found", _TEXT, "there are /metrics, /livez, /readyz, /healthz\n"
            )
        try:
            cache, meter = self._attached()
            if path == "/metrics":
                return ProbeAnswer("200 OK", CONTENT_TYPE, meter.text())
            at = observe(cache)
        except ShmCacheError as error:
            if path == "/metrics":
                return ProbeAnswer("200 OK", CONTENT_TYPE, down(self._name or "", str(error)))
            return _answer([("cache", str(error))], path, verbose=True)
        checks = liveness(at) if path != "/readyz" else []
        checks += readiness(at) if path != "/livez" else []
        return _answer(checks, path, verbose="verbose" in query)

    def close(self) -> None:
        """Ends the attachment that it made."""
        with self._lock:
            if self._cache is not None:
                self._cache.close()


def _answer(checks: list[Check], path: str, *, verbose: bool) -> ProbeAnswer:
    lines = [
        f"[-]{name} failed: {wrong}\n" if wrong else f"[+]{name} ok\n"
        for name, wrong in checks
        if wrong or verbose
    ]
    what = path.strip("/")
    if any(wrong for _, wrong in checks):
        return ProbeAnswer(
            "503 Service Unavailable", _TEXT, "".join([*lines, f"{what} check failed\n"])
        )
    return ProbeAnswer(
        "200 OK", _TEXT, "".join([*lines, f"{what} check passed\n"]) if verbose else "ok"
    )
