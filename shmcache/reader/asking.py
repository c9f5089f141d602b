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
    ASK1  a consistent read shows the instance of the answer, and no generation before it.
    ASK2  without an answer in time there is no result but UnconfirmedError, or that of the
          fallback which the caller gave: never silently what is cached.
    ASK3  an answer counts only from a user whose files the reader trusts.
    ASK4  a question takes a bounded time: `timeout`, and one descriptor for as long.
"""

from __future__ import annotations

import time

from shmcache.errors import UnconfirmedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable
    from typing import Any, NoReturn

    from shmcache.reader.cache import Cache

TIMEOUT = 5.0
"""Seconds that a consistent read waits for its confirmation, unless the caller says otherwise."""
MOST_SECONDS = 60.0
ANSWER_BYTES = 8192
_POLL_SECONDS = 0.005


class Question:
    """The objects that are to be current: a resource, one of its namespaces, or one key."""

    __slots__ = ("key", "namespace", "resource")

    def __init__(self, resource: str, key: str | None = None, namespace: str | None = None) -> None:
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
        return json.dumps(asked).encode() + b"\n"


class Confirmed:
    """The cache was current in this generation of this instance, after the question was asked."""

    __slots__ = ("generation", "instance", "version", "way")

    def __init__(self, instance: int, generation: int, version: str | None, way: str) -> None:
        self.instance = instance
        self.generation = generation
        self.version = version
        self.way = way

    def __repr__(self) -> str:
        return f"<Confirmed {self.instance:x}.{self.generation} at {self.version} by {self.way}>"


def parse(data: bytes, resource: str) -> Confirmed:
    """The desk's answer; UnconfirmedError with its reason if it is a refusal."""
    import json

    try:
        found = json.loads(data)
        if "error" in found:
            raise UnconfirmedError(f"{resource}: {found['error']}")
        instance, generation = int(found["instance"], 16), int(found["generation"])
        return Confirmed(instance, generation, found.get("version"), str(found.get("way", "")))
    except (ValueError, KeyError, TypeError) as error:
        raise UnconfirmedError(f"{resource}: the reflector's answer makes no sense") from error


def check_timeout(timeout: object) -> float:
    """TypeError or ValueError for a timeout that is not one."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not 0 < timeout <= MOST_SECONDS:
        raise ValueError(f"timeout must be above 0 and at most {MOST_SECONDS:g} s, not {timeout!r}")
    return float(timeout)


def confirm(cache: Cache, questions: Iterable[Question], timeout: float = TIMEOUT) -> None:
    """Returns when the cache shows the server's state of now, or a later one, of all of these.

    UnconfirmedError if that cannot be known in time.
    """
    deadline = time.monotonic() + check_timeout(timeout)
    asked: list[tuple[Question, socket.socket]] = []
    try:
        asked.extend((question, _sent(cache, question, deadline)) for question in questions)
        for question, client in asked:
            found = parse(_answer(client, question, deadline), question.resource)
            for seconds in waits(cache, found, question, deadline):
                time.sleep(seconds)
    finally:
        for _, client in asked:
            client.close()


async def confirm_async(
    cache: Cache, questions: Iterable[Question], timeout: float = TIMEOUT
) -> None:
    """confirm() for asyncio: the loop goes on meanwhile."""
    import asyncio

    async def one(question: Question) -> None:
        found = parse(await _answer_async(cache, question, seconds), question.resource)
        for pause in waits(cache, found, question, deadline):
            await asyncio.sleep(pause)

    seconds = check_timeout(timeout)
    deadline = time.monotonic() + seconds
    wanted = list(questions)
    try:
        async with asyncio.timeout(seconds + 1):
            await asyncio.gather(*map(one, wanted))
    except TimeoutError as error:
        _late(wanted[0], error)


def waits(cache: Cache, found: Confirmed, question: Question, deadline: float) -> Iterable[float]:
    """Seconds to sleep, one after the other, until this cache shows what was confirmed (ASK1).

    Nearly always none: memory is shared. After a restart of the writer, a reader may move to the
    new instance later than the reflector's own.
    """
    while True:
        reader = cache.reader
        if reader.root().instance == found.instance and reader.latest >= found.generation:
            return
        if time.monotonic() >= deadline:
            raise UnconfirmedError(
                f"{question.resource}: the answer is of another instance of the cache"
            )
        yield _POLL_SECONDS


# ---- the connection ------------------------------------------------------------------------------


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


def _answer(client: socket.socket, question: Question, deadline: float) -> bytes:
    found = b""
    try:
        while not found.endswith(b"\n"):
            client.settimeout(max(deadline - time.monotonic(), 0.001))
            piece = client.recv(ANSWER_BYTES)
            if not piece or len(found) > ANSWER_BYTES:
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
