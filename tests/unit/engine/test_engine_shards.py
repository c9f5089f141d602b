"""A reflector of one shard: it has its share, once, whether its server filters or not (PORTION1,
PORTION2)."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

import shmcache
from shmcache.engine.config import load
from shmcache.engine.config.keys import ConfigurationError
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.protocol.selectors.shards import ShardSelector
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer
from shmcache.testing.serving import ServeThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE = 60.0
OBJECTS = 1200


def pod(number: int) -> Any:
    return {
        "metadata": {"name": f"p-{number}", "namespace": f"ns-{number % 40}"},
        "spec": {"containers": [{"name": "c", "image": f"image:{number}"}]},
    }


def eventually(holds: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


@contextlib.contextmanager
def reflecting(url: str, name: str, shard: str) -> Iterator[tuple[Engine, shmcache.Cache]]:
    plan = Plan(name="pods", shard=shard)
    opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=url)))
    with shmcache.Writer(name, [plan.resource_at(url, ())]) as writer:
        engine = Engine(writer, [plan], opener, pace=Pace(1000.0))
        engine.start()
        try:
            assert engine.ready.wait(DEADLINE)
            with shmcache.attach(name) as cache:
                yield engine, cache
        finally:
            assert engine.stop()


def contents(cache: shmcache.Cache) -> dict[str, str]:
    return {
        f"{view['metadata']['namespace']}/{view['metadata']['name']}": view["metadata"][
            "resourceVersion"
        ]
        for view in cache["pods"].list()
    }


def theirs(server: ApiServer, shard: ShardSelector) -> dict[str, str]:
    return {
        f"{one['metadata']['namespace']}/{one['metadata']['name']}": one["metadata"][
            "resourceVersion"
        ]
        for one in server.list("pods")
        if shard.matches(one)
    }


@pytest.mark.parametrize("field", ["uid", "namespace"])
@pytest.mark.parametrize("watch_list", [True, False])
@pytest.mark.parametrize("sharding", [True, False])
def test_the_cache_has_its_shard_and_nothing_else(
    name: str, sharding: bool, watch_list: bool, field: str
) -> None:
    """First content, changes, deletions, and the list after a compaction."""
    shard = ShardSelector.of(1, 3, field)
    with ApiServer(seed=3, sharding=sharding, watch_list=watch_list) as server:
        for number in range(90):
            server.create("pods", pod(number))
        with reflecting(server.url, name, str(shard)) as (_, cache):
            assert contents(cache) == theirs(server, shard)
            for number in range(60, 120):
                if number < 90:
                    server.delete("pods", f"p-{number}", f"ns-{number % 40}")
                else:
                    server.create("pods", pod(number))
            eventually(lambda: contents(cache) == theirs(server, shard))
            server.compact()
            server.abort_connections()
            for number in range(120, 150):
                server.create("pods", pod(number))
            eventually(lambda: contents(cache) == theirs(server, shard))
            if field == "uid":
                assert 0 < len(contents(cache)) < 120
            refused = cache["pods"].status.counters["refused"]

    assert refused == 0


def test_a_server_that_does_not_filter_is_named_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ApiServer(seed=3, sharding=False) as server:
        for number in range(60):
            server.create("pods", pod(number))
        with reflecting(server.url, name, "0/2"), caplog.at_level("WARNING"):
            pass
    said = [one.getMessage() for one in caplog.records if "filter by shard" in one.getMessage()]
    assert len(said) == 1


@pytest.mark.parametrize("count", [2, 4])
def test_a_replica_receives_its_share_of_the_bytes(name: str, count: int) -> None:
    """From the API server, and from `serve` with the whole cache; each n-th within 5 %.

    Hashes spread objects as dice do: with 10,000 objects in four shards a share is off by 1.7 % at
    one sigma, so the bytes of a share are compared with those of its own objects.
    """
    with ApiServer(seed=5) as server:
        for number in range(OBJECTS):
            server.create("pods", pod(number))
        with reflecting(server.url, name, "0/1") as (_, whole):
            received = whole["pods"].status.counters["bytes"]
            with shmcache.attach(name) as cache, ServeThread(cache) as serve:
                for url in (server.url, serve.url):
                    parts = 0
                    for index in range(count):
                        part = f"{name}-{count}-{index}-{url == serve.url:d}"
                        with reflecting(url, part, f"{index}/{count}") as (_, mine):
                            share = len(mine["pods"]) / OBJECTS
                            bytes_in = mine["pods"].status.counters["bytes"] / received
                            parts += len(mine["pods"])
                        assert bytes_in == pytest.approx(share, rel=0.05)
                    assert parts == OBJECTS


def test_a_lost_event_of_a_shard_is_found_by_the_proof() -> None:
    """A claim compares the shard only: with all objects of the server it would never be equal."""
    shard = ShardSelector.of(0, 2)
    with ApiServer(seed=3) as server:
        for number in range(40):
            server.create("pods", pod(number))
        with reflecting(server.url, "shard-proof", str(shard)) as (engine, cache):
            feed = engine._kept[0].feeds[0]
            feed.claim_soon()
            for number in range(40, 80):
                server.create("pods", pod(number))
            eventually(lambda: contents(cache) == theirs(server, shard))
            eventually(lambda: engine._prover.proved)
            assert not engine._prover.disproved


@pytest.mark.parametrize("text", ["4/4", "x", "shardRange(object.metadata.name, '', '')"])
def test_an_invalid_shard_is_an_error_of_the_configuration(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"pods: invalid shard: .*1/4"):
        load(None, {"resources": {"pods": {"shard": text}}}, {})


def test_another_shard_is_another_content() -> None:
    """A writer that takes the cache over lists again, also where the shard has gone.

    Caches of earlier releases have no such setting, and stay as they are.
    """
    first, second = Plan(name="pods", shard="0/2"), Plan(name="pods", shard="1/2")

    assert first.resource.settings != second.resource.settings
    assert (Plan(name="pods").resource.settings or {})["shard"] is None
    assert first.resource.settings == Plan(name="pods", shard=str(first.share)).resource.settings


def test_a_cache_without_its_shard_is_listed_again(name: str) -> None:
    with ApiServer(seed=3) as server:
        for number in range(40):
            server.create("pods", pod(number))
        half, whole = Plan(name="pods", shard="0/2"), Plan(name="pods")
        with shmcache.Writer(name, [half.resource_at(server.url, ())]) as writer:
            writer.replace("pods", [pod(1)], version="7")
            writer.leave()
        with shmcache.Writer(name, [half.resource_at(server.url, ())]) as writer:
            assert "pods" in writer.inherited
            writer.leave()
        with shmcache.Writer(name, [whole.resource_at(server.url, ())]) as writer:
            assert "pods" not in writer.inherited
