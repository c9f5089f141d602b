"""Clients of `shmcache serve` that keep a copy of the watched objects, and check each event.

A client lists, watches from there, and resumes at the last version it has seen whenever a watch
ends. It knows which events can come next: ADDED for an unknown object, MODIFIED and DELETED for a
known one, rising versions. Anything else is a skipped or a repeated event, and goes to `wrong`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson

from shmcache import _hot

RECEIVE = 1 << 16
PAUSE = 0.05
Json = dict[str, Any]
State = dict[str, str]
"""Keys and versions."""


class Gone(Exception):
    """The connection broke, or the server did not answer."""


@dataclass
class Counts:
    """Totals over all clients."""

    events: int = 0
    bookmarks: int = 0
    lists: int = 0
    watches: int = 0
    expired: int = 0
    cut: int = 0
    ended: int = 0
    unavailable: int = 0


@dataclass
class Watcher:
    """One client: its selection, and the objects that it has seen."""

    port: int
    namespace: str
    labels: str
    luck: random.Random
    counts: Counts
    slow: bool = False
    """Reads with long pauses, into a small buffer. After that it connects again: through
    such a buffer the kernel passes on some 40 KB a second, however eagerly it is read.
    """
    silence: float | None = None
    """TimeoutError when nothing comes for so many seconds."""
    state: State = field(default_factory=dict)
    version: int = 0
    wrong: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        inside = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"/api/v1{inside}/pods?labelSelector={quote(self.labels)}"

    async def run(self) -> None:
        """Watches for ever."""
        listed = False
        while True:
            try:
                if not listed:
                    await self._list()
                    listed = True
                listed = await self._watch()
            except (Gone, OSError):
                self.counts.cut += 1
                await asyncio.sleep(self.luck.uniform(0, 2 * PAUSE))

    # ---- requests ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _ask(self, path: str) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        if self.slow:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            try:
                async with asyncio.timeout(self.silence):
                    head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as error:
                raise Gone from error
            status = int(head.split(b" ", 2)[1])
            yield status, head, reader
        finally:
            writer.close()

    async def _list(self) -> None:
        self.counts.lists += 1
        async with self._ask(self.path) as (status, head, reader):
            body = await self._body(head, reader)
            if status != 200:
                self.counts.unavailable += 1
                raise Gone
        found = orjson.loads(body)
        self.state = dict(_named(item) for item in found["items"])
        self.version = int(found["metadata"]["resourceVersion"])
        self.history.append(f"list {self.version}")

    async def _body(self, head: bytes, reader: asyncio.StreamReader) -> bytes:
        if b"chunked" not in head:
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            try:
                return await reader.readexactly(length)
            except asyncio.IncompleteReadError as error:
                raise Gone from error
        chunks, body = _hot.Chunks(), b""
        while not chunks.done:
            data = await reader.read(RECEIVE)
            if not data:
                raise Gone
            body += chunks.feed(data)
        return body

    async def _watch(self) -> bool:
        """Reads until the end of the watch; returns whether to resume (or to list)."""
        self.counts.watches += 1
        seconds = self.luck.randrange(2, 30)
        asked = f"&watch=1&resourceVersion={self.version}&timeoutSeconds={seconds}"
        async with self._ask(f"{self.path}&allowWatchBookmarks=true{asked}") as answer:
            status, _, reader = answer
            if status != 200:
                self.counts.unavailable += 1
                raise Gone
            self.history.append(f"watch {self.version}")
            return await self._events(reader)

    async def _events(self, reader: asyncio.StreamReader) -> bool:
        chunks, rest, slow = _hot.Chunks(), b"", self.slow
        while not chunks.done:
            if slow and not self.slow:
                raise Gone
            if self.slow:
                await asyncio.sleep(PAUSE * self.luck.random())
            async with asyncio.timeout(self.silence):
                data = await reader.read(1024 if self.slow else RECEIVE)
            if not data:
                raise Gone
            *lines, rest = (rest + chunks.feed(data)).split(b"\n")
            for line in lines:
                if not self._event(orjson.loads(line)):
                    return False
        if rest:
            self.wrong.append(f"half a line before a clean end: {rest[:80]!r}")
        self.counts.ended += 1
        return True

    # ---- events --------------------------------------------------------------------------------

    def _event(self, event: Json) -> bool:
        """Applies one; False after an ERROR."""
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            self.counts.expired += obj["code"] == 410
            self.history.append(f"error {obj['code']} {obj['message']}")
            if obj["code"] != 410:
                raise Gone
            return False
        version = int(obj["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            self.counts.bookmarks += 1
            if version < self.version:
                self._complain(f"a bookmark goes back to {version}")
        else:
            self.counts.events += 1
            self._apply(kind, obj, version)
        self.version = version
        return True

    def _apply(self, kind: str, obj: Json, version: int) -> None:
        key, _ = _named(obj)
        self.history.append(f"{kind} {key} {version}")
        del self.history[:-60]
        if (kind == "ADDED") == (key in self.state):
            self._complain(f"{kind} of {key} at {version}, known at {self.state.get(key)}")
        if kind == "DELETED":
            self.state.pop(key, None)
            return
        if version <= int(self.state.get(key, "0")):
            self._complain(f"{key} goes back to {version}")
        self.state[key] = str(version)

    def _complain(self, text: str) -> None:
        self.wrong.append(f"{self.labels or 'everything'} in {self.namespace or 'all'}: {text}; "
                          f"{self.history[-20:]}")  # fmt: skip


def _named(obj: Json) -> tuple[str, str]:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}", metadata["resourceVersion"]
