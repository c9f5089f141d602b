"""Consistent reads under faults: clients in processes of their own write to an API server and read
from the cache, and a checker decides whether what they saw can have happened.

    make consistency CONSISTENCY="--operations 1000000 --processes 4" SEED=7

Faults meanwhile: watches that end, connections that break, 410, 429, answers that take long,
compaction, bookmarks that do not come. A consistent read may fail then, and never be wrong:

    consistent get      linearizable with the writes, key by key (support/linear.py)
    consistent list     one state of the server, none that was over before the call
    cached get          never older than what the same process saw before
    at(version)         equals the log of the writes (if the ring still has it)
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import threading
import time
from collections import Counter, defaultdict
from typing import Any

from linear import (
    Monotonic,
    Op,
    ReadState,
    Written,
    check_lists,
    check_past,
    check_register,
)

import shmcache
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.errors import PastUnknown, UnconfirmedError
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer

KEYS = 12
BACK = 200
"""Versions that a read of the past goes back at most."""
DEADLINE = 120.0


class Log:
    """The operations, as the checker takes them. Times are of one monotonic clock for all."""

    def __init__(self) -> None:
        self.writes: list[Written] = []
        self.gets: list[tuple[str, Op]] = []
        self.lists: list[ReadState] = []
        self.past: list[tuple[int, dict[str, str]]] = []
        self.backward: list[str] = []
        """Cached reads that showed something older than one before. Each process finds its own, so
        that a million of them take no memory."""
        self.counts: Counter[str] = Counter()

    def add(self, other: Log) -> None:
        self.writes += other.writes
        self.gets += other.gets
        self.lists += other.lists
        self.past += other.past
        self.backward += other.backward
        self.counts += other.counts

    def wrong(self) -> list[str]:
        """Everything that cannot have happened."""
        by_key: dict[str, list[Op]] = defaultdict(list)
        for one in self.writes:
            value = None if one.deleted else str(one.version)
            by_key[one.key].append(Op(one.call, one.ret, "write", value))
        for key, op in self.gets:
            by_key[key].append(op)
        found = [
            f"{key}: not linearizable: {part[:6]}"
            for key, ops in by_key.items()
            if (part := check_register(ops))
        ]
        found += check_lists(self.writes, self.lists)
        return found + check_past(self.writes, self.past) + self.backward


def write(server: ApiServer, rng: random.Random, until: threading.Event, pause: float) -> Log:
    """Creates, updates and deletes, until the end. In the server's process."""
    log = Log()
    there: set[str] = set()
    while not until.is_set():
        key = f"key-{rng.randrange(KEYS)}"
        begin = time.monotonic()
        deleted = key in there and rng.random() < 0.3
        if deleted:
            found = server.delete("pods", key, "prod")
            there.discard(key)
        else:
            obj = {"metadata": {"name": key, "namespace": "prod"}, "spec": {"n": rng.random()}}
            done = server.update if key in there else server.create
            found = done("pods", obj)
            there.add(key)
        version = int(found["metadata"]["resourceVersion"])
        log.writes.append(Written(begin, time.monotonic(), f"prod/{key}", version, deleted))
        log.counts["write"] += 1
        until.wait(pause * rng.random())
    return log


def read(
    cache: shmcache.Cache, rng: random.Random, client: int, operations: int, seconds: float
) -> Log:
    """Reads of every kind; failures are counted."""
    log, pods, seen = Log(), cache["pods"], Monotonic(client)
    end = time.monotonic() + seconds
    for _ in range(operations):
        if time.monotonic() > end:
            break
        key, luck = f"prod/key-{rng.randrange(KEYS)}", rng.random()
        begin = time.monotonic()
        try:
            if luck < 0.9:
                obj = pods.get(key)
                if obj is not None:
                    seen.saw(begin, key, int(obj["metadata"]["resourceVersion"]))
                log.counts["cached get"] += 1
            elif luck < 0.905:
                version = max(int(pods.version or 1) - rng.randrange(BACK), 1)
                with cache.at(str(version)) as past:
                    log.past.append((version, versions_of(past["pods"])))
                log.counts["at"] += 1
            elif luck < 0.98:
                obj = pods.get(key, consistent=True, timeout=3)
                found = None if obj is None else obj["metadata"]["resourceVersion"]
                log.gets.append((key, Op(begin, time.monotonic(), "read", found, client)))
                log.counts["consistent get"] += 1
            else:
                with cache.snapshot(consistent=["pods"], timeout=3) as at:
                    shown = versions_of(at["pods"])
                log.lists.append(ReadState(begin, time.monotonic(), shown, client))
                log.counts["consistent list"] += 1
        except UnconfirmedError:
            log.counts["unconfirmed"] += 1
        except PastUnknown:
            log.counts["unknown past"] += 1
    log.backward = seen.wrong
    return log


