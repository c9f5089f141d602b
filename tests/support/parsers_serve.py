"""The parsers that bytes of serve's clients reach, with inputs of any size. See `growing.py`."""

from __future__ import annotations

from collections.abc import Callable

from growing import Parser

from shmcache.engine.config.value_types import seconds
from shmcache.errors import InvalidSelector
from shmcache.protocol import accept, failures, paths, tokens, validation
from shmcache.protocol.selectors import fields, labels
from shmcache.reader import selectors
from shmcache.serve.auth import access
from shmcache.serve.http import heads, websocket, zipping
from shmcache.serve.http.bodies import Body
from shmcache.serve.http.heads import BadRequest
from shmcache.serve.http.incoming import Incoming
from shmcache.serve.http.requests import address_of
from shmcache.serve.limits import Limits
from shmcache.settings import parse_size

WIDE = Limits(head_bytes=1 << 30, headers=1 << 30, target_bytes=1 << 30, body_bytes=1 << 30)
REFUSALS = (BadRequest, InvalidSelector, failures.Failure, ValueError, websocket.Broken,
            websocket.Refused)  # fmt: skip

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"


def head(data: bytes) -> Callable[[], object]:
    """Reads a request, of which everything arrives at once."""

    def read() -> object:
        heads._kept.clear()
        incoming = Incoming(WIDE)
        incoming.buffer += data
        return incoming.next()

    return read


def dripped(data: bytes, step: int) -> Callable[[], object]:
    """Reads a request that arrives in pieces."""

    def read() -> None:
        heads._kept.clear()
        incoming = Incoming(WIDE)
        for at in range(0, len(data), step):
            incoming.buffer += data[at : at + step]
            while incoming.body is not None and not incoming.feed_body() and incoming.body.stopped:
                pass
            if incoming.body is None:
                incoming.next()

    return read


def body(data: bytes) -> Callable[[], object]:
    def read() -> object:
        found = Body(length=0, chunked=True, limit=1 << 30)
        buffer = bytearray(data)
        while not found.feed(buffer, 1 << 30) and found.stopped:
            pass
        return found

    return read


def frames(data: bytes, step: int = 1 << 30) -> Callable[[], object]:
    def read() -> None:
        found = websocket.Frames()
        for at in range(0, len(data), step):
            for _ in found.feed(data[at : at + step]):
                pass

    return read


def frame(data: bytes) -> bytes:
    """With its length in as few bytes as it takes; a longer form is refused."""
    size = len(data)
    if size < 126:
        return bytes([0x82, 0x80 | size]) + b"mask" + data
    if size < 1 << 16:
        return b"\x82\xfe" + size.to_bytes(2, "big") + b"mask" + data
    return b"\x82\xff" + size.to_bytes(8, "big") + b"mask" + data


def label(text: str) -> Callable[[], object]:
    return lambda: labels.parse(text)


def field(text: str) -> Callable[[], object]:
    return lambda: selectors.FieldSelector.parse(text)


def accepted(text: str) -> Callable[[], object]:
    return lambda: (accept.shape(text), accept.pretty({}, {"accept": text}))


def target(uri: str) -> Callable[[], object]:
    address_of("GET", "/")
    return lambda: address_of("GET", uri)


