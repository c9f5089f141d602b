"""client-go's metrics of informers, where one cache replaces an informer per process.

    informer_queued_items                   changes that the slowest process has yet to deal with
    informer_processing_latency_seconds     from the arrival of an event until all readers see it

Labels are client-go's: `name` is the cache's, and group, version and resource are those of the API.
"""

from __future__ import annotations

from shmcache.errors import Lapped, StaleObjectError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from shmcache.monitor.families import Families
    from shmcache.monitor.observing import Observed
    from shmcache.reader.cache import Cache

_BATCH = 4096
_TRIES = 3
_BOUNDS = (("0.001", "stored_1ms"), ("0.01", "stored_10ms"), ("0.1", "stored_100ms"),
           ("+Inf", "stored"))  # fmt: skip


def fill(to: Families, cache: Cache, observed: Observed) -> None:
    """Adds them."""
    waiting = queued(cache, observed)
    text = "Changes that the slowest process has not dealt with yet."
    items = to.gauge("informer_queued_items", text)
    took = to.histogram(
        "informer_processing_latency_seconds",
        "From the arrival of an event of a watch until every reader sees it.",
    )
    for name, status in observed.resources.items():
        labels = labels_of(observed.name, name, cache[name].record()["settings"] or {})
        if waiting is not None:
            items.add(waiting.get(name, 0), **labels)
        for bound, stored in _BOUNDS:
            took.add_part("_bucket", status.stored[stored], **labels, le=bound)
        took.add_part("_sum", status.stored["storing_ns"] / 1e9, **labels)
        took.add_part("_count", status.stored["stored"], **labels)


def labels_of(cache: str, name: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Of a resource: as its reflector describes it, else as its name in the cache says."""
    called, _, version = name.partition("/")
    plural, _, group = called.partition(".")
    return {
        "name": cache,
        "group": str(settings.get("group", group)),
        "version": str(settings.get("version", version)),
        "resource": str(settings.get("plural", plural)),
    }


def queued(cache: Cache, observed: Observed) -> dict[str, int] | None:
    """By resource; None where the ring moves on faster than it can be counted.

    A process that has fallen out of the window receives a difference: all of the window counts.
    """
    lag = max((worker.lag or 0 for worker in observed.workers), default=0)
    for _ in range(_TRIES if lag else 0):
        root = cache.reader.root()
        position, names = max(root.head - lag, root.tail), root.names()
        counts = dict.fromkeys(names, 0)
        try:
            while position < root.head:
                deltas, position = root.take(position, _BATCH)
                for delta in deltas:
                    counts[names[delta.resource]] += 1
        except (Lapped, StaleObjectError):
            continue
        return counts
    return None if lag else {}
