"""A filled cache, a server of it, and plain HTTP to query it."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import orjson

import shmcache
from shmcache.serve.server import Serving
from shmcache.testing.serving import ServeThread

Object = dict[str, Any]
_number = itertools.count()


class Answer(NamedTuple):
    """The answer to a request."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class Asked:
    """A server and its writer."""

    def __init__(self, writer: shmcache.Writer, cache: shmcache.Cache, serve: ServeThread) -> None:
        self.writer = writer
        self.cache = cache
        self.serve = serve

    def get(self, path: str, method: str = "GET", body: bytes = b"", /, **headers: str) -> Answer:
        """One request on a connection of its own; names of headers with _ for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.serve.port, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, named)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def apply(self, obj: Object, version: str, resource: str = "pods") -> None:
        """Stores an object, and sets the resource's version to the object's."""
        with self.writer.batch():
            self.writer.apply(resource, [obj])
            self.writer.set_version(resource, version)

    def delete(self, key: str, version: str, resource: str = "pods") -> None:
        """Deletes an object."""
        with self.writer.batch():
            self.writer.delete(resource, key, version)
            self.writer.set_version(resource, version)

    def names(self, path: str) -> list[str]:
        """The names of a list's items."""
        answer = self.get(path)
        assert answer.code == 200, answer.body
        return [item["metadata"]["name"] for item in answer.json["items"]]

    def raw(self, data: bytes, *, until_closed: bool = True) -> bytes:
        """The server's bytes in answer to these, until it ends the connection (or one read)."""
        with socket.create_connection(("127.0.0.1", self.serve.port), timeout=30) as sock:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(data)  # a server may answer, and end, before it has read all of it
            found = b""
            while piece := sock.recv(1 << 16):
                found += piece
                if not until_closed:
                    break
            return found

    @contextlib.contextmanager
    def held_up(self) -> Iterator[None]:
        """The server does nothing inside the block."""
        held, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            go_on.wait(30)

        self.serve.server.loop.call_threadsafe(hold)
        assert held.wait(30)
        try:
            yield
        finally:
            go_on.set()


class Stream:
    """A watch, read line by line."""

    def __init__(self, asked: Asked, query: str, path: str = "/api/v1/pods") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", asked.serve.port, timeout=30)
        self._connection.request("GET", f"{path}?watch=1&{query}")
        self.response = self._connection.getresponse()
        self.headers = dict(self.response.getheaders())

    def next(self) -> Object | None:
        line = self.response.readline()
        return orjson.loads(line) if line else None

    def next_event(self) -> tuple[str, str]:
        event = self.next()
        assert event is not None
        return event["type"], event["object"].get("metadata", {}).get("name", "")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()
        self.close()


@contextlib.contextmanager
def serving(
    objects: dict[str, list[Object]] | None = None,
    serving: Serving | None = None,
    *,
    version: str = "100",
    resources: Any = ("pods", "configmaps", "nodes"),
    **options: Any,
) -> Iterator[Asked]:
    """A cache with these objects, served."""
    name = f"serving-{os.getpid()}-{next(_number)}"
    with shmcache.Writer(name, list(resources), **options) as writer:
        for resource, some in (objects or {}).items():
            writer.replace(resource, some, version=version)
        with shmcache.attach(name) as cache, ServeThread(cache, serving) as serve:
            yield Asked(writer, cache, serve)


def pod(number: int, namespace: str = "default", version: int = 1, **labels: str) -> Object:
    """A small pod."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"p-{number:04}",
            "namespace": namespace,
            "uid": f"uid-{namespace}-{number}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels,
        },
        "spec": {"nodeName": f"node-{number % 5}", "containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }
