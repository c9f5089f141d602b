"""How late do the workers of `shmcache demo` see a change, by the demo's own last words?

A lag is the time from the write at the API server to a worker's loop. The server, the reflector,
the workers and the table are processes of one machine; nothing else runs on it.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys

from benchmarks import harness
from benchmarks.harness import Row, show_ns

WORKERS, RATE, PODS = 4, 1000, 10_000
LIMIT_MS = 20.0
LAGS = re.compile(r"^lag  ([0-9,]+) events: p50 ([0-9.]+) ms, p99 ([0-9.]+) ms$", re.MULTILINE)


def run(quick: bool) -> list[Row]:
    turns, seconds = (1, 3) if quick else (5, 20)
    lags = [_lags(seconds) for _ in range(turns)]
    events, middle, late = (statistics.median(each) for each in zip(*lags, strict=True))
    return [
        Row(
            question=f"lag of an event in `shmcache demo`: {RATE:,} changes/s, {WORKERS} workers, "
            f"{PODS:,} pods",
            ours=f"p50 {show_ns(middle * 1e6)}, p99 {show_ns(late * 1e6)}",
            peer=f"limit of p99 {LIMIT_MS:g} ms",
            ratio=late / LIMIT_MS,
            must=f"p99 ≤ {LIMIT_MS:g} ms",
            met=late <= LIMIT_MS,
            note=f"medians of {turns} demos of {seconds} s, {events:,.0f} events each",
        )
    ]


def _lags(seconds: int) -> tuple[float, float, float]:
    """Events, and the two quantiles in milliseconds, of the whole demo."""
    command = (sys.executable, "-m", "shmcache", "demo", "--seconds", str(seconds),
               "--workers", str(WORKERS), "--rate", str(RATE), "--pods", str(PODS))  # fmt: skip
    ended = subprocess.run(command, check=True, capture_output=True, text=True,
                           env=harness.environment())  # fmt: skip
    events, middle, late = LAGS.findall(ended.stdout)[-1]
    return float(events.replace(",", "")), float(middle), float(late)


if __name__ == "__main__":
    harness.main(__doc__, run)
