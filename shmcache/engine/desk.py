"""The desk: where readers of all processes ask whether the cache is current.

One thread accepts connections, reads a line from each, hands the question to the resource's
confirmer (confirming.py), and writes the answer. Nothing here waits for the API server.

    {"resource": "pods", "key": "prod/web-0", "timeout": 5.0}
    {"instance": "1f...", "generation": 4711, "version": "90210", "way": "get"}
    {"resource": "pods", "verify": true, "timeout": 60.0}
    {"feeds": [{"namespace": "", "version": "90210", "objects": 7, "differences": [], "more": 0}]}
    {"error": "the server did not answer: ..."}

Invariants
    DESK1  a question is answered at most once, and by the time that it gave; its connection ends
        with the answer.
    DESK2  clients cost a bounded amount: CONNECTIONS of them, LINE bytes and LINE_SECONDS for the
        question of each; one user has at most three quarters of these. Further connections
        are closed at once, which a reader sees as no answer. Questions of clients that have left
        are dropped before more than twice CONNECTIONS wait.
    DESK3  a client that ends, or sends nonsense, ends its own connection and nothing else.
    DESK4  the name of the socket goes with this process, unless another one has it by then.
"""

from __future__ import annotations

import json
import logging
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from shmcache.memory import sockets
from shmcache.memory.segments import Place
from shmcache.protocol.jsontext import decoded

logger = logging.getLogger(__name__)

CONNECTIONS = 4096
LINE = 2048
LINE_SECONDS = 5.0
LONGEST = 60.0
"""Seconds that a question may wait at most, whatever it says."""
_TICK = 0.05


class Asked(NamedTuple):
    """A question as it came: one key, one namespace, or ("" and "") a whole resource."""

    key: str
    namespace: str
    deadline: float
    answer: Callable[[Mapping[str, Any]], None]
    """Takes the answer; from any thread."""
    lives: Callable[[], bool] = lambda: True
    """Whether somebody still waits for the answer; from any thread."""


class Confirmer(Protocol):
    """Answers the questions about one resource."""

    def submit(self, asked: Asked) -> None:
        """Returns at once; the answer comes later, from another thread."""


@dataclass(slots=True, eq=False)
class _Client:
    sock: socket.socket
    uid: int
    until: float
    data: bytes = b""
    asked: bool = False


