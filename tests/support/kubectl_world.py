"""Objects of every kind, an API server that has them, and a cache and `shmcache serve` of it.

The cache is filled by `shmcache run`, and kubectl asks a server over a socket: everything comes
through the doors that users have.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from table_cases import CASES

import shmcache
from shmcache.protocol.builtins import builtin
from shmcache.testing import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmcache.protocol.kinds import Kind

Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
KUBECTL = shutil.which("kubectl", path=os.path.dirname(sys.executable)) or shutil.which("kubectl")
UNCACHED = frozenset({"secrets"})
NAMESPACES = ("default", "prod")


def definition(plural: str, kind: str, *columns: Object, **more: Any) -> Object:
    """A definition of a custom resource with these printer columns."""
    version = {
        "name": "v1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
        **({"additionalPrinterColumns": list(columns)} if columns else {}),
        **more.pop("version", {}),
    }  # fmt: skip
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, **more.pop("names", {})}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com", "creationTimestamp": "2020-01-05T00:00:00Z"},
        "spec": {"group": "example.com", "names": names, "scope": "Namespaced",
                 "versions": [version], **more},
    }  # fmt: skip


READY = '.status.conditions[?(@.type=="Ready")].status'
WIDGETS = definition(
    "widgets", "Widget",
    {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Ready", "type": "string", "jsonPath": READY},
    {"name": "Note", "type": "string", "priority": 1, "jsonPath": ".spec.note"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    names={"shortNames": ["wd"], "categories": ["all", "toys"]},
    version={"selectableFields": [{"jsonPath": ".spec.color"}]},
)  # fmt: skip
GADGETS = definition("gadgets", "Gadget", scope="Cluster")


def objects(kind: Kind) -> list[Object]:
    """A few objects of a kind: those of the table's cases, with names, labels, dates."""
    bodies = [body for key, body, _ in CASES if key == kind.key][:4] or [{}, {"data": {"a": "1"}}]
    return [_object(kind, number, body) for number, body in enumerate(bodies)]


def _object(kind: Kind, number: int, body: Object) -> Object:
    found = copy.deepcopy(body)
    given = {**found.pop("metadata", {})}
    metadata = {
        **given,
        "name": f"{kind.singular}-{number}",
        "uid": f"00000000-0000-4000-8000-{number:012}",
        "creationTimestamp": f"20{20 + number % 4}-0{1 + number * 7 % 9}-0{number + 1}T10:00:00Z",
        "labels": {"app": ("web", "api")[number % 2], "n": str(number), **given.get("labels", {})},
        "annotations": {"note": "two\nlines, <&>", "é": "ü😀"},
    }
    if kind.namespaced:
        metadata["namespace"] = NAMESPACES[number % 2]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **found}


def pods() -> Iterator[Object]:
    """Pods in the states that people meet, with values to sort and to filter by."""
    for number in range(7):
        phase = ("Running", "Pending", "Failed", "Succeeded")[number % 4]
        ready = number % 3 == 0
        states: list[Object] = [
            {"running": {}}, {"waiting": {"reason": "CrashLoopBackOff"}},
            {"terminated": {"exitCode": 3}},
        ]  # fmt: skip
        statuses = [
            {"name": name, "ready": ready, "restartCount": (number * 5) % 11, "state": state}
            for name, state in (("main", states[number % 3]), ("side", states[0]))
        ]
        yield {
            "metadata": {
                "name": f"pod-{number}" if number != 5 else "a-pod-with-a-rather-long-name",
                "namespace": NAMESPACES[number % 2],
                "creationTimestamp": f"202{number % 4}-0{number + 1}-01T00:00:00Z",
                "labels": {"app": ("web", "api")[number % 2], "n": str(number)},
                **({"annotations": {"text": "of several\nlines"}} if number == 3 else {}),
            },
            "spec": {
                "nodeName": f"node-{number % 3}",
                "priority": number * 100 % 301,
                "containers": [
                    {"name": "main", "image": "web:1", "ports": [{"containerPort": 80}],
                     "resources": {"requests": {"cpu": "100m", "memory": f"{number + 1}Gi"}}},
                    {"name": "side", "image": f"s:{number}"},
                ],
            },
            "status": {
                "phase": phase, "containerStatuses": statuses,
                **({"podIP": f"10.0.0.{number}", "podIPs": [{"ip": f"10.0.0.{number}"}]}
                   if number != 1 else {}),
            },
        }  # fmt: skip


