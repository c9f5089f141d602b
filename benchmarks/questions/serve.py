"""What does it cost to answer over HTTP from the cache, next to a web framework over a dict?

Each server runs in a process of its own; a client in another one sends requests over a few
persistent connections, and checks the answers. The figure is the server's CPU time for each answer:
the client's share of the machine is not our question. The peer is what a team would write: FastAPI,
orjson and a dict of decoded objects in each worker, under uvicorn with httptools and uvloop,
without access log. Its GET encodes one object by orjson, its LIST all of them, with `items` and
`metadata` as ours.

Memory of a request in flight: resident and shared pages of the server while clients that do not
read hold lists open, less its earlier memory, over their number.
"""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

import shmcache
from benchmarks import harness
from benchmarks.harness import Row
from benchmarks.scenes import objects
from benchmarks.scenes.children import Children, Pipe
from benchmarks.scenes.shared import RESOURCE, directory

COUNT = 10_000
HELD = 16
"""Lists that are held open for the memory of each."""
CONNECTIONS = 8
SETTLE_S = 2.0

Get = tuple[str, bytes]


def run(quick: bool) -> list[Row]:
    count = 1_000 if quick else COUNT
    gets, lists, rounds = (1_000, 3, 2) if quick else (5_000, 5, 5)
    with directory() as name, Children(fill, [(name, count)]) as writer:
        writer.receive()
        with Children(serve, [(name,)]) as ours, Children(serve_fastapi, [(count,)]) as peer:
            servers = {"ours": Asked(ours), "peer": Asked(peer)}
            return [
                get_row(servers, rounds, gets, count),
                list_row(servers, rounds, lists, count),
                first_byte_row(servers["ours"], rounds * lists),
                memory_row(servers["ours"]),
            ]


class Asked:
    """A server process."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self.port: int = children.receive()[0]

    def ask(self, what: str) -> Any:
        self._children.send(what)
        return self._children.receive()[0]

    def cpu(self, work: Callable[[], int]) -> float:
        """Seconds of the server's CPU for each of the answers that `work` counts."""
        before = self.ask("cpu")
        number = work()
        return float(self.ask("cpu") - before) / number


def get_row(servers: dict[str, Asked], rounds: int, gets: int, count: int) -> Row:
    """Pipelining is not used: one request, one answer, on each of several connections in turn."""
    path = {"ours": "/api/v1/namespaces/{}/pods/{}", "peer": "/namespaces/{}/pods/{}"}
    keys = [objects.key_of(obj).split("/") for obj in objects.pods(count)][: min(count, 500)]
    found: dict[str, list[float]] = {"ours": [], "peer": []}
    for turn in range(rounds + 1):
        for who, server in servers.items():
            asked = [path[who].format(*keys[number % len(keys)]) for number in range(gets)]
            spent = server.cpu(partial(get_all, server, asked))
            if turn:
                found[who].append(spent * 1e9)
    return compared("GET of one object: server CPU", found, 3)


def get_all(server: Asked, paths: list[str]) -> int:
    """One socket after the other; the answers must have their stated length."""
    socks = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CONNECTIONS)]
    for number, path in enumerate(paths):
        sock = socks[number % CONNECTIONS]
        sock.sendall(b"GET %b HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n" % path.encode())
        check(sock)
    for sock in socks:
        sock.close()
    return len(paths)


def check(sock: socket.socket) -> None:
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += received(sock)
    head = data[:end].lower()
    assert head.startswith(b"http/1.1 200"), head
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    left = length - (len(data) - end - 4)
    while left > 0:
        left -= len(received(sock))
    assert left == 0


def received(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 16)
    if not data:
        raise ConnectionError("the server has closed the connection")
    return data


def list_row(servers: dict[str, Asked], rounds: int, lists: int, count: int) -> Row:
    paths = {"ours": "/api/v1/pods", "peer": "/pods"}
    found: dict[str, list[float]] = {"ours": [], "peer": []}
    for turn in range(rounds + 1):
        for who, server in servers.items():
            body = whole(server, paths[who])
            assert len(orjson.loads(body)["items"]) == count, who
            spent = server.cpu(partial(drain_all, server, paths[who], lists))
            if turn:
                found[who].append(spent * 1e9)
    must = 5 if count == COUNT else None  # for few objects the fixed parts dominate
    return compared(f"LIST of {count:,} pods: server CPU", found, must)


