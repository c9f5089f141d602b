"""Which part of the server answers a request, and whether it may be asked at all.

Order is part of the contract: who asks, then whether the path is served, then whether the user may,
then whether the cache holds it, then whether it is fresh enough. Nobody learns from an answer what
he was not allowed to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.protocol import failures
from shmcache.serve import documents, reads, watch

if TYPE_CHECKING:
    from shmcache.serve.answers import Answer, Stream
    from shmcache.serve.catalogue import Served
    from shmcache.serve.connection import Connection
    from shmcache.serve.requests import Request
    from shmcache.serve.server import Server

READS = frozenset({"get", "list", "watch"})


async def answer(
    server: Server, request: Request, connection: Connection
) -> Answer | Stream | None:
    """The answer; None where a watch has taken the connection over. A Failure refuses."""
    if request.target is None:
        return documents.answer(server, request)
    served = _served(server, request)
    if request.verb == "watch":
        await watch.answer(server, request, connection, served)
        return None
    if request.verb == "get":
        return await reads.get(server, request, served)
    return await reads.list_(server, request, served)


def _served(server: Server, request: Request) -> Served:
    assert request.target is not None
    group, version, resource, namespace, name, subresource = request.target
    served = server.catalogue.find(group, version, resource)
    if request.verb not in READS:
        raise failures.method_not_allowed()
    if served is None or subresource:
        raise failures.no_resource()
    namespaced = served.kind.namespaced
    if (namespace and not namespaced) or (name and namespaced and not namespace):
        raise failures.no_resource()
    return served
