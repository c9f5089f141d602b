"""The picture of the demo: its processes, the events, their lags and the memory, all measured.

`lag` is the time from the write of an object at the API server to the worker's loop, of each event
since the start; `private` is memory of that process alone, beyond its imports; dicts are those of a
process that keeps the same pods as dicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.cli.demo.lags import Lags
from shmcache.cli.output.screen import BOLD, DIM, GREEN, RED, Screen
from shmcache.monitor.observing import observe
from shmcache.settings import format_size

if TYPE_CHECKING:
    from shmcache.cli.demo.show import DemoChild, DemoStage

TITLES = "worker     pid    events  events/s   lag p50   lag p99  behind   private  lapped"
BAR = 30


def picture(stage: DemoStage, screen: Screen, seconds: float, left: float) -> list[str]:
    """The lines; rates since the last picture, and at the end (`left` is 0) of the whole run."""
    if not left:
        for child in stage.children:
            child.forget_rate()
    at = observe(stage.cache)
    lag = {worker.pid: worker.lag for worker in at.workers}
    rows = [_row(n, child, seconds, lag) for n, child in enumerate(stage.children, 1)]
    end = f"{left:.0f} s left; q or ctrl-C ends it" if left else ""
    return [
        f"{screen.paint('shmcache demo', BOLD)}  {screen.paint(end, DIM)}",
        "",
        *_server(stage, screen),
        "",
        screen.paint(TITLES, BOLD),
        *rows,
        "",
        *_lags(stage, screen),
        "",
        *_memory(stage, screen),
    ]


def _server(stage: DemoStage, screen: Screen) -> list[str]:
    status = stage.cache["pods"].status
    asked = stage.server.requests
    heard = "never" if status.age is None else f"{status.age:.1f} s ago"
    state = screen.paint(status.state, GREEN if status.state == "synced" else RED)
    watches = f"{asked['watch', 'pods']} watch{'es' if asked['watch', 'pods'] != 1 else ''}"
    pid, events = stage.reflector.process.pid, status.counters["events"]
    size, text = format_size(stage.shared()), format_size(stage.json_bytes)
    return [
        f"{stage.server.title:12} {status.objects:,} pods, {stage.made:,} changes so far",
        f"  │ HTTP     {watches} for all of this machine",
        f"reflector    pid {pid}, {state}, heard {heard}, {events:,} objects received",
        f"  │ memory   {size} shared, for {text} of JSON",
        f"{len(stage.children)} workers    each sees every change, and reads the pod that changed",
    ]


def _row(number: int, child: DemoChild, seconds: float, lag: dict[int, int | None]) -> str:
    p50, p99 = child.lags.quantile(0.5), child.lags.quantile(0.99)
    behind = lag.get(child.process.pid)
    return (
        f"{number:>6} {child.process.pid:>7} {child.events:>9,} {child.rate(seconds):>9,.0f} "
        f"{_time(p50):>9} {_time(p99):>9} {'-' if behind is None else f'{behind:,}':>7} "
        f"{format_size(child.private << 10):>9} {child.laps:>7,}"
    )


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.2f} ms" if milliseconds else "-"


def _lags(stage: DemoStage, screen: Screen) -> list[str]:
    """The lags of all events of all workers since the start."""
    lags = Lags()
    for child in stage.children:
        lags.merge(child.lags.counts)
    summary = (
        f"{len(lags):,} events: p50 {_time(lags.quantile(0.5))}, p99 {_time(lags.quantile(0.99))}"
    )
    about = screen.paint("from the write at the API server to the worker's loop", DIM)
    return [f"lag  {summary}", about, *lags.picture()]


def _memory(stage: DemoStage, screen: Screen) -> list[str]:
    """The memory of the cache, compared with dicts in each worker."""
    count = len(stage.children)
    private = sum(child.private << 10 for child in stage.children)
    here = stage.shared() + private
    dicts = stage.dicts.bytes
    if dicts is None:
        return [f"memory       {format_size(here)} in all; a process measures what dicts take …"]
    there, one = dicts * count, format_size(private // max(count, 1))
    saved = screen.paint(format_size(there - here), BOLD)
    ours, theirs = _bar(here, there, screen, GREEN), _bar(there, there, screen, RED)
    each = format_size(dicts)
    return [
        f"shmcache     {ours} {format_size(here)}, workers included",
        f"dicts        {theirs} {format_size(there)} ({count} × {each})",
        f"saved        {saved}; one more worker costs {one}, not {each}",
    ]


def _bar(part: int, whole: int, screen: Screen, colour: str) -> str:
    size = max(1, round(part / whole * BAR)) if whole else 0
    return screen.paint("█" * size, colour) + " " * (BAR - size)
