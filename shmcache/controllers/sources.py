"""From events to keys: which objects of the controller's resource an event makes dirty.

    the resource itself   its own key
    owns                  that of the controlling owner, by group and kind as controller-runtime
    watches               whatever a function says

Of an update, old and new are asked: an object that changed its owner makes both dirty. Where the
last state of a deleted object is not known, nobody can tell whose it was: then all keys are dirty.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from shmcache.controllers.places import digest
from shmcache.controllers.predicates import Predicate
from shmcache.feeding import Event
from shmcache.protocol.builtins import builtin
from shmcache.reader import Cache
from shmcache.tombstone import Tombstone

KeysOf = Callable[[Event], Iterable[str]]
Mapper = Callable[[Any, Cache], "Iterable[str] | None"]
"""Is given an object and the cache; the keys that it makes dirty."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owns:
    """A resource whose objects have owners in the controller's resource."""

    resource: str
    predicates: tuple[Predicate, ...] = ()
    any_owner: bool = False
    """Whether owners count that are not the controlling one."""


@dataclass(frozen=True, slots=True)
class Watches:
    """A resource of which each object makes the keys dirty that the function gives."""

    resource: str
    keys: Mapper
    predicates: tuple[Predicate, ...] = ()


class Type:
    """Group, kind and scope of a resource, as owner references speak of them.

    Of built-in resources it is known, of others it is learned from their objects, unless given.
    """

    def __init__(self, resource: str, kind: str | None = None) -> None:
        plain = resource.partition("/")[0]
        self.resource = resource
        self.group = plain.partition(".")[2]
        self.kind = kind
        self.namespaced: bool | None = None
        for known in builtin():
            if known.key == plain:
                self.kind = kind or known.kind
                self.namespaced = known.namespaced

    def learn(self, cache: Cache) -> None:
        """Looks at an object, if there is one."""
        if self.kind is not None and self.namespaced is not None:
            return
        for obj in cache[self.resource].list(limit=1):
            self.kind = self.kind or obj.get("kind")
            self.namespaced = "namespace" in obj["metadata"]

    def key(self, reference: Any, namespace: str | None) -> str | None:
        """The key that an owner reference names; None if it names another type."""
        group, slash, _ = reference["apiVersion"].rpartition("/")
        if (group if slash else "") != self.group:
            return None
        if self.kind is not None and reference["kind"] != self.kind:
            return None
        name: str = reference["name"]
        return f"{namespace}/{name}" if namespace and self.namespaced is not False else name


class Sources:
    """All that makes keys of one controller dirty."""

    def __init__(
        self,
        kind: Type,
        predicates: tuple[Predicate, ...],
        owns: tuple[Owns, ...],
        watches: tuple[Watches, ...],
        shard: tuple[int, int] | None,
    ) -> None:
        self.kind = kind
        self.predicates = predicates
        self.owns = owns
        self.watches = watches
        self._index, self._shards = shard or (0, 1)

    @property
    def resources(self) -> tuple[str, ...]:
        """All resources that are read, each once."""
        owned = (one.resource for one in self.owns)
        watched = (one.resource for one in self.watches)
        return tuple(dict.fromkeys((self.kind.resource, *owned, *watched)))

    def feeds(self, cache: Cache) -> list[tuple[str, KeysOf]]:
        """For the feeder: each resource once, and what its events make dirty."""
        feeds = {self.kind.resource: [self._asked(self.predicates, self._itself)]}
        for one in self.owns:
            keys = self._asked(one.predicates, self._owners(one, cache))
            feeds.setdefault(one.resource, []).append(keys)
        for other in self.watches:
            keys = self._asked(other.predicates, self._mapped(other, cache))
            feeds.setdefault(other.resource, []).append(keys)
        return [(resource, self._united(parts)) for resource, parts in feeds.items()]

    def ours(self, key: str) -> bool:
        """Whether the key is of our shard. By key, not by uid: it must be known of what is gone."""
        return self._shards == 1 or digest(key) % self._shards == self._index

    # ---- one function for each kind of source --------------------------------------------------

    def _united(self, parts: list[KeysOf]) -> KeysOf:
        def united(event: Event) -> Iterable[str]:
            keys = dict.fromkeys(key for keys in parts for key in keys(event))
            return [key for key in keys if self.ours(key)]

        return united

    def _asked(self, predicates: tuple[Predicate, ...], keys: KeysOf) -> KeysOf:
        def asked(event: Event) -> Iterable[str]:
            return keys(event) if all(predicate(event) for predicate in predicates) else ()

        return asked

    def _itself(self, event: Event) -> Iterable[str]:
        return (event.key,)

    def _owners(self, owned: Owns, cache: Cache) -> KeysOf:
        def owners(event: Event) -> Iterator[str]:
            self.kind.learn(cache)
            if _unknown(event):
                yield from self._all(cache)
            for obj in _both(event):
                yield from self._owners_of(obj, any_owner=owned.any_owner)

        return owners

    def _owners_of(self, obj: Any, *, any_owner: bool) -> Iterator[str]:
        metadata = obj["metadata"]
        for reference in metadata.get("ownerReferences") or ():
            if any_owner or reference.get("controller"):
                key = self.kind.key(reference, metadata.get("namespace"))
                if key is not None:
                    yield key

    def _mapped(self, watched: Watches, cache: Cache) -> KeysOf:
        def mapped(event: Event) -> Iterator[str]:
            if _unknown(event):
                yield from self._all(cache)
            for obj in _both(event):
                yield from watched.keys(obj, cache) or ()

        return mapped

    def _all(self, cache: Cache) -> Iterable[str]:
        return [key for key, _ in cache[self.kind.resource].range()]


def _both(event: Event) -> Iterator[Any]:
    for obj in (event.old, event.new):
        if obj is not None and not isinstance(obj, Tombstone):
            yield obj


def _unknown(event: Event) -> bool:
    """Whether something went away of which nothing is known but its name."""
    return event.kind == "DELETED" and (event.old is None or isinstance(event.old, Tombstone))
