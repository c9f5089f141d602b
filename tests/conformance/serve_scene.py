"""`shmcache serve` as the server that a recorded request is asked of, in the state of the trace."""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import os
import socket
from typing import TYPE_CHECKING, NamedTuple

from asking import PATIENCE, Answer
from replaying import WIDGETS, Json, Recorded, Write, before, split, version_of

import shmcache
from shmcache import Resource
from shmcache.engine.describing import described
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.protocol import framing
from shmcache.serve.http import websocket
from shmcache.serve.server import Serving
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer
from shmcache.testing.serving import ServeThread

if TYPE_CHECKING:
    from collections.abc import Iterator

_number = itertools.count()
CUSTOM = "widgets.testbed.example.com"
TOKEN = websocket.BEARER + "dG9rZW4"
"""A token as browsers send it, which the recorder has left out."""


@functools.cache
def description() -> Json:
    """The description that a reflector stores, from an API server with the definition."""
    with ApiServer() as server:
        server.create("customresourcedefinitions", WIDGETS)
        opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
        return described(opener, Plan(name=CUSTOM))


class Scene(NamedTuple):
    """A cache as its writer, and a server of it."""

    writer: shmcache.Writer
    serve: ServeThread
    key: str

    def load(self, objects: list[Json], version: int) -> None:
        """Stores the objects of a list of this version."""
        self.writer.replace(self.key, objects, str(version))

    def store(self, obj: Json) -> None:
        """Stores an object that a watch has brought."""
        with self.writer.batch():
            self.writer.apply(self.key, [obj])
            self.writer.set_version(self.key, obj["metadata"]["resourceVersion"])

    def delete(self, obj: Json) -> None:
        """Deletes an object that a watch has taken away."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        key = f"{namespace}/{metadata['name']}" if namespace else metadata["name"]
        with self.writer.batch():
            assert self.writer.delete(self.key, key, metadata["resourceVersion"])
            self.writer.set_version(self.key, metadata["resourceVersion"])

    def advance(self, version: int) -> None:
        """Stores the version of a bookmark."""
        self.writer.set_version(self.key, str(version))

    def bookmark(self) -> None:
        """Sends a bookmark to each watch that asked for them, after all writes so far."""
        self.serve.call(self.serve.server.watches.send_bookmarks)

    def end(self) -> None:
        """Ends all watches, after all writes so far."""
        self.serve.call(self.serve.server.watches.catch_up)
        self.serve.call(self.serve.server.watches.end)

    def await_watches(self, count: int = 1) -> None:
        """Returns when so many watches are open."""
        while self.serve.call(lambda: self.serve.server.watches.count) < count:
            pass


@contextlib.contextmanager
def scene(key: str, serving: Serving | None = None) -> Iterator[Scene]:
    """An empty cache with one resource, served; a custom one is described by the product."""
    name = f"served-{os.getpid()}-{next(_number)}"
    resource = Resource(key, keep_managed_fields=True)
    with (
        shmcache.Writer(name, [resource]) as writer,
        shmcache.attach(name) as cache,
        ServeThread(cache, serving or Serving(fresh_seconds=0.01)) as serve,
    ):
        if key == CUSTOM:
            writer.describe(key, **description())
        yield Scene(writer, serve, key)


def ask_serve(at: Scene, recorded: Recorded, **more: str) -> Answer:
    """The recorded request, as it was sent but for its token."""
    left_out = {"Host", "Authorization"}
    headers = {name: value for name, value in recorded.headers.items() if name not in left_out}
    headers |= more
    connection = http.client.HTTPConnection("127.0.0.1", at.serve.port, timeout=PATIENCE)
    sent = None if recorded.sent is None else recorded.sent.encode()
    connection.request(recorded.method, recorded.path, sent, headers)
    response = connection.getresponse()
    answer = Answer(response.status, dict(response.headers.items()), response.read())
    connection.close()
    return answer


class Watching:
    """The recorded watch, open: its events, while the recorded writes happen again."""

    def __init__(self, at: Scene, recorded: Recorded) -> None:
        self.at = at
        self.recorded = recorded
        there, self.writes = split(recorded)
        self.shown = len(recorded.events) - len(self.writes)
        start = int(recorded.query.get("resourceVersion", "0"))
        versions = [version_of(event["object"]) for event in recorded.events[: self.shown]]
        first = min([version_of(write.obj) for write in self.writes], default=0) - 1
        self.version = start if 0 < start < 10**8 else max([*versions, first, 1])
        old = [_under(obj, 1) for obj in before(there, self.writes)]
        at.load([*there, *old], max([self.version, *map(version_of, there)]))

    def run(self) -> Answer:
        """Everything from the request to the watch's end.

        Without Accept-Encoding: servers of 1.37 compress what begins a watch-list, as we do; the
        recorded one, of 1.36, did not.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.at.serve.port, timeout=PATIENCE)
        path = self.recorded.path.replace("timeoutSeconds=", "timeoutSeconds=9")
        headers = {k: v for k, v in self.recorded.headers.items() if k == "Accept"}
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        lines = [response.readline() for _ in range(self.shown)]
        for write in self.writes:
            self.happen(write)
            lines.append(response.readline())
        self.at.end()
        rest = response.read()
        connection.close()
        return Answer(response.status, dict(response.headers.items()), b"".join(lines) + rest)

    def happen(self, write: Write) -> None:
        """Repeats a change that the watch has shown, under the recorded version."""
        if write.type == "BOOKMARK":
            self.at.advance(max(version_of(write.obj), self.version))
            self.at.bookmark()
        elif write.type == "DELETED":
            self.at.delete(write.obj)
        else:
            self.at.store(write.obj)
        self.version = max(self.version, version_of(write.obj))


