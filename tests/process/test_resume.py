"""Invariant tested: a reflector that is restarted for any reason resumes in the memory of its
predecessor, with a watch at the stored version and no list (G42); only a resource whose
configuration has changed is listed again."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_run import Run, fill, pod, same
from workers import PATIENCE, eventually, stop_child

import shmcache
from shmcache.errors import SegmentNotFound
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        fill(started, 20)
        fill(started, 5, "dev")
        yield started


@pytest.fixture
def at(server: ApiServer, name: str, tmp_path: Path) -> list[str]:
    """The arguments for a run against this server, with a cache of our own."""
    return ["--kubeconfig", server.kubeconfig(str(tmp_path / "kubeconfig")), "--cache", name]


def contents(server: ApiServer, resource: str = "pods") -> int:
    """How often a client requested a whole content: lists and watch-lists, but no comparisons."""
    return sum(
        (
            one.verb == "list"
            and one.query != {"limit": "1"}
            and one.query.get("resourceVersionMatch") != "Exact"
        )
        or (one.verb == "watch" and "sendInitialEvents" in one.query)
        for one in server.log
        if one.resource == resource
    )


def follow(cache: shmcache.Cache, server: ApiServer) -> None:
    """Returns once the cache equals the server's state and is synced."""
    assert cache["pods"].wait_for(server.version, PATIENCE)
    assert cache["pods"].wait_synced(PATIENCE)
    assert same(server, cache)


def kill(run: Run) -> None:
    run.process.kill()
    run.process.wait()


def drain(run: Run) -> None:
    assert run.end()[0] == 0


@pytest.mark.parametrize("end", [kill, drain])
def test_a_restart_needs_no_list(
    server: ApiServer, at: list[str], name: str, end: Callable[[Run], None]
) -> None:
    received: list[str] = []
    with Run("pods", "--index", "pods:node=spec.nodeName", *at) as first:
        cache = shmcache.attach(name, timeout=PATIENCE)
        follow(cache, server)
        cache["pods"].add_handler(
            on_add=lambda obj, initial: received.extend(
                [] if initial else ["+" + obj["metadata"]["name"]]
            ),
            on_delete=lambda obj, _: received.append("-" + obj["metadata"]["name"]),
        )
        cache.start()
        end(first)
    instance, cursor = cache.instance, cache.follow(["pods"])
    assert contents(server) == 1
    server.delete("pods", "web-3", "prod")
    server.create("pods", pod("meanwhile"))
    for life in range(2):
        with Run("pods", "--index", "pods:node=spec.nodeName", *at) as again:
            server.create("pods", pod(f"life-{life}"))
            follow(cache, server)
            eventually(
                lambda: cache["pods"].status.state == "synced", "it is not reported as synced"
            )
            assert len(cache["pods"].by_index("node", "node-1")) == len(cache["pods"])
            end(again)
    assert contents(server) == 1  # of the very first life
    assert cache.instance == instance
    kinds = [(delta.kind, delta.key) for delta in cursor.take()]
    assert kinds[0] == ("DELETED", "prod/web-3")
    assert [key for _, key in kinds] == [
        "prod/web-3",
        "prod/meanwhile",
        "prod/life-0",
        "prod/life-1",
    ]
    eventually(
        lambda: received == ["-web-3", "+meanwhile", "+life-0", "+life-1"], "handlers missed it"
    )
    cache.close()


def test_each_of_several_namespaces_resumes_where_it_was(
    server: ApiServer, at: list[str], name: str
) -> None:
    wanted = ["pods", "--namespace", "prod,dev", *at]
    with Run(*wanted) as first:
        cache = shmcache.attach(name, timeout=PATIENCE)
        assert cache["pods"].wait_synced(PATIENCE)
        server.create("pods", pod("late", "dev"))
        eventually(lambda: "dev/late" in cache["pods"], "it is not followed")
        kill(first)
    asked = contents(server)
    assert asked == 2
    server.delete("pods", "late", "dev")
    server.create("pods", pod("later", "prod"))
    seen: list[str] = []
    cursor = cache.follow(["pods"])
    with Run(*wanted):
        eventually(lambda: "prod/later" in cache["pods"], "it is not followed")
        eventually(lambda: "dev/late" not in cache["pods"], "it is not followed")
        assert same(server, cache)
        seen += [delta.key or "" for delta in cursor.take()]
    assert sorted(seen) == ["dev/late", "prod/later"]  # nothing is repeated
    assert contents(server) == asked
    cache.close()


def test_a_version_that_the_server_has_forgotten_leads_to_one_list(
    server: ApiServer, at: list[str], name: str
) -> None:
    with Run("pods", *at) as first:
        cache = shmcache.attach(name, timeout=PATIENCE)
        follow(cache, server)
        kill(first)
    server.delete("pods", "web-3", "prod")
    server.create("configmaps", {"metadata": {"name": "c", "namespace": "prod"}})
    server.compact()
    instance = cache.instance
    with Run("pods", *at):
        follow(cache, server)
        assert cache.instance == instance
        assert contents(server) == 2
    cache.close()


def labelled(at: list[str], labels: str) -> list[str]:
    return ["pods", "-l", labels, *at]


