"""Invariant tested: `shmcache run` keeps the cache equal to its server, reports when it is not, and
ends in order on a signal, with one list or watch-list and one watch for any number of workers."""

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
from kubectl_world import fill as fill_sixty
from workers import PATIENCE, Command, Worker, eventually, hear_all

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
    """A `shmcache run` as a process of its own."""

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
        """Ends it; returns its exit status and its log."""
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
    """The arguments for a run against this server, with a cache of our own."""
    return ["--kubeconfig", server.kubeconfig(str(tmp_path / "kubeconfig")), "--cache", name]


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


# ---- the purpose ---------------------------------------------------------------------------


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
@pytest.mark.parametrize("aggregated", [True, False])
def test_a_start_with_sixty_resources_makes_no_request_twice(name: str, aggregated: bool) -> None:
    """Discovery is read once for each group, or once for all groups where the server can do so."""
    with ApiServer(seed=1, namespaces=(), aggregated_discovery=aggregated) as server:
        resources = fill_sixty(server)
        assert 60 == len(resources)
        with (
            Run(*resources, "--server", server.url, "--cache", name, "--no-keep") as run,
            shmcache.attach(name, timeout=PATIENCE) as cache,
        ):
            assert all(cache[key].wait_synced(PATIENCE) for key in cache.resources)
            eventually(lambda: server.open_watches == 60, "it does not watch everything")
            asked = [(one.verb, one.path) for one in server.log]
            assert 0 == run.end()[0]

    assert sorted(set(asked)) == sorted(asked)
    groups = {key.partition(".")[2] for key in resources}
    assert len(asked) <= len(resources) + 5 + (0 if aggregated else len(groups))


@pytest.mark.slow
def test_a_server_without_watch_lists_gets_one_list_and_one_watch(
    name: str, tmp_path: Path
) -> None:
    with ApiServer(watch_list=False) as server:
        fill(server, 20)
        kubeconfig = server.kubeconfig(str(tmp_path / "kubeconfig"))
        with (
            Run("pods", "--kubeconfig", kubeconfig, "--cache", name),
            shmcache.attach(name, timeout=PATIENCE) as cache,
        ):
            assert cache["pods"].wait_synced(PATIENCE)
            server.create("pods", pod("late"))
            assert cache["pods"].wait_for(server.version, PATIENCE)

            assert same(server, cache)
            assert 1 == server.requests["list", "pods"]
            assert 2 == server.requests["watch", "pods"]  # one that was refused


@pytest.mark.slow
def test_a_killed_run_is_followed_by_a_correct_one(
    server: ApiServer, at: list[str], name: str
) -> None:
    fill(server, 30)
    with Run("pods", *at) as first, shmcache.attach(name, timeout=PATIENCE) as cache:
        assert cache["pods"].wait_synced(PATIENCE)
        first.process.kill()
        first.process.wait()
        server.delete("pods", "web-3", "prod")
        server.create("pods", pod("meanwhile"))

        assert 30 == len(cache["pods"])  # the last state stays, and its age grows
        instance = cache.instance
        with Run("pods", *at):
            assert cache["pods"].wait_for(server.version, PATIENCE)
            assert cache["pods"].wait_synced(PATIENCE)
            assert same(server, cache)
            assert instance == cache.instance


