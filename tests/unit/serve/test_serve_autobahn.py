"""A watch on a WebSocket under the cases of Autobahn's test suite, over a socket.

Autobahn tests servers that echo messages. A watch ignores those of its client, as the API server
does, so that here the control frames are compared: pongs in their order, and the end. Each case is
followed by a ping, whose pong shows that the connection goes on. The numbers are those of Autobahn;
the parser alone is tested in test_serve_websocket.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from served import pod, serving
from test_serve_websocket import frame

SOCKET = (
    b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: localhost\r\n"
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://localhost\r\n"
)
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
END = b"and it goes on"
GOES_ON, NORMAL, BROKEN, NOT_TEXT, TOO_BIG = 0, 1000, 1002, 1007, 1009
LONGEST = b"a" * 65535


def close(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big") + reason)


def parts(*some: bytes, kind: int = TEXT, between: bytes = b"") -> bytes:
    """A message in several frames."""
    last = len(some) - 1
    return between.join(
        frame(kind if number == 0 else 0, one, whole=number == last)
        for number, one in enumerate(some)
    )


Case = tuple[bytes, list[bytes], int]
"""Bytes, the data of the pongs, and the code of the close frame."""

CASES: dict[str, Case] = {
    **{
        f"1.{kind}: a message of {size} bytes": (frame(kind, b"*" * size), [], GOES_ON)
        for kind in (TEXT, BINARY) for size in (0, 125, 126, 127, 128, 65535)
    },
    **{
        f"1.{kind}: a message of 65537 bytes": (frame(kind, b"*" * 65537), [], TOO_BIG)
        for kind in (TEXT, BINARY)
    },
    "2.1: a ping without data": (frame(PING), [b""], GOES_ON),
    "2.2: a ping with text": (frame(PING, b"Hello, world!"), [b"Hello, world!"], GOES_ON),
    "2.3: a ping with bytes": (frame(PING, b"\0\xff\xfe\xfd\0"), [b"\0\xff\xfe\xfd\0"], GOES_ON),
    "2.4: a ping of 125 bytes": (frame(PING, b"\xfe" * 125), [b"\xfe" * 125], GOES_ON),
    "2.5: a ping of 126 bytes": (frame(PING, b"\xfe" * 126), [], BROKEN),
    "2.7: a pong": (frame(PONG), [], GOES_ON),
    "2.8: a pong with data": (frame(PONG, b"unsolicited"), [], GOES_ON),
    "2.9: a pong, then a ping": (frame(PONG, b"x") + frame(PING, b"y"), [b"y"], GOES_ON),
    "2.10: ten pings": (
        b"".join(frame(PING, b"%d" % n) for n in range(10)), [b"%d" % n for n in range(10)], GOES_ON
    ),
    **{
        f"3: reserved bits {bits:#x} of kind {kind}": (
            frame(PING, b"x") + frame(kind, b"a", bits=bits), [b"x"], BROKEN
        )
        for bits in range(0x10, 0x80, 0x10) for kind in (TEXT, BINARY, CLOSE, PING)
    },
    **{
        f"4: the reserved kind {kind}": (frame(PING, b"x") + frame(kind, b"a"), [b"x"], BROKEN)
        for kind in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    },
    "5.1: a ping in two frames": (parts(b"a", b"b", kind=PING), [], BROKEN),
    "5.2: a pong in two frames": (parts(b"a", b"b", kind=PONG), [], BROKEN),
    "5.3: a text in two frames": (parts(b"a", b"b"), [], GOES_ON),
    "5.6: a ping between two frames": (
        parts(b"a", b"b", between=frame(PING, b"x")), [b"x"], GOES_ON
    ),
    "5.9: a continuation first": (frame(0, b"a") + frame(TEXT, b"b"), [], BROKEN),
    "5.10: a continuation first that goes on": (frame(0, b"a", whole=False), [], BROKEN),
    "5.15: a continuation after the end": (parts(b"a", b"b") + frame(0, b"c"), [], BROKEN),
    "5.18: a message inside a message": (
        frame(TEXT, b"a", whole=False) + frame(TEXT, b"b"), [], BROKEN
    ),
    "5.19: many frames with pings between": (
        parts(*[b"a"] * 5, between=frame(PING, b"1") + frame(PING, b"2")), [b"1", b"2"] * 4, GOES_ON
    ),
    "5.20: frames without data": (parts(b"", b"", b""), [], GOES_ON),
    "6: text that is not UTF-8, which nobody reads": (frame(TEXT, b"\xc3\x28"), [], GOES_ON),
    "6: text cut in a letter": (parts(b"\xe2\x82", b"\xac"), [], GOES_ON),
    "7.1.1: a close": (close(1000), [], NORMAL),
    "7.1.2: two closes": (close(1000) * 2, [], NORMAL),
    "7.1.3: a ping after the close": (close(1000) + frame(PING, b"x"), [], NORMAL),
    "7.1.4: a text after the close": (close(1000) + frame(TEXT, b"x"), [], NORMAL),
    "7.1.5: a close inside a message": (frame(TEXT, b"a", whole=False) + close(1000), [], NORMAL),
    "7.1.6: a long text, a close, a ping": (
        frame(TEXT, LONGEST) + close(1000) + frame(PING), [], NORMAL
    ),
    "7.3.1: a close without a code": (frame(CLOSE), [], NORMAL),
    "7.3.2: a close of one byte": (frame(CLOSE, b"a"), [], BROKEN),
    "7.3.4: a close with a reason": (close(1000, "tschüß".encode()), [], NORMAL),
    "7.3.5: a reason of 123 bytes": (close(1000, b"*" * 123), [], NORMAL),
    "7.3.6: a reason of 124 bytes": (close(1000, b"*" * 124), [], BROKEN),
    "7.5.1: a reason that is not UTF-8": (close(1000, b"\xce\xba\xed\xa0\x80"), [], NOT_TEXT),
    **{
        f"7.7: code {code}": (close(code), [], NORMAL)
        for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    },
    **{
        f"7.9: code {code}": (close(code), [], BROKEN)
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535)
    },
    "9: a message of a mebibyte in frames": (
        parts(*[LONGEST] * 16, kind=BINARY), [], GOES_ON
    ),
    "12: a compressed text, which was not agreed on": (
        frame(TEXT, b"\xf2\x48\xcd\xc9\xc9\x07\x00", bits=0x40), [], BROKEN
    ),
    "a frame without a mask": (b"\x81\x01a", [], BROKEN),
}  # fmt: skip


def frames_of(sock: socket.socket) -> Iterator[tuple[int, bytes]]:
    """The frames of the server, until it ends the connection."""
    held = b""
    while True:
        while len(held) >= 2:
            size, at = held[1], 2
            if size > 125:
                at = 4 if size == 126 else 10
                size = int.from_bytes(held[2:at], "big")
            if len(held) < at + size:
                break
            yield held[0] & 0x0F, held[at : at + size]
            held = held[at + size :]
        piece = sock.recv(1 << 16)
        if not piece:
            return
        held += piece


def opened(port: int, more: bytes = b"") -> tuple[socket.socket, bytes]:
    """A connection after its handshake, and the head of the answer."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=60)
    sock.sendall(SOCKET + more + b"\r\n")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    assert head.startswith(b"HTTP/1.1 101 "), head
    return sock, head


