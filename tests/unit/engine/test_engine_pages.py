"""Invariant tested: a list in pages waits for its turn once, not once a page."""

from __future__ import annotations

import shmcache
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer

PAGES, PAGE = 6, 500
DEADLINE = 60.0


def test_pages_after_the_first_do_not_wait_for_a_turn(name: str) -> None:
    pace = Pace(0.001, burst=2)  # for a watch-list and a list; then a turn in a quarter of an hour
    with ApiServer(watch_list=False, watch_cache=False) as server:
        for number in range((PAGES - 1) * PAGE + 1):
            server.create("configmaps", {"metadata": {"name": f"a-{number}", "namespace": "prod"}})
        plan = Plan(name="configmaps")
        opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
        with shmcache.Writer(name, [plan.resource], arena_max="64MiB") as writer:
            engine = Engine(writer, [plan], opener, pace=pace)
            engine.start()
            try:
                assert engine.ready.wait(DEADLINE)
            finally:
                assert engine.stop()
        assert server.requests["list", "configmaps"] == PAGES
