"""Shards of objects by uid, as a reader selects them: see protocol/selectors/hashing.py."""

from __future__ import annotations

from shmcache.protocol.selectors.hashing import bounds, shard_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["bounds", "shard_hash", "uid_of"]


def uid_of(obj: Any) -> str | None:
    """metadata.uid of a dict or a View; None without one, or where the object has another shape."""
    metadata: Any = obj.get("metadata")
    uid = metadata.get("uid") if hasattr(metadata, "items") else None
    return uid if isinstance(uid, str) else None
