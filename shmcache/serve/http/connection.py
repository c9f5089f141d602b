"""One client: its requests one after another, answers in the order of requests.

HTTP3  an answer that cannot be ended as it began ends the connection without its last chunk, so
    that the client knows. Each client of HTTP/1.1 gets chunks, also one that closes; only one of
    HTTP/1.0 gets the bytes alone, up to the connection's end.

HTTP6  a request is answered also where reading it fails: with 500, and a line in the log.

HTTP8  a client whose last requests were refused waits before its next one, longer after each, and
    takes its turns in the slow line, of which the loop takes a few each turn. Refusals at full
    speed would leave others neither turns nor CPU. Where a peer was refused MANY times in this
    second, its further connections begin in the slow line: a client that connects again after each
    refusal gains nothing.

HTTP10  a probe never takes the slow line that its connection begins in: in a full server, or while
    its bytes count as held for long, the wait could end the connection.

HTTP1 and HTTP7 are in incoming.py, HTTP2, HTTP4 and HTTP5 in wire.py.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any

from shmcache.protocol import failures
from shmcache.serve.http import answers, pretty
from shmcache.serve.http.heads import BadRequest
from shmcache.serve.http.incoming import Incoming
from shmcache.serve.http.loop import Pending, Task
from shmcache.serve.http.weights import FREE, weight_of
from shmcache.serve.http.wire import LINGER_BYTES, NEVER, Wire

if TYPE_CHECKING:
    from shmcache.serve.http.listening import Listening
    from shmcache.serve.http.requests import HttpRequest

logger = logging.getLogger(__name__)

LARGE = 16 << 10
"""A chunk from this size on is not copied to be framed."""
GREEDY = 16
"""Requests answered before other clients have their turn."""
REFUSALS = frozenset({400, 401, 403, 405, 413, 414, 417, 431, 501})
"""After these a client's next request takes the slow line (HTTP8)."""
MANY = 32
BEGUN_SLOWLY = 2
"""Refusals that a connection of such a peer begins with (HTTP8)."""
DELAY_SECONDS, LONGEST_DELAY = 0.0005, 0.25
"""After the first refusal, and after many of them (HTTP8)."""
PIECES = 4
"""Pieces of a list sent before that."""
_PROBE = re.compile(rb"(?:GET|HEAD) /(?:livez|readyz|healthz)[ ?]")
PROBE_BYTES = 2048
"""Those of the kubelet and of balancers are shorter."""


