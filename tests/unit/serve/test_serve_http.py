"""HTTP/1.1 of the server: valid and invalid requests (G34), limits, deadlines, the end."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from served import Asked, pod, serving

from shmcache.monitor.observing import observe
from shmcache.serve.http.loop import Pending, Task
from shmcache.serve.http.wire import LINGER_BYTES
from shmcache.serve.limits import Limits
from shmcache.serve.server import Serving

POD = b"/api/v1/namespaces/default/pods/p-0001"
GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n" % POD
PODS = {"pods": [pod(number) for number in range(5)]}


def code(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def wait_for(fact: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (GET + b"Connection: close\r\n\r\n", 200),
        (b"\r\n" + GET + b"Connection: close\r\n\r\n", 200),
        (b"GET %b HTTP/1.0\r\n\r\n" % POD, 200),
        (b"GET http://x%b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % POD, 200),
        (b"GET %b HTTP/1.1\r\nConnection: close\r\n\r\n" % POD, 400),  # no Host
        (GET + b"Host: other\r\n\r\n", 400),
        (GET + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 400),
        (GET + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
        (GET + b"Content-Length: +3\r\n\r\nabc", 400),
        (GET + b"Content-Length: 3, 3\r\n\r\nabc", 400),
        (GET + b"Content-Length: -1\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (GET + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501),
        (GET + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400),
        (b"GET %b HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % POD, 400),
        (GET + b"X : y\r\n\r\n", 400),
        (GET + b" folded: y\r\n\r\n", 400),
        (GET + b"X: a\r\n b\r\n\r\n", 400),
        (GET + b"X: a\x00b\r\n\r\n", 400),
        (GET + b"X: a\nY: b\r\n\r\n", 400),
        (GET + b"Expect: magic\r\n\r\n", 417),
        (b"GET  %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % POD, 400),
        (b"GET %b HTTP/2.0\r\nHost: localhost\r\n\r\n" % POD, 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://[x/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /api/v1/namespaces/%zz/pods HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /api/v1/namespaces/%7/pods HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /x% HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (GET + b"X: %b\r\n\r\n" % (b"a" * 70000), 431),
        (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (GET + b"Connection: close\r\n" + b"X: y\r\n" * 98 + b"\r\n", 200),
        (GET + b"Connection: close\r\n" + b"X: y\r\n" * 99 + b"\r\n", 431),
        (GET + b"Content-Length: 9999999\r\n\r\n", 413),
        (GET + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: a\rb\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA : b\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\n folded\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-length: 3\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nTransfer-Encoding: x\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nHost: evil\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n3 ;a=b\r\nabc\r\n0\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n3;a= b\r\nabc\r\n0\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n" + b"a" * 4000000, 413),
        (b"GET /?%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"a=1&" * 100), 400),
    ],
)  # fmt: skip
def test_a_request_is_answered_or_refused_with_its_connection(
    request_: bytes, expected: int
) -> None:
    with serving(PODS) as asked:
        answer = asked.raw(request_)

        assert code(answer) == expected, answer
        assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(("first", "expected"), [
    (b"nonsense\r\n\r\n", 400),
    (GET + b"Content-Length: 9999999\r\n\r\n", 413),
    (GET + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413),
    (GET + b"X: %b" % (b"a" * 70_000), 431),
    (GET + b"Connection: close\r\nContent-Length: 2000000\r\n\r\n", 200),
    (GET + b"Connection: close\r\n\r\n" + GET, 200),
])  # fmt: skip
def test_a_client_that_still_sends_reads_its_answer_and_the_end_and_no_reset(
    first: bytes, expected: int
) -> None:
    with serving(PODS) as asked, socket.create_connection(
        ("127.0.0.1", asked.serve.port), timeout=30
    ) as sock:  # fmt: skip
        sock.sendall(first)
        answer = sock.recv(1 << 16)
        wait_for(lambda: asked.serve.call(lambda: not any(
            one.busy for one in list(asked.serve.server.connections)
        )))  # fmt: skip
        for _ in range(20):
            sock.sendall(b"a" * 20_000)  # a reset would show here
        while piece := sock.recv(1 << 16):
            answer += piece

        assert code(answer) == expected
        assert answer.count(b"HTTP/1.1 ") == 1


def test_clients_that_send_without_end_after_a_refusal_cost_few_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HTTP9: others have the loop, though bytes arrive all the time."""
    with serving(PODS) as asked:
        server = asked.serve.server
        turns, looks = [0], [0]
        turn, look = server.loop.turn, server._read_over

        def counted_turn() -> None:
            turns[0] += 1
            turn()

        def counted_look() -> None:
            looks[0] += 1
            look()

        monkeypatch.setattr(server.loop, "turn", counted_turn)
        monkeypatch.setattr(server, "_read_over", counted_look)
        for _ in range(10):
            with (
                socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30) as sock,
                contextlib.suppress(ConnectionError),
            ):
                sock.sendall(b"nonsense\r\n\r\n")
                for _ in range(2 * LINGER_BYTES // 1000):
                    sock.sendall(b"a" * 1000)
        assert looks[0] > 10
        assert turns[0] < 3 * looks[0] + 200, looks


def test_a_client_that_sends_without_end_after_a_refusal_is_cut() -> None:
    with serving(PODS) as asked, socket.create_connection(
        ("127.0.0.1", asked.serve.port), timeout=30
    ) as sock:  # fmt: skip
        sock.sendall(b"nonsense\r\n\r\n")
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 400 ")
        sent = 0
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while sent < 20 * LINGER_BYTES:
                sent += sock.send(b"a" * 65_536)
        wait_for(lambda: not asked.serve.server.connections)
        assert asked.serve.server.holding.total == 0


def fails(*_: object) -> Any:
    raise RuntimeError("a mistake of ours")


def test_any_error_while_reading_a_request_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(PODS) as asked:
        monkeypatch.setattr("shmcache.serve.http.incoming.HttpRequest", fails)
        answer = asked.raw(GET + b"X-Not: the usual\r\nConnection: close\r\n\r\n")

        assert code(answer) == 500
        assert asked.serve.server.stats.errors == 1
    assert "a mistake of ours" in caplog.text


def test_a_request_that_fails_the_quick_way_takes_the_long_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(PODS) as asked:
        monkeypatch.setattr(asked.serve.server.usual, "_may", fails)

        assert asked.get(POD.decode()).code == 200
    assert "a mistake of ours" in caplog.text


def test_a_smuggled_request_is_never_answered() -> None:
    inner = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for head in (
        b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(inner),
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(inner),
    ):
        with serving(PODS) as asked:
            answer = asked.raw(GET + head + b"\r\n0\r\n\r\n" + inner)

            assert code(answer) in {400, 501}
            assert b"gitVersion" not in answer


def test_requests_one_after_another_on_one_connection_and_pipelined() -> None:
    with serving(PODS) as asked, socket.create_connection(
        ("127.0.0.1", asked.serve.port), timeout=30
    ) as sock:  # fmt: skip
        sock.sendall((GET + b"\r\n") * 50 + GET + b"Connection: close\r\n\r\n")
        found = b""
        while piece := sock.recv(1 << 16):
            found += piece

        assert found.count(b"HTTP/1.1 200 OK") == 51
        assert found.count(b'"name":"p-0001"') == 51


def test_a_body_is_read_and_the_next_request_follows_it() -> None:
    with serving(PODS) as asked:
        bodies = (
            b"Content-Length: 5\r\n\r\nhello",
            b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nT: u\r\n\r\n",
            b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
        )
        data = b"".join(GET + body for body in bodies) + GET + b"Connection: close\r\n\r\n"
        assert asked.raw(data).count(b"HTTP/1.1 200 OK") == 4


@pytest.mark.parametrize("path", [b"/api/v1/pods", b"/api/v1/pods?watch=1&timeoutSeconds=1"])
def test_an_answer_to_http_1_1_marks_its_end_with_a_chunk(path: bytes) -> None:
    """Also to who closes: else an answer that broke off would look like a whole one (HTTP3)."""
    pods = {"pods": [pod(number, text="x" * 500) for number in range(1000)]}
    with serving(pods) as asked:
        head, _, body = asked.raw(
            b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path
        ).partition(b"\r\n\r\n")
        assert b"Transfer-Encoding: chunked" in head
        assert b"Connection: close" in head
        assert body.endswith(b"}\n\r\n0\r\n\r\n")

        head, _, body = asked.raw(b"GET %b HTTP/1.0\r\n\r\n" % path).partition(b"\r\n\r\n")
        assert b"Transfer-Encoding" not in head
        assert body.startswith(b"{")
        assert body.endswith(b"}\n")


def test_an_unused_body_is_not_requested() -> None:
    """The client waits for a 100; it gets its answer instead, and must not send the body."""
    with serving(PODS) as asked:
        answer = asked.raw(GET + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")

        assert code(answer) == 200
        assert b"Connection: close\r\n" in answer
        assert b"100 Continue" not in answer


def test_a_long_unused_body_ends_its_connection_after_the_answer() -> None:
    with serving(PODS) as asked:
        head = GET + b"Content-Length: 2000000\r\n\r\n"
        answer = asked.raw(head + b"a" * 2_000_000)

        assert code(answer) == 200
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"Connection: close\r\n" in answer


def test_bytes_may_come_one_by_one() -> None:
    with serving(PODS) as asked, socket.create_connection(
        ("127.0.0.1", asked.serve.port), timeout=30
    ) as sock:  # fmt: skip
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in GET + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n":
            sock.sendall(bytes([byte]))
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_sends_a_request_slowly_is_cut() -> None:
    limits = Limits(head_seconds=0.2, body_seconds=0.2, idle_seconds=0.2)
    slow = (
        b"GET",
        GET,
        GET + b"Content-Length: 5\r\n\r\nab",
        GET + b"\r\n",  # idle after its answer
        b"",
    )
    with serving(PODS, Serving(limits=limits)) as asked:
        threads = [threading.Thread(target=asked.raw, args=(data,)) for data in slow]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)  # they return when the server has ended them
            assert not thread.is_alive()


def test_dripping_bytes_does_not_buy_time() -> None:
    with (
        serving(PODS, Serving(limits=Limits(head_seconds=0.5))) as asked,
        socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30) as sock,
    ):
        sock.sendall(b"GET / HTTP/1.1\r\n")
        wait_for(lambda: dripped(sock))


