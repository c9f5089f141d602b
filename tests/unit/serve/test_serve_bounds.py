"""No client makes the server hold more than its limits, or keeps others from their places."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme
from served import Asked, Stream, pod, serving

from shmcache.protocol.failures import Failure
from shmcache.serve.auth.access import Access, Tokens
from shmcache.serve.http import connection as connections
from shmcache.serve.http.heads import BadRequest
from shmcache.serve.http.incoming import EARLY, Incoming
from shmcache.serve.http.loop import Timer
from shmcache.serve.http.quotas import Quota
from shmcache.serve.http.wire import RECEIVE
from shmcache.serve.limits import Limits
from shmcache.serve.proxy.proxy import Proxy
from shmcache.serve.server import Serving

PODS = {"pods": [pod(number, text="x" * 400) for number in range(300)]}
GET = b"GET /api/v1/namespaces/default/pods/p-0001 HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: localhost\r\n"
WATCH = b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: localhost\r\n"
SOCKET = (
    WATCH + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://localhost\r\n\r\n"
)
MESSAGE = b"\x82\xfe\xff\xffmask" + b"a" * 65535
SIDES = (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
SENT = 24 << 20
"""Bytes that a greedy client tries to send: more than the kernel's buffers take."""


@contextlib.contextmanager
def client(asked: Asked) -> Iterator[socket.socket]:
    """One that reads as little as it can."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", asked.serve.port))
        sock.settimeout(0.3)
        yield sock


def push(sock: socket.socket, data: bytes) -> int:
    """Sends it again and again until the server takes no more; how much it took."""
    sent = 0
    with contextlib.suppress(TimeoutError, ConnectionError):
        while sent < SENT:
            sent += sock.send(data)
    return sent


def held(asked: Asked) -> int:
    return asked.serve.call(lambda: asked.serve.server.holding.total)


def until(fact: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := fact()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


@pytest.mark.parametrize(("first", "filler"), [
    (b"", (GET + b"\r\n") * 200),
    (b"nonsense\r\n\r\n", b"junk" * 5000),
    (GET + b"X: ", b"a" * 20_000),
    (POST + b"Content-Length: 3000000\r\n\r\n", b"a" * 20_000),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nab\r\n" * 3000),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n" * 3000),
    (WATCH + b"\r\n", (GET + b"\r\n") * 200),
    (SOCKET, b"\x89\x84maskabcd" * 3000),
    (SOCKET, b"\x8f\x80mask" * 3000),
    (SOCKET, MESSAGE),
])  # fmt: skip
def test_a_client_that_only_sends_fills_the_kernel_and_not_the_server(
    first: bytes, filler: bytes
) -> None:
    with serving(PODS) as asked, client(asked) as sock:
        sock.sendall(first)
        sent = push(sock, filler)

        assert sent < SENT or filler == MESSAGE  # messages are read over as they come
        limits = asked.serve.server.limits
        page = 512 << 10  # of a watch, with room for the largest object
        assert held(asked) <= limits.head_bytes + RECEIVE + EARLY + page
    assert asked.serve.server.stats.errors == 0
    assert held_after(asked) == 0


def held_after(asked: Asked) -> int:
    return asked.serve.server.holding.total


def test_bodies_are_not_kept_for_clients_without_a_token(tmp_path: Any) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret,ann\n")
    with serving(PODS) as asked:
        asked.serve.server.access = Access(tokens=Tokens(str(tokens)))
        with client(asked) as sock:
            sock.sendall(POST + b"Content-Length: 3000000\r\n\r\n" + b"a" * 30_000)
            assert sock.recv(100).startswith(b"HTTP/1.1 401 ")
            assert held(asked) <= EARLY


@pytest.mark.parametrize("framing", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked"])
def test_a_body_that_nobody_took_is_held_in_small_part_and_then_not_at_all(framing: bytes) -> None:
    """HTTP7, though it comes along with its head in one piece."""
    chunk = b"%x\r\n" % 60_000 + b"a" * 60_000 + b"\r\n"
    data = chunk * 16 if b"chunked" in framing else b"a" * 1_000_000
    incoming = Incoming(Limits())
    incoming.buffer += b"POST / HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n" + data
    assert incoming.next() is not None
    assert incoming.body is not None
    assert 0 < len(incoming.body.data) <= EARLY
    with pytest.raises(BadRequest, match="an unused body of more than 65536 bytes"):
        incoming.skip_body()
    assert len(incoming.body.data) == 0


def test_all_connections_together_hold_no_more_than_one_number() -> None:
    limits = Limits(held_bytes=1 << 20)
    with serving(PODS, Serving(limits=limits)) as asked, contextlib.ExitStack() as stack:
        seen = 0
        socks = [stack.enter_context(client(asked)) for _ in range(60)]
        for sock in socks:
            with contextlib.suppress(ConnectionError):
                sock.sendall(GET + b"X: " + b"a" * 60_000)
            seen = max(seen, held(asked))
        until(lambda: asked.serve.server.holding.ended > 40)

        assert seen <= limits.held_bytes + RECEIVE
        assert asked.get("/livez").code == 200
        socks[0].settimeout(30)
        with contextlib.suppress(ConnectionError):
            assert socks[0].recv(1) == b""  # the one that held longest went first
        assert asked.serve.call(lambda: len(asked.serve.server.connections)) > 5


def test_lists_wait_for_room_and_then_go_on() -> None:
    """Clients that take nothing hold all the room; one that reads gets all of its list."""
    pods = {"pods": [pod(number, text="x" * 500) for number in range(3000)]}
    limits = Limits(held_bytes=1 << 20)
    with serving(pods, Serving(limits=limits)) as asked, contextlib.ExitStack() as stack:
        for _ in range(12):
            sock = stack.enter_context(client(asked))
            sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8)
        until(lambda: asked.serve.call(lambda: asked.serve.server.holding.tight))

        assert len(asked.names("/api/v1/pods")) == 3000
        with Stream(asked, "timeoutSeconds=20") as watch:
            assert sum(watch.next() is not None for _ in range(3000)) == 3000
        assert asked.serve.server.holding.ended > 0


def test_bytes_of_a_client_that_leaves_in_its_request_are_held_no_more() -> None:
    with serving(PODS) as asked:
        with client(asked) as sock:
            sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nX: " + b"a" * 5000)
            until(lambda: held(asked) >= 5000)
        until(lambda: held(asked) == 0)


def test_bytes_that_several_clients_wait_for_are_counted_once() -> None:
    with serving(PODS) as asked:
        holding = asked.serve.server.holding
        with client(asked) as one, client(asked) as other:
            until(lambda: len(asked.serve.server.connections) == 2)
            data = b"x" * 1000

            def keep() -> list[int]:
                totals = []
                for wire in list(asked.serve.server.connections):
                    wire._keep(data)
                    totals.append(holding.total)
                return totals

            first, second = asked.serve.call(keep)
            assert 1000 < first < second < 2000
            for sock in (one, other):
                sock.settimeout(30)
                assert len(sock.recv(1000)) == 1000
        until(lambda: holding.total == 0)


@pytest.mark.parametrize(
    ("path", "header", "code"),
    [
        (b"/api/v1/pods?limit=x", b"X: y", 400),
        (b"/api/v1/pods", b"Impersonate-User: bob", 403),
    ],
    ids=["400", "403"],
)
def test_a_client_that_was_refused_waits_in_the_slow_line(
    path: bytes, header: bytes, code: int
) -> None:
    with serving(PODS) as asked:
        sock = socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30)
        with sock:
            bad = b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n" % (path, header)
            turns: list[int] = []
            server = asked.serve.server
            slowly = server.slowly

            def counted(function: Callable[[], object]) -> None:
                turns.append(1)
                slowly(function)

            delays, later = [], server.loop.call_later

            def timed(seconds: float, function: Callable[[], object]) -> Timer:
                delays.append(seconds)
                return later(seconds, function)

            server.slowly = counted  # type: ignore[method-assign]
            server.loop.call_later = timed  # type: ignore[method-assign]
            sock.sendall(bad * 10)
            found = b""
            while found.count(b"HTTP/1.1 %d " % code) < 10:
                found += sock.recv(1 << 16)
            assert len(turns) >= 8
            longer = {connections.DELAY_SECONDS * 2**refusals for refusals in range(1, 9)}
            assert longer <= {*delays}  # HTTP8: twice as long each time
            (one,) = asked.serve.call(lambda: list(server.connections))
            assert one._refused == 10
            sock.sendall((GET + b"\r\n") * 2)  # and it is answered as others again
            found = b""
            while found.count(b"HTTP/1.1 200 ") < 2:
                found += sock.recv(1 << 16)


@pytest.mark.parametrize(
    ("bad", "code", "count"),
    [
        (b"nonsense", 400, connections.MANY),
        (b"nonsense", 400, connections.MANY + 1),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nExpect: nothing", 417, connections.MANY + 1),
        (b"GET / HTTP/1.1\r\nHost: localhost" + b"\r\nX: y" * 1000, 431, connections.MANY + 1),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: x", 501, connections.MANY + 1),
    ],
    ids=["few", "400", "417", "431", "501"],
)
def test_a_peer_that_was_refused_often_begins_in_the_slow_line_http8(
    bad: bytes, code: int, count: int
) -> None:
    refusal = b"HTTP/1.1 %d " % code
    with serving(PODS) as asked:
        server = asked.serve.server
        server.refused.clear = lambda: None  # type: ignore[method-assign]
        turns: list[int] = []
        slowly = server.slowly

        def counted(function: Callable[[], object]) -> None:
            turns.append(1)
            slowly(function)

        server.slowly = counted  # type: ignore[method-assign]
        address = ("127.0.0.1", asked.serve.port)
        with socket.create_connection(address, timeout=30) as early:
            until(lambda: len(server.connections) == 1)
            for _ in range(count):
                with socket.create_connection(address, timeout=30) as sock:
                    sock.sendall(bad + b"\r\n\r\n")
                    assert sock.recv(1000).startswith(refusal)
            assert server.refused == {"127.0.0.1": count}
            assert not turns
            with socket.create_connection(address, timeout=30) as sock:
                sock.sendall(bad + b"\r\n\r\n")
                assert sock.recv(1000).startswith(refusal)
            assert bool(turns) is (count > connections.MANY)
            turns.clear()
            early.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert early.recv(1000).startswith(b"HTTP/1.1 200 ")
            assert not turns


def test_a_probe_does_not_take_the_slow_line_of_its_peer_http10() -> None:
    probe = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(PODS) as asked:
        server = asked.serve.server
        line: list[Callable[[], object]] = []
        server.slowly = line.append  # type: ignore[assignment,method-assign]
        server.refused.clear = lambda: None  # type: ignore[method-assign]
        server.refused["127.0.0.1"] = connections.MANY + 1
        with client(asked) as other:
            other.sendall(b"GET /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: line)
            waiting = held(asked)
            for data in (probe, probe.replace(b"livez", b"readyz?verbose"), probe[:20]):
                with socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30) as sock:
                    sock.sendall(data)
                    if data == probe[:20]:  # the head in two parts
                        until(lambda: held(asked) > waiting)
                        sock.sendall(probe[20:])
                    assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")
            assert len(line) == 1


def test_bytes_that_came_in_time_are_read_before_their_connection_ends_http4() -> None:
    limits = Limits(head_seconds=0.2)
    with serving(PODS, Serving(limits=limits)) as asked, contextlib.ExitStack() as stack:
        server = asked.serve.server
        address = ("127.0.0.1", asked.serve.port)
        early, late = (
            stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(2)
        )
        until(lambda: len(server.connections) == 2)

        def held_up() -> None:
            """A turn that lasts: the request comes in it, and the sweep is the first to run."""
            early.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            late.sendall(b"GET /livez HTTP/1.1\r\n")
            time.sleep(0.3)
            server.loop.now = time.monotonic()
            server._sweep()

        asked.serve.call(held_up)
        assert early.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert late.recv(1000) == b""


# ---- places --------------------------------------------------------------------------------------


def test_idle_connections_never_keep_a_probe_out() -> None:
    with (
        serving(PODS, Serving(limits=Limits(connections=20))) as asked,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(60):
            sock = stack.enter_context(client(asked))
            with contextlib.suppress(OSError):
                sock.sendall(GET)
        for _ in range(30):
            assert asked.get("/livez").code == 200
        assert asked.serve.server.stats.evicted >= 40


def test_requests_without_their_bodies_never_keep_a_probe_out() -> None:
    with (
        serving(PODS, Serving(limits=Limits(connections=20))) as asked,
        contextlib.ExitStack() as stack,
    ):
        server = asked.serve.server
        server.proxy = Proxy(server.loop, "http://127.0.0.1:9")
        for _ in range(20):
            sock = stack.enter_context(client(asked))
            sock.sendall(POST + b"Content-Length: 10\r\n\r\n")
        until(lambda: sum(one.busy for one in list(server.connections)) == 20)
        for _ in range(30):
            assert asked.get("/livez").code == 200


def test_handshakes_that_do_not_end_make_room_for_those_that_do() -> None:
    authority = trustme.CA()
    ours, theirs = (ssl.SSLContext(side) for side in SIDES)
    authority.issue_cert("localhost").configure_cert(ours)
    authority.configure_trust(theirs)
    with (
        serving(PODS, Serving(limits=Limits(connections=96))) as asked,  # six handshakes
        contextlib.ExitStack() as stack,
    ):
        server = asked.serve.server
        server.tls = ours
        halves = [stack.enter_context(client(asked)) for _ in range(20)]
        for sock in halves:
            sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        until(lambda: len(server.connections) == 6)
        assert len(server._shaking) == 6
        with (
            socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30) as sock,
            theirs.wrap_socket(sock, server_hostname="localhost") as secure,
        ):
            secure.sendall(GET + b"\r\n")
            assert secure.recv(100).startswith(b"HTTP/1.1 200 ")
            assert len(server._shaking) <= 6
        stack.close()
        until(lambda: not server._shaking and not server.connections)


def test_a_client_that_sends_and_resets_before_its_handshake_writes_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    authority = trustme.CA()
    ours, theirs = (ssl.SSLContext(side) for side in SIDES)
    authority.issue_cert("localhost").configure_cert(ours)
    authority.configure_trust(theirs)
    with serving(PODS) as asked:
        asked.serve.server.tls = ours
        with asked.held_up():
            for _ in range(20):
                with client(asked) as sock:
                    sock.sendall(b"\x16\x03\x01")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with (
            socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30) as sock,
            theirs.wrap_socket(sock, server_hostname="localhost") as secure,
        ):
            secure.sendall(GET + b"\r\n")
            assert secure.recv(100).startswith(b"HTTP/1.1 200 ")
        until(lambda: not asked.serve.server.connections)
    assert not caplog.records


def test_lists_that_wait_for_room_never_keep_a_probe_out() -> None:
    with (
        serving(PODS, Serving(limits=Limits(connections=20))) as asked,
        contextlib.ExitStack() as stack,
    ):
        server = asked.serve.server
        held = server.holding.most
        asked.serve.call(lambda: setattr(server.holding, "total", held))
        for _ in range(20):
            sock = stack.enter_context(client(asked))
            sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: sum(one.busy for one in list(server.connections)) == 20)
        for _ in range(30):
            assert asked.get("/livez").code == 200
        waiting = asked.serve.call(lambda: set(server.holding._waiting))
        assert waiting <= server.connections  # those that had to go wait no more
        asked.serve.call(lambda: setattr(server.holding, "total", server.holding.total - held))


def test_a_watch_does_not_keep_the_head_of_its_request(tmp_path: Any) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a,ann\n")
    with serving(PODS) as asked, client(asked) as sock:
        server = asked.serve.server
        server.access = Access(tokens=Tokens(str(tokens)))
        sock.sendall(WATCH + b"Authorization: Bearer a\r\nX-Long: %b\r\n\r\n" % (b"a" * 60_000))
        until(lambda: server.watches.count)
        (one,) = asked.serve.call(lambda: list(server.connections))
        assert one.headers() == []
        assert one.request is not None
        assert one.request.headers == {"authorization": "Bearer a"}


def test_watches_leave_places_for_short_requests() -> None:
    limits = Limits(connections=16)
    with serving(PODS, Serving(limits=limits)) as asked, contextlib.ExitStack() as stack:
        watches = [stack.enter_context(Stream(asked, "")) for _ in range(16)]
        codes = sorted(watch.response.status for watch in watches)

        assert codes == [200] * limits.lasting + [429] * (16 - limits.lasting)
        assert asked.get("/livez").code == 200
    until(lambda: not asked.serve.server.lasting.taken)


def test_a_user_with_many_watches_makes_room_for_one_with_few(tmp_path: Any) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a,ann\nb,bob\n")
    with (
        serving(PODS, Serving(limits=Limits(connections=8))) as asked,
        contextlib.ExitStack() as stack,
    ):
        asked.serve.server.access = Access(tokens=Tokens(str(tokens)))

        def watch(token: str) -> Stream:
            return stack.enter_context(Bearer(asked, token))

        anns = [watch("a") for _ in range(5)]
        assert [one.response.status for one in anns] == [200] * 5
        assert watch("a").response.status == 429
        bobs = [watch("b") for _ in range(3)]
        assert [one.response.status for one in bobs] == [200, 200, 429]
        while anns[0].next() is not None:
            pass  # the oldest one of the user with the most ends as any watch does


class Bearer(Stream):
    """A watch with a token."""

    def __init__(self, asked: Asked, token: str) -> None:
        import http.client

        self._connection = http.client.HTTPConnection("127.0.0.1", asked.serve.port, timeout=30)
        headers = {"Authorization": f"Bearer {token}"}
        self._connection.request("GET", "/api/v1/pods?watch=1", headers=headers)
        self.response = self._connection.getresponse()


def test_places_are_shared_among_their_holders() -> None:
    quota, ended = Quota(6), []
    anns = [quota.enter("ann", lambda number=n: ended.append(number)) for n in range(6)]  # type: ignore[misc]
    for _ in range(2):
        quota.enter("bob", lambda: None)
    quota.enter("cid", lambda: None)
    assert ended == [0, 1, 2]
    assert quota.held_by("ann") == 3
    with pytest.raises(Failure) as error:
        quota.enter("ann", lambda: None)
    assert error.value.code == 429
    for admission in anns:
        admission.leave()
        admission.leave()
    assert quota.taken == 3
