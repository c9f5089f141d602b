"""A request for a watch: what is asked, whether it may be shown, and the way its bytes take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.protocol import accept, failures, validation, watching
from shmcache.serve import reads, watch_forms, websocket
from shmcache.serve.watch_forms import Form
from shmcache.serve.watch_selection import selection_of

if TYPE_CHECKING:
    from shmcache.serve.catalogue import Served
    from shmcache.serve.connection import Connection
    from shmcache.serve.requests import Request
    from shmcache.serve.server import Server
    from shmcache.serve.watch_stream import Watcher
    from shmcache.serve.watches import Opening


async def answer(server: Server, request: Request, connection: Connection, served: Served) -> None:
    """Takes the connection over for a watch; a Failure refuses it before it begins."""
    assert request.target is not None
    namespace = request.target.namespace
    shape = accept.shape(request.headers.get("accept", ""), request.query)
    asked = validation.parse_options(request.query)
    labels, fields = reads.selectors(server, served, asked)
    shape = served.scope.check(served.kind, namespace, shape=shape)
    labels, fields = served.scope.check_selectors(served.kind, labels, fields)
    try:
        upgrade = websocket.accept(request.headers) if websocket.wanted(request.headers) else b""
    except websocket.Refused as refusal:
        connection.send(refusal.line)
        connection.close()
        return
    headers = server.standing.headers(served)
    refused = await _refusal(server, served, watching.beginning(asked).fresh, namespace)
    if request.method == "HEAD":
        connection.begin(headers=headers)
        connection.done()
        return
    if not connection.alive or server.draining:
        raise failures.not_ready()
    form = Form(served.kind, shape)
    try:
        opening = server.watches.open(served, selection_of(namespace, labels, fields), form, asked)
    except KeyError as error:  # the next instance of the cache does not have it, yet
        raise failures.not_ready() from error
    if upgrade:
        _Socket(connection, opening, b"%b%b\r\n" % (upgrade, headers), refused)
    else:
        _stream(connection, opening, headers, refused)


async def _refusal(
    server: Server, served: Served, fresh: int, namespace: str
) -> failures.Failure | None:
    """What a watch is told at once, if the version it wants does not come in time."""
    try:
        await server.fresh(served.name, fresh, namespace)
    except failures.Failure as failure:
        return failure
    return None


def _stream(
    connection: Connection, opening: Opening, headers: bytes, refused: failures.Failure | None
) -> None:
    connection.begin(headers=headers)
    if not connection.alive:
        opening.drop()
        return
    wrap = watch_forms.chunk if connection.chunked else watch_forms.plain
    connection.on_drained, connection.on_lost = opening.watcher.pump, opening.watcher.gone
    opening.begin(connection, wrap, refused)


class _Socket:
    """A watch on a WebSocket."""

    __slots__ = ("_connection", "_frames", "_watcher")

    def __init__(
        self,
        connection: Connection,
        opening: Opening,
        head: bytes,
        refused: failures.Failure | None,
    ) -> None:
        self._connection = connection
        self._frames = websocket.Frames()
        self._watcher: Watcher = opening.watcher
        connection.upgrade(self._came)
        connection.send(head)
        if not connection.alive:
            opening.drop()
            return
        connection.on_drained, connection.on_lost = self._watcher.pump, self._watcher.gone
        opening.begin(self, watch_forms.frames, refused)

    @property
    def backlog(self) -> int:
        """Bytes that wait for the client."""
        return self._connection.backlog

    def send(self, data: bytes) -> None:
        """Writes bytes as they are."""
        self._connection.send(data)

    def finish(self) -> None:
        """The close frame, then the end of the connection."""
        self._close(websocket.NORMAL)

    def _close(self, code: bytes) -> None:
        self._connection.send(websocket.frame(websocket.CLOSE, code))
        self._connection.close()

    def _came(self, data: bytes) -> None:
        """Clients ask whether we are there, and say that they go; nothing else matters."""
        try:
            for frame in self._frames.feed(data):
                if frame.kind == websocket.CLOSE:
                    self._watcher.finish()
                    return
                if frame.kind == websocket.PING:
                    self._pong(frame.data)
        except websocket.Broken as broken:
            self._watcher.gone()
            self._close(broken.code)

    def _pong(self, data: bytes) -> None:
        if self._connection.backlog > self._watcher.limit:
            self._connection.lost()  # it only asks, and reads nothing
        else:
            self._connection.send(websocket.frame(websocket.PONG, data))
