"""Chaos: a reflector process under random faults and writes. At the end its cache is the server's.

    python tests/process/chaos.py --seconds 600 --writes 200000 --seed 7

The server is testing.ApiServer over HTTP, the reflector is `shmcache run`. Every now and then the
server cuts, stalls, lies, forgets, goes away, or the reflector is killed and started again. When
the faults have ended the cache must become equal to the server's state: the same digest over
(namespace, name, resourceVersion) in each resource. And requests never came in a loop.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import shmcache
from shmcache.segments import Place
from shmcache.testing import ApiServer
from shmcache.testing.apiserver import Fault
from shmcache.testing.apiserver.loop import Record

ROOT = Path(__file__).resolve().parent.parent.parent
RESOURCES = ("pods", "configmaps", "services")
NAMESPACES = ("a", "b", "c", "d")
NAMES = 400  # of each resource, at most
IN_A_ROW = 7  # requests of one pass beside its pages (G12)
APART = 0.5  # less than the backoff's first delay
BATCH = 20
PATIENCE = 180.0

Object = dict[str, Any]


class Writes:
    """Creates, updates and deletes, at random."""

    def __init__(self, server: ApiServer, rng: random.Random) -> None:
        self.count = 0
        self._server = server
        self._rng = rng
        self._there: dict[str, dict[tuple[str, str], None]] = {name: {} for name in RESOURCES}

    def some(self, count: int) -> None:
        for _ in range(count):
            self._one(self._rng.choice(RESOURCES))
        self.count += count

    def _one(self, resource: str) -> None:
        place = (self._rng.choice(NAMESPACES), f"o-{self._rng.randrange(NAMES // len(NAMESPACES))}")
        there = self._there[resource]
        if place not in there:
            self._server.create(resource, self._object(resource, place))
            there[place] = None
        elif self._rng.random() < 0.2:
            self._server.delete(resource, place[1], place[0])
            del there[place]
        else:
            self._server.update(resource, self._object(resource, place))

    def _object(self, resource: str, place: tuple[str, str]) -> Object:
        text = "x" * self._rng.choice((10, 100, 1_000))
        obj: Object = {
            "metadata": {
                "namespace": place[0],
                "name": place[1],
                "annotations": {"n": f"{self._rng.getrandbits(64):x}", "text": text},
            }
        }
        if resource == "pods":
            obj["spec"] = {"containers": [{"name": "app", "image": "app:1"}]}
        if resource == "services":
            obj["spec"] = {"ports": [{"port": 80}]}
        return obj


class Faults:
    """What goes wrong, one thing at a time; the rate is such that something always does."""

    def __init__(self, server: ApiServer, run: Reflector, rng: random.Random) -> None:
        self._server = server
        self._run = run
        self._rng = rng
        self.asked: collections.Counter[str] = collections.Counter()
        self._waiting: list[tuple[str, Fault]] = []
        faults = server.faults
        self._kinds: dict[str, Callable[[str], object]] = {
            "cut in a line": lambda which: faults.cut("watch", which, after=rng.randrange(20)),
            "clean end": lambda which: faults.cut(
                "watch", which, where="clean", after=rng.randrange(20)
            ),
            "reset": lambda which: faults.cut("watch", which, after=rng.randrange(20), reset=True),
            "list cut": lambda which: faults.cut("list", which, after=rng.randrange(50)),
            "garbage": lambda which: faults.garbage("watch", which, after=rng.randrange(20)),
            "429": lambda which: faults.too_many_requests(resource=which, times=3),
            "500": lambda which: faults.error(500, resource=which, times=2),
            "login page": lambda which: faults.wrong_content_type(resource=which),
            "401": lambda which: faults.unauthorized(resource=which),
            "slow": lambda which: faults.slow(0.3, resource=which, each_chunk=0.01),
            "gzip members": faults.gzip_members,
            "no bookmarks": faults.no_bookmarks,
            "no watch-list": lambda which: faults.error(422, "watch", which),
            "compaction": lambda _: server.compact(),
            "all connections reset": lambda _: server.abort_connections(),
            "bookmarks": lambda _: server.send_bookmarks(),
            "server away": lambda _: self._away(),
            "reflector killed": lambda _: run.again(),
        }
        self._weights = [0.5 if name == "reflector killed" else 1.0 for name in self._kinds]

    def one(self) -> None:
        name = self._rng.choices(list(self._kinds), self._weights)[0]
        self.asked[name] += 1
        fault = self._kinds[name](self._rng.choice((*RESOURCES, "*")))
        if isinstance(fault, Fault):
            self._waiting.append((name, fault))

    def met(self) -> dict[str, int]:
        """How many requests met each kind; what needs no request happened as often as asked."""
        waited = {name for name, _ in self._waiting}
        found = collections.Counter({n: c for n, c in self.asked.items() if n not in waited})
        for name, fault in self._waiting:
            found[name] += fault.met
        return dict(found)

    def _away(self) -> None:
        self._server.go_down()
        time.sleep(self._rng.uniform(0.1, 1.0))  # an outage takes time: this is no test's waiting
        self._server.come_back()


class Reflector:
    """The `shmcache run` under test."""

    def __init__(self, name: str, kubeconfig: str, log: str) -> None:
        self._command = [sys.executable, "-m", "shmcache", "run", *RESOURCES, "--name", name]
        self._command += ["--kubeconfig", kubeconfig]
        self._log = log
        self.lives = 0
        self.began = 0.0
        self._start()

    def _start(self) -> None:
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, stderr=log)
        self.lives += 1
        self.began = time.monotonic()

    def again(self) -> None:
        """Killed, and another one started."""
        self.process.kill()
        self.process.wait()
        self._start()

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


class Watcher:
    """Keeps what the server was asked, which itself remembers only the last of it."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._last = 0.0
        self._lives: list[float] = []
        self.asked: dict[str, list[Record]] = {name: [] for name in RESOURCES}

    def look(self) -> None:
        for record in self._server.log:
            if record.seconds > self._last and record.resource in self.asked:
                self.asked[record.resource].append(record)
        self._last = max([self._last, *(record.seconds for record in self._server.log)])

    def born(self, seconds: float) -> None:
        """A reflector that begins does not know what an earlier one asked."""
        self._lives.append(seconds)

    def longest_run(self) -> int:
        """Requests of one resource that followed each other without a pause, within one life."""
        return max(map(self._longest, self.asked.values()))

    def _longest(self, records: list[Record]) -> int:
        longest = count = 0
        before: float | None = None
        for record in records:
            if record.verb == "list" and record.query.get("continue"):
                before = record.seconds
                continue
            new_life = before is None or any(
                before < life <= record.seconds for life in self._lives
            )
            count = 1 if new_life or record.seconds - (before or 0.0) >= APART else count + 1
            longest, before = max(longest, count), record.seconds
        return longest


