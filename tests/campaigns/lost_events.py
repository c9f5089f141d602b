"""Single events are lost on their way to a reflector: a proxy leaves them out of the watch.

    make lost-events LOST="--events 10000 --together 50" SEED=7

Objects are created, changed and deleted, in a stream of other changes; the events of some are left
out. The reflector compares its content with the server every second. Each lost event has to be
found by the first comparison that began after it, and be repaired without a list of everything:

    the cache is equal to the server after at most one comparison that found it equal before
    `repaired` counts each lost event once, and nothing else
    the proxy saw one list of whole objects: the first
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from dropping import DroppingProxy

import shmcache
from shmcache.engine.config.timing import Timing
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer

DEADLINE = 120.0
OBJECTS = 300
PERIOD = 1.0


class Outcome(NamedTuple):
    """Of a campaign that found nothing wrong."""

    lost: int
    repaired: int
    comparisons: int
    late: int
    """Lost events that were brought by a later watch."""


def pod(name: str, turn: int = 0) -> dict[str, Any]:
    labels = {"turn": str(turn)}
    return {"metadata": {"name": name, "namespace": "prod", "labels": labels}}


class Campaign:
    """One reflector behind the proxy."""

    def __init__(
        self, server: ApiServer, proxy: DroppingProxy, engine: Engine, rng: random.Random
    ) -> None:
        self.server = server
        self.proxy = proxy
        self.engine = engine
        self.rng = rng
        self.names = [f"pod-{number}" for number in range(OBJECTS)]
        self.made = 0

    def eventually(self, fact: Callable[[], bool], words: str) -> None:
        end = time.monotonic() + DEADLINE
        while not fact():
            assert time.monotonic() < end, words
            time.sleep(0.005)

    def lose(self, count: int, turn: int) -> None:
        """So many events of different objects, and one that arrives between two of them."""
        for name in self.rng.sample(self.names, count):
            luck = self.rng.random()
            if luck < 0.2:
                self.made += 1
                new = f"new-{self.made}"
                self.names.append(new)
                self.proxy.doom(new)
                self.server.create("pods", pod(new))
            elif luck < 0.4 and len(self.names) > OBJECTS // 2:
                self.names.remove(name)
                self.proxy.doom(name)
                self.server.delete("pods", name, "prod")
            else:
                self.proxy.doom(name)
                self.server.update("pods", pod(name, turn))
            self.server.update("pods", pod("busy", self.rng.randrange(1 << 30)))

    def proofs(self) -> tuple[int, int]:
        prover = self.engine._prover
        return prover.proved, prover.disproved

    def moved(self, equal: Callable[[], bool]) -> Callable[[], bool]:
        """Asks after one more version: a comparison waits for that."""

        def fact() -> bool:
            if equal():
                return True
            self.server.advance(int(self.server.version) + 1)
            time.sleep(0.02)
            return False

        return fact


def run(events: int, together: int, seed: int, name: str) -> Outcome:
    """AssertionError with its reason if anything is wrong."""
    rng = random.Random(seed)
    with ApiServer(bookmark_seconds=0.05) as server:
        server.create("pods", pod("busy"))
        for number in range(OBJECTS):
            server.create("pods", pod(f"pod-{number}"))
        proxy = DroppingProxy(server.port)
        url = f"http://127.0.0.1:{proxy.port}"
        opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=url)))
        plan = Plan(name="pods")
        try:
            with shmcache.Writer(name, [plan.resource]) as writer:
                timing = Timing(proof_interval=PERIOD)
                engine = Engine(writer, [plan], opener, pace=Pace(1000), timing=timing)
                engine.start()
                try:
                    assert engine.ready.wait(DEADLINE)
                    with shmcache.attach(name) as cache:
                        return _run(Campaign(server, proxy, engine, rng), cache, events, together)
                finally:
                    assert engine.stop()
        finally:
            proxy.close()


def _run(on: Campaign, cache: shmcache.Cache, events: int, together: int) -> Outcome:
    pods, proxy = cache["pods"], on.proxy

    def ours() -> dict[str, str]:
        return {key: obj["metadata"]["resourceVersion"] for key, obj in pods.items()}

    def theirs() -> dict[str, str]:
        found = [obj["metadata"] for obj in on.server.list("pods")]
        return {f"{one['namespace']}/{one['name']}": one["resourceVersion"] for one in found}

    def one_turn(turn: int, count: int) -> None:
        on.lose(count, turn)
        on.eventually(lambda: proxy.waiting == 0, "the proxy does not see an event")
        wanted = int(on.server.version)
        on.eventually(lambda: int(pods.version or 0) >= wanted, "the version does not come")
        proved, _ = on.proofs()
        expected = theirs()
        on.eventually(on.moved(lambda: ours() == expected), f"not repaired in turn {turn}")
        after, _ = on.proofs()
        assert after - proved <= 1, f"turn {turn}: {after - proved} comparisons found nothing"

    turn = 0
    while proxy.dropped < events:
        turn += 1
        one_turn(turn, min(together, events - proxy.dropped))
    counters = pods.status.counters

    def counted() -> bool:
        return pods.status.counters["repaired"] == proxy.dropped - proxy.returned

    on.eventually(counted, f"{counters} of {proxy.dropped} - {proxy.returned}")
    assert 0 == pods.status.counters["relists"], "listed again"
    assert 1 == proxy.lists, f"{proxy.lists} lists"
    proved, disproved = on.proofs()
    repaired = pods.status.counters["repaired"]
    return Outcome(proxy.dropped, repaired, proved + disproved, proxy.returned)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--together", type=int, default=50)
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("SEED") or secrets.randbits(32))
    )
    options = parser.parse_args()
    logging.disable()  # each loss is an error in the log
    print(f"SEED={options.seed}", flush=True)
    begin = time.monotonic()
    name = f"lost-{options.seed}"
    found = run(options.events, options.together, options.seed, name)
    print(
        f"{found.lost} events lost, {found.repaired} repaired, {found.late} came later after all; "
        f"{found.comparisons} comparisons, one list, {time.monotonic() - begin:.0f} s"
    )


if __name__ == "__main__":
    main()
