"""What is not served here, passed on to the API server: with the caller's credentials alone.

X1  Nothing of our own identity is sent: no token, no certificate. Whoever may not do it there
    may not do it here.
X2  The request is built anew from its parsed parts; what is about the connection (hop by hop)
    stays behind, in both directions. So two readers of one message cannot disagree.
X3  The answer is passed on at the client's pace: a thread waits while the client is behind.
    One that breaks off there breaks off here.
"""

from __future__ import annotations

import logging
import ssl
import threading
from typing import TYPE_CHECKING, Any

from shmcache.protocol import failures
from shmcache.serve import answers
from shmcache.serve.workers import Workers

if TYPE_CHECKING:
    from shmcache.serve.connection import Connection
    from shmcache.serve.loop import Loop
    from shmcache.serve.requests import Request

logger = logging.getLogger(__name__)

HOP = frozenset({"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te",
                 "trailer", "transfer-encoding", "upgrade", "host", "content-length",
                 "expect", "proxy-connection"})  # fmt: skip
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 3600.0
"""A watch that is passed on may be silent for long; TCP keepalive finds out who is gone."""
PIECE = 64 << 10


class Proxy:
    """Passes requests on to one server."""

    def __init__(self, loop: Loop, url: str, *, ca_file: str | None = None, most: int = 64) -> None:
        self._loop = loop
        self._url = url.rstrip("/")
        self._tls = ssl.create_default_context(cafile=ca_file) if url.startswith("https") else None
        self._most = most
        self._under_way = 0
        self._workers = Workers(loop, most)
        self._pool: Any = None

    def answer(self, request: Request, connection: Connection) -> None:
        """Takes the connection over for one request. A Failure where there are too many."""
        if "upgrade" in request.headers:
            text = "what upgrades its connection (exec, attach, port-forward) is not passed on"
            raise failures.Failure(501, "NotImplemented", text, details={})
        if self._under_way >= self._most:
            raise failures.too_many_requests()
        self._under_way += 1
        passing = Passing(self._loop, connection)
        self._workers.run(lambda: self._pass(request, passing), lambda *_: self._passed())

    def _passed(self) -> None:
        self._under_way -= 1

    def _pools(self) -> Any:
        if self._pool is None:
            import urllib3

            timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=SILENCE_SECONDS)
            self._pool = urllib3.PoolManager(
                maxsize=self._most, retries=False, timeout=timeout, ssl_context=self._tls
            )
        return self._pool

    def _pass(self, request: Request, passing: Passing) -> None:
        headers = {name: value for name, value in request.headers.items() if name not in HOP}
        named = request.headers.get("connection", "").lower().split(",")
        for name in named:
            headers.pop(name.strip(), None)
        uri = request.path + (f"?{request.address.text}" if request.address.text else "")
        try:
            answer = self._pools().request(
                request.method, self._url + uri, headers=headers, body=request.body or None,
                preload_content=False, decode_content=False, redirect=False,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - whatever it was, the client is told
            logger.warning("serve: %s %s is not passed on: %s", request.method, uri, error)
            passing.refuse(failures.stale("the API server behind this one cannot be reached"))
            return
        try:
            self._body(answer, passing)
        finally:
            answer.close()

    @staticmethod
    def _body(answer: Any, passing: Passing) -> None:
        kept = [
            (name, value)
            for name, value in answer.headers.items()
            if name.lower() not in HOP | {"date", "content-type", "cache-control"}
        ]
        lines = b"".join(
            b"%b: %b\r\n" % (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in kept
        )
        media = answer.headers.get("content-type", "application/octet-stream").encode("latin-1")
        passing.begin(answer.status, media, lines)
        try:
            while piece := answer.read1(PIECE):
                passing.chunk(piece)
        except Exception as error:  # noqa: BLE001 - the client is to see that it broke off (X3)
            logger.warning("serve: an answer that is passed on broke off: %s", error)
            passing.cut()
            return
        passing.finish()

    def close(self) -> None:
        """Ends its threads when their requests have."""
        self._workers.close()


class GoneError(Exception):
    """The client has gone."""


class Passing:
    """One answer on its way from a thread to a connection."""

    def __init__(self, loop: Loop, connection: Connection) -> None:
        self._loop = loop
        self._connection = connection
        self._free = threading.Event()
        self._free.set()
        self._gone = False
        connection.on_drained = self._free.set
        connection.on_lost = self._lost

    def _lost(self) -> None:
        self._gone = True
        self._free.set()

    def _do(self, function: Any) -> None:
        self._free.wait()
        if self._gone:
            raise GoneError
        self._free.clear()

        def run() -> None:
            if self._connection.alive:
                function()
            if self._connection.backlog == 0:
                self._free.set()

        self._loop.call_threadsafe(run)

    def begin(self, code: int, media: bytes, lines: bytes) -> None:
        """Writes the head."""
        connection = self._connection
        self._do(lambda: connection.begin(code, media, lines))

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
