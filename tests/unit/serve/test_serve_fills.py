"""Newcomers of one second share a state and its bytes (FILL1 to FILL3), compressed for those who
take it."""

from __future__ import annotations

import contextlib
import http.client
import time
import zlib
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from served import Asked, pod, serving

from shmcache.protocol.relays import REACHED_HEADER
from shmcache.serve.watch import fills as module
from shmcache.serve.watch import watcher as watcher_module

COUNT = 400
PODS = [pod(n, "default", n + 1, app="a" if n % 2 else "b") for n in range(COUNT)]
NEW = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


class Newcomer:
    """A streaming list, as its events."""

    def __init__(self, asked: Asked, query: str = "", /, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", asked.serve.port, timeout=30)
        path = f"/api/v1/pods?watch=1&{NEW}&{query}"
        self._connection.request("GET", path, headers=headers)
        self.answer = self._connection.getresponse()
        self._inflate = zlib.decompressobj(31) if self.zipped else None
        self._lines = self._read()

    @property
    def zipped(self) -> bool:
        return self.answer.headers.get("Content-Encoding") == "gzip"

    def _read(self) -> Iterator[Any]:
        rest = b""
        while data := self.answer.read1(1 << 16):
            *lines, rest = (rest + self._plain(data)).split(b"\n")
            yield from map(orjson.loads, lines)

    def _plain(self, data: bytes) -> bytes:
        if self._inflate is None:
            return data
        found = b""
        while data:
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(31)
            found += self._inflate.decompress(data)
            data = self._inflate.unused_data
        return found

    def first(self) -> tuple[list[str], str]:
        """The names of the first objects, and the version of their end."""
        names: list[str] = []
        for event in self._lines:
            if event["type"] == "BOOKMARK":
                return names, event["object"]["metadata"]["resourceVersion"]
            assert event["type"] == "ADDED"
            names.append(event["object"]["metadata"]["name"])
        raise AssertionError("it ended")

    def next(self) -> tuple[str, str]:
        event = next(self._lines)
        return event["type"], event["object"]["metadata"]["resourceVersion"]

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each page that was made."""
    pages: list[int] = []
    make = watcher_module.Watcher._make_page

    def counted(self: Any) -> Any:
        pages.append(1)
        return make(self)

    monkeypatch.setattr(watcher_module.Watcher, "_make_page", counted)
    return pages


def newcomers(stack: contextlib.ExitStack, asked: Asked, count: int, **headers: str) -> list[Any]:
    found = []
    for _ in range(count):
        one = Newcomer(asked, **headers)
        stack.callback(one.close)
        found.append(one)
    return found


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_newcomers_of_a_second_share_the_pages(
    made: list[int], monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr(module, "SECONDS", 60.0)
    with serving({"pods": PODS}) as asked, contextlib.ExitStack() as stack:
        [alone] = newcomers(stack, asked, 1, **{"Accept-Encoding": encoding})
        wanted = alone.first()
        pages = len(made)
        others = newcomers(stack, asked, 20, **{"Accept-Encoding": encoding})

        assert [one.first() for one in others] == [wanted] * 20
        assert alone.zipped == (encoding == "gzip")
        assert len(wanted[0]) == COUNT
        assert len(made) == pages


def test_they_go_on_with_the_changes_since_the_shared_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FILL1: nothing is missing between the state and the watch, and nothing comes twice."""
    monkeypatch.setattr(module, "SECONDS", 60.0)
    with serving({"pods": PODS}, version="1000") as asked, contextlib.ExitStack() as stack:
        [first] = newcomers(stack, asked, 1)
        assert first.first()[1] == "1000"
        for version in range(1001, 1041):
            asked.apply(pod(version % COUNT, "default", version), str(version))
        late = newcomers(stack, asked, 3, **{"Accept-Encoding": "gzip"})
        for one in (*late, first):
            if one is not first:
                assert one.first()[1] == "1000"
            assert [one.next()[1] for _ in range(40)] == [str(n) for n in range(1001, 1041)]


@pytest.mark.parametrize("slots", [16, 65536])
def test_no_newcomer_begins_before_a_gap(monkeypatch: pytest.MonkeyPatch, slots: int) -> None:
    """FILL4: neither where the ring says RELIST alone, nor where it has each change of the list."""
    monkeypatch.setattr(module, "SECONDS", 60.0)
    with (
        serving({"pods": PODS[:50]}, version="1000", ring_slots=slots) as asked,
        contextlib.ExitStack() as stack,
    ):
        [first] = newcomers(stack, asked, 1)
        assert first.first()[1] == "1000"
        listed = [pod(n, "default", 1100 + n) for n in range(40)]
        asked.writer.replace("pods", listed, version="1200")
        assert first.next()[0] in {"MODIFIED", "DELETED"}  # the server has seen the list

        [late] = newcomers(stack, asked, 1)

        assert late.first() == ([one["metadata"]["name"] for one in listed], "1200")


@pytest.mark.parametrize("how", ["version", "header", "strict"])
def test_a_newcomer_that_needs_a_later_state_gets_it(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of its request, or that it has reached, or "the most recent one" where that is
    confirmed."""
    monkeypatch.setattr(module, "SECONDS", 60.0)
    with contextlib.ExitStack() as stack:
        asked = stack.enter_context(serving({"pods": PODS}, version="1000"))
        assert newcomers(stack, asked, 1)[0].first()[1] == "1000"
        asked.apply(pod(7, "default", 1001), "1001")
        query = "resourceVersion=1001" if how == "version" else ""
        headers = {REACHED_HEADER: "1001"} if how == "header" else {}
        if how == "strict":
            asked.serve.server.consistency.mode = "bounded"
        one = Newcomer(asked, query, **headers)
        stack.callback(one.close)
        assert one.first()[1] == "1001"


def test_kept_pages_are_bounded_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """FILL2, FILL3: with room for two pages every newcomer still gets everything."""
    monkeypatch.setattr(module, "BYTES", 80_000)
    monkeypatch.setattr(module, "SECONDS", 0.3)
    with serving({"pods": PODS}) as asked, contextlib.ExitStack() as stack:
        found = [one.first() for one in newcomers(stack, asked, 5)]
        [(_, channel)] = asked.serve.server.watches._channels.values()
        assert all(len(names) == COUNT for names, _ in found)
        assert asked.serve.call(lambda: channel.fills._bytes) <= 80_000
        end = time.monotonic() + 60
        while asked.serve.call(lambda: len(channel.fills)):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_selections_and_forms_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 60.0)
    with serving({"pods": PODS}) as asked, contextlib.ExitStack() as stack:
        whole = Newcomer(asked)
        half = Newcomer(asked, "labelSelector=app%3Da")
        table = Newcomer(asked, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        for one in (whole, half, table):
            stack.callback(one.close)
        assert len(whole.first()[0]) == COUNT
        assert len(half.first()[0]) == COUNT // 2
        assert next(table._lines)["object"]["kind"] == "Table"
