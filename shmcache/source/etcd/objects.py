"""Keys and values of an answer to items, each with the resource that it belongs to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shmcache.protocol.items import LISTED, REFUSED, Item
from shmcache.source.etcd.answers import WatchEvent
from shmcache.source.etcd.keys import EtcdResource
from shmcache.source.etcd.messages import DELETE
from shmcache.source.etcd.values import RefusedValue, object_text

logger = logging.getLogger(__name__)
Matches = Callable[[str, bytes], bool]


class Objects:
    """Makes items for several resources. Of an item, `kind` is the name of its resource."""

    def __init__(self, resources: Sequence[EtcdResource], matches: Matches | None = None) -> None:
        self._resources = list(resources)
        self._longest = sorted(resources, key=lambda found: -len(found.pattern.prefix))
        self._matches = matches
        self._skipped: set[str] = set()

    def listed(self, number: int, kvs: Iterable[Any]) -> list[Item]:
        """Of a range over the prefix of one resource."""
        resource = self._resources[number]
        found = (self._item(LISTED, resource, kv) for kv in kvs)
        return [item for item in found if item is not None and item.type != "DELETED"]

    def prefixes(self) -> list[tuple[bytes, str | None]]:
        """Of EtcdAnswers: where it makes the items of plain objects itself."""
        return [
            (each.pattern.prefix, each.name if self._is_plain(each) else None)
            for each in self._longest
        ]

    def _is_plain(self, resource: EtcdResource) -> bool:
        plain = resource.pattern.is_prefix and resource.value == "object"
        return plain and not resource.revisions and self._matches is None

    def changed(self, events: Iterable[Any]) -> list[Item]:
        """Of a watch, in their order: items, and what becomes one here."""
        items: list[Item] = []
        for event in events:
            item = event if type(event) is Item else self._changed(WatchEvent._make(event))
            if item is not None:
                items.append(item)
        return items

    def _changed(self, event: WatchEvent) -> Item | None:
        resource = self._resource_of(event.key)
        if resource is None:
            return None
        if event.type == DELETE:
            return self._deleted(resource, event)
        created = event.create_revision == event.mod_revision
        return self._item("ADDED" if created else "MODIFIED", resource, event)

    def _resource_of(self, raw: bytes) -> EtcdResource | None:
        for resource in self._longest:
            if raw.startswith(resource.pattern.prefix):
                return resource
        return None

    def _deleted(self, resource: EtcdResource, kv: Any) -> Item | None:
        key = resource.pattern.key_of(kv.key)
        if key is None:
            return None
        return Item("DELETED", key, str(kv.mod_revision), None, resource.name, None, b"")

    def _item(self, kind: str, resource: EtcdResource, kv: Any) -> Item | None:
        """An item of this type; DELETED if the object is not wanted."""
        key = resource.pattern.key_of(kv.key)
        if key is None:
            self._skip(resource, kv.key)
            return None
        version = str(kv.mod_revision)
        try:
            text = object_text(
                kv.value,
                resource.value,
                resource.pattern.names_of(key),
                kv,
                revisions=resource.revisions,
            )
            wanted = self._matches is None or self._matches(resource.name, text)
        except RefusedValue as error:
            return Item(kind, key, version, None, resource.name, REFUSED, str(error).encode())
        if not wanted:  # an object that ceases to match leaves; others were never there
            return Item("DELETED", key, version, None, resource.name, None, b"")
        return Item(kind, key, version, None, resource.name, None, text)

    def _skip(self, resource: EtcdResource, raw: bytes) -> None:
        if resource.name not in self._skipped:
            self._skipped.add(resource.name)
            logger.warning(
                "%s: %r does not fit the pattern %s; such keys are left out",
                resource.name, raw[:200], resource.pattern.text,
            )  # fmt: skip
