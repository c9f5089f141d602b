"""The demo itself: starts every process, changes pods, draws the picture, ends every process.

The API server is testing.ApiServer, in this process, over HTTP; the reflector is `shmcache run` in
a process of its own, and so is each worker. All figures of the cache come from the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
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
from typing import TYPE_CHECKING, Self

import shmcache
from shmcache.cli.commands.gc import Sweep
from shmcache.cli.demo import view as demo_view
from shmcache.cli.demo.lags import Lags
from shmcache.cli.demo.objects import Churn, pods
from shmcache.cli.output.finding import BUG, Trouble
from shmcache.cli.output.screen import Screen
from shmcache.errors import SegmentNotFound
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer

if TYPE_CHECKING:
    from shmcache.cli.demo.etcd import DemoEtcd

SWEEP_SECONDS = 0.1
SWITCH_SECONDS = 0.0005
SETTLE_SECONDS = 5.0
SHOW_SECONDS = 0.5
PATIENCE = 60.0
PRINT_SECONDS = 5.0  # where there is no terminal
PREFIX = "shmcache-demo-"
NO_ETCD = 69
"""The exit status where a service that the command needs is missing."""
_NAME = re.compile(r"demo-\d+")


class DemoChild:
    """A worker process, and the last line that it reported."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, "-m", "shmcache.cli.demo.worker", name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.events = self.private = self.laps = self.reports = 0
        self.lags = Lags()
        self._before = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            events, private, laps, *buckets = line.split()
            lags = Lags()
            lags.merge({int(at): int(n) for at, _, n in (each.partition(":") for each in buckets)})
            self.events, self.private, self.laps = int(events), int(private), int(laps)
            self.lags = lags
            self.reports += 1

    def rate(self, seconds: float) -> float:
        """Events a second since this was asked last."""
        rate, self._before = (self.events - self._before) / max(seconds, 0.001), self.events
        return rate

    def forget_rate(self) -> None:
        """The next rate is that of all the time."""
        self._before = 0

    def stop(self) -> None:
        """Ends the process, and waits for it."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


class DemoReflector:
    """`shmcache run` in a process of its own, which ends with this one."""

    def __init__(self, name: str, source: list[str], log: str) -> None:
        """`source`: the arguments that name the server and its pods."""
        command = [sys.executable, "-m", "shmcache.cli.demo.reflector", *source, "--cache", name,
                   "--no-keep", "--arena-max", "1GiB"]  # fmt: skip
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
        """Trouble with the reflector's last message and status, if it has ended."""
        status = self.process.poll()
        if status is None:
            return
        with open(self._log, encoding="utf-8") as file:
            log = file.read()
        stamped = log.splitlines()[-1:] if status > 0 else []
        if not stamped or status == BUG:
            raise RuntimeError(f"the reflector ended with status {status}:\n{log}")
        raise Trouble(f"the reflector ended: {stamped[0].split(maxsplit=3)[-1]}", status)


