"""From the arguments of add_handler() to a registration."""

from __future__ import annotations

from shmcache.handlers.registration import Wanted
from shmcache.reader.sharding import bounds, shard_hash, uid_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any

    from shmcache.handlers.aio import Event
    from shmcache.handlers.consumer import Consumer
    from shmcache.handlers.registration import Handlers, Registration
    from shmcache.reader.cache import Cache
    from shmcache.reader.listing import Fields, Labels
    from shmcache.reader.resources import CachedResource


def selecting(labels: Labels | None, fields: Fields | None) -> Callable[[Any], bool] | None:
    """The test of whether an object is selected; None if all are."""
    if labels is None and fields is None:
        return None
    from shmcache.reader import listing

    selectors = (listing.label_selector(labels), listing.field_selector(fields))
    tests = [selector.matches for selector in selectors if selector]
    if len(tests) == 2:
        first, second = tests
        return lambda obj: first(obj) and second(obj)
    return tests[0] if tests else None


def cache_of(resource: CachedResource) -> Cache:
    """The cache whose latest state a resource shows. A snapshot's has none: it never changes."""
    if resource.root is not None:
        raise ValueError(f"{resource.name} is of a snapshot and never changes: use the cache's own")
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
    bounds(shard)  # ValueError for an invalid shard
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
    from shmcache.handlers import aio as asynchronous

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
    return asynchronous.Events(informer, wanted)


def consumer(
    resource: CachedResource,
    name: str,
    directory: str,
    *,
    labels: Labels | None,
    fields: Fields | None,
    namespace: str | None,
    shard: tuple[int, int] | None,
) -> Consumer:
    """See CachedResource.consumer()."""
    import json

    from shmcache.handlers.consumer import Consumer
    from shmcache.handlers.cursorfile import CursorFile
    from shmcache.reader import listing

    cache, match = cache_of(resource), selecting(labels, fields)
    first, last = bounds(shard)
    prefix = f"{namespace}/" if namespace else ""

    def wants(key: str, obj: Any) -> bool:
        if not key.startswith(prefix):
            return False
        if shard is not None and not first <= shard_hash(uid_of(obj)) <= last:
            return False
        return match is None or match(obj)

    selection = [
        namespace or "",
        str(listing.label_selector(labels) or ""),
        str(listing.field_selector(fields) or ""),
        None if shard is None else list(shard),
    ]
    file = CursorFile(directory, name, resource.name, json.dumps(selection))
    return Consumer(cache, resource.name, file, wants)
