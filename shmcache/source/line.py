"""The connection of a source as far as it can be cut: from any thread, whatever it is doing.

A second descriptor of the same TCP connection is kept. Shutting that down wakes a thread that
waits in connect's TLS handshake, for headers or in a body, and needs to know neither the layers of
TLS and proxies above the socket nor whether they are being replaced at the moment.

LINE1  the timeouts of sockets count from byte to byte, so that a server which sends a byte now and
then could keep a thread for ever. Small answers are read within a time for the whole of them.
"""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection

AGAIN_SECONDS = 1.0
"""Between two interruptions of the same request, which may have connected in between."""
KEEPALIVE = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)
"""A dead peer is noticed after about a minute, whether it owes us bytes or acknowledgements."""


class Line:
    """At most one connection at a time; cut() ends it and forbids any other."""

    __slots__ = ("_handle", "_late", "_lock", "is_cut")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        self._late: threading.Event | None = None
        """Of the time limit that is running (LINE1)."""
        self.is_cut = False

    def hold(self, sock: socket.socket) -> None:
        """This is the connection from now on. ConnectionAbortedError if the line was cut."""
        with self._lock:
            if self.is_cut:
                raise ConnectionAbortedError("the source was cancelled")
            self._replace(sock.dup())

    def drop(self) -> None:
        """There is no connection any more."""
        with self._lock:
            self._replace(None)

    def waiting(self) -> int:
        """Bytes that have arrived and were not read yet; 0 without a connection."""
        with self._lock:
            if self._handle is None:
                return 0
            found = fcntl.ioctl(self._handle, termios.FIONREAD, b"\0\0\0\0")
        return int.from_bytes(found, sys.byteorder)

    def cut(self) -> None:
        """Ends the connection; a thread that waits for it wakes at once."""
        with self._lock:
            self.is_cut = True
            self._shut()

    def interrupt(self) -> None:
        """Ends the connection as cut() does; the next request makes another one."""
        with self._lock:
            self._shut()

    @contextmanager
    def within(self, seconds: float) -> Iterator[threading.Event]:
        """Interrupts what is done on the connection if it lasts longer; whether it did (LINE1).

        Within another one, that one's time counts: its thread watches both.
        """
        if self._late is not None:
            yield self._late
            return
        done = threading.Event()
        late = self._late = threading.Event()

        def watch() -> None:
            left = seconds
            while not done.wait(left):
                late.set()
                self.interrupt()
                left = AGAIN_SECONDS

        thread = threading.Thread(target=watch, name="shmcache-deadline", daemon=True)
        thread.start()
        try:
            yield late
        finally:
            self._late = None
            done.set()
            thread.join()

    def _shut(self) -> None:
        if self._handle is None:
            return
        try:
            self._handle.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it had ended by itself

    def _replace(self, handle: socket.socket | None) -> None:
        if self._handle is not None:
            self._handle.close()
        self._handle = handle


class _Held:
    """Tells the line which socket it has. For urllib3's connections, both kinds."""

    def __init__(self, *args: Any, line: Line, **settings: Any) -> None:
        self._line = line
        self._answering = False
        super().__init__(*args, **settings)

    def _new_conn(self) -> socket.socket:
        sock: socket.socket = super()._new_conn()  # type: ignore[misc]
        try:
            self._line.hold(sock)
        except BaseException:
            sock.close()
            raise
        return sock

    def getresponse(self) -> Any:
        self._answering = True
        try:
            return super().getresponse()  # type: ignore[misc]
        finally:
            self._answering = False

    def close(self) -> None:
        """http.client calls it where no other request may follow: the body is still to come."""
        if not self._answering:
            self._line.drop()
        super().close()  # type: ignore[misc]


class HeldConnection(_Held, HTTPConnection):
    """Over TCP."""


class HeldTLSConnection(_Held, HTTPSConnection):
    """Over TLS."""