class Dicts:
    """The memory of a process that keeps the same pods as dicts, measured by such a process."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-m", "shmcache.cli.demo.dicts", str(count)]
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


class DemoServer(ApiServer):
    """The API server of the demo."""

    title = "API server"

    def arguments(self) -> list[str]:
        """Of `shmcache run`."""
        return ["pods", "--server", self.url]

    def fill(self, objects: list[dict[str, object]]) -> None:
        """Stores the first pods."""
        for obj in objects:
            self.load("pods", obj)


def _server_of(options: argparse.Namespace) -> DemoServer | DemoEtcd:
    if not options.etcd:
        return DemoServer()
    from shmcache.cli.demo.etcd import DemoEtcd

    return DemoEtcd()


class DemoStage:
    """All that takes part, once it is started."""

    def __init__(self, options: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.options = options
        rng = random.Random(1)
        objects = list(pods(options.pods, rng))
        self.json_bytes = sum(len(json.dumps(obj, separators=(",", ":"))) for obj in objects)
        self.churn = Churn(objects, rng)
        self.server = _server_of(options)
        stack.enter_context(self.server)
        self.server.fill([without_version(obj) for obj in objects])
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-"))
        name = f"demo-{os.getpid()}"
        self.reflector = DemoReflector(name, self.server.arguments(), os.path.join(folder, "log"))
        stack.callback(self.reflector.stop)
        self.cache = stack.enter_context(self._attach(name))
        self.dicts = stack.enter_context(Dicts(options.pods))
        self.made = 0
        self.start = time.monotonic()
        self.seconds = 0.0
        self.children: list[DemoChild] = []
        for _ in range(options.workers):
            self.children.append(DemoChild(name))
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
        """Changes pods at the server one by one; each carries the time of its own write."""
        for _ in range(count):
            applied, deleted = self.churn.step(1, time.monotonic_ns())
            for obj in deleted:
                self.server.delete("pods", obj["metadata"]["name"], obj["metadata"]["namespace"])
            for obj in applied:
                self.server.load("pods", without_version(obj))
            self.made += len(deleted) + len(applied)

    def shared(self) -> int:
        """Bytes of memory that DATA takes."""
        place = Place(self.cache.name)
        fd = place.open_data(place.current().data)
        try:
            return os.fstat(fd).st_blocks * 512
        finally:
            os.close(fd)

    def await_reports(self, events: int) -> None:
        """Sleeps until each worker has reported again, and has seen this many events.

        Not for ever: a worker may have been lapped.
        """
        seen = [child.reports for child in self.children]
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            if all(
                child.reports > before and child.events >= events
                for child, before in zip(self.children, seen, strict=True)
            ):
                return
            time.sleep(0.01)


def without_version(obj: dict[str, object]) -> dict[str, object]:
    """As it is written: the server gives the version."""
    metadata = dict(obj["metadata"])  # type: ignore[call-overload]
    metadata.pop("resourceVersion")
    return {**obj, "metadata": metadata}


def work(stage: DemoStage, screen: Screen) -> None:
    """Changes pods at the rate wanted, and shows what comes of it."""
    stage.await_reports(0)
    options, start = stage.options, time.monotonic()
    stage.start = start
    shown, swept, done = start, start, 0
    every = SHOW_SECONDS if screen.live else PRINT_SECONDS
    while (now := time.monotonic()) < start + options.seconds:
        stage.reflector.check()
        while done < (now - start) * options.rate and time.monotonic() < now + SHOW_SECONDS:
            stage.change(1)
            done += 1
        if now >= swept + SWEEP_SECONDS:
            gc.collect(0)
            swept = now
        if now >= shown + every:
            left = start + options.seconds - now
            screen.draw(demo_view.picture(stage, screen, now - shown, left))
            shown = now
        if screen.wait(1 / options.rate / 2):
            break
    stage.seconds = time.monotonic() - stage.start
    stage.await_reports(stage.made)


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Signals that arrive while the processes are being ended do not interrupt that."""
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
    if options.etcd and not _has_etcd():
        return NO_ETCD
    server = "etcd" if options.etcd else "an API server"
    with contextlib.ExitStack() as stack, _interruptible():
        print(f"shmcache demo: {server} gets {options.pods:,} pods …", flush=True)
        stage = DemoStage(options, stack)
        _keep_collector_away(stack)
        screen = Screen()
        try:
            with screen:
                work(stage, screen)
        finally:
            seconds = stage.seconds or time.monotonic() - stage.start
            try:
                print("\n".join(demo_view.picture(stage, screen, seconds, 0)))
            except SegmentNotFound:  # a signal to the whole group has ended the reflector, too
                print("the reflector has already ended, so the last figures are missing")
    print("done: nothing was left behind")
    return 0


def _has_etcd() -> bool:
    """Whether there are a client and a program; else prints the lines that install them."""
    try:
        from shmcache.testing.etcd import EtcdMissing, program
    except ImportError as error:
        print(f"shmcache demo: {error}: pip install 'shmcache[demo,etcd]'", file=sys.stderr)
        return False
    try:
        program()
    except EtcdMissing as error:
        print(f"shmcache demo: {error}", file=sys.stderr)
        return False
    return True


def _keep_collector_away(stack: contextlib.ExitStack) -> None:
    """Else a full collection walks through all pods of the server, and every lag has it in it.

    The API server is in this process. Young objects are still collected, by work().
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    stack.callback(gc.enable)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    stack.callback(sys.setswitchinterval, interval)


def sweep() -> None:
    """Removes what a demo left that was killed in the middle: what nobody holds by a lock."""
    Sweep(SharedMemory(), older=0).run(lambda name: _NAME.fullmatch(name) is not None, _silent)
    for path in glob.glob(os.path.join(tempfile.gettempdir(), f"{PREFIX}*")):
        pid = path.rpartition(PREFIX)[2].partition("-")[0]
        if pid.isdecimal() and not os.path.exists(f"/proc/{pid}"):
            shutil.rmtree(path, ignore_errors=True)


def _silent(_text: str) -> None:
    pass
