"""Invariant tested: JSON text comes out of the cache exactly as orjson reads it, and text that
orjson refuses is refused alone, whatever value the key had before (G3).

SEED= repeats a run, SHMCACHE_EXAMPLES= requests more examples.
"""

from __future__ import annotations

import gzip
import json
import logging
import math
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from conftest import SEED
from hypothesis import example, given, seed
from hypothesis import strategies as st
from test_roundtrip import CHARACTERS, DOUBLES, EDGES, PAGES, changed, exact, hypothesis, values

import shmcache
from shmcache import _hot
from shmcache.protocol.items import Item
from shmcache.settings import Resource

Store = Callable[[bytes], Any]
REFUSED = object()


def item(raw: bytes, key: str = "a", kind: str = "MODIFIED", version: str | None = "1") -> Item:
    return Item(kind, key, version, None, None, None, raw)


@pytest.fixture
def store(name: str, caplog: pytest.LogCaptureFixture) -> Iterator[Store]:
    """Stores text under one key, and returns the value read back; REFUSED if it was."""
    caplog.set_level(logging.CRITICAL)
    things = Resource("things", keep_managed_fields=True)
    with shmcache.Writer(name, [things], arena_max="2GiB") as writer, shmcache.attach(name) as at:

        def apply(raw: bytes) -> Any:
            before = writer.stats()["items_refused"]
            stored = at["things"].get("a")
            writer.apply_items("things", [item(raw)])
            if writer.stats()["items_refused"] == before:
                return at["things"]["a"].to_dict()
            assert stored == at["things"].get("a")
            return REFUSED

        yield apply
        writer.check()


def wanted(raw: bytes) -> Any:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return REFUSED
    return found if isinstance(found, dict) else REFUSED


def check(store: Store, raw: bytes) -> Any:
    found, right = store(raw), wanted(raw)
    if right is REFUSED or found is REFUSED:
        assert (right is REFUSED) == (found is REFUSED), (raw, right, found)
    else:
        assert exact(right) == exact(found)
    return right


# ---- text of any shape ---------------------------------------------------------------------------


def spell(value: Any, numbers: random.Random) -> str:
    """One of the many texts for a value."""

    def space() -> str:
        return numbers.choice(["", "", "", " ", "\n\t", "  \r"])

    if isinstance(value, dict):
        members = [f"{spell(k, numbers)}{space()}:{spell(v, numbers)}" for k, v in value.items()]
        if members and numbers.random() < 0.1:
            members.insert(0, numbers.choice(members))
            members.append(f"{spell(numbers.choice(list(value)), numbers)}:1")
        text = "{" + space() + ",".join(members) + "}"
    elif isinstance(value, list):
        text = "[" + space() + ",".join(spell(each, numbers) for each in value) + "]"
    elif isinstance(value, str):
        text = '"' + "".join(spell_character(each, numbers) for each in value) + '"'
    elif isinstance(value, float):
        text = numbers.choice([repr(value), f"{value:.17g}", f"{value:.20e}", f"{value:.25g}"])
    else:
        text = json.dumps(value)
    return space() + text + space()


def spell_character(character: str, numbers: random.Random) -> str:
    code = ord(character)
    if numbers.random() < 0.1 and character in '"\\/\b\f\n\r\t':
        return {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(
            character, "\\" + character
        )
    if code >= 0x20 and character not in '"\\' and numbers.random() < 0.9:
        return character
    halves = [code] if code < 0x10000 else [0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF)]
    return "".join(f"\\u{half:04x}" if code % 2 else f"\\u{half:04X}" for half in halves)


randoms = st.randoms(use_true_random=False)
objects = st.dictionaries(st.text(st.sampled_from('abé"\\\n'), max_size=10), values, max_size=8)


@seed(SEED)
@hypothesis
@given(obj=objects, numbers=randoms)
def test_every_spelling_is_read_as_orjson_reads_it(
    store: Store, obj: Any, numbers: random.Random
) -> None:
    """Next to the version before, which is nearly the same, and next to something else."""
    for _ in range(4):
        check(store, spell(obj, numbers).encode())
        obj = changed(obj, numbers)


