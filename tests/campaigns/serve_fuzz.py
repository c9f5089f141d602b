"""Fuzzing of `shmcache serve` over sockets: no 500, nothing logged, nothing left behind.

Run as a script, by `make serve-fuzz`: FUZZED="--seconds 600 --clients 4", SEED=. Requests are made
of valid and invalid parts, then some are cut, spliced, doubled or bent at random bytes, and sent in
pieces, several at a time, while the cache changes. The seed determines them.
"""

from __future__ import annotations

import argparse
import base64
import gc
import logging
import multiprocessing
import os
import random
import re
import socket
import struct
import threading
import time
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import quote

import psutil

import shmcache
from shmcache.serve.limits import Limits
from shmcache.serve.server import Serving
from shmcache.testing.serving import ServeThread

SLOW = Serving(fresh_seconds=0.02, limits=Limits(head_seconds=0.5, body_seconds=0.5))
PATIENCE = 30.0
GROWTH = 16 << 20
SERVED = {100, 101, *range(200, 500), 501, 503, 504}
PATHS = ["/", "*", "/api", "/apis", "/api/v1", "/api/v1/pods", "/api/v1/namespaces/default/pods",
         "/api/v1/namespaces/default/pods/p-0001", "/api/v1/namespaces/default/pods/p-0002/log",
         "/api/v1/nodes", "/version", "/openapi/v3", "/readyz?verbose", "/apis/apps/v1/deployments",
         "//", "/api/v1/namespaces/%00/pods", "/api/v1/namespaces/%ff/pods/%c3%28",
         "/api/v1/namespaces/%zz/pods", "http://localhost/api/v1/pods", "http://[x/", "http://]/",
         "/api/v1/namespaces/default/configmaps/big"]  # fmt: skip
NAMES = ["limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "watch",
         "fieldSelector", "timeoutSeconds", "sendInitialEvents", "allowWatchBookmarks",
         "includeObject", "pretty"]  # fmt: skip
FORMAT = '{"v":"meta.k8s.io/v1","rv":%s,"start":%s}'
TOKEN = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTAwLCJzdGFydCI6Ii9hXHUwMDAwIn0"  # noqa: S105
MOST = str((1 << 63) - 1)
VERSIONS = ["1", "100", "-1", "0", "true", "null", "1.5", MOST, "9" * 30, "9" * 5000]
STARTS = [r'"/a\u0000"', r'"/default/p-0002\u0000"', r'"/\ud800"', r'"/../\udfff"', r'"/\u0000/"',
          '""', "[" * 9000, '{"a":' * 1500, "1"]  # fmt: skip
VALUES = ["", "0", "1", "-1", "3", "100", "99999999999999999999", "9" * 5000, MOST, "true", "Exact",
          "NotOlderThan",
          "a=b", "a in (b,c)", "!a", "a>1", "spec.nodeName=node-1", "metadata.name=p-0001",
          "x" * 9000, TOKEN, TOKEN[:-3], "Object", "None", "%", "é\u2028"]  # fmt: skip
HEADERS = [b"Accept: application/json", b"Accept: application/json;as=Table;v=v1;g=meta.k8s.io",
           b"Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
           b"Accept: text/plain;;;q=,", b"Accept-Encoding: gzip", b"Content-Length: 3",
           b"Content-Length: 0", b"Content-Length: x", b"Expect: 100-continue",
           b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Connection: close",
           b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13",
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Origin: http://evil",
           b"Origin: http://localhost", b"Origin: http://[", b"Origin: //]",
           b"Host: x", b"X-Long: " + b"y" * 70000, b" folded",
           b"Bad Name: x", b"\xff: x"]  # fmt: skip
BODIES = [b"", b"", b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"\xff" * 50, b"\x81\x85maskHello",
          b"\x88\x82\x00\x00\x00\x00\x03\xe8", b"\x89\x80mask",
          b"3 ; a=b ;c\r\nabc\r\n0\r\nA: b\r\n\r\n",
          b"1\r\na\r\n" * 5000 + b"0\r\n\r\n",
          b"0\r\nA: a\rb\r\n\r\n", b"0\r\n" + b"A: b\r\n" * 2000, b"\x89\x80mask" * 2000,
          b"\x80\x80mask", b"\x09\x80mask", b"\x83\x80mask",
          b"\x89\xfe\x00\x80mask" + b"a" * 128]  # fmt: skip


