r"""Deployment -> ReplicaSet -> Pod: two controllers as those of Kubernetes, small enough to read.

    shmcache run deployments.apps replicasets.apps pods \
        --index 'pods:owner=metadata.ownerReferences[*].uid' \
        --index 'replicasets.apps:owner=metadata.ownerReferences[*].uid'
    python -m examples.deployments                     # in another terminal; ctrl-C drains

It reads the cache, and writes with the kubernetes package. Each reconcile looks at the world, takes
the next step towards the desired state, and returns; its own change brings the key back. It may be
killed anywhere: the next worker starts from the state that it finds.

Two rules make that safe. Each answer of the server to a write goes to written() (or to deleted()),
so that no worker counts pods in a cache that does not show them yet. And each write carries the
resourceVersion or UID that it is based on, so that the server refuses stale ones.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

# Here, and so once: the worker processes are forked from this one.
from kubernetes.client import ApiException, AppsV1Api, CoreV1Api
from kubernetes.config import load_config

import shmcache

DEPLOYMENTS, REPLICASETS, PODS = "deployments.apps", "replicasets.apps", "pods"
HASH = "pod-template-hash"
SURGE = 1
"""Pods beyond the desired number, while one template replaces another."""
CONFLICT = 409
PATIENCE = 10.0
"""Seconds in which the cache must show the server's state; after that the key is retried."""


class Api:
    """The few requests that are needed. Each process makes its client at the first use."""

    def __init__(self) -> None:
        load_config()
        self.apps = AppsV1Api()
        self.core = CoreV1Api()

    def live(self, resource: str, namespace: str) -> dict[str, Any]:
        """The server's objects, by key."""
        lists = {
            DEPLOYMENTS: self.apps.list_namespaced_deployment,
            REPLICASETS: self.apps.list_namespaced_replica_set,
            PODS: self.core.list_namespaced_pod,
        }
        found = lists[resource](namespace).items
        return {f"{namespace}/{one.metadata.name}": one.metadata for one in found}

    def create_set(self, body: Any) -> None:
        """A new ReplicaSet."""
        namespace = body["metadata"]["namespace"]
        made = self.apps.create_namespaced_replica_set(namespace, body)
        shmcache.written(REPLICASETS, made)

    def put_set(self, obj: Any, *, status: bool = False) -> None:
        """A changed ReplicaSet, if it is still what the change is based on."""
        put = self.apps.replace_namespaced_replica_set
        if status:
            put = self.apps.replace_namespaced_replica_set_status
        shmcache.written(REPLICASETS, put(*_names(obj), obj))

    def put_status(self, obj: Any) -> None:
        """A changed status of a Deployment."""
        put = self.apps.replace_namespaced_deployment_status
        shmcache.written(DEPLOYMENTS, put(*_names(obj), obj))

    def create_pod(self, body: Any) -> None:
        """A new pod."""
        shmcache.written(PODS, self.core.create_namespaced_pod(body["metadata"]["namespace"], body))

    def put_pod(self, obj: Any) -> None:
        """A changed pod."""
        shmcache.written(PODS, self.core.replace_namespaced_pod(*_names(obj), obj))

    def delete_pod(self, pod: Any) -> None:
        """A pod is deleted, if it is still this one."""
        only = {"preconditions": {"uid": pod["metadata"]["uid"]}}
        self.core.delete_namespaced_pod(*_names(pod), body=only)
        shmcache.deleted(PODS, pod)


@functools.cache
def api() -> Api:
    """The client of this process."""
    return Api()


def look_again(key: str, cache: shmcache.Cache) -> None:
    """A worker died in the key: returns when the cache shows all that it may have written."""
    namespace = key.partition("/")[0]
    for resource in (DEPLOYMENTS, REPLICASETS, PODS):
        live = api().live(resource, namespace)
        versions = [one.resource_version for one in live.values()]
        there = not versions or cache[resource].wait_for(max(versions, key=int), PATIENCE)
        for other in cache[resource].list(namespace=namespace):
            name, uid = f"{namespace}/{other['metadata']['name']}", other["metadata"]["uid"]
            if name not in live or live[name].uid != uid:
                there &= cache[resource].wait_deleted(name, uid, PATIENCE)
        if not there:
            raise TimeoutError(f"the cache does not show what {resource} of {namespace} are now")


# ---- Deployment -> ReplicaSet --------------------------------------------------------------------


@shmcache.controller(
    DEPLOYMENTS, owns=[REPLICASETS], processes=2, time_limit=60, recover=look_again
)
def roll_out(key: str, cache: shmcache.Cache) -> shmcache.Requeue | None:
    """One ReplicaSet for each template: the current one grows, the others shrink."""
    with cache.snapshot() as at:
        found = at[DEPLOYMENTS].get(key)
        if found is None or _deleting(found):
            return None
        deployment = found.to_dict()
        owned = [one.to_dict() for one in at[REPLICASETS].owned_by(deployment["metadata"]["uid"])]
    name = f"{deployment['metadata']['name']}-{template_hash(deployment)}"
    current = [one for one in owned if one["metadata"]["name"] == name]
    if not current:
        return _unless_conflict(lambda: api().create_set(_new_set(deployment, name)))
    old = [one for one in owned if one["metadata"]["name"] != name]
    for obj, replicas in _scaling(deployment, current[0], old):
        if obj["spec"]["replicas"] != replicas:
            obj["spec"]["replicas"] = replicas
            conflict = _unless_conflict(lambda obj=obj: api().put_set(obj))
            if conflict:
                return conflict
    return _put_status(deployment, current[0], owned)


