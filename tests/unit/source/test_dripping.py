"""LINE1: a server that sends a byte now and then, for ever, keeps no thread for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from shmcache.engine import upstreams
from shmcache.engine.upstreams import Candidate, Upstreams
from shmcache.source.access import ServerAccess
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.client import MOST_WARNINGS, ApiConnection, Client
from shmcache.source.line import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE = 60.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DENIED = b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def dripping(beginning: bytes) -> Iterator[str]:
    """Answers each request with these bytes, and then with one byte again and again."""
    ended = threading.Event()

    def drip(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            sock.recv(65536)
            sock.sendall(beginning)
            while not ended.wait(0.02):
                sock.sendall(b"1")

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=drip, args=(sock,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)


def connection(url: str) -> ApiConnection:
    return ApiConnection(lambda: ServerAccess(url=url))


def opened(client: Client) -> None:
    with client.get("/api/v1/pods", silence=0.2):
        pass


@pytest.mark.parametrize(("beginning", "ask"), [
    (b"HTTP/1.1 200 ", opened),
    (HEAD + b"X: ", opened),
    (DENIED + b"Content-Length: 60000\r\n\r\n", opened),
    (HEAD + b"X: ", lambda client: client.status_of("/readyz", silence=0.2)),
    (HEAD + b"Content-Length: 60000\r\n\r\n", lambda client: client.document("/", silence=0.2)),
    (HEAD + b"Content-Length: 60000\r\n\r\n",
     lambda client: client.send("PUT", "/", b"{}", silence=0.2)),
], ids=["status line", "head", "error", "readiness", "document", "write"])  # fmt: skip
def test_small_answers_are_read_within_a_time(
    beginning: bytes, ask: Callable[[Client], object]
) -> None:
    found: list[FailureKind] = []
    with dripping(beginning) as url:
        client = Client(connection(url))

        def run() -> None:
            with pytest.raises(SourceFailed) as caught:
                ask(client)
            found.append(caught.value.failure.kind)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(DEADLINE)
        client.cancel()
        client.close()
    assert [FailureKind.SILENT] == found


def test_limits_within_each_other_share_a_thread_and_a_time() -> None:
    """LINE1: a small answer is read by a request that has a limit of its own."""
    line = Line()
    with line.within(0.01) as outer:
        threads = threading.active_count()
        with line.within(60.0) as inner:
            assert inner is outer
            assert threading.active_count() == threads
        assert outer.wait(60.0)
    with line.within(60.0) as later:
        assert later is not outer


def test_looks_at_servers_go_on_where_one_of_them_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstreams, "SCOUT_SILENCE", 0.2)
    with dripping(HEAD + b"X: ") as url:
        servers = Upstreams([connection(url)])
        [candidate] = servers.all
        looked = threading.Thread(target=look, args=(servers, candidate), daemon=True)
        looked.start()
        looked.join(DEADLINE)

        assert not looked.is_alive()
        assert not servers.is_usable(candidate)


def look(servers: Upstreams, candidate: Candidate) -> None:
    client = Client(candidate.server)
    servers._ask(candidate, client)
    client.close()


def test_warnings_that_are_always_others_are_not_all_remembered() -> None:
    client = Client(connection("http://127.0.0.1:1"))
    for number in range(3 * MOST_WARNINGS):
        client._warn([f'299 - "{number}"'], "GET /")
    assert len(client._warnings) == MOST_WARNINGS
