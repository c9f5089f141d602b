"""What tests of programs that use shmcache need; nothing that runs in earnest imports it.

with shmcache.testing.ApiServer() as server: ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmcache.testing.apiserver import ApiServer

__all__ = ["ApiServer"]


def __getattr__(name: str) -> Any:
    if name == "ApiServer":
        from shmcache.testing.apiserver import ApiServer

        return ApiServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
