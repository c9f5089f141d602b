"""How much CPU and memory does the continuous proof need, against a list that is decoded?

An API server in a process of its own has 100,000 pods, this process their reflector. It claims,
lists the metadata of all pods at its version, 2,000 in a page, and compares the digests, as it does
every five minutes in operation. Nothing else happens meanwhile, so the CPU time of the process is
that of the proof. The peer does the same as most programs would: it lists the same pages, decodes
them with orjson, and compares keys, UIDs and versions with a dict that it keeps.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import urllib3

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, show_bytes, show_s
from benchmarks.scenes import following, objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import directory
from shmcache.engine.config.timing import Timing
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.proof import PAGE
from shmcache.engine.rate_limit import Pace
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.source.kube import LIST_METADATA
from shmcache.testing import ApiServer

PODS, PERIOD_S = 100_000, 300.0
SHARE, MEMORY = 0.002, 8 << 20
DEADLINE = 300.0


def run(quick: bool) -> list[Row]:
    count, rounds = (5_000, 3) if quick else (PODS, 7)
    with directory() as name, Children(_serve, [(count,)]) as server:
        [url] = server.receive()
        with Children(_decode, [(url, rounds)]) as peer:
            [theirs] = peer.receive()
        return _rows(_proofs(name, url, server, rounds), theirs, count)


def _serve(pipe: Pipe, count: int) -> None:
    """The server, whose version moves on when it is asked to."""
    with ApiServer(bookmark_seconds=3600) as server:
        for pod in objects.pods(count):
            metadata = {k: v for k, v in pod["metadata"].items() if k != "resourceVersion"}
            server.create("pods", {**pod, "metadata": metadata})
        pipe.answer(server.url)
        while True:
            pipe.next()
            server.advance(int(server.version) + 1)
            server.send_bookmarks()
            pipe.answer(None)


# ---- ours ----------------------------------------------------------------------------------------


def _proofs(name: str, url: str, server: Children, rounds: int) -> tuple[float, int]:
    """CPU seconds of a proof (the median), and the most memory that one took."""
    plan = Plan(name="pods")
    opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=url)))
    with shmcache.Writer(name, [plan.resource], arena_max=4 << 30) as writer:
        engine = Engine(writer, [plan], opener, timing=Timing(proof_interval=0), pace=Pace(1000))
        engine.start()
        try:
            _await(engine.ready.is_set, "no first list")
            costs = [_proof(engine, server) for _ in range(rounds + 1)][
                1:
            ]  # the first one warms up
        finally:
            engine.stop()
    return statistics.median(cpu for cpu, _ in costs), max(memory for _, memory in costs)


def _proof(engine: Engine, server: Children) -> tuple[float, int]:
    [feed], prover = engine._kept[0].feeds, engine._prover  # noqa: SLF001 - as the tests do
    proved = prover.proved
    before, begun = _forget_peak(), time.process_time()  # the collection is not part of it
    feed.claim_soon()
    server.send("move")
    server.receive()
    _await(lambda: prover.proved > proved, "no proof")
    assert prover.disproved == 0
    used = time.process_time() - begun
    return used, int(following.own()["peak"]) - before


def _await(fact: Callable[[], bool], words: str) -> None:
    end = time.monotonic() + DEADLINE
    while not fact():
        assert time.monotonic() < end, words
        time.sleep(0.01)


def _forget_peak() -> int:
    """The resident memory now, from which the peak is counted from here on."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return int(following.own()["resident"])


# ---- the peer ------------------------------------------------------------------------------------


def _decode(pipe: Pipe, url: str, rounds: int) -> None:
    pool = urllib3.PoolManager()
    kept = dict(_listed(pool, url))
    costs = []
    for _ in range(rounds):
        begun, before = time.process_time(), _forget_peak()
        assert kept == dict(_listed(pool, url))
        costs.append((time.process_time() - begun, int(following.own()["peak"]) - before))
    pipe.answer((statistics.median(cpu for cpu, _ in costs), max(each for _, each in costs)))


def _listed(pool: urllib3.PoolManager, url: str) -> list[tuple[str, tuple[str, str]]]:
    found, token = [], ""
    while True:
        fields = {"limit": str(PAGE), **({"continue": token} if token else {})}
        headers = {"Accept": LIST_METADATA}
        page: dict[str, Any] = orjson.loads(
            pool.request("GET", f"{url}/api/v1/pods", fields=fields, headers=headers).data
        )
        for item in page["items"]:
            of = item["metadata"]
            found.append((f"{of['namespace']}/{of['name']}", (of["uid"], of["resourceVersion"])))
        token = page["metadata"].get("continue", "")
        if not token:
            return found


# ---- the answer ----------------------------------------------------------------------------------


def _rows(ours: tuple[float, int], theirs: tuple[float, int], count: int) -> list[Row]:
    share = ours[0] / PERIOD_S
    most = SHARE * count / PODS
    return [
        Row(
            question=f"CPU of the reflector for a proof of {count:,} pods",
            ours=show_s(ours[0]),
            peer=f"decoded and compared {show_s(theirs[0])}",
            ratio=ours[0] / theirs[0],
            must=f"≤ {most:.2%} of a core",
            met=share <= most,
            note=f"{share:.3%} of a core, every {PERIOD_S:.0f} s; one request at a time (PROOF4)",
        ),
        Row(
            question=f"memory of the reflector during a proof of {count:,} pods",
            ours=show_bytes(ours[1]),
            peer=f"decoded and compared {show_bytes(theirs[1])}",
            ratio=ours[1] / max(theirs[1], 1),
            must=f"≤ {show_bytes(MEMORY)}",
            met=ours[1] <= MEMORY,
            note="growth of the resident memory, at most, shared pages that were touched included",
        ),
    ]


if __name__ == "__main__":
    harness.main(__doc__, run)
