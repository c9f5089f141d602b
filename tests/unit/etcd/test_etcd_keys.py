"""Invariants tested: KEYS1, KEYS2: a pattern gives each key of etcd a key of its own, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmcache.errors import SourceError
from shmcache.source.etcd.keys import KeyPattern, covering, end_of, parent_of

SEGMENT = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1)


@pytest.mark.parametrize(
    ("pattern", "raw", "key", "names"),
    [
        ("/r/widgets/", b"/r/widgets/ns/a", "ns/a", ("ns", "a")),
        ("/r/widgets/", b"/r/widgets/a", "a", ("", "a")),
        ("/conf/", b"/conf/a/b/c", "a/b/c", ("", "a/b/c")),
        ("/conf/", b"/conf/", None, None),
        ("/s/{namespace}/{name}", b"/s/ns/a", "ns/a", ("ns", "a")),
        ("/s/{namespace}/{name}", b"/s/ns/a/b", None, None),
        ("/s/{name}/{namespace}/config", b"/s/a/ns/config", "ns/a", ("ns", "a")),
        ("/s/{name}/{namespace}/config", b"/s/a/ns/other", None, None),
        ("/s/{namespace}/{name*}", b"/s/ns/a/b", "ns/a/b", ("ns", "a/b")),
        ("/s/{name*}", b"/s/ns/a/b", "ns/a/b", ("", "ns/a/b")),
        ("/s/", b"/s/\xff", None, None),
        ("/s/{name}.json", b"/s/axjson", None, None),
    ],
)
def test_keys(pattern: str, raw: bytes, key: str | None, names: tuple[str, str] | None) -> None:
    found = KeyPattern(pattern)

    assert found.key_of(raw) == key
    if key is not None:
        assert found.names_of(key) == names
        assert found.raw_key_of(key) == raw


@pytest.mark.parametrize(
    "pattern", ["", "/a/{other}", "/a/{name}/{name}", "/a/{namespace}", "/a/{name*}/b", "/{}"]
)
def test_a_pattern_that_cannot_work_is_refused(pattern: str) -> None:
    with pytest.raises(SourceError, match="pattern"):
        KeyPattern(pattern)


@given(st.sampled_from(["/a/{namespace}/{name}", "/a/{name}/x/{namespace}"]), SEGMENT, SEGMENT)
def test_keys_come_back(pattern: str, namespace: str, name: str) -> None:
    found = KeyPattern(pattern)
    key = f"{namespace}/{name}"

    assert found.key_of(found.raw_key_of(key)) == key


def test_a_key_that_the_pattern_cannot_have_has_no_raw_key() -> None:
    with pytest.raises(ValueError, match="not a key"):
        KeyPattern("/a/{namespace}/{name}").raw_key_of("alone")


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"/a/", b"/a0"), (b"a\xff", b"b"), (b"\xff", b"\0"), (b"", b"\0")],
)
def test_the_end_of_a_prefix(prefix: bytes, end: bytes) -> None:
    assert end_of(prefix) == end


def test_several_prefixes_are_covered_by_one_range() -> None:
    patterns = [KeyPattern("/r/x/widgets/"), KeyPattern("/r/x/gadgets/{name}")]

    assert covering(patterns) == (b"/r/x/gadgets/", b"/r/x/widgets0")
    assert parent_of(patterns[0]) == parent_of(patterns[1]) == b"/r/x"
