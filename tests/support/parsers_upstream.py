"""The parsers that bytes of the API server, of proxies before it, of etcd, of definitions of custom
resources and of commands reach, each with inputs of any size. See `growing.py`.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
from collections.abc import Callable
from types import SimpleNamespace

from growing import Parser

from shmcache import _hot
from shmcache.engine.config import checks, value_types
from shmcache.errors import ShmCacheError
from shmcache.protocol import framing, jsonpath
from shmcache.protocol.selectors.shards import ShardSelector, parse_share
from shmcache.protocol.tables import ages, printcustom
from shmcache.serve.proxy import proxy, upstream
from shmcache.source import credentials
from shmcache.source.etcd import values
from shmcache.source.etcd.keys import KeyPattern

REFUSALS = (ValueError, LookupError, ShmCacheError, http.client.HTTPException, RecursionError)
KV = SimpleNamespace(mod_revision=7, create_revision=3, version=2)
EVENT = b'{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}}\n'
PATTERN = KeyPattern("/a/{namespace}/{name}/b")
LONG = KeyPattern("/a/{namespace}/{name*}")


def many(one: bytes, size: int) -> bytes:
    return one * (size // len(one))


def fed(make: Callable[[], _hot.Frames | _hot.Chunks | _hot.ItemScanner], data: bytes,
        step: int = 1 << 40) -> Callable[[], object]:  # fmt: skip
    """Reads data that arrives in pieces."""

    def read() -> None:
        reader = make()
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])

    return read


def path(text: str) -> Callable[[], object]:
    return lambda: jsonpath.path(text)


def walked(text: str, obj: object) -> Callable[[], object]:
    steps = jsonpath.path(text)
    return lambda: jsonpath.walk(steps, obj)


def value(data: bytes, form: str = "object") -> Callable[[], object]:
    return lambda: values.object_text(data, form, ("n", "a"), KV, revisions=True)


def answered(data: bytes) -> Callable[[], object]:
    """The head of an answer, and its body."""

    class Sock:
        def makefile(self, _mode: str) -> io.BytesIO:
            return io.BytesIO(data)

    def read() -> object:
        answer = upstream._Final(Sock())
        answer.begin()
        return answer.read()

    return read


def column(text: str) -> Callable[[], object]:
    row = {"name": "A", "type": "string", "jsonPath": text}
    obj = {"metadata": {"name": "a"}, "a": [{"b": "c"}] * 3}
    return lambda: printcustom.declared_column(row).cell(obj)


OK = b"HTTP/1.1 200 OK\r\n"
INTERIM = b"HTTP/1.1 103 Hints\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
RANGE = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"

PARSERS: dict[str, Parser] = {
    # of the API server
    "events": lambda n: fed(_hot.Frames, many(EVENT, n)),
    "events in small pieces": lambda n: fed(_hot.Frames, many(EVENT, n), 7),
    "one event in small pieces": lambda n: fed(
        _hot.Frames, EVENT.replace(b'"a"', b'"' + b"a" * n + b'"'), 64
    ),
    "an event without end": lambda n: fed(_hot.Frames, b'{"type":"ADDED","object":' + b"[" * n, 64),
    "an event of escapes": lambda n: fed(
        _hot.Frames, EVENT.replace(b'"a"', b'"' + b"\\n" * (n // 2) + b'"')
    ),
    "empty lines": lambda n: fed(_hot.Frames, b"\n" * n),
    "an event of members": lambda n: fed(
        _hot.Frames, EVENT.replace(b'"name"', many(b'"x":{},', n) + b'"name"')
    ),
    "a list": lambda n: fed(
        _hot.ItemScanner,
        b'{"kind":"PodList","metadata":{},"items":['
        + b",".join([b'{"metadata":{"name":"a"}}'] * (n // 26)) + b"]}",
    ),
    "a list in small pieces": lambda n: fed(
        _hot.ItemScanner, b'{"kind":"PodList","items":[' + many(b'{"metadata":{"name":"a"}},', n), 9
    ),
    "a list of blanks": lambda n: fed(_hot.ItemScanner, b'{"items":[' + b" " * n, 64),
    "members before the items": lambda n: fed(_hot.ItemScanner, b"{" + many(b'"a":{"b":[1]},', n)),
    "chunks": lambda n: fed(_hot.Chunks, many(b"1\r\na\r\n", n)),
    "chunks in small pieces": lambda n: fed(_hot.Chunks, many(b"3\r\nabc\r\n", n), 2),
    "one chunk in small pieces": lambda n: fed(_hot.Chunks, b"%x\r\n" % n + b"a" * n, 16),
    "a size of zeros": lambda n: fed(_hot.Chunks, b"0" * n, 16),
    "a chunk extension": lambda n: fed(_hot.Chunks, b"1;" + b"a" * n, 16),
    "trailers": lambda n: fed(_hot.Chunks, b"0\r\n" + many(b"A: b\r\n", n), 16),
    "a head that is passed on": lambda n: answered(OK + many(b"A: b\r\n", n) + b"\r\n"),
    "a header that is passed on": lambda n: answered(OK + b"A: " + b"b" * n + b"\r\n\r\n"),
    "interim answers": lambda n: answered(many(INTERIM, n) + OK + b"\r\n"),
    "chunks that are passed on": lambda n: answered(
        CHUNKED + many(b"1\r\na\r\n", n) + b"0\r\n\r\n"
    ),
    "trailers that are passed on": lambda n: answered(
        CHUNKED + b"0\r\n" + many(b"A: b\r\n", n) + b"\r\n"
    ),
    "a Connection header": lambda n: lambda: proxy._check_nominations(
        [("Connection", "a, " * (n // 3)), ("b", "c")]
    ),
    "Connection headers": lambda n: lambda: proxy._check_nominations(
        [("Connection", "a, b")] * (n // 20)
    ),
    "texts for a client": lambda n: lambda: framing.escaped(many("<&>\u2028é".encode(), n)),
    "a time": lambda n: lambda: ages.timestamp("2" * n),
    "a time of blanks": lambda n: lambda: ages.timestamp("2026-11-19T22:00:00" + " " * n + "Z"),
    # of definitions of custom resources, and of commands
    "steps of a path": lambda n: path(".a" * (n // 2)),
    "a path without its end": lambda n: path(".a[" + "b" * n),
    "brackets": lambda n: path("[" * n),
    "filters": lambda n: path("[?(@.a==1)]" * (n // 11)),
    "a filter of blanks": lambda n: path("[?(@" + " " * n + "\n)]"),
    "a filter of blanks on both sides": lambda n: path(
        "[?(@" + " " * (n // 2) + "<" + " " * (n // 2) + "\n)]"
    ),
    "a filter of blanks before a name": lambda n: path("[?(@" + " " * n + "a)]"),
    "a filter of blanks in a comparison": lambda n: path(
        "[?(@.a" + " " * (n // 3) + "<" + " " * (n // 3) + "b" + " " * (n // 3) + "c)]"
    ),
    "a filter of operators": lambda n: path("[?(@.a" + "<" * n + "\n)]"),
    "a filter in a filter": lambda n: path("[?(@" * (n // 4) + ")]"),
    "a filter without its end": lambda n: path("[?(" * (n // 3)),
    "names in quotes": lambda n: path("[" + ",".join(["'a'"] * (n // 4)) + "]"),
    "blanks between quotes": lambda n: path("['a'" + " " * n + "x]"),
    "a name of backslashes": lambda n: path("." + "\\a" * (n // 2)),
    "an index of digits": lambda n: path("[" + "1" * n + "]"),
    "parts of an index": lambda n: path("[" + "0," * (n // 2) + "0]"),
    "a slice": lambda n: path("[" + ":" * n + "]"),
    "a column": lambda n: column(".a[*].b" + ".c" * (n // 2)),
    "a column of unions": lambda n: column("".join([".a[*,*]"] * (n // 7))),
    "a column of descents": lambda n: column("..a" * (n // 3)),
    "a walk over a list": lambda n: walked(".a[*].b", {"a": [{"b": 1}] * (n // 4)}),
    "a walk over filters": lambda n: walked('.a[?(@.b=="c")]', {"a": [{"b": "d"}] * (n // 4)}),
    "shards": lambda n: lambda: ShardSelector.parse(" || ".join([RANGE] * (n // len(RANGE)))),
    "a shard of blanks": lambda n: lambda: ShardSelector.parse(RANGE + " " * n),
    "a shard of comments": lambda n: lambda: ShardSelector.parse("//" * (n // 2)),
    "comments and blanks": lambda n: lambda: ShardSelector.parse("// \n " * (n // 5) + "?"),
    "parentheses": lambda n: lambda: ShardSelector.parse("(" * n + RANGE),
    "a text without its end": lambda n: lambda: ShardSelector.parse("shardRange('" + "'" * n),
    "a share": lambda n: lambda: parse_share("1" * (n // 2) + "/" + "1" * (n // 2)),
    "an address": lambda n: lambda: value_types._ADDRESS.fullmatch("[" + "a" * n + "]:1x"),
    "a resource": lambda n: lambda: checks._RESOURCE.fullmatch("a" + "-a.a" * (n // 4) + "!"),
    "a label": lambda n: lambda: checks._LABEL.fullmatch("a" + "-a" * (n // 2) + "!"),
    # of etcd
    "a value": lambda n: value(
        b'{"kind":"Pod","apiVersion":"v1","metadata":{"a":"' + b"b" * n + b'"}}'
    ),
    "a value of blanks": lambda n: value(b"{" + b" " * n + b'"kind"'),
    "a value of kinds": lambda n: value(b"{" + many(b'"kind" : "a" , ', n) + b"!"),
    "a value of escapes": lambda n: value(b'{"a":"' + many(b"\\u0020", n) + b'"}'),
    "a value of letters in escapes": lambda n: value(b'{"a":"' + many(b"\\u0061", n) + b'"}'),
    "a value of brackets": lambda n: value(b"[" * n),
    "text": lambda n: value("é".encode() * (n // 2), "text"),
    "bytes": lambda n: value(b"\xff" * n, "bytes"),
    "any JSON": lambda n: value(b"[" + b"1," * (n // 2) + b"1]", "json"),
    "a key": lambda n: lambda: PATTERN.key_of(b"/a/" + b"b" * n + b"/"),
    "a key of slashes": lambda n: lambda: PATTERN.key_of(b"/a/" + b"b/" * (n // 2)),
    "a long key": lambda n: lambda: LONG.key_of(b"/a/b/" + b"c/" * (n // 2) + b"\n"),
    # of plugins
    "credentials": lambda n: lambda: credentials._parsed(
        json.dumps({"status": {"token": base64.b64encode(b"a" * n).decode()}})
    ),
    "an expiry": lambda n: lambda: credentials._parsed(
        json.dumps({"status": {"expirationTimestamp": "2026" * (n // 4)}})
    ),
    "brackets of a plugin": lambda n: lambda: credentials._parsed("[" * n),
    "a token": lambda n: lambda: credentials.bearer("a plugin", "a" * n + "\n"),
}  # fmt: skip
