"""A server, a reflector of it and a reader, for tests of consistent reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import shmcache
from shmcache.engine import confirming
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.reader import asking
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer

DEADLINE = 60.0


def pod(name: str, namespace: str = "prod", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


def eventually(fact: Callable[[], bool], words: str) -> None:
    end = time.monotonic() + DEADLINE
    while not fact():
        assert time.monotonic() < end, words
        time.sleep(0.01)


class Running:
    """A server, a reflector of it, and a reader."""

    def __init__(self, server: ApiServer, engine: Engine, cache: shmcache.Cache) -> None:
        self.server = server
        self.engine = engine
        self.cache = cache
        self.pods = cache["pods"]

    @property
    def confirmer(self) -> confirming.ResourceConfirmer:
        return self.engine._confirmers["pods"]

    def requests(self) -> dict[tuple[str, str], int]:
        return dict(self.server.requests)

    @contextmanager
    def deaf(self, namespace: str = "") -> Iterator[None]:
        """Inside, the feed stores no event, although it arrives."""
        go_on = threading.Event()
        feeds = self.engine._kept[0].feeds
        [feed] = [one for one in feeds if one.parts.namespace == namespace]
        content = feed.parts.content
        applying = content.apply

        def apply(items: Any, version: str) -> None:
            go_on.wait(DEADLINE)
            applying(items, version)

        content.apply = apply  # type: ignore[method-assign]
        try:
            yield
        finally:
            content.apply = applying  # type: ignore[method-assign]
            go_on.set()


@contextmanager
def running(
    name: str, plan: Plan | None = None, *, objects: int = 3, **settings: Any
) -> Iterator[Running]:
    plan = plan or Plan(name="pods")
    with ApiServer(**settings) as server:
        for number in range(objects):
            server.create("pods", pod(f"web-{number}"))
        opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
        with shmcache.Writer(name, [plan.resource], arena_max="64MiB") as writer:
            engine = Engine(writer, [plan], opener, pace=Pace(100))
            engine.start()
            try:
                assert engine.ready.wait(DEADLINE)
                server.wait_for_watches(max(len(plan.namespaces), 1))
                with shmcache.attach(name) as cache:
                    yield Running(server, engine, cache)
            finally:
                assert engine.stop()


def way(run: Running, **question: Any) -> str:
    """The way in which a question about pods is answered."""
    client = asking._sent(run.cache, asking.Question("pods", **question), time.monotonic() + 10)
    with client:
        found = asking._answer(
            client, asking.Question("pods", **question), time.monotonic() + DEADLINE
        )
        return asking.parse(found, "pods").way
