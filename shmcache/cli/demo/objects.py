"""Pods that look alike, as pods do: a few dozen Deployments, and a life of small changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

APPS = ("api", "billing", "cart", "catalog", "checkout", "frontend", "orders", "search", "web")
PHASES = ("Pending", "Running", "Running", "Running", "Succeeded")
STAMP = "demo/published-ns"


def pods(count: int, rng: random.Random) -> Iterator[Object]:
    """`count` pods, about 2 KB of JSON each."""
    for number in range(count):
        yield pod(number, rng)


def pod(number: int, rng: random.Random) -> Object:
    """The pod of this number, with times and addresses of its own."""
    app = APPS[number // 30 % len(APPS)]
    name = f"{app}-{number // 30:x}-{rng.getrandbits(24):06x}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": f"team-{number % 7}",
            "uid": f"{rng.getrandbits(128):032x}",
            "resourceVersion": str(number + 1),
            "labels": {"app": app, "tier": "backend", "pod-template-hash": f"{number // 30:x}"},
            "annotations": {"prometheus.io/scrape": "true", STAMP: "0"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-{number // 30:x}"}
            ],
        },
        "spec": {
            "nodeName": f"node-{rng.randrange(200)}",
            "serviceAccountName": app,
            "restartPolicy": "Always",
            "containers": [_container(app), _container("sidecar")],
            "tolerations": [
                {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
                for what in ("not-ready", "unreachable")
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "restartCount": 0,
        },
    }


def _container(name: str) -> Object:
    return {
        "name": name,
        "image": f"registry.example.com/{name}:1.2.3",
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"{name.upper()}_OPTION_{n}", "value": str(n)} for n in range(6)],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10},
    }


class Churn:
    """The changes of pods: most are updates, some replace a pod by a new one."""

    def __init__(self, objects: list[Object], rng: random.Random) -> None:
        self._objects = objects
        self._rng = rng
        self._version = len(objects)

    def step(self, count: int, now_ns: int) -> tuple[list[Object], list[Object]]:
        """Objects to apply, and objects to delete before; each applied one carries the time."""
        applied: dict[str, Object] = {}
        deleted: list[Object] = []
        fresh: set[str] = set()  # nobody else has seen these yet
        for _ in range(count):
            number = self._rng.randrange(len(self._objects))
            obj = self._objects[number]
            if self._rng.random() < 0.05:
                name = obj["metadata"]["name"]
                applied.pop(name, None)
                if name not in fresh:
                    deleted.append(obj)
                obj = pod(self._version, self._rng)
                fresh.add(obj["metadata"]["name"])
            self._version += 1
            self._objects[number] = obj = self._changed(obj, now_ns)
            applied[obj["metadata"]["name"]] = obj
        return list(applied.values()), deleted

    def _changed(self, obj: Object, now_ns: int) -> Object:
        metadata, status = obj["metadata"], obj["status"]
        annotations = {**metadata["annotations"], STAMP: str(now_ns)}
        return {
            **obj,
            "metadata": {
                **metadata,
                "resourceVersion": str(self._version),
                "annotations": annotations,
            },
            "status": {**status, "phase": self._rng.choice(PHASES)},
        }