class Desk:
    """Listens from start() to close()."""

    def __init__(
        self,
        place: Place,
        confirmers: Mapping[str, Confirmer],
        verifiers: Mapping[str, Confirmer],
    ) -> None:
        """By resource. `verifiers` take questions with "verify" (verifying.py)."""
        self._place = place
        self._confirmers = confirmers
        self._verifiers = verifiers
        self._selector = selectors.DefaultSelector()
        self._clients: set[_Client] = set()
        self._users: Counter[int] = Counter()
        self._answers: deque[tuple[_Client, bytes]] = deque()
        self._bell, self._rung = socket.socketpair()
        self._stop = threading.Event()
        self._listener: socket.socket | None = None
        self._mine: tuple[int, int] | None = None
        self._expire_at = 0.0
        self.refused = 0
        """Connections for which there was no room."""

    def open(self) -> bool:
        """Begins to listen; False (with a warning) where the file system has no sockets."""
        try:
            self._listener = sockets.listen(self._place)
        except OSError as error:
            logger.warning(
                "no consistent reads: %s cannot be made: %s",
                self._place.location.file(self._place.desk),
                error.strerror or error,
            )
            return False
        self._mine = sockets.identity(self._place)
        return True

    def close(self) -> None:
        """Ends run() soon. From any thread, once."""
        self._stop.set()
        self._ring()

    def run(self) -> None:
        """The thread: until close()."""
        if self._listener is None:
            return
        self._rung.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._rung, selectors.EVENT_READ, None)
        try:
            while not self._stop.is_set():
                for key, _ in self._selector.select(_TICK if self._clients else None):
                    self._ready(key)
                self._send()
                now = time.monotonic()
                if now >= self._expire_at:  # not for each client: a look goes over all of them
                    self._expire_at = now + _TICK
                    self._expire(now)
        finally:
            self._end()

    def _end(self) -> None:
        if self._mine is not None and self._mine == sockets.identity(self._place):
            self._place.location.unlink(self._place.desk)  # DESK4
        for client in list(self._clients):
            self._drop(client)
        for sock in (self._listener, self._bell, self._rung):
            if sock is not None:
                sock.close()
        self._selector.close()

    # ---- clients -------------------------------------------------------------------------------

    def _ready(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._rung:
            try:
                self._rung.recv(4096)
            except BlockingIOError:
                pass
        else:
            self._read(key.data)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # no descriptors: those who wait in the kernel wait a little
            logger.warning("a reader cannot be answered: %s", error.strerror)
            self._stop.wait(0.05)
            return
        sock.setblocking(False)
        uid = sockets.user_of(sock)
        if len(self._clients) >= CONNECTIONS or self._users[uid] >= CONNECTIONS * 3 // 4:
            self.refused += 1
            sock.close()
            return
        client = _Client(sock, uid, time.monotonic() + LINE_SECONDS)
        self._clients.add(client)
        self._users[uid] += 1
        self._selector.register(sock, selectors.EVENT_READ, client)

    def _read(self, client: _Client) -> None:
        try:
            piece = client.sock.recv(LINE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        client.data += piece
        if not piece or client.asked or len(client.data) > LINE:
            self._drop(client)  # it has left, or talks on
        elif client.data.endswith(b"\n"):
            client.asked = True
            self._take(client)

    def _take(self, client: _Client) -> None:
        try:
            wanted = decoded(client.data)
            name, key = wanted["resource"], wanted.get("key", "")
            namespace = wanted.get("namespace", "")
            seconds = float(wanted["timeout"])
            if not all(isinstance(text, str) for text in (name, key, namespace)):
                raise TypeError
            if not 0 <= seconds <= LONGEST:
                raise ValueError
            (name + key + namespace).encode()  # fails for half of a surrogate pair
        except (ValueError, KeyError, TypeError, ArithmeticError):
            self._answer(client, {"error": "the question makes no sense"})
            return
        client.until = time.monotonic() + seconds
        verify = wanted.get("verify") is True
        confirmer = (self._verifiers if verify else self._confirmers).get(name)
        if confirmer is None:
            self._answer(client, {"error": "this reflector does not keep it"})
            return
        confirmer.submit(
            Asked(
                key,
                namespace,
                client.until,
                answer=lambda found: self._answer(client, found),
                lives=lambda: client in self._clients,
            )
        )

    def _expire(self, now: float) -> None:
        for client in [client for client in self._clients if client.until <= now]:
            if client.asked:
                self._write(client, b'{"error": "no confirmation came in time"}\n')
            else:
                self._drop(client)

    def _drop(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._users[client.uid] -= 1
            if not self._users[client.uid]:
                del self._users[client.uid]
            self._selector.unregister(client.sock)
            client.sock.close()

    # ---- answers -------------------------------------------------------------------------------

    def _answer(self, client: _Client, found: Mapping[str, Any]) -> None:
        """From any thread."""
        self._answers.append((client, json.dumps(found).encode() + b"\n"))
        self._ring()

    def _ring(self) -> None:
        try:
            self._bell.send(b"!", socket.MSG_DONTWAIT)
        except OSError:
            pass  # it rings already, or all is over

    def _send(self) -> None:
        while self._answers:
            self._write(*self._answers.popleft())

    def _write(self, client: _Client, data: bytes) -> None:
        if client in self._clients:  # DESK1
            try:
                client.sock.send(data)  # it is the first, and the socket's buffer is larger
            except OSError as error:
                logger.debug("a reader left before its answer: %s", error.strerror)
            self._drop(client)