def dripped(sock: socket.socket) -> bool:
    """Sends a little; whether the connection was ended meanwhile."""
    try:
        sock.sendall(b"X: y\r\n")
        sock.settimeout(0.02)
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_client_that_takes_nothing_is_cut_and_costs_a_page() -> None:
    limits = Limits(stall_seconds=1.0)
    pods = {"pods": [pod(number, text="x" * 500) for number in range(20_000)]}
    with serving(pods, Serving(limits=limits)) as asked:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", asked.serve.port))
        with sock:
            sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n\r\n")
            backlogs: list[int] = []
            connections = asked.serve.server.connections

            def look() -> int:
                backlogs.extend(asked.serve.call(lambda: [one.backlog for one in connections]))
                return max(backlogs, default=0)

            wait_for(look)  # its request has come
            wait_for(lambda: look() and not connections)
            assert 0 < max(backlogs) < 1 << 20
            assert 1 == asked.serve.server.stats.slow
            assert [1] == [one.cut for one in observe(asked.serve.server.cache).workers]


def test_a_new_connection_takes_the_place_of_the_one_that_was_idle_longest() -> None:
    with serving(PODS, Serving(limits=Limits(connections=2))) as asked:
        held = [socket.create_connection(("127.0.0.1", asked.serve.port)) for _ in range(2)]
        for sock in held:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(1000).startswith(b"HTTP/1.1 200 OK")

        assert asked.get("/healthz").code == 200
        assert held[0].recv(1) == b""  # ended
        held[1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert held[1].recv(1000).startswith(b"HTTP/1.1 200 OK")
        for sock in held:
            sock.close()
    assert asked.serve.server.stats.evicted == 1


def test_a_client_that_vanishes_is_found_out_by_the_kernel() -> None:
    with serving(PODS) as asked:
        server = asked.serve.server
        with socket.create_connection(("127.0.0.1", asked.serve.port)):
            wait_for(lambda: server.connections)
            (sock,) = asked.serve.call(lambda: [one.sock for one in server.connections])
            for level, option, value in (
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
                (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            ):
                assert sock.getsockopt(level, option) == value


def test_draining_lets_a_list_end_and_takes_nothing_more() -> None:
    pods = {"pods": [pod(number, text="x" * 500) for number in range(20_000)]}
    with serving(pods) as asked:
        sock = socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30)
        idle = socket.create_connection(("127.0.0.1", asked.serve.port), timeout=30)
        idle.sendall(GET + b"\r\n")
        idle.recv(1 << 16)
        sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = sock.recv(1000)
        ended = threading.Event()
        asked.serve.call(lambda: asked.serve.server.drain(ended.set))
        assert idle.recv(1) == b""
        with socket.create_connection(("127.0.0.1", asked.serve.port)) as late:
            late.sendall(GET + b"\r\n")
            for _ in range(3):  # turns of the loop: each looks at everything that has come
                assert asked.serve.call(lambda: len(asked.serve.server.connections)) == 1
        while piece := sock.recv(1 << 20):
            found += piece
        assert found.endswith(b"]}\n\r\n0\r\n\r\n")
        assert ended.wait(30)
        sock.close()
        idle.close()


def test_a_client_that_disconnects_while_waiting_leaves_no_trace() -> None:
    with serving(PODS, Serving(fresh_seconds=60)) as asked:
        server = asked.serve.server
        with socket.create_connection(("127.0.0.1", asked.serve.port)) as sock:
            path = b"GET %b?resourceVersion=999 HTTP/1.1\r\nHost: localhost\r\n\r\n" % POD
            sock.sendall(path)
            wait_for(lambda: asked.serve.call(lambda: server.waiting.taken) == 1)
        wait_for(lambda: asked.serve.call(lambda: server.waiting.taken) == 0)
        wait_for(lambda: not server.connections)
        assert not server.bell._listeners


def test_a_list_whose_state_is_lost_while_it_is_sent_is_cut() -> None:
    """The client can tell: the last chunk does not come (HTTP3)."""
    pods = [pod(number, text="x" * 500) for number in range(20_000)]
    with serving({"pods": pods}, arena_max=256 << 20, garbage_max=1 << 20) as asked:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", asked.serve.port))
        with sock:
            sock.settimeout(30)
            sock.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n\r\n")
            found = sock.recv(1000)
            for turn in range(8):
                changed = [{**one, "spec": {"turn": turn, "n": n}} for n, one in enumerate(pods)]
                asked.writer.replace("pods", changed, version=str(200 + turn))
            try:
                while piece := sock.recv(1 << 20):
                    found += piece
            except ConnectionResetError:
                pass
        assert code(found) == 200
        assert not found.endswith(b"0\r\n\r\n")
        assert asked.serve.server.stats.cut == 1
        assert len(asked.names("/api/v1/pods?limit=3")) == 3


def test_a_broken_connection_does_not_disturb_another(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(PODS) as asked:
        broken(asked)
        assert asked.get("/version").code == 200
    assert capsys.readouterr().err == ""


def broken(asked: Asked) -> None:
    """Ends in the middle of a request, with a reset."""
    import struct

    with socket.create_connection(("127.0.0.1", asked.serve.port)) as sock:
        sock.sendall(b"GET / HT")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_request_that_closes_its_own_connection_is_not_an_error() -> None:
    """A refused WebSocket ends the connection while its request is still being answered."""
    watch = b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: localhost\r\n"
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
    with serving(PODS) as asked:
        assert code(asked.raw(watch + upgrade)) in {400, 403}
        assert code(asked.raw(GET + b"Connection: close\r\n\r\n")) == 200
        assert asked.serve.server.stats.errors == 0


def test_a_coroutine_may_cancel_itself() -> None:
    ended: list[object] = []
    told: list[object] = []
    waiting: Pending[None] = Pending()

    async def work(*, waits: bool, fails: bool) -> str:
        task.cancel()
        task.cancel()
        try:
            if waits:
                await waiting
            if fails:
                raise LookupError
            return "answer"
        finally:
            ended.append((waits, fails))

    def done(value: object, error: BaseException | None) -> None:
        told.append((value, type(error)))

    for waits, fails in ((False, False), (True, False), (False, True)):
        task = Task(work(waits=waits, fails=fails), done)
        task.step()
    waiting.give(None)

    assert ended == [(False, False), (True, False), (False, True)]
    assert told == [(None, LookupError)]


def test_bytes_are_sent_in_their_order_however_few_wait() -> None:
    with serving(PODS) as asked, socket.create_connection(("127.0.0.1", asked.serve.port)) as sock:
        sock.settimeout(60)
        sock.sendall(GET)  # no end: the server waits for more
        wait_for(lambda: asked.serve.call(lambda: len(asked.serve.server.connections)))

        def send() -> list[int]:
            (one,) = asked.serve.server.connections
            backlogs = []
            for data in (b"a", b"b", b"c"):
                one.send(data)
                backlogs.append(one.backlog)
            return backlogs

        assert asked.serve.call(send) == [0, 0, 0]  # the kernel takes them at once
        assert b"abc" == b"".join(sock.recv(1) for _ in range(3))