def many(one: bytes, size: int) -> bytes:
    return one * (size // len(one))


PARSERS: dict[str, Parser] = {
    "headers": lambda n: head(HEAD + many(b"X-A: bcd\r\n", n) + b"\r\n"),
    "headers with blanks": lambda n: head(HEAD + many(b"A: b \t \r\n", n) + b"\r\n"),
    "one header, repeated": lambda n: head(HEAD + many(b"Same: abc\r\n", n) + b"\r\n"),
    "headers, then a malformed one": lambda n: head(HEAD + many(b"A: b\r\n", n) + b"\xff\r\n\r\n"),
    "a malformed header first": lambda n: head(HEAD + b"x\r\n" + many(b"A: b\r\n", n) + b"\r\n"),
    "a header of blanks": lambda n: head(HEAD + b"A:" + b" " * n + b"\r\n\r\n"),
    "a malformed header of blanks": lambda n: head(HEAD + b"A:" + b" " * n + b"\0\r\n\r\n"),
    "a malformed header of tabs and blanks": lambda n: head(
        HEAD + b"A:" + many(b"\t ", n) + b"\x7f\r\n\r\n"
    ),
    "a name without end": lambda n: head(HEAD + b"a" * n + b"\r\n\r\n"),
    "a method without end": lambda n: head(b"G" * n + b" / HTTP/1.1\r\n\r\n"),
    "a target without end": lambda n: head(b"GET /" + b"a" * n + b" HTTP/2\r\n\r\n"),
    "a list of connection options": lambda n: head(
        HEAD + b"Connection: " + many(b"a, ", n) + b"\r\n\r\n"
    ),
    "a long Content-Length": lambda n: head(HEAD + b"Content-Length: " + b"1" * n + b"\r\n\r\n"),
    "empty lines first": lambda n: head(many(b"\r\n", n) + HEAD + b"\r\n"),
    "a head in small pieces": lambda n: dripped(HEAD + b"A: " + b"b" * n, 16),
    "lines in small pieces": lambda n: dripped(HEAD + many(b"A: b\r\n", n), 7),
    "chunks": lambda n: body(many(b"1\r\na\r\n", n) + b"0\r\n\r\n"),
    "chunks in small pieces": lambda n: dripped(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + many(b"2\r\nab\r\n", n), 9
    ),
    "one chunk": lambda n: body(b"%x\r\n" % n + b"a" * n + b"\r\n0\r\n\r\n"),
    "chunk extensions": lambda n: body(many(b'1;a="b";c\r\na\r\n', n) + b"0\r\n\r\n"),
    "a chunk extension of blanks": lambda n: body(b"1" + b" " * n + b"\0\r\n"),
    "trailers": lambda n: body(b"0\r\n" + many(b"A: b\r\n", n) + b"\r\n"),
    "a trailer of blanks": lambda n: body(b"0\r\nA:" + b" " * n + b"\0\r\n\r\n"),
    "pings": lambda n: frames(many(b"\x89\x80mask", n)),
    "pings in small pieces": lambda n: frames(many(b"\x89\x84maskabcd", n), 5),
    "one frame in small pieces": lambda n: frames(
        frame(b"a" * n), 64
    ),
    "texts": lambda n: frames(many(b"\x81\xfe\x01\x00mask" + b"a" * 256, n)),
    "a path": lambda n: target("/api/v1/namespaces/" + "a/" * (n // 2)),
    "a path of escapes": lambda n: target("/api/v1/" + "%41" * (n // 3)),
    "a path of half escapes": lambda n: target("/api/v1/" + "%4" * (n // 2)),
    "a path of foreign letters": lambda n: target("/api/v1/" + "%c3%a9a" * (n // 7)),
    "a URL": lambda n: target("http://" + "x" * n + "/api"),
    "a URL of brackets": lambda n: target("http://[" + "[" * n + "/"),
    "a query of one value": lambda n: target("/api?a=" + "%20+" * (n // 4)),
    "a query of parameters": lambda n: target("/api?" + "a&" * (n // 2)),
    "parts of a path": lambda n: lambda: paths.parse("/apis/" + "a/" * (n // 2)),
    "label terms": lambda n: label(",".join(["a=b"] * (n // 4))),
    "label terms with blanks": lambda n: label(" , ".join(["a  in  ( b , c )"] * (n // 20))),
    "a label's values": lambda n: label(f"a in ({','.join(['b'] * (n // 2))})"),
    "invalid values of a label": lambda n: label(f"a in ({','.join(['-'] * (n // 2))})"),
    "a value without end": lambda n: label("a=" + "b" * n),
    "a key without end": lambda n: label("a" * n),
    "slashes in a label's key": lambda n: label("a/" * (n // 2)),
    "dots in a label's prefix": lambda n: label("a." * (n // 2) + "/a"),
    "blanks in labels": lambda n: label("a" + " " * n + "b"),
    "NULs in labels": lambda n: label("a\0" * (n // 2)),
    "parentheses": lambda n: label("a in " + "(" * n),
    "quotes in an error": lambda n: label('"\\\x01' * (n // 3)),
    "field terms": lambda n: field(",".join(["spec.a=b"] * (n // 9))),
    "a field without an operator": lambda n: field("a" * n),
    "a field path of dots": lambda n: field("a." * (n // 2) + "a=b"),
    "a field path of brackets": lambda n: field("a" + "['b']" * (n // 5) + "=c"),
    "a field path of wildcards": lambda n: field("a" + "[*]" * (n // 3) + "=c"),
    "an open bracket in a path": lambda n: field("a['" + "b" * n + "=c"),
    "escapes in a value": lambda n: field("a=" + "\\," * (n // 2)),
    "backslashes": lambda n: field("\\" * n + "=a"),
    "steps of a path": lambda n: lambda: fields.steps_of("a." * (n // 2) + "a"),
    "media types": lambda n: accepted(",".join(["a/b"] * (n // 4))),
    "served media types": lambda n: accepted(
        ",".join(["*/*;q=0.5", "application/*", "application/json;as=x"] * (n // 45))
    ),
    "media parameters": lambda n: accepted("application/json" + ";a=b" * (n // 4)),
    "a quality of digits": lambda n: accepted("application/json;q=0." + "1" * n),
    "a malformed quality": lambda n: accepted("application/json;q=" + "1" * n + "x"),
    "blanks in Accept": lambda n: accepted("application/json;" + " " * n + "a=b"),
    "codings": lambda n: lambda: zipping.wanted({"accept-encoding": "a, " * (n // 3)}),
    "a continue token": lambda n: lambda: tokens.decode("W1tb" * (n // 4)),
    "a continue token of digits": lambda n: lambda: tokens.decode(tokens.encode(1, "1" * n)),
    "a continue token of dots": lambda n: lambda: tokens.decode(tokens.encode(1, "./" * (n // 2))),
    "a version": lambda n: lambda: validation.numeric("1" * n),
    "a limit": lambda n: lambda: validation.parse_options({"limit": "1" * n}),
    "a bearer token": lambda n: lambda: access.digest("a" * n),
    "a token as a protocol": lambda n: lambda: websocket.token(
        {"sec-websocket-protocol": websocket.BEARER + "YWFh" * (n // 4)}
    ),
    "tokens as protocols": lambda n: lambda: websocket.token(
        {"sec-websocket-protocol": (websocket.BEARER + "YQ, ") * (n // 40)}
    ),
    "protocols of a handshake": lambda n: lambda: websocket.accept(
        {"origin": "x", "sec-websocket-key": "k", "sec-websocket-version": "13",
         "sec-websocket-protocol": "a," * (n // 2)}
    ),
    "a Host": lambda n: lambda: access._host("[" * n),
    "a duration": lambda n: lambda: seconds("1" + " " * n + "x"),
    "blanks before a duration": lambda n: lambda: seconds(" " * n + "x"),
    "digits of a duration": lambda n: lambda: seconds("1" * n + "x"),
    "a size": lambda n: lambda: parse_size("1" + " " * n + "x"),
    "digits of a size": lambda n: lambda: parse_size("1" * n + "x"),
}  # fmt: skip
