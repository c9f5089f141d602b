"""Shared by the tests of etcd: a real etcd, and a reflector in this process that follows it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Self

import pytest

import shmcache
from shmcache.engine.config import load
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import origin_of
from shmcache.engine.service import make_opener
from shmcache.errors import Lapped
from shmcache.source.etcd import messages
from shmcache.testing.etcd import INSTALL, EtcdServer, programs
from shmcache.writer.writer import Writer

ROOT = "/registry/example.com"
WIDGETS, GADGETS = f"{ROOT}/widgets/", f"{ROOT}/gadgets/"
SOON = 20.0
PROGRESS = "--experimental-watch-progress-notify-interval=1s"


def needs_etcd() -> None:
    """Skips with the line that installs etcd if etcd is missing."""
    if not programs():
        pytest.skip(f"no etcd program: {INSTALL}")


def server() -> Iterator[EtcdServer]:
    """The body of a fixture: one member, whose notifications of progress come each second."""
    needs_etcd()
    with EtcdServer(options=[PROGRESS]) as etcd:
        yield etcd


def widget(name: str, namespace: str = "ns", **spec: Any) -> bytes:
    """A custom resource as kube-apiserver stores it."""
    metadata = {"name": name, "namespace": namespace, "uid": f"u-{name}"}
    obj = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec}
    return json.dumps(obj, separators=(",", ":")).encode()


def until(fact: Callable[[], Any], what: str, seconds: float = SOON) -> Any:
    """Waits for a fact; what it was."""
    deadline = time.monotonic() + seconds
    while True:
        found = fact()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)


class Following:
    """A reflector of some prefixes, its cache, and every delta that came out."""

    def __init__(
        self,
        name: str,
        etcd: EtcdServer,
        resources: dict[str, Any],
        *,
        endpoints: str = "",
        silence: str = "",
        **configuration: Any,
    ) -> None:
        """`endpoints`: instead of etcd's own; `silence`: that of the table [reflector]."""
        tables = {
            each: {"keys": found} if isinstance(found, str) else found
            for each, found in resources.items()
        }
        given = {"name": name, "etcd": endpoints or etcd.endpoints, "resources": tables}
        given |= configuration
        self.configuration = load(None, given, {"SHMCACHE_SILENCE": silence} if silence else {})
        self._stack = ExitStack()
        self.opener = make_opener(self.configuration, self._stack)
        self.writer = Writer(
            name,
            [plan.resource_at(origin_of(self.opener), ()) for plan in self.configuration.plans],
        )
        self.cache = shmcache.attach(name)
        self.cursor = self.cache.follow(start=self.cache.snapshot().head)
        self.deltas: list[Any] = []
        self.engine = Engine(
            self.writer, self.configuration.plans, self.opener, timing=self.configuration.timing
        )

    def start(self) -> Self:
        self.engine.start()
        assert self.engine.ready.wait(SOON), self.engine.standings()
        return self

    def take(self) -> list[Any]:
        """The deltas that came until now, as (resource, kind, key, version)."""
        try:
            while found := self.cursor.take():
                names = list(self.cache.resources)
                self.deltas += [(names[d.resource], d.kind, d.key, d.version) for d in found]
        except Lapped as error:
            raise AssertionError("the test's cursor was lapped") from error
        return self.deltas

    def reaches(self, resource: str, revision: int) -> None:
        """Waits until the resource has this revision."""
        until(lambda: self.cache[resource].wait_for(str(revision), 0.2), f"revision {revision}")

    def content(self, resource: str) -> dict[str, Any]:
        return {key: view.to_dict() for key, view in self.cache[resource].range()}

    def versions(self, resource: str) -> dict[str, int]:
        """The mod_revision of each object."""
        found = self.content(resource)
        return {key: int(obj["metadata"]["resourceVersion"]) for key, obj in found.items()}

    def lists(self) -> int:
        """Contents that replaced others, over all resources."""
        status = [self.cache[name].status for name in self.cache.resources]
        return max(each.counters["relists"] for each in status)

    def restart(self) -> None:
        """Another engine over the same writer, as after a bug: it resumes nothing."""
        self.engine = Engine(
            self.writer, self.configuration.plans, self.opener, timing=self.configuration.timing
        )
        self.start()

    def stop_feeds(self) -> None:
        """The cache stays as it is from now on."""
        assert self.engine.stop(), "the feeds did not end"

    def stop(self, *, keep: bool = False) -> None:
        self.stop_feeds()
        self.cache.close()
        self.writer.check()
        if keep:
            self.writer.leave()
        else:
            self.writer.close()
        self._stack.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, failed: object, *_: object) -> None:
        self.stop()


def equals(etcd: EtcdServer, following: Following, resource: str, prefix: str) -> bool:
    """Whether the cache has exactly etcd's keys, each at etcd's revision."""
    theirs = {key[len(prefix) :]: rev for key, (rev, _) in etcd.content(prefix).items()}
    return following.versions(resource) == theirs


AUTH = {
    "UserAddRequest": "name=1:string password=2:string",
    "RoleAddRequest": "name=1:string",
    "GrantRequest": "user=1:string role=2:string",
    "Permission": "permType=1:number key=2:bytes range_end=3:bytes",
    "RolePermissionRequest": "name=1:string perm=2:Permission",
    "EnableRequest": "",
    "Answer": "",
}


class Users:
    """etcd's users, set up by the tests."""

    def __init__(self, etcd: EtcdServer, password: str) -> None:
        self.password = password
        self.classes = messages.build(AUTH, "shmcache.etcd.auth")
        self.connection = etcd.connection

    def call(self, name: str, request: str, /, **fields: object) -> None:
        method = messages.Method(
            f"/etcdserverpb.Auth/{name}", self.classes[request], self.classes["Answer"]
        )
        made = self.classes[request](**fields)
        self.connection.call(method, made, name, timeout=10.0, writes=True)

    def add(self, user: str, role: str) -> None:
        self.call("UserAdd", "UserAddRequest", name=user, password=self.password)
        self.call("UserGrantRole", "GrantRequest", user=user, role=role)

    def enable(self) -> None:
        self.call("RoleAdd", "RoleAddRequest", name="root")
        self.add("root", "root")
        self.call("AuthEnable", "EnableRequest")
