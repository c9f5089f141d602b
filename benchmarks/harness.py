"""Shared by all benchmarks: fair timing, rows with a verdict, and a description of the machine.

Two compared things are timed in turns, round by round, and the ratio is the median of the rounds'
ratios: a disturbance of a shared machine then hits both. Each loop runs once untimed before it is
timed, so that it finds the caches as it left them itself. The empty loop is timed in every round
too, subtracted, and shown. The garbage collector is off while a loop runs. Work of one thread is
measured in that thread's CPU time: the slices of others do not count.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("shmcache", "orjson", "lmdb", "pyzmq", "iceoryx2", "urllib3", "kubernetes", "gunicorn",
            "fastapi", "uvicorn", "msgspec", "redis", "kubernetes_asyncio", "lightkube",
            "kr8s")  # fmt: skip

Loop = Callable[[Any], object]
"""A timed loop: takes the result of its `setup`, and runs `number` operations."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Nanoseconds per operation over the rounds, the empty loop subtracted."""

    ns: float
    low: float
    high: float
    empty: float
    rounds: tuple[float, ...]

    def __str__(self) -> str:
        return f"{show_ns(self.ns)} ({show_ns(self.low)} to {show_ns(self.high)})"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table: a question, our answer, the peer's, and the target."""

    question: str
    ours: str
    peer: str
    ratio: float | None = None
    must: str = ""
    met: bool | None = None
    note: str = ""
    data: dict[str, Any] | None = None  # the numbers for pictures

    @property
    def verdict(self) -> str:
        return {True: "met", False: "MISSED", None: ""}[self.met]


NOT_ASKED = "not asked in a quick run"


def not_asked(*questions: str) -> list[Row]:
    """Rows that mark these questions as not asked."""
    return [Row(question=question, ours="", peer=NOT_ASKED) for question in questions]


def at_most(limit: float, ratio: float) -> dict[str, Any]:
    return {"ratio": ratio, "must": f"≤ {_limit(limit)} ×", "met": ratio <= limit}


def at_least(limit: float, ratio: float) -> dict[str, Any]:
    return {"ratio": ratio, "must": f"≥ {_limit(limit)} ×", "met": ratio >= limit}


def _limit(limit: float) -> str:
    """A small limit as a fraction: 1/45 is clearer than 0.0222."""
    parts = round(1 / limit)
    return f"1/{parts}" if parts > 3 and abs(limit * parts - 1) < 1e-9 else show(limit)


def empty_loop(items: Sequence[object]) -> None:
    for _ in items:
        pass


def measure(
    loops: dict[str, tuple[Loop, Callable[[], Any]]],
    number: int,
    rounds: int,
    empty: Callable[[], object] | None = None,
) -> dict[str, Timing]:
    """Times each (loop, setup) once per round, in turns; setup is not timed."""
    raw: dict[str, list[float]] = {name: [] for name in loops}
    empties: list[float] = []
    nothing = [None] * number
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for turn in range(rounds + 1):
            for name, (loop, setup) in loops.items():
                loop(setup())  # untimed: the caches as the others left them are not our question
                given = setup()
                start = time.thread_time_ns()
                loop(given)
                elapsed = time.thread_time_ns() - start
                del given
                if turn:  # the first round warms up
                    raw[name].append(elapsed / number)
            start = time.thread_time_ns()
            empty() if empty else empty_loop(nothing)
            empties.append((time.thread_time_ns() - start) / number)
    finally:
        gc.enable()
        gc.unfreeze()
    cost = statistics.median(empties)
    return {name: timing([value - cost for value in values], cost) for name, values in raw.items()}


def timing(rounds: Sequence[float], empty: float = 0.0) -> Timing:
    """The median of the rounds and the range of their middle half."""
    ordered = sorted(rounds)
    quarter = len(ordered) // 4
    return Timing(
        ns=statistics.median(ordered),
        low=ordered[quarter],
        high=ordered[-1 - quarter],
        empty=empty,
        rounds=tuple(rounds),
    )


