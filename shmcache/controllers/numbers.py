"""The counts of a controller, by the names of controller-runtime, over all of its processes."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from shmcache.controllers.board import Board

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.monitor.families import Families

SUCCESS, ERROR, REQUEUE, REQUEUE_AFTER = range(4)
"""Results of a reconcile."""
TERMINAL, PANICS, TIMEOUTS, BEHIND, NANOSECONDS, SOURCE_ERRORS = range(4, 10)
_BOUNDS_AT = 16
RESULTS = ("success", "error", "requeue", "requeue_after")
BOUNDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8),
    *(0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30),
    *(40, 50, 60),
)
"""Of controller_runtime_reconcile_time_seconds, as upstream."""
_NS = tuple(int(bound * 1e9) for bound in BOUNDS)


def bound(nanoseconds: int) -> int:
    """The count of the histogram's bucket that a duration is in."""
    return _BOUNDS_AT + bisect_left(_NS, nanoseconds)


class Numbers:
    """All counts of a controller at one moment, of processes that are and that were."""

    def __init__(self, board: Board) -> None:
        rows = board.rows
        self.counts = [
            sum(row.count(number) for row in rows) for number in range(_BOUNDS_AT + len(BOUNDS) + 1)
        ]
        held = [row for row in rows if row.pid]
        self.results = dict(zip(RESULTS, self.counts, strict=False))
        """Reconciles by result: success, error, requeue, requeue_after."""
        self.errors = self.counts[ERROR]
        self.terminal = self.counts[TERMINAL]
        """Errors that were not tried again."""
        self.panics = self.counts[PANICS]
        """Keys in which a process died, or was killed."""
        self.timeouts = self.counts[TIMEOUTS]
        """Reconciles that took too long."""
        self.behind = self.counts[BEHIND]
        """Times that a key had to wait, since the cache did not show yet what it wrote."""
        self.source_errors = self.counts[SOURCE_ERRORS]
        """Times that a predicate, or a function of `watches`, raised."""
        self.seconds = self.counts[NANOSECONDS] / 1e9
        """That were spent in reconciles."""
        self.active = sum(1 for row in held for _ in row.runners())
        """Keys that are being worked on."""
        self.concurrent = sum(row.concurrency for row in held)
        """Keys that can be worked on at a time."""

    @property
    def reconciles(self) -> int:
        """All that came to an end."""
        return sum(self.results.values())

    def fill(self, to: Families, controller: str) -> None:
        """Adds them under the names of controller-runtime."""
        label = {"controller": controller}
        total = to.counter(f"{PREFIX}reconcile_total", "Reconciles by result.")
        for result, count in self.results.items():
            total.add(count, **label, result=result)
        for name, about, value in (
            ("reconcile_errors_total", "Reconciles that raised.", self.errors),
            ("terminal_reconcile_errors_total", "Not tried again.", self.terminal),
            ("reconcile_panics_total", "Keys in which a process died.", self.panics),
            ("reconcile_timeouts_total", "Over the time limit.", self.timeouts),
        ):
            to.counter(PREFIX + name, about).add(value, **label)
        to.counter(
            "shmcache_controller_source_errors_total",
            "Predicates and functions of watches that raised; their events are tried again.",
        ).add(self.source_errors, **label)
        to.gauge(f"{PREFIX}max_concurrent_reconciles", "Keys at a time.").add(
            self.concurrent, **label
        )
        to.gauge(f"{PREFIX}active_workers", "Keys in work now.").add(self.active, **label)
        took = to.histogram(f"{PREFIX}reconcile_time_seconds", "Duration of reconciles.")
        buckets = self.counts[_BOUNDS_AT:]
        limits = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        for limit, count in zip(limits, accumulate(buckets), strict=True):
            took.add_part("_bucket", count, **label, le=limit)
        took.add_part("_sum", self.seconds, **label)
        took.add_part("_count", sum(buckets), **label)

    def text(self, controller: str) -> str:
        """In Prometheus' format."""
        from shmcache.monitor.families import Families, render

        found = Families()
        self.fill(found, controller)
        return render(found)


PREFIX = "controller_runtime_"
