"""A server that sends a byte now and then, for ever, keeps no thread: LINE1, TIMED1 to 3."""

from __future__ import annotations

import contextlib
import gzip
import io
import socket
import threading
import zlib
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from shmcache.engine import upstreams
from shmcache.engine.upstreams import Candidate, Upstreams
from shmcache.protocol.options import ListOptions
from shmcache.source import body
from shmcache.source.access import ServerAccess
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.client import MOST_WARNINGS, ApiConnection, Client
from shmcache.source.inflate import IDLE_BYTES, WBITS, inflate
from shmcache.source.kube import KubeSource
from shmcache.source.line import Line
from shmcache.testing import ApiServer

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


# ---- bodies that may last ------------------------------------------------------------------------

SILENCE = 0.4
EVERY = 0.05


def dripping_source(server: ApiServer, silence: float = SILENCE) -> KubeSource:
    return KubeSource(connection(server.url), "pods", list_silence=silence)


def failure_of(use: Callable[[], object]) -> FailureKind:
    """Of a use that may last for ever."""
    found: list[FailureKind] = []

    def run() -> None:
        with pytest.raises(SourceFailed) as caught:
            use()
        found.append(caught.value.failure.kind)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert found, "it goes on"
    return found[0]


def watch(source: KubeSource, seen: list[str]) -> None:
    options = ListOptions(watch=True, resource_version="1")
    with source.watch(options, silence=SILENCE) as stream:
        for items in stream:
            seen.extend(item.key for item in items)


@pytest.mark.parametrize("drip", [b" ", b"\n", b"  \n \n", b"{", b"0"],
                         ids=["blanks", "lines", "blank lines", "brackets", "digits"])  # fmt: skip
def test_bytes_that_complete_no_event_are_silence(drip: bytes) -> None:
    """TIMED1"""
    seen: list[str] = []
    with ApiServer() as server:
        server.create("pods", {"metadata": {"name": "a", "namespace": "n"}})
        fault = server.faults.half_open("watch", after=1, drip=drip, every=EVERY)
        source = dripping_source(server)
        assert failure_of(lambda: watch(source, seen)) is FailureKind.SILENT
        assert fault.happened
        source.close()
    assert seen == ["n/a"]


def test_events_end_the_silence_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """TIMED1: ten events, of which a few take longer than the silence."""
    clock = count(0.0, 15.0)
    monkeypatch.setattr(body, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    seen = 0
    with ApiServer() as server:
        source = dripping_source(server, 70.0)
        with source.watch(ListOptions(watch=True, resource_version="1"), silence=70.0) as stream:
            for number in range(10):
                server.create("pods", {"metadata": {"name": f"a-{number}", "namespace": "n"}})
                while seen <= number:
                    seen += len(next(stream))
        source.close()


def test_a_list_that_comes_byte_by_byte_is_silence() -> None:
    """TIMED2"""

    def read(source: KubeSource) -> None:
        with source.page(ListOptions()) as page:
            list(page)

    with ApiServer() as server:
        server.create("pods", {"metadata": {"name": "a", "namespace": "n"}})
        fault = server.faults.half_open("list", "pods", after=1, drip=b" ", every=EVERY)
        source = dripping_source(server)
        assert failure_of(lambda: read(source)) is FailureKind.SILENT
        assert fault.happened
        source.close()


def test_framing_without_content_is_silence() -> None:
    """TIMED1, TIMED2: the size of a chunk that never ends."""
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;"
    for bounded in (True, False):
        with dripping(chunked) as url:
            client = Client(connection(url))

            def read(client: Client = client, *, bounded: bool = bounded) -> None:
                with client.get("/", silence=0.2, bounded=bounded) as pieces:
                    list(pieces)

            assert failure_of(read) is FailureKind.SILENT
            client.close()


class Clock:
    """A wire that takes so many seconds for each of its pieces."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float, size: int) -> None:
        self.now, self.seconds, self.size = 0.0, seconds, size
        monkeypatch.setattr(body, "time", SimpleNamespace(monotonic=lambda: self.now))

    def read1(self, _: int) -> bytes:
        self.now += self.seconds
        return b"x" * self.size


def timed_by(clock: Clock, *, is_watch: bool) -> body.TimedBody:
    timed = body.TimedBody("GET /", 70.0, is_watch=is_watch)
    timed.wire = cast("io.BufferedReader", clock)
    return timed


def test_a_slow_line_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """TIMED2: 2 KiB in a second, or 100 bytes of a server that wakes up then."""
    slow = timed_by(Clock(monkeypatch, 1.0, 2 * body.FLOOR), is_watch=False)
    for _ in range(1000):
        slow.read1(1)
    clock = Clock(monkeypatch, 1.0, 100)
    waking = timed_by(clock, is_watch=False)
    for _ in range(100):
        waking.read1(1)
    clock.size = 10 * body.FLOOR
    for _ in range(1000):
        waking.read1(1)


def test_a_line_below_the_floor_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """TIMED2, also after a quick beginning."""
    clock = Clock(monkeypatch, 1.0, 10 * body.FLOOR)
    timed = timed_by(clock, is_watch=False)
    for _ in range(1000):
        timed.read1(1)
    clock.size = body.FLOOR // 2
    with pytest.raises(SourceFailed, match="too slowly"):
        for _ in range(1000):
            timed.read1(1)


def test_the_time_of_a_busy_reader_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.0, 1)
    for is_watch in (True, False):
        timed = timed_by(clock, is_watch=is_watch)
        for _ in range(1000):
            assert timed.read1(1)
            clock.now += 1000.0


def test_an_event_keeps_a_watch_however_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """TIMED1: the process may have been stopped while it waited."""
    clock = Clock(monkeypatch, 1000.0, 1)
    timed = timed_by(clock, is_watch=True)
    for _ in range(1000):
        timed.read1(1)
        timed.renew()
    timed.read1(1)
    with pytest.raises(SourceFailed, match="no event"):
        timed.read1(1)


def test_compressed_bytes_that_stand_for_nothing_end() -> None:
    """TIMED3"""
    packer = zlib.compressobj(wbits=31)
    head = packer.compress(b"a") + packer.flush(zlib.Z_SYNC_FLUSH)
    nothing = b"\0\0\0\xff\xff"  # a stored block of no bytes
    pieces = [head, *[nothing * 1000] * (2 * IDLE_BYTES // 5000)]
    with pytest.raises(zlib.error):
        list(inflate(pieces, WBITS["gzip"]))
    text = io.BytesIO()
    for piece in inflate([gzip.compress(b"a" * 5_000_000)] * 3, WBITS["gzip"]):
        text.write(piece)
    assert text.tell() == 15_000_000
