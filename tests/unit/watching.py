"""A watch of serve without a server: a cache, a channel, and clients that read when they want."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

from shmcache.protocol import accept, failures, validation, watching
from shmcache.protocol.builtins import builtin
from shmcache.selectors import FieldSelector, LabelSelector
from shmcache.serve import watch_forms
from shmcache.serve.watch_channel import Channel
from shmcache.serve.watch_forms import Form
from shmcache.serve.watch_selection import selection_of
from shmcache.serve.watch_stream import Watcher

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
    """Takes what it is sent, or lets it wait."""

    def __init__(self) -> None:
        self.backlog = 0
        self.reads = True
        self.data: list[bytes] = []
        self.finished = False
        self.watcher: Watcher | None = None

    def send(self, data: bytes, /) -> None:
        assert not self.finished, "bytes behind the end"
        self.data.append(data)
        self.backlog += 0 if self.reads else len(data)

    def finish(self) -> None:
        assert not self.finished, "two ends"
        self.finished = True

    def take(self) -> list[Json]:
        """The events that came since this was asked last."""
        data, self.data = b"".join(self.data), []
        return [json.loads(line) for line in data.splitlines()]

    def told(self) -> list[tuple[str, str, str]]:
        """(type, name, version) of them."""
        return [_told(event) for event in self.take()]

    def read_on(self) -> None:
        """Takes all that waits, and is asked for more room."""
        self.reads, self.backlog = True, 0
        assert self.watcher is not None
        self.watcher.pump()


def _told(event: Json) -> tuple[str, str, str]:
    obj = event["object"]
    if event["type"] == "ERROR":
        return "ERROR", str(obj["code"]), obj["message"]
    metadata = obj["metadata"]
    end = "annotations" in metadata and event["type"] == "BOOKMARK"
    return event["type"], metadata.get("name", "end" if end else ""), metadata["resourceVersion"]


class World:
    """A channel, and its turns."""

    def __init__(self, cache: shmcache.Cache, *, lanes: bool = False, limit: int = 1 << 20) -> None:
        self.cache = cache
        self.limit = limit
        self.soon: deque[Callable[[], object]] = deque()
        self.channel = Channel(cache, "pods", PODS, own=lanes)

    def watch(
        self, query: str = "", namespace: str = "", shape: accept.Shape = accept.FULL
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
        watcher = Watcher(self.channel, selection, Form(PODS, shape))
        client.watcher = watcher
        watcher.open(client, watch_forms.plain, self.limit, self.soon.append)
        try:
            watcher.begin(watching.beginning(asked))
        except failures.Failure as failure:
            watcher.fail(failure)
        self.turn()
        return client

    def turn(self) -> None:
        """Until nothing more is to be done."""
        while True:
            more = self.channel.drain()
            self.channel.call_waiting()
            while self.soon:
                self.soon.popleft()()
            if not more:
                return
