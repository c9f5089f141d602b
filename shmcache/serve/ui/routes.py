"""The page's requests: its files, the stream of what happens, an object, a search.

A browser cannot send a token with the first request of a page. So the files are open to every
client of this address, and everything with data of the cache is checked like any other request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.errors import InvalidSelector, StaleObjectError
from shmcache.protocol import failures
from shmcache.serve.http.answers import Answer, document
from shmcache.serve.ui import objects, pages, past, rights
from shmcache.serve.ui.turns import Turns
from shmcache.serve.ui.viewers import STREAM, Viewer, Viewers

if TYPE_CHECKING:
    from shmcache.serve.http.connection import Connection
    from shmcache.serve.http.requests import HttpRequest
    from shmcache.serve.server import Server


class Interface:
    """The page of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pages = pages.load()
        self.viewers = Viewers(server)
        self._turns = Turns(server)
        self._times = past.Times(server)

    def file(self, request: HttpRequest) -> Answer | None:
        """A file of the page, or the way to it; None for any other path."""
        if request.method not in {"GET", "HEAD"}:
            return None
        if request.path in {"/", pages.ROOT} and _is_browser(request):
            return Answer(b"", code=302, headers=b"Location: %b/\r\n" % pages.ROOT.encode())
        page = self._pages.get(request.path)
        return None if page is None else pages.answer(page, request.headers)

    @staticmethod
    def owns(request: HttpRequest) -> bool:
        """Whether a request is for the page's data."""
        return request.path.startswith(f"{pages.ROOT}/")

    async def answer(self, request: HttpRequest, connection: Connection) -> Answer | None:
        """Data for the page; None where the connection became a stream. A Failure refuses."""
        if request.method not in {"GET", "HEAD"}:
            raise failures.method_not_allowed()
        try:
            return await self._answer(request, connection)
        except InvalidSelector as error:
            raise failures.bad_request(str(error)) from error
        except (KeyError, StaleObjectError) as error:
            # the next instance does not have the resource, or the writer needed the memory
            raise failures.not_listed() from error

    async def _answer(self, request: HttpRequest, connection: Connection) -> Answer | None:
        server, query = self._server, request.query
        if len(query.get("labels", "")) > server.limits.selector_bytes:
            most = server.limits.selector_bytes
            raise failures.bad_request(f"a selector of more than {most} bytes")
        if request.path == f"{pages.ROOT}/stream":
            seen = await rights.visible(server, request)
            if request.method == "HEAD":
                return Answer(b"", media=STREAM)
            if not connection.alive or server.draining:
                raise failures.not_ready()
            Viewer(self.viewers, connection, request, seen).begin()
            return None
        if request.path == f"{pages.ROOT}/object":
            resource, key = query.get("resource", ""), query.get("key", "")
            await rights.check(server, request, resource, key)
            return await self._turns.make(
                connection, lambda: objects.with_history(server, self._times, resource, key)
            )
        if request.path == f"{pages.ROOT}/search":
            return document(await self._search(request, connection))
        if request.path == f"{pages.ROOT}/past":
            return document(await self._past(request, connection))
        raise failures.no_page()

    async def _past(self, request: HttpRequest, connection: Connection) -> object:
        seconds = request.query.get("seconds", "300")
        if not (seconds.isascii() and seconds.isdecimal() and len(seconds) < 8):
            raise failures.bad_request("seconds must be a whole number")
        allowed = await self._allowed(request)
        return await self._turns.make(
            connection, lambda: past.changes(self._server, self._times, allowed, int(seconds))
        )

    async def _search(self, request: HttpRequest, connection: Connection) -> object:
        query = request.query
        allowed = await self._allowed(request)
        text, labels = query.get("q", ""), query.get("labels", "")
        return await self._turns.make(
            connection, lambda: objects.search(self._server, allowed, text, labels)
        )

    async def _allowed(self, request: HttpRequest) -> list[str]:
        """The resource of the query, or all of them, as far as the user may list them."""
        seen = await rights.visible(self._server, request)
        wanted = request.query.get("resource", "")
        return [
            name
            for name in self._server.cache.resources
            if wanted in {"", name} and (seen is None or name in seen)
        ]

    def close(self) -> None:
        """The server ends."""
        self.viewers.close()


def _is_browser(request: HttpRequest) -> bool:
    return "text/html" in request.headers.get("accept", "")
