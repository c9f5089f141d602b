"""A watch of serve without a server: a cache, a channel, and clients that read at will."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

from shmcache.protocol import accept, failures, validation, watching
from shmcache.protocol.builtins import builtin
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.serve.read.consistency import ANYTHING, Currency
from shmcache.serve.watch import encoding as watch_forms
from shmcache.serve.watch.channel import Channel
from shmcache.serve.watch.encoding import WatchForm
from shmcache.serve.watch.selection import selection_of
from shmcache.serve.watch.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmcache

Json = dict[str, Any]
PODS = next(kind for kind in builtin() if kind.key == "pods")
NODES = next(kind for kind in builtin() if kind.key == "nodes")


def pod(name: str, version: int, namespace: str = "a", node: str = "", **labels: str) -> Json:
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": labels,
    }
    spec = {"nodeName": node} if node else {}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}


class Client:
    """Takes its data, or lets it wait."""

    limit = 1 << 20

    def __init__(self) -> None:
        self.backlog = 0
        self.reads = True
        self.data: list[bytes] = []
        self.finished = False
        self.watcher: Watcher | None = None

    @property
    def choked(self) -> bool:
        return self.backlog > self.limit

    def room(self, then: Callable[[], object], /) -> bool:  # noqa: ARG002 - there always is
        return True

    def send(self, data: bytes, /) -> None:
        assert not self.finished, "bytes after the end"
        self.data.append(data)
        self.backlog += 0 if self.reads else len(data)

    def finish(self) -> None:
        assert not self.finished, "two ends"
        self.finished = True

    def take(self) -> list[Json]:
        """The events since the last call."""
        data, self.data = b"".join(self.data), []
        return [json.loads(line) for line in data.splitlines()]

    def received(self) -> list[tuple[str, str, str]]:
        """Their (type, name, version)."""
        return [_summary(event) for event in self.take()]

    def read_on(self) -> None:
        """Takes all waiting data, and has room for more."""
        self.reads, self.backlog = True, 0
        assert self.watcher is not None
        self.watcher.pump()


def _summary(event: Json) -> tuple[str, str, str]:
    obj = event["object"]
    if event["type"] == "ERROR":
        return "ERROR", str(obj["code"]), obj["message"]
    metadata = obj["metadata"]
    end = "annotations" in metadata and event["type"] == "BOOKMARK"
    return event["type"], metadata.get("name", "end" if end else ""), metadata["resourceVersion"]


class World:
    """A channel, and its turns."""

    def __init__(
        self, cache: shmcache.Cache, *, separate: bool = False, limit: int = 1 << 20
    ) -> None:
        self.cache = cache
        self.limit = limit
        self.soon: deque[Callable[[], object]] = deque()
        self.channel = Channel(cache, "pods", PODS, separate=separate)

    def watch(
        self,
        query: str = "",
        namespace: str = "",
        shape: accept.Shape = accept.FULL,
        *,
        current: Currency = ANYTHING,
    ) -> Client:
        """A client that watches with these parameters."""
        asked = validation.parse_options(
            {"watch": "1", **dict(part.split("=", 1) for part in query.split("&") if part)}
        )
        selection = selection_of(
            namespace,
            LabelSelector.parse(asked.label_selector),
            FieldSelector.parse(asked.field_selector),
        )
        client = Client()
        client.limit = self.limit
        watcher = Watcher(self.channel, selection, WatchForm(PODS, shape))
        client.watcher = watcher
        watcher.open(client, watch_forms.plain, self.soon.append)
        try:
            watcher.begin(watching.beginning(asked), current)
        except failures.Failure as failure:
            watcher.fail(failure)
        self.turn()
        return client

    def turn(self) -> None:
        """Turns until nothing is left to do."""
        while True:
            more = self.channel.drain()
            self.channel.call_waiting()
            while self.soon:
                self.soon.popleft()()
            if not more:
                return
