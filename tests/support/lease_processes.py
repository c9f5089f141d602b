"""Processes that lead in turn, and a journal of when each believed that it did."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from controlled import Journal
from workers import Worker

import shmcache


def lead(pipe: Connection, path: str, settings: dict[str, Any]) -> None:
    """Leads again and again, and notes each act that it still believes to be allowed."""
    journal = Journal(path)
    pipe.send(os.getpid())
    while not pipe.poll():
        leader = shmcache.leader(shmcache.LeaseSettings("demo", **settings))
        leader.start()
        while not leader.wait(0.02) and not pipe.poll():
            pass
        if leader.held:
            journal.note("lead", leader.identity, str(leader.token))
        while leader.held and not pipe.poll():
            journal.note("act", leader.identity, str(leader.token))
            time.sleep(0.005)
        if leader.is_lost:
            journal.note("lost", leader.identity)
        leader.stop()
    pipe.send("ended")


class LeadingProcess(Worker):
    """A process that leads whenever it can."""

    def __init__(self, path: str, **settings: Any) -> None:
        super().__init__("spawn", lead, path, settings)
        assert isinstance(self.hear(), int)

    def drain(self) -> None:
        """Returns when the process has left its Lease."""
        self.tell("end")
        assert self.hear() == "ended"


class CutProxy:
    """TCP between one process and the server: when cut, nothing passes and nothing is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = [self._listener]
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._spawn(self._accept)

    def cut(self) -> None:
        """From now on, bytes stay where they are."""
        self._open.clear()

    def mend(self) -> None:
        """They go on."""
        self._open.set()

    def close(self) -> None:
        """Ends all of it."""
        self._open.set()
        for one in self._sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it was not connected
            one.close()

    def _spawn(self, run: Callable[..., object], *arguments: object) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            self._sockets += [client, server]
            self._spawn(self._pass, client, server)
            self._spawn(self._pass, server, client)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._open.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one side is closed: so is the other
