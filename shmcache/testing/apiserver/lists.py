"""LIST: which version, which page, which bytes."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from shmcache.protocol import failures, framing, tokens, validation
from shmcache.protocol.accept import FULL, PARTIAL, Shape
from shmcache.protocol.kinds import Kind
from shmcache.protocol.options import ListOptions
from shmcache.protocol.selectors.shards import ShardSelector
from shmcache.testing.apiserver.selecting import RequestScope
from shmcache.testing.apiserver.store import ObjectStore
from shmcache.testing.apiserver.stored import Stored


class ListPage(NamedTuple):
    """The answer to one LIST."""

    version: int
    objects: list[Stored]
    token: str = ""
    remaining: int | None = None
    shard: ShardSelector | None = None


def fresh(asked: ListOptions) -> int:
    """The version that the store must have reached before the list can be answered."""
    return 0 if asked.continue_token else validation.numeric(asked.resource_version)


def page(
    store: ObjectStore,
    kind: Kind,
    scope: RequestScope,
    asked: ListOptions,
    *,
    watch_cache: bool = True,
) -> ListPage:
    """The objects asked for; a Failure (410) where their version is forgotten.

    With a watch cache, `limit` is ignored at resourceVersion=0 (R-AS-22).
    """
    version, start = _where(asked)
    try:
        version, objects = store.listing(kind.key, version)
    except failures.Failure as failure:
        if not asked.continue_token or failure.code != 410:
            raise
        token = tokens.encode(tokens.LATEST, start.removesuffix("\0"))
        raise failures.expired(failures.CONTINUE_TOO_OLD, token) from failure
    limit = 0 if asked.resource_version == "0" and watch_cache else asked.limit
    found = _cut(version, objects, scope, start, limit, cached=watch_cache)
    return found._replace(shard=scope.shard)


def _where(asked: ListOptions) -> tuple[int, str]:
    """The version to list (0: what is there now), and the key to begin at."""
    if asked.continue_token:
        token = tokens.decode(asked.continue_token)
        return max(token.version, 0), token.start
    version = validation.numeric(asked.resource_version)
    legacy = not asked.resource_version_match and asked.limit > 0
    exact = asked.resource_version_match == validation.EXACT or legacy
    return (version if exact else 0), ""


def _cut(
    version: int,
    objects: list[Stored],
    scope: RequestScope,
    start: str,
    limit: int,
    *,
    cached: bool,
) -> ListPage:
    prefix = f"{scope.namespace}/" if scope.namespace else ""
    first = bisect_left(objects, prefix + start, key=_key) if prefix or start else 0
    last = bisect_left(objects, f"{scope.namespace}0", key=_key) if prefix else len(objects)
    if not limit and not scope.selects:
        return ListPage(version, objects[first:last])
    found: list[Stored] = []
    for number in range(first, last):
        if not scope.matches(objects[number]):
            continue
        found.append(objects[number])
        if len(found) == limit and number + 1 < last:
            key = objects[number].key.removeprefix(prefix)
            token = tokens.encode(version, key, cached=cached)
            return ListPage(version, found, token, None if scope.selects else last - number - 1)
    return ListPage(version, found)


def _key(stored: Stored) -> str:
    return stored.key


def list_metadata(found: ListPage) -> dict[str, object]:
    """The metadata of a list."""
    metadata: dict[str, object] = {"resourceVersion": str(found.version)}
    if found.token:
        metadata["continue"] = found.token
    if found.remaining is not None:
        metadata["remainingItemCount"] = found.remaining
    if found.shard is not None:
        metadata["shardInfo"] = validation.shard_info(found.shard)
    return metadata


def pieces(kind: Kind, found: ListPage, shape: Shape = FULL) -> list[bytes]:
    """The body of a list, item by item, in the key order of the real server."""
    metadata = list_metadata(found)
    name, version = kind.list_kind, kind.api_version
    if shape.name == PARTIAL.name:
        name, version = "PartialObjectMetadataList", shape.api_version
    if kind.custom and shape.name == FULL.name:
        head = framing.encode({"apiVersion": version})[:-1] + b',"items":['
        tail = framing.encode({"kind": name, "metadata": metadata}, sort=True)
        end = b"]," + tail[1:] + b"\n"
    else:
        text = framing.encode({"kind": name, "apiVersion": version, "metadata": metadata})
        head, end = text[:-1] + b',"items":[', b"]}\n"
    body = [head]
    for stored in found.objects:
        body += (stored.item(kind, shape), b",")
    body[len(body) - 1 if found.objects else 1 :] = [end]
    return body