def test_only_a_resource_with_another_selector_is_listed_again(
    server: ApiServer, at: list[str], name: str, tmp_path: Path
) -> None:
    server.create("pods", pod("chosen", app="web"))
    config = tmp_path / "config.toml"

    def run(labels: str) -> Run:
        config.write_text(f'[resources.pods]\nlabels = "{labels}"\n[resources.namespaces]\n')
        return Run("--config", str(config), *at)

    with run("") as first:
        cache = shmcache.attach(name, timeout=PATIENCE)
        follow(cache, server)
        assert cache["namespaces"].wait_synced(PATIENCE)
        kill(first)
    others = contents(server, "namespaces")
    instance = cache.instance
    with run("app=web") as second:
        eventually(lambda: list(cache["pods"]) == ["prod/chosen"], "the selector is not followed")
        assert cache["pods"].wait_synced(PATIENCE)
        assert cache["namespaces"].wait_synced(PATIENCE)
        kill(second)
    assert contents(server) == 2
    assert contents(server, "namespaces") == others
    assert cache.instance == instance
    with run("app=web"):
        assert cache["pods"].wait_for(server.version, PATIENCE)
        assert contents(server) == 2
    cache.close()


def test_another_server_is_listed_from_the_beginning(
    server: ApiServer, at: list[str], name: str, tmp_path: Path
) -> None:
    with Run("pods", *at) as first:
        cache = shmcache.attach(name, timeout=PATIENCE)
        follow(cache, server)
        drain(first)
    with ApiServer(seed=2) as other:
        fill(other, 3)
        there = ["--kubeconfig", other.kubeconfig(str(tmp_path / "other")), "--cache", name]
        with Run("pods", *there):
            eventually(lambda: len(cache["pods"]) == 3, "objects of another cluster stay")
            follow(cache, other)
            assert contents(other) == 1
    cache.close()


def test_inherited_content_counts_against_the_budget(
    server: ApiServer, at: list[str], name: str
) -> None:
    with Run("pods", "--max-bytes", "9KiB", *at) as first:
        cache = shmcache.attach(name, timeout=PATIENCE)
        follow(cache, server)
        kill(first)
    with Run("pods", "--max-bytes", "9KiB", *at):
        for number in range(40):
            server.create("pods", pod(f"more-{number}"))
        eventually(lambda: cache["pods"].status.state == "exceeded", "it weighs nothing")
    cache.close()


def test_the_memory_is_removed_unless_it_is_to_be_kept(
    server: ApiServer, at: list[str], name: str
) -> None:
    with Run("pods", "--no-keep", *at) as first, shmcache.attach(name, timeout=PATIENCE) as cache:
        follow(cache, server)
        drain(first)
    with pytest.raises(SegmentNotFound):
        shmcache.attach(name)


def test_secrets_are_never_kept(at: list[str], name: str) -> None:
    with Run("secrets", "--allow-secrets", *at) as first:
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            assert cache["secrets"].wait_synced(PATIENCE)
        drain(first)
    with pytest.raises(SegmentNotFound):
        shmcache.attach(name)


# ---- standby ------------------------------------------------------------------------------


class Manager:
    """The messages that systemd would receive."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(PATIENCE)

    def hear(self, words: str) -> str:
        """The first message with these words."""
        while True:
            heard = self._socket.recv(4096).decode()
            if words in heard:
                return heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


@contextmanager
def two(at: list[str], name: str, manager: Manager) -> Iterator[tuple[Run, Run]]:
    """One that keeps the cache, and a standby."""
    with Run("pods", *at) as first:
        shmcache.attach(name, timeout=PATIENCE).close()
        with Run("pods", *at, NOTIFY_SOCKET=manager.path) as second:
            yield first, second


@pytest.mark.parametrize("end", [kill, drain])
def test_a_standby_takes_over_without_a_list(
    server: ApiServer, at: list[str], name: str, manager: Manager, end: Callable[[Run], None]
) -> None:
    with two(at, name, manager) as (first, second):
        heard = manager.hear("STATUS=standing by")
        assert "READY=1" in heard
        assert str(first.process.pid) in heard
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            follow(cache, server)
            instance = cache.instance
            asked = sum(server.requests.values())
            server.create("pods", pod("seen-by-the-first"))
            follow(cache, server)
            assert sum(server.requests.values()) == asked  # a standby sends no requests
            end(first)
            manager.hear("STATUS=taking over")
            server.create("pods", pod("later"))
            follow(cache, server)
            assert cache.instance == instance
            assert contents(server) == 1
        code, log = second.end()
        assert (code, "standing by" in log, "taking over" in log) == (0, True, True)


def test_a_stopped_reflector_keeps_its_cache_and_a_standby_waits(
    server: ApiServer, at: list[str], name: str, manager: Manager
) -> None:
    with two(at, name, manager) as (first, second):
        manager.hear("STATUS=standing by")
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            follow(cache, server)
            stop_child(first.process.pid)
            server.create("pods", pod("slept-through"))
            assert second.process.poll() is None
            assert "prod/slept-through" not in cache["pods"]
            os.kill(first.process.pid, signal.SIGCONT)
            follow(cache, server)
            stop_child(first.process.pid)
            kill(first)  # as a liveness probe would
            manager.hear("STATUS=taking over")
            server.create("pods", pod("later"))
            follow(cache, server)
        assert contents(server) == 1


def test_a_standby_ends_on_a_signal(at: list[str], name: str, manager: Manager) -> None:
    with two(at, name, manager) as (_, second):
        manager.hear("STATUS=standing by")
        assert second.end()[0] == 0


def test_a_cache_that_was_removed_under_a_standby_is_rebuilt(
    server: ApiServer, at: list[str], name: str, manager: Manager
) -> None:
    with two(at, name, manager) as (first, _):
        manager.hear("STATUS=standing by")
        cache = shmcache.attach(name, timeout=PATIENCE)
        follow(cache, server)
        Place(name).unlink()  # a cleaner
        kill(first)
        manager.hear("STATUS=taking over")
        eventually(lambda: Place(name).location.identity(Place(name).pointer), "no new cache")
        server.create("pods", pod("later"))
        with shmcache.attach(name, timeout=PATIENCE) as late:
            follow(late, server)
        eventually(lambda: "prod/later" in cache["pods"], "readers do not move")
        cache.close()
