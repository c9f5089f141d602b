"""GET and LIST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.protocol import failures, validation
from shmcache.serve.answers import Answer

if TYPE_CHECKING:
    from shmcache.serve.catalogue import Served
    from shmcache.serve.requests import Request
    from shmcache.serve.server import Server


async def get(server: Server, request: Request, served: Served) -> Answer:
    """One object."""
    assert request.target is not None
    _, _, _, namespace, name, _ = request.target
    version = request.query.get("resourceVersion")
    if version:
        await server.fresh(served.name, validation.numeric(version))
    found = server.cache[served.name].get(served.key(namespace, name))
    if found is None:
        raise failures.not_found(served.kind.resource, served.kind.group, name)
    return Answer(found.json() + b"\n")


async def list_(server: Server, request: Request, served: Served) -> Answer:
    """A list."""
    assert request.target is not None
    views = server.cache[served.name].list(request.target.namespace)
    body = b",".join([view.json() for view in views])
    version = server.version(served.name)
    kind = served.kind
    return Answer(
        b'{"kind":"%b","apiVersion":"%b","metadata":{"resourceVersion":"%d"},"items":[%b]}\n'
        % (kind.list_kind.encode(), kind.api_version.encode(), version, body)
    )