BYTES = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"e", b"\x00", b"\x1f",
         b" ", b"\\u", b"\\ud800", b"\xff", b"\xed\xa0\x80", b"\xc3", b"true", b"null", b"nan",
         b"\xef\xbb\xbf", b"1e400", b"1e-400", b"\x80", b"\xf4\x90\x80\x80", b"\x7f"]  # fmt: skip


@seed(SEED)
@hypothesis
@given(obj=objects, numbers=randoms)
def test_text_that_orjson_refuses_is_refused_and_changes_nothing(
    store: Store, obj: Any, numbers: random.Random
) -> None:
    for _ in range(8):
        text = bytearray(spell(obj, numbers).encode())
        for _ in range(numbers.randrange(1, 3)):
            place = numbers.randrange(len(text) + 1)
            match numbers.randrange(4):
                case 0:
                    del text[place:]
                case 1:
                    del text[place : place + 1]
                case 2:
                    text[place:place] = numbers.choice(BYTES)
                case _:
                    text[place : place + 1] = numbers.choice(BYTES)
        check(store, bytes(text))


@seed(SEED)
@hypothesis
@given(text=st.lists(st.sampled_from([*BYTES, b'"a":', b'{"a":1', b"12", b'"x"']), max_size=12))
@example(text=[])
def test_any_bytes_are_read_or_refused_as_orjson_does(store: Store, text: list[bytes]) -> None:
    for raw in (b"".join(text), b'{"a":' + b"".join(text) + b"}", b'{"a":"' + b"".join(text)):
        check(store, raw)


@seed(SEED)
@hypothesis
@given(body=st.binary(max_size=40))
def test_strings_are_utf8_or_refused(store: Store, body: bytes) -> None:
    check(store, b'{"a":"' + body + b'"}')
    check(store, b'{"' + body + b'":"0123456789abcdef' + body + b'"}')


# ---- numbers -------------------------------------------------------------------------------------


def check_numbers(store: Store, texts: list[str]) -> None:
    """All together, and if they are refused, one by one."""
    if check(store, ('{"all":[' + ",".join(texts) + "]}").encode()) is REFUSED:
        for text in texts:
            check(store, f'{{"x":{text}}}'.encode())


def test_numbers_at_every_edge(store: Store) -> None:
    check_numbers(store, [str(number) for number in EDGES])
    beyond = [-(2**63) - 1, 2**64, 2**64 + 1, 10**19, 10**20, 10**22, 10**23, 10**40, 10**308]
    check_numbers(store, [str(number) for number in beyond])
    check_numbers(store, ["-0", "0", "-0.0", "0.0", "0e5", "-0e-5", "0e99999999999999999999"])
    check_numbers(store, [repr(each) for each in DOUBLES])
    check_numbers(store, [f"{each:.400f}" for each in DOUBLES])
    check_numbers(store, ["1e-999", "1e-99999999999999999999", "4.9e-324", "2.4e-324", "2.5e-324"])
    for text in (
        "1e309",
        "1e99999999999999999999",
        "1" * 310,
        "1.8e308",
        "-1e309",
        "1" + "0" * 309,
    ):
        assert check(store, f'{{"x":{text}}}'.encode()) is REFUSED
    check_numbers(store, ["1" + "0" * 308, "0." + "0" * 400 + "1e400", "1" + "0" * 400 + "e-400"])
    check_numbers(store, ["1.7976931348623157e308", "1.7976931348623158e308"])
    assert check(store, b'{"x":1.7976931348623159e308}') is REFUSED


@pytest.mark.parametrize(
    "text", ["01", "-01", "00", "1.", ".5", "+1", "-", "1e", "1e+", "1.e5", "0x1", "1_0", "1,",
             "- 1", "1 2", "NaN", "-Infinity", "Infinity", "1e5.5", "--1", "1.5.5", "١"],
)  # fmt: skip
def test_an_invalid_number_is_refused(store: Store, text: str) -> None:
    assert check(store, f'{{"x":{text}}}'.encode()) is REFUSED


