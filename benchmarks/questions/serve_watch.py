"""What does a watch of `shmcache serve` cost the server, for each event that a client gets?

Pods of 6 KB are changed one by one, a few under way at a time; 200 clients in processes of their
own watch them all, take the framing off and count whole lines with the right end. The figure is the
CPU time of the server processes. The limit is the loop that any server in Python has to run: the
same ready bytes, by one send() to each socket. And: the memory of a watch without events.

The growth from one process to two has a limit of its own, too: the same loop of send() in one
process and in two unrelated ones, in turns with the servers, and woken as often.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import statistics
import time
from collections.abc import Iterator

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, at_most, show_bytes, show_ns
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, directory
from shmcache import _hot
from shmcache.serve.limits import Limits
from shmcache.serve.server import Server, Serving

WATCHES = 200
PODS = 200
MUST = 50_000
GROWS = 1.10
IDLE = 1_000
IDLE_BYTES = 20_000
ENDING = b"}}\n"
READ = 1 << 18
AHEAD = 8
"""Updates that may be under way: no client falls behind, so none is left out."""


def run(quick: bool) -> list[Row]:
    turns, count = (1, 150) if quick else (5, 400)
    names = ("one", "two", "burst", "limit", "alone", "apart")
    costs: dict[str, list[float]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        sides = {number: stack.enter_context(served(number)) for number in (1, 2)}
        bare = {number: stack.enter_context(unrelated(number)) for number in (1, 2)}
        for _ in range(turns):
            costs["alone"].append(bare[1].turn(count))
            costs["apart"].append(bare[2].turn(count))
            costs["one"].append(sides[1].turn(count))
            costs["two"].append(sides[2].turn(count))
            costs["burst"].append(sides[1].turn(count, together=10))
            costs["limit"].append(limit(count))
    return [*_rows(costs), _idle(quick)]


def _rows(costs: dict[str, list[float]]) -> Iterator[Row]:
    one, burst, raw = (statistics.median(costs[name]) for name in ("one", "burst", "limit"))
    grown = statistics.median(
        two / one for one, two in zip(costs["one"], costs["two"], strict=True)
    )
    yield Row(
        question=f"deliveries of 6 KB pods to {WATCHES} watches, one update at a time",
        ours=f"{harness.show(1e6 / one)} k/s of server CPU ({show_ns(one)} each)",
        peer=f"send() of bytes that are there {show_ns(raw)}",
        ratio=one / raw,
        must=f"≥ {MUST // 1000} k/s of server CPU",
        met=1e9 / one >= MUST,
    )
    yield Row(
        question="the same, ten updates in each generation",
        ours=f"{harness.show(1e6 / burst)} k/s of server CPU ({show_ns(burst)} each)",
        peer="",
    )
    two = statistics.median(costs["two"])
    bare = statistics.median(b / a for a, b in zip(costs["alone"], costs["apart"], strict=True))
    yield Row(
        question="CPU a delivery with the watches on two processes, to one",
        ours=show_ns(two),
        peer=f"one process {show_ns(one)}; bare send() in two unrelated ones, to one: {bare:.2f}",
        **at_most(GROWS, grown),
    )


# ---- the scene -----------------------------------------------------------------------------------


class Scene:
    """Server processes, clients, and a writer."""

    def __init__(self, writer: shmcache.Writer, servers: Children, clients: Children) -> None:
        self._writer = writer
        self._servers = servers
        self._clients = clients
        self._pods = list(objects.pods(PODS))
        self._version = objects.FIRST_UPDATE_VERSION
        self._told = 0

    def turn(self, count: int, together: int = 1) -> float:
        """Nanoseconds of server CPU a delivery."""
        self._servers.send("cpu")
        before = sum(self._servers.receive())
        for number in range(count // together):
            self._update(together)
            self._told += together
            if number % max(1, AHEAD // together) == 0:
                self._await()
        self._await()
        self._servers.send("cpu")
        spent: int = sum(self._servers.receive()) - before
        return spent / (count // together * together * WATCHES)

    def _update(self, together: int) -> None:
        with self._writer.batch():
            for _ in range(together):
                self._version += 1
                pod = self._pods[self._version % PODS]
                pod["metadata"]["resourceVersion"] = str(self._version)
                self._writer.apply(RESOURCE, [pod])
            self._writer.set_version(RESOURCE, str(self._version))

    def _await(self) -> None:
        """Until each client has counted all events."""
        self._clients.send(self._told)
        self._clients.receive()


@contextlib.contextmanager
def served(processes: int) -> Iterator[Scene]:
    with directory() as name, shmcache.Writer(name, [RESOURCE]) as writer:
        writer.replace(RESOURCE, objects.pods(PODS), str(objects.FIRST_UPDATE_VERSION))
        with Children(_serve, [(name,)] * processes) as servers:
            ports = servers.receive()
            each = [(port, WATCHES // processes) for port in ports]
            with Children(_watch, each) as clients:
                clients.receive()
                yield Scene(writer, servers, clients)


def _serve(pipe: Pipe, name: str) -> None:
    """A server process, which reports its CPU time on request."""
    with shmcache.attach(name) as cache:
        listener = socket.create_server(("127.0.0.1", 0), backlog=WATCHES)
        server = Server(cache, listener, Serving(limits=Limits()))
        server.start()
        connection = pipe._connection  # noqa: SLF001 - its descriptor is one of the loop's

        def asked(_events: int) -> None:
            try:
                what = pipe.next()
            except EOFError:
                server.loop.stop()
                return
            pipe.answer(_private() if what == "memory" else time.process_time_ns())

        server.loop.add(connection.fileno(), select.EPOLLIN, asked)
        pipe.answer(listener.getsockname()[1])
        server.loop.run()


def _private() -> int:
    """Private bytes of this process."""
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_"))


class Client:
    """One watch: takes the chunks off, and counts lines."""

    __slots__ = ("chunks", "count", "sock", "tail")

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        version = objects.FIRST_UPDATE_VERSION
        path = f"/api/v1/pods?watch=1&resourceVersion={version}&timeoutSeconds=3600"
        self.sock.sendall(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path.encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.sock.recv(1)
        assert head.startswith(b"HTTP/1.1 200"), head
        self.chunks = _hot.Chunks()
        self.count = 0
        self.tail = b""

    def take(self) -> None:
        data = self.chunks.feed(self.sock.recv(READ))
        whole = self.tail + data
        lines = whole.count(b"\n")
        if lines:
            if not whole.startswith(b'{"type":"MODIFIED","object":{"'):
                raise AssertionError(whole[:200])
            if whole.count(ENDING) != lines:
                raise AssertionError("an incomplete line")
        self.count += lines
        self.tail = whole[whole.rfind(b"\n") + 1 :] if lines else whole


def _watch(pipe: Pipe, port: int, count: int) -> None:
    clients = [Client(port) for _ in range(count)]
    poll = select.epoll()
    by_fd = {client.sock.fileno(): client for client in clients}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    wanted = pipe.ready()
    while True:
        while any(client.count < wanted for client in clients):
            for fd, _ in poll.poll(30):
                by_fd[fd].take()
        if any(client.count > wanted for client in clients):
            raise AssertionError("more events than there were changes")
        pipe.answer("seen")
        wanted = pipe.next()


# ---- the limit, and memory -----------------------------------------------------------------------


def limit(count: int) -> float:
    """CPU nanoseconds of one send() of an event's bytes, with a reader at the other end."""
    line = objects.encode([next(iter(objects.pods(1)))])[0]
    listener = socket.create_server(("127.0.0.1", 0), backlog=WATCHES)
    with Children(_drain, [(listener.getsockname()[1],)]) as readers:
        socks = [listener.accept()[0] for _ in range(WATCHES)]
        readers.receive()
        start = time.process_time_ns()
        for _ in range(count // 4):
            for sock in socks:
                sock.send(line)
        spent = time.process_time_ns() - start
        for sock in socks:
            sock.close()
        readers.receive()
    listener.close()
    return spent / (count // 4 * WATCHES)


class Bare:
    """Processes that send an event's bytes to their share of the sockets on each command."""

    def __init__(self, senders: Children) -> None:
        self._senders = senders

    def turn(self, count: int) -> float:
        """CPU nanoseconds of one send()."""
        before = self._cpu()
        for number in range(count):
            self._senders.send("send")
            if number % AHEAD == 0:
                self._cpu()
        return (self._cpu() - before) / (count * WATCHES)

    def _cpu(self) -> int:
        self._senders.send("cpu")
        return sum(self._senders.receive())


@contextlib.contextmanager
def unrelated(processes: int) -> Iterator[Bare]:
    """As many processes, each with its share of the readers."""
    with Children(_send, [(WATCHES // processes,)] * processes) as senders:
        ports = senders.receive()
        readers = [(port, WATCHES // processes) for port in ports]
        with Children(_drain, readers) as drains:
            drains.receive()
            senders.send("begin")
            senders.receive()
            yield Bare(senders)
            senders.send("end")
            drains.receive()


def _send(pipe: Pipe, count: int) -> None:
    """The least work of a server: wakes, makes the text of one event, sends it to each."""
    pod = next(iter(objects.pods(1)))
    listener = socket.create_server(("127.0.0.1", 0), backlog=WATCHES)
    pipe.answer(listener.getsockname()[1])
    pipe.next()
    socks = [listener.accept()[0] for _ in range(count)]
    pipe.answer("ready")
    while (what := pipe.next()) != "end":
        if what == "cpu":
            pipe.answer(time.process_time_ns())
            continue
        line = objects.encode([pod])[0]
        for sock in socks:
            sock.send(line)
    for sock in socks:
        sock.close()


def _drain(pipe: Pipe, port: int, count: int = WATCHES) -> None:
    socks = {
        sock.fileno(): sock
        for sock in (socket.create_connection(("127.0.0.1", port)) for _ in range(count))
    }
    pipe.answer("ready")
    poll = select.epoll()
    for fd in socks:
        poll.register(fd, select.EPOLLIN)
    while socks:
        for fd, _ in poll.poll():
            if not socks[fd].recv(READ):
                socks.pop(fd).close()
    pipe.answer("ended")


def _idle(quick: bool) -> Row:
    count = IDLE // 4 if quick else IDLE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * count)), hard))
    with directory() as name, shmcache.Writer(name, [RESOURCE]) as writer:
        writer.replace(RESOURCE, objects.pods(PODS), str(objects.FIRST_UPDATE_VERSION))
        with Children(_serve, [(name,)]) as servers:
            (port,) = servers.receive()
            first = [Client(port) for _ in range(10)]
            servers.send("memory")
            (before,) = servers.receive()
            rest = [Client(port) for _ in range(count)]
            time.sleep(0.2)
            servers.send("memory")
            (after,) = servers.receive()
            for client in [*first, *rest]:
                client.sock.close()
    each = (after - before) / count
    return Row(
        question=f"{count:,} idle watches, memory of the server process for each",
        ours=show_bytes(each),
        peer="",
        must=f"≤ {IDLE_BYTES // 1000} KB",
        met=each <= IDLE_BYTES,
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    harness.main(__doc__, run)
