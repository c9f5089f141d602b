"""Which part of the server answers a request, and whether it may be asked at all.

Order is part of the contract: who asks, then whether the path is served, then whether the user may,
then whether the cache holds it, then whether it is fresh enough. Nobody learns from an answer what
he was not allowed to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.protocol import failures
from shmcache.serve import access, documents, reads, watch
from shmcache.serve.answers import Answer

if TYPE_CHECKING:
    from shmcache.serve.answers import Stream
    from shmcache.serve.catalogue import Served
    from shmcache.serve.connection import Connection
    from shmcache.serve.requests import Request
    from shmcache.serve.server import Server

READS = frozenset({"get", "list", "watch"})
OFFERED = "GET, HEAD, OPTIONS"


async def answer(
    server: Server, request: Request, connection: Connection
) -> Answer | Stream | None:
    """The answer; None where a watch or a proxy has taken the connection over. A Failure refuses.

    What is passed on is decided by the API server, with the caller's credentials: nothing is
    checked here but that the caller may use this server. So is who asks for it as somebody else.
    """
    request.user = await server.access.user(request)
    if access.impersonates(request.headers):
        _as_another(server, request, connection)
        return None
    target = request.target
    if target is None:
        return _document(server, request, connection)
    served = server.catalogue.find(*target[:3])
    if served is None or target.subresource or request.verb not in READS:
        return _elsewhere(server, request, connection, served)
    await server.access.check(request)
    namespaced = served.kind.namespaced
    if (target.namespace and not namespaced) or (
        target.name and namespaced and not target.namespace
    ):
        raise failures.no_resource()
    if request.verb == "watch":
        await watch.answer(server, request, connection, served)
        return None
    if request.verb == "get":
        return await reads.get(server, request, served)
    return await reads.list_(server, request, served)


def _as_another(server: Server, request: Request, connection: Connection) -> None:
    if server.proxy is None:
        raise access.impersonation()
    server.proxy.answer(request, connection)


def _document(server: Server, request: Request, connection: Connection) -> Answer | None:
    """Discovery and what else is no resource: ours, or with a proxy all of the API server's.

    Clients find there what is not cached as well; a part of it would hide that from them. Health
    is always this server's own.
    """
    if request.method == "OPTIONS":
        return Answer(b"", headers=b"Allow: %b\r\n" % OFFERED.encode())
    if server.proxy is None or request.path.rstrip("/") in access.HEALTH:
        return documents.answer(server, request)
    server.proxy.answer(request, connection)
    return None


def _elsewhere(
    server: Server, request: Request, connection: Connection, served: Served | None
) -> Answer | None:
    """What this server cannot answer from its cache: passed on, or refused in words."""
    if request.method == "OPTIONS":
        return Answer(b"", headers=b"Allow: %b\r\n" % OFFERED.encode())
    if server.proxy is not None:
        server.proxy.answer(request, connection)
        return None
    target = request.target
    assert target is not None
    if served is None or target.subresource:
        resource = f"{target.resource}/{target.subresource}".rstrip("/")
        held = ", ".join(one.kind.key for one in server.catalogue.all()) or "nothing"
        raise failures.not_cached(resource, target.group, f"this cache holds {held}")
    raise failures.method_not_allowed()
