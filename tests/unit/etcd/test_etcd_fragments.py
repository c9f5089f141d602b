"""Invariants tested: FRAGMENT1 and FRAGMENT2, and pages that lead nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from shmcache._hot import EtcdAnswers
from shmcache.etcd.errors import EtcdError
from shmcache.etcd.operations import Operations
from shmcache.protocol.options import ListOptions
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.etcd import fragments, messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.answers import WatchAnswer, revision_of
from shmcache.source.etcd.connection import EtcdConnection
from shmcache.source.etcd.fragments import Fragments
from shmcache.source.etcd.keys import EtcdResource, KeyPattern
from shmcache.source.etcd.source import EtcdSource

Answer = messages.WATCH.response
READER = EtcdAnswers([(b"/a/", None)])


def answer(*revisions: int, fragment: bool = False) -> WatchAnswer:
    events = [{"kv": {"key": b"/a/x", "mod_revision": revision}} for revision in revisions]
    message = Answer(events=events, fragment=fragment).SerializeToString()
    return WatchAnswer._make(READER.read(message))


def revisions(parts: Fragments, *answers: WatchAnswer) -> list[tuple[list[int], int]]:
    found = [parts.whole(one, 1) for one in answers]
    return [([revision_of(event) for event in events], upto) for events, upto in found]


def test_a_revision_leaves_when_its_last_event_has_come() -> None:
    parts = Fragments("etcd")
    found = revisions(
        parts,
        answer(3, 4, 4, fragment=True),
        answer(),  # progress
        answer(4, 4, fragment=True),
        answer(5, fragment=True),
        answer(5, 6),
        answer(7),
    )
    assert found == [
        ([3], 3), ([], 0), ([], 0), ([4, 4, 4, 4], 4), ([5, 5, 6], 6), ([7], 7),
    ]  # fmt: skip
    assert not parts


def test_parts_of_a_revision_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "HELD_BYTES", 10_000)
    parts, one = Fragments("etcd"), answer(*[3] * 50, fragment=True)
    with pytest.raises(SourceFailed, match="its objects are listed") as failed:
        for turn in range(11):
            assert parts.whole(one, 1000) == ([], 0 if turn else 2)
    assert 410 == failed.value.failure.code


@pytest.mark.parametrize("keys", [[], [b"/a"], [b"/b"], [b"/a/x", b"/0"]],
                         ids=["none", "before", "after", "backward"])  # fmt: skip
def test_a_page_without_keys_that_leads_on_is_garbage(
    keys: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do keys that are not between its start and the end of the prefix lead anywhere."""
    connection = EtcdConnection(EtcdAccess.of("http://127.0.0.1:1"))
    kvs = [{"key": key, "value": b"{}", "mod_revision": 3} for key in keys]
    nothing = messages.RANGE.response(more=True, kvs=kvs)

    def answered(method: messages.Method, *_: Any, **__: Any) -> Any:
        return method.response.FromString(nothing.SerializeToString())

    monkeypatch.setattr(connection, "call", answered)
    source = EtcdSource(connection, [EtcdResource("a", KeyPattern("/a/"))])
    with pytest.raises(SourceFailed) as failed, source.page(ListOptions()):
        pass
    assert FailureKind.GARBAGE is failed.value.failure.kind

    steps = Operations(KeyPattern("/a/"), "object", lambda _: None).page(10, "", 0)
    next(steps)
    with pytest.raises(EtcdError, match="no keys"):
        steps.send(nothing)
