"""From the arguments of add_handler() to a registration."""

from __future__ import annotations

from shmcache.handlers import Wanted
from shmcache.sharding import bounds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any

    from shmcache.asynchronous import Event
    from shmcache.handlers import Handlers, Registration
    from shmcache.listing import Fields, Labels
    from shmcache.reader import Cache
    from shmcache.resources import CachedResource


def selecting(labels: Labels | None, fields: Fields | None) -> Callable[[Any], bool] | None:
    """What says whether an object is selected; None if all are."""
    if labels is None and fields is None:
        return None
    from shmcache import listing

    selectors = (listing.label_selector(labels), listing.field_selector(fields))
    tests = [selector.matches for selector in selectors if selector]
    if len(tests) == 2:
        first, second = tests
        return lambda obj: first(obj) and second(obj)
    return tests[0] if tests else None


def cache_of(resource: CachedResource) -> Cache:
    """The cache whose latest state a resource shows. A snapshot's has none: it never changes."""
    if resource.root is not None:
        raise ValueError(f"{resource.name} is of a snapshot, and never changes: ask the cache's")
    return resource.cache


def add_handler(
    resource: CachedResource,
    handlers: Handlers,
    *,
    labels: Labels | None,
    fields: Fields | None,
    namespace: str | None,
    resync: float | None,
    shard: tuple[int, int] | None,
    name: str | None,
) -> Registration:
    """See CachedResource.add_handler()."""
    bounds(shard)  # ValueError for what is no shard
    cache = cache_of(resource)
    wanted = Wanted(
        resource.name,
        handlers,
        match=selecting(labels, fields),
        namespace=namespace,
        resync=resync,
        shard=shard,
        name=name,
    )
    return cache.informer.add(wanted)


def events(
    resource: CachedResource,
    *,
    labels: Labels | None,
    fields: Fields | None,
    namespace: str | None,
    shard: tuple[int, int] | None,
) -> AsyncIterator[Event]:
    """See CachedResource.events()."""
    from shmcache import asynchronous

    bounds(shard)
    wanted = Wanted(
        resource.name,
        (None, None, None),
        match=selecting(labels, fields),
        namespace=namespace,
        resync=None,
        shard=shard,
        name="events()",
    )
    informer = cache_of(resource).informer
    return asynchronous.events(informer, wanted)
