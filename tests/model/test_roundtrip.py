"""Invariant tested: whatever orjson decodes comes back exactly, by every way out of the cache, or
is refused with a clear error (G3).

SEED= repeats a run, SHMCACHE_EXAMPLES= requests more examples. Recorded answers of a real API
server are read from the directory SHMCACHE_TRACES, or tests/conformance/traces.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
import os
import pickle
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from conftest import SEED
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

import shmcache
from shmcache import ListView, View
from shmcache.errors import LimitExceeded, UnsupportedValue

EXAMPLES = int(os.environ.get("SHMCACHE_EXAMPLES") or 40)
TRACES = Path(
    os.environ.get("SHMCACHE_TRACES")
    or Path(__file__).resolve().parent.parent / "conformance" / "traces"
)
PAGES = sorted(TRACES.glob("a-list-pods-limit500-page*.body.gz"))

hypothesis = settings(
    max_examples=EXAMPLES * 5,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

Roundtrip = Callable[[Any], Any]


def exact(value: Any) -> Any:
    """Distinguishes values that == does not: types, the bits of doubles, the order of keys."""
    if isinstance(value, (dict, View)):
        return ["dict", *((key, exact(value[key])) for key in value)]
    if isinstance(value, (list, ListView)):
        return ["list", *map(exact, value)]
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    assert value is None or type(value) in {str, int, bool}
    return type(value).__name__, value


def plain(value: Any) -> bool:
    """Whether it contains no view."""
    if type(value) is dict:
        return all(map(plain, value.values()))
    return all(map(plain, value)) if type(value) is list else True


def check_ways_out(stored: Any, obj: Any) -> None:
    """Every way out of the cache returns the stored value."""
    wanted = exact(obj)
    assert wanted == exact(stored)  # by iteration and subscription
    copied = stored.to_dict()
    assert plain(copied)
    assert wanted == exact(copied)
    dumped = orjson.dumps(obj)
    assert dumped == stored.json()
    assert wanted == exact(orjson.loads(stored.json()))
    assert dumped == orjson.dumps(stored, default=shmcache.default)
    assert stored == obj
    assert obj == stored
    assert not stored != obj
    unpickled = pickle.loads(pickle.dumps(stored))  # noqa: S301 - our own
    assert plain(unpickled)
    assert wanted == exact(unpickled)
    assert wanted == exact(copy.deepcopy(stored))
    assert list(obj.items()) == list(stored.items())
    assert len(obj) == len(stored)
    assert list(reversed(obj)) == list(reversed(stored))


@pytest.fixture
def store(name: str) -> Iterator[Roundtrip]:
    """Puts objects and gets them by another handle; other values are put into an object."""
    with shmcache.Writer(name, ["things"], arena_max="2GiB") as writer, shmcache.attach(name) as at:

        def put_and_get(obj: Any) -> Any:
            writer.put("things", "a", obj)
            return at["things"]["a"]

        yield put_and_get
        writer.check()


@pytest.fixture
def roundtrip(store: Roundtrip) -> Callable[[Any], None]:
    return lambda obj: check_ways_out(store(obj), obj)


# ---- generated ----------------------------------------------------------------------------------

EDGES = sorted({
    sign * (2**power) + more
    for power in (0, 7, 8, 31, 32, 52, 53, 59, 60, 61, 62, 63, 64)
    for sign in (1, -1)
    for more in (-2, -1, 0, 1, 2)
    if -(2**63) <= sign * (2**power) + more < 2**64
})  # fmt: skip
DOUBLES = [
    0.0, -0.0, 5e-324, -5e-324, 2.2250738585072009e-308, 2.2250738585072014e-308,
    1.7976931348623157e308, -1.7976931348623157e308, 0.1, 1 / 3, 1.0, -1.0, 1e15, 1e16, 1e21, 1e22,
    1e-5, 1e-7, 123456789.0, 2.0**53, 2.0**53 + 2, 2.0**60, 2.0**63, 2.0**64, -(2.0**63), math.pi,
]  # fmt: skip

# The edges of planes and of lengths in UTF-8, characters to escape, combining ones.
CHARACTERS = (
    '\0\x01\x1f\x20"\\/\x7f\x80\x9f\xa0\xff\u0100\u07ff\u0800\u2028\u2029\ud7ff\ue000\ufdd0\ufeff'
    "\ufffd\ufffe\uffffe\u0301\u200d\u202e🏳️‍🌈"
    + "".join(chr(plane << 16 | low) for plane in range(1, 17) for low in (0, 1, 0xFFFD, 0xFFFF))
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(
    st.sampled_from(CHARACTERS), max_size=20
)
doubles = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(DOUBLES)
integers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from(EDGES)
scalars = st.none() | st.booleans() | integers | doubles | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=6),
    max_leaves=40,
)


@seed(SEED)
@hypothesis
@given(obj=st.dictionaries(texts, values, max_size=8))
@example(obj={})
@example(obj={"": ""})
@example(obj={"": {"": {"": []}}, "a": [[], [[]], {}]})
@example(obj={"one": 1, "float": 1.0, "true": True, "zero": 0, "false": False, "-0": -0.0})
def test_values_that_orjson_decodes_come_back_exactly(
    roundtrip: Callable[[Any], None], obj: Any
) -> None:
    decoded = orjson.loads(orjson.dumps(obj))
    assert exact(obj) == exact(decoded)
    roundtrip(decoded)


def changed(value: Any, numbers: random.Random) -> Any:
    """The same with one place changed, so that most of it is shared with the stored value."""
    value = copy.copy(value)
    if isinstance(value, dict) and value:
        key = numbers.choice(list(value))
        if numbers.random() < 0.2:  # another order of the same keys
            value[key] = value.pop(key)
        else:
            value[key] = changed(value[key], numbers)
        return value
    if isinstance(value, list) and value:
        place = numbers.randrange(len(value))
        value[place] = changed(value[place], numbers)
        return value
    return numbers.choice([1, 1.0, True, 0, 0.0, -0.0, False, None, "", "1", [], {}])


@seed(SEED)
@hypothesis
@given(
    obj=st.dictionaries(texts, values, min_size=1, max_size=6),
    numbers=st.randoms(use_true_random=False),
)
def test_an_object_next_to_nearly_equal_ones_comes_back_exactly(
    roundtrip: Callable[[Any], None], obj: Any, numbers: random.Random
) -> None:
    """Equal parts are stored once; 1, 1.0 and True are not equal parts."""
    for _ in range(4):
        roundtrip(obj)
        obj = changed(obj, numbers)


# ---- numbers ------------------------------------------------------------------------------------


def test_integers_at_every_edge(roundtrip: Callable[[Any], None]) -> None:
    assert {2**60, 2**60 - 1, -(2**60), -(2**60) - 1, 2**63, 2**64 - 1, -(2**63)} <= {*EDGES}
    roundtrip({"all": EDGES, **{str(number): number for number in EDGES}})


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30], ids=["2**64", "-2**63-1", "1e30"])
def test_an_integer_beyond_the_range_of_orjson_is_refused(store: Roundtrip, number: int) -> None:
    with pytest.raises((LimitExceeded, UnsupportedValue), match=r"at \['x'\]"):
        store({"x": number})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_doubles_without_json_are_refused_or_exact(store: Roundtrip, number: float) -> None:
    """orjson never decodes them; whichever way they come, no other value may be read."""
    try:
        stored = store({"x": number})
    except (UnsupportedValue, ValueError) as error:
        assert "['x']" in str(error)
    else:
        assert exact(number) == exact(stored["x"])


def test_doubles_bit_for_bit(roundtrip: Callable[[Any], None], rng: random.Random) -> None:
    bits = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(5000)]
    around = [math.nextafter(each, way) for each in DOUBLES for way in (math.inf, -math.inf)]
    finite = [each for each in bits + around + DOUBLES if math.isfinite(each)]
    roundtrip({"all": finite, "one by one": {str(n): each for n, each in enumerate(finite)}})


def test_one_and_one_point_zero_and_true_in_any_order(store: Roundtrip) -> None:
    for first in (1, 1.0, True):
        for second in (1, 1.0, True):
            pair = {"x": [first, second], "y": {"a": first}, "z": {"a": second}}
            check_ways_out(store(pair), pair)


# ---- texts --------------------------------------------------------------------------------------


def test_every_plane_of_unicode(roundtrip: Callable[[Any], None]) -> None:
    planes = []
    for plane in range(17):
        points = range(plane << 16, (plane + 1) << 16, 1 if plane == 0 else 251)
        planes.append("".join(chr(at) for at in points if not 0xD800 <= at < 0xE000))
    roundtrip({"planes": planes, **{text[:9]: n for n, text in enumerate(planes)}})


def test_each_character_alone_and_at_each_border(roundtrip: Callable[[Any], None]) -> None:
    """Short strings are stored in the word itself: their borders in bytes, for each width."""
    found = [
        before + character * count + after
        for character in sorted(set(CHARACTERS))
        for count in range(1, 4)
        for before in ("", "a", "aaaa")
        for after in ("", "b")
    ]
    roundtrip({"all": found, **{text: number for number, text in enumerate(found)}})


@pytest.mark.parametrize("character", ["a", "é", "€", "𝄞", "\0", '"', "\u2028"], ids=ascii)
def test_texts_of_every_length(roundtrip: Callable[[Any], None], character: str) -> None:
    lengths = [*range(21), *(2**n + more for n in range(5, 17) for more in (-1, 0, 1))]
    roundtrip({"all": [character * length for length in lengths]})


@pytest.mark.slow
@pytest.mark.parametrize("character", ["a", "€", "𝄞"], ids=ascii)
def test_a_text_of_ten_megabytes(store: Roundtrip, character: str) -> None:
    long = {"x": character * (10_000_000 // len(character.encode())) + "!"}
    stored = store(long)
    assert long == stored.to_dict()
    assert long == pickle.loads(pickle.dumps(stored))  # noqa: S301 - our own
    assert stored == long
    assert orjson.dumps(long) == stored.json()


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\ud83d\ude00"], ids=ascii)
def test_a_lone_surrogate_is_refused(store: Roundtrip, text: str) -> None:
    objects: list[Any] = [{"x": text}, {text: 1}, {"x": [{text: []}]}]
    for refused in objects:
        with pytest.raises((UnsupportedValue, ValueError)):
            store(refused)


# ---- keys and shapes ----------------------------------------------------------------------------


def test_the_order_of_keys_is_kept(roundtrip: Callable[[Any], None], rng: random.Random) -> None:
    keys = [f"key-{n}" for n in range(50)]
    for _ in range(30):
        rng.shuffle(keys)
        some = keys[: rng.randrange(1, len(keys))]
        roundtrip({"a": dict.fromkeys(some, 1), "b": dict.fromkeys(reversed(some), 1)})


def test_keys_that_look_alike_are_kept_apart(roundtrip: Callable[[Any], None]) -> None:
    """Composed and not, cases, zeros, prefixes of one another."""
    keys = [
        "é",
        "e\u0301",
        "É",
        "a",
        "a\0",
        "a\0\0",
        "",
        "\0",
        " ",
        "ab",
        "abc",
        "x" * 500,
        "x" * 501,
    ]
    roundtrip({key: {other: n for n, other in enumerate(keys)} for key in keys})


def test_the_last_of_a_repeated_key_counts_as_for_orjson(
    roundtrip: Callable[[Any], None],
) -> None:
    decoded = orjson.loads(b'{"a": 1, "b": 2, "a": {"c": 1, "c": 2}}')
    assert {"a": {"c": 2}, "b": 2} == decoded
    roundtrip(decoded)


@pytest.mark.slow
@pytest.mark.parametrize("count", [255, 256, 257, 5000, 70_000])
def test_wide_objects(roundtrip: Callable[[Any], None], count: int) -> None:
    roundtrip({"wide": {f"k{n}": n for n in range(count)}, "first": 1})


@pytest.mark.slow
def test_many_different_keys_come_and_go(store: Roundtrip, rng: random.Random) -> None:
    """Annotations: shapes that are used once."""
    for _ in range(300):
        obj = {"metadata": {"annotations": {f"{rng.getrandbits(64):x}": "x" for _ in range(40)}}}
        stored = store(obj)
        assert exact(obj) == exact(stored)
        assert orjson.dumps(obj) == stored.json()


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 2, 127, 128, 129, 100_000])
def test_long_arrays(roundtrip: Callable[[Any], None], count: int) -> None:
    roundtrip(
        {"x": list(range(count)), "y": [[]] * count, "z": [{"a": n % 3} for n in range(count)]}
    )


# ---- depth --------------------------------------------------------------------------------------


def nested(depth: int, kind: str) -> Any:
    """An object whose containers are `depth` levels deep, itself the first."""
    value: Any = 1
    for level in range(depth - 1):
        value = {"x": value} if kind == "dict" or (kind == "both" and level % 2) else [value]
    return {"x": value}


def depth_limit() -> int:
    """The depth that orjson decodes."""
    low, high = 1, 5000
    while high - low > 1:
        middle = (low + high) // 2
        try:
            orjson.loads(b"[" * middle + b"]" * middle)
        except orjson.JSONDecodeError:
            high = middle
        else:
            low = middle
    return low


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dict", "list", "both"])
def test_every_depth_that_orjson_decodes(store: Roundtrip, kind: str) -> None:
    """By the ways that do not recurse in Python, which would end there."""
    limit = depth_limit()
    assert limit == 1024
    for depth in [1, 2, 3, 30, 100, 250, *range(limit - 3, limit + 1)]:
        obj = nested(depth, kind)
        stored = store(obj)
        text = json_of(depth, kind)
        assert text == stored.json()
        copied, level = stored.to_dict(), 0
        while isinstance(copied, dict | list):
            copied, level = copied["x"] if isinstance(copied, dict) else copied[0], level + 1
        assert (1, depth) == (copied, level)
        level, view = 0, stored
        while isinstance(view, View | ListView):
            view, level = view["x"] if isinstance(view, View) else view[0], level + 1
        assert (1, depth) == (view, level)


def json_of(depth: int, kind: str) -> bytes:
    """Written by hand: orjson cannot dump as deep as it decodes."""
    opening, closing = b'{"x":', b"}"
    for level in reversed(range(depth - 1)):
        is_dict = kind == "dict" or (kind == "both" and level % 2)
        opening += b'{"x":' if is_dict else b"["
        closing = (b"}" if is_dict else b"]") + closing
    return opening + b"1" + closing


@pytest.mark.parametrize("kind", ["dict", "list", "both"])
@pytest.mark.parametrize("depth", [1025, 1026, 2000, 200_000])
def test_a_deeper_object_hits_a_clear_limit(store: Roundtrip, kind: str, depth: int) -> None:
    store({"x": "before"})
    obj = nested(depth, kind)

    with pytest.raises(LimitExceeded, match="1024 levels"):
        store(obj)

    while obj:  # or freeing it recurses deeply
        obj = obj.pop("x") if isinstance(obj, dict) else obj.pop()
        if not isinstance(obj, dict | list):
            break


def test_an_object_in_itself_hits_a_clear_limit(store: Roundtrip) -> None:
    loop: dict[str, Any] = {}
    loop["x"] = [loop]
    with pytest.raises(LimitExceeded):
        store(loop)


# ---- the real thing -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not PAGES, reason=f"no recorded pods in {TRACES} (SHMCACHE_TRACES names them)")
def test_recorded_pods_come_back_exactly(name: str) -> None:
    seen = 0
    with shmcache.Writer(name, ["pods"]) as writer, shmcache.attach(name) as cache:
        for page in PAGES:
            answer = orjson.loads(gzip.decompress(page.read_bytes()))
            writer.apply("pods", answer["items"])
            writer.put("pods", page.name, {**answer, "items": answer["items"][:50]})
            check_ways_out(cache["pods"][page.name], {**answer, "items": answer["items"][:50]})
            for pod in answer["items"]:
                metadata = pod["metadata"]
                stored = cache["pods"][f"{metadata['namespace']}/{metadata['name']}"]
                assert orjson.dumps(pod) == stored.json()
                assert exact(pod) == exact(stored.to_dict())
                assert pod == stored
                assert json.loads(json.dumps(stored, default=shmcache.default)) == pod
            seen += len(answer["items"])
        assert len(cache["pods"]) == seen + len(PAGES)
        assert seen >= 500
        writer.check()
