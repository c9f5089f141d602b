"""Invariant tested: a request without a resourceVersion gets the server's state of now, or is
refused, or gets what is cached with a warning, as `--consistency` says (G50).
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import shmcache
from shmcache import _hot
from shmcache.engine.engine import Engine
from shmcache.engine.open_source import KubeOpener
from shmcache.engine.plans import Plan
from shmcache.engine.rate_limit import Pace
from shmcache.memory import sockets
from shmcache.protocol import failures
from shmcache.reader import asking
from shmcache.reader.asking import Confirmed
from shmcache.serve.read.consistency import Consistency, Currency
from shmcache.serve.server import Serving
from shmcache.source.access import ServerAccess
from shmcache.source.client import ApiConnection
from shmcache.testing import ApiServer
from shmcache.testing.serving import ServeThread

DEADLINE = 60.0
WATCH_LIST = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
WAYS = ["/first", "", "?watch=1", WATCH_LIST]


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "prod"}}


class Scene:
    """An API server, a reflector, and a server of its cache."""

    def __init__(self, server: ApiServer, engine: Engine, serve: ServeThread) -> None:
        self.server = server
        self.engine = engine
        self.serve = serve

    def get(self, path: str) -> tuple[int, dict[str, str], Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.serve.port, timeout=DEADLINE)
        try:
            connection.request("GET", f"/api/v1/namespaces/prod/pods{path}")
            answer = connection.getresponse()
            headers = dict(answer.getheaders())
            body = answer.readline() if "watch=1" in path else answer.read()
            return answer.status, headers, json.loads(body)
        finally:
            connection.close()

    def names(self) -> list[str]:
        _, _, found = self.get("")
        return [item["metadata"]["name"] for item in found["items"]]

    @contextlib.contextmanager
    def deaf(self) -> Iterator[None]:
        """Inside, the reflector stores no event."""
        go_on = threading.Event()
        [feed] = self.engine._kept[0].feeds
        applying = feed.parts.content.apply

        def apply(items: Any, version: str) -> None:
            go_on.wait(DEADLINE)
            applying(items, version)

        feed.parts.content.apply = apply  # type: ignore[method-assign]
        try:
            yield
        finally:
            feed.parts.content.apply = applying  # type: ignore[method-assign]
            go_on.set()


@contextlib.contextmanager
def scene(name: str, mode: str, seconds: float = 30.0) -> Iterator[Scene]:
    plan = Plan(name="pods")
    with ApiServer() as server:
        server.create("pods", pod("first"))
        opener = KubeOpener(ApiConnection(lambda: ServerAccess(url=server.url)))
        with shmcache.Writer(name, [plan.resource], arena_max="64MiB") as writer:
            engine = Engine(writer, [plan], opener, pace=Pace(100))
            engine.start()
            try:
                assert engine.ready.wait(DEADLINE)
                server.wait_for_watches(1)
                serving = Serving(consistency=mode, fresh_seconds=seconds)
                with shmcache.attach(name) as cache, ServeThread(cache, serving) as serve:
                    end = time.monotonic() + DEADLINE
                    while cache["pods"].status.state != "synced":
                        assert time.monotonic() < end
                        time.sleep(0.01)
                    yield Scene(server, engine, serve)
            finally:
                assert engine.stop()


def test_strict_answers_show_every_write_before_them(name: str) -> None:
    with scene(name, "strict") as on:
        for number in range(10):
            on.server.create("pods", pod(f"p-{number}"))
            assert 200 == on.get(f"/p-{number}")[0]
            on.server.delete("pods", f"p-{number}", "prod")
            assert 404 == on.get(f"/p-{number}")[0]
            assert ["first"] == on.names()


def test_strict_waits_for_an_event_on_its_way(name: str) -> None:
    with scene(name, "strict") as on, ThreadPoolExecutor(4) as pool:
        with on.deaf():
            on.server.create("pods", pod("late"))
            reads = [pool.submit(on.get, path) for path in ("/late", "", "?watch=1", WATCH_LIST)]
            time.sleep(0.4)
            assert not any(read.done() for read in reads)
            status, _, _ = on.get("/late?resourceVersion=0")  # the client wants any version
            assert 404 == status
        assert [200] * 4 == [read.result()[0] for read in reads]


def test_strict_refuses_and_bounded_warns_without_the_server(name: str) -> None:
    with scene(name, "strict") as on:
        on.server.go_down()
        status, _, found = on.get("")
        assert (503, "ServiceUnavailable") == (status, found["reason"])
        assert "not confirmed" in found["message"]
    with scene(name, "bounded", 0.5) as on:
        _, headers, _ = on.get("/first")
        assert "Warning" not in headers
        on.server.go_down()
        status, headers, _ = on.get("/first")
        assert (200, True) == (status, "not confirmed" in headers["Warning"])


def test_a_question_that_cannot_be_sent_is_a_refusal_and_ends(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process without descriptors refuses; the next request asks again."""
    with scene(name, "strict") as on:
        opened = sockets.opened

        def exhausted() -> socket.socket:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(sockets, "opened", exhausted)
        for _ in range(2):
            status, _, found = on.get("")
            assert (503, True) == (status, "Too many open files" in found["message"])
        monkeypatch.setattr(sockets, "opened", opened)
        assert ["first"] == on.names()


