"""Paths of the API: which resource, object or document a request is about."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

SUBRESOURCES_OF_NAMESPACES = frozenset({"status", "finalize"})


class Target(NamedTuple):
    """What a path names; a path that is not of this form has no resource, see `parse`."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def api_version(self) -> str:
        """As objects say it."""
        return f"{self.group}/{self.version}" if self.group else self.version


def parse(path: str) -> Target | None:
    """The target of a path under /api/v1 or /apis/<group>/<version>; None for any other."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if not all(parts):
        return None
    if parts[:1] == ["api"] and len(parts) > 2:
        return _resource("", parts[1], parts[2:])
    if parts[:1] == ["apis"] and len(parts) > 3:
        return _resource(parts[1], parts[2], parts[3:])
    return None


def _resource(group: str, version: str, parts: list[str]) -> Target | None:
    namespace = ""
    inside = len(parts) > 3 or (len(parts) == 3 and parts[2] not in SUBRESOURCES_OF_NAMESPACES)
    if parts[0] == "namespaces" and inside:
        namespace, parts = parts[1], parts[2:]
    if len(parts) > 3:
        return None
    resource, name, subresource = (*parts, "", "")[:3]
    return Target(group, version, resource, namespace, name, subresource)


def verb(method: str, target: Target, *, watch: bool) -> str:
    """The API's word for a method; empty where the path has no such method."""
    if method in {"GET", "HEAD"}:
        if target.name:
            return "get"
        return "watch" if watch else "list"
    if not target.name:
        return {"POST": "create", "DELETE": "deletecollection"}.get(method, "")
    if method == "POST" and target.subresource:
        return "create"
    return {"PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "")
