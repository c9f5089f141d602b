"""A source against a dumb server, and the result of one request."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from shmcache.protocol.items import Item, ListMeta
from shmcache.protocol.options import ListOptions
from shmcache.source.base import Source, SourceFailed, SourceFailure
from shmcache.source.client import ApiConnection
from shmcache.source.config import ServerSettings, open_server
from shmcache.source.discovery import ApiResource
from shmcache.source.kube import KubeSource

TRACES = os.path.join(os.path.dirname(__file__), "traces")
SILENCE = 30.0
"""Seconds in which a server of ours would surely have said something."""

CONFIGMAPS = ApiResource(
    group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True
)


@dataclass
class Outcome:
    """The result of a request: its items as far as they came, and how it ended."""

    items: list[Item] = field(default_factory=list)
    meta: ListMeta | None = None
    opened: bool = False
    failure: SourceFailure | None = None


def server_of(url: str, **settings: Any) -> ApiConnection:
    return open_server(ServerSettings(url=url, **settings))


def source_of(url: str, resource: str | ApiResource = CONFIGMAPS, **settings: Any) -> KubeSource:
    return KubeSource(server_of(url), resource, list_silence=SILENCE, **settings)


def list_of(source: Source, options: ListOptions | None = None) -> Outcome:
    outcome = Outcome()
    try:
        with source.page(options or ListOptions()) as page:
            outcome.opened = True
            for items in page:
                outcome.items += items
            outcome.meta = page.meta
    except SourceFailed as failed:
        outcome.failure = failed.failure
    return outcome


def watch_of(
    source: Source, options: ListOptions | None = None, *, silence: float = SILENCE
) -> Outcome:
    outcome = Outcome()
    try:
        with source.watch(options or ListOptions(watch=True), silence=silence) as batches:
            outcome.opened = True
            for items in batches:
                outcome.items += items
    except SourceFailed as failed:
        outcome.failure = failed.failure
    return outcome


@dataclass(frozen=True)
class Trace:
    """One recorded exchange: the request, every byte of the answer, and its content."""

    name: str
    sidecar: dict[str, Any]

    @property
    def answer(self) -> bytes:
        path = os.path.join(TRACES, f"{self.name}.http")
        if os.path.exists(path):
            with open(path, "rb") as file:
                return file.read()
        with gzip.open(f"{path}.gz", "rb") as file:
            return file.read()

    @property
    def is_watch(self) -> bool:
        return "watch=" in self.sidecar["request"]["path"]

    @property
    def status(self) -> int:
        return int(self.sidecar["response"]["status"])

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = self.sidecar.get("summary") or {}
        return found

    def header(self, name: str) -> str | None:
        for key, value in self.sidecar["response"]["headers"]:
            if key == name:
                return str(value)
        return None

    @property
    def resource(self) -> ApiResource:
        """Of the collection that its path names."""
        parts = urlsplit(self.sidecar["request"]["path"]).path.strip("/").split("/")
        group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
        plural = rest[3] if len(rest) > 3 and rest[1] == "namespaces" else rest[-1]
        return ApiResource(group=group, version=rest[0], plural=plural, kind="Any", namespaced=True)

    def asked(self, source: Source) -> Outcome:
        return watch_of(source) if self.is_watch else list_of(source)


def load_traces() -> list[Trace]:
    """Those that a client like ours can meet: GET, and no WebSocket. The bytes must be there."""
    found = []
    for file in sorted(os.listdir(TRACES)):
        name, dot, kind = file.partition(".")
        if (dot, kind) != (".", "json") or "ws-watch" in name:
            continue
        with open(os.path.join(TRACES, file), encoding="utf-8") as sidecar:
            trace = Trace(name, json.load(sidecar))
        kept = any(os.path.exists(os.path.join(TRACES, f"{name}.http{end}")) for end in ("", ".gz"))
        asked = trace.sidecar["request"]
        if asked["method"] == "GET" and asked["path"].startswith(("/api/v1/", "/apis/")) and kept:
            found.append(trace)
    return found
