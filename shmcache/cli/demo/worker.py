"""One worker of the demo: follows the cache, reads each change, and reports about itself.

    python -m shmcache.cli.demo.worker NAME      ends with its parent

A report is one line: events, private KiB beyond imports, laps, and bucket:count for each bucket
of lags (lags.py), all of them since the process began.
"""

from __future__ import annotations

import os
import sys
import time

import shmcache
from shmcache.cli.demo.lags import Lags
from shmcache.cli.demo.objects import STAMP

REPORT_SECONDS = 0.25


class DemoWorker:
    """Counts what it sees; the cache itself is shared."""

    def __init__(self, name: str) -> None:
        self.imports_kib = private_kib()
        self.cache = shmcache.attach(name, timeout=10)
        self.pods = self.cache["pods"]
        self.cursor = self.cache.follow(["pods"])
        self.events = self.laps = 0
        self.lags = Lags()

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
                self.lags.add(now - int(delta.new["metadata"]["annotations"][STAMP]))
        self.events += len(deltas)

    def report(self) -> str:
        """The line."""
        lags = " ".join(f"{bucket}:{count}" for bucket, count in self.lags.counts.items())
        return f"{self.events} {private_kib() - self.imports_kib} {self.laps} {lags}"


def private_kib() -> int:
    """Memory that only this process has."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def main(name: str) -> None:
    """Works until the parent is gone."""
    parent = os.getppid()
    worker = DemoWorker(name)
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
