"""What the demo shows: who there is, what comes through, what it costs. All of it is measured.

`lag` is from the write at the API server to the worker's loop; `private` is memory of that process
alone, beyond its imports; dicts are those of a process that keeps the same pods as dicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.cli.screen import BOLD, DIM, GREEN, RED, Screen
from shmcache.observing import observe
from shmcache.settings import format_size

if TYPE_CHECKING:
    from shmcache.cli.demo_show import Child, Stage

TITLES = "worker     pid    events  events/s   lag p50   lag p99  behind   private  lapped"
BAR = 30


def picture(stage: Stage, screen: Screen, seconds: float, left: float) -> list[str]:
    """The lines, of the time since the last picture; in the end (`left` is 0) of all of it."""
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
        screen.paint("lag: from the write at the API server to the worker's loop", DIM),
        "",
        *_memory(stage, screen),
    ]


def _server(stage: Stage, screen: Screen) -> list[str]:
    status = stage.cache["pods"].status
    asked = stage.server.requests
    heard = "never" if status.age is None else f"{status.age:.1f} s ago"
    state = screen.paint(status.state, GREEN if status.state == "synced" else RED)
    watches = f"{asked['watch', 'pods']} watch{'es' if asked['watch', 'pods'] != 1 else ''}"
    pid, events = stage.reflector.process.pid, status.counters["events"]
    size, text = format_size(stage.shared()), format_size(stage.json_bytes)
    return [
        f"API server   {status.objects:,} pods, {stage.made:,} changes so far",
        f"  │ HTTP     {watches} for all of this machine",
        f"reflector    pid {pid}, {state}, heard {heard}, {events:,} events",
        f"  │ memory   {size} shared, for {text} of JSON",
        f"{len(stage.children)} workers    each sees every change, and reads the pod that changed",
    ]


def _row(number: int, child: Child, seconds: float, lag: dict[int, int | None]) -> str:
    events, p50, p99, private, laps, _ = child.report
    behind = lag.get(child.process.pid)
    return (
        f"{number:>6} {child.process.pid:>7} {events:>9,} {child.rate(seconds):>9,.0f} "
        f"{_time(p50):>9} {_time(p99):>9} {'-' if behind is None else f'{behind:,}':>7} "
        f"{format_size(private << 10):>9} {laps:>7,}"
    )


def _time(micros: int) -> str:
    return f"{micros / 1000:.2f} ms" if micros else "-"


def _memory(stage: Stage, screen: Screen) -> list[str]:
    """What it costs, beside what the same costs as dicts of each worker."""
    count = len(stage.children)
    private = sum(child.report[3] << 10 for child in stage.children)
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
        f"dicts        {theirs} {format_size(there)}: {count} times {each}",
        f"saved        {saved}; one more worker costs {one}, not {each}",
    ]


def _bar(part: int, whole: int, screen: Screen, colour: str) -> str:
    size = max(1, round(part / whole * BAR)) if whole else 0
    return screen.paint("█" * size, colour) + " " * (BAR - size)
