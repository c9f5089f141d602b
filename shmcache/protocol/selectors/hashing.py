"""The hashes of KEP-5866, FNV-1a of 64 bits, and how n shards divide them. Small on purpose."""

from __future__ import annotations

_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


def shard_hash(text: str | None) -> int:
    """The hash of a uid or a namespace; that of "" without one."""
    found = _OFFSET
    for byte in (text or "").encode():
        found = ((found ^ byte) * _PRIME) & _MASK
    return found


def bounds(shard: tuple[int, int] | None) -> tuple[int, int]:
    """The first and the last hash of shard (i, n); of None, all hashes."""
    if shard is None:
        return 0, _MASK
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(f"a shard must be (i, n) with 0 <= i < n, not {shard!r}")
    return (index << 64) // count, ((index + 1) << 64) // count - 1
