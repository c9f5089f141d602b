"""One client: its requests one after another, answers in the order of requests.

C3  an answer that cannot be ended as it began ends the connection without its last chunk, so
    that the client knows. Each client of HTTP/1.1 gets chunks, also one that closes; only one of
    HTTP/1.0 gets the bytes alone, up to the connection's end.

C6  what has come is answered, also where reading it fails: with 500, and a line in the log.

C1 stands in incoming.py, C2, C4 and C5 in wire.py.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from shmcache.protocol import failures
from shmcache.serve import answers, pretty
from shmcache.serve.heads import BadRequest
from shmcache.serve.incoming import Incoming
from shmcache.serve.loop import Task
from shmcache.serve.wire import NEVER, Wire

if TYPE_CHECKING:
    from shmcache.serve.requests import Request
    from shmcache.serve.server import Server

logger = logging.getLogger(__name__)

LARGE = 16 << 10
"""A chunk from this size on is not copied to be framed."""
GREEDY = 16
"""Requests answered before other clients have their turn."""
PIECES = 4
"""Pieces of a list sent before that."""


class Connection(Wire):
    """A client's connection, and the answer that is under way on it.

    For answers that go on (watches): begin(), then chunk() or send() as long as `backlog` is small,
    `on_drained` when it has become 0, `on_lost` when there is nobody any more; finish() ends the
    answer in order, close() the connection. After upgrade() all that comes goes to `on_data`.
    """

    __slots__ = ("_incoming", "_pieces", "_task", "busy", "on_data", "on_drained", "on_lost",
                 "peer", "persistent", "request")  # fmt: skip

    def __init__(self, server: Server, sock: socket.socket, peer: str) -> None:
        self.peer = peer
        self.busy = False
        """A request is under way."""
        self.persistent = True
        self.request: Request | None = None
        self.on_drained: Callable[[], object] | None = None
        self.on_lost: Callable[[], object] | None = None
        self.on_data: Callable[[bytes], object] | None = None
        self._incoming = Incoming(server.limits)
        self._pieces: Iterator[bytes] | None = None
        self._task: Task | None = None
        super().__init__(server, sock)

    # ---- what an answer may do -----------------------------------------------------------------

    @property
    def chunked(self) -> bool:
        """Whether a body of no known length goes to the client in chunks."""
        return self._incoming.modern

    @property
    def farewell(self) -> bytes:
        """The line that ends each head, where the connection ends with its answer."""
        return b"" if self.persistent else b"Connection: close\r\n"

    def begin(self, code: int = 200, media: bytes = answers.JSON, headers: bytes = b"") -> None:
        """Writes a head; a body follows, in chunks if the client understands them."""
        self.begin_with(answers.head(code, media, headers, self.framing()))

    def framing(self) -> bytes:
        """The lines of a head that a body of no known length follows."""
        return (b"Transfer-Encoding: chunked\r\n" if self.chunked else b"") + self.farewell

    def begin_with(self, head: bytes) -> None:
        """Writes a whole head of somebody else's."""
        self.deadline = NEVER
        self.send(head)

    def chunk(self, data: bytes) -> None:
        """Writes one chunk of a body that was begun (to an HTTP/1.0 client the bytes alone)."""
        if not self.chunked:
            self.send(data)
        elif len(data) < LARGE:
            self.send(answers.chunk(data))
        else:
            self.send_parts(b"%x\r\n" % len(data), data, b"\r\n")

    def finish(self) -> None:
        """The body is whole; the connection is ready for the next request, or closed."""
        if self.chunked:
            self.send(answers.LAST_CHUNK)
        self.done()

    def answer(self, answer: answers.Answer) -> None:
        """Writes a whole answer, and is done with the request."""
        body = answer.body
        framing = b"Content-Length: %d\r\n%b" % (len(body), self.farewell)
        data = answers.head(answer.code, answer.media, answer.headers, framing)
        if self.request is None or self.request.method != "HEAD":
            data += body
        self.send(data)
        self.done()

    def done(self) -> None:
        """The request was answered."""
        self.busy = False
        self.request = self._incoming.fields = None
        self._task = None
        self._pieces = None
        self.on_drained = self.on_lost = None
        if not self.alive:
            return
        if not self.persistent or self.server.draining:
            self.close()
            return
        if self.backlog == 0:
            self.wait(self.server.limits.idle_seconds)
        if self._incoming.buffer:
            self.server.loop.call_soon(self.proceed)

    def headers(self) -> list[tuple[str, str]]:
        """Those of the request that is under way, as they came."""
        fields = self._incoming.fields
        return [] if fields is None else fields.pairs()

    def upgrade(self, on_data: Callable[[bytes], object]) -> None:
        """From now on this is no HTTP any more: what comes, and has come, is the caller's."""
        self.on_data = on_data
        self.persistent = False
        self.deadline = NEVER
        buffer = self._incoming.buffer
        if buffer:
            data = bytes(buffer)
            buffer.clear()
            self.server.loop.call_soon(lambda: self.alive and on_data(data))

    # ---- what the wire says --------------------------------------------------------------------

    def full(self) -> bool:
        """Whether nothing more is to be read for now."""
        return self.busy and self.on_data is None and self._incoming.full

    def came(self, data: bytes) -> None:
        """Bytes of the client."""
        if self.on_data is not None:
            self.on_data(data)
        elif self.busy:
            self._incoming.buffer += data
            self.listen()
        elif not (self.backlog == 0 and self._incoming.between and self._answer_usual(data)):
            self._incoming.buffer += data
            self.proceed()

    def drained(self) -> None:
        """What waited is sent."""
        if self._pieces is not None:
            self._pull()
        elif not self.busy:
            self.wait(self.server.limits.idle_seconds)
            self.proceed()
        else:
            self.deadline = NEVER
            if self.on_drained is not None:
                self.on_drained()

    def ended(self) -> None:
        """The connection is no more."""
        self.server.forget(self)
        self._pieces = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        told, self.on_lost, self.on_drained = self.on_lost, None, None
        self.on_data = None
        if told is not None:
            told()

    # ---- requests ------------------------------------------------------------------------------

    def _answer_usual(self, data: bytes) -> bool:
        """Whether this was the usual request, and is answered."""
        try:
            answer = self.server.usual.answer(data)
        except Exception:
            logger.exception("serve: the usual way")
            return False  # the long way says what is wrong
        if answer is None:
            return False
        self.send(answer)
        if self.backlog == 0:
            self.wait(self.server.limits.idle_seconds)
        return True

    def proceed(self) -> None:
        """Answers what has come, one request after another, while nothing waits to be sent."""
        for _ in range(GREEDY):
            if self.busy or self.backlog or not self.alive or not self._incoming.buffer:
                break
            try:
                request = self._incoming.next()
            except BadRequest as error:
                self._refuse(error)
                return
            except Exception:
                self.server.stats.errors += 1
                logger.exception("serve: a request that cannot be read")
                self._refuse(BadRequest(500, "see the log of shmcache serve"))
                return
            if request is None:
                self._await_more()
                break
            self._start(request)
        else:
            self.server.loop.call_soon(self.proceed)
        if self.alive:
            self.listen()

    def _await_more(self) -> None:
        incoming, limits = self._incoming, self.server.limits
        if incoming.body_began:
            incoming.body_began = False
            if incoming.continues:
                self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.wait(limits.body_seconds)
        elif not incoming.in_body and self.deadline > self.server.loop.now + limits.head_seconds:
            self.wait(limits.head_seconds)

    def _refuse(self, error: BadRequest) -> None:
        """The last answer: where this request ends nobody can say."""
        self.persistent = False
        self._incoming.buffer.clear()
        self.busy = True
        self.answer(answers.Answer(f"{error}\n".encode(), code=error.code, media=answers.TEXT))

    def _start(self, request: Request) -> None:
        self.busy = True
        self.persistent = self._incoming.persistent
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
            self._say(answer)

    def _say(self, answer: answers.Answer) -> None:
        """An answer that is not under way yet."""
        assert self.request is not None
        self.answer(pretty.document(self.request, answer))

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
            self._say(self._failed(error))
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
        del first, second  # their memory is the next pieces'
        self._pull()

    def _pull(self) -> None:
        """Sends pieces until the client is behind; other clients have their turn in between."""
        for _ in range(PIECES):
            if not self.alive or self._pieces is None or self.backlog:
                return  # drained() goes on
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
            del piece
        if self.backlog == 0:
            self.server.loop.call_soon(self._pull)
