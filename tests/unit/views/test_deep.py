"""Invariant: a value copies and pickles at any depth that the cache holds (1,024 levels), and no
copy of a damaged value takes more memory than its cache allows (VALUE4)."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from typing import Any

import pytest

import shmcache
from shmcache.reader.deep import DEPTH

LEVELS = 1024


def nested(levels: int, *, lists: bool) -> dict[str, Any]:
    """An object of so many levels, with an entry before and after the nested one in each."""
    value: Any = {"end": 1.0}
    for level in range(levels - 2):
        if lists and level % 2:
            value = [level, value, "after"]
        else:
            value = {"before": level, "value": value, "after": [level]}
    return {"value": value} if levels > 1 else {}


def text(value: Any) -> list[Any]:
    """Its parts in their order: these compare at any depth, where == of dicts does not."""
    parts: list[Any] = []
    left = [value]
    while left:
        part = left.pop()
        parts.append((type(part), None if isinstance(part, dict | list) else part))
        if isinstance(part, dict | list):
            entries = part.items() if isinstance(part, dict) else enumerate(part)
            parts.append(len(part))
            left.extend(each for entry in entries for each in entry)
    return parts


@pytest.fixture
def stored(name: str) -> Any:
    writer = shmcache.Writer(name, ["things"], arena_max="8MiB")
    with writer, shmcache.attach(name) as cache:

        def put(value: Any) -> Any:
            writer.put("things", "a/b", value)
            return cache["things"]["a/b"]

        yield put


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("levels", [1, DEPTH - 1, DEPTH, DEPTH + 1, 500, 900, LEVELS - 1])
def test_views_of_any_depth_pickle(stored: Any, levels: int, protocol: int) -> None:
    value = nested(levels, lists=True)
    view = stored(value)
    restored = pickle.loads(pickle.dumps(view, protocol))  # noqa: S301
    assert type(restored) is dict
    assert text(restored) == text(value)


def test_only_deep_views_need_shmcache_to_unpickle(stored: Any) -> None:
    for levels, needs in ((DEPTH, False), (DEPTH + 1, True)):
        view = stored(nested(levels, lists=False))
        assert (b"shmcache" in pickle.dumps(view)) is needs


def test_deep_lists_pickle_and_stay_as_they_are(stored: Any) -> None:
    value = {"list": [nested(LEVELS - 2, lists=True)], "same": [1, 2]}
    view = stored(value)["list"]
    first = pickle.dumps(view)
    assert text(pickle.loads(first)) == text(value["list"])  # noqa: S301
    assert pickle.dumps(view) == first
    assert text(view.to_list()) == text(value["list"])


def test_deep_views_copy_with_little_stack_left(stored: Any) -> None:
    value = nested(LEVELS, lists=True)
    view = stored(value)

    def below(levels: int) -> Any:
        return copies() if levels == 0 else below(levels - 1)

    def copies() -> tuple[Any, Any, Any]:
        return copy.deepcopy(view), view.to_dict(), pickle.loads(pickle.dumps(view))  # noqa: S301

    for copied in below(sys.getrecursionlimit() // 2):
        assert text(copied) == text(value)


def test_a_value_that_expands_without_end_is_refused(stored: Any) -> None:
    repeated = {"texts": ["x" * 1_000_000] * 250}  # a megabyte in the arena, once
    view = stored(repeated)
    for attempt in (view.to_dict, view.json, lambda: pickle.dumps(view)):
        with pytest.raises(shmcache.LimitExceeded, match="for a cache of this size"):
            attempt()
    assert view["texts"][249] == "x" * 1_000_000  # a part of it is as any value
    few = stored({"texts": ["x" * 100_000] * 20})
    assert json.loads(few.json()) == few.to_dict() == {"texts": ["x" * 100_000] * 20}


def test_containers_that_expand_without_end_are_refused(stored: Any) -> None:
    value: list[Any] = [{"a": 1}] * 1000
    view = stored({"lists": [value] * 1600})  # two containers in the arena, a million in a copy
    with pytest.raises(shmcache.LimitExceeded, match="for a cache of this size"):
        view.to_dict()
    assert len(view.json()) > 11_000_000  # its text is short
