"""Invariant tested: selectors mean the same in C, which tests blocks of the arena before any object
is made, and in Python, which tests dicts and views, whatever JSON is at the selected places.

SEED= repeats a run, SHMCACHE_EXAMPLES= requests more examples.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import SEED
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import shmcache
from shmcache import Resource
from shmcache.handlers.delivered import KnownResources
from shmcache.handlers.feed import ADD, Feed
from shmcache.protocol.selectors.fields import escape
from shmcache.reader.selectors import FieldSelector, LabelSelector
from shmcache.reader.sharding import bounds, shard_hash, uid_of

EXAMPLES = int(os.environ.get("SHMCACHE_EXAMPLES") or 40)

ODD: list[Any] = [
    None, True, False, 0, 7, -(2**60), 2**63, 0.5, 1e300, "", "web", "7", "a rather long text",
    [], {}, [None], ["web"], [["web"]], [{}], [{"app": "web"}], {"app": "web"}, {"app": None},
    {"app": 7}, {"app": ["web"]}, {"app": {"app": "web"}}, {"get": "web", "items": "web"},
    {"a rather long label": "and its value"}, {"labels": {"app": "web"}}, {"uid": "u-1"},
]  # fmt: skip
LABELS = [
    "app", "!app", "app=web", "app!=web", "app in (web,x)", "app notin (web)", "app>6", "app<8",
    "app=", "app!=", "get=web",
]  # fmt: skip
FIELDS = [
    "metadata", "metadata.labels", "metadata.labels.app", "metadata.uid", "spec", "spec.app",
    "spec[*].app", "spec[*]", "spec[*][*]", "metadata.labels[*].app", "status.app.app",
]  # fmt: skip
WANTED = ["web", "", "7", "true", "app=web", "0.5", "get=web"]

values = st.recursive(
    st.sampled_from(ODD),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["app", "labels", "uid", "metadata", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
metadata = values | st.fixed_dictionaries({}, optional={"labels": values, "uid": values})
objects = st.fixed_dictionaries(
    {}, optional={"metadata": metadata, "spec": values, "status": values}
)


def shapes() -> Iterator[Any]:
    """Each odd value at each place."""
    for odd in ODD:
        yield from ({"metadata": odd}, {"spec": odd}, {"status": {"app": odd}})
        yield from ({"metadata": {"labels": odd}}, {"metadata": {"uid": odd}})
        yield {"metadata": {"labels": {"app": odd}}}


def computed(_: Any) -> list[str]:
    return ["web", "app=web"]


@pytest.fixture
def writer(name: str) -> Iterator[shmcache.Writer]:
    indices: dict[str, Any] = {"label": "metadata.labels", "uid": "metadata.uid"}
    indices |= {"spec": "spec[*].app", "computed": computed}
    resources: list[Resource | str] = ["plain", Resource("indexed", indices)]
    with shmcache.Writer(name, resources) as made:
        yield made


@pytest.fixture
def cache(writer: shmcache.Writer) -> Iterator[shmcache.Cache]:
    with shmcache.attach(writer.name) as attached:
        yield attached


def store(writer: shmcache.Writer, found: list[Any]) -> list[tuple[str, Any]]:
    """Each value under a key of its own, in key order, in both resources."""
    keyed = [(f"{number:05}", obj) for number, obj in enumerate(found)]
    for resource in ("plain", "indexed"):
        writer.replace(resource, [])
        writer.put_many(resource, [(key, obj, None) for key, obj in keyed])
    return keyed


def agree(cache: shmcache.Cache, keyed: list[tuple[str, Any]]) -> None:
    views = dict(cache["plain"].items())
    for text in LABELS:
        selector = LabelSelector.parse(text)
        wanted = [obj for _, obj in keyed if selector.matches(obj)]
        seen = [key for key, view in views.items() if selector.matches(view)]
        assert [key for key, obj in keyed if selector.matches(obj)] == seen, text
        for resource in ("plain", "indexed"):
            assert cache[resource].list(labels=text) == wanted, (resource, text)
    for path, text, equal in itertools.product(FIELDS, WANTED, ("=", "!=")):
        fields = FieldSelector.parse(f"{path}{equal}{escape(text)}")
        wanted = [obj for _, obj in keyed if fields.matches(obj)]
        assert [obj for key, obj in keyed if fields.matches(views[key])] == wanted, fields
        for resource in ("plain", "indexed"):
            assert cache[resource].list(fields=fields) == wanted, (resource, fields)
    for shard in ((0, 3), (1, 3), (2, 3)):
        first, last = bounds(shard)
        wanted = [obj for _, obj in keyed if first <= shard_hash(uid_of(obj)) <= last]
        assert cache["plain"].list(shard=shard) == wanted, shard


def test_each_odd_value_at_each_place(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    agree(cache, store(writer, list(shapes())))


@seed(SEED)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(found=st.lists(objects, min_size=1, max_size=30))
def test_random_values(writer: shmcache.Writer, cache: shmcache.Cache, found: list[Any]) -> None:
    agree(cache, store(writer, found))


@pytest.mark.parametrize("text", ["app=web", "!app"])
def test_a_registration_survives_each_odd_value(
    writer: shmcache.Writer, cache: shmcache.Cache, text: str
) -> None:
    selector = LabelSelector.parse(text)
    keyed = store(writer, list(shapes()))
    known, bit = KnownResources(cache).find("plain", by_content=True)
    for shard in (None, (0, 1)):
        feed = Feed(known, bit, match=selector.matches, shard=shard)
        got = [str(told.key) for kind, told, *_ in feed.drain() if kind == ADD]
        assert got == [key for key, obj in keyed if selector.matches(obj)]
        for key, _ in keyed:
            writer.put("plain", key, {"metadata": {"labels": {"app": "web"}}})
        for _ in feed.drain():
            pass
        feed.close()
        store(writer, [obj for _, obj in keyed])