def token(luck: random.Random) -> str:
    """A look-alike of a continue token."""
    text = FORMAT % (luck.choice(VERSIONS), luck.choice(STARTS))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def value(luck: random.Random, name: str) -> str:
    """A parameter's value."""
    return token(luck) if name == "continue" and luck.random() < 0.7 else luck.choice(VALUES)


def plain(luck: random.Random) -> list[bytes]:
    """Up to 200 more headers, with blanks of any length, and sometimes one that is malformed."""
    count = luck.choice([0, 0, 0, 0, 8, 30, 95, 200])
    blanks = [b"", b" ", b"\t ", b" " * luck.choice([1, 100, 30_000])]
    lines = [
        b"X-%d:%bv%b" % (n, luck.choice(blanks[:3]), luck.choice(blanks)) for n in range(count)
    ]
    if luck.random() < 0.3:
        wrong = luck.choice([b"x", b"X-A : b", b"X-A:" + blanks[3] + b"\0", b"X-A: a\rb", b" x"])
        lines.insert(luck.randrange(len(lines) + 1), wrong)
    return lines


def request(luck: random.Random) -> bytes:
    """A look-alike of a request."""
    method = luck.choice(["GET", "GET", "GET", "GET", "HEAD", "OPTIONS", "POST", "get", ""])
    names = [luck.choice(NAMES) for _ in range(luck.randrange(4))]
    pairs = [(name, value(luck, name)) for name in names]
    if luck.random() < 0.2:
        pairs = [("continue", token(luck))]
    query = "&".join(f"{name}={quote(value)}" for name, value in pairs)
    if not any(name == "timeoutSeconds" for name, _ in pairs):
        query += "&timeoutSeconds=1"
    uri = luck.choice(PATHS) + (f"?{query}" if luck.random() < 0.7 else "")
    lines = [f"{method} {uri} HTTP/1.{luck.choice('1110')}".encode("ascii", "replace")]
    lines += [b"Host: localhost"] * (luck.random() < 0.95)
    lines += luck.sample(HEADERS, luck.choice([0, 0, 0, 1, 1, 2, 6]))
    lines += plain(luck)
    return b"\r\n".join(lines) + b"\r\n\r\n" + luck.choice(BODIES)


def bent(luck: random.Random, data: bytes) -> bytes:
    """Sometimes damages it."""
    found = bytearray(data)
    for _ in range(luck.choice([0, 0, 0, 0, 0, 1, 2, 8])):
        at = luck.randrange(len(found) + 1)
        match luck.randrange(4):
            case 0:
                found[at : at + 1] = luck.randbytes(1)
            case 1:
                del found[at : at + luck.randrange(20)]
            case 2:
                found[at:at] = found[: luck.randrange(60)]
            case _:
                found[at:at] = luck.choice([b"\r\n", b"\n", b"\0", b"%", b"/", b"\r\n\r\n"])
    return bytes(found)


