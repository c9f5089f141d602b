"""One worker of the demo: follows the cache, reads each change, and reports about itself.

    python -m shmcache.cli.demo_worker NAME      ends with its parent

A report is one line: events, lag p50 and p99 in µs, private KiB beyond imports, laps,
pods running.
"""

from __future__ import annotations

import os
import sys
import time

import shmcache
from shmcache.cli.demo_objects import STAMP

REPORT_SECONDS = 0.25


class Worker:
    """Counts what it sees; the cache itself is shared."""

    def __init__(self, name: str) -> None:
        self.imports_kib = private_kib()
        self.cache = shmcache.attach(name, timeout=10)
        self.pods = self.cache["pods"]
        self.cursor = self.cache.follow(["pods"])
        self.events = self.laps = 0
        self.lags: list[int] = []

    def turn(self, timeout: float) -> None:
        """Sleeps until there is something, and reads it."""
        self.cache.wait(self.cursor, timeout)
        try:
            deltas = self.cursor.take()
        except shmcache.Lapped:
            self.laps += 1
            with self.cache.snapshot() as at:
                self.cursor.resume(at)
            return
        now = time.monotonic_ns()
        for delta in deltas:
            if delta.new is not None:
                self.lags.append(now - int(delta.new["metadata"]["annotations"][STAMP]))
        self.events += len(deltas)

    def report(self) -> str:
        """The line, and a new start of what it sums up."""
        lags, self.lags = sorted(self.lags) or [0], []
        p50, p99 = lags[len(lags) // 2], lags[len(lags) * 99 // 100]
        running = len(self.pods.by_index("phase", "Running"))
        private = private_kib() - self.imports_kib
        return f"{self.events} {p50 // 1000} {p99 // 1000} {private} {self.laps} {running}"


def private_kib() -> int:
    """Memory that only this process has."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def main(name: str) -> None:
    """Works until the parent is gone."""
    parent = os.getppid()
    worker = Worker(name)
    due = time.monotonic()
    while os.getppid() == parent:
        worker.turn(REPORT_SECONDS)
        if time.monotonic() >= due:
            print(worker.report(), flush=True)
            due = time.monotonic() + REPORT_SECONDS


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the demo is over: nothing to say, nothing to flush
