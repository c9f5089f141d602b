"""A door in front of a server: the same address, whatever becomes of the server behind it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Self

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: close() sends a reset."""


class Door:
    """Passes TCP connections on; shut() refuses and resets them, freeze() holds all bytes back."""

    def __init__(self, port: int) -> None:
        self.behind = port
        """The port of the server; may change while the door is shut."""
        self._lock = threading.Lock()
        self._through = threading.Event()
        self._through.set()
        self._pairs: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = 0
        self.connections = 0
        self.open()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        """Takes connections, at the port of before."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def shut(self) -> None:
        """As a killed server: connections are reset, new ones refused."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def cut(self) -> None:
        """Resets the connections; new ones are taken."""
        with self._lock:
            found, self._pairs = self._pairs, set()
        for sock in found:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                sock.shutdown(socket.SHUT_RDWR)
                sock.close()

    def freeze(self) -> None:
        """As a stopped server: it takes connections, and says nothing."""
        self._through.clear()

    def thaw(self) -> None:
        """Passes on what was held back."""
        self._through.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        self.shut()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                far = socket.create_connection(("127.0.0.1", self.behind), timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._pairs |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(1 << 16):
                self._through.wait()
                other.sendall(data)
        except OSError:
            pass  # either end has gone: both go
        for sock in (one, other):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        with self._lock:
            self._pairs -= {one, other}
