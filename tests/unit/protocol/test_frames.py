"""Invariant tested: events, items and chunks come out the same wherever the input is cut, from the
fast decoder and from the slow one that defines its behaviour."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import reference_frames as reference
from conftest import SEED
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from shmcache import _hot
from shmcache.protocol.items import GARBAGE, LISTED, Item

TRACES = Path(
    os.environ.get("SHMCACHE_TRACES")
    or Path(__file__).resolve().parents[2] / "conformance" / "traces"
)
hypothesis = settings(
    max_examples=300,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
both = pytest.mark.parametrize("by", [_hot, reference], ids=["fast", "slow"])

POD = (
    b'{"kind":"Pod","spec":{"resourceVersion":"9","metadata":{"name":"no"}},'
    b'"apiVersion":"v1","metadata":{"annotations":{"resourceVersion":"8","uid":"no"},'
    b'"name":"a","namespace":"b","resourceVersion":"7","uid":"u"}}'
)


def cut(body: bytes, places: Iterable[int]) -> Iterator[bytes]:
    before = 0
    for place in [*sorted(places), len(body)]:
        yield body[before:place]
        before = place


def every_cut(body: bytes) -> Iterator[list[bytes]]:
    yield [body[at : at + 1] for at in range(len(body))]
    for place in range(len(body)):
        yield [body[:place], body[place:]]


# ---- results and failures --------------------------------------------------------------------


def watched(by: Any, pieces: Iterable[bytes], **options: Any) -> Any:
    frames = by.Frames(**options)
    steps = [(frames.feed(piece), frames.pending) for piece in pieces]
    return [item for items, _ in steps for item in items], steps[-1][1] if steps else 0


def listed(by: Any, pieces: Iterable[bytes], **options: Any) -> Any:
    scanner, items = by.ItemScanner(**options), []
    try:
        for piece in pieces:
            items += scanner.feed(piece)
        return items, scanner.finish()
    except ValueError:
        with pytest.raises(ValueError):
            scanner.finish()
        return items, None


def unframed(by: Any, pieces: Iterable[bytes]) -> Any:
    chunks, body = by.Chunks(), b""
    try:
        for piece in [*pieces, b""]:  # the next call reports an error after data
            body += chunks.feed(piece)
    except ValueError:
        return body, None
    return body, (chunks.done, chunks.unused)


def same_by_both(
    decode: Callable[..., Any], body: bytes, places: Iterable[int], **more: Any
) -> Any:
    slow = decode(reference, [body], **more)
    pieces = list(cut(body, places))
    assert slow == decode(_hot, [body], **more)
    assert slow == decode(_hot, pieces, **more)
    if len(body) < 2000:
        assert slow == decode(reference, pieces, **more)
    return slow


# ---- events ----------------------------------------------------------------------------------


@both
def test_an_event_is_found_by_structure(by: Any) -> None:
    frames = by.Frames()
    line = b'{"object":' + POD + b',"type":"ADDED"}\n'
    assert [] == frames.feed(line[:-1])
    assert len(line) - 1 == frames.pending
    found = frames.feed(b"\n")
    assert [Item("ADDED", "b/a", "7", "u", "Pod", "v1", POD)] == found
    assert type(found[0]) is Item
    assert frames.pending == 0


NO_EVENTS = [
    b"x",
    b"{",
    b"[]",
    b"{}",
    b'{"type":"ADDED"}',
    b'{"type":"ADDED","object":[]}',
    b'{"type":"ADDED","object":null}',
    b'{"type":"ADDED","object":{}',
    b'{"type":"ADDED","object":{}}x',
    b'{"type":"ADDED","object":{},}',
    b'{"type":"ADDED" "object":{}}',
    b'{"type":"ADDED","object":{"metadata":{"name"}}}',
    b'{"type":1,"object":{}}',
    b'{"type":"\\ud800","object":{}}',
    b'{"type":"\xff","object":{}}',
    b'{"type":"ADDED","object":{"a":"}}',
    b"\xff\xfe\x00",
    b"\0",
]


@both
@pytest.mark.parametrize("line", NO_EVENTS)
def test_invalid_event_is_garbage(by: Any, line: bytes) -> None:
    assert [Item(GARBAGE, "", None, None, None, None, line)] == by.Frames().feed(line + b"\n\n \n")


ODD = [
    b'{"type":"ADDED","object":{}}',
    b'{"type":"A","object":{"kind":"Old","metadata":{"name":"no"},"kind":null,"metadata":{}}}',
    b'{"type":"A","object":{"metadata":{"name":"first"},"metadata":"none"}}',
    b'{"type":"A","object":{"metadata":{"name":"first"}},"object":{"metadata":{"name":"last"}}}',
    b'{"type":"A","object":{"metadata":{"name" 1}},"object":{"metadata":{"name":"last"}}}',
    b'{"\\u0074ype":"\\u0041","object":{"m\\u0065tadata":{"na\\u006de":"x\\n\\u00e9\\ud83d\\ude00"}}}',
    b'{"type":"A","object":{"metadata":{"name":"\xc3\xa9","namespace":"\xe2\x82\xac"}}}',
    b'{"type":"A","object":{"metadata":{"name":"\xff","uid":"\\x","resourceVersion":7}}}',
    b'{"type":"A","object":{"metadata":{"name":"","namespace":"b","resourceVersion":""}}}',
    b'{"type":"A","object":{"metadata":{"name":"a","namespace":""}}}',
    b'{"type":"A","object":{"metadata":{"name":"a","namespace":null}}}',
    b' { "type" : "A" , "object" : { "metadata" : { "name" : "a" } } } \r',
    b'{"type":"A","object":{"a":[},"b":tru,"metadata":{"name":"a"}}}',
    b'{"type":"A","object":{"a":"\\"}\\\\","metadata":{"name":"a\\"b"}}}',
    b'{"type":"A","object":{"a":[\\"{]},"metadata":{"name":"a"}}}',
    b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12"}},"x":[1,{}]}',
]


def test_both_decoders_read_odd_events_alike_cut_at_every_byte() -> None:
    for line in ODD + NO_EVENTS:
        body = line + b"\n"
        whole = watched(reference, [body])
        for pieces in every_cut(body):
            assert whole == watched(_hot, pieces)
    items, _ = watched(_hot, [b"\n".join(ODD) + b"\n"])
    assert GARBAGE not in {item.type for item in items}
    assert ["", "", "", "last", "last", "x\né😀"] == [item.key for item in items[:6]]


@both
def test_the_error_shows_the_beginning_of_an_overlong_line(by: Any) -> None:
    body = b'{"type":"A","object":{' + b" " * 3000 + b"}}\n" + b'{"type":"A","object":{}}\n'
    for size in (1, 7, 100, len(body)):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        items, pending = watched(by, pieces, max_line=2000)
        assert [(GARBAGE, body[:1024]), ("A", b"{}")] == [(item.type, item.raw) for item in items]
        assert pending == 0
    frames = by.Frames(max_line=10)
    frames.feed(b"x" * 100)
    assert frames.pending == 100


def huge(size: int) -> tuple[bytes, list[bytes]]:
    value = b'"' + b"x\\\\{" * (size // 4) + b'"'
    raw = b'{"metadata":{"name":"a"},"data":' + value + b"}"
    line = b'{"type":"A","object":' + raw + b"}\n"
    return raw, [line[at : at + 2048] for at in range(0, len(line), 2048)]


def cpu_of(work: Callable[[], object]) -> float:
    def once() -> float:
        before = time.thread_time()
        work()
        return time.thread_time() - before

    return min(once() for _ in range(5))


@pytest.mark.slow
def test_a_huge_line_in_small_pieces_costs_linear_time() -> None:
    """16 times the line is 16 times the work, not 256 times; the bound is between them."""
    raw, small = huge(500_000)
    large = huge(8_000_000)[1]
    assert [("A", "a", raw)] == [item[:2] + item[6:] for item in watched(_hot, small)[0]]
    assert cpu_of(lambda: watched(_hot, large)) < 64 * cpu_of(lambda: watched(_hot, small))
    front, back = [b'{"items":['], [b"]}"]
    small, large = front + small[1:-1] + back, front + large[1:-1] + back
    assert cpu_of(lambda: listed(_hot, large)) < 64 * cpu_of(lambda: listed(_hot, small))


# ---- lists -------------------------------------------------------------------------------------


@both
def test_items_come_while_the_list_streams(by: Any) -> None:
    body = (
        b'{"kind":"PodList","items":[' + POD + b', {"metadata":{"name":"c"}}],"metadata":{"a":1}}'
    )
    second = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"c"}}'
    wanted = [
        Item(LISTED, "b/a", "7", "u", "Pod", "v1", POD),
        Item(LISTED, "c", None, None, "Pod", "v1", second),
    ]
    for pieces in every_cut(body):
        items, rest = listed(by, pieces, kind="Pod", api_version="v1")
        assert wanted == items
        assert rest == b'{"kind":"PodList","items":[],"metadata":{"a":1}}'


LISTS = [
    b' { "items" : [ ] } \n',
    b'{"items":null,"metadata":{}}',
    b'{"a":{"items":[1]},"items":[{}],"b":[[],"]"],"c":12}',
    b'{"\\u0069tems":[{},{ },{"kind":1}]}',
    b'{"items":[1,"x\\"",null,[],{"metadata":5},{"metadata":{"name" 1}}]}',
    b'{"items":[{"a":"}]\\\\"},{"metadata":{"name":"n","namespace":"m"},"apiVersion":"v2"}]}',
]
NO_LISTS = [
    b"",
    b"x",
    b"[]",
    b"{}",
    b'{"items":[',
    b'{"items":{}}',
    b'{"items":"x"}',
    b'{"items":nul}',
    b'{"items":[]}x',
    b'{"items":[],"items":[]}',
    b'{"items":[{}{}]}',
    b'{"items":[{},]}',
    b'{"items":[,{}]}',
    b'{"items":[{}],}',
    b'{"items":[{}] "a":1}',
    b'{"items"[{}]}',
    b'{"a":,"items":[]}',
    b"{1:2}",
    b'{"items":[{"a":1}',
]


def test_both_decoders_read_odd_lists_alike_cut_at_every_byte() -> None:
    for body in LISTS + NO_LISTS:
        whole = listed(reference, [body], kind="Pod", api_version="v1")
        assert (whole[1] is None) == (body in NO_LISTS)
        for options in ({}, {"kind": "Pod"}, {"api_version": "v1"}):
            assert listed(reference, [body], **options) == listed(_hot, [body], **options)
        for pieces in every_cut(body):
            assert whole == listed(_hot, pieces, kind="Pod", api_version="v1")


def test_a_list_does_not_grow_in_memory_without_bound() -> None:
    long = b'{"items":[{"a":"' + b"x" * 100 + b'"},{}]}'
    for options in ({"max_item": 50}, {"max_item": 109}, {"max_item": 108}):
        for size in (1, 10, len(long)):
            pieces = [long[at : at + size] for at in range(0, len(long), size)]
            assert listed(reference, pieces, **options) == listed(_hot, pieces, **options)
    scanner = _hot.ItemScanner()
    scanner.feed(b'{"a":"')
    with pytest.raises(ValueError, match="too much data besides its items"):
        for _ in range(2000):
            scanner.feed(b"x" * 2048)


@pytest.mark.parametrize("wrong", [{"kind": 'P"'}, {"api_version": "é"}, {"kind": "a\n"}])
def test_type_of_items_must_be_a_name(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        _hot.ItemScanner(**wrong)  # type: ignore[arg-type]


# ---- chunks -------------------------------------------------------------------------------------

CHUNKS = b"3\r\nabc\r\n0A ;x=y\r\n0123456789\r\n0\r\nT: 1\r\n\r\nnext"


@both
def test_chunks_lose_their_framing(by: Any) -> None:
    for pieces in every_cut(CHUNKS):
        assert (b"abc0123456789", (True, b"next")) == unframed(by, pieces)


@both
@pytest.mark.parametrize(
    "body",
    [b"x\r\n", b"\r\n", b"3\r\nabcd", b"3\n", b"3\rabc", b"-3\r\n", b"0\r\nx\n",
     b"1" * 16 + b"\r\n", b"1;" + b"x" * 5000, b"0\r\n" + b"a: b\r\n" * 2000, b"0x1\r\n",
     b" 1\r\n", b"1 2\r\n"],
)  # fmt: skip
def test_invalid_framing_is_refused(by: Any, body: bytes) -> None:
    for pieces in ([body], [body[at : at + 1] for at in range(len(body))]):
        found, ended = unframed(by, pieces)
        assert ended is None
        assert b"abc".startswith(found)


# ---- the same by both, whatever comes ----------------------------------------------------------

fragments = st.sampled_from(
    [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\n", b" ", b"\r", b"1", b"null", b"\xff",
     b'"metadata"', b'"name"', b'"type"', b'"object"', b'"items"', b'"kind":"K"', b'"a":',
     b"\\u0061", b'{"type":"A","object":', POD, b"{}", b"[]", b'"x"', b'"metadata":{"name":"n"}',
     b"}}\n", b"\xc3\xa9", b'{"items":['],
)  # fmt: skip
texts = st.lists(fragments, max_size=40).map(b"".join) | st.binary(max_size=60)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "name", "uid", "é", "kind", '"', "a"]), inner
        )
    ),
    max_leaves=12,
)
places = st.lists(st.integers(0, 3000), max_size=8)


@seed(SEED)
@hypothesis
@given(body=texts, at=places)
def test_both_decode_any_bytes_alike(body: bytes, at: list[int]) -> None:
    same_by_both(watched, body + b"\n", at)
    same_by_both(watched, body.replace(b"\n", b"") + b"\n", at, max_line=30)
    same_by_both(listed, body, at)
    same_by_both(listed, b'{"items":[' + body, at, kind="K")
    same_by_both(listed, b'{"items":[' + body + b"]}", at, max_item=20)


@seed(SEED)
@hypothesis
@given(objects=st.lists(st.dictionaries(st.sampled_from(["metadata", "kind", "spec"]), json_values),
                        max_size=4), at=places, ascii_only=st.booleans())  # fmt: skip
def test_both_decode_json_alike(objects: list[Any], at: list[int], ascii_only: bool) -> None:
    lines = [json.dumps({"type": "A", "object": each}, ensure_ascii=ascii_only) for each in objects]
    items, _ = same_by_both(watched, "".join(line + "\n" for line in lines).encode(), at)
    assert objects == [json.loads(item.raw) for item in items]
    body = json.dumps({"kind": "L", "items": objects, "x": 1}, ensure_ascii=ascii_only).encode()
    items, rest = same_by_both(listed, body, at)
    assert objects == [json.loads(item.raw) for item in items]
    assert json.loads(rest) == {"kind": "L", "items": [], "x": 1}


@seed(SEED)
@hypothesis
@given(
    parts=st.lists(
        st.binary(max_size=40) | st.sampled_from([b"\r\n", b"0\r\n", b"5;a\r\n", b"\r"])
    ),
    at=places,
    wrong=st.booleans(),
)
def test_both_unframe_alike(parts: list[bytes], at: list[int], wrong: bool) -> None:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part)
    body = b"".join(parts) if wrong else framed + b"0\r\n\r\nmore"
    # an error in a line is reported at its end at the latest
    found = same_by_both(unframed, body + b"\r\n\r\n", [place % (len(body) + 1) for place in at])
    if not wrong:
        assert found == (b"".join(parts), (True, b"more\r\n\r\n"))


# ---- answers of a real server --------------------------------------------------------------------


def recorded() -> list[Path]:
    found = sorted(TRACES.glob("*.body")) + sorted(TRACES.glob("*.body.gz"))
    return [path for path in found if not path.name.endswith(".http.gz")]


def contents(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


@pytest.mark.slow
@pytest.mark.parametrize("path", recorded(), ids=lambda path: path.name)
def test_recorded_bodies_come_out_alike_wherever_they_are_cut(path: Path) -> None:
    body = contents(path)
    numbers = random.Random(f"{SEED} {path.name}")
    at = sorted(numbers.randrange(len(body) + 1) for _ in range(30))
    if b'"object":' in body[:200] or body.startswith(b'{"type"'):
        items, pending = same_by_both(watched, body, at)
        assert body.count(b"\n") == len(items) - items.count(GARBAGE)
        assert pending == len(body) - body.rfind(b"\n") - 1
    items, rest = same_by_both(listed, body, at)
    if rest is not None:
        assert json.loads(body)["items"] in ([json.loads(item.raw) for item in items], None)
    if len(body) < 3000:
        for pieces in every_cut(body):
            assert watched(reference, [body]) == watched(_hot, pieces)
            assert listed(reference, [body]) == listed(_hot, pieces)
