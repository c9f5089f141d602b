"""Shards as in KEP-5866: the 64-bit FNV-1a hashes of uids, cut into n ranges of equal size.

The API server will filter sharded watches in the same way, so nothing changes for who moves there.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


def uid_of(obj: Any) -> str | None:
    """metadata.uid of a dict or a View; None without one, or where the object has another shape."""
    metadata: Any = obj.get("metadata")
    uid = metadata.get("uid") if hasattr(metadata, "items") else None
    return uid if isinstance(uid, str) else None


def shard_hash(uid: str | None) -> int:
    """The hash of a uid; that of "" without one."""
    found = _OFFSET
    for byte in (uid or "").encode():
        found = ((found ^ byte) * _PRIME) & _MASK
    return found


def bounds(shard: tuple[int, int] | None) -> tuple[int, int]:
    """The first and the last hash of shard (i, n); of None, all hashes."""
    if shard is None:
        return 0, _MASK
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(f"a shard is (i, n) with 0 <= i < n, not {shard!r}")
    return (index << 64) // count, ((index + 1) << 64) // count - 1
