"""Documents other than resources: discovery, the version, health."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from shmcache import __version__
from shmcache.protocol import discovery, failures, relays
from shmcache.serve.http import answers

if TYPE_CHECKING:
    from shmcache.serve.http.requests import HttpRequest
    from shmcache.serve.server import Server

VERSION = discovery.VERSION | {
    "gitVersion": f"v1.36.0+shmcache-{__version__}",
    "platform": f"linux/{platform.machine()}",
}


def answer(server: Server, request: HttpRequest) -> answers.Answer:
    """The document of a path; a Failure (404) if it does not exist."""
    if request.method not in {"GET", "HEAD"}:
        raise failures.method_not_allowed()
    match request.path.strip("/").split("/"):
        case ["healthz" | "livez"]:
            return answers.Answer(b"ok", media=answers.TEXT)
        case ["readyz"]:
            return _ready(server, request)
        case ["version"]:
            return answers.document(VERSION)
        case ["openapi", "v3", *rest]:
            return answers.document(_openapi(server, "/".join(rest)))
        case parts:
            return _discovery(server, request, parts)


def _ready(server: Server, request: HttpRequest) -> answers.Answer:
    """Whether all cached data may be shown, and this process takes requests."""
    lines, ready = [], not server.draining
    for served in server.catalogue.all():
        try:
            server.standing.headers(served)
        except failures.Failure as failure:
            ready = False
            lines.append(f"[-]{served.kind.key} {failure}")
        else:
            lines.append(f"[+]{served.kind.key} ok")
    lag = relays.lines(lag=server.standing.lag())
    lines += [f"[-]{name} of an unknown kind" for name in server.catalogue.unknown]
    if ready and "verbose" not in request.query:
        return answers.Answer(b"ok", media=answers.TEXT, headers=lag)
    lines.append(f"readyz check {'passed' if ready else 'failed'}")
    text = "\n".join(lines).encode() + b"\n"
    return answers.Answer(text, code=200 if ready else 503, media=answers.TEXT, headers=lag)


def _discovery(server: Server, request: HttpRequest, parts: list[str]) -> answers.Answer:
    groups = server.catalogue.groups()
    whole = discovery.is_aggregated(request.path, request.headers.get("accept", ""))
    match parts:
        case ["api" | "apis"] if whole:
            found = answers.document(discovery.aggregated(groups, core=parts[0] == "api"))
            found.media = discovery.AGGREGATED_MEDIA.encode()
            return found
        case ["api"]:
            host = request.headers.get("host", "")
            return answers.document(discovery.core_versions(host))
        case ["apis"]:
            return answers.document(discovery.group_list(groups))
        case ["api", version] if version in groups[""]:
            return answers.document(discovery.resource_list(version, groups[""][version]))
        case ["apis", name] if name in groups and name:
            return answers.document(discovery.group(name, groups[name]))
        case ["apis", name, version] if version in groups.get(name, {}):
            kinds = groups[name][version]
            return answers.document(discovery.resource_list(f"{name}/{version}", kinds))
    raise failures.no_page()


def _openapi(server: Server, path: str) -> discovery.Document:
    """As much as kubectl needs to see that there is nothing to validate."""
    prefixes = {
        (f"apis/{group}/{version}" if group else f"api/{version}"): kinds
        for group, versions in server.catalogue.groups().items()
        for version, kinds in versions.items()
    }
    if not path:
        found = {one: {"serverRelativeURL": f"/openapi/v3/{one}"} for one in prefixes}
        return {"paths": found}
    if path in prefixes:
        return discovery.openapi(path, prefixes[path])
    raise failures.no_page()
