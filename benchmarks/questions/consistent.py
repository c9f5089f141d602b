"""How long does a consistent read take, against the same question to the API server itself?

An API server and a reflector run in a process of their own, on a loopback; readers are here. The
server's own answers are those of `testing.ApiServer`, which is slower than a real one for lists and
as fast for single objects, so the absolute limits of the issue are the measure, not the ratio. In
the busy resource a pod changes every 2 ms; in the idle one nothing does, while the server's version
moves on. The large resource is beyond the size that is listed: only a watch can prove it.
"""

from __future__ import annotations

import http.client
import random
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, show_s
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import directory
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer

SMALL, MEDIUM, LARGE = 50, 1_000, 3_000
READERS = 1_000
"""At once; a thread each."""
DEADLINE = 60.0


def run(quick: bool) -> list[Row]:
    rounds = 20 if quick else 200
    with directory() as name, Children(_serve, [(name,)]) as children:
        [port] = children.receive()
        with shmcache.attach(name, timeout=DEADLINE) as cache:
            for resource in cache.resources:
                assert cache[resource].wait_synced(DEADLINE)
            rows = [
                _single(cache, port, rounds),
                _list(cache, "configmaps", port, rounds, "50 objects, idle", 0.020),
                _list(cache, "pods", port, rounds, "1,000 objects, busy", 0.020),
                _list(cache, "secrets", port, 3 if quick else 12, "3,000, idle", 1.3),
                _together(cache, children),
            ]
        children.send("end")
    return rows


def _serve(pipe: Pipe, name: str) -> None:
    """The server and the reflector, until the parent says that it is enough."""
    rng = random.Random(7)
    plans = [Plan(name=one) for one in ("pods", "configmaps", "secrets")]
    with ApiServer(bookmark_seconds=60) as server:
        for resource, count in zip(
            ("configmaps", "pods", "secrets"), (SMALL, MEDIUM, LARGE), strict=True
        ):
            for number in range(count):
                server.create(resource, _object(number))
        opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
        with shmcache.Writer(name, [plan.resource for plan in plans]) as writer:
            engine = Engine(writer, plans, opener, pace=Pace(1000))
            engine.start()
            assert engine.ready.wait(DEADLINE)
            pipe.answer(server.port)
            stop = threading.Event()

            def change() -> None:
                turn = 0
                while not stop.wait(0.002):
                    turn += 1
                    server.update("pods", _object(rng.randrange(MEDIUM), str(turn)))

            changing = threading.Thread(target=change)
            changing.start()
            while (asked := pipe.next()) != "end":
                pipe.answer(sum(server.requests.values()) if asked == "requests" else None)
            stop.set()
            changing.join()
            engine.stop()


def _object(number: int, turn: str = "") -> dict[str, Any]:
    labels = {"app": "web", "turn": turn}
    return {"metadata": {"name": f"o-{number}", "namespace": "prod", "labels": labels}}


def _took(rounds: int, call: Callable[[], object]) -> tuple[float, float]:
    """Median and 99th percentile."""
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    found.sort()
    return statistics.median(found), found[min(int(len(found) * 0.99), len(found) - 1)]


def _direct(port: int, path: str) -> Callable[[], object]:
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def call() -> bytes:
        connection.request("GET", path)
        return connection.getresponse().read()

    return call


def _row(what: str, ours: tuple[float, float], theirs: tuple[float, float], most: float) -> Row:
    return Row(
        question=f"consistent {what}: median (99 %)",
        ours=f"{show_s(ours[0])} ({show_s(ours[1])})",
        peer=f"the server itself {show_s(theirs[0])} ({show_s(theirs[1])})",
        ratio=ours[0] / theirs[0],
        must=f"≤ {show_s(most)}",
        met=ours[0] <= most,
    )


def _single(cache: shmcache.Cache, port: int, rounds: int) -> Row:
    pods = cache["pods"]
    ours = _took(rounds, lambda: pods.get("prod/o-7", consistent=True, timeout=30))
    theirs = _took(rounds, _direct(port, "/api/v1/namespaces/prod/pods/o-7"))
    return _row("get of one object", ours, theirs, 0.008)


def _list(
    cache: shmcache.Cache,
    resource: str,
    port: int,
    rounds: int,
    what: str,
    most: float,
) -> Row:
    ours = _took(rounds, lambda: cache[resource].list(consistent=True, timeout=30))
    theirs = _took(min(rounds, 20), _direct(port, f"/api/v1/{resource}"))
    return _row(f"list, {what}", ours, theirs, most)


def _together(cache: shmcache.Cache, children: Children) -> Row:
    """Readers in a closed loop, for some seconds."""
    pods, reads = cache["pods"], 0
    children.send("requests")
    [before] = children.receive()
    begin = time.monotonic()

    def loop(_: int) -> int:
        count = 0
        while time.monotonic() < begin + 5:
            pods.list("none", consistent=True, timeout=30)
            count += 1
        return count

    with ThreadPoolExecutor(READERS) as pool:
        reads = sum(pool.map(loop, range(READERS)))
    seconds = time.monotonic() - begin
    children.send("requests")
    [after] = children.receive()
    return Row(
        question=f"{READERS} readers of one resource in a closed loop: requests to the server",
        ours=f"{(after - before) / seconds:.1f} a second",
        peer=f"{reads / seconds:,.0f} reads a second",
        ratio=(after - before) / max(reads, 1),
        must="≤ 2 a second",
        met=(after - before) <= 2 * seconds,
        note="the pause after a flight grows with the questions that it answered",
    )


if __name__ == "__main__":
    harness.main(__doc__, run)
