"""Differences of JSON values, and their way back."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from shmcache.recorder.patches import DEPTH, apply, difference, same

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 31))


def _value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(8 if depth < 4 else 4)
    if kind < 4:
        return rng.choice([None, True, False, 0, 1, 1.0, 0.0, -0.0, "", "a", "b"])
    if kind < 6:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice("abcd"): _value(rng, depth + 1) for _ in range(rng.randrange(4))}


def _changed(rng: random.Random, value: Any) -> Any:
    """The value with a change somewhere in it."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(list(value))
        return {**value, name: _changed(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
    return _value(rng)


def test_a_patch_leads_from_any_value_to_any_other_patch1_patch2() -> None:
    rng = random.Random(SEED)
    for turn in range(20_000):
        old = _value(rng)
        new = _value(rng) if turn % 2 else _changed(rng, old)
        text = json.dumps(old)
        steps = json.loads(json.dumps(difference(old, new)))
        found = apply(old, steps)
        assert same(found, new), f"SEED={SEED}: {old!r} to {new!r} gives {found!r}"
        assert json.dumps(old) == text, f"SEED={SEED}: the old value has changed"
        assert (steps == []) == same(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [(1, True), (1, 1.0), (0.0, -0.0), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([1], [1.0])],
)
def test_values_that_python_calls_equal_are_different_patch1(old: Any, new: Any) -> None:
    assert old == new
    assert not same(old, new)
    assert repr(apply({"x": old}, difference({"x": old}, {"x": new}))) == repr({"x": new})


def test_one_change_in_a_large_object_is_one_short_step() -> None:
    old = {"spec": {"list": list(range(100))}, "status": {"conditions": [{"type": "Ready"}]}}
    new = json.loads(json.dumps(old))
    new["status"]["conditions"][0]["type"] = "NotReady"
    assert difference(old, new) == [[["status", "conditions", 0, "type"], "NotReady"]]


@pytest.mark.parametrize(
    ("new", "steps"),
    [
        ({"a": 1, "b": 2, "c": 3}, [[["c"], 3]]),
        ({"b": 2}, [[["a"]]]),
        ({"b": 2, "c": 3}, [[["a"]], [["c"], 3]]),
        ({"b": 2, "a": 1}, [[[], ["b", "a"], 0]]),
        ({"c": 3, "a": 1, "b": 2}, [[["c"], 3], [[], ["c", "a", "b"], 0]]),
    ],
)
def test_an_order_is_stated_only_where_it_does_not_follow(new: Any, steps: Any) -> None:
    assert difference({"a": 1, "b": 2}, new) == steps


def test_elements_inserted_in_a_list_leave_the_others_alone() -> None:
    assert difference([1, 2, 3], [1, 9, 2, 3]) == [[[], 1, 0, [9]]]
    assert difference([1, 2, 3], [1, 3]) == [[[], 1, 1, []]]


def test_a_part_deeper_than_the_limit_is_replaced_as_a_whole_patch3() -> None:
    old: Any = "old"
    new: Any = "new"
    for _ in range(2 * DEPTH):
        old, new = {"a": old}, {"a": new}
    [[path, value]] = difference(old, new)
    assert len(path) == DEPTH
    assert same(apply(old, [[path, value]]), new)


@pytest.mark.parametrize(
    "steps", [[[["x", "y"], 1]], [[["z"]]], [[[], ["b"], 0]], [[["x"], 0, 1, []]], [[[3], 1]]]
)
def test_a_patch_of_another_value_is_refused(steps: Any) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        apply({"x": 1} if steps[0][0] != [3] else [1], steps)
