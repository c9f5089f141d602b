"""Documents: discovery, the version, health."""

from __future__ import annotations

import platform

from shmcache.protocol import discovery, failures
from shmcache.testing.apiserver.kinds import ServedKinds
from shmcache.testing.apiserver.requests import ApiRequest, Response, document

VERSION = discovery.VERSION | {"platform": f"linux/{platform.machine()}"}
HEALTH = frozenset({"healthz", "livez", "readyz"})


def answer(catalogue: ServedKinds, request: ApiRequest, *, aggregated: bool = True) -> Response:
    """The document of a path; a Failure (404) of any other path.

    `aggregated`: whether all groups can be had in one document, as since 1.26.
    """
    if request.method not in {"GET", "HEAD"}:
        raise failures.method_not_allowed()
    parts = request.path.strip("/").split("/")
    if parts[:2] == ["openapi", "v3"]:
        return document(_openapi(catalogue, parts[2:]))
    if parts == ["version"]:
        return document(VERSION)
    if parts[0] in HEALTH and len(parts) == 1:
        return Response(pieces=[_health(parts[0], request)], content_type=failures.TEXT)
    if aggregated and discovery.is_aggregated(request.path, request.headers.get("accept", "")):
        found = document(discovery.aggregated(catalogue.groups(), core=parts == ["api"]))
        found.content_type = discovery.AGGREGATED_MEDIA
        return found
    return document(_discovery(catalogue, parts, request.headers.get("host", "")))


def _health(name: str, request: ApiRequest) -> bytes:
    if "verbose" not in request.query:
        return b"ok"
    return f"[+]ping ok\n[+]storage ok\n{name} check passed\n".encode()


def _discovery(catalogue: ServedKinds, parts: list[str], host: str) -> discovery.Document:
    groups = catalogue.groups()
    match parts:
        case ["api"]:
            return discovery.core_versions(host)
        case ["apis"]:
            return discovery.group_list(groups)
        case ["api", version] if version in groups[""]:
            return discovery.resource_list(version, groups[""][version])
        case ["apis", name] if name in groups and name:
            return discovery.group(name, groups[name])
        case ["apis", name, version] if version in groups.get(name, {}):
            return discovery.resource_list(f"{name}/{version}", groups[name][version])
    raise failures.no_page()


def _openapi(catalogue: ServedKinds, parts: list[str]) -> discovery.Document:
    """As much as kubectl needs to see that fields are validated by the server, if at all."""
    groups = catalogue.groups()
    if not parts:
        paths = [_prefix(group, version) for group in groups for version in groups[group]]
        return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}
    for group, versions in groups.items():
        for version, kinds in versions.items():
            if _prefix(group, version) == "/".join(parts):
                return discovery.openapi(_prefix(group, version), kinds)
    raise failures.no_page()


def _prefix(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"
