"""A client that asks one thing at a time and hides nothing: status, headers, events."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple, Self

from shmcache.testing import ApiServer

PATIENCE = 60.0

Json = dict[str, Any]


class Answer(NamedTuple):
    """An answer; `cut` where the body had no proper end."""

    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool = False

    @property
    def json(self) -> Json:
        found: Json = json.loads(self.body)
        return found

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.json["items"]]

    @property
    def events(self) -> list[Json]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def summary(self) -> list[tuple[str, str]]:
        """(type, name) of each event; of a bookmark "end" or nothing."""
        return [_summary(event) for event in self.events]


def _summary(event: Json) -> tuple[str, str]:
    metadata = event["object"].get("metadata", {})
    if event["type"] == "BOOKMARK":
        end = metadata.get("annotations", {}).get("k8s.io/initial-events-end") == "true"
        return event["type"], "end" if end else ""
    return event["type"], metadata.get("name", "")


def ask(
    server: ApiServer | int,
    path: str,
    method: str = "GET",
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request on a connection of its own, read to its end."""
    port = server if isinstance(server, int) else server.port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        text = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, text, headers or {})
        response = connection.getresponse()
        found = dict(response.headers.items())
        try:
            return Answer(response.status, found, response.read())
        except http.client.IncompleteRead as incomplete:
            return Answer(response.status, found, incomplete.partial, cut=True)
    finally:
        connection.close()


class Stream:
    """A watch that is read event by event."""

    def __init__(self, server: ApiServer, path: str, headers: dict[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        self._connection.request("GET", path, headers=headers or {})
        self._sock = self._connection.sock
        self._response = self._connection.getresponse()
        self.headers = dict(self._response.headers.items())

    def next(self) -> Json | None:
        """The next event; None at the end."""
        line = self._response.readline()
        return json.loads(line) if line else None

    def some(self) -> bytes:
        """One chunk, or the rest of it."""
        return self._response.read1()

    def timeout(self, seconds: float) -> None:
        """How long reads wait from now on."""
        self._sock.settimeout(seconds)

    def next_event(self) -> tuple[str, str] | None:
        """The next event as (type, name)."""
        event = self.next()
        return None if event is None else _summary(event)

    def next_events(self, count: int) -> list[tuple[str, str] | None]:
        """The next `count` events."""
        return [self.next_event() for _ in range(count)]

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self.close()