def versions_of(pods: Any) -> dict[str, str]:
    return {key: obj["metadata"]["resourceVersion"] for key, obj in pods.items()}


def _reader(name: str, seed: int, client: int, limits: tuple[int, float], out: Any) -> None:
    with shmcache.attach(name) as cache:
        log = read(cache, random.Random(seed * 1000 + client), client, *limits)
    out.send(
        json.dumps(
            [log.gets, log.lists, log.past, log.backward, log.counts],
        )
    )
    out.close()


def _loaded(text: str) -> Log:
    log = Log()
    gets, lists, past, log.backward, counts = json.loads(text)
    log.gets = [(key, Op(*op)) for key, op in gets]
    log.lists = [ReadState(*one) for one in lists]
    log.past = [(version, found) for version, found in past]
    log.counts = Counter(counts)
    return log


def trouble(server: ApiServer, rng: random.Random, until: threading.Event) -> None:
    """Faults, one at a time, until the end."""
    faults = server.faults
    weather: list[Any] = [
        server.end_watches,
        server.abort_connections,
        server.compact,
        server.send_bookmarks,
        lambda: server.advance(int(server.version) + rng.randrange(5)),
        lambda: faults.too_many_requests("list"),
        lambda: faults.too_many_requests("get"),
        lambda: faults.no_bookmarks(),
    ]
    while not until.wait(rng.expovariate(0.25)):
        rng.choice(weather)()


def campaign(name: str, operations: int, processes: int, seed: int, seconds: float = 3600) -> Log:
    """The whole history."""
    rng, until = random.Random(seed), threading.Event()
    plan = Plan(name="pods")
    logs: list[Log] = []
    with ApiServer(bookmark_seconds=0.5, seed=seed) as server:
        opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
        with shmcache.Writer(name, [plan.resource], arena_max="256MiB") as writer:
            engine = Engine(writer, [plan], opener, pace=Pace(1000))
            engine.start()
            try:
                assert engine.ready.wait(DEADLINE)
                context = multiprocessing.get_context("spawn")
                children = []
                for client in range(processes):
                    ours, theirs = context.Pipe(duplex=False)
                    share = operations // processes
                    child = context.Process(
                        target=_reader,
                        args=(name, seed, client, (share, seconds), theirs),
                        daemon=True,
                    )
                    child.start()
                    theirs.close()
                    children.append((child, ours))
                threads = [
                    threading.Thread(
                        target=lambda: logs.append(
                            write(server, random.Random(seed + 1), until, 0.01)
                        )
                    ),
                    threading.Thread(target=trouble, args=(server, rng, until)),
                ]
                for thread in threads:
                    thread.start()
                try:
                    logs += [_loaded(ours.recv()) for _, ours in children]
                finally:
                    until.set()
                    for thread in threads:
                        thread.join(DEADLINE)
                    for child, _ in children:
                        child.join(DEADLINE)
            finally:
                assert engine.stop()
    whole = Log()
    for log in logs:
        whole.add(log)
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=3600, help="the readers end then")
    parser.add_argument("--processes", type=int, default=3)
    options = parser.parse_args()
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"SEED={seed}", flush=True)
    begin = time.monotonic()
    log = campaign(
        f"consistency-{os.getpid()}", options.operations, options.processes, seed, options.seconds
    )
    wrong = log.wrong()
    print(f"{dict(log.counts)} in {time.monotonic() - begin:.0f} s")
    for text in wrong[:10]:
        print(text)
    print("FAILED" if wrong else "passed: everything that was read can have happened")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
