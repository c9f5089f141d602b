"""Invariants tested: VALUES1 to VALUES3: objects have etcd's metadata, and are never guessed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmcache.source.etcd.values import RefusedValue, object_text

KV = SimpleNamespace(mod_revision=12, create_revision=7, version=3)
NAMES = ("ns", 'a"b')
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metadata", "kind", "apiVersion", "a", ""]), inner)
    ),
    max_leaves=8,
)


def made(value: bytes, form: str = "object", *, revisions: bool = False) -> Any:
    return orjson.loads(object_text(value, form, NAMES, KV, revisions=revisions))


def test_a_kubernetes_object_gets_its_version_and_nothing_else() -> None:
    obj = {"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"x": 1}}

    found = made(json.dumps(obj).encode())

    assert found.pop("metadata") == {"name": "a", "resourceVersion": "12"}
    assert found == {key: obj[key] for key in ("apiVersion", "kind", "spec")}


def test_revisions_are_added_on_request() -> None:
    value = b'{"kind":"W","apiVersion":"v1","metadata":{}}'

    found = made(value, revisions=True)["metadata"]
    assert found == {"resourceVersion": "12", "createRevision": "7", "version": 3}


@pytest.mark.parametrize(
    "value",
    [
        b'{"spec":{"metadata":{"name":"x"}},"apiVersion":"v1","kind":"W","metadata":{"name":"a"}}',
        b'{"apiVersion":"v1","kind":"W","metadata":{"resourceVersion":"3","name":"a"}}',
        b' { "kind" : "W" , "apiVersion" : "v1" , "metadata" : { "name" : "a" } } ',
        b'{"kind":"W","metadata":{"name":"a"},"apiVersion":"v1"}',
        rb'{"apiVersion":"v1","kind":"W","metadata":{"name":"a","resource\u0056ersion":"3"}}',
    ],
)
def test_the_version_is_etcds_however_the_value_is_laid_out(value: bytes) -> None:
    found = made(value)

    assert found["metadata"] == {"name": "a", "resourceVersion": "12"}
    assert found.get("spec", {}) == json.loads(value).get("spec", {})


def test_any_other_object_gets_what_etcd_knows() -> None:
    whole = {
        "name": 'a"b', "namespace": "ns", "resourceVersion": "12", "createRevision": "7",
        "uid": "7", "version": 3,
    }  # fmt: skip

    assert made(b'{"size":1}') == {"metadata": whole, "size": 1}
    assert made(b" {} ") == {"metadata": whole}
    assert made(b'{"metadata":{"name":"own"}}') == {"metadata": whole | {"name": "own"}}


@pytest.mark.parametrize(
    ("form", "value", "found"),
    [
        ("json", b"[1,2]", [1, 2]),
        ("json", b'{"a":1}', {"a": 1}),
        ("text", b'a"b', 'a"b'),
        ("bytes", b"\0\xff", "AP8="),
        ("text", b"", ""),
    ],
)
def test_declared_values(form: str, value: bytes, found: object) -> None:
    obj = made(value, form)

    assert obj["value"] == found
    assert obj["metadata"]["resourceVersion"] == "12"


@pytest.mark.parametrize(
    ("form", "value", "why"),
    [
        ("object", b"k8s\0\n\x1a", "--storage-media-type=application/json"),
        ("object", b"k8s:enc:aescbc:v1:key1:...", "encrypted"),
        ("object", b"[1]", "not a JSON object"),
        ("object", b"plain", "not a JSON object"),
        ("object", b'{"metadata":3}', "metadata is not an object"),
        ("json", b"{", "not JSON"),
        ("text", b"\xff", 'value = "bytes"'),
    ],
)
def test_a_value_that_cannot_be_an_object_is_refused_with_advice(
    form: str, value: bytes, why: str
) -> None:
    with pytest.raises(RefusedValue, match=why):
        made(value, form)


@settings(max_examples=50, deadline=None)
@given(JSON)
def test_every_json_value_is_an_object_with_its_version_or_is_refused(value: Any) -> None:
    text = json.dumps(value).encode()
    try:
        found = made(text)
    except RefusedValue:
        assert not isinstance(value, dict) or not isinstance(value.get("metadata", {}), dict)
        return
    assert found["metadata"]["resourceVersion"] == "12"
    assert {key: found[key] for key in value if key != "metadata"} == {
        key: part for key, part in value.items() if key != "metadata"
    }
