"""Invariant tested: examples/deployments.py reaches the desired state, whichever process is killed
meanwhile.

A ReplicaSet never has more pods than it ever requested: no worker counts in a cache that does not
show the writes for its key yet, even if the writing process was killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from workers import PATIENCE, eventually

import shmcache
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer
from shmcache.testing.apiserver.stored import StoredChange

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOYMENTS, REPLICASETS, PODS = "deployments.apps", "replicasets.apps", "pods"
INDICES = [f"{name}:owner=metadata.ownerReferences[*].uid" for name in (PODS, REPLICASETS)]


class World:
    """An API server with a record of its requests, a kubelet, a reflector, and the example's
    processes."""

    def __init__(self, stack: ExitStack, name: str, place: Path) -> None:
        self.name = name
        self.wrong: list[str] = []
        self.created = 0
        self._most: Counter[str] = Counter()
        """By UID: the most pods that a ReplicaSet ever requested."""
        self._pods: Counter[str] = Counter()
        self._logs = place
        self.server = stack.enter_context(ApiServer())
        self._watch()
        kubeconfig = self.server.kubeconfig(str(place / "kubeconfig"))
        self._env = os.environ | {
            "KUBECONFIG": kubeconfig, "SHMCACHE_NAME": name, "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        stack.callback(Place(name).unlink)
        self.reflector = self._reflect()
        stack.callback(lambda: self._end(self.reflector))
        self.controllers = self._start("controllers", "examples.deployments")
        stack.callback(lambda: self._end(self.controllers))
        self._stop = threading.Event()
        self._kubelet = threading.Thread(target=self._run_pods)
        self._kubelet.start()
        stack.callback(self._kubelet.join)
        stack.callback(self._stop.set)

    def _reflect(self) -> subprocess.Popen[bytes]:
        indices = [word for index in INDICES for word in ("--index", index)]
        words = ("run", DEPLOYMENTS, REPLICASETS, PODS, "--cache", self.name, *indices)
        return self._start("reflector", "shmcache", *words)

    def _start(self, log: str, *words: str) -> subprocess.Popen[bytes]:
        with open(self._logs / log, "ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", *words], cwd=ROOT, env=self._env, stderr=out, stdout=out
            )

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        try:
            children = psutil.Process(process.pid).children()
        except psutil.NoSuchProcess:
            children = []
        process.kill()
        process.wait()
        psutil.wait_procs(children, PATIENCE)  # they end with it, and then their locks are released

    def log(self, name: str = "controllers") -> str:
        return (self._logs / name).read_text(encoding="utf-8")

    # ---- the server's view -----------------------------------------------------------------------

    def _watch(self) -> None:
        store = self.server._store
        apply = store._apply

        def watched(resource: str, change: StoredChange) -> None:
            apply(resource, change)
            if resource == REPLICASETS and change.new is not None:
                uid, wanted = change.new.obj["metadata"]["uid"], change.new.obj["spec"]["replicas"]
                self._most[uid] = max(self._most[uid], wanted)
            if resource == PODS:
                self._count(change)

        vars(store)["_apply"] = watched

    def _count(self, change: StoredChange) -> None:
        """Counts pods by owner; there may never be more than the owner ever requested."""
        self.created += change.old is None
        for state, step in ((change.old, -1), (change.new, 1)):
            for owner in state.obj["metadata"].get("ownerReferences", ()) if state else ():
                self._pods[owner["uid"]] += step
                if self._pods[owner["uid"]] > self._most[owner["uid"]]:
                    self.wrong.append(f"{self._pods[owner['uid']]} pods of {owner['name']}")

    def _run_pods(self) -> None:
        """The kubelet: created pods run a little later."""
        while not self._stop.wait(0.02):
            for pod in self.server.list(PODS):
                if "phase" not in (pod.get("status") or {}):
                    pod["status"] = {"phase": "Running"}
                    del pod["metadata"]["resourceVersion"]
                    try:
                        self.server.update(PODS, pod, subresource="status")
                    except Exception as error:  # noqa: BLE001 - a controller was faster
                        assert "not found" in str(error), error

    # ---- disturbances ----------------------------------------------------------------------------

    def kill_worker(self, rng: random.Random) -> bool:
        """Kills one of the example's processes, whatever it does."""
        children = psutil.Process(self.controllers.pid).children()
        if not children:
            return False
        try:
            rng.choice(children).kill()
        except psutil.NoSuchProcess:  # just reaped: an earlier kill
            return False
        return True

    def kill_reflector(self) -> None:
        """And starts another one."""
        self._end(self.reflector)
        self.reflector = self._reflect()

    def scale(self, replicas: int, image: str = "") -> None:
        deployment = self.server.get(DEPLOYMENTS, "web", "prod")
        deployment["spec"]["replicas"] = replicas
        if image:
            deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image
        del deployment["metadata"]["resourceVersion"]
        self.server.update(DEPLOYMENTS, deployment)

    # ---- the outcome -----------------------------------------------------------------------------

    def there(self, replicas: int, image: str) -> bool:
        """Whether the desired state is reached and reported in the status."""
        assert self.controllers.poll() is None, self.log()
        assert not self.wrong, self.wrong
        deployment = self.server.get(DEPLOYMENTS, "web", "prod")
        images = [pod["spec"]["containers"][0]["image"] for pod in self.server.list(PODS, "prod")]
        status = deployment.get("status") or {}
        wanted = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), replicas)
        return (
            images == [image] * replicas
            and status | wanted == status
            and status["observedGeneration"] == deployment["metadata"]["generation"]
        )

    def await_(self, replicas: int, image: str) -> None:
        try:
            eventually(lambda: self.there(replicas, image), f"not {replicas} x {image}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._states()}\n{self.log()[-6000:]}") from error

    def _states(self) -> Any:
        found = [self.server.list(name, "prod") for name in (DEPLOYMENTS, REPLICASETS, PODS)]
        return [(one["metadata"]["name"], one.get("status")) for each in found for one in each]


