"""The memory of requests that wait or whose answers go on: counted, bounded, shared fairly."""

from __future__ import annotations

import contextlib
import gc
import gzip
import random
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import Asked, Stream, pod, serving

import shmcache
from shmcache.protocol.failures import Failure
from shmcache.reader import listing
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.serve.auth.access import Access, Tokens
from shmcache.serve.auth.kept_answers import KeptAnswers, key_of
from shmcache.serve.http import weights, zipping
from shmcache.serve.http.shares import PART, Shares
from shmcache.serve.limits import Limits
from shmcache.serve.read.lists import ENOUGH
from shmcache.serve.server import Serving
from shmcache.serve.ui import objects
from shmcache.serve.ui.routes import Interface

MANY = {"pods": [pod(number, text="x" * 500) for number in range(5000)]}
HOST = b"Host: localhost\r\n"
LIST = b"GET /api/v1/pods HTTP/1.1\r\n" + HOST


@contextlib.contextmanager
def silent(asked: Asked, data: bytes) -> Iterator[socket.socket]:
    """A client that asks, and reads nothing."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", asked.serve.port))
        sock.settimeout(30)
        sock.sendall(data)
        yield sock


def until(fact: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def kept(asked: Asked) -> int:
    return asked.serve.call(lambda: asked.serve.server.kept.taken)


# ---- shares --------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 9)), max_size=60))
def test_shares_stay_within_their_bounds_and_leave_some_for_the_next_one(
    steps: list[tuple[int, int]],
) -> None:
    shares, held = Shares(40), dict.fromkeys(range(5), 0)
    for holder, amount in steps:
        if amount > 0:
            free = 40 - sum(held.values()) - amount
            fits = free >= 0 and (not held[holder] or held[holder] + amount <= PART * free)
            if fits:
                shares.take(holder, amount)
                held[holder] += amount
            else:
                with pytest.raises(Failure) as error:
                    shares.take(holder, amount)
                assert error.value.code == 429
        elif held[holder] >= -amount > 0:
            shares.give_back(holder, -amount)
            held[holder] += amount
        assert shares.taken == sum(held.values())
        assert {one: shares.held_by(one) for one in held} == held
    assert set(shares._held) == {one for one, amount in held.items() if amount}


def test_a_greedy_holder_has_three_quarters_and_another_one_finds_a_place() -> None:
    shares = Shares(64)
    for _ in range(48):
        shares.take("greedy")
    with pytest.raises(Failure):
        shares.take("greedy")
    for number in range(10):
        shares.take(number)


def test_one_user_that_waits_for_a_version_leaves_places_for_others(tmp_path: Any) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a,ann\nb,bob\n")
    serving_ = Serving(limits=Limits(connections=64), fresh_seconds=30)  # eight places
    with serving(MANY, serving_) as asked, contextlib.ExitStack() as stack:
        server = asked.serve.server
        server.access = Access(tokens=Tokens(str(tokens)))

        def wait(token: bytes, version: int = 999) -> socket.socket:
            data = (b"GET /api/v1/pods?resourceVersion=%d HTTP/1.1\r\n" % version + HOST
                    + b"Authorization: Bearer %b\r\n\r\n" % token)  # fmt: skip
            return stack.enter_context(silent(asked, data))

        anns = [wait(b"a") for _ in range(6)]
        until(lambda: server.waiting.taken == 6)
        assert wait(b"a").recv(12) == b"HTTP/1.1 429"
        assert wait(b"a", 100).recv(12) == b"HTTP/1.1 200", "the present version needs no place"
        wait(b"b")
        until(lambda: server.waiting.taken == 7)
        assert server.waiting.held_by(("user", "bob")) == 1
        for sock in anns:
            sock.close()
        until(lambda: server.waiting.taken == 1)


# ---- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [
    b"X-Long: %b\r\n" % (b"a" * 50_000), b"".join(b"X-%d: %b\r\n" % (n, b"a" * 700)
                                               for n in range(80)),
])  # fmt: skip
def test_a_long_head_is_weighed_while_its_request_waits_and_then_forgotten(more: bytes) -> None:
    with serving(MANY, Serving(fresh_seconds=60)) as asked:
        waits = LIST.replace(b"pods", b"pods?resourceVersion=500") + more + b"\r\n"
        with silent(asked, waits) as sock:
            until(lambda: kept(asked) > len(more))
            asked.apply(pod(1, version=500), "500")
            assert sock.recv(12) == b"HTTP/1.1 200"
            until(lambda: kept(asked) == 0)  # its answer goes on, without the head
            assert asked.serve.call(lambda: len(asked.serve.server.connections)) == 1


def test_requests_that_wait_beyond_the_memory_for_them_are_refused() -> None:
    limits = Limits(kept_bytes=1 << 20)
    more = b"X-Long: %b\r\n\r\n" % (b"a" * 50_000)
    waits = LIST.replace(b"pods", b"pods?resourceVersion=500") + more
    with (
        serving(MANY, Serving(limits=limits, fresh_seconds=60)) as asked,
        contextlib.ExitStack() as stack,
    ):
        socks = [stack.enter_context(silent(asked, waits)) for _ in range(20)]
        until(lambda: asked.serve.server.waiting.taken)
        refused = 0
        for sock in socks:
            sock.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                refused += sock.recv(12) == b"HTTP/1.1 429"
        assert 10 <= refused < 20
        assert kept(asked) <= limits.kept_bytes
        assert asked.get("/api/v1/namespaces/default/pods/p-0001").code == 200
        stack.close()
        until(lambda: kept(asked) == 0 and not asked.serve.server.waiting.taken)


def test_watches_with_long_selectors_are_weighed() -> None:
    values = ",".join(f"v{number}" for number in range(1200))
    with serving(MANY) as asked:
        with Stream(asked, f"labelSelector=a+in+({values})") as watch:
            assert watch.response.status == 200
            assert kept(asked) > 100 * 1200
        until(lambda: kept(asked) == 0)
        with Stream(asked, "labelSelector=a%3Db&fieldSelector=spec.nodeName%3Dnode-1") as watch:
            assert watch.response.status == 200
            assert kept(asked) == 0  # usual ones cost nothing


TABLE = b"Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"


@pytest.mark.parametrize(("query", "accept"), [
    ("", b""), ("?pretty=1", b"Accept-Encoding: gzip\r\n"), ("", TABLE),
    ("?labelSelector=app+in+(a,b)", b""), ("?resourceVersion=2400&resourceVersionMatch=Exact", b""),
])  # fmt: skip
def test_unread_lists_keep_pieces_only_where_there_is_room(query: str, accept: bytes) -> None:
    """Python's memory of twenty of them: what is counted, and little more."""
    import tracemalloc

    pods = [
        pod(n, text=random.Random(n).randbytes(240).hex(), app="ab"[n % 2]) for n in range(2000)
    ]
    resources = [shmcache.Resource("pods", {"app": "metadata.labels.app"})]
    limits = Limits(held_bytes=1 << 20)
    with (
        serving(
            {"pods": pods}, Serving(limits=limits), resources=resources, version="2000"
        ) as asked,
        contextlib.ExitStack() as stack,
    ):
        for number in range(500):
            asked.apply(pod(number, version=2001 + number, text="new", app="a"), str(2001 + number))
        asked.names("/api/v1/pods?limit=1")
        line = b"GET /api/v1/pods%b HTTP/1.1\r\n" % query.encode() + HOST + accept + b"\r\n"
        server = asked.serve.server
        server._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        before = server.stats.requests
        tracemalloc.start()
        try:
            for _ in range(20):
                stack.enter_context(silent(asked, line))
            until(lambda: server.stats.requests == before + 20)
            current, _ = asked.serve.call(tracemalloc.get_traced_memory)
        finally:
            tracemalloc.stop()
        assert asked.serve.call(lambda: server.holding.total)
        taken = limits.held_bytes // 2 + 2 * ENOUGH + kept(asked)
        assert current < taken + 20 * (64 << 10)


