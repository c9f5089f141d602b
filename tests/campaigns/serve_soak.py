"""Soak of `shmcache serve`: many watches, a changing server, and kills of every process.

    testing.ApiServer ▸ shmcache run (killed) ▸ shmcache serve (its processes killed) ▸ watchers

Run as a script, by `make soak`: SOAK="--watches 1000 --seconds 300", SEED=. In the end every client
must hold the server's content, object by object, and must have seen each change exactly once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

from serve_watchers import Counts, State, Watcher

import shmcache
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer

ROOT = Path(__file__).resolve().parent.parent.parent
NAMESPACES = ("a", "b", "c")
APPS = ("web", "db", "job")
PODS = 150
PATIENCE = 90.0
SELECTIONS = [("", ""), ("a", ""), ("", "app=web"), ("b", "app in (web,db)"), ("c", "app!=web")]


class Command:
    """A `shmcache` command that restarts after a kill."""

    def __init__(self, log: Path, *words: str) -> None:
        self._words = (sys.executable, "-m", "shmcache", *words)
        self._log = log
        self.kills = 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._words, cwd=ROOT, stdout=log, stderr=log)

    def kill(self) -> None:
        """Sends SIGKILL, and starts another one."""
        self.kills += 1
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def children(self) -> list[int]:
        """Its processes."""
        pid = self.process.pid
        try:
            text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except OSError:
            return []
        return [int(word) for word in text.split()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()


class Soak:
    """One run."""

    def __init__(self, seed: int, watches: int, seconds: float, rate: float, pause: float) -> None:
        self.luck = random.Random(seed)
        self.watches = watches
        self.seconds = seconds
        self.rate = rate
        self.pause = pause
        """Between two kills."""
        self.counts = Counts()
        self.watchers: list[Watcher] = []
        self.writes = 0
        self.kills = 0

    def run(self, place: Path) -> None:
        """The whole run; AssertionError if anything is wrong."""
        name = f"soak-{os.getpid()}"
        log = place / "log"
        with ApiServer(seed=1, namespaces=NAMESPACES) as server, contextlib.ExitStack() as ended:
            ended.callback(Place(name).remove)
            self._fill(server)
            reflector = ("run", "--cache", name, "pods", "--server", server.url)
            serving = ("serve", "--cache", name, "--listen", "127.0.0.1:0", "-p", "2")
            with Command(log, *reflector) as first, Command(log, *serving) as second:
                with shmcache.attach(name, timeout=PATIENCE) as cache:
                    assert cache["pods"].wait_synced(PATIENCE)
                try:
                    asyncio.run(self._live(server, _port_of(log), first, second))
                except AssertionError as error:
                    error.add_note(log.read_text()[-4000:])
                    raise

    def _fill(self, server: ApiServer) -> None:
        for number in range(PODS):
            server.create("pods", self._pod(number))

    def _pod(self, number: int) -> dict[str, Any]:
        metadata = {
            "name": f"p-{number:04}",
            "namespace": NAMESPACES[number % len(NAMESPACES)],
            "labels": {"app": self.luck.choice(APPS), "n": str(self.luck.random())},
        }
        spec = {"containers": [{"name": "c", "image": "i", "args": ["x" * 200] * 5}]}
        return {"metadata": metadata, "spec": spec}

    async def _live(
        self, server: ApiServer, port: int, reflector: Command, serving: Command
    ) -> None:
        for number in range(self.watches):
            namespace, labels = SELECTIONS[number % len(SELECTIONS)]
            luck = random.Random(self.luck.random())
            slow = number % 20 == 7
            self.watchers.append(Watcher(port, namespace, labels, luck, self.counts, slow=slow))
        tasks = [asyncio.create_task(watcher.run()) for watcher in self.watchers]
        stop = threading.Event()
        storm = asyncio.create_task(asyncio.to_thread(self._storm, server, stop))
        end = time.monotonic() + self.seconds
        try:
            while time.monotonic() < end or self._too_tame(end):
                await asyncio.sleep(self.pause * self.luck.uniform(0.5, 1.5))
                await asyncio.to_thread(self._harm, reflector, serving)
        finally:
            stop.set()
            await storm
        await self._settle(server, tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _too_tame(self, end: float) -> bool:
        """A busy machine gets more time, within limits."""
        few = self.kills < 3 or not self.counts.cut or self.counts.events <= 1000
        return few and time.monotonic() < end + PATIENCE

    def _storm(self, server: ApiServer, stop: threading.Event) -> None:
        """Writes until `stop` is set."""
        there = set(range(PODS))
        while not stop.wait(1 / self.rate):
            number = self.luck.randrange(PODS + 20)
            pod = self._pod(number)
            metadata = pod["metadata"]
            self.writes += 1
            if number not in there:
                server.create("pods", pod)
                there.add(number)
            elif self.luck.random() < 0.2:
                server.delete("pods", metadata["name"], metadata["namespace"])
                there.discard(number)
            else:
                server.update("pods", pod)

    def _harm(self, reflector: Command, serving: Command) -> None:
        self.kills += 1
        if self.kills % 3 == 0:
            reflector.kill()
            return
        children = serving.children()
        if children:
            os.kill(self.luck.choice(children), signal.SIGKILL)

    async def _settle(self, server: ApiServer, tasks: list[asyncio.Task[None]]) -> None:
        """Waits until every client holds the server's content."""
        everything = {
            f"{obj['metadata']['namespace']}/{obj['metadata']['name']}": obj
            for obj in server.list("pods")
        }
        slow = [watcher for watcher in self.watchers if watcher.slow]
        for watcher in slow:
            watcher.slow = False  # on a busy machine they may be minutes late
        deadline = time.monotonic() + PATIENCE
        while True:
            dead = [task for task in tasks if task.done()]
            assert not dead, f"a client has ended: {dead[0]!r}"
            differing = [one for one in self.watchers if one.state != _selected(everything, one)]
            if not differing or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.1)
        wrong = [text for watcher in self.watchers for text in watcher.wrong]
        assert not wrong, f"{len(wrong)} wrong events, first: {wrong[0]}"
        late = sum(any(one is other for other in slow) for one in differing)
        assert not differing, f"{late} were slow; {_difference(differing, everything)}"


