"""The states of a resource, as readers see them (enum shmc_state of shmcache.h)."""

from __future__ import annotations

ABSENT, LISTING, SYNCED, RETRYING, STALED, EXCEEDED = range(6)

NAMES = ("absent", "listing", "synced", "retrying", "stale", "exceeded")
"""What people read, by state."""
