"""What is not served here, passed on to the API server: with the caller's credentials alone.

X1  Nothing of our own identity is sent: no token, no certificate. Whoever may not do it there
    may not do it here.
X2  The request is built anew from its parsed parts: its target as it came, its headers one by
    one. What is about the connection (hop by hop) stays behind, in both directions. So two
    readers of one message cannot disagree; a target that they could read differently is refused.
X3  The answer is passed on at the client's pace: a thread waits while the client is behind.
    One that breaks off there breaks off here, as does one that cannot be passed on.
    A client that has gone is waited for no longer: what was asked for it there is cut at once.
    When the server drains, watches are cut as well.
X4  The head is what came from there, its status line and each header; how its body ends is said
    anew, and nothing is said of it where there is none (HEAD, 204, 304).
"""

from __future__ import annotations

import http.client
import logging
import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import unquote

from shmcache.protocol import failures
from shmcache.serve import answers, websocket
from shmcache.serve.upstream import Asked, Reply, Upstream
from shmcache.serve.workers import Workers
from shmcache.source.line import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmcache.serve.connection import Connection
    from shmcache.serve.loop import Loop
    from shmcache.serve.requests import Request
    from shmcache.serve.upstream import Pairs

logger = logging.getLogger(__name__)

HOP = frozenset({"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te",
                 "trailer", "transfer-encoding", "upgrade", "host", "content-length",
                 "expect", "proxy-connection"})  # fmt: skip
UPGRADES = ("websocket", "spdy/")
"""Which API servers change to; of any other protocol nobody has to take notice."""
BODILESS = frozenset({204, 304})
_STRANGE = re.compile(r"%(?![0-9A-Fa-f]{2})|#")


class Proxy:
    """Passes requests on to one server."""

    def __init__(self, loop: Loop, url: str, *, ca_file: str | None = None, most: int = 64) -> None:
        self._loop = loop
        self._upstream = Upstream(url, ca_file)
        self._most = most
        self._under_way = 0
        self._workers = Workers(loop, most)

    def answer(self, request: Request, connection: Connection) -> None:
        """Takes the connection over for one request. A Failure where it is not passed on."""
        if any(one.startswith(UPGRADES) for one in websocket.offered(request.headers)):
            text = "what upgrades its connection (exec, attach, port-forward) is not passed on"
            raise failures.Failure(501, "NotImplemented", text, details={})
        asked = Asked(request.method, _target(request), _onward(connection.headers()), request.body)
        if self._under_way >= self._most:
            raise failures.too_many_requests()
        self._under_way += 1
        passing = Passing(self._loop, connection)
        if request.watch:
            passing.ends_with_draining()
        self._workers.run(
            lambda: self._pass(asked, passing), lambda _, error: self._passed(passing, error)
        )

    def _passed(self, passing: Passing, error: BaseException | None) -> None:
        self._under_way -= 1
        passing.ended(error)

    def _pass(self, asked: Asked, passing: Passing) -> None:
        try:
            reply = self._upstream.ask(asked, passing.line)
        except (OSError, http.client.HTTPException) as error:
            passing.refuse(failures.stale("the API server behind this one cannot be reached"))
            logger.warning("serve: %s %s is not passed on: %s", asked.method, asked.target, error)
            return
        try:
            if asked.method == "HEAD":
                passing.whole(_head(reply, lengths=True))
            elif reply.code in BODILESS:
                passing.whole(_head(reply))
            else:
                self._body(reply, passing)
        finally:
            reply.close()

    @staticmethod
    def _body(reply: Reply, passing: Passing) -> None:
        passing.begin(_head(reply))
        try:
            for piece in reply.pieces():
                passing.chunk(piece)
        except (OSError, http.client.HTTPException) as error:
            passing.cut()
            logger.warning("serve: an answer that is passed on broke off: %s", error)
            return
        passing.finish()

    def close(self) -> None:
        """Ends its threads when their requests have."""
        self._workers.close()
        self._upstream.close()


