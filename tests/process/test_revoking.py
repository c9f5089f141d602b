"""Invariant tested: a reader stopped in the middle of any read, and resumed after its pin was
revoked, reads the truth or gets StaleObjectError: nothing torn, no hang, no crash (G2, G10)."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from workers import Worker

import shmcache
from shmcache.errors import StaleObjectError

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
ROUNDS = int(os.environ.get("SHMCACHE_EXAMPLES") or 40) // 2
KEYS = 60


def thing(key: int, number: int) -> dict[str, Any]:
    """An object whose fields prove each other."""
    text = f"{number:06d}" * (5 + key)
    return {
        "key": key,
        "n": number,
        "text": text,
        "list": [number] * 20,
        "deep": {"a": {"b": text}},
    }


def check(found: Any) -> None:
    assert found == thing(found["key"], found["n"]), f"torn: {found}"


def reads(
    cache: shmcache.Cache,
) -> dict[str, Callable[[shmcache.Snapshot], Any]]:
    """One of each way to read a held state; each checks what it read."""

    def scan(at: shmcache.Snapshot) -> None:
        found = [view.to_dict() for view in at["pods"].values()]
        assert len(found) == KEYS
        for each in found:
            check(each)

    def difference(at: shmcache.Snapshot) -> None:
        with cache.snapshot() as now:
            for _key, before, after in now.diff(at, "pods").modified:
                check(before.to_dict())
                check(after.to_dict())

    def each(views: Iterable[Any]) -> None:
        for view in views:
            check(view)

    return {
        "get": lambda at: each(at["pods"][f"k{key}"] for key in range(KEYS)),
        "scan": scan,
        "json": lambda at: each(json.loads(view.json()) for view in at["pods"].values()),
        "index": lambda at: each(at["pods"].by_index("n", str(at["pods"]["k0"]["n"]))),
        "diff": difference,
    }


def reader(pipe: Connection, name: str, what: str) -> None:
    """Reads one state over and over until it is gone; then reports it, and takes the next."""
    with shmcache.attach(name) as cache:
        at = cache.snapshot()
        read = reads(cache)[what]
        refused = answers = 0
        pipe.send("ready")
        while not (answers and refused and pipe.poll(0)):  # on a busy machine it hardly got to read
            try:
                read(at)
                answers += 1
            except StaleObjectError:
                refused += 1
                at = cache.snapshot()
        pipe.recv()
        pipe.send((answers, refused))


@pytest.fixture
def writer(name: str) -> Iterator[shmcache.Writer]:
    pods = shmcache.Resource("pods", {"n": "n"})
    with shmcache.Writer(
        name, [pods], arena_max="32MiB", ring_slots=128, ring_bytes=4096, garbage_max="16KiB"
    ) as made:
        made.put_many("pods", [(f"k{key}", thing(key, 0), None) for key in range(KEYS)])
        yield made
        made.check()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["get", "scan", "json", "index", "diff"])
def test_g2_a_reader_that_is_stopped_in_a_read_and_revoked_gets_an_error(
    writer: shmcache.Writer, rng: random.Random, what: str
) -> None:
    number = 0
    with Worker("fork", reader, writer.name, what) as worker:
        assert "ready" == worker.hear()
        for _ in range(ROUNDS):
            time.sleep(rng.random() / 200)  # anywhere in a read
            worker.stop()
            for _ in range(4):
                number += 1
                items = [(f"k{key}", thing(key, number), None) for key in range(KEYS)]
                writer.put_many("pods", items)
                writer.reclaim()
            worker.send_signal(signal.SIGCONT)
        answers, refused = worker.ask("enough")
    assert answers > 0
    assert refused > 0, "nothing was revoked: the test proves nothing"
    assert writer.stats()["revoked"] > 0
