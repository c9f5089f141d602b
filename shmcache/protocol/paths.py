"""Paths of the API: which resource, object or document a request is about."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

SUBRESOURCES_OF_NAMESPACES = frozenset({"status", "finalize"})


class Target(NamedTuple):
    """The object or collection of a path; a path of another form has none, see `parse`."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
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


def without_watch(path: str, query: dict[str, str]) -> tuple[str, dict[str, str]]:
    """A GET of an old path (/api/v1/watch/pods) as the watch that it means; any other as it is.

    The path of one object means a watch of its collection, with its name as a field selector.
    """
    parts = path.strip("/").split("/")
    at = 2 if parts[0] == "api" else 3
    if parts[0] not in {"api", "apis"} or parts[at : at + 1] != ["watch"]:
        return path, query
    left = "/" + "/".join([*parts[:at], *parts[at + 1 :]])
    target = parse(left)
    if target is None or target.subresource:
        return path, query
    query = {**query, "watch": "true"}
    if target.name:
        left = left.rpartition("/")[0]
        terms = [f"metadata.name={target.name}", query.get("fieldSelector", "")]
        query["fieldSelector"] = ",".join(filter(None, terms))
    return left, query


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
    """The API's verb for a method; empty where the path has no such method."""
    if method in {"GET", "HEAD"}:
        if target.name:
            return "get"
        return "watch" if watch else "list"
    if not target.name:
        return {"POST": "create", "DELETE": "deletecollection"}.get(method, "")
    if method == "POST" and target.subresource:
        return "create"
    return {"PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "")


def is_segment(name: str) -> bool:
    """Whether a name can stand in a path: a GET of any other would be of something else."""
    return name not in {"", ".", ".."} and "/" not in name and "%" not in name
