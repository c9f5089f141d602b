"""Invariant tested: events, items and chunks come out the same wherever the input is cut."""

from __future__ import annotations

import pytest
from reference_frames import Chunks, Frames, ItemScanner

from shmcache.protocol.items import GARBAGE, LISTED, Item

POD = (
    b'{"kind":"Pod","spec":{"resourceVersion":"9","metadata":{"name":"no"}},'
    b'"apiVersion":"v1","metadata":{"annotations":{"resourceVersion":"8","uid":"no"},'
    b'"name":"a","namespace":"b","resourceVersion":"7","uid":"u"}}'
)


def test_an_event_is_found_by_structure() -> None:
    frames = Frames()
    line = b'{"object":' + POD + b',"type":"ADDED"}\n'
    assert [] == frames.feed(line[:-1])
    assert len(line) - 1 == frames.pending
    assert [Item("ADDED", "b/a", "7", "u", "Pod", "v1", POD)] == frames.feed(b"\n")
    assert frames.pending == 0


@pytest.mark.parametrize(
    "line", [b"x", b"{", b"[]", b'{"type":"ADDED"}', b'{"type":1,"object":{}}']
)
def test_what_is_no_event_is_garbage(line: bytes) -> None:
    assert [Item(GARBAGE, "", None, None, None, None, line)] == Frames().feed(line + b"\n\n")


def test_items_come_while_the_list_streams() -> None:
    body = (
        b'{"kind":"PodList","items":[' + POD + b', {"metadata":{"name":"c"}}],"metadata":{"a":1}}'
    )
    for step in range(1, len(body)):
        scanner = ItemScanner(kind="Pod", api_version="v1")
        items = [
            each for at in range(0, len(body), step) for each in scanner.feed(body[at : at + step])
        ]
        second = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"c"}}'
        assert [
            Item(LISTED, "b/a", "7", "u", "Pod", "v1", POD),
            Item(LISTED, "c", None, None, "Pod", "v1", second),
        ] == items
        assert b'{"kind":"PodList","items":[],"metadata":{"a":1}}' == scanner.finish()


@pytest.mark.parametrize(
    "body", [b"", b"x", b"[]", b"{}", b'{"items":[', b'{"items":{}}', b'{"items":[]}x']
)
def test_what_is_no_list_is_refused(body: bytes) -> None:
    scanner = ItemScanner()
    with pytest.raises(ValueError):
        scanner.feed(body)
        scanner.finish()


def test_chunks_lose_their_framing() -> None:
    body = b"3\r\nabc\r\n0A ;x=y\r\n0123456789\r\n0\r\nT: 1\r\n\r\nnext"
    for step in range(1, len(body)):
        chunks = Chunks()
        parts = [chunks.feed(body[at : at + step]) for at in range(0, len(body), step)]
        assert b"abc0123456789" == b"".join(parts)
        assert chunks.done
        assert b"next" == chunks.unused


@pytest.mark.parametrize(
    "body", [b"x\r\n", b"\r\n", b"3\r\nabcd", b"3\n", b"3\rabc", b"-3\r\n", b"0\r\nx\n"]
)
def test_what_is_no_framing_is_refused(body: bytes) -> None:
    chunks = Chunks()
    with pytest.raises(ValueError):
        for at in range(len(body)):
            chunks.feed(body[at : at + 1])
