"""Frames of clients by RFC 6455: every rule, cut at every byte, and another library's opinion."""

from __future__ import annotations

import base64
import random
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
import wsproto.connection
import wsproto.events
import wsproto.utilities
from served import pod, serving

from shmcache.serve.http import websocket
from shmcache.serve.http.loop import Pending
from shmcache.serve.http.websocket import BEARER, BROKEN, NOT_TEXT, TOO_BIG, Broken, Frames

PODS = {"pods": [pod(number) for number in range(20)]}
MASK = b"mask"


def frame(
    kind: int, data: bytes = b"", *, whole: bool = True, bits: int = 0, wide: int = 0
) -> bytes:
    """A client's frame. `wide`: bytes of its length, though fewer would do."""
    size = len(data)
    first = (0x80 if whole else 0) | bits | kind
    if wide == 8 or size > 65535:
        head = bytes((first, 0xFF)) + size.to_bytes(8, "big")
    elif wide == 2 or size > 125:
        head = bytes((first, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, 0x80 | size))
    return head + MASK + bytes(byte ^ MASK[place % 4] for place, byte in enumerate(data))


def read(data: bytes, step: int) -> tuple[list[tuple[int, bytes]], bytes | None]:
    """The control frames, and why the rest makes no sense."""
    frames = Frames()
    found: list[tuple[int, bytes]] = []
    try:
        for at in range(0, len(data), step):
            found.extend((one.kind, one.data) for one in frames.feed(data[at : at + step]))
    except Broken as broken:
        return found, broken.code
    return found, None


