"""Http2Call: one gRPC call with a stream of answers, on a connection of its own, in one thread.

The watch of a source spends its life here. grpcio hands each message over from a thread of its own,
at 40 to 100 µs; here the thread that stores the events reads the socket, everything that has
arrived at once (csrc/python/wire/pygrpc.c). Unary calls stay with grpcio.

CALL1  a connection on which nothing comes for KEEPALIVE seconds is pinged; without an answer
       within KEEPALIVE_TIMEOUT it is dead, also if it is half open.
CALL2  whatever a server sends becomes messages or a CallFailed; what it makes us hold is bounded.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

import grpc
import hpack

from shmcache._hot import GrpcMessages
from shmcache.reasons import reason_of
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.members import KEEPALIVE, KEEPALIVE_TIMEOUT, MESSAGE_MAX
from shmcache.source.line import KEEPALIVE as SOCKET_OPTIONS
from shmcache.source.line import Line

CONNECT_SECONDS = 3.0
PIECE = 256 * 1024
FRAME_MAX = 1 << 20
HEADERS_MAX = 64 << 10
WINDOW = (1 << 31) - 1
"""Both windows are as large as possible: TCP holds a server back."""
GIVE_BACK = 1 << 29
STREAM = 1
DATA, HEADERS, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 3, 4, 5, 6, 7, 8, 9,
)  # fmt: skip
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 32
INITIAL_WINDOW, NO_PUSH, FRAME_SIZE, TABLE_SIZE = 4, 2, 5, 1
_CODE = grpc.StatusCode
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in _CODE}
_RESETS = {7: _CODE.UNAVAILABLE, 8: _CODE.CANCELLED, 11: _CODE.RESOURCE_EXHAUSTED}


class CallFailed(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """The end of a call, as grpcio's errors say it."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        """The status code."""
        return self._code

    def details(self) -> str:
        """The message of the server, or ours."""
        return self._details


def lost(details: str) -> CallFailed:
    """The connection broke, or never came to be."""
    return CallFailed(_CODE.UNAVAILABLE, details)


def garbled(details: str) -> CallFailed:
    """The server does not keep to the protocol."""
    return CallFailed(_CODE.DATA_LOSS, details)


