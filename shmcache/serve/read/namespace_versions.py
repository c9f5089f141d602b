"""Versions of namespaces: where each has a watch of its own behind it, it has a version of its own.

The resource then reports the smallest of them, and in its marks how far each is. A client that
lists or watches one namespace receives the version of that namespace: with the smallest one it
would receive again events that it has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shmcache.protocol.jsontext import decoded


def versions(record: Mapping[str, Any]) -> dict[str, str]:
    """Namespaces and how far they are; nothing where the resource's version says it of all."""
    try:
        found = decoded(record["marks"]) if record["marks"] else {}
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: version for name, version in found.items() if isinstance(version, str)}


def version_of(record: Mapping[str, Any], namespace: str) -> str | None:
    """Up to which version the content of a namespace is; of all of them without one."""
    found: str | None = versions(record).get(namespace) if namespace and record["marks"] else None
    return found or record["version"]
