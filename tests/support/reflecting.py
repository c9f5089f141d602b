"""Shared by the tests of the reflector: objects, items, and short names for requests."""

from __future__ import annotations

import json
import random
from typing import Any

from shmcache.protocol.items import Item, ListMeta
from shmcache.reflector.events import (
    Action,
    Answering,
    Await,
    Closed,
    Contact,
    Elapsed,
    Event,
    Failed,
    Listed,
    Opened,
    Received,
    Started,
)
from shmcache.reflector.machine import Reflector, ReflectorSettings
from shmcache.source.base import SourceFailure
from shmcache.testing import Driver, FakeSource

PAGES = ReflectorSettings(use_watch_list=False)


def pod(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "prod", "name": name}, **more}


def source_with(*names: str, version: int = 10) -> FakeSource:
    """A server whose version, once all these pods exist, is `version`."""
    source = FakeSource(version=version - len(names))
    for name in names:
        source.create(pod(name))
    return source


def listing(source: FakeSource, **settings: Any) -> Driver:
    """A reflector that lists, driven on this server; only its first moment has happened."""
    settings.setdefault("use_watch_list", False)
    return Driver(source, ReflectorSettings(**settings), random.Random(7))


def streaming(source: FakeSource, **settings: Any) -> Driver:
    """A reflector that begins with a watch-list."""
    return Driver(source, ReflectorSettings(**settings), random.Random(7))


def lists(driver: Driver) -> list[str]:
    """The versions of the requested lists; continued pages as "+"."""
    return [
        "+" if request.options.continue_token else request.options.resource_version
        for request in driver.requests
        if not request.options.watch
    ]


def limits(driver: Driver) -> list[int]:
    return [request.options.limit for request in driver.requests if not request.options.watch]


def watches(driver: Driver) -> list[str]:
    """The versions of the requested plain watches."""
    return [
        request.options.resource_version
        for request in driver.requests
        if request.options.watch and request.options.send_initial_events is None
    ]


def streams(driver: Driver) -> list[str]:
    """The versions of the requested watch-lists."""
    return [
        request.options.resource_version
        for request in driver.requests
        if request.options.send_initial_events
    ]


def names(driver: Driver) -> list[str]:
    return sorted(key.rpartition("/")[2] for key in driver.content)


def item(
    kind: str,
    name: str,
    version: str | int | None,
    *,
    of: str | None = "Pod",
    api_version: str | None = "v1",
) -> Item:
    text = None if version is None else str(version)
    raw = {"kind": of, "metadata": {"name": name, "resourceVersion": text}}
    return Item(kind, name, text, f"uid-{name}", of, api_version, json.dumps(raw).encode())


def bookmark(version: str | int, annotation: object = None) -> Item:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if annotation is not None:
        metadata["annotations"] = {"k8s.io/initial-events-end": annotation}
    raw = json.dumps({"kind": "Pod", "metadata": metadata}).encode()
    return Item("BOOKMARK", "", str(version), None, "Pod", "v1", raw)


class Script:
    """A machine that receives a server's actions, event by event; `now` is the time.

    Contacts are kept apart from the other actions: `contacts` has the time of each. A machine that
    resumes has received the probe's answer: the server is at its version.
    """

    def __init__(self, *, resume: str | None = None, **settings: Any) -> None:
        settings.setdefault("use_watch_list", False)
        self.machine = Reflector(ReflectorSettings(**settings), random.Random(3))
        self.now = 0.0
        self.contacts: list[float] = []
        self.first = self.step(Started(resume))
        if isinstance(self.first[-1], Await):
            self.first += self.step(Answering(resume))

    def step(self, event: Event) -> list[Action]:
        actions = self.machine.step(event, self.now)
        self.contacts += [self.now for action in actions if isinstance(action, Contact)]
        return [action for action in actions if not isinstance(action, Contact)]

    def waited(self, after: list[Action]) -> list[Action]:
        """The actions after the wait that these end with; the server is at the machine's
        version."""
        if isinstance(after[-1], Await):
            return self.step(Answering(self.machine.version))
        return self.step(Elapsed())

    def later(self, seconds: float) -> Script:
        self.now += seconds
        return self

    def listed(
        self, version: str = "10", token: str = "", kind: str = "PodList", api_version: str = "v1"
    ) -> list[Action]:
        return self.step(Listed(ListMeta(version, token, None, kind, api_version)))

    def opened(self) -> list[Action]:
        return self.step(Opened())

    def received(self, *items: Item) -> list[Action]:
        return self.step(Received(list(items)))

    def closed(self) -> list[Action]:
        return self.step(Closed())

    def failed(self, failure: SourceFailure) -> list[Action]:
        return self.step(Failed(failure))
