"""Ways to wake sleeping processes, each in a scene of its own, for wake.py.

Every sleeper is a process that waits in the way of its kind, notes when it runs, and counts in
`done`, one cache line for each. The waking process notes the time in `posted` before.
"""

from __future__ import annotations

import importlib
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import shmcache
from benchmarks.peers.descriptor import descriptors
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, directory, fill_variants, open_writer, variants
from shmcache import _hot
from shmcache._native import check, lib

GAP_US = 500
WAIT_S = 10.0
READY_S = 60.0
LINE = 16  # words: a cache line and its neighbour


class Publisher:
    """A writer that puts two encoded values under one key, by turns."""

    def __init__(self, name: str, writer: Any) -> None:
        fill_variants(writer, 1)
        self._writer = writer
        self._cache = shmcache.attach(name)
        self._key, self._views = variants(self._cache)[0]
        self._version = objects.FIRST_UPDATE_VERSION  # even: the first put changes the key

    def put(self) -> None:
        self._version += 1
        view = self._views[self._version & 1]
        self._writer.put(RESOURCE, self._key, view, str(self._version))

    def publish(self, posted: Any) -> int:
        """Puts, notes the time, commits: by the calls that put() makes, to note it in between."""
        self._version += 1
        view = self._views[self._version & 1]
        handle, address = self._writer._handle.raw, self._writer._handle.address  # noqa: SLF001
        check(lib.shmc_begin(handle), "begin")
        _hot.put(address, 0, self._key, view, str(self._version), None)
        start = time.monotonic_ns()
        posted.value = start
        check(lib.shmc_commit(handle, start), "commit")
        return start

    def put_all(self, nothing: list[None]) -> None:
        for _ in nothing:
            self.put()

    def close(self) -> None:
        self._cache.close()


@contextmanager
def publisher() -> Iterator[tuple[str, Publisher]]:
    with directory() as name, open_writer(name) as writer:
        made = Publisher(name, writer)
        try:
            yield name, made
        finally:
            made.close()


class Way:
    """Sleepers of one kind, and the process that wakes them."""

    def __init__(self, publish: Callable[[Any], int], children: Children, shared: Shared) -> None:
        self._publish = publish
        self._children = children
        self._posted, self._done = shared
        self._woken = 0
        self.took: list[list[int]] = []
        """Nanoseconds of all sleepers, a list for each turn."""
        self.costs: list[int] = []
        """The publisher's cost of each publication."""

    def turn(self, rounds: int) -> None:
        """Publishes once in each round, when all have had time to fall asleep again.

        And sleeps at once, as the program in C does: the kernel may have given its core to the
        woken process, which then runs no sooner.
        """
        clock, pause, publish, posted = time.monotonic_ns, time.sleep, self._publish, self._posted
        self._children.send(rounds)
        pause(GAP_US * 1e-6)
        for _ in range(rounds):
            start = publish(posted)
            end = clock()
            pause(GAP_US * 1e-6)
            self.costs.append(end - start)
            self._woken += 1
            while any(self._done[at] < self._woken for at in range(0, len(self._done), LINE)):
                pause(GAP_US * 1e-6)
        self.took.append([took for answer in self._children.receive() for took in answer])


Shared = tuple[Any, Any]


def _shared(sleepers: int) -> Shared:
    context = multiprocessing.get_context("spawn")
    return context.RawValue("q", 0), context.RawArray("Q", LINE * sleepers)


@contextmanager
def ours(sleepers: int, kind: Callable[..., None]) -> Iterator[Way]:
    """Sleepers of a kind: `consumer`, `handler` or `waiter`."""
    shared = _shared(sleepers)
    with publisher() as (name, writer):
        each = [(name, *shared, LINE * index) for index in range(sleepers)]
        with Children(kind, each) as children:
            children.receive()
            yield Way(writer.publish, children, shared)


@contextmanager
def peer(module: str, sleepers: int) -> Iterator[Way]:
    """The same over a channel of `benchmarks.peers`, one message of 64 bytes each time."""
    channel = importlib.import_module(f"benchmarks.peers.{module}")
    shared = _shared(sleepers)
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        address = f"{place}/channel" if module == "zeromq" else place
        sender = channel.Sender(address, sleepers)
        message = sender.prepare(descriptors(1))

        def publish(posted: Any) -> int:
            posted.value = start = time.monotonic_ns()
            sender.send(message)
            return start

        try:
            addresses = getattr(sender, "addresses", [address] * sleepers)
            each = [
                (channel.__name__, one, sleepers, *shared, LINE * index)
                for index, one in enumerate(addresses)
            ]
            with Children(_receiver, each) as children:
                children.receive()
                sender.connect()
                yield Way(publish, children, shared)
        finally:
            sender.close()


# ---- the sleepers --------------------------------------------------------------------------------


def consumer(pipe: Pipe, name: str, posted: Any, done: Any, index: int) -> None:
    """Waits for deltas."""
    clock = time.monotonic_ns
    cache = shmcache.attach(name)
    cursor = cache.follow()
    rounds = pipe.ready()
    while True:
        took = []
        for _ in range(rounds):
            while not cache.wait(cursor, WAIT_S):
                pass
            took.append(clock() - posted.value)
            cursor.take(16)
            done[index] += 1
        pipe.answer(took)
        rounds = pipe.next()


def handler(pipe: Pipe, name: str, posted: Any, done: Any, index: int) -> None:
    """Has a handler, which is called."""
    clock = time.monotonic_ns
    took: list[int] = []
    called = threading.Semaphore(0)

    def handle(_old: Any, _new: Any) -> None:
        took.append(clock() - posted.value)
        done[index] += 1
        called.release()

    cache = shmcache.attach(name)
    registration = cache[RESOURCE].add_handler(on_update=handle)
    cache.start()
    if not registration.wait_synced(READY_S):
        raise TimeoutError("the handler is not synced")
    rounds = pipe.ready()
    while True:
        for _ in range(rounds):
            called.acquire()
        pipe.answer(took[-rounds:])
        rounds = pipe.next()


def waiter(pipe: Pipe, name: str, posted: Any, done: Any, index: int) -> None:
    """Waits in `wait_until` for a state that is not the last one."""
    clock = time.monotonic_ns
    cache = shmcache.attach(name)
    pods = cache[RESOURCE]
    key, _ = variants(cache)[0]
    last = pods[key].metadata.resourceVersion

    def is_next(pod: Any) -> bool:
        return bool(pod.metadata.resourceVersion != last)

    rounds = pipe.ready()
    while True:
        took = []
        for _ in range(rounds):
            found: Any = pods.wait_until(key, is_next, WAIT_S)
            took.append(clock() - posted.value)
            last = found.metadata.resourceVersion
            done[index] += 1
        pipe.answer(took)
        rounds = pipe.next()


def _receiver(
    pipe: Pipe, module: str, address: Any, sleepers: int, posted: Any, done: Any, index: int
) -> None:
    clock = time.monotonic_ns
    receiver = importlib.import_module(module).Receiver(address, sleepers)
    rounds = pipe.ready()
    try:
        while True:
            took = []
            for _ in range(rounds):
                receiver.consume(1)
                took.append(clock() - posted.value)
                done[index] += 1
            pipe.answer(took)
            rounds = pipe.next()
    finally:
        receiver.close()