def fill(server: ApiServer) -> list[str]:
    """Gives a server objects of every kind; the names of the resources to cache."""
    for one in (WIDGETS, GADGETS):
        server.load("customresourcedefinitions.apiextensions.k8s.io", copy.deepcopy(one))
    kinds = [kind for kind in builtin() if kind.key not in UNCACHED]
    for kind in kinds:
        for obj in pods() if kind.key == "pods" else objects(kind):
            if kind.key != "customresourcedefinitions.apiextensions.k8s.io":
                server.load(kind.key, obj)
    for number in range(3):
        spec = {"color": ("red", "green")[number % 2], "size": number * 5, "note": "a\nb"}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]} if number else {}
        metadata = {"name": f"w-{number}", "namespace": "default", "labels": {"app": "web"},
                    "creationTimestamp": "2021-02-03T00:00:00Z"}  # fmt: skip
        server.load("widgets.example.com", {"metadata": metadata, "spec": spec, "status": ready})
        server.load("gadgets.example.com", {"metadata": {
            "name": f"g-{number}", "creationTimestamp": "2021-02-03T00:00:00Z"}})  # fmt: skip
    return [*(kind.key for kind in kinds), "widgets.example.com", "gadgets.example.com"]


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


class KubectlWorld(NamedTuple):
    """The server, the cache of it, and two kubeconfigs: of the server, and of `shmcache serve`."""

    server: ApiServer
    cache: str
    resources: list[str]
    environment: dict[str, str]
    serving: dict[str, str]

    def kubectl(self, *words: str, served: bool = False) -> Ended:
        """kubectl against the server, or against `shmcache serve`."""
        return _run([str(KUBECTL), *words], self.serving if served else self.environment)

    def ours(self, *words: str) -> Ended:
        """`shmcache WORDS` with the cache."""
        return _run([sys.executable, "-m", "shmcache", *words], self.environment)


def _run(command: list[str], environment: dict[str, str]) -> Ended:
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, timeout=PATIENCE, check=False
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextlib.contextmanager
def kubectl_world(home: Path) -> Iterator[KubectlWorld]:
    """Starts everything, and waits until the cache has every first list."""
    name = f"test-{os.getpid()}-kubectl"
    known = {key: value for key, value in os.environ.items() if not key.startswith("SHMCACHE_")}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=1, namespaces=()))
        resources = fill(server)
        direct = {**known, "HOME": str(home), "SHMCACHE_NAME": name,
                  "KUBECONFIG": server.kubeconfig(str(home / "direct")),
                  "KUBECACHEDIR": str(home / "direct-cache")}  # fmt: skip
        run = ["run", *resources, "--server", server.url, "--log-level", "error", "--no-keep"]
        stack.enter_context(_started(run, direct, home / "run.log"))
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            for resource in cache.resources:
                assert cache[resource].wait_synced(PATIENCE), resource
        stack.enter_context(
            _started(["serve", "--listen", "127.0.0.1:0"], direct, home / "serve.log")
        )
        config = Path(direct["KUBECONFIG"]).read_text(encoding="utf-8")
        (home / "served").write_text(config.replace(server.url, _address(home / "serve.log")))
        serving = {**direct, "KUBECONFIG": str(home / "served"),
                   "KUBECACHEDIR": str(home / "served-cache")}  # fmt: skip
        yield KubectlWorld(server, name, resources, direct, serving)


@contextlib.contextmanager
def _started(words: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "shmcache", *words]
    with (
        log.open("wb") as file,
        subprocess.Popen(command, env=environment, cwd=ROOT, stderr=file) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _address(log: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = re.search(r"serving cache \S+ at (\S+)", log.read_text(encoding="utf-8"))
        if found:
            return found[1]
        time.sleep(0.02)
    raise AssertionError(log.read_text(encoding="utf-8"))
