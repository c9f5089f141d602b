"""One client: bytes in and out, one request after another, answers in the order of requests.

C1  one request is under way at a time. What a client sends meanwhile (pipelining) waits here
    up to one head's size, then in the kernel; so a client that only sends costs no memory.
C2  whoever sends looks at `backlog`, and goes on when it is drained: what a slow client has not
    taken is bounded by who sends. A client that takes nothing for `stall_seconds` is cut.
C3  an answer that cannot be ended as it began ends the connection without its last chunk, so
    that the client knows.
C4  every place where a client can keep us waiting has a deadline.
C5  lost() runs exactly once, whoever ends the connection; what runs for the request is told.
"""

from __future__ import annotations

import collections
import logging
import math
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from shmcache.protocol import failures
from shmcache.serve import answers, heads
from shmcache.serve.bodies import Body
from shmcache.serve.heads import BadRequest
from shmcache.serve.loop import READ, WRITE, Task
from shmcache.serve.requests import Request

if TYPE_CHECKING:
    from shmcache.serve.server import Server

logger = logging.getLogger(__name__)

RECEIVE = 64 << 10
LARGE = 16 << 10
"""A chunk from this size on is not copied to be framed."""
GATHER = 64
"""Pieces handed to the kernel at once."""
GREEDY = 16
"""Requests answered before other clients have their turn."""
NEVER = math.inf