def test_doubles_bit_for_bit_in_any_spelling(store: Store, rng: random.Random) -> None:
    bits = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(4000)]
    finite = [each for each in bits if math.isfinite(each)]
    for spelled in ("{!r}", "{:.17g}", "{:.16e}", "{:.20e}", "{:.40e}"):
        check_numbers(store, [spelled.format(each) for each in finite])
    check_numbers(store, [f"{rng.uniform(-1e6, 1e6):.{rng.randrange(20)}f}" for _ in range(4000)])
    check_numbers(store, [f"{rng.randrange(10 ** rng.randrange(1, 30))}" for _ in range(4000)])
    digits = [str(rng.randrange(1, 10 ** rng.randrange(1, 25))) for _ in range(4000)]
    check_numbers(store, [f"{each}e{rng.randrange(-320, 280)}" for each in digits])


def halfway(value: float) -> str:
    """Exactly between a double and the next one, in all its digits."""
    numerator, denominator = value.as_integer_ratio()
    after, below = math.nextafter(value, math.inf).as_integer_ratio()
    top, bottom = numerator * below + after * denominator, 2 * denominator * below
    shift = bottom.bit_length() - 1
    assert bottom == 1 << shift
    return f"{top * 5**shift}e-{shift}"


def test_halfway_between_two_doubles_and_a_hair_off(store: Store, rng: random.Random) -> None:
    """The even one; the upper one if any later digit, however far, is not 0.

    orjson does not see all of more than 768 digits; there the nearest double is right, as Python's
    own conversion finds it.
    """
    some = [5e-324, 2.2250738585072014e-308, 1.0, 9007199254740993.0, 1e22, 1e23, 0.1, 1e300]
    some += [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(200)]
    texts = []
    for value in some:
        if math.isfinite(value) and math.isfinite(math.nextafter(value, math.inf)):
            mantissa, exponent = halfway(value).split("e")
            texts += [f"{mantissa}e{exponent}", f"{mantissa}.{'0' * 900}1e{exponent}"]
            texts += [f"{int(mantissa) - 1}e{exponent}", f"{int(mantissa) + 1}e{exponent}"]
    found = store(('{"all":[' + ",".join(texts) + "]}").encode())
    assert exact([float(text) for text in texts]) == exact(found["all"])
    check_numbers(store, [text for text in texts if len(text) < 700])


# ---- texts, keys, depth --------------------------------------------------------------------------


WRONG_ESCAPES = [
    *("\\ud800", "\\udc00", "\\ud800x", "\\ud800\\u0041", "\\ud800\\ud800\\udc00", "\\x", "\\u12"),
    *("\\u12g4", "\\U0041", "\\", "\\'", "\\" + "\n", "\n", "\x00", "\x1f"),
]


def test_escapes_and_surrogates(store: Store) -> None:
    for text in (
        '\\"\\\\\\/\\b\\f\\n\\r\\t',
        "\\u0000",
        "\\u00e9\\u20AC",
        "\\ud83d\\ude00",
        "\\u007F",
    ):
        assert (
            check(store, f'{{"{text}":"{text}","long {text}":"{text} long"}}'.encode())
            is not REFUSED
        )
    for text in WRONG_ESCAPES:
        for raw in (f'{{"a":"{text}"}}', f'{{"{text}":1}}', f'{{"a":"0123456789{text}"}}'):
            assert check(store, raw.encode()) is REFUSED


def test_strings_of_every_length_next_to_others_of_the_same(store: Store) -> None:
    """Strings are compared in words of eight bytes, or sixteen: a difference is found at each
    place."""
    for length in [*range(40), 63, 64, 65, 127, 128, 129]:
        text = "x" * length
        check(store, f'{{"a":"{text}","{text}":1}}'.encode())
        for place in range(length):
            other = text[:place] + "y" + text[place + 1 :]
            check(store, f'{{"a":"{other}","{other}":1}}'.encode())
            check(store, f'{{"a":"{text[:place]}","{text[:place]}":1}}'.encode())
            check(store, f'{{"a":"{other}\\"","{other}\\"":1}}'.encode())