def _scaling(deployment: Any, current: Any, old: list[Any]) -> list[tuple[Any, int]]:
    """How large each set is to be now: at most SURGE pods more, and never fewer ready ones."""
    wanted = deployment["spec"].get("replicas", 1)
    before = sum(one["spec"]["replicas"] for one in old)
    grown = (
        min(wanted, max(current["spec"]["replicas"], wanted + SURGE - before)) if old else wanted
    )
    needed = max(0, wanted - _ready(current))  # of the old ones, until the new ones are ready
    scaled = [(current, grown)]
    for one in sorted(old, key=_ready):  # those that serve nobody go first
        kept = min(one["spec"]["replicas"], needed)
        needed -= kept
        scaled.append((one, kept))
    return scaled


def _put_status(deployment: Any, current: Any, owned: list[Any]) -> shmcache.Requeue | None:
    status = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": sum(_status(one, "replicas") for one in owned),
        "readyReplicas": sum(_ready(one) for one in owned),
        "updatedReplicas": _status(current, "replicas"),
    }
    if status == deployment.get("status"):
        return None
    deployment["status"] = status
    return _unless_conflict(lambda: api().put_status(deployment))


def template_hash(deployment: Any) -> str:
    """The same for the same template, and part of its ReplicaSet's name: no second one is made."""
    text = json.dumps(deployment["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _new_set(deployment: Any, name: str) -> dict[str, Any]:
    template = json.loads(json.dumps(deployment["spec"]["template"]))
    labels = {**template["metadata"]["labels"], HASH: template_hash(deployment)}
    template["metadata"]["labels"] = labels
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": deployment["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [_reference(deployment, "apps/v1", "Deployment")],
        },
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


# ---- ReplicaSet -> Pod ---------------------------------------------------------------------------


@shmcache.controller(REPLICASETS, owns=[PODS], processes=2, time_limit=60, recover=look_again)
def replicate(key: str, cache: shmcache.Cache) -> shmcache.Requeue | None:
    """As many pods as the set wants, those among them that only match its labels."""
    with cache.snapshot() as at:
        found = at[REPLICASETS].get(key)
        if found is None or _deleting(found):
            return None
        owner = found.to_dict()
        pods = [one.to_dict() for one in at[PODS].owned_by(owner["metadata"]["uid"])]
        orphans = _orphans(at, owner)
    for pod in orphans:
        pod["metadata"]["ownerReferences"] = [_reference(owner, "apps/v1", "ReplicaSet")]
        conflict = _unless_conflict(lambda pod=pod: api().put_pod(pod))
        if conflict:
            return conflict
    active = [pod for pod in pods + orphans if _active(pod)]
    for _ in range(len(active), owner["spec"]["replicas"]):
        api().create_pod(_new_pod(owner))
    surplus = len(active) - owner["spec"]["replicas"]
    for pod in sorted(active, key=_is_ready)[: max(0, surplus)]:
        _unless_conflict(lambda pod=pod: api().delete_pod(pod))
    return _put_set_status(owner, active)


def _orphans(at: shmcache.Snapshot, owner: Any) -> list[Any]:
    """Pods without a controller that the set selects."""
    found = at[PODS].list(
        namespace=owner["metadata"]["namespace"],
        labels=dict(owner["spec"]["selector"]["matchLabels"]),
    )
    return [
        pod.to_dict()
        for pod in found
        if _active(pod)
        and not any(one.get("controller") for one in pod["metadata"].get("ownerReferences") or ())
    ]


def _put_set_status(owner: Any, active: list[Any]) -> shmcache.Requeue | None:
    status = {
        "observedGeneration": owner["metadata"].get("generation", 0),
        "replicas": len(active),
        "readyReplicas": sum(_is_ready(pod) for pod in active),
    }
    if status == owner.get("status"):
        return None
    owner["status"] = status
    return _unless_conflict(lambda: api().put_set(owner, status=True))


def _new_pod(owner: Any) -> dict[str, Any]:
    template = owner["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{owner['metadata']['name']}-",
            "namespace": owner["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "ownerReferences": [_reference(owner, "apps/v1", "ReplicaSet")],
        },
        "spec": template["spec"],
    }


# ---- shared by both ------------------------------------------------------------------------------


def _unless_conflict(write: Any) -> shmcache.Requeue | None:
    """Writes; after a conflict the key comes again, and sees the other change."""
    try:
        write()
    except ApiException as error:
        if error.status not in {CONFLICT, 404}:
            raise
        return shmcache.Requeue()
    return None


def _reference(owner: Any, api_version: str, kind: str) -> dict[str, Any]:
    metadata = owner["metadata"]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _names(obj: Any) -> tuple[str, str]:
    return obj["metadata"]["name"], obj["metadata"]["namespace"]


def _deleting(obj: Mapping[str, Any]) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def _active(pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return not _deleting(pod) and phase not in {"Succeeded", "Failed"}


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _status(obj: Any, field: str) -> int:
    return int((obj.get("status") or {}).get(field) or 0)


def _ready(replica_set: Any) -> int:
    return _status(replica_set, "readyReplicas")


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    name = os.environ.get("SHMCACHE_NAME", "shmcache")
    sys.exit(shmcache.run_controllers(roll_out, replicate, cache=name))