def _target(request: Request) -> str:
    """The target as it came; a Failure (400) if another reader might find another path in it."""
    query = request.address.text
    target = f"{request.path}?{query}" if query else request.path
    if _STRANGE.search(target):
        raise failures.bad_request("the request target has an escape that is none, or a fragment")
    if not {".", ".."}.isdisjoint(unquote(request.path).split("/")):
        raise failures.bad_request("the path has parts that are dots")
    return target


def _onward(pairs: Pairs, *, lengths: bool = False) -> Pairs:
    """Without what is about one connection. `lengths`: with Content-Length, which tells it."""
    named = {
        word
        for name, value in pairs
        if name.lower() == "connection"
        for word in websocket.words(value)
    }
    dropped = (HOP | named) - ({"content-length"} if lengths else set())
    return [pair for pair in pairs if pair[0].lower() not in dropped]


def _head(reply: Reply, *, lengths: bool = False) -> bytes:
    """The status line, and the headers that are passed on."""
    lines = [f"HTTP/1.1 {reply.code} {reply.reason}\r\n"]
    for name, value in _onward(reply.headers, lengths=lengths):
        text = " ".join(value.split()) if "\n" in value else value  # it may be folded
        lines.append(f"{name}: {text}\r\n")
    return "".join(lines).encode("latin-1")


class GoneError(Exception):
    """The client has gone."""


class Passing:
    """One answer on its way from a thread to a connection."""

    def __init__(self, loop: Loop, connection: Connection) -> None:
        self._loop = loop
        self._connection = connection
        self.line = Line()
        """What is waited for there."""
        self._free = threading.Event()
        self._free.set()
        self._gone = False
        connection.on_drained = self._free.set
        connection.on_lost = self._lost

    def _lost(self) -> None:
        self._gone = True
        self._free.set()
        self.line.cut()

    def ends_with_draining(self) -> None:
        """It would go on for ever: cut when draining begins."""
        self._connection.server.on_drain[self._drained] = None

    def _drained(self) -> None:
        if self._is_under_way:
            self._connection.lost()

    def _do(self, function: Callable[[], object]) -> None:
        self._free.wait()
        if self._gone:
            raise GoneError
        self._free.clear()
        self._loop.call_threadsafe(lambda: self._run(function))

    def _run(self, function: Callable[[], object]) -> None:
        try:
            if self._connection.alive:
                function()
        except Exception as error:  # noqa: BLE001 - told to ended(), which says it
            self.ended(error)
        if self._connection.backlog == 0:
            self._free.set()

    def ended(self, error: BaseException | None) -> None:
        """Nothing more is passed on: cuts what is under way still (X3). In the loop's thread."""
        self._connection.server.on_drain.pop(self._drained, None)
        if error is not None and not isinstance(error, GoneError):
            logger.error("serve: what is passed on is cut", exc_info=error)
            if self._is_under_way:
                self._connection.lost()

    @property
    def _is_under_way(self) -> bool:
        return self._connection.on_lost == self._lost

    def begin(self, head: bytes) -> None:
        """Writes the head; a body follows."""
        connection = self._connection
        self._do(lambda: connection.begin_with(b"%b%b\r\n" % (head, connection.framing())))

    def whole(self, head: bytes) -> None:
        """Writes the head; nothing follows."""
        connection = self._connection

        def say() -> None:
            connection.begin_with(b"%b%b\r\n" % (head, connection.farewell))
            connection.done()

        self._do(say)

    def chunk(self, data: bytes) -> None:
        """Writes a piece, when the one before has been taken."""
        self._do(lambda: self._connection.chunk(data))

    def finish(self) -> None:
        """The answer is whole."""
        self._do(self._connection.finish)

    def cut(self) -> None:
        """It is not, and never will be."""
        self._do(self._connection.lost)

    def refuse(self, failure: failures.Failure) -> None:
        """There is no answer but this."""
        self._do(lambda: self._connection.answer(answers.refusal(failure)))
