"""Invariant tested: ETCDANSWER1: answers of etcd are read as protobuf reads them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmcache._hot import EtcdAnswers
from shmcache.protocol.items import Item
from shmcache.source.etcd import messages
from shmcache.source.etcd.answers import RangeAnswer, WatchAnswer, WatchEvent, revision_of
from shmcache.source.etcd.keys import EtcdResource, KeyPattern
from shmcache.source.etcd.objects import Objects
from shmcache.source.etcd.values import RefusedValue, object_text

Answer, Range = messages.WATCH.response, messages.RANGE.response
PREFIXES: list[tuple[bytes, str | None]] = [
    (b"/r/widgets/special/", None),
    (b"/r/widgets/", "widgets"),
    (b"/r/texts/", None),
]
PLAIN = b'{"apiVersion":"v1","kind":"W","metadata":{"name":"a"},"spec":{"x":1}}'
NUMBERS = st.integers(0, 2**63 - 1)
WORDS = st.sampled_from(
    [
        b'"apiVersion"', b'"kind"', b'"metadata"', b'"resourceVersion"', b'"v1"', b'"a\\u0056b"',
        b'"\\n"', b":", b",", b"{", b"}", b" ", b"\n", b"1", b'"V"', b"resourceVersion", b"k8s\0",
    ]
)  # fmt: skip
VALUES = st.lists(WORDS, max_size=14).map(b"".join) | st.just(PLAIN)


def read(message: bytes) -> WatchAnswer:
    return WatchAnswer._make(EtcdAnswers(PREFIXES).read(message))


def read_range(message: bytes) -> RangeAnswer:
    return RangeAnswer._make(EtcdAnswers(PREFIXES[1:2]).read_range(message))


def event(key: bytes, value: bytes = PLAIN, **more: Any) -> dict[str, Any]:
    kind = more.pop("type", 0)
    kv = {"key": key, "value": value, "create_revision": 3, "mod_revision": 5, "version": 2}
    return {"type": kind, "kv": kv | more}


def test_every_field_comes_through() -> None:
    header = {"cluster_id": 2**64 - 1, "member_id": 2**63, "revision": 7, "raft_term": 3}
    made = Answer(
        header=header, watch_id=-1, created=True, canceled=True, compact_revision=9,
        cancel_reason="why", fragment=True,
    )  # fmt: skip

    assert read(made.SerializeToString()) == (
        2**64 - 1, 2**63, 7, 3, -1, True, True, 9, "why", True, [], b"", 0, 0,
    )  # fmt: skip


def test_plain_objects_become_items_and_all_others_events() -> None:
    events = [
        event(b"/r/widgets/ns/a", create_revision=5),
        event(b"/r/widgets/ns/a"),
        event(b"/r/widgets/ns/a", b"", type=1),
        event(b"/r/widgets/\xff"),
        event(b"/r/widgets/"),
        event(b"/r/widgets/special/x"),
        event(b"/r/texts/t", b"text"),
        event(b"/other", mod_revision=6),
        event(b"/r/widgets/ns/b", b"k8s\0"),
    ]
    found = read(Answer(events=events).SerializeToString())

    items = [each for each in found.events if isinstance(each, Item)]
    assert [(i.type, i.key, i.version, i.kind) for i in items] == [
        ("ADDED", "ns/a", "5", "widgets"),
        ("MODIFIED", "ns/a", "5", "widgets"),
        ("DELETED", "ns/a", "5", "widgets"),
    ]
    assert json.loads(items[0].raw)["metadata"] == {"name": "a", "resourceVersion": "5"}
    rest = [WatchEvent._make(each) for each in found.events if not isinstance(each, Item)]
    keys = [b"/r/widgets/\xff", b"/r/widgets/", b"/r/widgets/special/x", b"/r/texts/t"]
    assert [each.key for each in rest] == [*keys, b"/r/widgets/ns/b"]
    assert rest[3] == (0, b"/r/texts/t", 3, 5, 2, b"text")
    assert (found.last_key, found.last_revision, found.last_type) == (b"/r/widgets/ns/b", 5, 0)
    assert [revision_of(each) for each in found.events] == [5] * 8


@settings(max_examples=400, deadline=None)
@given(VALUES, NUMBERS)
def test_the_text_of_an_item_is_that_of_the_slow_way(value: bytes, revision: int) -> None:
    made = Answer(events=[event(b"/r/widgets/ns/a", value, mod_revision=revision)])
    [found] = read(made.SerializeToString()).events
    if isinstance(found, Item):
        kv = made.events[0].kv
        assert found.raw == object_text(value, "object", ("ns", "a"), kv, revisions=False)
    else:
        assert found[5] == value


@pytest.mark.parametrize(
    "value",
    [
        PLAIN,
        b'{"kind":"W","apiVersion":"v1","metadata":{}}',
        b' {\n"kind" : "W" , "apiVersion" :\t"v1" , "metadata" : { } , "V":"Version"}',
        PLAIN.replace(b'"x":1', b'"x":"resourceVersion"'[:-1] + b's"'),
    ],
)
def test_the_layout_of_kubernetes_takes_the_fast_way(value: bytes) -> None:
    [found] = read(Answer(events=[event(b"/r/widgets/a", value)]).SerializeToString()).events
    assert isinstance(found, Item)
    assert json.loads(found.raw)["metadata"]["resourceVersion"] == "5"


def test_a_range_says_where_it_ends_and_what_changed_last() -> None:
    kvs = [
        event(b"/r/widgets/ns/a", mod_revision=8)["kv"],
        event(b"/r/widgets/ns/b", b"k8s\0", mod_revision=9)["kv"],
        event(b"/r/widgets/ns/c", b"", mod_revision=9)["kv"],
        event(b"/r/other", mod_revision=2)["kv"],
    ]
    header = {"cluster_id": 2**64 - 1, "member_id": 2**63, "revision": 9, "raft_term": 3}
    found = read_range(Range(header=header, kvs=kvs, more=True, count=7).SerializeToString())

    assert found[:5] == (2**64 - 1, 2**63, 9, 3, True)
    [item, *rest] = found.events
    assert isinstance(item, Item)
    assert (item.type, item.key, item.version, item.kind) == ("LISTED", "ns/a", "8", "widgets")
    assert json.loads(item.raw)["metadata"]["resourceVersion"] == "8"
    assert rest == [
        (0, b"/r/widgets/ns/b", 3, 9, 2, b"k8s\0"),
        (0, b"/r/widgets/ns/c", 3, 9, 2, b""),
    ]
    assert (found.entries, found.size) == (4, 2 * len(PLAIN) + 4)
    assert (found.last_key, found.newest_key, found.newest_revision) == (
        b"/r/other", b"/r/widgets/ns/b", 9,
    )  # fmt: skip
    assert found.header.cluster_id == 2**64 - 1
    assert read_range(b"") == (0, 0, 0, 0, False, [], 0, 0, b"", b"", 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(VALUES, NUMBERS), max_size=4))
def test_a_list_has_the_items_that_the_slow_way_makes(values: list[tuple[bytes, int]]) -> None:
    """With selectors every value is read in Python."""
    resource = EtcdResource("widgets", KeyPattern("/r/widgets/"))
    kvs = [
        event(f"/r/widgets/ns/{n}".encode(), value, mod_revision=revision)["kv"]
        for n, (value, revision) in enumerate(values)
    ]
    text = Range(kvs=kvs).SerializeToString()
    found = []
    for objects in (Objects([resource]), Objects([resource], lambda *_: True)):
        answer = objects.range_of(0).response.FromString(text)
        found.append(objects.listed(0, answer.events))
    assert found[0] == found[1]
    assert len(found[0]) == len(values)


def test_bytes_that_are_changed_or_cut_are_read_or_refused(rng: random.Random) -> None:
    """Neither a crash nor anything but ValueError."""
    whole = Answer(
        header={"revision": 300}, events=[event(b"/r/widgets/ns/a"), event(b"/r/texts/t")]
    ).SerializeToString()
    refused = 0
    for _ in range(3000):
        bent = bytearray(whole[: rng.randrange(len(whole) + 1)])
        for _ in range(rng.randrange(3)):
            if bent:
                bent[rng.randrange(len(bent))] = rng.randrange(256)
        try:
            read_range(bytes(bent))
        except ValueError:
            pass  # the fields of a range have other numbers
        try:
            found = read(bytes(bent))
        except ValueError:
            refused += 1
            continue
        for each in found.events:
            try:
                if isinstance(each, Item) and each.raw:
                    json.loads(each.raw)
            except (ValueError, RefusedValue):
                pass  # the writer refuses the text
    assert refused > 100


def test_prefixes_that_are_none_are_refused() -> None:
    for wrong in ([b"/r/"], [(b"/r/",)], [("/r/", "a")], [(b"/r/", 1)]):
        with pytest.raises(TypeError):
            EtcdAnswers(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        EtcdAnswers(PREFIXES).read("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        EtcdAnswers(PREFIXES).read_range("text")  # type: ignore[arg-type]
