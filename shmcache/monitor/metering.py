"""Metrics of a cache, its reflector and all its workers: from shared memory, by any process.

Each process would otherwise know only of itself. Here one endpoint, in the reflector, in any worker
or in a process of its own, says the same of all of them. Names are client-go's where it has
one. Nothing is imported but what a worker has anyway.
"""

from __future__ import annotations

import threading
import time

from shmcache import states
from shmcache.errors import ShmCacheError
from shmcache.monitor import informers, observing
from shmcache.monitor.families import Families, Family, escaped, render
from shmcache.recorder.standing import STATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmcache.monitor.observing import Observed, Survey
    from shmcache.reader.cache import Cache

SURVEY_SECONDS, SURVEY_SHARE = 5.0, 50.0
"""The shortest time between surveys: seconds, and a multiple of the last one's duration."""
_VERSION_DIGITS = 15  # of a resourceVersion, as client-go cuts it: a float holds no more


class Meter:
    """Looks at one cache again and again; thread-safe. The walk for bytes is not done each time."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._survey: Survey | None = None
        self._due = 0.0

    def families(self) -> Families:
        """All metrics, now."""
        found = Families()
        observed = observing.observe(self._cache)
        _of_cache(found, observed)
        _of_resources(found, observed)
        _of_bytes(found, self._surveyed(), observed)
        _of_workers(found, observed)
        informers.fill(found, self._cache, observed)
        _of_recorder(found, observed)
        _of_queues(found, observing.queues(self._cache))
        for name, numbers in observing.controllers(self._cache).items():
            numbers.fill(found, name)
        return found

    def text(self) -> str:
        """The same in the text format of Prometheus."""
        return render(self.families())

    def _surveyed(self) -> Survey | None:
        """Of a few seconds ago, or None where the writer was faster than any walk."""
        with self._lock:
            if time.monotonic() >= self._due:
                try:
                    self._survey = observing.survey(self._cache)
                except ShmCacheError:
                    self._survey = None
                took = self._survey.seconds if self._survey else 0.0
                self._due = time.monotonic() + max(SURVEY_SECONDS, SURVEY_SHARE * took)
            return self._survey


def down(name: str, why: str) -> str:
    """The metrics without a cache: it is down, and the reason as a comment."""
    found = Families()
    found.gauge("shmcache_up", "Whether a writer lives and tends the cache.").add(0, cache=name)
    return f"# {escaped(why)}\n{render(found)}"


# ---- the metrics ---------------------------------------------------------------------------------


def _of_cache(to: Families, at: Observed) -> None:
    from shmcache import __version__

    name = at.name
    to.gauge("shmcache_info", "The cache and the shmcache that looks at it.").add(
        1, cache=name, instance=at.instance, version=__version__
    )
    to.gauge("shmcache_up", "Whether a writer lives and tends the cache.").add(
        at.writer.beats, cache=name
    )
    to.gauge("shmcache_writer_heartbeat_age_seconds", "Since the writer tended it last.").add(
        at.writer.heartbeat, cache=name
    )
    to.gauge("shmcache_writer_incarnation", "How many writers this segment has had.").add(
        at.writer.incarnation, cache=name
    )
    memory = to.gauge("shmcache_memory_bytes", "Memory of the cache, by what it is used for.")
    for kind, size in at.memory.items():
        memory.add(size, cache=name, kind=kind)
    to.gauge("shmcache_window_deltas", "Changes that the ring still holds.").add(
        at.head - at.tail, cache=name
    )
    for counter, text in _STATS.items():
        to.counter(f"shmcache_{counter}_total", text).add(at.stats[counter], cache=name)
    to.gauge("shmcache_seats", "Processes that may be attached.").add(at.seats, cache=name)
    to.gauge("shmcache_workers", "Processes that are attached.").add(len(at.workers), cache=name)


_STATS = {
    "commits": "Generations that were published.",
    "deltas": "Changes that were put on the ring.",
    "relists": "RELIST deltas on the ring instead of too many changes.",
    "renamed": "Times that the names of the cache's files were missing, and were made again.",
    "wakes": "Wake-ups of sleeping workers.",
    "revoked": "Pins that were revoked because memory was needed.",
}


def _of_resources(to: Families, at: Observed) -> None:
    for resource, status in at.resources.items():
        labels = {"cache": at.name, "resource": resource}
        for counter, (name, text) in _COUNTERS.items():
            to.counter(name, text).add(
                status.counters[counter], **_named(name, at.name, resource, labels)
            )
        version = _version(status.version)
        text = "The last resourceVersion that the reflector heard of (its last 15 digits)."
        to.gauge("reflector_last_resource_version", text).add(version, name=resource)
        text = "The resourceVersion of the content (its last 15 digits)."
        to.gauge("informer_store_resource_version", text).add(
            version, name=at.name, resource=resource
        )
        to.gauge("shmcache_resource_objects", "Objects that are cached.").add(
            status.objects, **labels
        )
        to.gauge("shmcache_resource_synced", "Whether the first list is stored.").add(
            status.synced, **labels
        )
        text = "Since the server was last heard: bytes of a list or watch, or a bookmark."
        to.gauge("shmcache_resource_age_seconds", text).add(status.age, **labels)
        text = "How long events of the server that are known to exist have not been stored."
        to.gauge("shmcache_resource_lag_seconds", text).add(status.lag, **labels)
        text = "How old time stamps in changed objects were when they arrived, by two clocks."
        to.gauge("shmcache_resource_stamp_age_seconds", text).add(status.stamp_age, **labels)
        if status.upstream:
            text = "1 for the server that the content comes from, where there are several."
            to.gauge("shmcache_resource_upstream", text).add(1, **labels, upstream=status.upstream)
        state = to.gauge("shmcache_resource_state", "1 for the state that the resource is in.")
        for name in states.NAMES:
            state.add(status.state == name, **labels, state=name)


_COUNTERS = {
    "lists": ("reflector_lists_total", "Lists, or pages of them, asked of the server."),
    "watches": ("reflector_watches_total", "Watches asked of the server."),
    "relists": ("shmcache_resource_relists_total", "Contents put in place after the first."),
    "events": ("shmcache_resource_events_total", "Changes that came by watches."),
    "bookmarks": ("shmcache_resource_bookmarks_total", "Bookmarks that came by watches."),
    "errors": ("shmcache_resource_errors_total", "Requests that ended as they should not."),
    "bytes": ("shmcache_resource_received_bytes_total", "JSON text of objects that came."),
    "refused": ("shmcache_resource_refused_total", "Objects that could not be stored."),
    "repaired": ("shmcache_resource_repaired_total", "Objects that were wrong, and put right."),
    "cut": (
        "shmcache_resource_watches_cut_total",
        "Watches that ended early while events that had arrived were yet to be read.",
    ),
}


def _named(metric: str, cache: str, resource: str, labels: dict[str, str]) -> dict[str, str]:
    """The labels of client-go's metrics: `name` is the reflector."""
    return {"name": resource, "cache": cache} if metric.startswith("reflector_") else labels


