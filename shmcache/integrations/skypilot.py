"""SkyPilot's API server: pods of all contexts from the caches of the machine.

    from shmcache.integrations.skypilot import register

    register()        # in a plugin's install(); shmcache run pods --context a --context b

SkyPilot asks its provider at each request, in each of its workers, and lists the pods from the
API server where the provider has nothing. The pods read as `kubernetes` models, from shared
memory. A context without a cache, or with one that is too old, is left to the API server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sky.provision.constants import TAG_SKYPILOT_CLUSTER_NAME
from sky.utils.plugin_extensions import PodInfoSource

from shmcache.errors import CacheTooOld, SegmentNotFound
from shmcache.integrations import attached
from shmcache.memory.contexts import context_name

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_AGE = 120.0


def register(name: str = "shmcache", *, max_age: float = MAX_AGE) -> None:
    """Makes the caches of `shmcache run --cache NAME --context ...` SkyPilot's source of pods."""
    PodInfoSource.register(pods_of(name, max_age=max_age))


def pods_of(name: str, *, max_age: float = MAX_AGE) -> Callable[[str], list[Any] | None]:
    """The provider: SkyPilot's pods in a context; None where the API server has to be asked."""

    def pods(context: str) -> list[Any] | None:
        try:
            cache = attached(context_name(name, context), wait=0)
            resource = cache["pods"]
            if not resource.synced:
                return None
            found = resource.models("kubernetes").list(
                labels=TAG_SKYPILOT_CLUSTER_NAME, max_age=max_age
            )
        except (SegmentNotFound, CacheTooOld, KeyError):
            return None
        return list(found)

    return pods
