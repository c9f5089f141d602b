"""What `shmcache demo` does: starts everything, changes pods, draws the table, ends everything.

The API server is testing.ApiServer, in this process, over HTTP; the reflector is `shmcache run` in
a process of its own, and so is each worker. What is shown of the cache comes from the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Self

import shmcache
from shmcache.cli import demo_view
from shmcache.cli.demo_objects import Churn, pods
from shmcache.cli.gc import Sweep
from shmcache.cli.screen import Screen
from shmcache.locations import SharedMemory
from shmcache.segments import Place
from shmcache.testing import ApiServer

BATCH = 20
SHOW_SECONDS = 0.5
PATIENCE = 60.0
PRINT_SECONDS = 5.0  # where there is no terminal
PREFIX = "shmcache-demo-"
_NAME = re.compile(r"demo-\d+")


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

    def rate(self, seconds: float) -> float:
        """Events a second since this was asked last."""
        events = self.report[0]
        rate, self._shown = (events - self._shown) / seconds, events
        return rate

    def forget_rate(self) -> None:
        """The next rate is that of all the time."""
        self._shown = 0

    def stop(self) -> None:
        """Ends the process, and waits for it."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Reflector:
    """`shmcache run` in a process of its own, which ends with this one."""

    def __init__(self, name: str, url: str, log: str) -> None:
        command = [sys.executable, "-m", "shmcache.cli.demo_reflector", "pods", "--name", name,
                   "--no-keep"]  # fmt: skip
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


class Dicts:
    """What a process needs that keeps the same pods as dicts: measured, by one that does."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-m", "shmcache.cli.demo_dicts", str(count)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._bytes: int | None = None

    @property
    def bytes(self) -> int | None:
        """None as long as it is not known."""
        if self._bytes is None and self._process.poll() == 0 and self._process.stdout:
            self._bytes = int(self._process.stdout.read())
        return self._bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


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
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-"))
        name = f"demo-{os.getpid()}"
        self.reflector = Reflector(name, self.server.url, os.path.join(place, "log"))
        stack.callback(self.reflector.stop)
        self.cache = stack.enter_context(self._attach(name))
        self.dicts = stack.enter_context(Dicts(options.pods))
        self.made = 0
        self.start = time.monotonic()
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
        self.made += count
        for _ in range(0, count, BATCH):
            applied, deleted = self.churn.step(BATCH, time.monotonic_ns())
            for obj in deleted:
                self.server.delete("pods", obj["metadata"]["name"], obj["metadata"]["namespace"])
            for obj in applied:
                self.server.load("pods", without_version(obj))

    def shared(self) -> int:
        """Bytes of memory that DATA takes."""
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


def work(stage: Stage, screen: Screen) -> None:
    """Changes pods at the rate wanted, and shows what comes of it."""
    options, start = stage.options, time.monotonic()
    shown, done = start, 0
    every = SHOW_SECONDS if screen.live else PRINT_SECONDS
    while (now := time.monotonic()) < start + options.seconds:
        stage.reflector.check()
        while done < (now - start) * options.rate and time.monotonic() < now + SHOW_SECONDS:
            stage.change(BATCH)
            done += BATCH
        if now >= shown + every:
            left = start + options.seconds - now
            screen.draw(demo_view.picture(stage, screen, now - shown, left))
            shown = now
        if screen.wait(BATCH / options.rate / 2):
            return


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Whatever comes while everything is being ended does not end the ending."""
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGHUP, _terminated)  # its terminal was closed
    try:
        yield
    except KeyboardInterrupt:
        print()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def show(options: argparse.Namespace) -> int:
    """The whole demo; its exit status."""
    sweep()
    with contextlib.ExitStack() as stack, _interruptible():
        print(f"shmcache demo: an API server gets {options.pods:,} pods …", flush=True)
        stage = Stage(options, stack)
        screen = Screen()
        try:
            with screen:
                work(stage, screen)
        finally:
            print("\n".join(demo_view.picture(stage, screen, time.monotonic() - stage.start, 0)))
    print("done: nothing was left behind")
    return 0


def sweep() -> None:
    """Removes what a demo left that was killed in the middle: what nobody holds by a lock."""
    Sweep(SharedMemory(), older=0).run(lambda name: _NAME.fullmatch(name) is not None, _silent)
    for path in glob.glob(os.path.join(tempfile.gettempdir(), f"{PREFIX}*")):
        pid = path.rpartition(PREFIX)[2].partition("-")[0]
        if pid.isdecimal() and not os.path.exists(f"/proc/{pid}"):
            shutil.rmtree(path, ignore_errors=True)


def _silent(_text: str) -> None:
    pass
