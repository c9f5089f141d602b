"""What is served beside resources: discovery, the version, health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.protocol import discovery, failures
from shmcache.serve import answers

if TYPE_CHECKING:
    from shmcache.serve.requests import Request
    from shmcache.serve.server import Server


def answer(server: Server, request: Request) -> answers.Answer:
    """The document of a path; a Failure (404) where there is none."""
    if request.method not in {"GET", "HEAD"}:
        raise failures.method_not_allowed()
    groups = server.catalogue.groups()
    host = request.headers.get("host", "")
    match request.path.strip("/").split("/"):
        case ["healthz" | "livez"]:
            return answers.Answer(b"ok", media=answers.TEXT)
        case ["api"]:
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
