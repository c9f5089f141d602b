"""Invariants tested: CALL1, CALL2, GRPC1: one call over HTTP/2, whatever a server sends.

The server is a thread with a socket; each test chooses its bytes.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import grpc
import hpack
import pytest

from shmcache._hot import GrpcMessages
from shmcache.source.etcd import http2
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.http2 import CallFailed, Http2Call, frame
from shmcache.source.line import Line

CODE = grpc.StatusCode
Open = Callable[..., Http2Call]


def message(body: bytes, compressed: int = 0) -> bytes:
    return struct.pack(">BI", compressed, len(body)) + body


def data(body: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return frame(http2.DATA, flags, stream, body)


def headers(*fields: tuple[str, str], end: bool = False) -> bytes:
    flags = http2.END_HEADERS | (http2.END_STREAM if end else 0)
    return frame(http2.HEADERS, flags, 1, hpack.Encoder().encode(fields))


OPENED = frame(http2.SETTINGS, 0, 0, b"") + headers((":status", "200"))


class Server:
    """Sends what it is given, and keeps what it receives."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.received = b""
        self.peer: socket.socket | None = None
        self.came = threading.Condition()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self, answer: bytes, *, ends: bool) -> None:
        self.peer, _ = self.listener.accept()
        self.peer.sendall(answer)
        if ends:
            self.peer.shutdown(socket.SHUT_WR)
        while part := self.peer.recv(65536):
            with self.came:
                self.received += part
                self.came.notify_all()

    def await_bytes(self, part: bytes) -> None:
        with self.came:
            assert self.came.wait_for(lambda: part in self.received, 20), self.received

    def close(self) -> None:
        if self.peer is not None:
            self.peer.close()
        self.listener.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def opened(server: Server) -> Iterator[Open]:
    calls: list[Http2Call] = []
    threads: list[threading.Thread] = []

    def start(answer: bytes, *, ends: bool = False) -> Http2Call:
        thread = threading.Thread(target=server.accept, args=(answer,), kwargs={"ends": ends})
        thread.start()
        threads.append(thread)
        access = EtcdAccess(endpoints=(server.endpoint,))
        metadata = [("token", "t" * 300)]
        calls.append(Http2Call(access, server.endpoint, "/a.B/C", metadata, Line()))
        return calls[-1]

    yield start
    for call in calls:
        call.close()
    for thread in threads:
        thread.join(20)


def drained(call: Http2Call) -> tuple[list[bytes], CallFailed]:
    """All messages, and the failure that ended the call."""
    found: list[bytes] = []
    while True:
        try:
            found.extend(call.receive(20.0))
        except CallFailed as failed:
            return found, failed


def test_messages_come_before_the_status_that_ends_them(opened: Open) -> None:
    ended = headers(("grpc-status", "14"), ("grpc-message", "etcdserver: no%20leader"), end=True)
    call = opened(OPENED + data(message(b"one") + message(b"two")) + ended)

    found, failed = drained(call)

    assert found == [b"one", b"two"]
    assert (failed.code(), failed.details()) == (CODE.UNAVAILABLE, "etcdserver: no leader")


GARBLED = [
    data(message(b"x"), stream=3),
    data(message(b"x", compressed=1)),
    data(struct.pack(">BI", 0, 2**32 - 1)),
    data(b"\xff", http2.PADDED),
    frame(http2.PUSH, 0, 1, b""),
    frame(http2.HEADERS, http2.END_HEADERS, 3, b""),
    frame(http2.HEADERS, 0, 1, b"\x82") + frame(http2.PING, 0, 0, bytes(8)),
    frame(http2.CONTINUATION, http2.END_HEADERS, 1, b""),
    frame(http2.HEADERS, http2.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff"),
    frame(http2.HEADERS, 0, 1, b"") + frame(http2.CONTINUATION, 0, 1, bytes(1000)) * 70,
    frame(http2.SETTINGS, 0, 0, b"abc"),
    frame(http2.RESET, 0, 1, b"a"),
    headers(("grpc-status", "ok"), end=True),
    data(message(b"x"), http2.END_STREAM),
    b"\xff\xff\xff" + bytes(6),
]


@pytest.mark.parametrize("answer", GARBLED, ids=range(len(GARBLED)))
def test_forbidden_frames_are_garbage(opened: Open, answer: bytes) -> None:
    _, failed = drained(opened(OPENED + answer))
    assert failed.code() is CODE.DATA_LOSS, failed


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", CODE.UNAVAILABLE),
        (frame(http2.RESET, 0, 1, struct.pack(">I", 8)), CODE.CANCELLED),
        (frame(http2.RESET, 0, 1, struct.pack(">I", 2)), CODE.INTERNAL),
        (frame(http2.GOAWAY, 0, 0, struct.pack(">II", 0, 0) + b"bye"), CODE.UNAVAILABLE),
        (headers(("grpc-status", "0"), end=True), CODE.CANCELLED),
        (headers(("grpc-status", "16"), end=True), CODE.UNAUTHENTICATED),
    ],
)
def test_every_end_has_its_code(opened: Open, answer: bytes, code: grpc.StatusCode) -> None:
    _, failed = drained(opened(OPENED + answer, ends=True))
    assert failed.code() is code


