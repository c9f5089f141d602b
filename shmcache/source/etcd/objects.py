"""Keys and values of an answer to items, each with the resource that it belongs to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shmcache._hot import EtcdAnswers
from shmcache.protocol.items import LISTED, REFUSED, Item
from shmcache.source.etcd import messages
from shmcache.source.etcd.answers import RangeAnswer, WatchEvent
from shmcache.source.etcd.keys import EtcdResource
from shmcache.source.etcd.values import RefusedValue, object_text

logger = logging.getLogger(__name__)
Matches = Callable[[str, bytes], bool]


class Ranges:
    """Reads the answers to ranges over one prefix, instead of a class of protobuf."""

    def __init__(self, prefix: tuple[bytes, str | None]) -> None:
        self._reader = EtcdAnswers([prefix])

    def FromString(self, message: bytes) -> RangeAnswer:  # noqa: N802 - as protobuf calls it
        """ValueError for anything but a RangeResponse."""
        return RangeAnswer._make(self._reader.read_range(message))


class Objects:
    """Makes items for several resources. Of an item, `kind` is the name of its resource."""

    def __init__(self, resources: Sequence[EtcdResource], matches: Matches | None = None) -> None:
        self._resources = list(resources)
        self._longest = sorted(resources, key=lambda found: -len(found.pattern.prefix))
        self._matches = matches
        self._skipped: set[str] = set()
        self._ranges = [
            messages.RANGE._replace(response=Ranges(self._prefix(each))) for each in resources
        ]

    def range_of(self, number: int) -> messages.Method:
        """A range over the prefix of one resource, whose answer is a RangeAnswer."""
        return self._ranges[number]

    def listed(self, number: int, events: Iterable[Any]) -> list[Item]:
        """Of such a range: items, and what becomes one here."""
        resource = self._resources[number]
        items: list[Item] = []
        for event in events:
            if type(event) is Item:
                items.append(event)
                continue
            item = self._item(LISTED, resource, WatchEvent._make(event))
            if item is not None and item.type != "DELETED":
                items.append(item)
        return items

    def prefixes(self) -> list[tuple[bytes, str | None]]:
        """Of EtcdAnswers: where it makes the items of plain objects itself."""
        return [self._prefix(each) for each in self._longest]

    def _prefix(self, resource: EtcdResource) -> tuple[bytes, str | None]:
        return resource.pattern.prefix, resource.name if self._is_plain(resource) else None

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
        if event.type == messages.DELETE:
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