class Connection(Wire):
    """A client's connection, and the answer that is under way on it.

    For answers that go on (watches): begin(), then chunk() or send() as long as `backlog` is small,
    `on_drained` when it has become 0, `on_lost` when the client is gone; finish() ends the answer
    in order, close() the connection. After upgrade() all that comes goes to `on_data`.
    """

    __slots__ = ("_incoming", "_passed_on", "_pieces", "_refused", "_taking", "_task", "_weighed",
                 "busy", "holder", "on_data", "on_drained", "on_lost", "paused", "peer",
                 "persistent", "request", "stranger")  # fmt: skip

    def __init__(self, server: Listening, sock: socket.socket, peer: str) -> None:
        self.peer = peer
        """Where the client is: an address, or the uid at the other end of a Unix socket."""
        self.holder: Hashable = peer
        """Whose request is under way: its user, or the peer while it has no name."""
        self._weighed: tuple[Hashable, int] = (peer, 0)
        """Bytes of `server.kept` that its request has, and in whose name."""
        self.stranger = False
        """A local user that may not read the cache: only health requests are answered."""
        self.paused = False
        """Nothing is read for now, until its owner resumes."""
        self._refused = BEGUN_SLOWLY if server.refused[peer] > MANY else 0
        """How many of the last requests were refused: HTTP8."""
        self._taking: Pending[bytes] | None = None
        """Pending while a handler waits for the body of the request."""
        self._passed_on = 0
        """Bytes of a body that the request has taken."""
        self.busy = False
        """A request is under way."""
        self.persistent = True
        self.request: HttpRequest | None = None
        self.on_drained: Callable[[], object] | None = None
        self.on_lost: Callable[[], object] | None = None
        self.on_data: Callable[[bytes], object] | None = None
        self._incoming = Incoming(server.limits)
        self._pieces: Iterator[bytes] | None = None
        self._task: Task | None = None
        super().__init__(server, sock)

    # ---- for answers ---------------------------------------------------------------------------

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
        if answer.code in REFUSALS:
            self._refused += 1
            self.server.refused[self.peer] += 1
        else:
            self._refused = 0
        if self._refused and self._incoming.body is not None:
            self.persistent = False
        self.send(data)
        self.done()

    async def body(self) -> bytes:
        """The request's body, read now. BadRequest where it is too long, or malformed."""
        incoming = self._incoming
        if incoming.body is None:
            return b""
        if not self.server.holding.fits(incoming.body.length or 0):
            raise failures.too_many_requests()
        self.persistent = incoming.persistent
        if incoming.continues:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.wait(self.server.limits.body_seconds)
        taking = self._taking = Pending()
        self._read_body()
        return await taking

    def _read_body(self) -> None:
        incoming, taking = self._incoming, self._taking
        assert taking is not None
        assert incoming.body is not None
        try:
            whole = incoming.feed_body()
        except BadRequest as error:
            self._taking = None
            taking.fail(error)
            return
        if incoming.body.stopped and not whole:
            self.server.loop.call_soon(self._read_body_on)
        if whole:
            self._taking = None
            self.deadline = NEVER
            data, incoming.body = bytes(incoming.body.data), None
            self._passed_on = len(data)
            taking.give(data)
        self.note(incoming.held + self._passed_on)
        self.listen()

    def _read_body_on(self) -> None:
        if self.alive and self._taking is not None:
            self._read_body()

    def done(self) -> None:
        """The request was answered."""
        self.busy = False
        self._passed_on = 0
        self._taking = None
        self.request = self._incoming.fields = None
        self._task = None
        self._pieces = None
        self.on_drained = self.on_lost = None
        self._weigh_no_more()
        self.holder = self.peer
        if not self.alive:
            return
        if not self.persistent or self.server.draining:
            self.close(lingering=not self._incoming.between)
            return
        if self.backlog == 0:
            self.wait(self.server.limits.idle_seconds)
        self.note(self._incoming.held)
        if self._incoming.buffer or self._incoming.body is not None:
            self._proceed_later()

    def headers(self) -> list[tuple[str, str]]:
        """Those of the request that is under way, as they came."""
        fields = self._incoming.fields
        return [] if fields is None else fields.pairs()

    def forget_headers(self) -> None:
        """Gives the memory of the request's headers back, where its answer goes on for long."""
        self._incoming.fields = None

    def weigh(self, more: int = 0) -> None:
        """Counts what its request keeps now, and `more`; a Failure (429) if it does not fit."""
        counted = max(weight_of(self.request, self._incoming.fields) + more - FREE, 0)
        self._weigh_no_more()
        if counted:
            self.server.kept.take(self.holder, counted)
            self._weighed = (self.holder, counted)

    def _weigh_no_more(self) -> None:
        holder, counted = self._weighed
        if counted:
            self._weighed = (holder, 0)
            self.server.kept.give_back(holder, counted)

    async def piece_fits(self) -> None:
        """Returns when there is room to make a piece of an answer (HOLD4)."""
        while self.server.holding.tight:
            roomy = Pending[None]()
            self.server.holding.room(self, lambda roomy=roomy: roomy.give(None))  # type: ignore[misc]
            await roomy

    def upgrade(self, on_data: Callable[[bytes], object]) -> None:
        """From now on this is not HTTP: all that comes, and has come, is the caller's.

        Early bytes are handed over in the next turn, in front of those that come until then.
        """
        self.on_data = on_data
        self.persistent = False
        self.deadline = NEVER
        if self._incoming.buffer:
            self.server.loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        data = bytes(self._incoming.buffer)
        self._incoming.drop()
        if self.alive and self.on_data is not None and not self.closing:
            self.note(0)
            self.on_data(data)

    # ---- called by the wire --------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether it may go where a new connection needs its room (ROOM1).

        It waits for its client (for a request, a body, to take an answer), or for room that other
        clients hold.
        """
        return (
            not self.busy
            or self._taking is not None
            or self.backlog > 0
            or self.closing
            or self.server.holding.awaited_by(self)
        )

    def full(self) -> bool:
        """Whether nothing more is to be read for now."""
        if self.on_data is not None or self.paused:
            return self.paused
        return self.busy and self._taking is None and self._incoming.full

    def came(self, data: bytes) -> None:
        """Bytes of the client."""
        if self.on_data is not None and not self._incoming.buffer:
            self.on_data(data)
        elif self.busy:
            self._incoming.buffer += data
            if self._taking is not None:
                self._read_body()
            else:
                self.note(self._incoming.held + self._passed_on)
                self.listen()
        elif not (self._incoming.between and self._answer_usual(data)):
            self._incoming.buffer += data
            if self._refused and not self._is_probe():
                self.note(self._incoming.held)
                self._proceed_later()
            else:
                self.proceed()

    def drained(self) -> None:
        """The backlog has been sent."""
        if self._pieces is not None:
            self._pull()
        elif not self.busy:
            self.wait(self.server.limits.idle_seconds)
            self._proceed_later()
        else:
            self.deadline = NEVER
            if self.on_drained is not None:
                self.on_drained()

    def ended(self) -> None:
        """The connection has ended."""
        self.server.forget(self)
        self.server.holding.forget(self)
        self._weigh_no_more()
        self._incoming.drop()  # now, though a cycle of references may keep this object for a while
        self._pieces = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        told, self.on_lost, self.on_drained = self.on_lost, None, None
        self.on_data = None
        if told is not None:
            told()

    # ---- requests ------------------------------------------------------------------------------

    def _is_probe(self) -> bool:
        """Whether a probe has come from a peer, but not on a connection, that was refused often."""
        buffer = self._incoming.buffer
        short = self._incoming.body is None and len(buffer) <= PROBE_BYTES
        return short and self._refused <= BEGUN_SLOWLY and _PROBE.match(buffer) is not None

    def _answer_usual(self, data: bytes) -> bool:
        """Whether this was the usual request, and is answered."""
        try:
            answer = None if self.stranger else self.server.quick(data)
        except Exception:
            logger.exception("serve: the usual way")
            return False  # the long way reports the error
        if answer is None:
            return False
        self.send(answer)
        if self.backlog == 0:
            self.wait(self.server.limits.idle_seconds)
        return True

    def _proceed_later(self) -> None:
        """proceed() in a later turn; after a refusal in the slow line (HTTP8)."""
        if not self._refused:
            self.server.loop.call_soon(self.proceed)
        elif not self.paused:
            self.paused = True
            self.listen()
            delay = min(DELAY_SECONDS * 2 ** min(self._refused, 16), LONGEST_DELAY)
            self.server.loop.call_later(delay, lambda: self.server.slowly(self._proceed_slowly))

    def _proceed_slowly(self) -> None:
        self.paused = False
        if self.alive:
            self.proceed(1)

    def proceed(self, greedy: int = GREEDY) -> None:
        """Answers the received requests one after another, while nothing waits to be sent."""
        for _ in range(greedy):
            if self.busy or self.paused or self.backlog or self.closing or not self.alive:
                break
            request = self._next()
            if request is None:
                break
            self._start(request)
        else:
            self._proceed_later()
        if self.alive:
            self.note(self._incoming.held + self._passed_on)
            self.listen()

    def _next(self) -> HttpRequest | None:
        """The next request; None if no request can be answered now."""
        incoming = self._incoming
        try:
            if not incoming.skip_body():
                if incoming.body is not None and incoming.body.stopped:
                    self._proceed_later()
                self._await_more()
                return None
        except BadRequest:
            self.close(lingering=True)  # answered; the end of its body cannot be found
            return None
        if not incoming.buffer:
            return None
        try:
            request = incoming.next()
        except BadRequest as error:
            self._refuse(error)
            return None
        except Exception:
            self.server.stats.errors += 1
            logger.exception("serve: error while reading a request")
            self._refuse(BadRequest(500, "see the log of shmcache serve"))
            return None
        if request is None:
            self._await_more()
        return request

    def _await_more(self) -> None:
        """Once for each head, and for each body that is read over."""
        limits, deadline = self.server.limits, self.deadline
        seconds = limits.head_seconds if self._incoming.body is None else limits.body_seconds
        if deadline > self.server.loop.now + seconds:
            self.wait(seconds)

    def _refuse(self, error: BadRequest) -> None:
        """The last answer: nobody can tell where this request ends."""
        self.persistent = False
        self._incoming.drop()
        self.busy = True
        self.lingers = LINGER_BYTES
        self.answer(answers.Answer(f"{error}\n".encode(), code=error.code, media=answers.TEXT))

    def _start(self, request: HttpRequest) -> None:
        self.busy = True
        self.persistent = self._incoming.persistent and self._incoming.skippable
        self.request = request
        self.deadline = NEVER
        task = Task(self.server.answer(request, self), self._answered)
        self._task = task
        task.step()
        if self._task is task and self.alive:
            self._weigh_waiting(task)

    def _weigh_waiting(self, task: Task) -> None:
        """A request that waits is weighed; it ends where it does not fit (HOLD5)."""
        try:
            self.weigh()
        except failures.Failure as refused:
            task.cancel()
            self._answered(None, refused)

    def _answered(self, answer: Any, error: BaseException | None) -> None:
        self._task = None
        if isinstance(error, BadRequest):
            if self.alive:
                self._refuse(error)
            return
        if error is not None:
            answer = self._failed(error)
        if not self.alive or answer is None:
            return  # a watch or the proxy took the connection over, and answers
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
        request = self.request
        self.request = self._incoming.fields = None  # its answer may go on for long
        try:
            self.weigh(stream.weight)
        except failures.Failure as error:
            self.request = request
            self._say(answers.refusal(error))
            return
        self.begin(200, stream.media, stream.headers)
        if request is not None and request.method == "HEAD":
            self.done()
            return
        self._pieces = stream.pieces
        self._pull()

    def _pull(self) -> None:
        """Sends pieces until some wait for the client; others have their turn in between."""
        for _ in range(PIECES):
            if not self.alive or self._pieces is None or self.backlog:
                return  # drained() goes on
            if not self.room(self._pull):
                return
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
