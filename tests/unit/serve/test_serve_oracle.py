"""h11 and llhttp as further opinions on requests: where this server accepts one, all read the same.

This server may be stricter than they are; it accepts nothing that one of them refuses. Streams of
requests, cut anywhere, are read as the same requests by all three.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import h11
import httptools
from hypothesis import given, settings
from hypothesis import strategies as st

from shmcache.serve.http.heads import BadRequest
from shmcache.serve.http.incoming import Incoming
from shmcache.serve.limits import Limits

NAMES = ["Host", "X-A", "Accept", "Content-Length", "Transfer-Encoding", "Connection", "A", "x-a",
         "Authorization", "X A", "X-A ", " X", "", "X:", "Ü", "Trailer"]  # fmt: skip
VALUES = ["", "x", "3", "0", "chunked", "close", "gzip", " a", "a ", "\ta\t", "a b", "a\x00b",
          "a\rb", "a\nb", "é", "3, 3", "+3", "-1", "Chunked", "a" * 300]  # fmt: skip
BODIES = [b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n",
          b"3\nabc\n0\n\n", b"3\r\nabcd\r\n0\r\n\r\n", b"g\r\n", b"0\r\nT: a\rb\r\n\r\n",
          b"0\r\nbad trailer\r\n\r\n", b"0\r\n\r\n", b"03\r\nabc\r\n00\r\n\r\n"]  # fmt: skip


CODING = "transfer-encoding"
"""h11 gives its value in lower case."""


class Seen(NamedTuple):
    """One request as a reader sees it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    rest: bytes


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from(["GET", "POST", "get", "G T", ""]))
    target = draw(st.sampled_from(["/", "/api", "/a?b=c", "http://x/api", "/a b", "", "/é"]))
    version = draw(st.sampled_from(["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2", "http/1.1"]))
    lines = [f"{method} {target} {version}"]
    if draw(st.integers(0, 9)):
        lines.append("Host: localhost")
    count = draw(st.sampled_from([0, 1, 2, 3, 8, 60, 98, 150, 200]))
    luck = random.Random(draw(st.integers(0, 1 << 30)))
    plain = [f"X-{number}:{luck.choice(['', ' ', '  '])}v{number}" for number in range(count)]
    odd = draw(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=3))
    for name, value in odd:
        plain.insert(luck.randrange(len(plain) + 1), f"{name}: {value}")
    end = draw(st.sampled_from(["\r\n", "\r\n", "\r\n", "\r\n", "\n"]))
    head = end.join([*lines, *plain]) + end + end
    return (
        head.encode("latin-1")
        + draw(st.sampled_from(BODIES))
        + draw(st.sampled_from([b"", b"", b"GET /next HTTP/1.1\r\n"]))
    )


class _Events:
    """One request as llhttp reports it."""

    def __init__(self) -> None:
        self.target = self.body = b""
        self.headers: list[tuple[str, str]] = []
        self.whole = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.whole and not self.body:  # trailers are reported in the same way
            self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole = True


def llhttp(data: bytes) -> Seen | None:
    """The first request, by the parser of Node.js; what follows it is not its business."""
    events = _Events()
    parser = httptools.HttpRequestParser(events)
    for at in range(len(data)):
        try:
            parser.feed_data(data[at : at + 1])
        except httptools.HttpParserUpgrade:
            return None
        except httptools.HttpParserError:
            if not events.whole:
                return None
        if events.whole:
            method, target = parser.get_method().decode(), events.target.decode("latin-1")
            return Seen(method, target, events.headers, events.body, data[at + 1 :])
    return None


def ours(data: bytes) -> Seen | None:
    incoming = Incoming(Limits())
    incoming.buffer += data
    try:
        request = incoming.next()
        if request is None or incoming.fields is None:
            return None
        body = b""
        if incoming.body is not None:
            while not incoming.feed_body():
                if not incoming.body.stopped:
                    return None
            body = bytes(incoming.body.data)
    except BadRequest:
        return None
    pairs = [(name.lower(), value) for name, value in incoming.fields.pairs()]
    return Seen(request.method, request.uri, pairs, body, bytes(incoming.buffer))


def theirs(data: bytes) -> Seen | None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    try:
        request = connection.next_event()
        if not isinstance(request, h11.Request):
            return None
        body = b""
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                return None
            body += event.data
    except h11.RemoteProtocolError:
        return None
    headers = [(name.decode(), value.decode("latin-1")) for name, value in request.headers]
    rest, _ = connection.trailing_data
    return Seen(request.method.decode(), request.target.decode(), headers, body, rest)


@settings(max_examples=1500, deadline=None)
@given(requests())
def test_two_readers_of_one_request_agree(data: bytes) -> None:
    mine, other = ours(data), theirs(data)
    if mine is None:
        return  # stricter: the tests of refusals show where, and why
    h11s = [(name, value.lower() if name == CODING else value) for name, value in mine.headers]
    assert mine._replace(headers=h11s) == other


KNOWN_METHODS = {"GET", "POST"}
"""llhttp has a list of methods; this server takes any token, and refuses most of them later."""


@settings(max_examples=600, deadline=None)
@given(requests())
def test_llhttp_reads_the_same(data: bytes) -> None:
    mine = ours(data)
    if mine is None or mine.method not in KNOWN_METHODS:
        return
    other = llhttp(data)

    assert other is not None, data
    assert (mine.method, mine.target, mine.body, mine.rest) == (
        other.method, other.target, other.body, other.rest,
    )  # fmt: skip
    stripped = [(name, value.rstrip(" \t")) for name, value in other.headers]
    assert mine.headers == stripped[: len(mine.headers)]


CHUNKED = b"PUT /%%d HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%b"
PIECES = [
    b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\r\nGET /%d HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 40 + b"\r\n",
    b"POST /%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nGET /",
    CHUNKED % b"4;a=b\r\n\r\n\r\n\r\n0\r\nTrailer: x\r\n\r\n",
    b"HEAD /%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.integers(0, 1 << 30))
def test_a_stream_of_requests_is_read_as_the_same_ones_however_it_is_cut(
    some: list[bytes], seed: int
) -> None:
    luck = random.Random(seed)
    data = b"".join(piece % number for number, piece in enumerate(some))
    found: list[str] = []
    incoming = Incoming(Limits())
    rest = data
    while rest:
        size = luck.choice([1, 2, 7, 50, 4000])
        incoming.buffer += rest[:size]
        rest = rest[size:]
        while incoming.skip_body() and (request := incoming.next()) is not None:
            found.append(request.uri)
    read: list[str] = []
    while (seen := llhttp(data)) is not None:
        read.append(seen.target)
        data = seen.rest
    assert found == read == [f"/{number}" for number in range(len(some))]
    assert incoming.between


def test_the_generator_makes_requests_that_both_accept() -> None:
    head = b"POST /api HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = head + BODIES[3] + b"GET /next HTTP/1.1\r\n"
    mine = ours(data)

    assert mine is not None
    assert mine.body == b"abc"
    assert mine.rest == b"GET /next HTTP/1.1\r\n"
    assert mine == theirs(data)
