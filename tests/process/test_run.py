"""Invariant tested: `shmcache run` keeps the cache equal to its server, tells when it is not, and
ends as it is told, with one list or watch-list and one watch for any number of workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import pytest
from workers import PATIENCE, Worker, eventually, hear_all

import shmcache
from shmcache.testing import ApiServer

ROOT = Path(__file__).resolve().parent.parent.parent

Object = dict[str, Any]


def pod(name: str, namespace: str = "prod", **labels: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": "node-1", "containers": [{"name": "app", "image": "app:1"}]},
    }


class Run:
    """A `shmcache run` of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shmcache", "run", *arguments],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit status and what it logged."""
        self.process.send_signal(number)
        return self.result()

    def result(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out + err

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as started:
        yield started


@pytest.fixture
def at(server: ApiServer, name: str, tmp_path: Path) -> list[str]:
    """The arguments that lead a run to this server, and to a cache of our own."""
    return ["--kubeconfig", server.kubeconfig(str(tmp_path / "kubeconfig")), "--name", name]


def fill(server: ApiServer, count: int, namespace: str = "prod") -> None:
    for number in range(count):
        server.create("pods", pod(f"web-{number}", namespace))


def same(server: ApiServer, cache: shmcache.Cache, resource: str = "pods") -> bool:
    ours = {key: obj["metadata"]["resourceVersion"] for key, obj in cache[resource].items()}
    return ours == {
        f"{obj['metadata']['namespace']}/{obj['metadata']['name']}": obj["metadata"][
            "resourceVersion"
        ]
        for obj in server.list(resource)
    }


# ---- what it is for ------------------------------------------------------------------------


def follow(pipe: Connection, name: str) -> None:
    with shmcache.attach(name, timeout=PATIENCE) as cache:
        pods = cache["pods"]
        pods.wait_synced(PATIENCE)
        pipe.send(len(pods))
        version = pipe.recv()
        pods.wait_for(version, PATIENCE)
        pipe.send({key: obj["spec"]["nodeName"] for key, obj in pods.items()})


@pytest.mark.slow
def test_eight_workers_cost_the_server_one_list_and_one_watch(
    server: ApiServer, at: list[str], name: str
) -> None:
    fill(server, 50)
    with Run("pods", "namespaces", *at) as run:
        workers = [Worker("spawn", follow, name) for _ in range(8)]
        try:
            assert [50] * 8 == hear_all(workers)
            server.update("pods", pod("web-7") | {"spec": {"nodeName": "node-2"}})
            server.delete("pods", "web-9", "prod")
            server.create("pods", pod("late"))
            for worker in workers:
                worker.tell(server.version)
            expected = {
                f"prod/{each['metadata']['name']}": each["spec"]["nodeName"]
                for each in server.list("pods")
            }
            assert [expected] * 8 == hear_all(workers)
        finally:
            for worker in workers:
                worker.__exit__()
        asked = {key: count for key, count in server.requests.items() if key[0] != "get"}
        assert {("watch", "pods"): 1, ("watch", "namespaces"): 1} == asked  # each a watch-list
        assert 0 == run.end()[0]


@pytest.mark.slow
def test_a_server_without_watch_lists_is_asked_for_one_list_and_one_watch(
    name: str, tmp_path: Path
) -> None:
    with ApiServer(watch_list=False) as server:
        fill(server, 20)
        kubeconfig = server.kubeconfig(str(tmp_path / "kubeconfig"))
        with (
            Run("pods", "--kubeconfig", kubeconfig, "--name", name),
            shmcache.attach(name, timeout=PATIENCE) as cache,
        ):
            assert cache["pods"].wait_synced(PATIENCE)
            server.create("pods", pod("late"))
            assert cache["pods"].wait_for(server.version, PATIENCE)

            assert same(server, cache)
            assert 1 == server.requests["list", "pods"]
            assert 2 == server.requests["watch", "pods"]  # one that was refused


@pytest.mark.slow
def test_a_killed_run_is_followed_by_one_that_is_right(
    server: ApiServer, at: list[str], name: str
) -> None:
    fill(server, 30)
    with Run("pods", *at) as first, shmcache.attach(name, timeout=PATIENCE) as cache:
        assert cache["pods"].wait_synced(PATIENCE)
        first.process.kill()
        first.process.wait()
        server.delete("pods", "web-3", "prod")
        server.create("pods", pod("meanwhile"))

        assert 30 == len(cache["pods"])  # the last state, and its age grows
        instance = cache.instance
        with Run("pods", *at):
            assert cache["pods"].wait_for(server.version, PATIENCE)
            assert cache["pods"].wait_synced(PATIENCE)
            assert same(server, cache)
            assert instance == cache.instance


@pytest.mark.slow
def test_a_resource_that_fails_does_not_disturb_the_others(
    server: ApiServer, at: list[str], name: str
) -> None:
    fill(server, 10)
    server.faults.error(500, resource="configmaps", times=None)
    server.faults.garbage("watch", "services", times=None)
    server.faults.garbage("list", "services", times=None)
    with (
        Run("pods", "configmaps", "services", "widgets.example.com", *at),
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        assert cache["pods"].wait_synced(PATIENCE)
        server.create("pods", pod("late"))
        assert cache["pods"].wait_for(server.version, PATIENCE)
        assert same(server, cache)
        eventually(lambda: cache["configmaps"].status.state == "retrying", "500 is not told")
        eventually(lambda: cache["widgets.example.com"].status.state == "absent", "404 is not told")
        assert "500" in cache["configmaps"].status.reason
        assert "widgets" in cache["widgets.example.com"].status.reason

        server.faults.clear()
        server.create("customresourcedefinitions", WIDGETS)
        server.create("widgets.example.com", {"metadata": {"name": "w", "namespace": "prod"}})

        for resource in ("configmaps", "services", "widgets.example.com"):
            assert cache[resource].wait_synced(PATIENCE), cache[resource].status
        eventually(lambda: "prod/w" in cache["widgets.example.com"], "a late CRD is not seen")
        assert "synced" == cache["pods"].status.state


WIDGETS: Object = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


def crd(number: int) -> Object:
    name = f"things{number}"
    return {
        "metadata": {"name": f"{name}.group{number}.example.com"},
        "spec": WIDGETS["spec"]
        | {
            "group": f"group{number}.example.com",
            "names": {"plural": name, "singular": f"thing{number}", "kind": f"Thing{number}"},
        },
    }


@pytest.mark.slow
def test_a_hundred_resources_start_one_after_another_and_need_little(
    server: ApiServer, at: list[str], name: str, tmp_path: Path
) -> None:
    names = [f"things{number}.group{number}.example.com" for number in range(100)]
    for number in range(100):
        server.create("customresourcedefinitions", crd(number))
    server.create(names[7], {"metadata": {"name": "t", "namespace": "prod"}})
    broken = names[::10]
    for each in broken:
        server.faults.error(403, resource=each, times=None)
    config = tmp_path / "hundred.toml"
    tables = "".join(f'[resources."{each}"]\n' for each in names)
    config.write_text(f"requests_per_second = 40\n{tables}")

    started = time.monotonic()
    with Run("--config", str(config), *at) as run, shmcache.attach(name, timeout=PATIENCE) as cache:
        for each in names:
            if each not in broken:
                assert cache[each].wait_synced(PATIENCE), each
        assert ["prod/t"] == list(cache[names[7]])
        for each in broken:
            eventually(lambda each=each: cache[each].status.state == "retrying", each)  # type: ignore[misc]
        about = Path(f"/proc/{run.process.pid}/status").read_text(encoding="ascii")
        lines = dict(line.split(":", 1) for line in about.splitlines())
        assert 100 + 10 > int(lines["Threads"])
        assert 150 << 10 > int(lines["VmHWM"].split()[0])
        times = [one.seconds for one in server.log if one.verb in {"list", "watch"}]
        # its rate and a burst; a pass that is refused asks twice without a pause. Since its start:
        # what a busy server notes within one second may have been sent in two
        for count, at_most in enumerate(sorted(times), 1):
            assert count <= 40 * (at_most - started) + 10 + len(broken)
        assert 0 == run.end()[0]


@pytest.mark.slow
def test_a_relist_in_which_nothing_changed_wakes_nobody(
    server: ApiServer, at: list[str], name: str
) -> None:
    fill(server, 20)
    with Run("pods", *at), shmcache.attach(name, timeout=PATIENCE) as cache:
        pods = cache["pods"]
        assert pods.wait_synced(PATIENCE)
        eventually(lambda: pods.status.state == "synced", "it is not said to be synced")
        cursor, seen = cache.follow(["pods"]), cache.latest
        server.go_down()
        server.create("configmaps", {"metadata": {"name": "c", "namespace": "prod"}})
        server.compact()  # the watch cannot go on at its version
        server.come_back()

        eventually(lambda: pods.status.counters["relists"] == 1, "it did not list again")

        assert not cache.wait(seen, timeout=0, resources=["pods"])
        assert [] == cursor.take()
        assert same(server, cache)


@pytest.mark.slow
def test_what_a_relist_finds_gone_is_marked_as_unseen(
    server: ApiServer, at: list[str], name: str
) -> None:
    fill(server, 5)
    with Run("pods", *at), shmcache.attach(name, timeout=PATIENCE) as cache:
        assert cache["pods"].wait_synced(PATIENCE)
        cursor = cache.follow(["pods"])
        server.go_down()
        server.delete("pods", "web-2", "prod")
        server.compact()
        server.come_back()

        eventually(cursor.ready, "it is not deleted")
        found = cursor.take()
        assert [("DELETED", "prod/web-2", True)] == [
            (delta.kind, delta.key, delta.unknown_final_state) for delta in found
        ]


# ---- bounds ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_over_its_budget_a_resource_keeps_its_last_content_and_comes_back(
    server: ApiServer, at: list[str], name: str
) -> None:
    fill(server, 10)
    with Run("pods", "--max-bytes", "8kB", *at), shmcache.attach(name, timeout=PATIENCE) as cache:
        pods = cache["pods"]
        assert pods.wait_synced(PATIENCE)
        before = dict.fromkeys(pods)
        fat = pod("fat")
        fat["metadata"]["annotations"] = {"much": "x" * 10_000}
        server.create("pods", fat)
        eventually(lambda: pods.status.state == "exceeded", "being over budget is not told")

        assert "max_bytes is 7.812 KiB" in pods.status.reason
        assert before == dict.fromkeys(pods)

        server.delete("pods", "fat", "prod")
        server.create("pods", pod("late"))
        eventually(lambda: pods.status.state == "synced", "it does not come back")
        assert same(server, cache)


@pytest.mark.slow
def test_a_full_arena_keeps_the_last_content_and_is_told(
    server: ApiServer, at: list[str], name: str
) -> None:
    fill(server, 10)
    small = ["--arena-max", "5MiB", "--ring-slots", "1024"]
    with Run("pods", "namespaces", *small, *at), shmcache.attach(name, timeout=PATIENCE) as cache:
        pods = cache["pods"]
        assert pods.wait_synced(PATIENCE)
        for number in range(12):
            fat = pod(f"fat-{number}")
            fat["metadata"]["annotations"] = {"much": f"{number:04d}" * 100_000}
            server.create("pods", fat)
        eventually(lambda: pods.status.state == "exceeded", "a full arena is not told")
        assert "arena_max" in pods.status.reason
        assert cache["namespaces"].status.state == "synced"

        for number in range(12):
            server.delete("pods", f"fat-{number}", "prod")
        eventually(lambda: pods.status.state == "synced", "it does not come back")
        assert same(server, cache)


@pytest.mark.slow
def test_namespaces_are_cached_side_by_side_and_nothing_else(
    server: ApiServer, at: list[str], name: str
) -> None:
    for namespace in ("a", "b", "c"):
        fill(server, 5, namespace)
    with (
        Run("pods", "nodes", "--namespaces", "a,b", *at),
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        pods = cache["pods"]
        assert pods.wait_synced(PATIENCE)
        server.create("pods", pod("late", "a"))
        server.create("pods", pod("late", "b"))
        server.create("pods", pod("late", "c"))
        server.send_bookmarks()
        eventually(lambda: "b/late" in pods and "a/late" in pods, "changes do not come")

        assert {"a", "b"} == {key.partition("/")[0] for key in pods}
        assert 12 == len(pods)
        asked = {record.namespace for record in server.log if record.resource == "pods"}
        assert {"a", "b"} == asked
        assert cache["nodes"].wait_synced(PATIENCE)  # has no namespaces: cached as a whole
        assert 1 == server.requests["watch", "nodes"]


@pytest.mark.slow
def test_secrets_are_refused_unless_allowed(server: ApiServer, at: list[str], name: str) -> None:
    secret = {"metadata": {"name": "s", "namespace": "prod"}, "data": {"k": "dg=="}}
    server.create("secrets", secret)

    code, said = Run("secrets", *at).result()
    assert (78, True) == (code, "allow_secrets" in said)
    code, said = Run("secrets", "--allow-secrets", "--mode", "0640", *at).result()
    assert (78, True) == (code, "must be 0600" in said)

    with (
        Run("secrets", "--allow-secrets", *at),
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        assert cache["secrets"].wait_synced(PATIENCE)
        assert "dg==" == cache["secrets"]["prod/s"]["data"]["k"]


# ---- its life ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_when_it_is_told_to_end(
    server: ApiServer, at: list[str], name: str, number: signal.Signals
) -> None:
    fill(server, 5)
    with Run("pods", *at) as run, shmcache.attach(name, timeout=PATIENCE) as cache:
        assert cache["pods"].wait_synced(PATIENCE)
        run.process.send_signal(signal.SIGHUP)

        code, said = run.end(number)

        assert 0 == code, said
        assert "SIGHUP" in said
        assert "draining" in said
        assert "Traceback" not in said
        assert 5 == len(cache["pods"])
        assert "stale" == cache["pods"].status.state  # nobody follows the server any more
        eventually(lambda: server.open_watches == 0, "a watch stays open")
    with shmcache.attach(name) as late:  # it is kept for the next run
        assert 5 == len(late["pods"])


@pytest.mark.slow
def test_it_drains_while_its_server_says_nothing(
    server: ApiServer, at: list[str], name: str
) -> None:
    server.faults.half_open("list", times=None)
    server.faults.half_open("watch", times=None)
    with Run("pods", "nodes", *at) as run, shmcache.attach(name, timeout=PATIENCE) as cache:
        eventually(lambda: 2 <= sum(server.requests.values()), "it asks for nothing")
        assert not cache["pods"].status.synced

        code, said = run.end()

        assert 0 == code, said
        assert "not everything ended" not in said


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(at: list[str], name: str) -> None:
    with Run("pods", *at) as run, shmcache.attach(name, timeout=PATIENCE):
        run.process.send_signal(signal.SIGSTOP)  # both signals are there before it acts on one
        run.process.send_signal(signal.SIGTERM)
        run.process.send_signal(signal.SIGINT)

        code, _ = run.end(signal.SIGCONT)

        assert code in {128 + signal.SIGTERM, 128 + signal.SIGINT}


@pytest.mark.slow
def test_it_says_that_it_is_ready_and_logs_json(at: list[str], tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(PATIENCE)
        with Run("pods", "--log-format", "json", *at, NOTIFY_SOCKET=path) as run:
            assert manager.recv(1000).startswith(b"READY=1\n")
            code, said = run.end()
            assert b"STOPPING=1" == manager.recv(1000)
    assert 0 == code
    lines = [json.loads(line) for line in said.splitlines()]
    assert {"time", "level", "logger", "thread", "message"} <= set(lines[0])
    assert any("all first lists are stored" in line["message"] for line in lines)


@pytest.mark.slow
def test_a_second_writer_is_told_to_come_again_later(at: list[str], name: str) -> None:
    with Run("pods", *at), shmcache.attach(name, timeout=PATIENCE):
        code, said = Run("pods", "--no-standby", *at).result()

    assert (75, True) == (code, "has a writer already" in said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 78, "nothing is to be cached"),
        (["--no-such-flag"], 2, "usage"),
        (["--labels", "a=b"], 2, "needs resources"),
        (["pods", "--index", "node"], 2, "RESOURCE:NAME=PATH"),
        (["pods", "--config", "/nowhere/x.toml"], 78, "No such file"),
        (["pods", "--kubeconfig", "/nowhere/config"], 78, "/nowhere/config"),
        (["pods", "--transform", "nowhere:f"], 78, "No module named 'nowhere'"),
    ],
)
def test_what_is_wrong_is_said_with_its_own_status(
    arguments: list[str], code: int, says: str
) -> None:
    found, said = Run(*arguments).result()

    assert code == found, said
    assert says in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_validate_says_what_would_be_cached(at: list[str], name: str) -> None:
    code, said = Run("pods", "gadgets.example.com", "--validate", *at).result()

    assert 0 == code, said
    assert "pods; everywhere: the server has v1 Pod, namespaced" in said
    assert "gadgets.example.com; everywhere: not there now" in said
    with pytest.raises(shmcache.SegmentNotFound):
        shmcache.attach(name)

    code, said = Run("pods", "--index", "pods:x=nowhere:f", "--validate", *at).result()
    assert (78, True) == (code, "wrong: pods: index x: No module named 'nowhere'" in said)


@pytest.mark.slow
def test_what_was_recorded_can_be_replayed_without_a_server(
    server: ApiServer, at: list[str], name: str, tmp_path: Path
) -> None:
    fill(server, 10)
    server.create("configmaps", {"metadata": {"name": "c", "namespace": "prod"}})
    record = str(tmp_path / "run.jsonl.gz")
    resources = ("pods", "configmaps")
    with (
        Run(*resources, "--record", record, *at) as run,
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        assert cache["pods"].wait_synced(PATIENCE)
        server.delete("pods", "web-3", "prod")
        assert cache["pods"].wait_for(server.version, PATIENCE)
        assert cache["configmaps"].wait_synced(PATIENCE)
        expected = {key: obj.to_dict() for key, obj in cache["pods"].items()}
        assert 0 == run.end()[0]
    server.go_down()
    assert {"run.pods.jsonl.gz", "run.configmaps.jsonl.gz", "kubeconfig"} == {
        path.name for path in tmp_path.iterdir()
    }

    with (
        Run(*resources, "--replay", record, "--name", name),
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        eventually(lambda: "prod/web-3" not in cache["pods"] and 9 == len(cache["pods"]), "stuck")
        assert expected == {key: obj.to_dict() for key, obj in cache["pods"].items()}
        assert cache["configmaps"].wait_synced(PATIENCE)

    code, said = Run(*resources, "--record", record, *at).result()
    assert (78, True) == (code, "File exists" in said)


TRANSFORM = """
def slim(pod):
    if pod["metadata"]["name"] == "web-1":
        raise ValueError("unlucky")
    return {"metadata": pod["metadata"], "node": pod["spec"]["nodeName"]}
"""


@pytest.mark.slow
def test_a_transform_decides_what_is_stored_and_isolates_what_it_fails_on(
    server: ApiServer, at: list[str], name: str, tmp_path: Path
) -> None:
    fill(server, 3)
    (tmp_path / "slimming.py").write_text(TRANSFORM)
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    with (
        Run("pods", "--transform", "slimming:slim", *at, PYTHONPATH=path) as run,
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        pods = cache["pods"]
        assert pods.wait_synced(PATIENCE)
        assert ["prod/web-0", "prod/web-2"] == list(pods)
        assert "node-1" == pods["prod/web-0"]["node"]
        eventually(lambda: 1 == pods.status.counters["refused"], "it is not counted")
        server.update("pods", pod("web-2") | {"spec": {"nodeName": "node-9"}})
        assert pods.wait_for(server.version, PATIENCE)
        assert "node-9" == pods["prod/web-2"]["node"]
        assert "the transform fails on prod/web-1" in run.end()[1]


@pytest.mark.slow
def test_an_error_in_the_middle_of_a_watch_is_logged_and_counted(
    server: ApiServer, at: list[str], name: str
) -> None:
    fill(server, 1)
    text = b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"unlucky"}}\n'
    server.faults.garbage("watch", "pods", text=text, after=2)  # after the object, and its end
    with (
        Run("pods", *at) as run,
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        pods = cache["pods"]
        eventually(lambda: pods.status.counters["errors"] >= 1, "it is not counted")
        assert pods.wait_synced(PATIENCE)
        server.create("pods", pod("late"))
        assert pods.wait_for(server.version, PATIENCE)
        said = run.end()[1]
    assert "pods: the watch says ERROR: " in said
    assert "unlucky" in said
