"""From events to keys: which objects of the controller's resource an event makes dirty.

the resource itself   its own key
owns                  that of the controlling owner, by group and kind as controller-runtime
watches               the keys that a function returns

SRC1  Of an update, both old and new count: an object that changed its owner makes both dirty.
SRC2  Where the state before an event is gone (a Tombstone is left: the consumer was away for
      longer than the window), its owners and keys are unknown. Then all keys are dirty, once
      for each state of the cache, and predicates are not asked: they could not compare.
SRC3  A function that raises loses no event: the feeder calls it again. Owner references that
      are malformed are skipped, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shmcache.callables import check_plain, refuse_awaitable
from shmcache.controllers.predicates import Predicate
from shmcache.controllers.rows import RESOURCES, digest
from shmcache.handlers.tombstone import Tombstone
from shmcache.protocol.builtins import builtin
from shmcache.queue.feeder import SourceEvent
from shmcache.reader.cache import Cache

KeysOf = Callable[[SourceEvent], Iterable[str]]
Mapper = Callable[[Any, Cache], "str | Iterable[str] | None"]
"""Called with an object and the cache; returns the keys that it makes dirty, or one."""


@dataclass(frozen=True, slots=True)
class Owns:
    """A resource whose objects have owners in the controller's resource."""

    resource: str
    predicates: tuple[Predicate, ...] = ()
    any_owner: bool = False
    """Whether owners count that are not the controlling one."""

    def __post_init__(self) -> None:
        check_predicates(self.predicates)


@dataclass(frozen=True, slots=True)
class Watches:
    """A resource of which each object makes the keys dirty that the function gives."""

    resource: str
    keys: Mapper
    predicates: tuple[Predicate, ...] = ()

    def __post_init__(self) -> None:
        check_plain(self.keys, "the function of watches", iterated=True)
        check_predicates(self.predicates)


def check_predicates(predicates: Iterable[Predicate]) -> None:
    """TypeError for a predicate that is not a plain function."""
    for predicate in predicates:
        check_plain(predicate, "a predicate")


class Share(Protocol):
    """Which keys are this machine's."""

    def ours(self, keys: list[str], event: SourceEvent) -> list[str]:
        """Those of the keys of an event."""


