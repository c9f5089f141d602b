"""A user's transform: objects go in as text and come out as what is to be stored of them.

It may be called several times for the same state of an object and must answer the same. An object
that it raises on, or leaves out, is not in the cache: a state that is no more is not shown either.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from shmcache.callables import refuse_awaitable
from shmcache.engine.plans import Transform
from shmcache.protocol.items import Item

logger = logging.getLogger(__name__)


class Transforming:
    """The transform of one resource, with what it did wrong so far."""

    __slots__ = ("_keep_managed_fields", "_seen", "_transform", "failures", "left_out", "resource")

    def __init__(self, resource: str, transform: Transform, *, keep_managed_fields: bool) -> None:
        self.resource = resource
        self.failures = 0
        self.left_out = 0
        self._transform = transform
        self._keep_managed_fields = keep_managed_fields
        self._seen: set[type[Exception]] = set()

    def each(self, items: Iterable[Item]) -> Iterator[tuple[Item, dict[str, Any] | None]]:
        """Each item with its object; None where there is nothing to store of it."""
        for item in items:
            yield item, None if item.type == "DELETED" else self._one(item)

    def _one(self, item: Item) -> dict[str, Any] | None:
        import orjson

        try:
            obj: dict[str, Any] = orjson.loads(item.raw)
            if not self._keep_managed_fields:
                obj["metadata"].pop("managedFields", None)
            found = self._transform(obj)
            refuse_awaitable(found, "the transform")
        except Exception as error:
            self.failures += 1
            if type(error) not in self._seen:  # the rest is only counted
                self._seen.add(type(error))
                logger.exception("%s: the transform fails on %s", self.resource, item.key)
            return None
        self.left_out += found is None
        return found