def test_an_http_error_is_a_lost_connection(opened: Open) -> None:
    _, failed = drained(opened(headers((":status", "503"), end=True)))
    assert failed.code() is CODE.UNAVAILABLE
    assert "503" in failed.details()


def test_pings_and_settings_are_acknowledged(opened: Open, server: Server) -> None:
    call = opened(OPENED + frame(http2.PING, 0, 0, b"12345678") + data(message(b"a")))
    found: list[bytes] = []
    while not found:
        found.extend(call.receive(20.0))

    server.await_bytes(frame(http2.PING, http2.ACK, 0, b"12345678"))
    server.await_bytes(frame(http2.SETTINGS, http2.ACK, 0, b""))


def test_a_half_open_connection_is_pinged_and_given_up(
    opened: Open, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "KEEPALIVE", 0.1)
    monkeypatch.setattr(http2, "KEEPALIVE_TIMEOUT", 0.2)
    _, failed = drained(opened(OPENED))

    server.await_bytes(frame(http2.PING, 0, 0, b"shmcache"))
    assert failed.code() is CODE.UNAVAILABLE
    assert "no answer to a ping" in failed.details()


def test_nothing_is_sent_that_the_window_has_no_room_for(opened: Open, server: Server) -> None:
    small = frame(http2.SETTINGS, 0, 0, struct.pack(">HI", http2.INITIAL_WINDOW, 8))
    call = opened(small + data(message(b"a")))
    while not list(call.receive(20.0)):
        pass
    assert call.send(b"abc")
    assert not call.send(b"abc")
    assert server.peer is not None
    more = frame(http2.WINDOW_UPDATE, 0, 1, struct.pack(">I", 100))
    server.peer.sendall(more + data(message(b"b")))
    while not list(call.receive(20.0)):
        pass
    assert call.send(b"abc")


def test_a_cut_line_ends_a_call_that_waits(opened: Open) -> None:
    call = opened(OPENED)
    cutter = threading.Timer(0.05, call.line.cut)
    cutter.start()
    _, failed = drained(call)
    cutter.join()
    assert failed.code() is CODE.UNAVAILABLE


def test_messages_are_the_same_however_they_are_cut(rng: random.Random) -> None:
    bodies = [rng.randbytes(rng.choice([0, 1, 5, 300, 70_000])) for _ in range(40)]
    stream = b"".join(map(message, bodies))
    wire = b""
    while stream:
        size = rng.choice([1, 4, 5, 6, 100, 16384])
        pad = rng.choice([None, None, 0, 9])
        part, stream = stream[:size], stream[size:]
        padded = bytes([pad]) + part + bytes(pad) if pad is not None else part
        wire += data(padded, http2.PADDED if pad is not None else 0)
        if rng.random() < 0.2:
            wire += frame(http2.PING, 0, 0, bytes(8))
    reader, found, frames = GrpcMessages(), [], 0
    while wire:
        size = rng.choice([1, 3, 9, 10, 2000, 100_000])
        messages, others = reader.feed(wire[:size])
        found += messages
        frames += len(others)
        wire = wire[size:]
    assert found == bodies
    assert frames


def test_random_bytes_never_hold_more_than_they_may(rng: random.Random) -> None:
    for _ in range(300):
        reader = GrpcMessages(max_message=1000, max_frame=2000)
        try:
            for _ in range(50):
                kind = rng.choice([0, 0, 0, 1, 4, 6, 9])
                reader.feed(frame(kind, rng.randrange(256), 1, rng.randbytes(rng.randrange(40))))
                reader.feed(rng.randbytes(rng.randrange(4)))
        except ValueError:
            continue


@pytest.mark.parametrize("given", [{"max_frame": 0}, {"max_message": -1}])
def test_bounds_are_positive(given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        GrpcMessages(**given)
