"""Requests without a resourceVersion: the API server answers them with its state of now.

    strict    so does this server: the reflector confirms that the cache is current, or 503
    bounded   as strict, but after `--fresh-timeout` the answer is what is cached, with a Warning
    cached    what is cached, at once (the Age of the answer says how old)

The question goes to the reflector (reader/asking.py), on the loop, without a thread.

SERVE3  Requests that wait for the same thing share a question that was sent after each of them
    came: one is under way, and one more for all who came since.
SERVE5  The state that is shown, and that a watch begins with, is the confirmed one or follows it in
    the same instance: each answer checks the root that it is made from, after the last moment at
    which it waited. If the cache has moved on to another instance, whose first list may be older,
    the strict mode refuses and the bounded one warns.
SERVE4  At most `limits.waiting` requests wait; further ones get 429 (strict) or what is cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmcache.errors import ShmCacheError, UnconfirmedError
from shmcache.memory import sockets
from shmcache.protocol import failures
from shmcache.reader import asking
from shmcache.reasons import reason_of
from shmcache.serve.http import loop as loops
from shmcache.serve.http.loop import Loop, Pending, Timer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from shmcache._hot import Root
    from shmcache.reader.cache import Cache
    from shmcache.serve.catalogue import Served

AGAIN_SECONDS = 0.02
"""Until a question is sent once more."""
STRICT, CACHED = "strict", "cached"
UNCONFIRMED = b'Warning: 299 - "not confirmed in time: this may be older than the server"\r\n'


Scope = tuple[str, str | None, str | None]
"""Resource, key, namespace."""


class Currency:
    """The demand on the state of an answer."""

    __slots__ = ("_found", "_headers", "_question", "_strict")

    def __init__(
        self,
        found: asking.Confirmed | None,
        question: asking.Question,
        *,
        strict: bool,
        headers: bytes = b"",
    ) -> None:
        """`found`: None if any state will do, with these headers."""
        self._found = found
        self._question = question
        self._strict = strict
        self._headers = headers

    def headers(self, root: Root) -> bytes:
        """Of an answer made from this root; a Failure (503) if it must not be shown (SERVE5)."""
        if self._found is None or self._found.shown_by(root, self._question):
            return self._headers
        if self._strict:
            raise failures.stale("the cache has changed since it was confirmed", 1)
        return UNCONFIRMED


ANYTHING = Currency(None, asking.Question(""), strict=False)
UNKNOWN = Currency(None, asking.Question(""), strict=False, headers=UNCONFIRMED)


class Consistency:
    """The questions of one server process. In the loop's thread."""

    def __init__(self, cache: Cache, loop: Loop, mode: str, seconds: float, most: int) -> None:
        self.mode = mode
        self._cache = cache
        self._loop = loop
        self._seconds = min(max(seconds, 0.01), asking.MOST_SECONDS)
        self._most = most
        self._waiting: dict[Scope, list[Pending[asking.Confirmed]]] = {}
        """Requests that came while a question about their scope was under way."""
        self._asking: set[Scope] = set()
        self._count = 0

    async def current(
        self, served: Served, version: str, *, key: str | None = None, namespace: str = ""
    ) -> Currency:
        """Returns when the cache is as current as the mode asks: what the answer has to show.

        A Failure (503, 429) where it cannot be in the strict mode. `version`: of the request.
        """
        if version or self.mode == CACHED:
            return ANYTHING
        strict = self.mode == STRICT
        if self._count >= self._most:
            if strict:
                raise failures.too_many_requests()
            return UNKNOWN
        self._count += 1
        try:
            found = await self._confirmed((served.name, key, namespace or None))
        except (UnconfirmedError, ShmCacheError) as error:
            if strict:
                raise failures.stale(f"not confirmed to be current: {error}", 1) from error
            return UNKNOWN
        finally:
            self._count -= 1
        question = asking.Question(served.name, key, namespace or None)
        return Currency(found, question, strict=strict)

    async def _confirmed(self, scope: Scope) -> asking.Confirmed:
        pending: Pending[asking.Confirmed] = Pending()
        self._waiting.setdefault(scope, []).append(pending)
        if scope not in self._asking:
            self._ask(scope)
        return await pending

    def _ask(self, scope: Scope) -> None:
        """One question for all who wait now (SERVE3)."""
        asked = self._waiting.pop(scope, [])
        if not asked:
            return
        self._asking.add(scope)

        def done(found: asking.Confirmed | Exception) -> None:
            self._asking.discard(scope)
            self._ask(scope)
            for pending in asked:
                if isinstance(found, Exception):
                    pending.fail(found)
                else:
                    pending.give(found)

        _Question(self._cache, self._loop, asking.Question(*scope), self._seconds, done)


class _Question:
    """One question on its way: its connection, and its end in time."""

    def __init__(
        self,
        cache: Cache,
        loop: Loop,
        question: asking.Question,
        seconds: float,
        done: Callable[[asking.Confirmed | Exception], object],
    ) -> None:
        self._cache = cache
        self._loop = loop
        self._question = question
        self._done = done
        self._data = b""
        self._over = False
        self._client: socket.socket | None = None
        self._until = loop.now + seconds
        self._timer = loop.call_later(seconds, self._late)
        self._pause: Timer | None = None
        self._ask()

    def _ask(self) -> None:
        """Connects and sends the question; also once more, of an answer of another instance."""
        question, place = self._question, self._cache.place
        self._pause, self._data = None, b""
        try:
            client = self._client = sockets.opened()
            client.setblocking(False)
            with sockets.address(place) as path:
                try:
                    client.connect(path)
                except BlockingIOError:  # more clients connect than the kernel queues
                    self._ask_later()
                    return
            sockets.check_peer(client, place)
            client.send(question.line(max(self._until - self._loop.now, 0.001)))
            self._loop.add(client.fileno(), loops.READ, self._came)
        except OSError as error:
            self._end(
                UnconfirmedError(f"{question.resource}: no reflector answers: {reason_of(error)}")
            )
        except ShmCacheError as error:
            self._end(error)

    def _ask_later(self) -> None:
        self._drop()
        self._pause = self._loop.call_later(AGAIN_SECONDS, self._ask)

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            self._loop.remove(client.fileno())
            client.close()

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
            if asking.shown(self._cache, [self._question], [found]) is None:
                self._ask_later()  # this process has yet to move to the next instance, or has moved
            else:
                self._end(found)
        except ShmCacheError as error:
            self._end(error)

    def _late(self) -> None:
        name = self._question.resource
        self._end(UnconfirmedError(f"{name}: no confirmation came in time"))

    def _end(self, found: asking.Confirmed | Exception) -> None:
        if not self._over:
            self._over = True
            self._drop()
            self._timer.cancel()
            if self._pause is not None:
                self._pause.cancel()
            self._done(found)