_AGAIN = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Connection:
    """A client's connection, and the answer that is under way on it.

    For answers that go on (watches): begin(), then chunk() or send() as long as `backlog` is small,
    `on_drained` when it has become 0, `on_lost` when there is nobody any more; finish() ends the
    answer in order, close() the connection. After upgrade() all that comes goes to `on_data`.
    """

    __slots__ = ("_body", "_buffer", "_events", "_handshake", "_head", "_out", "_pieces", "_task",
                 "_wants_write", "alive", "backlog", "busy", "closing", "deadline", "fd", "gzip",
                 "on_data", "on_drained", "on_lost", "peer", "persistent", "request", "server",
                 "sock")  # fmt: skip

    def __init__(self, server: Server, sock: socket.socket, peer: str) -> None:
        self.server = server
        self.sock = sock
        self.fd = sock.fileno()
        self.peer = peer
        self.alive = True
        self.busy = False
        """A request is under way."""
        self.closing = False
        """To be closed when all is sent."""
        self.persistent = True
        self.backlog = 0
        """Bytes that the kernel has not taken yet."""
        self.request: Request | None = None
        self.on_drained: Callable[[], object] | None = None
        self.on_lost: Callable[[], object] | None = None
        self.on_data: Callable[[bytes], object] | None = None
        self.deadline = 0.0
        self._buffer = bytearray()
        self._head: tuple[str, str, heads.Fields] | None = None
        self._body: Body | None = None
        self._out: collections.deque[Any] | None = None
        self._pieces: Iterator[bytes] | None = None
        self._task: Task | None = None
        self._events = READ
        self._handshake = isinstance(sock, ssl.SSLSocket)
        self._wait(server.limits.head_seconds)
        server.loop.add(self.fd, READ, self._happened)

    # ---- what an answer may do -----------------------------------------------------------------

    def begin(
        self,
        code: int = 200,
        media: bytes = answers.JSON,
        headers: bytes = b"",
        *,
        chunked: bool = True,
    ) -> None:
        """Writes a head; a body follows, in chunks if the client understands them."""
        framing = b"Transfer-Encoding: chunked\r\n" if chunked and self.persistent else b""
        if not framing:
            self.persistent = False
            framing = b"Connection: close\r\n"
        self.deadline = NEVER
        self.send(answers.head(code, media, headers, framing))

    def send(self, data: bytes) -> None:
        """Writes bytes as they are; what the kernel does not take now waits in `backlog`."""
        if not self.alive:
            return
        if self.backlog == 0:
            try:
                sent = self.sock.send(data)
            except _AGAIN:
                sent = 0
            except OSError:
                self.lost()
                return
            if sent == len(data):
                return
            self._keep(memoryview(data)[sent:] if sent else data)
        else:
            self._keep(data)

    def _keep(self, data: bytes | memoryview) -> None:
        if self._out is None:
            self._out = collections.deque()
        if self.backlog == 0:
            self._wait(self.server.limits.stall_seconds)
        self._out.append(data)
        self.backlog += len(data)
        self._listen()

    def chunk(self, data: bytes) -> None:
        """Writes one chunk of a body that was begun (to an HTTP/1.0 client the bytes alone)."""
        if not self.persistent:
            self.send(data)
        elif len(data) < LARGE or self.backlog or isinstance(self.sock, ssl.SSLSocket):
            self.send(answers.chunk(data))
        elif self.alive:
            self._send_parts((b"%x\r\n" % len(data), data, b"\r\n"))

    def _send_parts(self, parts: tuple[bytes, ...]) -> None:
        """send() of several, which are not put together."""
        try:
            sent = self.sock.sendmsg(parts)
        except _AGAIN:
            sent = 0
        except OSError:
            self.lost()
            return
        for part in parts:
            if sent >= len(part):
                sent -= len(part)
            else:
                self._keep(memoryview(part)[sent:] if sent else part)
                sent = 0

    def finish(self) -> None:
        """The body is whole; the connection is ready for the next request, or closed."""
        if self.persistent:
            self.send(answers.LAST_CHUNK)
        self.done()

    def answer(self, answer: answers.Answer) -> None:
        """Writes a whole answer, and is done with the request."""
        body = answer.body
        framing = b"Content-Length: %d\r\n" % len(body)
        if not self.persistent:
            framing += b"Connection: close\r\n"
        data = answers.head(answer.code, answer.media, answer.headers, framing)
        if self.request is None or self.request.method != "HEAD":
            data += body
        self.send(data)
        self.done()

    def done(self) -> None:
        """The request was answered."""
        self.busy = False
        self.request = None
        self._task = None
        self._pieces = None
        self.on_drained = self.on_lost = None
        if not self.alive:
            return
        if not self.persistent or self.server.draining:
            self.close()
            return
        if self.backlog == 0:
            self._wait(self.server.limits.idle_seconds)
        if self._buffer:
            self.server.loop.call_soon(self.proceed)

    def upgrade(self, on_data: Callable[[bytes], object]) -> None:
        """From now on this is no HTTP any more: what comes, and has come, is the caller's."""
        self.on_data = on_data
        self.persistent = False
        self.deadline = NEVER
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            self.server.loop.call_soon(lambda: self.alive and on_data(data))

    def close(self) -> None:
        """Ends the connection when all is sent."""
        self.closing = True
        if self.backlog == 0:
            self.lost()

    def lost(self) -> None:
        """There is nobody any more: ends everything at once. Idempotent."""
        if not self.alive:
            return
        self.alive = False
        self.server.loop.remove(self.fd)
        self.server.forget(self)
        self.sock.close()
        self._out = None
        self._pieces = None
        self.backlog = 0
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        told, self.on_lost, self.on_drained = self.on_lost, None, None
        self.on_data = None
        if told is not None:
            told()

    # ---- events --------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        self.deadline = self.server.loop.now + seconds

    def _listen(self) -> None:
        """Asks the loop for what matters now."""
        full = self.busy and self.on_data is None
        full = full and len(self._buffer) >= self.server.limits.head_bytes
        events = (0 if full else READ) | (WRITE if self.backlog else 0)
        if self.alive and events != self._events:
            self._events = events
            self.server.loop.change(self.fd, events)

    def _happened(self, events: int) -> None:
        if self._handshake:
            self._shake()
            return
        if events & WRITE and self.backlog:
            self._flush()
        if self.alive and events & ~WRITE:
            self._receive()

    def _shake(self) -> None:
        events = READ
        try:
            self.sock.do_handshake()  # type: ignore[attr-defined]
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            events = WRITE
        except (OSError, ValueError):
            self.lost()
            return
        else:
            self._handshake = False
        if events != self._events:
            self._events = events
            self.server.loop.change(self.fd, events)

    def _receive(self) -> None:
        try:
            data = self.sock.recv(RECEIVE)
            while isinstance(self.sock, ssl.SSLSocket) and self.sock.pending():
                data += self.sock.recv(RECEIVE)
        except _AGAIN:
            return
        except OSError:
            data = b""
        if not data:
            self.lost()  # a client that has ended its side reads no answer, as on the real server
        elif self.on_data is not None:
            self.on_data(data)
        else:
            self._buffer += data
            if self.busy:
                self._listen()
            else:
                self.proceed()

    def _flush(self) -> None:
        out = self._out
        while out and self.backlog:
            try:
                sent = self._write_some(out)
            except _AGAIN:
                return
            except OSError:
                self.lost()
                return
            self.backlog -= sent
            self._drop(out, sent)
            self._wait(self.server.limits.stall_seconds)
        self._drained()

    def _write_some(self, out: collections.deque[Any]) -> int:
        if len(out) == 1 or isinstance(self.sock, ssl.SSLSocket):
            return self.sock.send(out[0])
        return self.sock.sendmsg([out[place] for place in range(min(len(out), GATHER))])

    @staticmethod
    def _drop(out: collections.deque[Any], sent: int) -> None:
        while out and sent >= len(out[0]):
            sent -= len(out.popleft())
        if sent:
            out[0] = memoryview(out[0])[sent:]

    def _drained(self) -> None:
        self._out = None
        if self.closing:
            self.lost()
            return
        self._listen()
        if self._pieces is not None:
            self._pull()
        elif not self.busy:
            self._wait(self.server.limits.idle_seconds)
            self.proceed()
        else:
            self.deadline = NEVER
            if self.on_drained is not None:
                self.on_drained()

    # ---- requests ------------------------------------------------------------------------------

    def proceed(self) -> None:
        """Answers what has come, one request after another, while nothing waits to be sent."""
        for _ in range(GREEDY):
            if self.busy or self.backlog or not self.alive or not self._buffer:
                break
            try:
                request = self._next()
            except BadRequest as error:
                self._refuse(error)
                return
            if request is None:
                break
            self._start(request)
        else:
            self.server.loop.call_soon(self.proceed)
        if self.alive:
            self._listen()

    def _next(self) -> Request | None:
        """The next whole request, or None until more has come."""
        if self._head is None:
            self._head = self._read_head()
            if self._head is None:
                return None
        method, uri, fields = self._head
        body = b""
        if fields.chunked or fields.length:
            if self._body is None:
                self._body = self._expect_body(fields)
            if not self._body.feed(self._buffer):
                return None
            body = b"".join(self._body.parts)
        self._head = self._body = None
        return Request(method, uri, fields.map, body)

    def _read_head(self) -> tuple[str, str, heads.Fields] | None:
        limits = self.server.limits
        if self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]  # between two requests, as some clients send it
        end = self._buffer.find(heads.END)
        if end < 0 or end > limits.head_bytes:
            if len(self._buffer) > limits.head_bytes:
                raise BadRequest(431, f"the head is larger than {limits.head_bytes} bytes")
            if self.deadline > self.server.loop.now + limits.head_seconds:
                self._wait(limits.head_seconds)
            return None
        head = bytes(self._buffer[: end + 4])
        del self._buffer[: end + 4]
        method, uri, modern, start = heads.line(head)
        if len(uri) > limits.target_bytes:
            raise BadRequest(414, f"the request target is larger than {limits.target_bytes} bytes")
        fields = heads.fields(head, start, limits.headers)
        if modern and "host" not in fields.map:
            raise BadRequest(400, "no Host")
        if fields.chunked and not modern:
            raise BadRequest(400, "HTTP/1.0 has no chunks")
        self.persistent = modern and not fields.close
        return method, uri, fields

    def _expect_body(self, fields: heads.Fields) -> Body:
        limits = self.server.limits
        body = Body(length=fields.length, chunked=fields.chunked, limit=limits.body_bytes)
        if fields.continues and not self._buffer:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._wait(limits.body_seconds)
        return body

    def _refuse(self, error: BadRequest) -> None:
        """The last answer: where this request ends nobody can say."""
        self.persistent = False
        self._buffer.clear()
        self.busy = True
        self.answer(answers.Answer(f"{error}\n".encode(), code=error.code, media=answers.TEXT))

    def _start(self, request: Request) -> None:
        self.busy = True
        self.request = request
        self.deadline = NEVER
        task = Task(self.server.answer(request, self), self._answered)
        self._task = task
        task.step()

    def _answered(self, answer: Any, error: BaseException | None) -> None:
        self._task = None
        if error is not None:
            answer = self._failed(error)
        if not self.alive or answer is None:
            return  # whoever took the connection over answers
        if isinstance(answer, answers.Stream):
            self._stream(answer)
        else:
            self.answer(answer)

    def _failed(self, error: BaseException) -> answers.Answer:
        if isinstance(error, failures.Failure):
            return answers.refusal(error)
        self.server.stats.errors += 1
        assert self.request is not None
        logger.error("serve: %s %s", self.request.method, self.request.path, exc_info=error)
        return answers.refusal(failures.internal_error("see the log of shmcache serve"))

    # ---- streams -------------------------------------------------------------------------------

    def _stream(self, stream: answers.Stream) -> None:
        try:
            first = next(stream.pieces, b"")
            second = next(stream.pieces, None)
        except Exception as error:  # noqa: BLE001 - it becomes an answer
            self.answer(self._failed(error))
            return
        if second is None:
            answer = answers.Answer(first, media=stream.media, headers=stream.headers)
            self.answer(answer)
            return
        self.begin(200, stream.media, stream.headers)
        if self.request is not None and self.request.method == "HEAD":
            self.done()
            return
        self.chunk(first)
        self.chunk(second)
        self._pieces = stream.pieces
        self._pull()

    def _pull(self) -> None:
        """Sends pieces until the client is behind; other clients have their turn in between."""
        if not self.alive or self._pieces is None:
            return
        if self.backlog:
            return  # _drained() goes on
        try:
            piece = next(self._pieces, None)
        except Exception:
            self.server.stats.cut += 1
            logger.warning("serve: a list was cut while it was sent", exc_info=True)
            self.lost()
            return
        if piece is None:
            self.finish()
            return
        self.chunk(piece)
        if self.backlog == 0:
            self.server.loop.call_soon(self._pull)
