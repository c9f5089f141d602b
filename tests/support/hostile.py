"""Clients of `shmcache serve` that are slow or greedy, each in one way, and their cost.

A Crowd is many connections that all misbehave in the same way, driven from one thread: each sends
its first bytes, then goes on with its filler as long as the server takes it, and reads nothing
unless its way reads. A connection that the server ends is opened again: attackers do not give up.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import psutil

import shmcache
from shmcache.engine.instant_writer import InstantWriter

PATIENCE = 60.0
CHANGES = 1000
"""Changes after the first state, so that an exact version differs from the latest one."""
NUMBER = b"@@@@@@"
"""In the first bytes of a way: another number for each connection."""
PODS = "/api/v1/pods"
GET = b"GET /api/v1/namespaces/default/pods/p-0001 HTTP/1.1\r\nHost: localhost\r\n"
LIST = b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n\r\n"
WATCH = b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: localhost\r\n"
BIG = b"GET /api/v1/namespaces/default/configmaps/big HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: localhost\r\n"
SOCKET = (
    WATCH + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://localhost\r\n\r\n"
)
PAGE = b"GET /ui/%b HTTP/1.1\r\nHost: localhost\r\n\r\n"
CONSISTENT = ("--consistency", "bounded", "--fresh-timeout", "5s")
"""Without a reflector that confirms anything, each request waits for so long."""
LONG = b"X-Long: " + b"a" * 60_000 + b"\r\n"
VALUES = b"%b,%b" % (NUMBER, b",".join(b"%x" % number for number in range(1800)))
TERMS = b"a!=%b," % NUMBER + b",".join(b"a!=%x" % number for number in range(1150))
FIELDS = b"metadata.name!=%b," % NUMBER + b",".join(
    b"metadata.name!=%x" % number for number in range(420)
)
"""As many terms as a selector may have, each of which is compiled."""


class Way(NamedTuple):
    """How a client misbehaves."""

    first: bytes
    filler: bytes = b""
    reads: bool = False
    """Whether it takes its answers."""
    most: int = 4 << 20
    """Bytes that one connection sends."""
    leaves: bool = False
    """Whether it ends its connection when it has sent them, and comes back."""
    flags: tuple[str, ...] = ()
    """Of a server that is open to it, besides the usual ones."""


WAYS: dict[str, Way] = {
    "idle": Way(b""),
    "half a head": Way(GET + b"X-A: ", b"a" * 4096, most=63 << 10),
    "half a head of short lines": Way(GET, b"A: b\r\n", most=63 << 10),
    "malformed heads": Way(
        b"", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 90 + b"x\r\n\r\n", reads=True
    ),
    "malformed heads of blanks": Way(
        b"", b"GET / HTTP/1.1\r\nA:" + b" " * 60_000 + b"\0\r\n\r\n", reads=True
    ),
    "requests with unread answers": Way(b"", (GET + b"\r\n") * 100),
    "requests without a token": Way(b"", (GET + b"\r\n") * 100, reads=True),
    "long tokens": Way(
        b"", GET + b"Authorization: Bearer " + b"t" * 50_000 + b"\r\n\r\n", reads=True
    ),
    "junk after a refusal": Way(b"nonsense\r\n\r\n", b"junk" * 1000),
    "most of a body": Way(POST + b"Content-Length: 3145728\r\n\r\n", b"a" * 4096, most=3 << 20),
    "a body in tiny chunks": Way(
        POST + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nab\r\n" * 500, most=3 << 20
    ),
    "trailers without end": Way(
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n" * 500, most=1 << 20
    ),
    "an unread list": Way(LIST),
    "an unread big object": Way(b"", BIG * 20, most=64 << 10),
    "an unread list with a long head": Way(LIST[:-2] + LONG + b"\r\n"),
    "an unread list with a long target": Way(LIST.replace(b"pods", b"pods?a=" + b"a" * 16_000)),
    "an unread list in gzip": Way(LIST[:-2] + b"Accept-Encoding: gzip\r\n\r\n"),
    "an unread list for people": Way(LIST.replace(b"pods", b"pods?pretty=1")),
    "an unread table": Way(
        LIST[:-2] + b"Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n\r\n"
    ),
    "an unread list by a long selector": Way(
        LIST.replace(b"pods", b"pods?labelSelector=app+notin+(%b)" % VALUES)
    ),
    "an unread list of an exact version": Way(
        LIST.replace(b"pods", b"pods?resourceVersion=100&resourceVersionMatch=Exact&limit=9000")
    ),
    "a wait for a version with a long head": Way(
        LIST.replace(b"pods", b"pods?resourceVersion=99999999")[:-2] + LONG + b"\r\n"
    ),
    "a long selector and no list": Way(
        LIST.replace(b"pods", b"pods?resourceVersion=99999999&labelSelector=a+in+(%b)" % VALUES)
    ),
    "an unread watch": Way(WATCH + b"\r\n"),
    "a watch with a long selector": Way(
        WATCH.replace(b"watch=1", b"watch=1&labelSelector=app+in+(%b)" % VALUES) + b"\r\n"
    ),
    "a watch with a long target": Way(
        WATCH.replace(b"watch=1", b"watch=1&a=" + b"a" * 16_000) + b"\r\n"
    ),
    "lists that are left at once": Way(LIST, leaves=True),
    "requests during a watch": Way(WATCH + b"\r\n", (GET + b"\r\n") * 100),
    "pings with unread answers": Way(SOCKET, b"\x89\x84maskabcd" * 500),
    "frames that no client may send": Way(SOCKET, b"\x8f\x80mask" * 500),
    "a watch with many terms": Way(
        WATCH.replace(b"watch=1", b"watch=1&labelSelector=" + TERMS) + b"\r\n"
    ),
    "many terms and no list": Way(
        LIST.replace(b"pods", b"pods?resourceVersion=99999999&labelSelector=" + TERMS)
    ),
    "a watch of many fields": Way(
        WATCH.replace(b"watch=1", b"watch=1&fieldSelector=" + FIELDS) + b"\r\n"
    ),
    "pings with the handshake": Way(SOCKET + b"\x89\x84maskabcd" * 6000),
    "an unread page": Way(PAGE % b"stream"),
    "a page with many terms": Way(PAGE % (b"stream?labels=" + TERMS)),
    "a page with a long text": Way(PAGE % (b"stream?q=" + b"a" * 16_000)),
    "searches with many terms": Way(b"", PAGE % (b"search?q=p&labels=" + TERMS), reads=True),
    "unread searches": Way(b"", (PAGE % b"search?q=p-") * 20),
    "unread histories": Way(b"", (PAGE % b"object?resource=pods&key=default/p-0001") * 20),
    "unread histories of a big object": Way(
        b"", (PAGE % b"object?resource=configmaps&key=default/big") * 20
    ),
    "histories of long keys": Way(
        b"", (PAGE % (b"object?resource=pods&key=default/" + b"a" * 15_000)) * 4, reads=True
    ),
    "unread looks at the past": Way(b"", (PAGE % b"past?seconds=9999999") * 20),
    "looks at the past": Way(b"", (PAGE % b"past?seconds=9999999") * 20, reads=True),
    "searches that are left at once": Way(PAGE % (b"search?q=none&labels=" + TERMS), leaves=True),
    "looks at the past that are left at once": Way(PAGE % b"past?seconds=9999999", leaves=True),
    "pages that are left at once": Way(PAGE % (b"stream?labels=" + TERMS), leaves=True),
    "requests during a page": Way(PAGE % b"stream", (PAGE % b"search?q=p-") * 20),
    "unread files of the page": Way(b"", (PAGE % b"") * 20),
    "unread consistent lists": Way(LIST, flags=CONSISTENT),
    "consistent lists with long heads": Way(LIST[:-2] + LONG + b"\r\n", flags=CONSISTENT),
    "consistent lists with many terms": Way(
        LIST.replace(b"pods", b"pods?labelSelector=" + TERMS), flags=CONSISTENT
    ),
    "consistent watches": Way(WATCH + b"\r\n", flags=CONSISTENT),
    "half a frame": Way(SOCKET + b"\x82\xfe\xff\xff", b"a" * 4096, most=60 << 10),
}
PLAIN = [name for name, way in WAYS.items() if not way.flags]
"""Ways that one server has at once."""
GUARDED = [
    "half a head", "half a head of short lines", "malformed heads", "malformed heads of blanks",
    "requests with unread answers", "requests without a token", "long tokens",
    "junk after a refusal", "most of a body", "a body in tiny chunks", "trailers without end",
]  # fmt: skip
"""Ways that need no token even if others do."""


class _One:
    """One hostile connection."""

    def __init__(self, crowd: Crowd, way: Way) -> None:
        self.way = way
        self.left = memoryview(way.first.replace(NUMBER, b"%06d" % (crowd.opened % 1_000_000)))
        self.sent = 0
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with contextlib.suppress(BlockingIOError):
            self.sock.connect(crowd.address)

    def write(self) -> bool:
        """Sends on; returns whether more is to be sent."""
        while True:
            if not self.left:
                if not self.way.filler or self.sent >= self.way.most:
                    return False
                self.left = memoryview(self.way.filler)
            count = self.sock.send(self.left)
            self.sent += count
            self.left = self.left[count:]

    def read(self) -> None:
        """Takes available bytes; raises if the server has ended the connection."""
        if not self.sock.recv(1 << 16):
            raise ConnectionResetError


class Crowd:
    """So many connections, spread over the ways."""

    def __init__(self, port: int, ways: list[str], count: int) -> None:
        self.address = ("127.0.0.1", port)
        self.ended = self.opened = 0
        """Connections that the server ended, and all that there were."""
        self._epoll = select.epoll()
        self._ones: dict[int, _One] = {}
        self._ways = [WAYS[way] for way in ways]
        for number in range(count):
            self._open(self._ways[number % len(ways)])
            if number % 100 == 0:
                self.pump(0.0)

    def _open(self, way: Way) -> None:
        self.opened += 1
        one = _One(self, way)
        self._ones[one.sock.fileno()] = one
        events = select.EPOLLOUT | select.EPOLLRDHUP | (select.EPOLLIN if way.reads else 0)
        self._epoll.register(one.sock.fileno(), events)

    def pump(self, seconds: float, between: Callable[[], object] = lambda: None) -> None:
        """Misbehaves for so long; calls `between` now and then."""
        until, begin = time.monotonic() + seconds, True
        while begin or time.monotonic() < until:
            begin = False
            for fd, events in self._epoll.poll(0.02, 512):
                self._happened(fd, events)
            between()

    def _happened(self, fd: int, events: int) -> None:
        one = self._ones[fd]
        try:
            if events & select.EPOLLIN:
                one.read()
            if events & (select.EPOLLERR | select.EPOLLHUP | select.EPOLLRDHUP):
                raise ConnectionResetError
            if events & select.EPOLLOUT and not one.write():
                if one.way.leaves:
                    raise ConnectionResetError
                more = select.EPOLLIN if one.way.reads else 0
                self._epoll.modify(fd, select.EPOLLRDHUP | more)
        except BlockingIOError:
            pass
        except OSError:
            self.ended += 1
            self._epoll.unregister(fd)
            del self._ones[fd]
            one.sock.close()
            self._open(one.way)

    def close(self) -> None:
        for one in self._ones.values():
            one.sock.close()
        self._ones.clear()
        self._epoll.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Others:
    """A well-behaved client: probes on new connections, and GETs on one that it keeps."""

    def __init__(self, port: int, token: str = "") -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._over = threading.Event()
        self.waits: list[float] = []
        """Seconds that each GET took."""
        self.probes: list[float] = []
        self.refused: list[str] = []
        """Probes and GETs without their answer, and why."""
        self._threads = [threading.Thread(target=self._ask), threading.Thread(target=self._probe)]

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        path = "/api/v1/namespaces/default/pods/p-0001"
        while not self._over.wait(0.002):
            begun = time.perf_counter()
            try:
                connection.request("GET", path, headers=self._headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    self.refused.append(f"GET: {answer.status}")
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                connection.close()  # idle for a moment, and another connection needed its place
                continue
            except OSError as error:
                self.refused.append(f"GET: {error!r}")
                connection.close()
            self.waits.append(time.perf_counter() - begun)
        connection.close()

    def _probe(self) -> None:
        while not self._over.wait(0.02):
            begun = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
            try:
                connection.request("GET", "/livez")
                status = connection.getresponse().status
                if status != 200:
                    self.refused.append(f"probe: {status}")
            except (OSError, http.client.HTTPException) as error:
                self.refused.append(f"probe: {error!r}")
            finally:
                connection.close()
            self.probes.append(time.perf_counter() - begun)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def p99(self) -> float:
        return sorted(self.waits)[int(len(self.waits) * 0.99)]


class Target:
    """`shmcache serve` in a process of its own, and its cache."""

    def __init__(self, *flags: str, pods: int = 2000, directory: str = "") -> None:
        self.name = f"hostile-{os.getpid()}"
        resources = [
            shmcache.Resource("pods", {"app": "metadata.labels.app"}),
            shmcache.Resource("configmaps"),
        ]
        self.writer = shmcache.Writer(self.name, resources, mode=0o644)
        self.writer.replace("pods", [pod(number) for number in range(pods)], version="100")
        instants = InstantWriter(self.writer.place, 0o644)
        instants.note(self.writer.position())
        for number in range(CHANGES):
            with self.writer.batch():
                self.writer.apply("pods", [pod(number % pods, 101 + number)])
                self.writer.set_version("pods", str(101 + number))
        big = {"metadata": {"name": "big", "namespace": "default"}, "data": {"x": "y" * 300_000}}
        self.writer.replace("configmaps", [big], version="100")
        instants.note(self.writer.position())
        instants.close()
        environment = {**os.environ, **({"PYTHONPATH": directory} if directory else {})}
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.process = psutil.Popen(
            [sys.executable, "-m", "shmcache", "serve", "--cache", self.name,
             "--listen", f"127.0.0.1:{self.port}", "--log-level", "error", "--ui", *flags],
            env=environment, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def memory(self) -> int:
        """Private memory of the process, in bytes."""
        found: int = self.process.memory_full_info().uss
        return found

    def close(self) -> bytes:
        """Ends it; returns its log."""
        self.process.terminate()
        _, logged = self.process.communicate(timeout=PATIENCE)
        self.writer.close()
        return bytes(logged)


def pod(number: int, version: int = 100) -> dict[str, Any]:
    """A pod of about a kilobyte that gzip makes little smaller than half."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"p-{number:04}",
            "namespace": "default",
            "uid": f"u{number}",
            "resourceVersion": str(version),
            "labels": {"app": f"{number % 1800:x}"},
        },
        "spec": {"text": random.Random(number).randbytes(400).hex()},
    }


class Cost(NamedTuple):
    """The memory that a crowd took."""

    idle: int
    peak: int
    ended: int


def cost(target: Target, ways: list[str], count: int, seconds: float) -> Cost:
    """The cost of so many connections, all of them idle first, then misbehaving."""
    with Crowd(target.port, ["idle"], count) as crowd:
        crowd.pump(1.0)
        idle = target.memory()
    peak = 0

    def look() -> None:
        nonlocal peak
        peak = max(peak, target.memory())

    with Crowd(target.port, ways, count) as crowd:
        crowd.pump(seconds, look)
        ended = crowd.ended
    return Cost(idle, peak, ended)


@contextlib.contextmanager
def target(*flags: str, **options: Any) -> Iterator[Target]:
    found = Target(*flags, **options)
    try:
        yield found
    finally:
        logged = found.close()
    assert not logged, logged.decode()