def ratio_of(ours: Timing, peer: Timing) -> float:
    """The median over the rounds of ours / peer."""
    return statistics.median(a / b for a, b in zip(ours.rounds, peer.rounds, strict=True))


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def show(value: float) -> str:
    """Three significant digits, and never an exponent."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    if abs(value) < 1e-4:
        return "0" if value == 0 else f"{value:.6f}"
    return f"{value:.3g}"


def show_ns(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{show(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def show_s(seconds: float) -> str:
    return show_ns(seconds * 1e9)


def show_bytes(size: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size) >= factor:
            return f"{show(size / factor)} {unit}"
    return f"{size:.0f} B"


def private_bytes() -> int:
    """Memory that only this process pays for: its private pages and its page tables.

    Pages of shared mappings are left out even if no other process maps them; they are the cache's.
    """
    total = 0
    private = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            private = rest[0].endswith("p")
        elif private and name in ("Private_Clean:", "Private_Dirty:"):
            total += int(rest[0]) << 10
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmPTE:"):
            total += int(line.split()[1]) << 10
    return total


def environment() -> dict[str, str]:
    """Of what is measured: a user's Python keeps what it compiled, whatever is set here."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def machine() -> dict[str, str]:
    """The facts that a reader needs to compare these numbers with others."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "cpu": cpu,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": show_bytes(memory),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "commit": _commit(),
        **versions,
    }


def _commit() -> str:
    """The measured commit, with a note if the code differed from it."""
    commit = _git("rev-parse", "--short", "HEAD")
    code = (
        "shmcache",
        "csrc",
        "benchmarks/*.py",
        "benchmarks/questions",
        "benchmarks/scenes",
        "benchmarks/peers",
    )
    return f"{commit} with changes" if _git("status", "--porcelain", "--", *code) else commit


def _git(*command: str) -> str:
    found = subprocess.run(
        ["git", *command], cwd=ROOT, check=False, capture_output=True, text=True
    )  # fmt: skip
    return found.stdout.strip() if found.returncode == 0 else "none"


HEADS = ("question", "ours", "peer", "ratio", "must reach", "verdict", "notes")


def table(rows: Sequence[Row], *, padded: bool = False) -> str:
    """The rows as a Markdown table; padded, it is also readable on a terminal."""
    cells = [
        (row.question, row.ours, row.peer, "" if row.ratio is None else show(row.ratio), row.must,
         row.verdict, row.note)
        for row in rows
    ]  # fmt: skip
    used = [n for n, head in enumerate(HEADS) if n < 3 or any(line[n] for line in cells)]
    lines = [[line[n] for n in used] for line in [HEADS, *cells]]
    widths = [max(len(line[n]) for line in lines) if padded else 0 for n in range(len(used))]
    text = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * max(3, width + 2 * padded) for width in widths) + "|")
    return "\n".join(text)


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer objects and rounds")
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    parser.add_argument("--traces", metavar="DIRECTORY", help="where the recorded pages are")
    return parser


def main(description: str | None, run: Callable[[bool], list[Row]]) -> None:
    """The command line of every question file."""
    options = arguments(description).parse_args()
    if options.traces:
        os.environ["SHMCACHE_TRACES"] = options.traces
    about, load = machine(), os.getloadavg()[0]
    if not options.json:
        print(", ".join(f"{name} {value}" for name, value in about.items()))
    started = time.monotonic()
    rows = list(run(options.quick))
    seconds = time.monotonic() - started
    print(table(rows, padded=True))
    if options.json:
        answer = {
            "machine": about,
            "quick": options.quick,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "seconds": round(seconds, 1),
            "load": round(load, 1),
            "rows": [{**dataclasses.asdict(row), "verdict": row.verdict} for row in rows],
        }
        Path(options.json).write_text(json.dumps(answer, indent=1, ensure_ascii=False) + "\n")
    else:
        print(f"{seconds:.0f} s")
    sys.stdout.flush()