PING = frame(9, b"x")
CASES = {
    "a ping": (frame(9, b"abc"), [(9, b"abc")], None),
    "a ping without data": (frame(9), [(9, b"")], None),
    "a ping of 125 bytes": (frame(9, b"a" * 125), [(9, b"a" * 125)], None),
    "a ping of 126 bytes": (frame(9, b"a" * 126), [], BROKEN),
    "a ping in two frames": (frame(9, b"a", whole=False) + PING, [], BROKEN),
    "a close in two frames": (frame(8, whole=False), [], BROKEN),
    "a pong that nobody asked for": (frame(10, b"a") + PING, [(10, b"a"), (9, b"x")], None),
    "a text, then a ping": (frame(1, b"hello") + PING, [(9, b"x")], None),
    "bytes, then a ping": (frame(2, b"\xff" * 300) + PING, [(9, b"x")], None),
    "a long message, then a ping": (frame(2, b"a" * 65535) + PING, [(9, b"x")], None),
    "a message that is too long": (frame(2, b"a" * 65537), [], TOO_BIG),
    "an endless message": (b"\x82\xff" + b"\x7f" * 8 + MASK, [], TOO_BIG),
    "a length with its highest bit": (b"\x82\xff" + b"\xff" * 8 + MASK, [], BROKEN),
    "a short length in two bytes": (frame(1, b"a" * 125, wide=2), [], BROKEN),
    "a short length in eight bytes": (frame(1, b"a" * 300, wide=8), [], BROKEN),
    "fragments with a ping between": (
        frame(1, b"a", whole=False) + PING + frame(0, b"b", whole=False) + frame(0) + PING,
        [(9, b"x"), (9, b"x")], None,
    ),
    "a continuation first": (frame(0, b"a"), [], BROKEN),
    "a continuation after the end": (
        frame(1, b"a", whole=False) + frame(0, b"b") + frame(0, b"c"), [], BROKEN,
    ),
    "a message inside a message": (frame(1, b"a", whole=False) + frame(1, b"b"), [], BROKEN),
    **{
        f"the reserved kind {kind}": (PING + frame(kind, b"a"), [(9, b"x")], BROKEN)
        for kind in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    },
    **{f"the reserved bit {bits:#x}": (frame(1, bits=bits), [], BROKEN) for bits in (16, 32, 64)},
    "no mask": (b"\x89\x01a", [], BROKEN),
    "a close": (frame(8), [(8, b"")], None),
    "a close with its code": (frame(8, b"\x03\xe8bye"), [(8, b"\x03\xe8bye")], None),
    "a close of one byte": (frame(8, b"\x03"), [], BROKEN),
    "a close whose reason is not text": (frame(8, b"\x03\xe8\xc3\x28"), [], NOT_TEXT),
    **{
        f"a close with code {code}": (frame(8, code.to_bytes(2, "big")), [], BROKEN)
        for code in (0, 999, 1004, 1005, 1006, 1016, 2999, 5000, 65535)
    },
    **{
        f"a close with code {code}": (
            frame(8, code.to_bytes(2, "big")), [(8, code.to_bytes(2, "big"))], None,
        )
        for code in (1000, 1001, 1003, 1007, 1011, 3000, 4999)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_frames_are_read_by_the_rules_however_they_are_cut(name: str) -> None:
    data, found, broken = CASES[name]
    steps = range(1, len(data) + 1) if len(data) < 200 else (1, 7, 1000, len(data))
    for step in steps:
        assert read(data, step) == (found, broken), step


@pytest.mark.parametrize("name", CASES)
def test_another_library_reads_the_same(name: str) -> None:
    """wsproto, where it has an opinion: it takes longer messages, and gives texts as well."""
    data, found, broken = CASES[name]
    if broken == TOO_BIG:
        return
    server = wsproto.connection.Connection(wsproto.connection.ConnectionType.SERVER)
    theirs: list[tuple[int, bytes]] = []
    try:
        server.receive_data(data)
        for event in server.events():
            if isinstance(event, wsproto.events.Ping):
                theirs.append((9, bytes(event.payload)))
            elif isinstance(event, wsproto.events.Pong):
                theirs.append((10, bytes(event.payload)))
            elif isinstance(event, wsproto.events.CloseConnection):
                theirs.append((8, b""))
        refused = False
    except (wsproto.utilities.RemoteProtocolError, wsproto.utilities.LocalProtocolError):
        refused = True
    refused = refused or (bool(theirs) and theirs[-1][0] == 8 and broken is not None)

    assert refused == (broken is not None)
    if not refused:
        kinds = [kind for kind, _ in found]
        assert [kind for kind, _ in theirs] == kinds
        assert [data for kind, data in theirs if kind != 8] == [d for k, d in found if k != 8]


def test_random_streams_of_legal_frames_are_read_whole() -> None:
    luck = random.Random(7)
    for _ in range(200):
        wanted, data, inside = [], b"", False
        for _ in range(luck.randrange(12)):
            if luck.random() < 0.5:
                text = luck.randbytes(luck.choice([0, 1, 125]))
                wanted.append((9, text))
                data += frame(9, text)
            else:
                whole = luck.random() < 0.5
                size = luck.choice([0, 5, 126, 70, 65535])
                data += frame(0 if inside else luck.choice([1, 2]), b"a" * size, whole=whole)
                inside = not whole
        assert read(data, luck.choice([1 << 20, 3, 100])) == (wanted, None)


def test_of_a_message_the_head_alone_is_kept() -> None:
    frames = Frames()
    for number in range(3):
        frames.add(frame(2 if number == 0 else 0, b"a" * 65535, whole=number == 2)[:-1])
        assert frames.next() is None
        assert len(frames) < 20
        frames.add(b"a")


SOCKET = (
    b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nOrigin: http://localhost\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def test_pings_of_one_client_leave_turns_to_others() -> None:
    """Ten thousand pings arrive at once; another client's request is answered among them."""
    with serving(PODS) as asked:
        with socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30) as sock:
            sock.sendall(SOCKET + b"\r\n")
            assert sock.recv(50).startswith(b"HTTP/1.1 101 ")
            turns: list[int] = []
            slowly = asked.serve.server.slowly

            def counted(function: Callable[[], object]) -> None:
                turns.append(1)
                slowly(function)

            asked.serve.server.slowly = counted  # type: ignore[method-assign]
            sock.sendall(frame(9) * 2000)
            count = 0
            deadline = time.monotonic() + 30
            tail = b""
            while count < 2000:
                assert time.monotonic() < deadline
                found = tail + sock.recv(1 << 16)
                count += found.count(b"\x8a\x00")
                tail = found[-1:] if found.endswith(b"\x8a") else b""
            assert len(turns) >= 2000 // 16 - 10
        assert asked.serve.server.stats.errors == 0


def test_pings_of_a_client_that_reads_late_are_all_answered() -> None:
    """The server makes no pongs while earlier ones wait for the client. A client that sends nothing
    more receives all of them once it has read those."""
    pings, pong = frame(9, b"a" * 125) * 64, b"\x8a\x7d" + b"a" * 125
    with serving(PODS) as asked, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(30)
        sock.connect(("127.0.0.1", asked.serve.port))
        sock.sendall(SOCKET + b"\r\n")
        assert sock.recv(50).startswith(b"HTTP/1.1 101 ")
        (connection,) = asked.serve.call(lambda: list(asked.serve.server.connections))
        sent = found = 0
        while not asked.serve.call(lambda: connection.backlog):
            sock.sendall(pings)
            sent += 64
            time.sleep(0.001)
        tail = b""
        while found < sent:
            data = tail + sock.recv(1 << 16)
            found += data.count(pong)
            tail = data[max(data.rfind(pong) + len(pong), len(data) - len(pong) + 1) :]
        assert asked.serve.server.stats.errors == 0


def test_frames_that_come_before_the_handshake_is_answered_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request waits for its user; what comes meanwhile, and just after it, is one stream."""
    with serving(PODS) as asked:
        server, real = asked.serve.server, asked.serve.server.access.user
        allowed: list[Pending[None]] = []

        async def late(*arguments: Any) -> Any:
            allowed.append(Pending())
            await allowed[0]
            return await real(*arguments)

        monkeypatch.setattr(server.access, "user", late)
        with socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30) as sock:
            ping = frame(9, b"whole")
            sock.sendall(SOCKET + b"\r\n" + ping[:3])
            deadline = time.monotonic() + 30
            while not allowed:
                assert time.monotonic() < deadline
            with asked.held_up():  # the answer and the rest of the frame come in one turn
                server.loop.call_threadsafe(lambda: allowed[0].give(None))
                sock.sendall(ping[3:] + frame(9, b"next"))
            found = b""
            while not found.endswith(b"\x8a\x04next"):
                piece = sock.recv(1 << 16)
                assert piece, found
                found += piece
            assert found.endswith(b"\x8a\x05whole\x8a\x04next")


def test_a_close_frame_reaches_a_client_that_still_sends() -> None:
    with serving(PODS) as asked, socket.create_connection(
        ("127.0.0.1", asked.serve.port), timeout=30
    ) as sock:  # fmt: skip
        sock.sendall(SOCKET + b"\r\n" + frame(3))
        found = sock.recv(1 << 16)
        while not found.endswith(b"\x88\x02" + BROKEN):
            found += sock.recv(1 << 16)
        for _ in range(20):
            sock.sendall(frame(2, b"a" * 20_000))
        assert sock.recv(1) == b""


def test_a_broken_frame_is_answered_once_and_ends_the_connection() -> None:
    with serving(PODS) as asked:
        answer = asked.raw(SOCKET + b"\r\n" + frame(3) * 5)

    assert answer.endswith(b"\x88\x02" + BROKEN)
    assert answer.count(b"\x88\x02") == 1


TOKEN = base64.urlsafe_b64encode(b"secret").decode().rstrip("=")


@pytest.mark.parametrize(("protocols", "expected"), [
    (f"{BEARER}{TOKEN}, chat", "secret"),
    (f"chat, {BEARER}{TOKEN}", "secret"),
    (f"{BEARER}{TOKEN}", ""),  # no other one that the answer could name
    (f"{BEARER}{TOKEN}, {BEARER}{TOKEN}, chat", ""),
    (f"{BEARER}{TOKEN}==, chat", ""),
    (f"{BEARER}!!!!, chat", ""),
    (f"{BEARER}gICA, chat", ""),  # not UTF-8
    ("chat", ""),
    ("", ""),
])  # fmt: skip
def test_a_token_as_a_protocol_is_read_as_the_api_server_does(
    protocols: str, expected: str
) -> None:
    assert websocket.token({"sec-websocket-protocol": protocols}) == expected


@pytest.mark.parametrize("protocols", [f"{BEARER}{TOKEN}", f"{BEARER}!!!!, chat"])
def test_a_malformed_token_protocol_is_401_also_where_no_token_is_needed(protocols: str) -> None:
    head = b"Sec-WebSocket-Protocol: %b\r\n\r\n" % protocols.encode()
    with serving(PODS) as asked:
        data = SOCKET + b"Connection: close\r\n" + head
        assert asked.raw(data).startswith(b"HTTP/1.1 401 ")
