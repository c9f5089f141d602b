"""`shmcache demo`: one writer with generated pods, workers that follow it, and a live table.

Needs nothing but this machine, ends by itself (or by ctrl-C, or SIGTERM), leaves nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

import shmcache
from shmcache.cli.demo_objects import Churn, pods
from shmcache.settings import format_size

HELP = "One writer, several workers, generated pods: the core at work, on this machine."
BATCH = 20
SHOW_SECONDS = 0.5
TITLES = "worker      pid     events  events/s   p50 µs   p99 µs    private  laps  running"
NOTES = "lag: from before the writer encodes a batch to the worker's loop; private: beyond imports"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be changed; the defaults suit a laptop."""
    parser.add_argument("--seconds", type=float, default=20, help="how long (default: 20)")
    parser.add_argument("--workers", type=int, default=4, help="processes (default: 4)")
    parser.add_argument("--pods", type=int, default=5000, help="objects (default: 5000)")
    parser.add_argument("--rate", type=int, default=2000, help="changes a second (default: 2000)")


class Child:
    """A worker process, and the last line that it reported."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, "-m", "shmcache.cli.demo_worker", name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.report = [0] * 6
        self._shown = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.report = [int(word) for word in line.split()]

    def row(self, number: int, seconds: float) -> str:
        """Its line of the table; the rate is that since the last one."""
        events, p50, p99, private, laps, running = self.report
        rate, self._shown = (events - self._shown) / seconds, events
        return (
            f"{number:>6} {self.process.pid:>8} {events:>10,} {rate:>9,.0f} {p50:>8,} {p99:>8,} "
            f"{format_size(private << 10):>10} {laps:>5} {running:>8,}"
        )

    def stop(self) -> None:
        """Ends the process, and waits for it."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Screen:
    """A table that is drawn over itself on a terminal, and one after another elsewhere."""

    def __init__(self) -> None:
        self._lines = 0

    def show(self, lines: list[str]) -> None:
        """Replaces what was shown last."""
        if sys.stdout.isatty():
            if self._lines:
                print(f"\x1b[{self._lines}F\x1b[J", end="")
            self._lines = len(lines)
        print("\n".join(lines), flush=True)


def header(writer: shmcache.Writer, json_bytes: int, options: argparse.Namespace) -> list[str]:
    """What the writer says of itself, and the table's titles."""
    stats = writer.stats()
    stored = format_size(stats["value_bytes"] + stats["tree_bytes"])
    return [
        (
            f"shmcache demo: {options.pods:,} pods, {format_size(json_bytes)} of JSON, in {stored} "
            f"of memory that {options.workers} workers share"
        ),
        (
            f"generation {stats['generation']:,}, {stats['deltas']:,} deltas, {stats['wakes']:,} "
            f"wakes, {format_size(stats['private_bytes'])} private to the writer"
        ),
        "",
        TITLES,
    ]


def work(
    writer: shmcache.Writer,
    children: list[Child],
    churn: Churn,
    json_bytes: int,
    options: argparse.Namespace,
) -> None:
    """Changes objects at the rate wanted, and shows the table now and then."""
    screen, start = Screen(), time.monotonic()
    shown, done = start, 0
    while (now := time.monotonic()) < start + options.seconds:
        while done < (now - start) * options.rate:
            applied, deleted = churn.step(BATCH, time.monotonic_ns())
            with writer.batch():
                for obj in deleted:
                    metadata = obj["metadata"]
                    writer.delete("pods", f"{metadata['namespace']}/{metadata['name']}")
                writer.apply("pods", applied)
            done += BATCH
        if now >= shown + SHOW_SECONDS:
            rows = [child.row(n, now - shown) for n, child in enumerate(children, 1)]
            left = f"ends in {start + options.seconds - now:.0f} s, or with ctrl-C"
            screen.show([*header(writer, json_bytes, options), *rows, "", NOTES, left])
            shown = now
        time.sleep(BATCH / options.rate / 2)


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(options: argparse.Namespace) -> int:
    """The whole demo; its exit status."""
    signal.signal(signal.SIGTERM, _terminated)
    rng = random.Random(1)
    objects = list(pods(options.pods, rng))
    json_bytes = sum(len(json.dumps(obj, separators=(",", ":"))) for obj in objects)
    resource = shmcache.Resource("pods", {"node": "spec.nodeName", "phase": "status.phase"})
    children: list[Child] = []
    with shmcache.Writer(f"demo-{os.getpid()}", [resource], arena_max="1GiB") as writer:
        try:
            writer.apply("pods", objects)
            children.extend(Child(writer.name) for _ in range(options.workers))
            work(writer, children, Churn(objects, rng), json_bytes, options)
        except KeyboardInterrupt:
            print()
        finally:
            for child in children:
                child.stop()
    print("done: nothing was left behind")
    return 0
