"""Consistent reads, the reader's side: asks the reflector whether the cache is current.

    reader                              reflector                           API server
      │ question: a resource, a key ──────▸ │ what is the version now? ────────▸ │
      │                                     │ ◂──────────────────────────────────│
      │                                     │ waits until the cache is there     │
      │ ◂── instance and generation ─────── │
      │ reads a generation that is not older

A worker has no connection to the API server, and needs none. Each question has a connection of
its own to the reflector's desk (engine/desk.py): the end of either process ends it, and nothing is
left to be cleaned up.

Invariants
    ASK1  a consistent read shows the instance of the answer, and no generation before it: it reads
        the root that confirm() returns, not the latest one, which may be of another instance by
        then. A new writer's first list may be older than what the last one had confirmed.
    ASK2  without an answer in time there is no result but UnconfirmedError, or that of the
          fallback which the caller gave: never silently what is cached.
    ASK3  an answer counts only from a user whose files the reader trusts.
    ASK4  a question takes a bounded time: `timeout`, and one descriptor for as long, also if
        another question of the same read fails.
    ASK5  some evidence is of one state only: that there is no such object, or that the cache holds
        what the server listed at a version that it has yet to reach. A root with that object, or
        that has changed, may show a state from before the call: the question is asked again.
"""

from __future__ import annotations

import time

from shmcache.errors import UnconfirmedError
from shmcache.protocol.versions import number_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable
    from typing import Any, NoReturn

    from shmcache import _hot
    from shmcache.reader.cache import Cache

TIMEOUT = 5.0
"""Seconds that a consistent read waits for its confirmation, unless the caller says otherwise."""
MOST_SECONDS = 60.0
ANSWER_BYTES = 8192
MOVING_SECONDS = 0.25
"""A reader that does not show the answer's instance by then asks again."""
_POLL_SECONDS = 0.005


class Question:
    """The objects that are to be current: a resource, one of its namespaces, or one key."""

    __slots__ = ("key", "namespace", "resource", "verify")

    def __init__(
        self,
        resource: str,
        key: str | None = None,
        namespace: str | None = None,
        *,
        verify: bool = False,
    ) -> None:
        """`verify`: a comparison with the server instead (verifying.py)."""
        self.verify = verify
        self.resource = resource
        self.key = key
        self.namespace = namespace

    def line(self, timeout: float) -> bytes:
        """As the desk reads it."""
        import json

        asked: dict[str, Any] = {"resource": self.resource, "timeout": timeout}
        if self.key is not None:
            asked["key"] = self.key
        if self.namespace:
            asked["namespace"] = self.namespace
        if self.verify:
            asked["verify"] = True
        return json.dumps(asked).encode() + b"\n"


class Confirmed:
    """The cache was current in this generation of this instance, after the question was asked.

    And in those after it; but if `absent` only as long as the object is, and with `until` only
    while the generation of the last change is `unchanged`, or from that version on: ASK5.
    """

    __slots__ = ("absent", "generation", "instance", "unchanged", "until", "version", "way")

    def __init__(
        self,
        instance: int,
        generation: int,
        version: str | None,
        way: str,
        *,
        absent: bool = False,
        until: str | None = None,
        unchanged: int = 0,
    ) -> None:
        self.instance = instance
        self.generation = generation
        self.version = version
        self.way = way
        self.absent = absent
        self.until = until
        self.unchanged = unchanged

    def follows(self, root: _hot.Root) -> bool:
        """Whether a state is that generation, or follows it in the same instance."""
        return root.instance == self.instance and root.generation >= self.generation

    def shown_by(self, root: _hot.Root, question: Question) -> bool:
        """Whether a state shows what was confirmed, as an answer to this question."""
        if not self.follows(root):
            return False
        if not self.absent and self.until is None:
            return True
        try:
            number = root.names().index(question.resource)
        except ValueError:
            return False
        if self.absent:
            return root.get(number, question.key or "") is None
        record = root.record(number)
        if record["generation"] == self.unchanged:
            return True
        return number_of(record["version"]) >= number_of(self.until)

    def __repr__(self) -> str:
        return f"<Confirmed {self.instance:x}.{self.generation} at {self.version} by {self.way}>"