class Http2Call:
    """Used by one thread, apart from `line`, which any thread may cut or interrupt."""

    def __init__(
        self,
        access: EtcdAccess,
        endpoint: str,
        path: str,
        metadata: Iterable[tuple[str, str]],
        line: Line,
    ) -> None:
        """CallFailed without a connection; SourceError for certificates."""
        self.line = line
        self._headers = hpack.Decoder(max_header_list_size=HEADERS_MAX)
        self._held: tuple[int, bytes] | None = None  # flags and bytes of headers so far
        self._messages = GrpcMessages(max_message=MESSAGE_MAX, max_frame=FRAME_MAX)
        self._given = 0
        self._windows = [65535, 65535]  # of the connection and of the stream, for what we send
        self._initial = 65535
        self._answered = False
        self._heard = time.monotonic()
        self._pinged: float | None = None
        self._socket = self._connect(access, endpoint)
        try:
            self._begin(access, endpoint, path, metadata)
        except BaseException:
            self.close()
            raise

    # ---- the connection --------------------------------------------------------------------

    def _connect(self, access: EtcdAccess, endpoint: str) -> socket.socket:
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port or 2379
        try:
            plain = socket.create_connection((host, port), CONNECT_SECONDS)
        except OSError as error:
            raise lost(f"failed to connect to {host}:{port}: {reason_of(error)}") from error
        try:
            for option in SOCKET_OPTIONS:
                plain.setsockopt(*option)
            self.line.hold(plain)
            return self._secured(access, plain, host)
        except BaseException as error:
            plain.close()
            self.line.drop()
            if isinstance(error, OSError):
                raise lost(f"failed to connect to {host}:{port}: {reason_of(error)}") from error
            raise

    def _secured(self, access: EtcdAccess, plain: socket.socket, host: str) -> socket.socket:
        tls = access.tls()
        if tls is None:
            return plain
        secure = tls.wrap_socket(plain, server_hostname=host)
        if secure.selected_alpn_protocol() != "h2":
            secure.close()
            raise OSError("the server does not speak HTTP/2")
        return secure

    def _begin(
        self, access: EtcdAccess, endpoint: str, path: str, metadata: Iterable[tuple[str, str]]
    ) -> None:
        ours = {TABLE_SIZE: 0, NO_PUSH: 0, INITIAL_WINDOW: WINDOW, FRAME_SIZE: FRAME_MAX}
        fields = [
            (":method", "POST"), (":scheme", "https" if access.is_secure else "http"),
            (":path", path), (":authority", urlsplit(endpoint).netloc), ("te", "trailers"),
            ("content-type", "application/grpc"), ("user-agent", "shmcache"), *metadata,
        ]  # fmt: skip
        self._send(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *each) for each in ours.items()))
            + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW - 65535))
            + frame(HEADERS, END_HEADERS, STREAM, hpack.Encoder().encode(fields))
        )

    def close(self) -> None:
        """Ends call and connection. Idempotent."""
        self.line.drop()
        self._socket.close()

    # ---- sending ---------------------------------------------------------------------------

    def send(self, message: bytes) -> bool:
        """Sends one message; False if the server's window has no room for it now."""
        body = b"\0" + struct.pack(">I", len(message)) + message
        if min(self._windows) < len(body):
            return False
        self._windows = [window - len(body) for window in self._windows]
        self._send(frame(DATA, 0, STREAM, body))
        return True

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(CONNECT_SECONDS)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise lost(f"Socket closed: {reason_of(error)}") from error

    # ---- receiving -------------------------------------------------------------------------

    def receive(self, seconds: float) -> Iterator[bytes]:
        """The messages that have come, within so many seconds. CallFailed after the last one."""
        data = self._read(seconds)
        if data is None:
            return
        self._heard, self._pinged = time.monotonic(), None
        try:
            messages, frames = self._messages.feed(data)
        except ValueError as error:
            raise garbled(str(error)) from error
        yield from messages
        for each in frames:
            self._control(*each)
        self._give_back()

    def _read(self, seconds: float) -> bytes | None:
        """CALL1. None: nothing came."""
        now = time.monotonic()
        due = self._heard + KEEPALIVE if self._pinged is None else self._pinged + KEEPALIVE_TIMEOUT
        self._socket.settimeout(max(min(seconds, due - now), 0.001))
        try:
            data = self._socket.recv(PIECE)
        except TimeoutError:
            self._check_silence(time.monotonic())
            return None
        except OSError as error:
            raise lost(f"Socket closed: {reason_of(error)}") from error
        if not data:
            raise lost("Socket closed")
        return data

    def _check_silence(self, now: float) -> None:
        if self._pinged is not None:
            if now >= self._pinged + KEEPALIVE_TIMEOUT:
                raise lost(f"no answer to a ping within {KEEPALIVE_TIMEOUT:g} s")
        elif now >= self._heard + KEEPALIVE:
            self._pinged = now
            self._send(frame(PING, 0, 0, b"shmcache"))

    def _give_back(self) -> None:
        """Opens the windows again, long before they close."""
        used = self._messages.received - self._given
        if used >= GIVE_BACK:
            self._given += used
            size = struct.pack(">I", used)
            self._send(frame(WINDOW_UPDATE, 0, 0, size) + frame(WINDOW_UPDATE, 0, STREAM, size))

    # ---- frames ----------------------------------------------------------------------------

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._held is not None and kind != CONTINUATION:
            raise garbled("headers of HTTP/2 were interrupted")
        try:
            match kind:
                case 0:  # DATA
                    raise garbled("the answer ended without trailers")
                case 1:  # HEADERS
                    self._begin_headers(flags, stream, payload)
                case 9:  # CONTINUATION
                    self._more_headers(flags, payload)
                case 3 if stream == STREAM:  # RST_STREAM
                    [code] = struct.unpack(">I", payload)
                    raise CallFailed(_RESETS.get(code, _CODE.INTERNAL), f"reset, code {code}")
                case 4 if not flags & ACK:  # SETTINGS
                    self._settings(payload)
                case 5:  # PUSH_PROMISE
                    raise garbled("the server pushes a stream, which we do not allow")
                case 6 if not flags & ACK:  # PING
                    self._send(frame(PING, ACK, 0, payload[:8]))
                case 7:  # GOAWAY
                    self._go_away(payload)
                case 8:  # WINDOW_UPDATE
                    self._widen(stream, payload)
        except struct.error as error:
            raise garbled(f"a frame of HTTP/2 has a wrong length: {error}") from error

    def _settings(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == INITIAL_WINDOW:
                self._windows[1] += value - self._initial
                self._initial = value
        self._send(frame(SETTINGS, ACK, 0, b""))

    def _widen(self, stream: int, payload: bytes) -> None:
        [size] = struct.unpack(">I", payload)
        if stream in {0, STREAM}:
            number = 0 if stream == 0 else 1
            self._windows[number] = min(self._windows[number] + (size & WINDOW), WINDOW)

    def _go_away(self, payload: bytes) -> None:
        """A server that ends lets our stream go on until it ends it, if it knows it."""
        last, code = struct.unpack(">II", payload[:8])
        if last & WINDOW < STREAM or code:
            message = payload[8:200].decode(errors="replace")
            raise lost(f"the server goes away, code {code} {message}")

    def _begin_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if stream != STREAM:
            raise garbled("headers of a stream that we did not open")
        if flags & PADDED:
            if not payload or payload[0] >= len(payload):
                raise garbled("headers of HTTP/2 are all padding")
            payload = payload[1 : len(payload) - payload[0]]
        self._held = flags, payload[5:] if flags & PRIORITY else payload
        self._more_headers(flags, b"")

    def _more_headers(self, flags: int, payload: bytes) -> None:
        if self._held is None:
            raise garbled("headers of HTTP/2 go on that have not begun")
        first, held = self._held
        self._held = first, held + payload
        if len(self._held[1]) > HEADERS_MAX:
            raise garbled("headers of HTTP/2 are too long")
        if flags & END_HEADERS:
            whole, self._held = self._held[1], None
            self._fields(whole, ended=bool(first & END_STREAM))

    def _fields(self, block: bytes, *, ended: bool) -> None:
        try:
            decoded = self._headers.decode(block)
            fields = {str(name): str(value) for name, value in decoded}
        except (hpack.HPACKError, UnicodeDecodeError) as error:
            raise garbled(f"headers of HTTP/2 cannot be decoded: {error}") from error
        status = fields.get(":status", "200")
        if not self._answered and status != "200":
            raise lost(f"HTTP status {status} instead of an answer")
        self._answered = True
        if not ended:
            return
        text = fields.get("grpc-status", "")
        code = _CODES.get(int(text)) if text.isdecimal() and len(text) < 4 else None
        if code is None:
            raise garbled(f"the answer ended with grpc-status {text[:40]!r}")
        if code is _CODE.OK:
            raise CallFailed(_CODE.CANCELLED, "the server ended the stream")
        raise CallFailed(code, _unquoted(fields.get("grpc-message", "")) or code.name)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _unquoted(text: str) -> str:
    """GRPC's percent encoding."""
    from urllib.parse import unquote

    return unquote(text, errors="replace")[:2000]
