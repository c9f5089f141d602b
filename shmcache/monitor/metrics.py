"""Metrics for programs: a text, a collector for prometheus_client, applications for web servers.

text = shmcache.metrics.Meter(cache).text()                    # Prometheus text format
prometheus_client.REGISTRY.register(shmcache.metrics.Collector(cache))
app = shmcache.metrics.wsgi_app("shmcache")                 # or asgi_app(): /metrics, /readyz
"""

from __future__ import annotations

from shmcache.monitor.health import Endpoint
from shmcache.monitor.metering import Meter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from shmcache.reader.cache import Cache

__all__ = ["Collector", "Meter", "asgi_app", "wsgi_app"]


class Collector:
    """For prometheus_client: `REGISTRY.register(Collector(cache))`.

    Not for its multi-process mode, which would add up totals: register it in one process, or serve
    wsgi_app() or asgi_app() next to your own metrics.
    """

    def __init__(self, cache: Cache) -> None:
        self._meter = Meter(cache)

    def collect(self) -> Iterator[Any]:
        """All metrics, as prometheus_client has them."""
        from prometheus_client.core import Metric

        for family in self._meter.families().values():
            made = Metric(family.name.removesuffix("_total"), family.help, family.kind)
            for suffix, labels, value in family.samples:
                made.add_sample(family.name + suffix, labels, float(value))
            yield made

    def describe(self) -> list[Any]:
        """Empty before the first look: the cache may not exist yet."""
        return []


def wsgi_app(name: str | None = None) -> Any:
    """A WSGI application that answers /metrics, /healthz, /livez and /readyz of a cache."""
    endpoint = Endpoint(name)

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        answer = endpoint.answer(environ.get("PATH_INFO", "/"), environ.get("QUERY_STRING", ""))
        start_response(answer.status_line, answer.headers)
        return [answer.body]

    return application


def asgi_app(name: str | None = None) -> Any:
    """The same for ASGI; the look at the cache is done in a thread."""
    endpoint = Endpoint(name)

    async def application(scope: Any, _receive: Any, send: Any) -> None:
        import asyncio

        if scope["type"] != "http":
            raise ValueError(f"no {scope['type']} here")
        query = scope.get("query_string", b"").decode()
        answer = await asyncio.to_thread(endpoint.answer, scope["path"], query)
        headers = [(key.lower().encode(), value.encode()) for key, value in answer.headers]
        status = int(answer.status_line[:3])
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    return application