def outcome(port: int, data: bytes, step: int) -> tuple[list[bytes], int]:
    """The data of the pongs, and the code of the close frame; GOES_ON after the last pong."""
    sock, _ = opened(port)
    pongs: list[bytes] = []
    with sock:
        data += frame(PING, END)
        for at in range(0, len(data), step):
            sock.sendall(data[at : at + step])
        for kind, found in frames_of(sock):
            if kind == CLOSE:
                assert not list(frames_of(sock)), "something follows the close frame"
                return pongs, int.from_bytes(found[:2], "big")
            if kind == PONG and found == END:
                return pongs, GOES_ON
            if kind == PONG:
                pongs.append(found)
            else:
                assert kind == TEXT  # the events
    raise AssertionError("the connection ended without a close frame")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving({"pods": [pod(number) for number in range(3)]}) as asked:
        yield asked.serve.port
        assert asked.serve.server.stats.errors == 0


@pytest.mark.parametrize("name", CASES)
def test_each_case_ends_as_the_rules_say(name: str, port: int) -> None:
    data, pongs, code = CASES[name]
    assert outcome(port, data, 1 << 20) == (pongs, code)


@pytest.mark.parametrize("name", [name for name in CASES if len(CASES[name][0]) < 300])
def test_each_case_ends_in_the_same_way_byte_by_byte(name: str, port: int) -> None:
    data, pongs, code = CASES[name]
    assert outcome(port, data, 1) == (pongs, code)


def test_no_extension_is_agreed_on(port: int) -> None:
    sock, head = opened(port, b"Sec-WebSocket-Extensions: permessage-deflate\r\n")
    sock.close()
    assert b"extensions" not in head.lower()
