"""Parts of the API that only shared memory has, and their error."""

from __future__ import annotations

from typing import NoReturn

from shmcache.errors import ShmCacheError

LACKING = frozenset(
    ("Controller", "Cursor", "Delta", "Owns", "Requeue", "Staged", "TerminalError", "Watches",
     "columns", "controller", "deleted", "interop", "metrics", "run_controllers", "written")
)  # fmt: skip
"""Names of `shmcache` that this cache does not have."""


class NotPortable(ShmCacheError):
    """Only the cache in shared memory has this, which needs Linux."""


def lacking(name: str) -> NoReturn:
    """Raises the error for a name."""
    raise NotPortable(
        f"{name} needs the cache in shared memory, and so Linux; this is a private cache of one "
        "process (docs/portable.md)"
    )