def _selected(everything: dict[str, Any], watcher: Watcher) -> State:
    labels = shmcache.LabelSelector.parse(watcher.labels)
    return {
        key: obj["metadata"]["resourceVersion"]
        for key, obj in everything.items()
        if (not watcher.namespace or key.startswith(f"{watcher.namespace}/"))
        and labels.matches(obj)
    }


def _difference(behind: list[Watcher], everything: dict[str, Any]) -> str:
    watcher = behind[0]
    wanted = _selected(everything, watcher)
    keys = sorted(key for key in {*wanted, *watcher.state}
                  if wanted.get(key) != watcher.state.get(key))  # fmt: skip
    shown = [(key, wanted.get(key), watcher.state.get(key)) for key in keys[:5]]
    return f"{len(behind)} clients are behind; {watcher!r:.200}: {shown}; {watcher.history[-20:]}"


def _port_of(log: Path) -> int:
    """The port in the server's log line."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = re.search(r"serving cache \S+ at http://127\.0\.0\.1:(\d+)\s", log.read_text())
        if found:
            return int(found[1])
        assert time.monotonic() < deadline, f"nothing is served: {log.read_text()}"
        time.sleep(0.05)  # between two checks


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--watches", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rate", type=float, default=20, help="writes a second")
    parser.add_argument("--pause", type=float, default=5, help="seconds between two kills")
    options = parser.parse_args()
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    sys.stderr.write(f"SEED={seed}\n")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    soak = Soak(seed, options.watches, options.seconds, options.rate, options.pause)
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        soak.run(Path(place))
    counted = re.sub(r"^Counts", "", repr(soak.counts))
    did = f"{options.watches} watches, {soak.writes} writes, {soak.kills} kills"
    sys.stderr.write(f"{did}: all equal {counted}\n")


if __name__ == "__main__":
    main()