def test_bounded_waits_no_longer_than_its_bound(name: str) -> None:
    with scene(name, "bounded", 0.5) as on, on.deaf():
        on.server.create("pods", pod("late"))
        status, headers, _ = on.get("/late")
        assert (404, False) == (status, "not confirmed" in headers.get("Warning", ""))
        status, headers, found = on.get("")
        assert (200, True) == (status, "not confirmed" in headers["Warning"])
        assert 1 == len(found["items"])


@pytest.mark.parametrize("path", WAYS)
def test_a_state_of_another_instance_than_the_confirmed_one_is_not_shown(
    name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SERVE5: the cache has changed hands between the answer of the reflector and the read."""

    async def confirmed(self: Consistency, _: object) -> Confirmed:
        return Confirmed(self._cache.instance + 1, 0, "1", "get")

    monkeypatch.setattr(Consistency, "_confirmed", confirmed)
    with scene(name, "strict") as on:
        status, _, found = on.get(path)
        assert (503, True) == (status, "changed since" in found["message"])
    with scene(name, "bounded") as on:
        status, headers, _ = on.get(path)
        assert (200, True) == (status, "not confirmed" in headers["Warning"])


def test_a_watch_does_not_begin_with_another_state_than_it_was_allowed_to(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SERVE5: the reader moves to another instance after the head was made."""
    calls = list[int]()

    def headers(_: Currency, root: _hot.Root) -> bytes:
        calls.append(root.generation)
        if len(calls) > 1:
            raise failures.stale("the cache has changed hands", 1)
        return b""

    monkeypatch.setattr(Currency, "headers", headers)
    with scene(name, "strict") as on:
        status, _, found = on.get("?watch=1")
        assert (200, "ERROR", 503) == (status, found["type"], found["object"]["code"])


def test_a_question_is_asked_again_until_this_process_shows_the_answer(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may move to the next instance later than the reflector, or earlier."""
    with scene(name, "strict") as on:
        real, wrong = asking.parse, [1, 2]

        def parse(data: bytes, resource: str) -> Confirmed:
            found = real(data, resource)
            if wrong:
                wrong.pop()
                return Confirmed(found.instance + 1, found.generation, found.version, found.way)
            return found

        monkeypatch.setattr(asking, "parse", parse)
        assert 200 == on.get("/first")[0]
        assert not wrong


def test_cached_asks_nobody(name: str) -> None:
    with scene(name, "cached") as on:
        on.server.go_down()
        assert 200 == on.get("/first")[0]
        assert 0 == on.engine._confirmers["pods"].questions


def test_requests_at_once_share_questions(name: str) -> None:
    """SERVE3: the one under way, and those after it."""
    with scene(name, "strict") as on, ThreadPoolExecutor(32) as pool:
        assert {200} == {found[0] for found in pool.map(lambda _: on.get(""), range(128))}
        assert on.engine._confirmers["pods"].questions < 128


@pytest.mark.parametrize(("mode", "expected"), [("strict", 429), ("bounded", 200)])
def test_requests_that_wait_are_bounded(name: str, mode: str, expected: int) -> None:
    """SERVE4."""
    with scene(name, mode) as on:
        on.serve.server.consistency._most = 0
        connection = http.client.HTTPConnection("127.0.0.1", on.serve.port, timeout=DEADLINE)
        connection.request("GET", "/api/v1/pods")
        assert expected == connection.getresponse().status
        connection.close()
