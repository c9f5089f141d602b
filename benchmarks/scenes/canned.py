"""A dumb API server for measurements: it sends bytes that were encoded before, without limits.

It answers LISTs of pods, in pages or in one body, and keeps their watches open; events go to a
watch on the parent's command, as fast as the client takes them. Each event is a status-only update
of the corpus, its resourceVersion written into ready bytes; framing is that of the real server. It
refuses watch-lists as an old server does, so that a first list is a LIST.

It runs as a child (`serve`) and takes commands:

    ("send", client, count)   that many events to this client's watch -> when the first was sent
    ("expire", client)        ends its watch as too old, in the stream -> None
    ("asked", client)         its requests, with times, since the last time -> list
    ("cpu",)                  CPU seconds so far -> float
"""

from __future__ import annotations

import collections
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import orjson

from benchmarks.scenes import objects
from benchmarks.scenes.children import Pipe
from shmcache.protocol.framing import Chunker

PAGED, WHOLE, HUGE = "paged", "in one body", "in one body, made on the fly"
LIST_VERSION = objects.FIRST_UPDATE_VERSION - 1
HUGE_TEMPLATES = 1_000
HUGE_PIECE = 200  # items in one write
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
EXPIRED = {
    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
    "reason": "Expired", "message": "too old resource version: 1 (2)",
}  # fmt: skip
NO_WATCH_LIST = {
    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422,
    "reason": "Invalid",
    "message": "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the "
    "WatchList feature gate is enabled",
}  # fmt: skip

Asked = tuple[str, float]
"""list, page or watch, and its time."""


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Events:
    """Two updates of each pod, taken in turns, so that each one changes something."""

    def __init__(self, pods: list[objects.Object]) -> None:
        self._sides = [_encoded(pods, side) for side in (0, 1)]
        self._turn = 0
        self.next = objects.FIRST_UPDATE_VERSION

    def pieces(self, count: int) -> Iterator[memoryview]:
        """`count` events with the next versions, in pieces that are to be sent before the next."""
        while count:
            body, versions, ends = self._sides[self._turn]
            self._turn ^= 1
            some = min(count, len(versions))
            for place, version in zip(
                versions[:some], range(self.next, self.next + some), strict=True
            ):
                body[place : place + 10] = b"%d" % version
            self.next += some
            count -= some
            yield memoryview(body)[: ends[some - 1]]


def _encoded(pods: list[objects.Object], side: int) -> tuple[bytearray, list[int], list[int]]:
    """A turn's events, the places of their versions, and their ends."""
    body, versions, ends = bytearray(), [], []
    for number, pod in enumerate(pods):
        changed = objects.status_update(pod, 2 * number + side)
        update = {"kind": "Pod", "apiVersion": "v1", **changed}
        version = update["metadata"]["resourceVersion"].encode()
        event = framed(orjson.dumps({"type": "MODIFIED", "object": update}) + b"\n")
        versions.append(len(body) + event.index(b'"resourceVersion":"' + version) + 19)
        body += event
        ends.append(len(body))
    return body, versions, ends


def ordered(count: int) -> list[objects.Object]:
    """The corpus; the last pod in the order of keys comes last, as it does in a difference."""
    pods = list(objects.pods(count))
    last = max(pods, key=objects.key_of)
    return [*(pod for pod in pods if pod is not last), last]


class Bodies:
    """The pages of a LIST in their framing."""

    def __init__(self, pods: list[objects.Object]) -> None:
        self._items = [orjson.dumps(pod) for pod in pods]
        self._kept: dict[tuple[int, int], bytes] = {}

    def page(self, start: int, limit: int) -> bytes:
        """Items from `start` on; without a limit all the rest."""
        found = self._kept.get((start, limit))
        if found is None:
            end = start + limit if limit else len(self._items)
            token = str(end) if end < len(self._items) else ""
            chunker = Chunker()
            pieces = [b"".join(map(framed, chunker.write(opening(token))))]
            for number, item in enumerate(self._items[start:end]):
                for data in (b"," if number else b"", item):
                    pieces += map(framed, chunker.write(data))
            pieces += map(framed, [*chunker.write(b"]}\n"), *chunker.flush()])
            found = self._kept[start, limit] = b"".join(pieces) + END
        return found


def opening(token: str) -> bytes:
    """A list up to its first item."""
    metadata = {"resourceVersion": str(LIST_VERSION), **({"continue": token} if token else {})}
    head = orjson.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": metadata})
    return head[:-1] + b',"items":['


