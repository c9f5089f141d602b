"""A dict of decoded dicts: the fastest store there is, one copy in each process."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence

import orjson

from benchmarks.scenes.objects import Object


class DictStore:
    name = "dict"

    def __init__(self, items: Iterable[tuple[str, bytes]]) -> None:
        gc.disable()  # collections would take most of the time to fill
        self.objects: dict[str, Object] = {key: orjson.loads(body) for key, body in items}
        gc.enable()

    def ready(self, keys: Sequence[str]) -> list[str]:
        """Equal keys, not the objects that the dict was filled with: a caller has its own."""
        return [key.encode().decode() for key in keys]

    def get(self, keys: Sequence[str]) -> None:
        get = self.objects.get
        for key in keys:
            get(key)

    def get_field(self, keys: Sequence[str]) -> None:
        objects = self.objects
        for key in keys:
            objects[key]["spec"]["nodeName"]
