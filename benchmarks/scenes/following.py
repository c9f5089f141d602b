"""shmcache's followers of a server: a reflector and its workers, each a process.

The reflector is the engine over HTTP, as `shmcache run` has it, with the corpus' three indices.
Both take commands, see `reflect` and `work`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shmcache
from benchmarks import harness
from benchmarks.scenes.children import Pipe
from benchmarks.scenes.shared import INDICES, RESOURCE

OTHER = "configmaps"
"""A resource without events, for handlers that must stay idle."""
CLIENT = "shmcache"
READY_S = 600
BACKOFF_S = 0.2
"""Between two relists that the benchmark causes; outside of it the wait would grow."""


class Opener:
    """Opens the pods of one server without discovery, which is not our question."""

    def __init__(self, url: str, *, compress: bool = True) -> None:
        from shmcache.source.access import ServerAccess
        from shmcache.source.client import ApiConnection
        from shmcache.source.discovery import ApiResource

        self._server = ApiConnection(lambda: ServerAccess(url=url, compress=compress))
        self._pods = ApiResource(group="", version="v1", plural="pods", kind="Pod", namespaced=True)

    def is_namespaced(self, _plan: Any) -> bool:
        return True

    def open(self, _plan: Any, namespace: str) -> Any:
        from shmcache.source.kube import KubeSource

        return KubeSource(self._server, self._pods, namespace=namespace)


@contextlib.contextmanager
def reflecting(name: str, opener: Any) -> Iterator[shmcache.Writer]:
    """The engine over HTTP, as `shmcache run` has it, synced."""
    from shmcache.engine.config.timing import Timing
    from shmcache.engine.engine import Engine
    from shmcache.engine.plans import Plan

    logging.disable(logging.WARNING)  # a refused watch-list, watches that were ended
    plan = Plan(name=RESOURCE, indices=INDICES)
    with shmcache.Writer(
        name, [plan.resource, shmcache.Resource(OTHER)], arena_max=4 << 30
    ) as writer:
        timing = Timing(backoff_initial=BACKOFF_S, backoff_cap=BACKOFF_S)
        engine = Engine(writer, [plan], opener, timing=timing)
        engine.start()
        try:
            if not engine.ready.wait(READY_S):
                raise TimeoutError(f"not synced: {engine.standings()}")
            yield writer
        finally:
            engine.stop()


def reflect(pipe: Pipe, name: str, url: str) -> None:
    """Starts on the parent's command, answers when all is synced, and then takes commands:

    ("cpu",): its CPU time; ("stats",): memory and the writer's statistics; ("settle",): the same
    after a collection.
    """
    opener = Opener(url)
    pipe.ready()
    with reflecting(name, opener) as writer:
        pipe.answer(None)
        while True:
            command = pipe.next()
            if command == ("cpu",):
                pipe.answer(time.process_time())
                continue
            if command == ("settle",):
                gc.collect()
            pipe.answer({**writer.stats(), **own()})


def own() -> dict[str, float]:
    """CPU time and memory of the process so far."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kib = {name: int(status[name].split()[0]) << 10 for name in ("VmHWM", "VmRSS", "RssShmem")}
    return {
        "peak": kib["VmHWM"],
        "resident": kib["VmRSS"],
        "shared": kib["RssShmem"],
        "private": harness.private_bytes(),
    }


class Worker:
    """A process with one handler, which reads one field of each change."""

    def __init__(self, name: str) -> None:
        self.cache = shmcache.attach(name)
        self._target = ""
        self._reached = threading.Event()
        self._at = 0.0
        self.registration = self.cache[OTHER].add_handler(on_update=self._seen)
        self.cache.start()

    def _seen(self, _old: Any, new: Any) -> None:
        if new["metadata"]["resourceVersion"] == self._target:
            self._at = time.monotonic()
            self._reached.set()

    def handle(self, resource: str) -> None:
        """Adds the handler for this resource, and waits until it has received all objects."""
        self.registration.remove(wait=True)
        self.registration = self.cache[resource].add_handler(on_update=self._seen)
        if resource == RESOURCE and not self.registration.wait_synced(READY_S):
            raise TimeoutError(f"{resource} is not synced")

    def cpu(self) -> float:
        return time.process_time()

    def expect(self, version: str) -> None:
        self._reached.clear()
        self._target = version

    def reached(self) -> float:
        """When the handler had the expected version."""
        if not self._reached.wait(READY_S):
            raise TimeoutError(f"{self._target} was never handled")
        return self._at


def work(pipe: Pipe, name: str) -> None:
    """A worker that takes commands: ("handle", resource), ("expect", version), ("own",), ("cpu",),
    and ("reached",) with the time when the handler had the expected version."""
    worker = Worker(name)
    pipe.answer("ready")
    while True:
        command, *arguments = pipe.next()
        if command == "own":
            told = worker.registration
            pipe.answer({**own(), "handled": told.handled, "lapses": told.lapses})
        else:
            pipe.answer(getattr(worker, command)(*arguments))
