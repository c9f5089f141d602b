"""Versions of namespaces: where each has a watch of its own behind it, it has a version of its own.

The resource then reports the smallest of them, and in its marks how far each is. A client that
lists or watches one namespace receives the version of that namespace: with the smallest one it
would receive again events that it has seen.

MARKS1  the marks of a cache of etcd name the history of the cluster instead: they have other values
    than texts, and say nothing of namespaces, whatever these are called.
"""

from __future__ import annotations

from shmcache.protocol.jsontext import decoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def versions(record: Mapping[str, Any]) -> dict[str, str]:
    """Namespaces and how far they are; nothing where the resource's version says it of all."""
    try:
        found = decoded(record["marks"]) if record["marks"] else {}
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    of_feeds = all(version is None or isinstance(version, str) for version in found.values())
    return {name: version for name, version in found.items() if version} if of_feeds else {}


def version_of(record: Mapping[str, Any], namespace: str) -> str | None:
    """Up to which version the content of a namespace is; of all of them without one."""
    found: str | None = versions(record).get(namespace) if namespace and record["marks"] else None
    return found or record["version"]