class Type:
    """Group, kind and scope of a resource, as owner references name them.

    In this order: as given, as the reflector's discovery found them, as they are known of built-in
    resources, as the first object shows them.
    """

    def __init__(self, resource: str, kind: str | None = None) -> None:
        plain = resource.partition("/")[0]
        self.resource = resource
        self.group = plain.partition(".")[2]
        self.kind = kind
        self.namespaced: bool | None = None
        self._given = kind
        for known in builtin():
            if known.key == plain:
                self.kind = kind or known.kind
                self.namespaced = known.namespaced

    def learn(self, cache: Cache) -> None:
        """Reads what discovery found, or looks at an object, if there is one."""
        if self.kind is not None and self.namespaced is not None:
            return
        reader, number = cache.locate(self.resource)
        settings = reader.root().record(number)["settings"] or {}
        if settings.get("kind"):
            self.group = str(settings.get("group") or "")
            self.kind = self._given or str(settings["kind"])
            self.namespaced = bool(settings.get("namespaced", True))
            return
        for obj in cache[self.resource].list(limit=1):
            self.kind = self.kind or obj.get("kind")
            self.namespaced = "namespace" in obj["metadata"]

    def key(self, reference: Any, namespace: str | None) -> str | None:
        """The key that an owner reference names; None if it names another type, or is malformed."""
        fields = [reference.get(field) for field in ("apiVersion", "kind", "name")]
        if not all(isinstance(field, str) and field for field in fields):
            return None
        version, kind, name = fields
        group, slash, _ = version.rpartition("/")
        if (group if slash else "") != self.group or self.kind not in {None, kind}:
            return None
        return f"{namespace}/{name}" if namespace and self.namespaced is not False else str(name)


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
        if len(self.resources) > RESOURCES:
            count = len(self.resources)
            raise ValueError(f"at most {RESOURCES:,} resources feed a controller, not {count:,}")
        self._index, self._shards = shard or (0, 1)
        self._everything: list[_Everything] = []

    @property
    def resources(self) -> tuple[str, ...]:
        """All resources that are read, each once."""
        owned = (one.resource for one in self.owns)
        watched = (one.resource for one in self.watches)
        return tuple(dict.fromkeys((self.kind.resource, *owned, *watched)))

    def feeds(self, cache: Cache, share: Share | None = None) -> list[tuple[str, KeysOf]]:
        """For the feeder: each resource once, and what its events make dirty.

        `share`: which keys are this machine's now.
        """
        feeds = {self.kind.resource: [self._asked(self.predicates, self._itself)]}
        for one in self.owns:
            keys = self._asked(one.predicates, self._owners(one, cache))
            feeds.setdefault(one.resource, []).append(keys)
        for other in self.watches:
            keys = self._asked(other.predicates, self._mapped(other, cache))
            feeds.setdefault(other.resource, []).append(keys)
        return [(resource, self._united(parts, share)) for resource, parts in feeds.items()]

    def ours(self, key: str) -> bool:
        """Whether the key is of our shard. By key, not by uid: it must be known of what is gone."""
        return self._shards == 1 or digest(key) % self._shards == self._index

    # ---- one function for each kind of source --------------------------------------------------

    def _united(self, parts: list[KeysOf], share: Share | None) -> KeysOf:
        def united(event: SourceEvent) -> Iterable[str]:
            try:
                keys = dict.fromkeys(key for keys in parts for key in keys(event))
                for key in keys:
                    if not isinstance(key, str):
                        raise TypeError(f"the function of watches must return keys, not {key!r}")
            except BaseException:
                for everything in self._everything:
                    everything.forget()  # its keys are not added: the event comes again (SRC3)
                raise
            ours = [key for key in keys if self.ours(key)]
            return ours if share is None else share.ours(ours, event)

        return united

    def _asked(self, predicates: tuple[Predicate, ...], keys: KeysOf) -> KeysOf:
        def asked(event: SourceEvent) -> Iterable[str]:
            if not _partial(event):  # SRC2
                for predicate in predicates:
                    passes = predicate(event)
                    refuse_awaitable(passes, "a predicate")
                    if not passes:
                        return ()
            return keys(event)

        return asked

    def _itself(self, event: SourceEvent) -> Iterable[str]:
        return (event.key,)

    def _everything_of(self, cache: Cache) -> _Everything:
        self._everything.append(_Everything(self.kind.resource, cache))
        return self._everything[-1]

    def _owners(self, owned: Owns, cache: Cache) -> KeysOf:
        everything = self._everything_of(cache)

        def owners(event: SourceEvent) -> Iterator[str]:
            self.kind.learn(cache)
            yield from everything.keys(event)
            for obj in _both(event):
                yield from self._owners_of(obj, any_owner=owned.any_owner)

        return owners

    def _owners_of(self, obj: Any, *, any_owner: bool) -> Iterator[str]:
        metadata = obj["metadata"]
        for reference in _references(metadata):
            if any_owner or reference.get("controller") is True:
                key = self.kind.key(reference, metadata.get("namespace"))
                if key is not None:
                    yield key
                if not any_owner:
                    return  # there is one controlling owner: the first, as the API machinery reads

    def _mapped(self, watched: Watches, cache: Cache) -> KeysOf:
        everything = self._everything_of(cache)

        def mapped(event: SourceEvent) -> Iterator[str]:
            yield from everything.keys(event)
            for obj in _both(event):
                found = watched.keys(obj, cache)
                refuse_awaitable(found, "the function of watches")
                if isinstance(found, str):
                    yield found
                else:
                    yield from found or ()

        return mapped


class _Everything:
    """All keys of a resource, for an event that may concern each of them (SRC2)."""

    def __init__(self, resource: str, cache: Cache) -> None:
        self._resource = resource
        self._cache = cache
        self._covered: object = None  # the state whose unknown events are dealt with

    def keys(self, event: SourceEvent) -> Iterable[str]:
        """All keys if the event needs them, once for the events of one state."""
        if not _partial(event) or (event.state is not None and event.state == self._covered):
            return ()
        self._covered = event.state
        return [key for key, _ in self._cache[self._resource].range()]

    def forget(self) -> None:
        """The keys that were returned last were not used."""
        self._covered = None


def _references(metadata: Any) -> Iterator[Any]:
    references = metadata.get("ownerReferences")
    for reference in references if isinstance(references, Sequence) else ():
        if isinstance(reference, Mapping):
            yield reference


def _both(event: SourceEvent) -> Iterator[Any]:
    for obj in (event.old, event.new):
        if obj is not None and not isinstance(obj, Tombstone):
            yield obj


def _partial(event: SourceEvent) -> bool:
    """Whether nothing but its identity is known of the object before the event."""
    return isinstance(event.old, Tombstone) or (event.kind == "DELETED" and event.old is None)
