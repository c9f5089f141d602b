"""Chooses the part of the server that answers a request, and checks permissions first.

The order is part of the contract: authenticate, check that the path is served, authorize, check
that the cache holds it, check that it is fresh enough. No answer reveals anything to a user who was
not allowed to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.protocol import failures
from shmcache.serve import documents
from shmcache.serve.auth import access
from shmcache.serve.http.answers import ALLOW, Answer
from shmcache.serve.http.requests import ANONYMOUS
from shmcache.serve.read import reads
from shmcache.serve.watch import request as watch

if TYPE_CHECKING:
    from shmcache.protocol.paths import Target
    from shmcache.serve.catalogue import Served
    from shmcache.serve.http.answers import Stream
    from shmcache.serve.http.connection import Connection
    from shmcache.serve.http.requests import HttpRequest
    from shmcache.serve.server import Server

READS = frozenset({"get", "list", "watch"})


async def answer(
    server: Server, request: HttpRequest, connection: Connection
) -> Answer | Stream | None:
    """The answer; None where a watch or a proxy has taken the connection over. A Failure refuses.

    The API server decides on requests that are passed on, with the caller's credentials: this
    server checks only that the caller may use it. Impersonating requests are passed on as well.
    """
    page = server.page
    if page is not None and (file := page.file(request)) is not None:
        return file
    request.user = user = await server.access.user(request, connection)
    connection.holder = connection.peer if user is ANONYMOUS else ("user", user.name)
    if access.impersonates(request.headers):
        if server.proxy is None:
            raise access.impersonation()
        await server.proxy.answer(request, connection)
        return None
    if page is not None and page.owns(request):
        return await page.answer(request, connection)
    if request.target is None:
        return await _document(server, request, connection)
    return await _api(server, request, request.target, connection)


async def _api(
    server: Server, request: HttpRequest, target: Target, connection: Connection
) -> Answer | Stream | None:
    """A request for objects."""
    served = server.catalogue.find(*target[:3])
    if served is None or target.subresource or request.verb not in READS:
        return await _elsewhere(server, request, connection, served)
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
        return await reads.get(server, request, connection, served)
    return await reads.list_(server, request, connection, served)


async def _document(server: Server, request: HttpRequest, connection: Connection) -> Answer | None:
    """Discovery and other documents: ours, or with a proxy all of the API server's.

    With a proxy, clients must also find resources that are not cached; our own discovery would hide
    them. Health is always this server's own.
    """
    if request.method == "OPTIONS":
        return Answer(b"", headers=ALLOW)
    if server.proxy is None or request.path.rstrip("/") in access.HEALTH:
        return documents.answer(server, request)
    await server.proxy.answer(request, connection)
    return None


async def _elsewhere(
    server: Server, request: HttpRequest, connection: Connection, served: Served | None
) -> Answer | None:
    """Requests that the cache cannot answer: passed on, or refused with a reason."""
    if request.method == "OPTIONS":
        return Answer(b"", headers=ALLOW)
    if server.proxy is not None:
        await server.proxy.answer(request, connection)
        return None
    target = request.target
    assert target is not None
    if served is None or target.subresource:
        resource = f"{target.resource}/{target.subresource}".rstrip("/")
        held = ", ".join(one.kind.key for one in server.catalogue.all()) or "nothing"
        versions = server.catalogue.groups().get(target.group, {})
        if target.group and target.version not in versions:
            raise failures.no_page(f"this cache holds {held}")
        raise failures.not_cached(resource, target.group, f"this cache holds {held}")
    raise failures.method_not_allowed()