def _version(text: str | None) -> float | None:
    return float(text[-_VERSION_DIGITS:]) if text and text.isdecimal() else None


def _of_recorder(to: Families, at: Observed) -> None:
    """Of the flight recorder, if the cache has one."""
    found = at.recorder
    if found is None:
        return
    labels = {"cache": at.name}
    text = "Whether the flight recorder lives and records."
    to.gauge("shmcache_recorder_up", text).add(found.records, **labels)
    state = to.gauge("shmcache_recorder_state", "1 for the state that the recorder is in.")
    for name in STATES:
        state.add(found.alive and found.state == name, **labels, state=name)
    text = "Since the last change, or look without one, that is on the disk."
    to.gauge("shmcache_recorder_behind_seconds", text).add(found.behind, **labels)
    text = "How far back the flight record leads."
    to.gauge("shmcache_recorder_reach_seconds", text).add(found.reach, **labels)
    to.gauge("shmcache_recorder_bytes", "Size of the flight record.").add(found.bytes, **labels)
    text = "Changes that were recorded since the recorder began."
    to.counter("shmcache_recorder_changes_total", text).add(found.events, **labels)
    text = "How often changes were missing, and a difference took their place."
    to.counter("shmcache_recorder_gaps_total", text).add(found.gaps, **labels)


