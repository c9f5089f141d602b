"""One connection: HTTP/1.1 by h11, requests one after another, watches until they end."""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import uuid
from typing import TYPE_CHECKING

import h11

from shmcache.protocol import accept, failures, framing
from shmcache.testing.apiserver.requests import ApiRequest, Response, Streaming, refusal
from shmcache.testing.apiserver.wire import CutError, EndedError, FaultyWire

if TYPE_CHECKING:
    from shmcache.testing.apiserver.faults import Fault
    from shmcache.testing.apiserver.loop import ServerLoop
    from shmcache.testing.apiserver.watches import ServedWatch

READ = 1 << 16
HEAD_MAX = 1 << 20
GZIP_MIN = 128 << 10
"""Bodies from this size on are compressed for clients that take gzip; watches never are."""

Headers = list[tuple[str, str]]


class ClientConnection:
    """Serves one client until either side has enough."""

    def __init__(
        self, loop: ServerLoop, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
        self._met: list[Fault] = []

    async def serve(self) -> None:
        """All requests of the connection. Ends it in the end."""
        try:
            while (request := await self._request()) is not None:
                await self._respond(request)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    break
                self._http.start_next_cycle()
        except (CutError, ConnectionError, h11.RemoteProtocolError):
            pass  # it is the client that sees it
        finally:
            self._writer.close()

    async def _request(self) -> ApiRequest | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._write(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._reader.read(READ))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
                method, url = head.method.decode(), head.target.decode("latin-1")
                return ApiRequest.of(method, url, headers, bytes(body))
            else:
                return None

    async def _respond(self, request: ApiRequest) -> None:
        self._met = self._loop.met(request)
        delay = max((fault.delay for fault in self._met), default=0.0)
        for fault in self._met:
            fault.happened += bool(fault.delay or fault.each_chunk)
        if delay:
            await asyncio.sleep(delay)
        for fault in self._met:
            if fault.cut and fault.after < 0:
                fault.happened += 1
                await asyncio.Event().wait()
        try:
            answer = await self._answer(request)
        except failures.Failure as failure:
            answer = refusal(failure)
        if isinstance(answer, Streaming):
            await self._stream(request, answer)
        else:
            await self._whole(request, answer)

    async def _answer(self, request: ApiRequest) -> Response | Streaming:
        for fault in self._met:
            if fault.refuse is not None:
                fault.happened += 1
                raise fault.refuse
            if fault.text is not None:
                fault.happened += 1
                return Response(pieces=[fault.text])
        return await self._loop.api.answer(request)

    async def _whole(self, request: ApiRequest, answer: Response) -> None:
        pieces, headers = answer.pieces, list(answer.headers)
        shown = accept.pretty(request.query, request.headers)
        if shown and answer.content_type == "application/json":
            pieces = [framing.pretty(b"".join(pieces))]
        size = sum(map(len, pieces))
        if size > GZIP_MIN and "gzip" in request.headers.get("accept-encoding", ""):
            pieces = [gzip.compress(b"".join(pieces), 1)]
            headers.append(("Content-Encoding", "gzip"))
        small = size <= framing.BUFFER and not any(fault.cut for fault in self._met)
        frame = ("Content-Length", str(size)) if small else ("Transfer-Encoding", "chunked")
        self._head(answer.code, answer.content_type, [*headers, frame])
        if request.method == "HEAD":
            self._write(h11.EndOfMessage())
        elif small:
            self._write(h11.Data(data=b"".join(pieces)))
            self._write(h11.EndOfMessage())
        else:
            await self._chunked(pieces)
        await self._writer.drain()

    async def _chunked(self, pieces: list[bytes]) -> None:
        wire = FaultyWire(self._writer, self._met)
        try:
            await wire.begin()
            await wire.pieces(pieces)
            await wire.finish()
        except EndedError:
            pass
        self._write(h11.EndOfMessage())

    async def _stream(self, request: ApiRequest, answer: Streaming) -> None:
        watch, headers = answer.watch, list(answer.headers)
        refused = await self._loop.api.refusal(watch)
        zipped = any(fault.gzip for fault in self._met)
        if zipped and "gzip" in request.headers.get("accept-encoding", ""):
            headers.append(("Content-Encoding", "gzip"))
        else:
            self._met = [fault for fault in self._met if not fault.gzip]
        for fault in self._met:
            _leave_out(fault, watch)
            fault.happened += fault.gzip
        self._head(200, "application/json", [*headers, ("Transfer-Encoding", "chunked")])
        await self._writer.drain()
        await self._until_either_ends(watch, refused)

    async def _until_either_ends(
        self, watch: ServedWatch, refused: failures.Failure | None
    ) -> None:
        running = asyncio.create_task(self._run(watch, refused))
        gone = asyncio.create_task(self._until_gone())
        watch.begun = lambda: self._loop.enter(watch)
        try:
            await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise CutError
            running.result()
        finally:
            self._loop.leave(watch)
            for task in (running, gone):
                task.cancel()
            await asyncio.gather(running, gone, return_exceptions=True)

    async def _run(self, watch: ServedWatch, refused: failures.Failure | None) -> None:
        wire = FaultyWire(self._writer, self._met)
        try:
            await wire.begin()
            await watch.run(wire, refused)
        except EndedError:
            pass
        self._write(h11.EndOfMessage())
        await self._writer.drain()

    async def _until_gone(self) -> None:
        """Returns when the client has closed; what it sends meanwhile is kept for later."""
        while data := await self._reader.read(READ):
            self._http.receive_data(data)

    def _head(self, code: int, content_type: str, headers: Headers) -> None:
        *more, frame = headers
        wrong = [fault.content_type for fault in self._met if fault.content_type is not None]
        for fault in self._met:
            fault.happened += fault.content_type is not None and fault.text is None
        full = [
            ("Audit-Id", str(uuid.uuid4())),
            ("Cache-Control", "no-cache, private"),
            ("Content-Type", next(iter(wrong), content_type)),
            *more,
            ("Date", email.utils.formatdate(usegmt=True)),
            frame,
        ]
        self._write(h11.Response(status_code=code, headers=full))

    def _write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)


def _leave_out(fault: Fault, watch: ServedWatch) -> None:
    """Takes from a watch the bookmarks that a fault takes."""
    missed = fault.no_bookmarks and watch.bookmarks
    if fault.no_bookmarks:
        watch.bookmarks = False
    if fault.no_bookmarks or fault.no_end_bookmark:
        missed = missed or watch.beginning.end_bookmark
        watch.beginning = watch.beginning._replace(end_bookmark=False)
    fault.happened += missed
