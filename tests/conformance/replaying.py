"""A recorded request, and the state of a server in which it was answered so.

The state is worked out from the answer itself: what a list has, what a watch shows first, and which
writes must have happened while it was open. Objects keep their recorded metadata, so that answers
can be compared byte for byte.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from shmcache.protocol import paths
from shmcache.testing import ApiServer

TRACES = os.path.join(os.path.dirname(__file__), "traces")

Json = dict[str, Any]


class Write(NamedTuple):
    """Something that happened while a watch was open."""

    type: str
    obj: Json


class Recorded:
    """One trace."""

    def __init__(self, name: str) -> None:
        self.name = name
        with open(os.path.join(TRACES, f"{name}.json"), "rb") as file:
            self.sidecar: Json = json.load(file)
        request = self.sidecar["request"]
        self.method: str = request["method"]
        self.path: str = request["path"]
        self.headers: dict[str, str] = dict(request["headers"])
        self.sent: str | None = request.get("body")
        path, _, query = self.path.partition("?")
        self.query = dict(parse_qsl(query, keep_blank_values=True))
        target = paths.parse(path)
        self.target = target if target is not None else paths.Target("", "", "")

    @cached_property
    def answer(self) -> Json:
        found: Json = self.sidecar["response"]
        return found

    @cached_property
    def body(self) -> bytes:
        file = os.path.join(TRACES, f"{self.name}.body")
        if os.path.exists(file):
            with open(file, "rb") as plain:
                return plain.read()
        with gzip.open(f"{file}.gz") as packed:
            return packed.read()

    @property
    def key(self) -> str:
        group, _, resource, *_ = self.target
        return f"{resource}.{group}" if group else resource

    @property
    def events(self) -> list[Json]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def is_initial(self) -> bool:
        """Whether the watch begins with the objects that are there."""
        asked = self.query.get("sendInitialEvents")
        return asked == "true" or (asked is None and self.query.get("resourceVersion", "0") == "0")


def traces() -> list[str]:
    return sorted(file[:-5] for file in os.listdir(TRACES) if file.endswith(".json"))


def version_of(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


def load(server: ApiServer, key: str, objects: list[Json]) -> None:
    """Loads objects under the versions that they have."""
    for obj in sorted(objects, key=version_of):
        server.load(key, obj)


def fill(server: ApiServer, recorded: Recorded, count: int, upto: int) -> None:
    """So many objects after all others, for remainingItemCount; none at a version after `upto`."""
    for number in range(count):
        metadata: Json = {"name": f"zz-{number}"}
        if recorded.target.namespace:
            metadata["namespace"] = recorded.target.namespace
        server.load(recorded.key, {"metadata": metadata, "spec": {}})
    assert int(server.version) <= upto, "no room for what is left over"


def load_list(server: ApiServer, recorded: Recorded) -> None:
    """The state in which a LIST was answered so, at the version of the answer."""
    body = recorded.body
    if body[:2] == b"\x1f\x8b":
        body = gzip.decompress(body)
    found: Json = json.loads(body)
    items, metadata = found["items"], found["metadata"]
    at = int(metadata["resourceVersion"])
    first = min([version_of(item) for item in items], default=at)
    left = metadata.get("remainingItemCount", 1 if "continue" in metadata else 0)
    fill(server, recorded, left, first)
    load(server, recorded.key, items)
    server.advance(at)


def split(recorded: Recorded) -> tuple[list[Json], list[Write]]:
    """The objects at the beginning of the watch, and the writes after it."""
    events = recorded.events
    there: list[Json] = []
    live = 0
    if recorded.is_initial:
        while live < len(events) and events[live]["type"] == "ADDED":
            there.append(events[live]["object"])
            live += 1
        if live < len(events) and _is_end(events[live]):
            live += 1
    return there, [Write(event["type"], event["object"]) for event in events[live:]]


def _is_end(event: Json) -> bool:
    return "annotations" in event["object"]["metadata"]


def before(there: list[Json], writes: list[Write]) -> list[Json]:
    """The objects that existed before as well: their first write is a change or a deletion."""
    known = {obj["metadata"]["name"] for obj in there}
    found = []
    for write in writes:
        name = write.obj["metadata"].get("name")
        if name is None or name in known:
            continue
        known.add(name)
        if write.type in {"MODIFIED", "DELETED"}:
            metadata = {k: v for k, v in write.obj["metadata"].items() if k != "resourceVersion"}
            found.append({**write.obj, "metadata": metadata})
    return found


def happen(server: ApiServer, key: str, write: Write) -> None:
    """Does what a watch has shown, under the version that it has shown."""
    version = version_of(write.obj)
    if write.type == "BOOKMARK":
        server.advance(max(version, int(server.version)))
        server.send_bookmarks()
    elif write.type == "DELETED":
        server.advance(version - 1)
        metadata = write.obj["metadata"]
        server.delete(key, metadata["name"], metadata.get("namespace", ""))
    else:
        server.load(key, write.obj)


def token_of(text: str) -> Json:
    """A continue token, taken apart."""
    found: Json = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


WATCHES = [  # recorded watches whose server is made to do the same again
    "b-watch-rv-too-large",
    "d-watch-emu133",
    "d-watch-etcd351",
    "d-watch-huge-line",
    "d-watch-limit-ignored",
    "d-watch-namespace-object",
    "d-watch-norv",
    "d-watch-pods-fieldselector-node",
    "d-watch-rv0",
    "e-watch-bookmarks-75s-idle",
    "e-watch-bookmarks-timeout12",
    "e-watch-nobookmarks-timeout5",
    "e-watch-norv-bookmarks",
    "e-watch-rv0-bookmarks",
    "f-watchlist-configmaps",
    "f-watchlist-empty",
    "f-watchlist-false",
    "f-watchlist-from-rv",
    "f-watchlist-nobookmarks",
    "f-watchlist-partialmeta",
    "f-watchlist-pods-big",
    "f-watchlist-rv0",
    "g-events-watch-oldrv-notcompacted",
    "g-nocache-watch-bookmarks",
    "g-nocache-watchlist",
    "g-watch-compacted-but-cached",
    "i-gzip-watch",
    "j-json-streamwatch",
    "j-pretty-watch",
    "j-watch-partialmeta-pods",
    "l-crd-watch",
    "l-crd-watch-fieldselector",
    "l-crd-watchlist",
    "n-endpointslices-watch",
]


# ---- the custom resources of the testbed ---------------------------------------------------------


def definition(plural: str, kind: str, **version: Any) -> Json:
    """The CustomResourceDefinition of the testbed's resources."""
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "shortNames": ["wd"]}
    return {
        "metadata": {"name": f"{plural}.testbed.example.com"},
        "spec": {
            "group": "testbed.example.com",
            "scope": "Namespaced",
            "names": {**names, "categories": ["all"]},
            "versions": [{"name": "v1", "served": True, "storage": True, **version}],
        },
    }


WIDGETS = definition(
    "widgets",
    "Widget",
    subresources={"status": {}},
    selectableFields=[{"jsonPath": ".spec.color"}],
    additionalPrinterColumns=[
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
)