def _of_bytes(to: Families, survey: Survey | None, at: Observed) -> None:
    if survey is None:
        return
    size = to.gauge(
        "shmcache_resource_bytes",
        "Memory that a resource leads to; what resources share counts for each of them.",
    )
    for resource, row in survey.resources.items():
        for kind in ("values", "trees"):
            value = row[f"{kind[:-1]}_bytes"]
            size.add(value, cache=at.name, resource=resource, kind=kind)
    to.gauge("shmcache_verified", "Whether all that was walked agreed.").add(
        not survey.fault, cache=at.name
    )


def _of_workers(to: Families, at: Observed) -> None:
    for worker in at.workers:
        labels = {"cache": at.name, "seat": str(worker.seat), "pid": str(worker.pid)}
        text = "Changes that the slowest consumer of a process has not dealt with yet."
        to.gauge("shmcache_worker_lag_deltas", text).add(worker.lag, **labels)
        text = "How often a process fell behind the window and received a difference."
        to.counter("shmcache_worker_lapped_total", text).add(worker.lapped, **labels)
        text = "Clients of serve that were cut, or their watches, as they read too slowly."
        to.counter("shmcache_worker_clients_cut_total", text).add(worker.cut, **labels)
        text = "Changes that a process took from the ring."
        to.counter("shmcache_worker_taken_total", text).add(worker.taken, **labels)
        text = "States that a process holds."
        to.gauge("shmcache_worker_pins", text).add(worker.pins, **labels)
        text = "Memory that only this process has."
        to.gauge("shmcache_worker_private_bytes", text).add(worker.private, **labels)


_QUEUE = {
    "depth": ("gauge", "workqueue_depth", "Keys that wait to be handed out."),
    "adds": ("counter", "workqueue_adds_total", "Keys that were added."),
    "retries": ("counter", "workqueue_retries_total", "Keys that were added again for later."),
    "unfinished_seconds": (
        "gauge",
        "workqueue_unfinished_work_seconds",
        "How long all keys in progress have been so, together.",
    ),
    "longest_seconds": (
        "gauge",
        "workqueue_longest_running_processor_seconds",
        "How long the key that is in progress for longest has been so.",
    ),
    "delayed": ("gauge", "shmcache_workqueue_delayed", "Keys that were added for later."),
    "in_progress": ("gauge", "shmcache_workqueue_in_progress", "Keys that are being worked on."),
    "failing": ("gauge", "shmcache_workqueue_failing", "Keys that failed, and are tried again."),
    "oldest_seconds": (
        "gauge",
        "shmcache_workqueue_oldest_seconds",
        "How long the key that waits for longest has waited.",
    ),
}


def _of_queues(to: Families, queues: dict[str, dict[str, Any]]) -> None:
    for name, stats in queues.items():
        for stat, (kind, metric, text) in _QUEUE.items():
            family = to.counter if kind == "counter" else to.gauge
            family(metric, text).add(float(stats[stat]), name=name)
        for metric, total, count, text in _SUMMARIES:
            summary = to.setdefault(metric, Family(metric, "summary", text))
            summary.add_part("_sum", float(stats[total]), name=name)
            summary.add_part("_count", float(stats[count]), name=name)


_SUMMARIES = (
    ("workqueue_queue_duration_seconds", "queue_seconds", "gets", "How long keys waited."),
    ("workqueue_work_duration_seconds", "work_seconds", "dones", "How long keys were in work."),
)
