"""create, update, patch, delete: what a write does to the store, and when it is refused."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import orjson

from shmcache.protocol import failures
from shmcache.protocol.builtins import defined
from shmcache.protocol.kinds import Kind
from shmcache.testing.apiserver import metadata
from shmcache.testing.apiserver.kinds import ServedKinds
from shmcache.testing.apiserver.leases import check_lease
from shmcache.testing.apiserver.store import ObjectStore, Raced
from shmcache.testing.apiserver.stored import Stored

Object = dict[str, Any]

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
GRACE_SECONDS = 30

RACES = 100
"""A request that lost so many races in a row gets 429."""
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _decided_again(request: Callable[_P, _R]) -> Callable[_P, _R]:
    """Repeats a request that another server of the same state made out of date."""

    @functools.wraps(request)
    def repeated(*args: _P.args, **options: _P.kwargs) -> _R:
        for _ in range(RACES):
            try:
                return request(*args, **options)
            except Raced:
                continue
        raise failures.too_many_requests()

    return repeated


class Writes:
    """The writing half of the API; each call is one request, done under the store's lock."""

    def __init__(self, store: ObjectStore, catalogue: ServedKinds, luck: random.Random) -> None:
        self.graceful_pods = False
        """Whether a deleted pod that runs on a node stays for its grace period, as without kubelet
        it does for ever; otherwise it is gone at once."""
        self._store = store
        self._catalogue = catalogue
        self._luck = luck

    @_decided_again
    def create(self, kind: Kind, namespace: str, obj: Object, *, dry: bool = False) -> Stored:
        """A new object, completed by the server."""
        obj = self._checked(kind, namespace, obj)
        check_lease(kind, obj, update=False)
        with self._store.lock:
            if namespace:
                self._require_namespace(namespace)
            if obj["metadata"].get("resourceVersion"):
                text = "resourceVersion should not be set on objects to be created"
                raise failures.bad_request(text)
            metadata.begin(kind, obj, self._luck)
            name = obj["metadata"]["name"]
            if self._store.get(kind.key, _key(namespace, name)) is not None:
                raise failures.already_exists(kind.resource, kind.group, name)
            if kind.status and kind.custom:
                obj.pop("status", None)
            self._complete(kind, obj)
            return self._put(kind, _key(namespace, name), obj, dry=dry)

    @_decided_again
    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Object,
        *,
        subresource: str = "",
        dry: bool = False,
    ) -> Stored:
        """Another state of an object; refused (409) where it has changed since it was read."""
        obj = self._checked(kind, namespace, obj)
        if obj["metadata"].setdefault("name", name) != name:
            raise failures.bad_request(
                f"the name of the object ({obj['metadata']['name']}) does not match the name on "
                f"the URL ({name})"
            )
        check_lease(kind, obj, update=True)
        with self._store.lock:
            old = self.get(kind, namespace, name)
            self._check_versions(kind, old, obj["metadata"])
            return self._replace(kind, old, obj, subresource, dry=dry)

    @_decided_again
    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        *,
        subresource: str = "",
        dry: bool = False,
    ) -> Stored:
        """Applies `change` to the state of now."""
        with self._store.lock:
            old = self.get(kind, namespace, name)
            obj = self._checked(kind, namespace, change(_copy(old.obj)))
            self._check_versions(kind, old, obj["metadata"])
            return self._replace(kind, old, obj, subresource, dry=dry)

    @_decided_again
    def delete(
        self, kind: Kind, namespace: str, name: str, options: Object | None = None
    ) -> tuple[Stored, bool]:
        """The last state, and whether the object is gone (finalizers hold it, and grace)."""
        options = options or {}
        with self._store.lock:
            old = self.get(kind, namespace, name)
            self._check_preconditions(kind, old, options.get("preconditions") or {})
            if options.get("dryRun"):
                return old, True
            grace = self._grace(kind, old, options.get("gracePeriodSeconds"))
            if old.obj["metadata"].get("finalizers") or grace:
                return self._begin_deletion(kind, old, grace), False
            self._empty(kind, old)
            return self._store.remove(kind.key, old.key), True

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """The object as it is now; a Failure (404) without one."""
        found = self._store.get(kind.key, _key(namespace, name))
        if found is None:
            raise failures.not_found(kind.resource, kind.group, name)
        return found

    def load(self, kind: Kind, obj: Object) -> Stored:
        """Puts an object as it is, with all its metadata; under its own resourceVersion if new."""
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **_copy(obj)}
        found = obj["metadata"]
        key = _key(found.get("namespace", "") if kind.namespaced else "", found["name"])
        self._complete(kind, obj)
        return self._store.put(kind.key, key, obj, version=int(found.get("resourceVersion") or 0))

    def unload(self, kind: Kind, namespace: str, name: str, version: int) -> Stored | None:
        """Removes an object as it is: no finalizer and no grace. None if it is not there."""
        key = _key(namespace if kind.namespaced else "", name)
        with self._store.lock:
            if self._store.get(kind.key, key) is None:
                return None
            if version > self._store.version + 1:
                self._store.advance(version - 1)
            return self._store.remove(kind.key, key)

    def _checked(self, kind: Kind, namespace: str, obj: Object) -> Object:
        if obj.get("kind", kind.kind) != kind.kind or (
            obj.get("apiVersion", kind.api_version) != kind.api_version
        ):
            raise failures.bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): "
                f"{obj.get('apiVersion')}, Kind={obj.get('kind')}"
            )
        obj = _copy({"apiVersion": kind.api_version, "kind": kind.kind, **obj})
        found = obj["metadata"] = dict(obj.get("metadata") or {})
        if namespace and found.setdefault("namespace", namespace) != namespace:
            raise failures.bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        if not kind.namespaced:
            found.pop("namespace", None)
        return obj

    def _require_namespace(self, name: str) -> None:
        if self._store.get("namespaces", name) is None:
            raise failures.not_found("namespaces", "", name)

    def _check_versions(self, kind: Kind, old: Stored, sent: Object) -> None:
        version, uid = sent.get("resourceVersion"), sent.get("uid")
        if version and version != str(old.version):
            raise failures.conflict(kind.resource, kind.group, old.name)
        self._check_uid(kind, old, uid)

    def _check_uid(self, kind: Kind, old: Stored, uid: str | None) -> None:
        is_now = old.obj["metadata"].get("uid")
        if uid and uid != is_now:
            text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {is_now}"
            raise failures.conflict(kind.resource, kind.group, old.name, text)

    def _check_preconditions(self, kind: Kind, old: Stored, wanted: Object) -> None:
        self._check_uid(kind, old, wanted.get("uid"))
        version = wanted.get("resourceVersion")
        if version and version != str(old.version):
            text = (
                f"Precondition failed: ResourceVersion in precondition: {version}, "
                f"ResourceVersion in object meta: {old.version}"
            )
            raise failures.conflict(kind.resource, kind.group, old.name, text)

    def _replace(
        self, kind: Kind, old: Stored, obj: Object, subresource: str, *, dry: bool
    ) -> Stored:
        if subresource == "status":
            before = _copy(old.obj)
            obj = {**before, "status": obj.get("status", {})}
        elif kind.status:
            obj.pop("status", None)
            if "status" in old.obj:
                obj["status"] = old.obj["status"]
        metadata.carry_over(kind, old.obj, obj)
        obj["metadata"]["resourceVersion"] = str(old.version)
        self._complete(kind, obj)
        if obj == old.obj:
            return old
        if obj["metadata"].get("deletionTimestamp") and not obj["metadata"].get("finalizers"):
            self._empty(kind, old)
            return old if dry else self._store.remove(kind.key, old.key)
        return self._put(kind, old.key, obj, dry=dry)

    def _put(self, kind: Kind, key: str, obj: Object, *, dry: bool) -> Stored:
        if dry:
            return Stored(key, obj, self._store.version)
        return self._store.put(kind.key, key, obj)

    def _complete(self, kind: Kind, obj: Object) -> None:
        """Adds the defaults of the real server and its controllers that others depend on."""
        if kind.key == "namespaces":
            labels = obj["metadata"].setdefault("labels", {})
            labels.setdefault("kubernetes.io/metadata.name", obj["metadata"]["name"])
            obj.setdefault("spec", {"finalizers": ["kubernetes"]})
            obj.setdefault("status", {"phase": "Active"})
        elif kind.key == DEFINITIONS:
            spec = obj["spec"]
            obj["status"] = {
                "conditions": [
                    {"type": name, "status": "True"} for name in ("NamesAccepted", "Established")
                ],
                "acceptedNames": spec["names"],
                "storedVersions": [row["name"] for row in spec["versions"] if row.get("storage")],
            }
            self._catalogue.add(defined(obj))

    def _grace(self, kind: Kind, old: Stored, asked: int | None) -> int | None:
        if kind.key != "pods" or not self.graceful_pods or not old.obj["spec"].get("nodeName"):
            return None
        default = old.obj["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
        return int(default) if asked is None else int(asked)

    def _begin_deletion(self, kind: Kind, old: Stored, grace: int | None) -> Stored:
        if "deletionTimestamp" in old.obj["metadata"]:
            return old
        obj = _copy(old.obj)
        found = obj["metadata"]
        found["deletionTimestamp"] = metadata.now()
        found["deletionGracePeriodSeconds"] = grace or 0
        if "generation" in found:
            found["generation"] += 1
        return self._store.put(kind.key, old.key, obj)

    def _empty(self, kind: Kind, old: Stored) -> None:
        """Removes all that goes with an object: a namespace's contents, a definition's resource."""
        if kind.key == "namespaces":
            for versions in self._catalogue.groups().values():
                for one in (one for kinds in versions.values() for one in kinds if one.namespaced):
                    for stored in self._store.table(one.key).within(old.name):
                        self._store.remove(one.key, stored.key)
        elif kind.key == DEFINITIONS:
            spec = old.obj["spec"]
            key = f"{spec['names']['plural']}.{spec['group']}"
            for stored in self._store.table(key).within():
                self._store.remove(key, stored.key)
            self._catalogue.remove(key)
            self._store.drop(key)


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _copy(obj: Object) -> Object:
    copied: Object = orjson.loads(orjson.dumps(obj))
    return copied