# ---- lists that no single walk shows -------------------------------------------------------------


def test_lists_that_are_merged_are_those_of_one_walk() -> None:
    """Several values of an index, an exact version, both with limits and pages."""
    pods = [pod(n, app="abcde"[n % 5], two="xy"[n % 2]) for n in range(400)]
    resources = [shmcache.Resource("pods", {"app": "metadata.labels.app"})]
    with serving({"pods": pods}, resources=resources) as asked:
        everything = asked.names("/api/v1/pods")
        wanted = [name for n, name in enumerate(everything) if n % 5 in {0, 3, 4} and n % 2 == 0]
        query = "labelSelector=app+in+(a,d,e),two%3Dx"
        assert asked.names(f"/api/v1/pods?{query}") == wanted
        assert pages(asked, f"{query}&limit=7") == wanted

        version = 100
        for number in range(0, 400, 3):
            version += 1
            if number % 2:
                asked.delete(f"default/p-{number:04}", str(version))
            else:
                asked.apply(pod(number, version=version, app="z"), str(version))
        asked.apply(pod(999, version=version + 1), str(version + 1))
        exact = "resourceVersion=100&resourceVersionMatch=Exact"
        assert asked.names(f"/api/v1/pods?{exact}") == everything
        assert asked.names(f"/api/v1/pods?{exact}&{query}") == wanted
        first = f"/api/v1/pods?{exact}&limit=150"
        assert asked.names(first) == everything[:150]
        token = asked.get(first).json["metadata"]["continue"]
        asked.serve.call(asked.serve.server.past.clear)  # as another process: it undoes the changes
        assert asked.names(f"/api/v1/pods?limit=400&continue={token}") == everything[150:]


