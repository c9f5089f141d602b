"""etcd instead of the demo's API server: a real one, from a package, with generated pods."""

from __future__ import annotations

import collections
import json
from typing import Any, Self

from shmcache.testing.etcd import EtcdServer

PREFIX = "/registry/pods/"
AT_ONCE = 100
PROGRESS = "--experimental-watch-progress-notify-interval=5s"


class DemoEtcd:
    """As much of testing.ApiServer as the demo uses."""

    title = "etcd"

    def __init__(self) -> None:
        self._etcd = EtcdServer(options=[PROGRESS])
        self.requests: collections.Counter[tuple[str, str]] = collections.Counter()
        """One watch is all that the reflector opens."""
        self.requests["watch", "pods"] = 1

    def arguments(self) -> list[str]:
        """Of `shmcache run`."""
        return [f"pods={PREFIX}", "--etcd", self._etcd.endpoints]

    def fill(self, objects: list[dict[str, Any]]) -> None:
        """Stores the first pods."""
        for start in range(0, len(objects), AT_ONCE):
            self._etcd.txn({_key_of(obj): _value(obj) for obj in objects[start : start + AT_ONCE]})

    def load(self, _resource: str, obj: dict[str, Any]) -> None:
        """Stores one pod."""
        self._etcd.put(_key_of(obj), _value(obj))

    def delete(self, _resource: str, name: str, namespace: str) -> None:
        """Deletes one pod."""
        self._etcd.delete(f"{PREFIX}{namespace}/{name}")

    def __enter__(self) -> Self:
        self._etcd.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._etcd.close()


def _key_of(obj: dict[str, Any]) -> str:
    metadata = obj["metadata"]
    return f"{PREFIX}{metadata['namespace']}/{metadata['name']}"


def _value(obj: dict[str, Any]) -> bytes:
    """As kube-apiserver stores a custom resource: its type first."""
    return json.dumps({"apiVersion": "v1", "kind": "Pod", **obj}, separators=(",", ":")).encode()