@pytest.mark.parametrize("inner", ['"', "\\", "\x01", "é", "\x7f"], ids=ascii)
def test_an_escaped_text_is_not_taken_for_the_stored_one(store: Store, inner: str) -> None:
    """The stored bytes and the text's may be equal with different meanings."""
    for padding in ("", "abc", "0123456789abcdef"):
        text = padding + inner + padding
        raw = orjson.dumps({text: text})
        assert check(store, raw) == {text: text}
        assert check(store, raw) == {text: text}
        check(store, f'{{"{text}":"{text}"}}'.encode())


def test_a_repeated_key_keeps_its_first_place_and_its_last_value(store: Store) -> None:
    for raw in (
        b'{"a":1,"b":2,"a":3}',
        b'{"a":1,"b":2}',
        b'{"a":1,"b":2,"b":3,"a":4}',
        b'{"a":1,"a":1}',
        b'{"a":1,"b":1,"\\u0061":2,"c":[{"c":1,"c":2}]}',
    ):
        check(store, raw)
    many = [f'"key{n % 700}":{n}' for n in range(2000)]
    check(store, ("{" + ",".join(many) + "}").encode())


@pytest.mark.slow
@pytest.mark.parametrize("count", [15, 16, 17, 18, 5000, 70_000])
def test_wide_objects(store: Store, count: int) -> None:
    wide = {f"k{n}": n for n in range(count)}
    check(store, orjson.dumps(wide))
    check(store, orjson.dumps(wide | {"k1": 0}))
    check(store, orjson.dumps(wide)[:-1] + b',"k0":-1}')


@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
@pytest.mark.parametrize("inside", ["1", "[]", "{}"])
def test_depth_is_that_of_orjson(store: Store, brackets: tuple[str, str], inside: str) -> None:
    opening, closing = brackets
    step = opening.count("[") + opening.count("{")
    for depth in (1, 100, 1020, 1021, 1022, 1023, 1024, 1025, 5000):
        count = depth // step
        check_same_refusal(store, f'{{"x":{opening * count}{inside}{closing * count}}}'.encode())


def check_same_refusal(store: Store, raw: bytes) -> None:
    """For values too deep to be compared by recursion."""
    right, found = wanted(raw), store(raw)
    assert (right is REFUSED) == (found is REFUSED)
    while isinstance(right, dict | list) and right:
        assert type(right) is type(found)
        assert len(right) == len(found) == 1
        right, found = (
            [*each.values()] if isinstance(each, dict) else each for each in (right, found)
        )
        right, found = right[0], found[0]
    assert right is REFUSED or exact(right) == exact(found)


def test_every_plane_of_unicode(store: Store) -> None:
    for plane in range(17):
        points = range(plane << 16, (plane + 1) << 16, 1 if plane == 0 else 251)
        text = "".join(chr(at) for at in points if not 0xD800 <= at < 0xE000)
        check(store, orjson.dumps({"plane": text, text[:50]: plane}))
        check(store, json.dumps({"plane": text, text[:50]: plane}).encode())
    check(store, orjson.dumps(dict.fromkeys(CHARACTERS, CHARACTERS)))


# ---- answers of a real server --------------------------------------------------------------------


def test_recorded_pods_come_out_as_orjson_reads_them(name: str) -> None:
    assert PAGES, "recorded pages are needed"
    with shmcache.Writer(name, ["pods"]) as writer, shmcache.attach(name) as cache:
        for page in PAGES:
            scanner = _hot.ItemScanner(kind="Pod", api_version="v1")
            items = scanner.feed(gzip.decompress(page.read_bytes()))
            assert len(items) == writer.apply_items("pods", items)
            assert writer.apply_items("pods", items) == 0
            for each in items:
                obj = orjson.loads(each.raw)
                assert obj["metadata"].pop("managedFields", None) is not None
                assert exact(obj) == exact(cache["pods"][each.key].to_dict())
                # by the other way in, it is the same: nothing changes
                assert not writer.put("pods", each.key, obj, each.version)
        writer.check()
