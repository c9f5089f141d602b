"""Controllers in threads of the test's own process, whose reconciles follow a script."""

from __future__ import annotations

import queue
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import shmcache
from shmcache import states
from shmcache.controllers.numbers import Numbers
from shmcache.controllers.worker import Worker

PATIENCE = 60.0
QUIET_SECONDS = 0.15
"""A test believes that nothing more happens after so many seconds without a call."""


def eventually(fact: Callable[[], object], otherwise: str = "it does not happen") -> None:
    """Returns once the fact holds; a failure if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.002)


class Script:
    """Reconciles: the result of each call of a key, in order; None afterwards."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.times: dict[str, list[float]] = {}
        self.count: Counter[str] = Counter()
        self._actions: dict[str, tuple[Any, ...]] = {}

    def on(self, key: str, *actions: Any) -> None:
        """Each is a value to return, an exception to raise, or a function of key and cache."""
        self._actions[key] = actions

    def function(self, *, asynchronous: bool = False) -> Any:
        def reconcile(key: str, cache: Any) -> Any:
            return self._do(key, cache)

        async def reconcile_async(key: str, cache: Any) -> Any:
            result = self._do(key, cache)
            return await result if hasattr(result, "__await__") else result

        return reconcile_async if asynchronous else reconcile

    def _do(self, key: str, cache: Any) -> Any:
        self.times.setdefault(key, []).append(time.monotonic())
        number = self.count[key]
        self.count[key] += 1
        self.calls.put(key)
        actions = self._actions.get(key, ())
        action = actions[number] if number < len(actions) else None
        if isinstance(action, BaseException):
            raise action
        return action(key, cache) if callable(action) else action

    def hear(self) -> str:
        """The key of the next call."""
        return self.calls.get(timeout=PATIENCE)

    def hear_all(self, count: int) -> list[str]:
        return [self.hear() for _ in range(count)]

    def quiet(self, seconds: float = QUIET_SECONDS) -> bool:
        """Whether no call happens for a while."""
        time.sleep(seconds)
        return self.calls.empty()


class Lab:
    """A cache of pods and nodes, both synced, and the controllers that run on it."""

    def __init__(self, writer: shmcache.Writer, cache: shmcache.Cache) -> None:
        self.writer = writer
        self.cache = cache
        self.version = 1
        self._workers: list[Worker] = []
        for resource in ("pods", "nodes"):
            writer.set_state(resource, states.SYNCED, "1")

    def put(self, name: str, resource: str = "pods", **more: Any) -> str:
        """Stores an object; returns its key."""
        self.version += 1
        metadata = {
            "namespace": "prod", "name": name, "uid": more.pop("uid", f"uid-of-{name}"),
            "resourceVersion": str(self.version), **more.pop("metadata", {}),
        }  # fmt: skip
        if more.pop("cluster", False):
            del metadata["namespace"]
        with self.writer.batch():
            self.writer.apply(resource, [{"metadata": metadata, **more}])
            self.writer.set_state(resource, states.SYNCED, str(self.version))
        namespace = metadata.get("namespace")
        return f"{namespace}/{name}" if namespace else name

    def start(self, function: Any, *, resume: bool = False, **options: Any) -> Worker:
        """A controller of pods."""
        resource = options.pop("resource", "pods")
        options.setdefault("name", "lab")
        worker = shmcache.controller(resource, **options)(function).start(self.cache, resume=resume)
        self._workers.append(worker)
        return worker

    def stop(self, worker: Worker) -> None:
        worker.stop()
        assert worker.join(PATIENCE)
        self._workers.remove(worker)

    def numbers(self, worker: Worker) -> Numbers:
        return worker.controller.numbers(self.cache)

    def close(self) -> None:
        for worker in list(self._workers):
            self.stop(worker)
