"""A request for a watch: its options, its permission, and the way its bytes take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.protocol import accept, failures, relays, validation, watching
from shmcache.serve.auth.permit import Permit
from shmcache.serve.http import websocket, zipping
from shmcache.serve.http.weights import weight_of_selectors
from shmcache.serve.read import reads
from shmcache.serve.watch import encoding as watch_forms
from shmcache.serve.watch.encoding import WatchForm
from shmcache.serve.watch.selection import selection_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmcache.serve.catalogue import Served
    from shmcache.serve.http.connection import Connection
    from shmcache.serve.http.requests import HttpRequest
    from shmcache.serve.server import Server
    from shmcache.serve.watch.hub import Opening
    from shmcache.serve.watch.watcher import Watcher


async def answer(
    server: Server, request: HttpRequest, connection: Connection, served: Served
) -> None:
    """Takes the connection over for a watch; a Failure refuses it before it begins."""
    assert request.target is not None
    namespace = request.target.namespace
    shape = accept.shape(request.headers.get("accept", ""), request.query)
    asked = validation.parse_options(request.query)
    labels, fields = reads.selectors(server, served, asked)
    request.weight = weight_of_selectors(labels, fields, shard=asked.shard_selector)
    shape = served.scope.check(served.kind, namespace, shape=shape)
    labels, fields = served.scope.check_selectors(served.kind, labels, fields)
    shard = served.scope.check_shard(served.kind, validation.shard_of(asked))
    try:
        upgrade = websocket.accept(request.headers) if websocket.wanted(request.headers) else b""
    except websocket.Refused as refusal:
        connection.send(refusal.line)
        connection.close(lingering=True)
        return
    await server.reached(served, request.headers, namespace, holder=connection.holder)
    version = watching.beginning(asked).fresh
    refused = await _refusal(server, connection, served, version, namespace)
    current = await server.consistency.current(served, asked.resource_version, namespace=namespace)
    headers = server.standing.headers(served)
    headers += current.headers(server.catalogue.root(served)[0])  # nothing waits from here on
    reached = server.version(served.name, namespace)
    headers += relays.lines(lag=None, version=str(reached) if reached else "")
    if request.method == "HEAD":
        connection.begin(headers=headers)
        connection.done()
        return
    if not connection.alive or server.draining:
        raise failures.not_ready()
    form = WatchForm(served.kind, shape)
    selection = selection_of(namespace, labels, fields, shard)
    zips = bool(asked.send_initial_events) and zipping.wanted(request.headers)
    least = relays.reached(request.headers)
    request.headers = server.access.proof(request.headers)
    connection.forget_headers()
    connection.weigh()
    permit = Permit(server, request, connection)
    try:
        opening = server.watches.open(
            served, selection, form, asked, permit=permit, current=current
        )
        opening.least = least
    except KeyError as error:  # the next instance of the cache does not have it, yet
        permit.leave()
        raise failures.not_ready() from error
    except BaseException:
        permit.leave()
        raise
    if upgrade:
        _Socket(connection, opening, b"%b%b\r\n" % (upgrade, headers), refused)
    else:
        _stream(connection, opening, headers, refused, zips=zips)


async def _refusal(
    server: Server, connection: Connection, served: Served, version: int, namespace: str
) -> failures.Failure | None:
    """The failure that a watch reports at once if the version it wants does not come in time."""
    try:
        await server.fresh(served.name, version, namespace, holder=connection.holder)
    except failures.Failure as failure:
        return failure
    return None


def _stream(
    connection: Connection,
    opening: Opening,
    headers: bytes,
    refused: failures.Failure | None,
    *,
    zips: bool,
) -> None:
    zips = zips and connection.chunked
    connection.begin(headers=headers + zipping.HEADERS if zips else headers)
    if not connection.alive:
        opening.drop()
        return
    wrap = watch_forms.chunk if connection.chunked else watch_forms.plain
    if zips:
        wrap = watch_forms.zipped
    connection.on_drained, connection.on_lost = opening.watcher.pump, opening.watcher.gone
    opening.begin(connection, wrap, refused)


FRAMES = 16
"""Frames of one client that are read in one turn."""


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
        connection.on_drained, connection.on_lost = self._drained, self._lost
        opening.begin(self, watch_forms.frames, refused)

    @property
    def backlog(self) -> int:
        """Bytes that wait for the client."""
        return self._connection.backlog

    @property
    def choked(self) -> bool:
        """Whether the backlog is too large to write more."""
        return self._connection.choked

    def room(self, then: Callable[[], object]) -> bool:
        """See holding.py."""
        return self._connection.room(then)

    def send(self, data: bytes) -> None:
        """Writes bytes as they are."""
        self._connection.send(data)

    def finish(self) -> None:
        """The close frame, then the end of the connection."""
        self._close(websocket.NORMAL)

    def _close(self, code: bytes) -> None:
        self._connection.send(websocket.frame(websocket.CLOSE, code))
        self._connection.close(lingering=True)

    def _came(self, data: bytes) -> None:
        """Handles pings and close frames of clients; ignores everything else."""
        self._frames.add(data)
        self._read()

    def _lost(self) -> None:
        self._watcher.gone()
        self._frames = websocket.Frames()

    def _drained(self) -> None:
        self._watcher.pump()
        self._read()

    def _read(self) -> None:
        """A few frames; nothing is read from the client until the rest of them had their turn.

        While pongs wait for the client no more of them are made: _drained() goes on.
        """
        connection = self._connection
        connection.paused = False
        try:
            self._answer_frames()
        except websocket.Broken as broken:
            self._frames = websocket.Frames()
            self._watcher.gone()
            self._close(broken.code)
        connection.note(len(self._frames))  # also those that wait for a backlog
        connection.listen()

    def _answer_frames(self) -> None:
        connection = self._connection
        for _ in range(FRAMES):
            if not connection.alive or connection.closing or connection.backlog:
                return
            frame = self._frames.next()
            if frame is None:
                return
            if frame.kind == websocket.CLOSE:
                self._watcher.finish()
                return
            if frame.kind == websocket.PING:
                connection.send(websocket.frame(websocket.PONG, frame.data))
        connection.paused = True
        connection.server.slowly(self._read)
