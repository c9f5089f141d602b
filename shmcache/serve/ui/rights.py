"""The resources and objects that the page may show to a user: as `serve` itself decides.

RIGHT1  A review is about the very key that is read afterwards. It names the target itself, without
    a path: keys that no path of the API can name would be reviewed as another object, or not.
RIGHT2  A user's resources are named one by one, so that a resource that comes later is not one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.protocol import failures
from shmcache.protocol.paths import Target
from shmcache.serve.http.requests import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmcache.protocol.kinds import Kind
    from shmcache.serve.catalogue import Served
    from shmcache.serve.server import Server


async def visible(server: Server, request: HttpRequest) -> frozenset[str] | None:
    """The resources that the request's user may list in all namespaces; None: no reviews."""
    if not server.access.reviewed:
        return None
    found = set()
    for served in server.catalogue.all():
        try:
            await server.access.check(_as(request, "list", _target(served)))
        except failures.Failure as failure:
            if failure.code != 403:
                raise
        else:
            found.add(served.name)
    return frozenset(found)


def sees_all(seen: frozenset[str] | None, names: Iterable[str]) -> bool:
    """Whether a user who may list these resources may list each of the names."""
    return seen is None or (bool(seen) and seen.issuperset(names))


async def check(server: Server, request: HttpRequest, resource: str, key: str) -> None:
    """A Failure (403) unless the request's user may get this object; (404) for no such resource."""
    if resource not in server.cache.resources:
        raise failures.no_page()
    if not server.access.reviewed:
        return
    for served in server.catalogue.all():
        if served.name == resource:
            await server.access.check(_as(request, "get", _target(served, key)))
            return
    raise failures.forbidden(request.user.name, "get", resource, "", "", name=key)


def prefix(kind: Kind) -> str:
    """The path of a kind's group and version."""
    return f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"


def _target(served: Served, key: str = "") -> Target:
    kind = served.kind
    namespace, _, name = key.rpartition("/") if kind.namespaced else ("", "", key)
    return Target(kind.group, kind.version, kind.resource, namespace, name)


def _as(request: HttpRequest, verb: str, target: Target) -> HttpRequest:
    """A read of this target by the same user."""
    made = HttpRequest("GET", request.path, {})
    made.user, made.verb, made.target = request.user, verb, target
    return made