class Errors(logging.Handler):
    """Every logged error is a failure."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


class Client:
    """Sends requests until its time is over."""

    def __init__(self, port: int, seed: int) -> None:
        self.luck = random.Random(seed)
        self.port = port
        self.asked = 0
        self.answers: dict[int, int] = {}
        self.wrong: list[tuple[bytes, list[int]]] = []

    def run(self, until: float) -> None:
        while time.monotonic() < until and not self.wrong:
            some = [request(self.luck) for _ in range(self.luck.choice([1, 1, 1, 2, 5]))]
            data = bent(self.luck, b"".join(some))
            codes = self.ask(data)
            self.asked += 1
            for code in codes:
                self.answers[code] = self.answers.get(code, 0) + 1
            if not set(codes) <= SERVED:
                self.wrong.append((data, codes))

    def ask(self, data: bytes) -> list[int]:
        """The codes of the answers; leaves after the first, or after a silence."""
        found, patient = b"", self.luck.random() < 0.2
        cuts = sorted(
            self.luck.randrange(len(data) + 1) for _ in range(self.luck.choice([0, 1, 3]))
        )
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as sock:
            try:
                for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                    sock.sendall(data[start:end])
                if self.luck.random() < 0.05:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return []  # by a reset: it does not wait for an answer
                sock.settimeout(0.2 if patient else 2.0)
                while patient or b"\r\n\r\n" not in found:
                    piece = sock.recv(1 << 16)
                    if not piece:
                        break
                    found = (found + piece)[-(1 << 18) :]
            except (BrokenPipeError, ConnectionResetError, TimeoutError):
                pass
        return [int(code) for code in re.findall(rb"^HTTP/1\.1 (\d{3}) ", found, re.MULTILINE)]


def pod(number: int, version: int) -> dict[str, Any]:
    metadata = {"name": f"p-{number:04}", "namespace": "default", "uid": f"u{number}",
                "resourceVersion": str(version), "labels": {"a": "bc"[number % 2]}}  # fmt: skip
    spec = {"nodeName": f"node-{number % 3}", "text": "\u2028<&>é" * (version % 50)}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}


def write(name: str, seed: int, pipe: Connection) -> None:
    """A process of its own, whose memory is not the server's: it creates, changes and deletes
    pods."""
    with shmcache.Writer(name, ["pods", "nodes", "configmaps"]) as writer:
        writer.replace("pods", [pod(number, 1) for number in range(200)], version="100")
        big = {"metadata": {"name": "big", "namespace": "default"}, "data": {"x": "y" * 300_000}}
        writer.replace("configmaps", [big], version="100")
        pipe.send("ready")
        change(writer, seed, pipe)


def change(writer: shmcache.Writer, seed: int, pipe: Connection) -> None:
    luck, version = random.Random(seed), 100
    while not pipe.poll(0.002):
        version += 1
        number = luck.randrange(200)
        with writer.batch():
            if luck.random() < 0.2:
                writer.delete("pods", f"default/p-{number:04}", str(version))
            else:
                writer.apply("pods", [pod(number, version)])
            writer.set_version("pods", str(version))


def settled(serve: ServeThread) -> None:
    """Waits until the server has dropped all traces of the requests."""
    server = serve.server
    deadline = time.monotonic() + PATIENCE
    while serve.call(lambda: len(server.connections) + server.waiting.taken + server.watches.count):
        assert time.monotonic() < deadline, "connections, requests or watches are left"
        time.sleep(0.02)
    serve.call(server.past.clear)
    gc.collect()


def fuzz(serve: ServeThread, cache: shmcache.Cache, seed: int, asked: argparse.Namespace) -> None:
    """Clients send requests for so long; raises if anything was wrong."""
    clients = [Client(serve.port, seed * 1000 + number) for number in range(asked.clients)]

    def burst(seconds: float) -> None:
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=client.run, args=(until,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        settled(serve)

    def held() -> tuple[int, int, int]:
        private = psutil.Process().memory_full_info().uss
        return private, len(os.listdir("/proc/self/fd")), cache.reader.roots

    burst(asked.seconds / 4)
    before = held()
    burst(asked.seconds * 3 / 4)
    after = held()
    total: dict[int, int] = {}
    for client in clients:
        for code, count in client.answers.items():
            total[code] = total.get(code, 0) + count
        assert not client.wrong, client.wrong
    print(f"{sum(client.asked for client in clients)} asked; answers {dict(sorted(total.items()))}")
    print(
        f"memory {before[0] >> 20} to {after[0] >> 20} MiB, descriptors {before[1]} to {after[1]}"
    )
    assert serve.server.stats.errors == 0, serve.server.stats
    assert after[0] - before[0] < GROWTH, "memory"
    assert after[1] <= before[1] + 2, "descriptors"
    assert after[2] <= before[2] + 2, "pinned states"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=4)
    asked = parser.parse_args()
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"SEED={seed}", flush=True)
    errors = Errors()
    logging.getLogger("shmcache").addHandler(errors)
    name = f"serve-fuzz-{os.getpid()}"
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    writing = spawn.Process(target=write, args=(name, seed, theirs), daemon=True)
    writing.start()
    assert ours.recv() == "ready"
    try:
        with shmcache.attach(name) as cache, ServeThread(cache, SLOW) as serve:
            fuzz(serve, cache, seed, asked)
    finally:
        ours.send("over")
        writing.join(PATIENCE)
        print("\n".join(errors.found[:3]))
    assert not errors.found
    print("nothing was wrong")


if __name__ == "__main__":
    main()
