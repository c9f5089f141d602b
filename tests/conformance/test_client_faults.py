"""Invariant tested: whatever a server or a network does to a request, it ends, and reports the
reason (G20)."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import zlib

import pytest
from client import CONFIGMAPS, SILENCE, Outcome, list_of, server_of, source_of, watch_of
from wire import DEADLINE, Play, Wire, answer, chunked

from shmcache.protocol.options import ListOptions
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.kube import KubeSource

SHORT = 0.2
EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"5"}}}\n'
LIST = b'{"kind":"L","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}'
HEAD = chunked(end=False)


def kind_of(outcome: Outcome) -> FailureKind | None:
    return None if outcome.failure is None else outcome.failure.kind


def silent(*pieces: bytes) -> Play:
    """Sends these, then holds the connection open until the client hangs up."""

    def play(sock: socket.socket) -> None:
        for piece in pieces:
            sock.sendall(piece)
        sock.recv(1)

    return play


# ---- half-open ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [(), (b"HTTP/1.1 200",), (HEAD,), (HEAD, b"4a\r\n" + EVENT[:10])],
    ids=["nothing", "half a head", "a head", "half an event"],
)
def test_a_watch_that_goes_silent_anywhere_is_silent(pieces: tuple[bytes, ...]) -> None:
    with Wire(silent(*pieces)) as wire:
        assert FailureKind.SILENT is kind_of(watch_of(source_of(wire.url), silence=SHORT))


def test_a_list_that_goes_silent_midway_is_silent() -> None:
    with Wire(silent(answer(LIST)[:-20])) as wire:
        source = KubeSource(server_of(wire.url), CONFIGMAPS, list_silence=SHORT)

        assert FailureKind.SILENT is kind_of(list_of(source))


def test_an_event_that_comes_in_two_pieces_is_one() -> None:
    with Wire(chunked(EVENT[:30], EVENT[30:])) as wire:
        seen = []
        with source_of(wire.url).watch(ListOptions(watch=True), silence=SILENCE) as batches:
            seen = [len(items) for items in batches]

    assert 1 == sum(seen)


# ---- how connections end -------------------------------------------------------------------------


def test_a_port_without_a_listener_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert FailureKind.REFUSED is kind_of(list_of(source_of(f"http://127.0.0.1:{port}")))


def test_an_unknown_host_name_is_a_network_failure() -> None:
    outcome = list_of(source_of("http://nowhere.invalid:1"))

    assert FailureKind.NETWORK is kind_of(outcome)


def reset(*pieces: bytes) -> Play:
    def play(sock: socket.socket) -> None:
        for piece in pieces:
            sock.sendall(piece)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return play


def test_a_reset_is_a_network_failure() -> None:
    with Wire(reset()) as wire:
        assert FailureKind.NETWORK is kind_of(watch_of(source_of(wire.url)))


def test_a_server_that_hangs_up_before_it_answers_has_ended_it() -> None:
    with Wire(b"") as wire:
        assert FailureKind.ENDED is kind_of(watch_of(source_of(wire.url)))


def test_a_line_without_its_end_is_neither_an_event_nor_a_clean_end() -> None:
    with Wire(chunked(EVENT, EVENT[:-1])) as wire:
        outcome = watch_of(source_of(wire.url))

    assert (FailureKind.ENDED, ["a"]) == (kind_of(outcome), [item.key for item in outcome.items])


def test_a_watch_whose_end_could_be_a_cut_has_not_ended_cleanly() -> None:
    with Wire(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + EVENT) as wire:
        outcome = watch_of(source_of(wire.url))

    assert (FailureKind.ENDED, 1) == (kind_of(outcome), len(outcome.items))


def test_a_list_until_the_end_of_the_connection_proves_itself() -> None:
    with Wire(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + LIST) as wire:
        outcome = list_of(source_of(wire.url))

    assert (None, 1) == (outcome.failure, len(outcome.items))


def test_a_connection_that_died_while_idle_is_replaced() -> None:
    with Wire(answer(LIST, Connection="close"), answer(LIST)) as wire:
        source = source_of(wire.url)

        assert [None, None] == [list_of(source).failure for _ in range(2)]
        assert wire.connections == 2


def test_a_watch_that_ended_cleanly_leaves_its_connection_for_the_next() -> None:
    with Wire(chunked(EVENT), chunked(EVENT), answer(LIST)) as wire:
        source = source_of(wire.url)

        assert [None, None] == [watch_of(source).failure for _ in range(2)]
        assert list_of(source).failure is None
        assert wire.connections == 1


def test_a_watch_that_is_left_hangs_up() -> None:
    with Wire(silent(HEAD, b"4a\r\n" + EVENT + b"\r\n"), answer(LIST)) as wire:
        source = source_of(wire.url)
        with source.watch(ListOptions(watch=True), silence=SILENCE) as batches:
            assert "a" == next(batches)[0].key

        assert list_of(source).failure is None
        assert wire.connections == 2


# ---- warnings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "played",
    [
        answer(b"<html>log in</html>", kind="text/html"),
        answer(b"<html>log in</html>"),
        answer(b'{"kind":"Status"}'),
        answer(b"[]"),
        answer(LIST + b"{}"),
        answer(LIST, Content_Encoding="br"),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        HEAD + b"xyz\r\n",
        HEAD + b"0\r\n\r\nmore",
    ],
)
def test_answers_that_the_protocol_does_not_allow_are_garbage(played: bytes) -> None:
    with Wire(played) as wire:
        outcome = list_of(source_of(wire.url))

    assert FailureKind.GARBAGE is kind_of(outcome)


def test_a_page_of_a_proxy_is_named_by_its_type() -> None:
    with Wire(answer(b"<html>", kind="text/html; charset=utf-8")) as wire:
        outcome = list_of(source_of(wire.url))

    assert outcome.failure is not None
    assert "text/html" in outcome.failure.message


def test_a_redirect_is_not_followed() -> None:
    with Wire(answer(b"", "302 Found", Location="https://login.example.com/")) as wire:
        outcome = list_of(source_of(wire.url))

    assert outcome.failure is not None
    assert outcome.failure.status is not None
    assert 302 == outcome.failure.status.code


def test_retry_after_as_a_date_is_counted_from_now() -> None:
    now = 1_800_000_000.0
    date = "Fri, 15 Jan 2027 08:00:30 GMT"
    with Wire(answer(b"later", "503 Service Unavailable", Retry_After=date)) as wire:
        server = server_of(wire.url)
        server.now = lambda: now
        outcome = list_of(KubeSource(server, CONFIGMAPS, list_silence=SILENCE))

    assert outcome.failure is not None
    assert 30.0 == outcome.failure.retry_after


def test_an_endless_error_is_not_read_to_its_end() -> None:
    def flood(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            sock.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")

    with Wire(flood) as wire:
        assert FailureKind.HTTP is kind_of(list_of(source_of(wire.url)))
        assert wire.hung_up.wait(DEADLINE)


# ---- compression ---------------------------------------------------------------------------------


def members(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(gzip.compress(piece) for piece in pieces)


@pytest.mark.parametrize("size", [1, 7, len(LIST)])
def test_a_list_in_gzip_members_is_whole(size: int) -> None:
    with Wire(answer(members(LIST, size), Content_Encoding="gzip")) as wire:
        outcome = list_of(source_of(wire.url))

    assert (None, 1) == (outcome.failure, len(outcome.items))


def test_a_list_in_zlib_streams_is_whole() -> None:
    body = zlib.compress(LIST[:20]) + zlib.compress(LIST[20:])
    with Wire(answer(body, Content_Encoding="deflate")) as wire:
        assert 1 == len(list_of(source_of(wire.url)).items)


def test_a_watch_in_gzip_members_despite_identity_is_whole() -> None:
    with Wire(chunked(members(EVENT * 5, 11), Content_Encoding="gzip")) as wire:
        outcome = watch_of(source_of(wire.url))

    assert (None, 5) == (outcome.failure, len(outcome.items))
    assert ["identity"] == wire.header("Accept-Encoding")


def test_a_gzip_member_without_its_end_is_not_a_list() -> None:
    with Wire(answer(gzip.compress(LIST)[:-4], Content_Encoding="gzip")) as wire:
        assert FailureKind.ENDED is kind_of(list_of(source_of(wire.url)))


def test_broken_gzip_is_garbage() -> None:
    with Wire(answer(b"\x1f\x8bnothing of this", Content_Encoding="gzip")) as wire:
        assert FailureKind.GARBAGE is kind_of(list_of(source_of(wire.url)))


# ---- cancelling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [(), (HEAD,)], ids=["before its headers", "in its body"])
def test_cancel_ends_a_blocked_watch_at_once(pieces: tuple[bytes, ...]) -> None:
    waiting = threading.Event()

    def play(sock: socket.socket) -> None:
        for piece in pieces:
            sock.sendall(piece)
        waiting.set()
        sock.recv(1)

    with Wire(play) as wire:
        source = source_of(wire.url)
        outcomes: list[Outcome] = []
        thread = threading.Thread(
            target=lambda: outcomes.append(watch_of(source, silence=4 * DEADLINE))
        )
        thread.start()
        assert waiting.wait(DEADLINE)
        source.cancel()
        thread.join(DEADLINE)

        assert not thread.is_alive()
        assert [FailureKind.CANCELLED] == [kind_of(outcome) for outcome in outcomes]


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"\r\n", b"\r\nConnection: close\r\n", 1),
        b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n",
    ],
    ids=["in chunks", "up to its end"],
)
def test_cancel_ends_also_the_last_body_of_a_connection(head: bytes) -> None:
    """No other request may follow there; the connection is as long as the body all the same."""
    failed: list[FailureKind] = []
    began = threading.Event()

    def play(sock: socket.socket) -> None:
        sock.sendall(head)
        sock.recv(1)

    def read(source: KubeSource) -> None:
        try:
            with source.watch(ListOptions(watch=True), silence=4 * DEADLINE) as batches:
                began.set()
                list(batches)
        except SourceFailed as error:
            failed.append(error.failure.kind)

    with Wire(play) as wire:
        source = source_of(wire.url)
        thread = threading.Thread(target=read, args=(source,))
        thread.start()
        assert began.wait(DEADLINE)
        source.cancel()
        thread.join(DEADLINE)

        assert not thread.is_alive()
        assert [FailureKind.CANCELLED] == failed


def test_a_cancelled_source_asks_for_nothing_more() -> None:
    with Wire(answer(LIST), answer(LIST)) as wire:
        source = source_of(wire.url)
        assert list_of(source).failure is None
        source.cancel()

        assert FailureKind.CANCELLED is kind_of(list_of(source))
        assert 1 == len(wire.requests)


def test_an_exception_of_the_caller_is_not_the_sources() -> None:
    with Wire(answer(LIST)) as wire:
        source = source_of(wire.url)
        with pytest.raises(OSError, match="disk"), source.page(ListOptions()) as page:
            for _ in page:
                raise OSError("the disk is full")


# ---- how much ------------------------------------------------------------------------------------


def test_a_long_body_is_never_held() -> None:
    item = b'{"metadata":{"name":"a","labels":{"x":"%s"}}}' % (b"y" * 20_000)
    body = b'{"metadata":{"resourceVersion":"7"},"items":[' + b",".join([item] * 400) + b"]}"
    longest = 0
    with Wire(answer(body)) as wire, source_of(wire.url).page(ListOptions()) as page:
        for items in page:
            longest = max(longest, sum(len(item.raw) for item in items))

    assert longest < 400_000 < len(body)


def test_bytes_that_are_read_are_counted() -> None:
    with Wire(answer(LIST), chunked(EVENT)) as wire:
        source = source_of(wire.url)
        list_of(source)
        watch_of(source)

    assert len(LIST) + len(EVENT) == source.bytes_received


def test_requests_identify_us_and_the_accepted_types() -> None:
    with Wire(answer(LIST), chunked()) as wire:
        source = source_of(wire.url, metadata_only=True)
        list_of(source)
        watch_of(source)

    assert wire.header("User-Agent")[0].startswith("shmcache/")
    assert "as=PartialObjectMetadataList;" in wire.header("Accept", 0)[0]
    assert "as=PartialObjectMetadata;" in wire.header("Accept", 1)[0]


def test_a_warning_of_the_server_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    old = '299 - "v1 Endpoints is deprecated"'
    with Wire(answer(LIST, Warning=old), answer(LIST, Warning=old)) as wire:
        source = source_of(wire.url)
        list_of(source)
        list_of(source)

    assert 1 == caplog.text.count("v1 Endpoints is deprecated")


def test_keepalive_is_on() -> None:
    with Wire(silent(HEAD)) as wire:
        source = KubeSource(server_of(wire.url), CONFIGMAPS)
        with source.watch(ListOptions(watch=True), silence=SILENCE):
            handle = source._client._line._handle
            assert handle is not None
            seen = {
                handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
            }

    assert {1, 30, 60_000} == seen
