"""Metrics and probes as an HTTP server of their own: `run --metrics`, `metrics --serve`.

A thread for each request, a limit for each of them and for how many there are; on an address or on
a Unix socket. It reads a request's first line and headers, and nothing else of it.
"""

from __future__ import annotations

import os
import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from shmcache.health import Answer, Endpoint

SECONDS = 10.0  # for a request to be read and answered
AT_ONCE = 16
LOCAL = "127.0.0.1"


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SECONDS
    protocol_version = "HTTP/1.1"
    server_version = "shmcache"
    sys_version = ""

    def do_GET(self) -> None:
        """Answers, and keeps the connection."""
        path, _, query = self.path.partition("?")
        self._send(self.server.endpoint.answer(path, query), body=True)

    def do_HEAD(self) -> None:
        """The same without a body."""
        path, _, query = self.path.partition("?")
        self._send(self.server.endpoint.answer(path, query), body=False)

    def _send(self, answer: Answer, *, body: bool) -> None:
        status, _, reason = answer.status_line.partition(" ")
        self.send_response(int(status), reason)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        """Probes come every second: nothing is logged of them."""

    def address_string(self) -> str:
        """Of a Unix socket there is none."""
        return str(self.client_address)


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    endpoint: Endpoint
    places: threading.BoundedSemaphore

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One of at most so many at a time; who comes then is turned away."""
        if not self.places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as socketserver calls it
        """A client that went away is none of our business; a bug is, and is logged."""
        import logging
        import sys

        if not isinstance(sys.exc_info()[1], OSError):
            logging.getLogger(__name__).error("a request of metrics failed", exc_info=True)  # noqa: LOG014


class _UnixServer(_Server):
    address_family = socket.AF_UNIX


class Served:
    """A server that runs until close(). `url` says where."""

    def __init__(self, address: str, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._path = address.removeprefix("unix:") if address.startswith("unix:") else ""
        self._server = _made(address)
        self._server.endpoint = endpoint
        self._server.places = threading.BoundedSemaphore(AT_ONCE)
        self.url = self._path or "http://{}:{}".format(*self._server.server_address[:2])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="shmcache-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Ends it, and gives back its address and its attachment."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._path:
            os.unlink(self._path)
        self._endpoint.close()


def parse(address: str) -> tuple[str, int]:
    """Of ADDRESS:PORT, :PORT or [::1]:PORT. ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r}: ADDRESS:PORT, :PORT or unix:/path is wanted")
    return host.strip("[]"), int(port)


def _made(address: str) -> _Server:
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        _remove_dead(path)
        server: _Server = _UnixServer(path, _Handler)  # type: ignore[arg-type]  # typeshed: a path
        return server
    host, port = parse(address)
    kind = (
        type("Server6", (_Server,), {"address_family": socket.AF_INET6}) if ":" in host else _Server
    )
    made: _Server = kind((host, port), _Handler)
    return made


def _remove_dead(path: str) -> None:
    """The socket of a process that was killed: nobody listens there."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except FileNotFoundError:
            return
        else:
            raise OSError(98, f"somebody listens on {path} already")
