"""Passes other requests on to the API server, with the caller's credentials only.

PROXY1  Nothing of our own identity is sent: no token, no certificate. A caller without
    permission there has none here.
PROXY2  The request is rebuilt from its parsed parts: its target as it came, its headers one by
    one. Headers about the connection (hop by hop) are dropped, in both directions. So two
    readers of one message cannot disagree; a target that they could read differently is refused.
PROXY3  The answer is passed on at the client's pace: a thread waits while the client lags.
    An answer that breaks off there breaks off here, as does one that cannot be passed on.
    When a client disconnects, its request to the API server is cut at once.
    When the server drains, watches are cut as well.
PROXY4  The head is the API server's, its status line and each header; the framing of the body is
    written again, and left out where there is no body (HEAD, 204, 304).
PROXY5  a header that Connection names is not dropped: a client could hide its own credentials so,
    or those of a proxy in front, and the request would have the rights that are left. Such a
    request is refused.
PROXY6  an answer is passed on only if it reads in one way: see upstream.py.
PROXY7  no answer asks a client to repeat a write that the API server may have carried out: many
    clients repeat whatever is answered with 5xx and Retry-After.
"""

from __future__ import annotations

import http.client
import logging
import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import unquote

from shmcache.protocol import failures
from shmcache.reasons import reason_of
from shmcache.serve.auth.threads import Workers
from shmcache.serve.http import answers, websocket
from shmcache.serve.http.shares import Shares
from shmcache.serve.proxy.upstream import LostAnswer, PassedRequest, Reply, Upstream
from shmcache.source.line import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from shmcache.serve.http.connection import Connection
    from shmcache.serve.http.loop import Loop
    from shmcache.serve.http.requests import HttpRequest
    from shmcache.serve.proxy.upstream import Pairs

logger = logging.getLogger(__name__)

HOP = frozenset({"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te",
                 "trailer", "transfer-encoding", "upgrade", "host", "content-length",
                 "expect", "proxy-connection", "http2-settings"})  # fmt: skip
UPGRADES = ("websocket", "spdy/")
"""Protocols that API servers switch to; requests to upgrade to others can be ignored."""
BODILESS = frozenset({204, 304})
_STRANGE = re.compile(r"%(?![0-9A-Fa-f]{2})|#")


class Proxy:
    """Passes requests on to one server."""

    def __init__(self, loop: Loop, url: str, *, ca_file: str | None = None, most: int = 64) -> None:
        self._loop = loop
        self._upstream = Upstream(url, ca_file)
        self._shares = Shares(most)
        self._workers = Workers(loop, most)

    async def answer(self, request: HttpRequest, connection: Connection) -> None:
        """Takes the connection over for one request. A Failure if it is not passed on."""
        if any(one.startswith(UPGRADES) for one in websocket.offered(request.headers)):
            text = "requests that upgrade (exec, attach, port-forward) are not passed on"
            raise failures.Failure(501, "NotImplemented", text, details={})
        pairs = connection.headers()
        _check_nominations(pairs)
        target, headers = _target(request), _onward(pairs)
        asked = PassedRequest(request.method, target, headers, await connection.body())
        connection.weigh()
        holder = connection.holder
        self._shares.take(holder)
        passing = Passing(self._loop, connection)
        if request.watch:
            passing.ends_with_draining()
        self._workers.run(
            lambda: self._pass(asked, passing),
            lambda _, error: self._passed(passing, holder, error),
            holder=holder,
        )

    def _passed(self, passing: Passing, holder: Hashable, error: BaseException | None) -> None:
        self._shares.give_back(holder)
        passing.ended(error)

    def _pass(self, asked: PassedRequest, passing: Passing) -> None:
        try:
            reply = self._upstream.ask(asked, passing.line)
        except LostAnswer as error:
            passing.refuse(failures.lost_answer())
            logger.warning(
                "serve: the answer to %s %s is lost: %s", asked.method, asked.target, error
            )
            return
        except (OSError, http.client.HTTPException) as error:
            passing.refuse(failures.stale("the upstream API server cannot be reached"))
            why = reason_of(error)
            logger.warning("serve: %s %s is not passed on: %s", asked.method, asked.target, why)
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
            logger.warning("serve: a forwarded answer broke off: %s", reason_of(error))
            return
        passing.finish()

    def close(self) -> None:
        """Ends its threads when their requests have."""
        self._workers.close()
        self._upstream.close()


def _target(request: HttpRequest) -> str:
    """The target as it came; a Failure (400) if another reader might find another path in it."""
    target = request.address.sent
    if _STRANGE.search(target):
        raise failures.bad_request("the request target has an invalid escape or a fragment")
    if not {".", ".."}.isdisjoint(unquote(target.partition("?")[0]).split("/")):
        raise failures.bad_request("the path has parts that are dots")
    return target


def _onward(pairs: Pairs, *, lengths: bool = False) -> Pairs:
    """The headers that are not about one connection. `lengths`: Content-Length with them."""
    dropped = HOP - ({"content-length"} if lengths else set())
    return [pair for pair in pairs if pair[0].lower() not in dropped]


def _nominated(pairs: Pairs) -> set[str]:
    """The names in Connection headers."""
    return {
        member
        for name, value in pairs
        if name.lower() == "connection"
        for member in websocket.members(value)
    }


def _check_nominations(pairs: Pairs) -> None:
    """A Failure (400) if Connection names a header that is about the request (PROXY5)."""
    present = {name.lower() for name, _ in pairs} - HOP
    for name in sorted(present & _nominated(pairs)):
        raise failures.bad_request(f"Connection names {name}, which is part of the request")


def _head(reply: Reply, *, lengths: bool = False) -> bytes:
    """The status line, and the headers that are passed on."""
    lines = [f"HTTP/1.1 {reply.code} {reply.reason}\r\n"]
    nominated = _nominated(reply.headers)
    for name, value in _onward(reply.headers, lengths=lengths):
        if name.lower() in nominated:
            continue
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("latin-1")


class GoneError(Exception):
    """The client has gone."""


class Passing:
    """One answer on its way from a thread to a connection."""

    def __init__(self, loop: Loop, connection: Connection) -> None:
        self._loop = loop
        self._connection = connection
        self.line = Line()
        """The connection on which its thread waits."""
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
        """Cuts the answer when draining begins: it would go on for ever."""
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
        """The passing is over: cuts a request still under way (PROXY3). In the loop's thread."""
        self._connection.server.on_drain.pop(self._drained, None)
        if error is not None and not isinstance(error, GoneError):
            logger.error("serve: a forwarded answer is cut", exc_info=error)
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
        """The answer is complete."""
        self._do(self._connection.finish)

    def cut(self) -> None:
        """The answer is incomplete, and will remain so."""
        self._do(self._connection.lost)

    def refuse(self, failure: failures.Failure) -> None:
        """Reports a Failure as the only answer."""
        self._do(lambda: self._connection.answer(answers.refusal(failure)))
