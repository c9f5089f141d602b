"""JSON in Redis over a Unix socket: one copy for all, a round trip and a decode for each get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson

from benchmarks.peers import redis_lists


class RedisStore:
    name = "Redis"

    def __init__(self, socket: str, items: Iterable[tuple[str, bytes]]) -> None:
        self._client = redis_lists.connect(socket)
        self._client.mset(dict(items))

    def close(self) -> None:
        self._client.close()

    def ready(self, keys: Sequence[str]) -> list[str]:
        return list(keys)

    def get_field(self, keys: Sequence[str]) -> None:
        get, loads = self._client.get, orjson.loads
        for key in keys:
            loads(get(key))["spec"]["nodeName"]