@pytest.mark.slow
def test_a_failing_resource_does_not_disturb_the_others(
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
        eventually(lambda: cache["configmaps"].status.state == "retrying", "500 is not reported")
        eventually(
            lambda: cache["widgets.example.com"].status.state == "absent", "404 is not reported"
        )
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
def test_a_hundred_resources_start_one_after_another_with_few_requests(
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
        # its rate and a burst; a pass that is refused retries at once. Since its start:
        # a busy server may note requests of two seconds within one second
        for count, at_most in enumerate(sorted(times), 1):
            assert count <= 40 * (at_most - started) + 10 + len(broken)
        assert 0 == run.end()[0]


@pytest.mark.slow
def test_a_relist_without_changes_wakes_no_reader(
    server: ApiServer, at: list[str], name: str
) -> None:
    fill(server, 20)
    with Run("pods", *at), shmcache.attach(name, timeout=PATIENCE) as cache:
        pods = cache["pods"]
        assert pods.wait_synced(PATIENCE)
        eventually(lambda: pods.status.state == "synced", "it is not reported as synced")
        cursor, seen = cache.follow(["pods"]), cache.latest
        server.go_down()
        server.create("configmaps", {"metadata": {"name": "c", "namespace": "prod"}})
        server.compact()  # the watch cannot resume at its version
        server.come_back()

        eventually(lambda: pods.status.counters["relists"] == 1, "it did not list again")

        assert not cache.wait(seen, timeout=0, resources=["pods"])
        assert [] == cursor.take()
        assert same(server, cache)


@pytest.mark.slow
def test_an_object_missing_from_a_relist_is_deleted_with_unknown_final_state(
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
def test_a_resource_over_its_budget_keeps_its_last_content_and_recovers(
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
        eventually(lambda: pods.status.state == "exceeded", "being over budget is not reported")

        assert "max_bytes is 7.812 KiB" in pods.status.reason
        assert before == dict.fromkeys(pods)

        server.delete("pods", "fat", "prod")
        server.create("pods", pod("late"))
        eventually(lambda: pods.status.state == "synced", "it does not recover")
        assert same(server, cache)


@pytest.mark.slow
def test_a_full_arena_keeps_the_last_content_and_is_reported(
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
        eventually(lambda: pods.status.state == "exceeded", "a full arena is not reported")
        assert "arena_max" in pods.status.reason
        assert cache["namespaces"].status.state == "synced"

        for number in range(12):
            server.delete("pods", f"fat-{number}", "prod")
        eventually(lambda: pods.status.state == "synced", "it does not recover")
        assert same(server, cache)


@pytest.mark.slow
def test_only_the_selected_namespaces_are_cached(
    server: ApiServer, at: list[str], name: str
) -> None:
    for namespace in ("a", "b", "c"):
        fill(server, 5, namespace)
    with (
        Run("pods", "nodes", "--namespace", "a,b", *at),
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        pods = cache["pods"]
        assert pods.wait_synced(PATIENCE)
        server.create("pods", pod("late", "a"))
        server.create("pods", pod("late", "b"))
        server.create("pods", pod("late", "c"))
        server.send_bookmarks()
        eventually(lambda: "b/late" in pods and "a/late" in pods, "changes do not arrive")

        assert {"a", "b"} == {key.partition("/")[0] for key in pods}
        assert 12 == len(pods)
        asked = {record.namespace for record in server.log if record.resource == "pods"}
        assert {"a", "b"} == asked
        assert cache["nodes"].wait_synced(PATIENCE)  # not namespaced: cached as a whole
        assert 1 == server.requests["watch", "nodes"]


@pytest.mark.slow
def test_secrets_are_refused_unless_allowed(server: ApiServer, at: list[str], name: str) -> None:
    secret = {"metadata": {"name": "s", "namespace": "prod"}, "data": {"k": "dg=="}}
    server.create("secrets", secret)

    code, log = Run("secrets", *at).result()
    assert (78, True) == (code, "allow_secrets" in log)
    code, log = Run("secrets", "--allow-secrets", "--mode", "0640", *at).result()
    assert (78, True) == (code, "must have mode 0600" in log)

    with (
        Run("secrets", "--allow-secrets", *at),
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        assert cache["secrets"].wait_synced(PATIENCE)
        assert "dg==" == cache["secrets"]["prod/s"]["data"]["k"]


# ---- start and end -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_on_a_signal(
    server: ApiServer, at: list[str], name: str, number: signal.Signals
) -> None:
    fill(server, 5)
    with Run("pods", *at) as run, shmcache.attach(name, timeout=PATIENCE) as cache:
        assert cache["pods"].wait_synced(PATIENCE)
        run.process.send_signal(signal.SIGHUP)

        code, log = run.end(number)

        assert 0 == code, log
        assert "SIGHUP" in log
        assert "draining" in log
        assert "Traceback" not in log
        assert 5 == len(cache["pods"])
        assert "stale" == cache["pods"].status.state  # no process follows the server any more
        eventually(lambda: server.open_watches == 0, "a watch stays open")
    with shmcache.attach(name) as late:  # it is kept for the next run
        assert 5 == len(late["pods"])


@pytest.mark.slow
def test_it_drains_while_its_server_is_silent(server: ApiServer, at: list[str], name: str) -> None:
    server.faults.half_open("list", times=None)
    server.faults.half_open("watch", times=None)
    with Run("pods", "nodes", *at) as run, shmcache.attach(name, timeout=PATIENCE) as cache:
        eventually(lambda: 2 <= sum(server.requests.values()), "it sends no requests")
        assert not cache["pods"].status.synced

        code, log = run.end()

        assert 0 == code, log
        assert "not everything ended" not in log


@pytest.mark.slow
def test_signals_that_arrive_together_are_one_request_to_drain(at: list[str], name: str) -> None:
    """timeout(1) and process groups repeat a signal within milliseconds."""
    with Run("pods", *at) as run, shmcache.attach(name, timeout=PATIENCE):
        run.process.send_signal(signal.SIGSTOP)  # both signals are pending before it acts on one
        run.process.send_signal(signal.SIGTERM)
        run.process.send_signal(signal.SIGINT)

        code, log = run.end(signal.SIGCONT)

        assert 0 == code, log
        assert "draining" in log


@pytest.mark.slow
def test_timeout_ends_a_run_in_order(at: list[str]) -> None:
    """It signals its child and then the process group, which has the child in it."""
    command = ["timeout", "--preserve-status", "3", sys.executable, "-m", "shmcache", "run", "pods"]
    with Command([*command, *at], cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        _, log = process.communicate(timeout=PATIENCE)

    assert 0 == process.returncode, log
    assert "draining" in log


@pytest.mark.slow
def test_it_reports_readiness_and_logs_json(at: list[str], tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(PATIENCE)
        with Run("pods", "--log-format", "json", *at, NOTIFY_SOCKET=path) as run:
            assert manager.recv(1000).startswith(b"READY=1\n")
            code, log = run.end()
            assert b"STOPPING=1" == manager.recv(1000)
    assert 0 == code
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"time", "level", "logger", "thread", "message"} <= set(lines[0])
    assert any("all first lists are stored" in line["message"] for line in lines)


@pytest.mark.slow
def test_a_second_writer_exits_with_a_status_for_a_retry(at: list[str], name: str) -> None:
    with Run("pods", *at), shmcache.attach(name, timeout=PATIENCE):
        code, log = Run("pods", "--no-standby", *at).result()

    assert (75, True) == (code, "has a writer already" in log)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ([], 78, "no resources to cache"),
        (["--no-such-flag"], 2, "unknown option --no-such-flag (see `shmcache run --help`)"),
        (["--selector", "a=b"], 2, "needs the resources"),
        (["pods", "--index", "node"], 2, "RESOURCE:NAME=PATH"),
        (["pods", "--config", "/nowhere/x.toml"], 78, "No such file"),
        (["pods", "--kubeconfig", "/nowhere/config"], 78, "/nowhere/config"),
        (["pods", "--transform", "nowhere:f"], 78, "No module named 'nowhere'"),
    ],
)
def test_each_mistake_exits_with_its_own_status_and_reason(
    arguments: list[str], code: int, reason: str
) -> None:
    found, log = Run(*arguments).result()

    assert code == found, log
    assert reason in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_validate_shows_what_would_be_cached(at: list[str], name: str) -> None:
    code, log = Run("pods", "gadgets.example.com", "--validate", *at).result()

    assert 78 == code, log
    assert "pods; in all namespaces: v1 Pod, namespaced" in log
    assert "gadgets.example.com; in all namespaces: not valid" in log
    assert "the API server has no resource 'gadgets.example.com'" in log
    with pytest.raises(shmcache.SegmentNotFound):
        shmcache.attach(name)

    code, log = Run("pods", "--index", "pods:x=nowhere:f", "--validate", *at).result()
    assert (78, True) == (code, "pods: index 'x': nowhere:f cannot be imported: No module" in log)


@pytest.mark.parametrize("answer", [(401, "Unauthorized"), (403, "Forbidden")])
def test_validate_tells_refused_credentials_from_a_wrong_configuration(
    server: ApiServer, at: list[str], answer: tuple[int, str]
) -> None:
    server.faults.error(answer[0], times=None)
    code, log = Run("pods", "--validate", *at).result()

    assert code == 77, log
    assert "refused our credentials (HTTP {} {})".format(*answer) in log


@pytest.mark.slow
def test_a_recorded_run_can_be_replayed_without_a_server(
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
        Run(*resources, "--replay", record, "--cache", name),
        shmcache.attach(name, timeout=PATIENCE) as cache,
    ):
        eventually(lambda: "prod/web-3" not in cache["pods"] and 9 == len(cache["pods"]), "stuck")
        assert expected == {key: obj.to_dict() for key, obj in cache["pods"].items()}
        assert cache["configmaps"].wait_synced(PATIENCE)

    code, log = Run(*resources, "--record", record, *at).result()
    assert (78, True) == (code, "exists already; choose a new file" in log)


TRANSFORM = """
def slim(pod):
    if pod["metadata"]["name"] == "web-1":
        raise ValueError("unlucky")
    return {"metadata": pod["metadata"], "node": pod["spec"]["nodeName"]}
"""


@pytest.mark.slow
def test_a_transform_decides_the_stored_content_and_isolates_its_failures(
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
        log = run.end()[1]
    assert "pods: the watch says ERROR: " in log
    assert "unlucky" in log
