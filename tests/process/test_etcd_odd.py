"""Invariants tested: KEYS1, KEYS2, VALUES1 to VALUES3, ETCDANSWER1: odd keys and values of etcd.

A list and a watch take different ways (Python; C); they must make the same of whatever is stored.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from etcds import GADGETS, WIDGETS, Following, server, until, widget

from shmcache.source.etcd import messages
from shmcache.testing.etcd import EtcdServer

KEYS = [
    b"ns/a", b"a", b"a/b/c", b"/", b"//", b"a/", b"/a", b"", b"\xff", b"ns/\xc3\x28", b"\0",
    b"ns/\0", b"a b", b'q"uote', b"back\\slash", b"..", b"ns/..", "ns/\u00e9".encode(),
    "ns/e\u0301".encode(), "\U0001f600".encode(), b"\xed\xa0\x80", b"x" * 1000,
    b"x" * 200 + b"/" + b"y" * 200, b"\n", b"%2F", b"\xc0\x80", b"ns/a\xef\xbf\xbd",
]  # fmt: skip
PLAIN = widget("a", x=1)
DEEP = b'{"apiVersion":"v1","kind":"W","metadata":{"name":"d"},"x":%b%b}' % (
    b"[" * 3000,
    b"]" * 3000,
)
VALUES = [
    PLAIN, b"", b"{}", b"[]", b"null", b"1", b'"text"', b"{", b"\0", b"\xff\xfe", b"k8s\0",
    b"k8s:enc:x", b"k8s", DEEP, b" " + DEEP, b'{"a":1e400}', b'{"a":NaN}',
    b'{"a":123456789012345678901234567890}', b'{"a":"\\ud800"}', b'{"a":"\xed\xa0\x80"}',
    b'{"a":1,"a":2}', b'{"metadata":null}', b'{"metadata":{"name":7}}',
    b'{"metadata":{},"metadata":{}}', PLAIN + b" ", PLAIN + b"x", PLAIN[:-1],
    PLAIN.replace(b'"name"', b'"resourceVersion":"9","name"'),
    PLAIN.replace(b'"name"', b'"resource\\u0056ersion":"9","name"'),
    PLAIN.replace(b'"spec"', b'"metadata":{"name":"z"},"spec"'),
    PLAIN.replace(b'"spec"', b'"m\\u0065tadata":{"name":"z"},"spec"'),
    PLAIN.replace(b'"spec"', b'"resourceVersion":"9","spec"'),
    PLAIN.replace(b'"kind":"Widget",', b""), PLAIN.replace(b'"Widget"', b'"Wid\\u0067et"'),
    b"\xef\xbb\xbf" + PLAIN, PLAIN.replace(b",", b" ,\t\r\n"),
    PLAIN.replace(b'"a"', b'"%b"' % (b"a" * 900_000)),
]  # fmt: skip


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServer]:
    yield from server()


@pytest.fixture(autouse=True)
def emptied(etcd: EtcdServer) -> None:
    etcd.clear()


def put(etcd: EtcdServer, key: bytes, value: bytes) -> int:
    put = messages.PutRequest(key=key, value=value)
    answer = etcd.connection.call(messages.PUTTING, put, "put", timeout=10.0, writes=True)
    return int(answer.header.revision)


def whole(following: Following, resource: str) -> dict[str, Any]:
    """Content as text, so that numbers and the order of members count, too."""
    return {key: json.dumps(view.to_dict()) for key, view in following.cache[resource].range()}


@pytest.mark.parametrize("form", ["object", "json", "text", "bytes"])
def test_list_and_watch_make_the_same_of_odd_keys_and_values(
    etcd: EtcdServer, name: str, form: str, rng: random.Random
) -> None:
    pairs = [(WIDGETS.encode() + key, PLAIN) for key in KEYS]
    pairs += [(WIDGETS.encode() + b"v/%d" % n, value) for n, value in enumerate(VALUES)]
    rng.shuffle(pairs)
    plan = {"widgets": {"keys": WIDGETS, "value": form}}
    with Following(name, etcd, plan) as watched:
        last = [put(etcd, *pair) for pair in pairs][-1]
        watched.reaches("widgets", last)
        by_watch = whole(watched, "widgets")
        assert watched.lists() == 0
        with Following(f"{name}-2", etcd, plan) as listed:
            assert whole(listed, "widgets") == by_watch
    stored = {key: rev for key, (rev, _) in raw_content(etcd).items()}
    for key, text in by_watch.items():
        version = json.loads(text)["metadata"]["resourceVersion"]
        assert version == str(stored[WIDGETS.encode() + key.encode()])
    readable = [key for key in KEYS if key and is_text(key)]
    assert {key.decode() for key in readable} <= set(by_watch)
    if form == "bytes":
        assert len(by_watch) == len(readable) + len(VALUES)


def raw_content(etcd: EtcdServer) -> dict[bytes, tuple[int, bytes]]:
    prefix = WIDGETS.encode()
    request = messages.RangeRequest(key=prefix, range_end=prefix[:-1] + b"0")
    answer = etcd.connection.call(messages.RANGE, request, "content", timeout=20.0)
    return {kv.key: (kv.mod_revision, kv.value) for kv in answer.kvs}


def is_text(key: bytes) -> bool:
    """Whether the key is one of an object; the core takes no NUL in keys."""
    if b"\0" in key:
        return False
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_an_odd_value_keeps_the_last_state_and_a_delete_ends_it(
    etcd: EtcdServer, name: str
) -> None:
    with Following(name, etcd, {"widgets": WIDGETS, "gadgets": GADGETS}) as following:
        put(etcd, f"{WIDGETS}ns/a".encode(), PLAIN)
        for value in (b"", b"\xff", DEEP[:-1]):
            put(etcd, f"{WIDGETS}ns/a".encode(), value)
        following.reaches("gadgets", etcd.put(f"{GADGETS}ns/g", widget("g")))
        assert following.content("widgets")["ns/a"]["spec"] == {"x": 1}
        etcd.delete(f"{WIDGETS}ns/a")
        until(lambda: not following.content("widgets"), "the key is gone")
        assert [kind for each, kind, *_ in following.take() if each == "widgets"] == [
            "ADDED", "DELETED",
        ]  # fmt: skip
