"""What do 50 leaves that begin at once cost a relay, against one leaf?

One server process has a cache of 10,000 pods. A leaf takes its first fill as `shmcache run` does: a
watch-list, compressed. Leaves are sockets in a process of their own, which counts bytes; the first
leaf of each turn unpacks its fill, too, and so finds the length of all of them. Between two turns
lies a pause, after which the server has forgotten the last fill (FILL2), so that each turn pays for
one.
"""

from __future__ import annotations

import contextlib
import select
import socket
import statistics
import time
import zlib
from collections.abc import Iterator

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, at_most, show_s
from benchmarks.questions.serve_watch import _serve
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, directory
from shmcache import _hot
from shmcache.serve.watch.fills import SECONDS

PODS, LEAVES = 10_000, 50
CPU, TIME = 2.0, 5.0
READ = 1 << 18
REQUEST = (
    b"GET /api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    b"&allowWatchBookmarks=true&timeoutSeconds=3600 HTTP/1.1\r\n"
    b"Host: 127.0.0.1\r\nAccept-Encoding: gzip\r\n\r\n"
)
END = b"k8s.io/initial-events-end"


def run(quick: bool) -> list[Row]:
    pods, turns = (2_000, 3) if quick else (PODS, 5)
    with relay(pods) as scene:
        single, many = [], []
        for _ in range(turns):
            single.append(scene.turn(1))
            many.append(scene.turn(LEAVES))
    cpu, took = (
        statistics.median(b[i] / a[i] for a, b in zip(single, many, strict=True)) for i in (0, 1)
    )
    one, all_ = ([statistics.median(x[i] for x in side) for i in (0, 1)] for side in (single, many))
    question = f"first fill of {LEAVES} leaves at once, {pods:,} pods"
    return [
        Row(
            question=f"{question}: CPU of the relay",
            ours=show_s(all_[0]),
            peer=f"one leaf {show_s(one[0])}",
            **at_most(CPU, cpu),
        ),
        Row(
            question=f"{question}: until all have it",
            ours=show_s(all_[1]),
            peer=f"one leaf {show_s(one[1])}",
            **at_most(TIME, took),
        ),
    ]


class Scene:
    """A relay, and a process for its leaves."""

    def __init__(self, server: Children, leaves: Children) -> None:
        self._server, self._leaves = server, leaves

    def turn(self, count: int) -> tuple[float, float]:
        """Seconds of the relay's CPU, and until all leaves had their fill."""
        time.sleep(2 * SECONDS)
        before = self._cpu()
        self._leaves.send(count)
        [seconds] = self._leaves.receive()
        return self._cpu() - before, seconds

    def _cpu(self) -> float:
        self._server.send("cpu")
        [found] = self._server.receive()
        return float(found) / 1e9


@contextlib.contextmanager
def relay(pods: int) -> Iterator[Scene]:
    with directory() as name, shmcache.Writer(name, [RESOURCE]) as writer:
        writer.replace(RESOURCE, objects.pods(pods), str(objects.FIRST_UPDATE_VERSION))
        with Children(_serve, [(name,)]) as server:
            [port] = server.receive()
            with Children(_follow, [(port,)]) as leaves:
                leaves.receive()
                yield Scene(server, leaves)


class Leaf:
    """One watch-list: the bytes that came, without their framing."""

    __slots__ = ("_chunks", "count", "sock")

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.sendall(REQUEST)
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.sock.recv(1)
        assert head.startswith(b"HTTP/1.1 200"), head
        assert b"Content-Encoding: gzip" in head, head
        self._chunks = _hot.Chunks()
        self.count = 0

    def take(self) -> bytes:
        data = self._chunks.feed(self.sock.recv(READ))
        self.count += len(data)
        return data


class FirstLeaf(Leaf):
    """The one that unpacks its fill, a member after the other, and so finds its length."""

    __slots__ = ("_tail", "_unpack", "length")

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.length = 0
        self._tail, self._unpack = b"", zlib.decompressobj(31)

    def take(self) -> bytes:
        data = packed = super().take()
        while data and not self.length:
            self._tail = (self._tail + self._unpack.decompress(data))[-READ:]
            data = self._unpack.unused_data
            if self._unpack.eof:
                self._unpack = zlib.decompressobj(31)
            if END in self._tail:
                self.length = self.count
        return packed


def _follow(pipe: Pipe, port: int) -> None:
    count = pipe.ready()
    while True:
        start = time.monotonic()
        first = FirstLeaf(port)
        leaves = {
            leaf.sock.fileno(): leaf for leaf in (first, *(Leaf(port) for _ in range(count - 1)))
        }
        poll = select.epoll()
        for fd in leaves:
            poll.register(fd, select.EPOLLIN)
        while not first.length or any(leaf.count < first.length for leaf in leaves.values()):
            ready = poll.poll(30)
            if not ready:
                raise AssertionError("fills of different lengths: they are not shared")
            for fd, _ in ready:
                leaves[fd].take()
        took = time.monotonic() - start
        poll.close()
        for leaf in leaves.values():
            leaf.sock.close()
        pipe.answer(took)
        count = pipe.next()


if __name__ == "__main__":
    harness.main(__doc__, run)