def pages(asked: Asked, query: str) -> list[str]:
    found: list[str] = []
    more = ""
    while True:
        answer = asked.get(f"/api/v1/pods?{query}{more}").json
        found += [item["metadata"]["name"] for item in answer["items"]]
        if "continue" not in answer["metadata"]:
            return found
        more = f"&continue={answer['metadata']['continue']}"


# ---- answers that are kept for long --------------------------------------------------------------


def test_kept_answers_are_bounded_in_number_and_bytes_whatever_was_asked() -> None:
    now = [0.0]
    answers = KeptAnswers(100, 50_000, lambda: now[0])
    keys = [key_of("may", "u" * 20_000, number) for number in range(300)]
    assert len({*keys}) == 300
    assert {len(key) for key in keys} == {20}
    for key in keys:
        answers.keep(key, True, 10.0)
    assert len(answers) == 100
    assert answers.get(keys[0]) is None
    assert answers.get(keys[-1]) == (True,)
    for number, key in enumerate(keys):
        answers.keep(key, "g" * (number * 10), 10.0)
    assert len(answers) < 50
    assert answers.bytes <= 50_000
    now[0] = 11.0
    assert answers.get(keys[-1]) is None
    for key in keys:
        answers.drop(key)
    assert answers.bytes == 0


@given(st.lists(st.binary(max_size=3000), max_size=6))
def test_pieces_that_are_compressed_alone_are_one_gzip_member(some: list[bytes]) -> None:
    made = list(zipping.pieces(iter(some)))

    assert gzip.decompress(b"".join(made)) == b"".join(some)
    assert len(made) == len(some) + 1


def _filled(make: Callable[[int], str]) -> str:
    """As many terms as a selector may have."""
    terms: list[str] = []
    while sum(map(len, terms)) + len(terms) < 8000:
        terms.append(make(len(terms)))
    return ",".join(terms)


COMPILED: dict[str, tuple[type[LabelSelector | FieldSelector], Callable[[int], str]]] = {
    "unequal": (LabelSelector, lambda n: f"a!={n:x}"),
    "equal": (LabelSelector, lambda n: f"a{n:x}=b"),
    "exists": (LabelSelector, lambda n: f"a{n:x}"),
    "exists not": (LabelSelector, lambda n: f"!a{n:x}"),
    "greater": (LabelSelector, lambda n: f"a>{n}"),
    "in": (LabelSelector, lambda n: f"a in (b{n:x})"),
    "in several": (LabelSelector, lambda n: f"a in (b{n:x},c{n:x},d)"),
    "a field": (FieldSelector, lambda n: f"a={n:x}"),
    "a field with nothing": (FieldSelector, lambda n: f"a{n:x}="),
    "a name": (FieldSelector, lambda n: f"metadata.name!={n:x}"),
    "a long path": (FieldSelector, lambda n: f"a.b.c.d.e.f.g.h={n:x}"),
}


@pytest.mark.parametrize("case", COMPILED)
def test_compiled_selectors_take_no_more_than_they_weigh(case: str) -> None:
    """Measured: terms are tuples, sets and functions, many times the size of their text."""
    kind, make = COMPILED[case]
    text = _filled(make)
    kind.parse(text)  # made once
    gc.collect()
    tracemalloc.start()
    try:
        selector = kind.parse(text)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken > 100_000, "nothing was measured"
    assert taken <= weights.weight_of_selectors(selector) < 4 * taken


