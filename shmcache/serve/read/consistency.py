"""Requests without a resourceVersion: the API server answers them with its state of now.

    strict    so does this server: the reflector confirms that the cache is current, or 503
    bounded   as strict, but after `--fresh-timeout` the answer is what is cached, with a Warning
    cached    what is cached, at once (the Age of the answer says how old)

The question goes to the reflector (reader/asking.py), on the loop, without a thread.

SERVE3  Requests that wait for the same thing share a question that was sent after each of them
    came: one is under way, and one more for all who came since.
SERVE4  At most `limits.waiting` requests wait; further ones get 429 (strict) or what is cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.errors import ShmCacheError, UnconfirmedError
from shmcache.memory import sockets
from shmcache.protocol import failures
from shmcache.reader import asking
from shmcache.serve.http import loop as loops
from shmcache.serve.http.loop import Loop, Pending

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from shmcache.reader.cache import Cache
    from shmcache.serve.catalogue import Served

STRICT, CACHED = "strict", "cached"
UNCONFIRMED = b'Warning: 299 - "not confirmed in time: this may be older than the server"\r\n'


Scope = tuple[str, str | None, str | None]
"""Resource, key, namespace."""


class Consistency:
    """The questions of one server process. In the loop's thread."""

    def __init__(self, cache: Cache, loop: Loop, mode: str, seconds: float, most: int) -> None:
        self.mode = mode
        self._cache = cache
        self._loop = loop
        self._seconds = min(max(seconds, 0.01), asking.MOST_SECONDS)
        self._most = most
        self._waiting: dict[Scope, list[Pending[None]]] = {}
        """Requests that came while a question about their scope was under way."""
        self._asking: set[Scope] = set()
        self._count = 0

    async def current(
        self, served: Served, version: str, *, key: str | None = None, namespace: str = ""
    ) -> bytes:
        """Returns when the cache is as current as the mode asks; headers for the answer.

        A Failure (503, 429) where it cannot be in the strict mode. `version`: of the request.
        """
        if version or self.mode == CACHED:
            return b""
        if self._count >= self._most:
            if self.mode == STRICT:
                raise failures.too_many_requests()
            return UNCONFIRMED
        self._count += 1
        try:
            await self._confirmed((served.name, key, namespace or None))
        except (UnconfirmedError, ShmCacheError) as error:
            if self.mode == STRICT:
                raise failures.stale(f"not confirmed to be current: {error}", 1) from error
            return UNCONFIRMED
        finally:
            self._count -= 1
        return b""

    async def _confirmed(self, scope: Scope) -> None:
        pending: Pending[None] = Pending()
        self._waiting.setdefault(scope, []).append(pending)
        if scope not in self._asking:
            self._ask(scope)
        await pending

    def _ask(self, scope: Scope) -> None:
        """One question for all who wait now (SERVE3)."""
        asked = self._waiting.pop(scope, [])
        if not asked:
            return
        self._asking.add(scope)

        def done(error: Exception | None) -> None:
            self._asking.discard(scope)
            self._ask(scope)
            for pending in asked:
                if error is None:
                    pending.give(None)
                else:
                    pending.fail(error)

        _Question(self._cache, self._loop, asking.Question(*scope), self._seconds, done)


class _Question:
    """One question on its way: its connection, and its end in time."""

    def __init__(
        self,
        cache: Cache,
        loop: Loop,
        question: asking.Question,
        seconds: float,
        done: Callable[[Exception | None], object],
    ) -> None:
        self._cache = cache
        self._loop = loop
        self._question = question
        self._done = done
        self._data = b""
        self._over = False
        self._client: socket.socket | None = None
        self._timer = loop.call_later(seconds, self._late)
        try:
            self._client = sockets.opened()
            self._client.setblocking(False)
            with sockets.address(cache.place) as path:
                self._client.connect(path)
            sockets.check_peer(self._client, cache.place)
            self._client.send(question.line(seconds))
            loop.add(self._client.fileno(), loops.READ, self._came)
        except OSError as error:
            reason = error.strerror or str(error)
            self._end(UnconfirmedError(f"{question.resource}: no reflector answers: {reason}"))
        except ShmCacheError as error:
            self._end(error)

    def _came(self, _events: int) -> None:
        assert self._client is not None
        try:
            piece = self._client.recv(asking.ANSWER_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        self._data += piece
        if not piece or len(self._data) > asking.ANSWER_BYTES:
            name = self._question.resource
            self._end(UnconfirmedError(f"{name}: the reflector ended before it answered"))
        elif self._data.endswith(b"\n"):
            self._answered()

    def _answered(self) -> None:
        try:
            found = asking.parse(self._data, self._question.resource)
            for _ in asking.waits(self._cache, found, self._question, self._loop.now):
                break  # this process has not moved to the next instance yet: as too late
            else:
                self._end(None)
                return
            raise UnconfirmedError("the answer is of another instance of the cache")
        except ShmCacheError as error:
            self._end(error)

    def _late(self) -> None:
        name = self._question.resource
        self._end(UnconfirmedError(f"{name}: no confirmation came in time"))

    def _end(self, error: Exception | None) -> None:
        if not self._over:
            self._over = True
            if self._client is not None:
                self._loop.remove(self._client.fileno())
                self._client.close()
            self._timer.cancel()
            self._done(error)
