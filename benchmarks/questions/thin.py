"""How long does a first fill take from a server behind a line of 100 Mbit/s, and how many bytes?

A proxy passes on so many bytes a second, and counts those towards the reflector. The reflector
fills an empty cache by a watch-list in gzip, as API servers from 1.36 on send it, by the same
without compression, and by pages of a list in gzip, in turns.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks import harness
from benchmarks.harness import Row, at_most, show_bytes, show_s
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.following import Opener, reflecting
from benchmarks.scenes.shared import RESOURCE, directory
from shmcache.testing import ApiServer

PODS, FEWER = 10_000, 1_000
TURNS = 5
BYTES_A_SECOND = 100e6 / 8
PIECE = 1 << 14
HOST = "127.0.0.2"
"""Another host, for the reflector: it asks those for gzip."""
BYTES, TIME = 1 / 6, 1.2


def run(quick: bool) -> list[Row]:
    pods, turns = (FEWER, 1) if quick else (PODS, TURNS)
    ways = {"gzip": (True, True), "identity": (True, False), "list": (False, True)}
    times: dict[str, list[float]] = {way: [] for way in ways}
    sizes: dict[str, list[int]] = {way: [] for way in ways}
    with ExitStack() as stack:
        lines = {}
        for watch_list in (True, False):
            server = stack.enter_context(Children(_serve, [(pods, watch_list)]))
            (port,) = server.receive()
            line = stack.enter_context(Children(_carry, [(port,)]))
            lines[watch_list] = line, line.receive()[0]
        for _ in range(turns):
            for way, (watch_list, compress) in ways.items():
                line, port = lines[watch_list]
                line.send("count")
                (before,) = line.receive()
                times[way].append(_fill(port, compress=compress))
                line.send("count")
                sizes[way].append(line.receive()[0] - before)
    took = {way: statistics.median(each) for way, each in times.items()}
    size = {way: statistics.median(each) for way, each in sizes.items()}
    question = f"first fill of {pods:,} pods over 100 Mbit/s, a watch-list in gzip"
    return [
        Row(
            question=f"{question}: bytes",
            ours=show_bytes(size["gzip"]),
            peer=f"without compression {show_bytes(size['identity'])}",
            **at_most(BYTES, size["gzip"] / size["identity"]),
        ),
        Row(
            question=f"{question}: until it is synced",
            ours=show_s(took["gzip"]),
            peer=f"a list in gzip {show_s(took['list'])}",
            **at_most(TIME, took["gzip"] / took["list"]),
            note=f"without compression {show_s(took['identity'])}",
        ),
    ]


def _fill(port: int, *, compress: bool) -> float:
    opener = Opener(f"http://{HOST}:{port}", compress=compress)
    with directory() as name:
        start = time.perf_counter()
        with reflecting(name, opener):
            return time.perf_counter() - start


# ---- the server and its line ---------------------------------------------------------------------


def _serve(pipe: Pipe, pods: int, watch_list: bool) -> None:
    with ApiServer(seed=1, watch_list=watch_list) as server:
        for pod in objects.pods(pods):
            del pod["metadata"]["resourceVersion"]
            server.load(RESOURCE, pod)
        server.faults.gzip_members(times=None)
        pipe.answer(server.port)
        pipe.next()


def _carry(pipe: Pipe, port: int) -> None:
    """Connections to a port, of so many bytes a second towards the client."""
    line = Line()
    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=_accept, args=(listener, port, line), daemon=True).start()
        pipe.answer(listener.getsockname()[1])
        while pipe.next():
            pipe.answer(line.carried)


class Line:
    """The line that all connections share."""

    def __init__(self) -> None:
        self.carried = 0
        self._free_at = 0.0
        self._lock = threading.Lock()

    def carry(self, count: int) -> None:
        """Returns when the line has carried so many bytes more."""
        with self._lock:
            self.carried += count
            begin = max(self._free_at, time.monotonic())
            self._free_at = begin + count / BYTES_A_SECOND
        time.sleep(max(0.0, self._free_at - time.monotonic()))


def _accept(listener: socket.socket, port: int, line: Line) -> None:
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for one, other, paced in ((client, server, None), (server, client, line)):
            threading.Thread(target=_pass_on, args=(one, other, paced), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket, line: Line | None) -> None:
    with contextlib.suppress(OSError):
        for data in _pieces(one):
            if line is not None:
                line.carry(len(data))
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


def _pieces(one: socket.socket) -> Iterator[bytes]:
    while data := one.recv(PIECE):
        yield data


if __name__ == "__main__":
    harness.main(__doc__, run)
