"""The parsers that files and etcd's connections reach, each with inputs of any size:
configurations, kubeconfigs, reels of a recorder, recordings, leases. See `growing.py`.
"""

from __future__ import annotations

import gzip
import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hpack
from growing import Parser

from shmcache._hot import EtcdAnswers, GrpcMessages
from shmcache.engine import config
from shmcache.errors import ShmCacheError
from shmcache.lease.record import LeaseRecord, wall_of
from shmcache.recorder import lines, patches, reels
from shmcache.recorder.disk import Disk
from shmcache.serve.ui import viewers
from shmcache.source import failures, inflate, kubeconfig, tape
from shmcache.source.etcd import http2, messages

REFUSALS = (ValueError, LookupError, ShmCacheError, RecursionError, TypeError, http2.CallFailed)
PLACE = tempfile.TemporaryDirectory()
OBJECT = b'{"apiVersion":"v1","kind":"W","metadata":{"name":"a"},"spec":{"x":1}}'
TOML = "[resources.pods]\n"
YAML = "apiVersion: v1\ncurrent-context: a\n"
tape._PIECE = 64  # a mebibyte otherwise: larger than what is measured


def many(one: str, size: int) -> str:
    return one * (size // len(one))


def written(data: str | bytes) -> str:
    path = Path(PLACE.name, "input")
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def toml(text: str) -> Callable[[], object]:
    path = written(text)
    return lambda: config.load(path, {}, {})


def yaml(text: str) -> Callable[[], object]:
    path = written(text)
    return lambda: kubeconfig.from_kubeconfig(path)


def taped(data: bytes) -> Callable[[], object]:
    path = written(data)

    def read() -> None:
        found = tape.Tape(path)
        while found.take() is not None:
            pass

    return read


def reel(packets: Iterable[bytes]) -> Callable[[], object]:
    path = Path(PLACE.name, "reel")
    path.unlink(missing_ok=True)
    writer = reels.ReelWriter.create(Disk(), str(path))
    for each in packets:
        writer.add(each)
    writer.write()
    writer.close()
    return lambda: [one.split(b"\n") for one in reels.ReelReader(str(path)).packets()]


def patched(value: Any, steps: patches.Patch) -> Callable[[], object]:
    return lambda: patches.apply(value, steps)


def messaged(wire: bytes, step: int = 1 << 20) -> Callable[[], object]:
    def read() -> None:
        reader = GrpcMessages()
        for at in range(0, len(wire), step):
            reader.feed(wire[at : at + step])

    return read


def message(data: bytes) -> bytes:
    return struct.pack(">BI", 0, len(data)) + data


def framed(data: bytes, size: int = 1 << 14) -> bytes:
    return b"".join(
        http2.frame(http2.DATA, 0, 1, data[at : at + size]) for at in range(0, len(data), size)
    )


def answered(count: int, **more: Any) -> Callable[[], object]:
    kv = {"key": b"/r/a/b", "value": OBJECT, "create_revision": 3, "mod_revision": 5, "version": 2}
    made = messages.WATCH.response(events=[{"type": 0, "kv": kv | more}] * count)
    wire = made.SerializeToString()
    return lambda: EtcdAnswers([(b"/r/", "a")]).read(wire)


def called(fields: list[tuple[str, str]], step: int = 1 << 14) -> Callable[[], object]:
    """Headers of an answer, in frames of this size."""
    block = hpack.Encoder().encode(fields, huffman=False)

    def read() -> None:
        call = object.__new__(http2.Http2Call)
        call._headers = hpack.Decoder(max_header_list_size=http2.HEADERS_MAX)
        call._held, call._answered = None, True
        call._control(1, http2.END_STREAM, 1, block[:step])
        for at in range(step, len(block), step):
            call._control(9, 0, 1, block[at : at + step])
        call._control(9, http2.END_HEADERS, 1, b"")

    return read


def lease(**spec: Any) -> Callable[[], object]:
    return lambda: wall_of(LeaseRecord.of({"spec": spec}).renewed)


PARSERS: dict[str, Parser] = {
    # configurations
    "resources": lambda n: toml("".join(f"[resources.a{i}]\n" for i in range(n // 20))),
    "namespaces": lambda n: toml(TOML + "namespaces = [" + many('"a",', n) + "]\n"),
    "a string of namespaces": lambda n: toml(TOML + 'namespaces = "' + many("a,", n) + '"\n'),
    "indices": lambda n: toml(
        TOML + "[resources.pods.indices]\n" + "".join(f"a{i} = 'a'\n" for i in range(n // 8))
    ),
    "an index of steps": lambda n: toml(
        TOML + "[resources.pods.indices]\na = '" + many(".a", n) + "'\n"
    ),
    "a comment": lambda n: toml("#" * n + "\n" + TOML),
    "blank lines": lambda n: toml("\n" * n + TOML),
    "brackets": lambda n: toml("a = " + "[" * n),
    "a string": lambda n: toml(f'name = "{"a" * n}"\n' + TOML),
    "a string of escapes": lambda n: toml(
        'name = "' + many("\\u0061", n) + '"\n' + TOML
    ),
    "a number": lambda n: toml(f"requests_per_second = {'1' * n}\n" + TOML),
    "unknown keys": lambda n: toml("".join(f"a{i} = 1\n" for i in range(n // 8)) + TOML),
    # kubeconfigs
    "clusters": lambda n: yaml(
        YAML + "clusters:\n" + "".join(f"- name: a{i}\n" for i in range(n // 12))
    ),
    "a list in brackets": lambda n: yaml(YAML + "clusters: [" + many("{},", n) + "]\n"),
    "a token of a user": lambda n: yaml(
        YAML + "users:\n- name: a\n  user: {token: " + "a" * n + "}\n"
        "contexts:\n- name: a\n  context: {cluster: a, user: a}\n"
        "clusters:\n- name: a\n  cluster: {server: 'http://a'}\n"
    ),
    "comments": lambda n: yaml(YAML + many("# a\n", n)),
    "aliases": lambda n: yaml(YAML + "a: &a [1]\nb: [" + many("*a,", n) + "]\n"),
    # recordings and reels
    "a recording": lambda n: taped(many('{"time":1,"type":"ADDED","object":{}}\n', n).encode()),
    "a line without end": lambda n: taped(b'{"time":1,"type":"' + b"a" * n),
    "a zipped recording": lambda n: taped(gzip.compress(many('{"time":1,"a":1}\n', n).encode())),
    "empty members of gzip": lambda n: lambda: list(
        inflate.inflate([gzip.compress(b"") * (n // 20)], inflate.WBITS["gzip"])
    ),
    "packets of a reel": lambda n: reel([b'A\t1\t"a/b"\t\t{}\n'] * (n // 16)),
    "a packet of a reel": lambda n: reel([b'A\t1\t"a/b"\t\t{}\n' * (n // 16)]),
    "a line of tabs": lambda n: lambda: lines.fields(b"A" + b"\t" * n),
    "a change of tabs": lambda n: lambda: lines.change(b"A\t1" + b"\t" * n),
    "steps in a list": lambda n: patched(
        {"a": [0] * (n // 8)}, [[["a", at], 1] for at in range(n // 8)]
    ),
    "steps in an object": lambda n: patched(
        {"a": {f"{at}": 0 for at in range(n // 8)}}, [[["a", f"{at}"], 1] for at in range(n // 8)]
    ),
    "members that go": lambda n: patched(
        {f"{at}": 0 for at in range(n // 8)}, [[[f"{at}"]] for at in range(n // 8)]
    ),
    "differences in a list": lambda n: lambda: patches.difference(
        [0] * (n // 8), [1] * (n // 8)
    ),
    # etcd's connection
    "messages": lambda n: messaged(framed(message(b"abc") * (n // 8))),
    "messages in small pieces": lambda n: messaged(framed(message(b"abc") * (n // 8)), 3),
    "a message in small frames": lambda n: messaged(framed(message(b"a" * n), 16), 64),
    "empty frames": lambda n: messaged(http2.frame(http2.DATA, 0, 1, b"") * (n // 9), 64),
    "pings of etcd": lambda n: messaged(http2.frame(http2.PING, 0, 0, bytes(8)) * (n // 17)),
    "frames that are cut": lambda n: messaged(http2.frame(http2.HEADERS, 0, 1, bytes(n)), 16),
    "events of etcd": lambda n: answered(n // 64),
    "a key of an event": lambda n: answered(1, key=b"/r/" + b"a" * n),
    "a value of an event": lambda n: answered(
        1, value=OBJECT.replace(b'"x"', b'"' + b"x" * n + b'"')
    ),
    "blanks in a value": lambda n: answered(
        1, value=OBJECT.replace(b":1", b":" + b" " * n + b"1")
    ),
    "brackets in a value": lambda n: answered(1, value=b"[" * n),
    "headers of etcd": lambda n: called([("a", "b")] * (n // 4)),
    "a message of etcd": lambda n: called(
        [("grpc-status", "1"), ("grpc-message", "%41" * (n // 3))]
    ),
    "headers in small frames": lambda n: called([("a", "b" * n)], 1),
    # of the API server
    "Retry-After": lambda n: lambda: failures.parse_retry_after("1" * n, now=0.0),
    "a date in Retry-After": lambda n: lambda: failures.parse_retry_after(
        "Sun, " + "1 " * (n // 2), now=0.0
    ),
    "a refusal": lambda n: lambda: failures.http_failure(
        400, {}, b'{"kind":"Status","message":"' + b"a" * n + b'"}', what="a", now=0.0
    ),
    "a renewal": lambda n: lease(renewTime="2" * n),
    "a renewal of digits": lambda n: lease(renewTime="2026-11-19T22:00:00." + "1" * n + "Z"),
    # of browsers
    "a search of the page": lambda n: lambda: viewers.Filter.read(
        {"q": "A" * n, "labels": ",".join(["a=b"] * (n // 4))}
    ),
}  # fmt: skip