def test_estimates_rise_with_what_they_estimate() -> None:
    def weight(text: str) -> int:
        return weights.weight_of_selectors(LabelSelector.parse(text))

    assert weights.weight_of_selectors(None, None) == 0
    assert 0 < weights.weight_of_selectors(shard="x") < weights.FREE
    assert weight("a=b") < weights.FREE
    assert weight("a in (b,c)") > weight("a in (bcd)")


SOCKET = (
    b"GET /api/v1/pods?watch=1 HTTP/1.1\r\n" + HOST
    + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://localhost\r\n\r\n"
)  # fmt: skip


def test_frames_that_wait_for_a_backlog_are_counted() -> None:
    """Those that came with the handshake, or in the same record of TLS as others."""
    pings = b"\x89\x84maskabcd" * 4000
    with serving(MANY) as asked, silent(asked, LIST + b"\r\n") as sock:
        server = asked.serve.server

        def state() -> tuple[bool, int, int]:
            [one] = server.connections
            return one.busy, one.backlog, one.received

        until(lambda: asked.serve.call(state)[1] > 0)
        while asked.serve.call(state)[0]:
            sock.recv(20_000)  # all is sent, and the buffers of the kernel are full
        sock.sendall(SOCKET)
        until(lambda: asked.serve.call(state)[1] > 0)

        def come() -> None:
            [one] = server.connections
            assert one.on_data is not None
            one.on_data(pings)

        asked.serve.call(come)
        assert asked.serve.call(state)[2] == len(pings)


def test_large_selections_are_not_kept_for_later() -> None:
    """Clients choose them, and hundreds are remembered."""
    small, large = "a=b,c in (d,e)", _filled(lambda n: f"a!={n:x}")
    assert listing.selection(None, small, None, None) is listing.selection(None, small, None, None)
    before = len(listing._compiled)
    for number in range(5):
        assert listing.selection(None, f"{large},z{number}", None, None).large
    assert len(listing._compiled) == before
    with serving(MANY) as asked:
        pods = asked.cache["pods"]
        assert len(pods.list(labels=large)) == len(MANY["pods"])
        assert not pods._ways


# ---- the page ------------------------------------------------------------------------------------


def test_the_selector_of_an_open_page_is_weighed() -> None:
    text = _filled(lambda n: f"a!={n:x}")
    page = b"GET /ui/stream?labels=%b HTTP/1.1\r\n" % text.encode() + HOST + b"\r\n"
    with serving(MANY) as asked:
        asked.serve.call(lambda: setattr(asked.serve.server, "page", Interface(asked.serve.server)))
        with silent(asked, page) as sock:
            assert sock.recv(12) == b"HTTP/1.1 200"
            until(lambda: kept(asked) > 500_000)
        until(lambda: kept(asked) == 0)
        longer = page.replace(b"labels=", b"labels=" + b"a" * 400 + b",")
        with silent(asked, longer) as sock:
            assert sock.recv(12) == b"HTTP/1.1 400"


def test_histories_are_made_one_after_another() -> None:
    """However many ask at once: what is made waits for its client before the next one is begun."""
    ask = b"GET /ui/object?resource=pods&key=default/p-0001 HTTP/1.1\r\n" + HOST + b"\r\n"
    most = [0]
    now = [0]
    real = objects.with_history

    async def counted(*arguments: Any) -> Any:
        now[0] += 1
        most[0] = max(most[0], now[0])
        try:
            return await real(*arguments)
        finally:
            now[0] -= 1

    with serving(MANY) as asked, contextlib.ExitStack() as stack:
        server = asked.serve.server
        asked.serve.call(lambda: setattr(server, "page", Interface(server)))
        for version in range(200, 250):
            asked.apply(pod(1, version=version), str(version))
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(objects, "with_history", counted)
        socks = [stack.enter_context(silent(asked, ask)) for _ in range(30)]
        assert [sock.recv(12) for sock in socks] == [b"HTTP/1.1 200"] * 30
        until(lambda: server.waiting.taken == 0)
        assert most == [1]
        gone = [stack.enter_context(silent(asked, ask)) for _ in range(10)]
        for sock in gone:
            sock.close()
        assert asked.get("/ui/object?resource=pods&key=default/p-0001").code == 200