def _under(obj: Json, version: int) -> Json:
    """With a version, at its place: custom resources have their keys in alphabetical order."""
    metadata = {**obj["metadata"], "resourceVersion": str(version)}
    custom = list(obj["metadata"]) == sorted(obj["metadata"])
    order = sorted(metadata) if custom else framing.METADATA_ORDER
    return {**obj, "metadata": {key: metadata[key] for key in order if key in metadata}}


class Socket:
    """A WebSocket by hand: the head of the answer, and the frames after it."""

    def __init__(self, at: Scene, recorded: Recorded, path: str) -> None:
        self._sock = socket.create_connection(("127.0.0.1", at.serve.port), PATIENCE)
        headers = {k: v for k, v in recorded.headers.items() if k != "Authorization"}
        lines = [f"{k}: {v.replace('<TOKENPROTO>', TOKEN)}\r\n" for k, v in headers.items()]
        self._sock.sendall(f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode())
        self._held = b""
        while b"\r\n\r\n" not in self._held:
            self._held += self._some()
        head, _, self._held = self._held.partition(b"\r\n\r\n")
        self.status, *lines = head.decode().split("\r\n")
        self.headers = dict(line.split(": ", 1) for line in lines)

    def _some(self) -> bytes:
        data = self._sock.recv(1 << 16)
        if not data:
            raise EOFError
        return data

    def _take(self, count: int) -> bytes:
        while len(self._held) < count:
            self._held += self._some()
        found, self._held = self._held[:count], self._held[count:]
        return found

    def frame(self) -> tuple[int, bytes]:
        """The next frame: opcode and payload. EOFError at the end."""
        first, second = self._take(2)
        assert first & 0x80, "a frame in pieces"
        assert not second & 0x80, "a mask from a server"
        size = second
        if size >= 126:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return first & 15, self._take(size)

    def send(self, opcode: int, data: bytes) -> None:
        """One masked frame."""
        mask = b"\1\2\3\4"
        masked = bytes(byte ^ mask[place & 3] for place, byte in enumerate(data))
        self._sock.sendall(bytes((0x80 | opcode, 0x80 | len(data))) + mask + masked)

    def is_over(self) -> bool:
        """Whether the server has ended the connection, as it should have by now."""
        return not self._held and not self._sock.recv(1)

    def close(self) -> None:
        self._sock.close()