def drain_all(server: Asked, path: str, lists: int) -> int:
    return sum(drained(server, path) > 0 for _ in range(lists))


def drained(server: Asked, path: str) -> int:
    """Bytes of an answer, read by a client that does nothing else with them."""
    buffer, size = bytearray(1 << 20), 0
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"GET %b HTTP/1.1\r\nHost: localhost\r\n" % path.encode())
        sock.sendall(b"Connection: close\r\n\r\n")
        while more := sock.recv_into(buffer):
            size += more
    return size


def whole(server: Asked, path: str) -> bytes:
    """A whole answer, decoded."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    found = answer.read()
    connection.close()
    return found


def compared(question: str, found: dict[str, list[float]], must: float | None) -> Row:
    ours, peer = harness.timing(found["ours"]), harness.timing(found["peer"])
    ratios = [b / a for a, b in zip(found["ours"], found["peer"], strict=True)]
    ratio = sorted(ratios)[len(ratios) // 2]
    verdict = harness.at_least(must, ratio) if must else {"ratio": ratio}
    return Row(question=question, ours=str(ours), peer=f"FastAPI + orjson {peer}", **verdict)


def first_byte_row(server: Asked, times: int) -> Row:
    """From the last byte of the request to the first of the answer, seen by the client."""
    waits = []
    for _ in range(times):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(b"GET /api/v1/pods HTTP/1.0\r\n\r\n")
            start = time.perf_counter_ns()
            sock.recv(1)
            waits.append((time.perf_counter_ns() - start) / 1e6)
            while sock.recv(1 << 20):
                pass
    middle = sorted(waits)[len(waits) // 2]
    return Row(question="LIST: first byte after", ours=f"{middle:.2f} ms",
               peer=f"worst of {times}: {max(waits):.2f} ms", must="≤ 10 ms",
               met=middle <= 10)  # fmt: skip


def memory_row(server: Asked) -> Row:
    """Clients that read nothing: the server keeps all bytes that the kernel's buffers do not
    take."""
    before = server.ask("memory")
    socks = []
    for _ in range(HELD):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n\r\n")
        sock.recv(1)
        socks.append(sock)
    time.sleep(SETTLE_S)
    each = (server.ask("memory") - before) / HELD / 1e6
    for sock in socks:
        sock.close()
    return Row(question=f"memory of a list in flight, {HELD} at once", ours=f"{each:.2f} MB",
               peer="", must="≤ 8 MB", met=each <= 8)  # fmt: skip


# ---- the processes -------------------------------------------------------------------------------


def fill(pipe: Pipe, name: str, count: int) -> None:
    with shmcache.Writer(name, [RESOURCE], arena_max=4 << 30) as writer:
        writer.replace(RESOURCE, objects.pods(count), version="1000000")
        pipe.answer(None)
        pipe.next()


def serve(pipe: Pipe, name: str) -> None:
    import threading

    from shmcache.serve.server import Server

    cache = shmcache.attach(name)
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(cache, listener)
    server.start()
    threading.Thread(target=answer, args=(pipe, listener.getsockname()[1]), daemon=True).start()
    server.loop.run()


def serve_fastapi(pipe: Pipe, count: int) -> None:
    import threading

    import fastapi
    import uvicorn

    stored = {objects.key_of(obj): obj for obj in objects.pods(count)}
    app = fastapi.FastAPI()

    @app.get("/namespaces/{namespace}/pods/{name}")
    async def get(namespace: str, name: str) -> fastapi.Response:
        found = stored.get(f"{namespace}/{name}")
        if found is None:
            return fastapi.Response(status_code=404)
        return fastapi.Response(orjson.dumps(found), media_type="application/json")

    @app.get("/pods")
    async def list_() -> fastapi.Response:
        text = orjson.dumps(
            {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(stored.values())}
        )
        return fastapi.Response(text, media_type="application/json")

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=answer, args=(pipe, listener.getsockname()[1]), daemon=True).start()
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False,
                            log_level="warning")  # fmt: skip
    uvicorn.Server(config).run(sockets=[listener])


def answer(pipe: Pipe, port: int) -> None:
    """In a thread of each server: sends its CPU time and its memory on request."""
    import psutil

    pipe.answer(port)
    process = psutil.Process()
    while True:
        try:
            asked = pipe.next()
        except EOFError:
            os._exit(0)
        pipe.answer(time.process_time() if asked == "cpu" else process.memory_full_info().uss)


if __name__ == "__main__":
    harness.main(__doc__, run)
