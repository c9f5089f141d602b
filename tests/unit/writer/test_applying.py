"""Invariant tested: an item of a list or a watch changes exactly its own object, and one that
cannot be stored changes nothing and stops no other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

import shmcache
from shmcache import Cache, Writer
from shmcache.errors import CacheFull
from shmcache.protocol.items import Item
from shmcache.settings import Resource


def zone(obj: Any) -> str:
    return str(obj["spec"]["nodeName"])[:1]


WAYS = {
    "text": Resource("pods", {"node": "spec.nodeName"}),
    "dicts": Resource("pods", {"node": "spec.nodeName", "zone": zone}),
}


@pytest.fixture(params=WAYS)
def writer(name: str, request: pytest.FixtureRequest) -> Iterator[Writer]:
    """Both ways in: from text, and by a dict if a function needs one."""
    with Writer(name, [WAYS[request.param]]) as writer:
        yield writer
        writer.check()


@pytest.fixture
def cache(writer: Writer) -> Iterator[Cache]:
    with shmcache.attach(writer.name) as cache:
        yield cache


def pod(name: str, node: str = "n1", version: str = "1") -> dict[str, Any]:
    metadata = {"namespace": "prod", "name": name, "resourceVersion": version, "uid": "u" + name}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"nodeName": node}}


def item(obj: dict[str, Any] | bytes, kind: str = "MODIFIED", key: str = "") -> Item:
    raw = obj if isinstance(obj, bytes) else orjson.dumps(obj)
    metadata = {} if isinstance(obj, bytes) else obj["metadata"]
    key = key or f"{metadata['namespace']}/{metadata['name']}"
    return Item(kind, key, metadata.get("resourceVersion"), None, None, None, raw)


def content(cache: Cache) -> dict[str, Any]:
    return {key: view.to_dict() for key, view in cache["pods"].items()}


def test_items_are_one_generation(writer: Writer, cache: Cache) -> None:
    writer.apply_items("pods", [item(pod("gone"))])
    before = cache["pods"].generation
    events = [
        item(pod("a"), "ADDED"),
        item(pod("b"), "LISTED"),
        item(pod("a", "n2", "2")),
        item(pod("gone"), "DELETED"),
        item(pod("never"), "DELETED"),
    ]
    assert writer.apply_items("pods", events, version="77") == 4
    assert cache["pods"].generation == before + 1
    assert content(cache) == {"prod/a": pod("a", "n2", "2"), "prod/b": pod("b")}
    assert cache["pods"].version == "77"
    assert [view["metadata"]["name"] for view in cache["pods"].by_index("node", "n2")] == ["a"]


def test_objects_that_are_equal_by_list_and_by_watch_make_no_delta(writer: Writer) -> None:
    writer.apply_items("pods", [item(pod("a"), "LISTED")])
    head = writer.stats()["deltas"]
    spaced = orjson.dumps(pod("a"), option=orjson.OPT_INDENT_2)
    again = [item(pod("a")), item(spaced, key="prod/a")._replace(version="1")]
    assert writer.apply_items("pods", again) == 0
    assert not writer.put("pods", "prod/a", pod("a"), "1")
    assert writer.stats()["deltas"] == head


def test_items_in_a_batch_become_visible_with_it(writer: Writer, cache: Cache) -> None:
    before = cache["pods"].generation
    with writer.batch():
        writer.apply_items("pods", [item(pod("a")), item(BAD["truncated"], key="prod/x")])
        writer.apply_items("pods", [item(pod("b"))], version="3")
        assert content(cache) == {}
    assert cache["pods"].generation == before + 1
    assert [*content(cache)] == ["prod/a", "prod/b"]
    with pytest.raises(ZeroDivisionError), writer.batch():
        writer.apply_items("pods", [item(pod("a"), "DELETED")], version="4")
        raise ZeroDivisionError
    assert [*content(cache)] == ["prod/a", "prod/b"]
    assert cache["pods"].version == "3"


BAD = {
    "truncated": orjson.dumps(pod("bad"))[:-1],
    "no JSON": b"{'metadata': 1}",
    "no UTF-8": b'{"metadata":{"name":"\xff"}}',
    "no object": b"[1]",
    "too deep": b'{"x":' + b"[" * 1024 + b"]" * 1024 + b"}",
    "no number": b'{"x":1e999}',
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_object_is_refused_alone(
    writer: Writer, cache: Cache, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    writer.apply_items("pods", [item(pod("bad"))])
    events = [item(pod("a")), item(BAD[bad], key="prod/bad"), item(pod("b"))]
    with caplog.at_level(logging.ERROR):
        assert writer.apply_items("pods", events) == 2
    assert "pods: prod/bad is refused" in caplog.text
    assert writer.stats()["items_refused"] == 1
    assert content(cache) == {f"prod/{name}": pod(name) for name in ("a", "b", "bad")}


@pytest.mark.parametrize("key", ["", "prod/a\0b", "x" * 70_000])
def test_an_object_without_a_usable_name_is_refused(writer: Writer, cache: Cache, key: str) -> None:
    nameless = item(pod("x"))._replace(key=key)
    assert writer.apply_items("pods", [nameless, item(pod("a"))]) == 1
    assert writer.stats()["items_refused"] == 1
    with writer.begin_replace("pods") as staged:
        assert staged.apply_items([nameless, item(pod("a"))]) == 1
    assert [*content(cache)] == ["prod/a"]


def test_a_bookmark_is_refused_as_a_change_of_an_object(writer: Writer) -> None:
    for kind in ("BOOKMARK", "ERROR", "GARBAGE"):
        with pytest.raises(ValueError, match="not a change of an object"):
            writer.apply_items("pods", [item(pod("a")), item(pod("b"), kind)])
    assert writer.stats()["deltas"] == 0


@pytest.mark.parametrize("wrong", [None, (), ("ADDED", "a", None, None, None, None, "text")])
def test_a_value_other_than_an_item_is_an_error(name: str, wrong: Any) -> None:
    with Writer(name, ["pods"]) as writer, pytest.raises(TypeError):
        writer.apply_items("pods", [wrong])


def test_staged_items_replace_the_content(writer: Writer, cache: Cache) -> None:
    writer.apply_items("pods", [item(pod(name)) for name in ("same", "changed", "gone", "taken")])
    before = writer.stats()["deltas"]
    with writer.begin_replace("pods", "9") as staged:
        listed = [item(pod(name), "LISTED") for name in ("same", "new", "taken", "twice")]
        assert staged.apply_items(listed) == 4
        assert staged.apply_items([item(pod("changed", "n2"), "ADDED")]) == 1
        assert staged.apply_items([item(pod("taken"), "DELETED"), item(pod("twice", "n3"))]) == 2
        assert "prod/gone" in content(cache)
    names = {"same": "n1", "changed": "n2", "new": "n1", "twice": "n3"}
    assert {f"prod/{name}": pod(name, node) for name, node in names.items()} == content(cache)
    assert writer.stats()["deltas"] == before + 5
    assert cache["pods"].version == "9"


def test_a_relist_without_changes_leaves_no_trace(writer: Writer, cache: Cache) -> None:
    items = [item(pod(f"p{number}", f"n{number % 7}"), "LISTED") for number in range(1200)]
    with writer.begin_replace("pods", "1") as staged:
        staged.apply_items(items)
    generation, before = cache["pods"].generation, writer.stats()
    with writer.begin_replace("pods") as staged:
        staged.apply_items(items)
    writer.reclaim()
    after = writer.stats()
    assert cache["pods"].generation == generation
    assert after["deltas"] == before["deltas"]
    assert after["blocks"] == before["blocks"]


def test_a_refused_object_in_a_replacement_keeps_its_old_value(
    writer: Writer, cache: Cache
) -> None:
    writer.apply_items("pods", [item(pod("bad")), item(pod("gone"))])
    with writer.begin_replace("pods") as staged:
        staged.apply_items([item(BAD["truncated"], "LISTED", "prod/bad"), item(pod("a"))])
        staged.apply_items([item(BAD["truncated"], "LISTED", "prod/unknown")])
    assert content(cache) == {"prod/a": pod("a"), "prod/bad": pod("bad")}
    assert writer.stats()["items_refused"] == 2


def test_a_share_takes_only_its_own_keys(writer: Writer) -> None:
    with writer.begin_replace("pods", prefix="prod/") as staged:
        staged.apply_items([item(pod("a"))])
        with pytest.raises(ValueError, match="not under"):
            staged.apply_items([item(pod("b"))._replace(key="other/b")])


MANAGED = [{"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:x": {}}}}]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_managed_fields_are_dropped_by_default(name: str, keep: bool, way: str) -> None:
    spec = pod("a") | {"managedFields": MANAGED, "metadata2": {"managedFields": MANAGED}}
    full = spec | {
        "metadata": {"managedFields": MANAGED, **spec["metadata"], "x": {"managedFields": 1}}
    }
    full["spec"] = {"metadata": {"managedFields": MANAGED}, "nodeName": "n1"}
    kept = {key: each for key, each in full["metadata"].items() if keep or key != "managedFields"}
    resource = Resource("pods", WAYS[way].indices, keep_managed_fields=keep)
    with Writer(name, [resource]) as writer, shmcache.attach(name) as cache:
        writer.apply_items("pods", [item(full)])
        assert cache["pods"]["prod/a"].to_dict() == full | {"metadata": kept}
        writer.apply_items("pods", [item(full)])
        assert writer.stats()["deltas"] == 1


@pytest.mark.parametrize(
    "metadata",
    [
        b'{"managedFields":[]}',
        b'{"managedFields":null,"name":"a"}',
        b'{"name":"a","managedFields":"]}","managedFields":{"]":"\\"}"}}',
        b'{"manag\\u0065dFields":[{}],"name":"a"}',
        b'{"name":"a","managedField":1,"managedFieldsX":[2]}',
    ],
)
def test_managed_fields_are_found_in_every_spelling(name: str, metadata: bytes) -> None:
    for raw in (b'{"metadata":' + metadata + b',"b":1}', b'{"met\\u0061data":' + metadata + b"}"):
        wanted = orjson.loads(raw)
        wanted["metadata"].pop("managedFields", None)
        with Writer(name, ["pods"]) as writer, shmcache.attach(name) as cache:
            for _ in range(2):
                writer.apply_items("pods", [item(raw, key="a")])
                assert cache["pods"]["a"].to_dict() == wanted
            writer.check()


def test_a_full_cache_undoes_the_whole_batch(name: str) -> None:
    sizes = {"arena_max": "4MiB", "ring_slots": 1024}
    with Writer(name, ["pods"], **sizes) as writer, shmcache.attach(name) as cache:  # type: ignore[arg-type]
        writer.apply_items("pods", [item(pod("a"))])
        large = [
            item(orjson.dumps({"x": [f"{at} {number}" * 9 for at in range(500)]}), key=f"k{number}")
            for number in range(200)
        ]
        with pytest.raises(CacheFull, match="arena_max"):
            writer.apply_items("pods", large)
        assert content(cache) == {"prod/a": pod("a")}
        assert writer.apply_items("pods", [item(pod("b"))]) == 1
        writer.check()


def test_texts_of_a_writer_that_ended_leave_nothing_behind(name: str) -> None:
    for number in range(3):
        with Writer(name, ["pods"]) as writer, shmcache.attach(name) as cache:
            writer.apply_items("pods", [item(pod("a", f"n{number}"))])
            assert content(cache) == {"prod/a": pod("a", f"n{number}")}
            writer.check()