class HugeBody:
    """A list of many pods in one body that is never whole in memory: templates with a number each.

    Name, uid, address and container ids of each pod are its own.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._templates = [_template(pod) for pod in objects.pods(min(count, HUGE_TEMPLATES))]

    def pieces(self) -> Iterator[bytes]:
        """The body in its framing, to be sent one after the other."""
        yield framed(opening(""))
        for start in range(0, self._count, HUGE_PIECE):
            items = b",".join(
                (b"%08d" % number).join(self._templates[number % len(self._templates)])
                for number in range(start, min(start + HUGE_PIECE, self._count))
            )
            yield framed(items if start == 0 else b"," + items)
        yield framed(b"]}\n") + END


def _template(pod: objects.Object) -> list[bytes]:
    """The pod's JSON, cut where the number goes."""
    mark = "@" * 8
    metadata, status = pod["metadata"], pod["status"]
    metadata["name"] += "-" + mark
    metadata["uid"] = mark + metadata["uid"][8:]
    metadata["resourceVersion"] = "1" + mark
    status["podIP"] = status["podIPs"][0]["ip"] = "10." + mark
    for container in status["containerStatuses"]:
        kind, _, name = container["containerID"].rpartition("/")
        container["containerID"] = f"{kind}/{mark}{name[8:]}"
    return orjson.dumps(pod).split(mark.encode())


class Canned:
    """The server's state: bodies, events, open watches by client, and the requests so far."""

    def __init__(self, count: int, how: str) -> None:
        self._pods = [] if how == HUGE else ordered(count)
        self._how = how
        self._bodies = Bodies(self._pods)
        self._huge = HugeBody(count) if how == HUGE else None
        self._events: Events | None = None  # made at the first request
        self._watches: dict[str, tuple[socket.socket, threading.Event]] = {}
        self._asked: dict[str, list[Asked]] = collections.defaultdict(list)
        self._changed = threading.Condition()

    # ---- the parent's commands -----------------------------------------------------------------

    def do(self, command: str, client: str = "", count: int = 0) -> object:
        if command == "send":
            return self._send(client, count)
        if command == "expire":
            line = orjson.dumps({"type": "ERROR", "object": EXPIRED}) + b"\n"
            sock, ended = self._watches.pop(client)
            sock.sendall(framed(line) + END)
            ended.set()
            return None
        if command == "asked":
            return self._asked.pop(client, [])
        return time.process_time()

    def _send(self, client: str, count: int) -> float:
        with self._changed:
            if not self._changed.wait_for(lambda: client in self._watches, 60):
                raise TimeoutError(f"{client} has no watch")
        sock, _ = self._watches[client]
        self._events = self._events or Events(self._pods)
        began = time.monotonic()
        for piece in self._events.pieces(count):
            sock.sendall(piece)
        return began

    # ---- clients' requests -----------------------------------------------------------------------

    def talk(self, sock: socket.socket) -> None:
        """One connection, in a thread of its own."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # a client may leave at any time
        with contextlib.suppress(ConnectionError), sock, sock.makefile("rb") as lines:
            while request := lines.readline():
                headers = {}
                while line := lines.readline().strip():
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                client = headers.get("user-agent", "").partition("/")[0]
                query = parse_qs(urlsplit(request.split()[1].decode()).query)
                self._answer(sock, client, {name: found[0] for name, found in query.items()})

    def _answer(self, sock: socket.socket, client: str, query: dict[str, str]) -> None:
        if "sendInitialEvents" in query:
            body = orjson.dumps(NO_WATCH_LIST)
            sock.sendall(HEAD.replace(b"200 OK", b"422 Unprocessable Entity") + framed(body) + END)
        elif query.get("watch", "").lower() in {"true", "1"}:
            self._watch(sock, client)
        elif self._huge:
            self._asked[client].append(("list", time.monotonic()))
            sock.sendall(HEAD)
            for piece in self._huge.pieces():
                sock.sendall(piece)
        else:
            limit = int(query.get("limit", "0")) if self._how == PAGED else 0
            start = int(query.get("continue", "0"))
            body = self._bodies.page(start, limit)
            self._asked[client].append(("page" if start else "list", time.monotonic()))
            sock.sendall(HEAD)
            sock.sendall(body)

    def _watch(self, sock: socket.socket, client: str) -> None:
        sock.sendall(HEAD)
        ended = threading.Event()
        with self._changed:
            self._asked[client].append(("watch", time.monotonic()))
            self._watches[client] = sock, ended
            self._changed.notify_all()
        ended.wait()


def serve(pipe: Pipe, count: int, how: str) -> None:
    """The child: its port first, then an answer to each command."""
    canned = Canned(count, how)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=canned.talk, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    pipe.answer(listener.getsockname()[1])
    while True:
        pipe.answer(canned.do(*pipe.next()))