def parse(data: bytes, resource: str) -> Confirmed:
    """The desk's answer; UnconfirmedError with its reason if it is a refusal."""
    from shmcache.protocol.jsontext import decoded

    try:
        found = decoded(data)
        if "error" in found:
            raise UnconfirmedError(f"{resource}: {found['error']}")
        instance, generation = int(found["instance"], 16), int(found["generation"])
        until = found.get("until")
        return Confirmed(
            instance,
            generation,
            found.get("version"),
            str(found.get("way", "")),
            absent=found.get("absent") is True,
            until=None if until is None else str(until),
            unchanged=int(found.get("unchanged", 0)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UnconfirmedError(f"{resource}: the reflector's answer is malformed") from error


def check_timeout(timeout: object) -> float:
    """TypeError or ValueError for a timeout that is not one."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not 0 < timeout <= MOST_SECONDS:
        raise ValueError(f"timeout must be above 0 and at most {MOST_SECONDS:g} s, not {timeout!r}")
    return float(timeout)


def confirm(cache: Cache, questions: Iterable[Question], timeout: float = TIMEOUT) -> _hot.Root:
    """A state in which all of these are the server's state of now, or a later one (ASK1).

    UnconfirmedError if that cannot be known in time.
    """
    wanted = list(questions)
    deadline = time.monotonic() + check_timeout(timeout)
    while True:
        found = _asked(cache, wanted, deadline)
        for seconds in waits(cache, found, deadline):
            time.sleep(seconds)
        root = shown(cache, wanted, found)
        if root is not None:
            return root
        _check_time(wanted, deadline)


def _asked(cache: Cache, questions: list[Question], deadline: float) -> list[Confirmed]:
    """The answers to all of these, which wait at the same time."""
    asked: list[tuple[Question, socket.socket]] = []
    try:
        asked.extend((question, _sent(cache, question, deadline)) for question in questions)
        return [
            parse(_answer(client, question, deadline), question.resource)
            for question, client in asked
        ]
    finally:
        for _, client in asked:
            client.close()


async def confirm_async(
    cache: Cache, questions: Iterable[Question], timeout: float = TIMEOUT
) -> _hot.Root:
    """confirm() for asyncio: the loop goes on meanwhile."""
    import asyncio

    wanted = list(questions)
    seconds = check_timeout(timeout)
    deadline = time.monotonic() + seconds
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = await _asked_async(cache, wanted, deadline)
                for pause in waits(cache, found, deadline):
                    await asyncio.sleep(pause)
                root = shown(cache, wanted, found)
                if root is not None:
                    return root
                _check_time(wanted, deadline)
    except TimeoutError as error:
        _late(wanted[0], error)


async def _asked_async(cache: Cache, questions: list[Question], deadline: float) -> list[Confirmed]:
    """_asked() for asyncio; nothing goes on after it (ASK4)."""
    import asyncio

    async def one(question: Question) -> Confirmed:
        left = max(deadline - time.monotonic(), 0.001)
        return parse(await _answer_async(cache, question, left), question.resource)

    tasks = [asyncio.ensure_future(one(question)) for question in questions]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def shown(cache: Cache, questions: list[Question], found: list[Confirmed]) -> _hot.Root | None:
    """The latest state of this cache, if it shows what all of these answers say (ASK1, ASK5)."""
    root = cache.reader.root()
    pairs = zip(questions, found, strict=True)
    return root if all(one.shown_by(root, question) for question, one in pairs) else None


def waits(cache: Cache, found: list[Confirmed], deadline: float) -> Iterable[float]:
    """Seconds to sleep, one after the other, until this cache shows what was confirmed.

    Nearly always none: memory is shared. After a restart of the writer, a reader may move to the
    new instance later than the reflector's own; or earlier, and then it has to ask again.
    """
    end = min(deadline, time.monotonic() + MOVING_SECONDS)
    while time.monotonic() < end:
        root = cache.reader.root()
        if all(one.follows(root) for one in found):
            break
        yield _POLL_SECONDS


def _check_time(questions: list[Question], deadline: float) -> None:
    if time.monotonic() >= deadline:
        name = questions[0].resource
        raise UnconfirmedError(f"{name}: the answer is of another instance of the cache")


# ---- the connection ------------------------------------------------------------------------------


def ask(cache: Cache, question: Question, deadline: float, most: int) -> bytes:
    """The answer to one question, of at most so many bytes. UnconfirmedError."""
    with _sent(cache, question, deadline) as client:
        return _answer(client, question, deadline, most)


def _sent(cache: Cache, question: Question, deadline: float) -> socket.socket:
    from shmcache.memory import sockets

    try:
        client = sockets.opened()
    except OSError as error:
        _unreachable(question, error)
    try:
        client.settimeout(max(deadline - time.monotonic(), 0.001))
        with sockets.address(cache.place) as path:
            while not _connected(client, path, deadline):
                time.sleep(_POLL_SECONDS)
        sockets.check_peer(client, cache.place)
        client.sendall(question.line(max(deadline - time.monotonic(), 0.001)))
    except OSError as error:
        client.close()
        _unreachable(question, error)
    except BaseException:
        client.close()
        raise
    return client


def _connected(client: socket.socket, path: str, deadline: float) -> bool:
    """False while more clients connect than the kernel queues for the desk."""
    try:
        client.connect(path)
    except BlockingIOError as error:
        if time.monotonic() >= deadline:
            raise TimeoutError from error
        return False
    return True


def _answer(
    client: socket.socket, question: Question, deadline: float, most: int = ANSWER_BYTES
) -> bytes:
    found = b""
    try:
        while not found.endswith(b"\n"):
            client.settimeout(max(deadline - time.monotonic(), 0.001))
            piece = client.recv(ANSWER_BYTES)
            if not piece or len(found) > most:
                _ended(question)
            found += piece
    except TimeoutError as error:
        _late(question, error)
    except OSError as error:
        _unreachable(question, error)
    return found


async def _answer_async(cache: Cache, question: Question, seconds: float) -> bytes:
    import asyncio

    from shmcache.memory import sockets

    loop = asyncio.get_running_loop()
    found = b""
    try:
        with sockets.opened() as client:
            client.setblocking(False)
            deadline = time.monotonic() + seconds
            with sockets.address(cache.place) as path:
                while not _connected(client, path, deadline):
                    await asyncio.sleep(_POLL_SECONDS)
            sockets.check_peer(client, cache.place)
            await loop.sock_sendall(client, question.line(seconds))
            while not found.endswith(b"\n"):
                piece = await loop.sock_recv(client, ANSWER_BYTES)
                if not piece or len(found) > ANSWER_BYTES:
                    _ended(question)
                found += piece
    except TimeoutError:
        raise
    except OSError as error:
        _unreachable(question, error)
    return found


def _unreachable(question: Question, error: OSError) -> NoReturn:
    if isinstance(error, TimeoutError):
        _late(question, error)
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        raise UnconfirmedError(
            f"{question.resource}: no reflector runs that could ask the server (`shmcache run`)"
        ) from error
    raise UnconfirmedError(
        f"{question.resource}: the reflector cannot be asked: {error.strerror or error}"
    ) from error


def _ended(question: Question) -> NoReturn:
    raise UnconfirmedError(f"{question.resource}: the reflector ended before it answered")


def _late(question: Question, error: BaseException) -> NoReturn:
    raise UnconfirmedError(f"{question.resource}: no confirmation came in time") from error