def digest(objects: Iterable[Any]) -> str:
    """Of (namespace, name, resourceVersion), in the order of the keys."""
    found = sorted(
        (obj["metadata"]["namespace"], obj["metadata"]["name"], obj["metadata"]["resourceVersion"])
        for obj in objects
    )
    return hashlib.sha256(repr(found).encode()).hexdigest()


def equal(server: ApiServer, cache: shmcache.Cache) -> list[str]:
    """The resources in which the cache is not the server's state."""
    return [
        name
        for name in RESOURCES
        if digest(server.list(name)) != digest(cache[name].values())
        or cache[name].status.state != "synced"
    ]


def disturb(
    server: ApiServer, run: Reflector, watcher: Watcher, writes: Writes, options: argparse.Namespace
) -> Faults:
    """Writes and faults at the rates wanted, until the time is over and all is written."""
    faults = Faults(server, run, random.Random(options.seed + 1))
    rate = options.writes / options.seconds
    start = time.monotonic()
    due = shown = start
    while (now := time.monotonic()) < start + options.seconds or writes.count < options.writes:
        while writes.count < min(options.writes, (now - start) * rate):
            writes.some(BATCH)
        if now >= due and now < start + options.seconds:
            lives = run.lives
            faults.one()
            if run.lives > lives:
                watcher.born(run.began)
            due = time.monotonic() + options.every
        watcher.look()
        if now >= shown + 30:
            shown = now
            print(f"{now - start:.0f} s: {writes.count:,} writes, {faults.asked.total()} faults")
        time.sleep(0.01)  # the rate of writes
    return faults


def settle(server: ApiServer, cache: shmcache.Cache, watcher: Watcher) -> float:
    """No more faults: the seconds until the cache is the server's state; or it never is."""
    server.faults.clear()
    start = time.monotonic()
    while different := equal(server, cache):
        watcher.look()
        if time.monotonic() > start + PATIENCE:
            states = {name: str(cache[name].status) for name in different}
            raise AssertionError(f"the cache is not the server's state: {states}")
        time.sleep(0.05)
    return time.monotonic() - start


def attach(name: str) -> shmcache.Cache:
    """To the reflector's present life."""
    while True:
        cache = shmcache.attach(name, timeout=PATIENCE)
        if cache.instance == Place(name).current().data and Place(name).writer_alive():
            return cache
        cache.close()


def chaos(options: argparse.Namespace) -> None:
    """The whole run; AssertionError says what did not hold."""
    name = f"chaos-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-"))
        log = options.log or os.path.join(place, "reflector.log")
        server = stack.enter_context(ApiServer(seed=options.seed, bookmark_seconds=5.0))
        writes = Writes(server, random.Random(options.seed))
        watcher = Watcher(server)
        run = Reflector(name, server.kubeconfig(os.path.join(place, "kubeconfig")), log)
        stack.callback(Place(name).unlink)
        stack.callback(run.process.wait)
        stack.callback(lambda: run.process.kill())
        watcher.born(run.began)
        faults = disturb(server, run, watcher, writes, options)
        with attach(name) as cache:
            took = settle(server, cache, watcher)
            check(cache, watcher, faults, log)
            print(f"seed {options.seed}: {writes.count:,} writes: equal after {took:.1f} s")
            report(cache, faults, watcher)
        assert run.end() == 0


def check(cache: shmcache.Cache, watcher: Watcher, faults: Faults, log: str) -> None:
    assert sum(faults.met().values()) > 0, "no fault was met, so nothing is proved"
    longest = watcher.longest_run()
    assert longest <= IN_A_ROW, f"{longest} requests in a row: a loop"
    text = Path(log).read_text(encoding="utf-8")
    assert "a bug" not in text, text[text.index("a bug") - 200 :][:3000]
    for name in RESOURCES:
        assert cache[name].status.counters["refused"] == 0, f"{name}: objects were refused"
        assert cache[name].status.objects > 0, f"{name}: nothing is there, so nothing is proved"


def report(cache: shmcache.Cache, faults: Faults, watcher: Watcher) -> None:
    asked = {name: len(records) for name, records in watcher.asked.items()}
    print(f"requests {asked}, at most {watcher.longest_run()} without a pause")
    print(f"faults that were met: {faults.met()}")
    for name in RESOURCES:
        status = cache[name].status
        print(f"{name}: {status.objects} objects, {status.counters}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writes", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--every", type=float, default=1.0, help="seconds from fault to fault")
    parser.add_argument("--log", help="where the reflector's log lines go")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    chaos(options)


if __name__ == "__main__":
    main()