@pytest.fixture
def world(name: str, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack, name, tmp_path)


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    return {
        "metadata": {"name": "web", "namespace": "prod"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "v1"}]},
            },
        },
    }


@pytest.mark.slow
def test_undisturbed_it_behaves_like_kubernetes(world: World) -> None:
    world.server.create(DEPLOYMENTS, deployment(3))
    world.await_(3, "v1")
    assert world.created == 3
    world.scale(5)
    world.await_(5, "v1")
    world.scale(2)
    world.await_(2, "v1")
    assert world.created == 5  # not one too many, at any time
    world.scale(2, "v2")
    world.await_(2, "v2")
    assert world.created == 7
    assert {0, 2} == {one["spec"]["replicas"] for one in world.server.list(REPLICASETS, "prod")}
    orphan = world.server.list(PODS, "prod")[0]
    orphan["metadata"]["ownerReferences"] = []
    orphan["metadata"].pop("resourceVersion")
    world.server.update(PODS, orphan)
    eventually(
        lambda: all(pod["metadata"]["ownerReferences"] for pod in world.server.list(PODS, "prod")),
        "no ReplicaSet adopts it",
    )
    world.await_(2, "v2")
    world.controllers.send_signal(signal.SIGTERM)
    assert world.controllers.wait(PATIENCE) == 0
    assert "Traceback" not in world.log()


@pytest.mark.slow
def test_it_reaches_the_desired_state_whichever_process_is_killed(
    world: World, rng: random.Random
) -> None:
    world.server.create(DEPLOYMENTS, deployment(4))
    kills, replicas, image = 0, 4, "v1"
    world.await_(4, "v1")
    for turn in range(6):
        replicas, image = rng.randint(1, 8), f"v{rng.randint(1, 3)}"
        if turn % 4 == 3:
            world.kill_reflector()
        world.scale(replicas, image)
        for _ in range(rng.randint(1, 3)):
            threading.Event().wait(rng.uniform(0.0, 0.15))  # somewhere in the middle
            kills += world.kill_worker(rng)
        if turn % 2:
            world.await_(replicas, image)
    world.await_(replicas, image)
    assert kills
    eventually(lambda: "was killed by SIGKILL" in world.log(), "the log does not report the kill")
    with shmcache.attach(world.name) as cache:
        eventually(lambda: len(cache[PODS]) == replicas, "the cache shows something else")
