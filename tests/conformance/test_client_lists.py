"""Invariant tested: a list comes item by item, whole or with a failure that tells why."""

from __future__ import annotations

import pytest
from client import list_of, source_of
from wire import Wire, answer, chunked

from shmcache.protocol.options import ListOptions
from shmcache.source.base import FailureKind

A = b'"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}'
B = b'"metadata":{"name":"b","namespace":"n","resourceVersion":"6"}}'
LIST = (
    b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"next",'
    b'"remainingItemCount":3},"items":[{' + A + b",{" + B + b"]}"
)


def test_a_listed_item_is_the_text_that_a_watch_would_send() -> None:
    with Wire(chunked(LIST)) as wire, source_of(wire.url).page(ListOptions(limit=2)) as page:
        items = [item for items in page for item in items]

        front = b'{"kind":"ConfigMap","apiVersion":"v1",'
        assert [front + text for text in (A, B)] == [item.raw for item in items]
        assert [("n/a", "5"), ("n/b", "6")] == [(item.key, item.version) for item in items]
        assert ("7", "next", 3) == (
            page.meta.version,
            page.meta.continue_token,
            page.meta.remaining,
        )
    assert wire.path() == "/api/v1/configmaps?limit=2"


def test_pages_come_over_one_connection() -> None:
    with Wire(answer(LIST), chunked(LIST)) as wire:
        source = source_of(wire.url)
        for _ in range(2):
            with source.page(ListOptions()) as page:
                assert 2 == sum(len(items) for items in page)
    assert wire.connections == 1


@pytest.mark.parametrize("framed", [answer(LIST), chunked(LIST[:90], LIST[90:])])
def test_a_list_cut_anywhere_ends_early(framed: bytes) -> None:
    for end in range(len(framed) - 1):
        with Wire(lambda sock, end=end: sock.sendall(framed[:end])) as wire:  # type: ignore[misc]
            failure = list_of(source_of(wire.url)).failure
        assert failure is not None
        assert failure.kind is FailureKind.ENDED
