"""Shards of objects by uid, as a reader selects them: see protocol/selectors/hashing.py."""

from __future__ import annotations

from shmcache.protocol.selectors.hashing import bounds, shard_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["bounds", "metadata_of", "shard_hash", "uid_of"]


def metadata_of(obj: Any) -> Any:
    """The metadata of a dict or a View; an empty one where the object has another shape.

    Programs store what they like, and so does an etcd.
    """
    found: Any = obj.get("metadata")
    return found if hasattr(found, "items") else {}


def uid_of(obj: Any) -> str | None:
    """metadata.uid of a dict or a View; None without one, or where the object has another shape."""
    uid = metadata_of(obj).get("uid")
    return uid if isinstance(uid, str) else None
