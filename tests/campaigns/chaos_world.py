"""Chaos, the world: which resources are cached and how, and a writer of random objects at the
server."""

from __future__ import annotations

import random
import string
from typing import Any

from shmcache.testing import ApiServer

Object = dict[str, Any]

WIDGETS = "widgets.example.com"
DEFINITION = f"customresourcedefinitions.apiextensions.k8s.io/{WIDGETS}"
NAMESPACES = ("default", "prod", "test")
POPULATION = {"pods": 900, "configmaps": 300, "deployments.apps": 250, WIDGETS: 150}
"""Resources by their keys at the server, and the approximate number of objects."""
CACHED = dict.fromkeys(POPULATION, NAMESPACES) | {"configmaps": ("default", "prod")}
FEEDS = [(name, "") for name in POPULATION if name != "configmaps"] + [
    ("configmaps", namespace) for namespace in CACHED["configmaps"]
]
"""(resource, namespace) of each list and watch."""
NAMED = dict(zip(POPULATION, POPULATION, strict=True)) | {WIDGETS: f"{WIDGETS}/v1"}
"""The name of each in the cache."""
TOKEN = "chaos"  # noqa: S105 - of a server that lives for a test

SILENCE = 2.0
BACKOFF, BACKOFF_CAP = 0.1, 0.4
RATE = 40

CONFIGURATION = f"""
name = "{{name}}"
kubeconfig = "{{kubeconfig}}"
log_format = "json"
requests_per_second = {RATE}

[memory]
arena_max = "512MiB"
ring_slots = 1024

[reflector]
silence = {SILENCE}
list_silence = {SILENCE}
end_bookmark_wait = 1.5
backoff_initial = {BACKOFF}
backoff_cap = {BACKOFF_CAP}

[resources.pods]
indices = {{{{ node = "spec.nodeName" }}}}
[resources.configmaps]
namespaces = ["default", "prod"]
[resources."deployments.apps"]
[resources."{WIDGETS}/v1"]
"""

CRD: Object = {
    "metadata": {"name": WIDGETS},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "singular": "widget"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {}}],
    },
}


class Writes:
    """Creates, updates and deletes at random; keeps about POPULATION objects."""

    def __init__(self, server: ApiServer, rng: random.Random) -> None:
        self.count = 0
        self.defined = False
        self._server = server
        self._rng = rng
        self._text = "".join(rng.choices(string.ascii_letters + 'äß→"\\\n', k=1 << 20))

    def some(self, count: int) -> None:
        """Makes so many writes."""
        names = list(POPULATION)
        for _ in range(count):
            name = self._rng.choices(names, list(POPULATION.values()))[0]
            self._one(name if name != WIDGETS or self.defined else "pods")
        self.count += count

    def define(self) -> None:
        """Defines the custom resource, without objects."""
        self._server.create("customresourcedefinitions", CRD)
        self.defined = True

    def undefine(self) -> None:
        """Removes it with all its objects."""
        self._server.delete("customresourcedefinitions", WIDGETS)
        self.defined = False

    def fill(self) -> None:
        """Creates the first objects: half of all."""
        for name, count in POPULATION.items():
            for number in range(0, count, 2):
                self._put(name, f"o-{number}", NAMESPACES[number % 3])

    def _one(self, name: str) -> None:
        number = self._rng.randrange(POPULATION[name])
        place = f"o-{number}", NAMESPACES[number % 3]
        if self._is_there(name, *place) and self._rng.random() < 0.25:
            self._server.delete(name, *place)
            if self._rng.random() < 0.3:  # and another one at once, under the same key
                self._put(name, *place)
        else:
            self._put(name, *place)

    def _is_there(self, name: str, key: str, namespace: str) -> bool:
        return self._server._store.get(name, f"{namespace}/{key}") is not None

    def _put(self, name: str, key: str, namespace: str) -> None:
        obj = self._object(name, key, namespace)
        if self._is_there(name, key, namespace):
            self._server.update(name, obj)
        else:
            self._server.create(name, obj)

    def _object(self, name: str, key: str, namespace: str) -> Object:
        rng = self._rng
        size = rng.choices((10, 300, 3_000, 60_000, 900_000), (40, 50, 10, 0.3, 0.02))[0]
        start = rng.randrange(len(self._text) - size)
        obj: Object = {
            "metadata": {
                "name": key,
                "namespace": namespace,
                "labels": {"app": f"a{rng.randrange(9)}", "tier": rng.choice(("web", "db"))},
                "annotations": {"text": self._text[start : start + size]},
            }
        }
        if name == "configmaps":
            obj["data"] = {f"k{n}": str(rng.random()) for n in range(rng.randrange(9))}
        else:
            obj["spec"] = self._spec(name)
        return obj

    def _spec(self, name: str) -> Object:
        rng = self._rng
        pod = {"containers": [{"name": "app", "image": f"app:{rng.randrange(99)}"}]}
        if name == "pods":
            return pod | {"nodeName": f"node-{rng.randrange(12)}"}
        if name == WIDGETS:
            return {
                "size": rng.randrange(1000),
                "weights": [rng.random(), None, rng.random() < 0.5],
            }
        labels = {"app": "x"}
        template = {"metadata": {"labels": labels}, "spec": pod}
        replicas = rng.randrange(50)
        return {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
