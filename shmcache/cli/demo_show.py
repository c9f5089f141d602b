"""What `shmcache demo` does: starts everything, changes pods, draws the table, ends everything.

The API server is testing.ApiServer, in this process, over HTTP; the reflector is `shmcache run` in
a process of its own, and so is each worker. What is shown of the cache comes from the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from types import FrameType

import shmcache
from shmcache.cli.demo_objects import Churn, pods
from shmcache.segments import Place
from shmcache.settings import format_size
from shmcache.testing import ApiServer

BATCH = 20
SHOW_SECONDS = 0.5
PATIENCE = 60.0
TITLES = "worker      pid     events  events/s   p50 µs   p99 µs    private  laps  running"
NOTES = "lag: from the write at the API server to the worker's loop; private: beyond imports"


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


class Reflector:
    """`shmcache run` in a process of its own, which ends with this one."""

    def __init__(self, name: str, url: str, log: str) -> None:
        command = [sys.executable, "-m", "shmcache.cli.demo_reflector", "pods", "--name", name]
        command += ["--server", url, "--arena-max", "1GiB"]
        command += ["--index", "pods:node=spec.nodeName", "--index", "pods:phase=status.phase"]
        self._log = log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(command, stderr=file)

    def stop(self) -> None:
        """As a service manager would: SIGTERM, and it drains."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def check(self) -> None:
        """RuntimeError with what it logged, if it has ended."""
        if self.process.poll() is not None:
            with open(self._log, encoding="utf-8") as file:
                raise RuntimeError(f"the reflector ended:\n{file.read()}")


class Stage:
    """All that takes part, once it is started."""

    def __init__(self, options: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.options = options
        rng = random.Random(1)
        objects = list(pods(options.pods, rng))
        self.json_bytes = sum(len(json.dumps(obj, separators=(",", ":"))) for obj in objects)
        self.churn = Churn(objects, rng)
        self.server = stack.enter_context(ApiServer())
        for obj in objects:
            self.server.load("pods", without_version(obj))
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="shmcache-demo-"))
        name = f"demo-{os.getpid()}"
        self.reflector = Reflector(name, self.server.url, os.path.join(place, "log"))
        stack.callback(self.reflector.stop)
        self.cache = stack.enter_context(self._attach(name))
        self.children: list[Child] = []
        for _ in range(options.workers):
            self.children.append(Child(name))
            stack.callback(self.children[-1].stop)

    def _attach(self, name: str) -> shmcache.Cache:
        """Once its first list is stored."""
        while not Place(name).writer_alive():
            self.reflector.check()
            time.sleep(SHOW_SECONDS / 10)
        cache = shmcache.attach(name, timeout=PATIENCE)
        while not cache["pods"].wait_synced(0.2):
            self.reflector.check()
        return cache

    def change(self, count: int) -> None:
        """Some pods at the server; each carries the time."""
        for _ in range(0, count, BATCH):
            applied, deleted = self.churn.step(BATCH, time.monotonic_ns())
            for obj in deleted:
                self.server.delete("pods", obj["metadata"]["name"], obj["metadata"]["namespace"])
            for obj in applied:
                self.server.load("pods", without_version(obj))

    def header(self) -> list[str]:
        """What the cache and the server say, and the table's titles."""
        status = self.cache["pods"].status
        asked = self.server.requests
        age = "never" if status.age is None else f"{status.age:.1f} s ago"
        return [
            (
                f"shmcache demo: {status.objects:,} pods, {format_size(self.json_bytes)} of JSON, "
                f"in {format_size(self._shared())} that {self.options.workers} workers share"
            ),
            (
                f"reflector pid {self.reflector.process.pid}: {status.state}, heard {age}, "
                f"{status.counters['events']:,} events; the server was asked for "
                f"{asked['list', 'pods']} lists and {asked['watch', 'pods']} watches"
            ),
            "",
            TITLES,
        ]

    def _shared(self) -> int:
        place = Place(self.cache.name)
        fd = place.open_data(place.current().data)
        try:
            return os.fstat(fd).st_blocks * 512
        finally:
            os.close(fd)


def without_version(obj: dict[str, object]) -> dict[str, object]:
    """As it is written: the server gives the version."""
    metadata = dict(obj["metadata"])  # type: ignore[call-overload]
    metadata.pop("resourceVersion")
    return {**obj, "metadata": metadata}


def work(stage: Stage) -> None:
    """Changes pods at the rate wanted, and shows the table now and then."""
    options, screen, start = stage.options, Screen(), time.monotonic()
    shown, done = start, 0
    while (now := time.monotonic()) < start + options.seconds:
        stage.reflector.check()
        while done < (now - start) * options.rate and time.monotonic() < now + SHOW_SECONDS:
            stage.change(BATCH)
            done += BATCH
        if now >= shown + SHOW_SECONDS:
            rows = [child.row(n, now - shown) for n, child in enumerate(stage.children, 1)]
            left = f"ends in {start + options.seconds - now:.0f} s, or with ctrl-C"
            screen.show([*stage.header(), *rows, "", NOTES, left])
            shown = now
        time.sleep(BATCH / options.rate / 2)


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Whatever comes while everything is being ended does not end the ending."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    except KeyboardInterrupt:
        print()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def show(options: argparse.Namespace) -> int:
    """The whole demo; its exit status."""
    with contextlib.ExitStack() as stack, _interruptible():
        print(f"shmcache demo: an API server gets {options.pods:,} pods …", flush=True)
        work(Stage(options, stack))
    print("done: nothing was left behind")
    return 0
