"""Shard selectors: the grammar and the hashes of KEP-5866, and the shares of a configuration."""

import random

import pytest
from conftest import SEED

from shmcache.errors import InvalidSelector
from shmcache.protocol import failures, validation
from shmcache.protocol.selectors.hashing import shard_hash
from shmcache.protocol.selectors.shards import NAMESPACE, UID, ShardSelector, parse_share

LOW, MIDDLE, END = "0x0000000000000000", "0x8000000000000000", "0x10000000000000000"


def ranged(first: str, end: str, field: str = "uid") -> str:
    return f"shardRange(object.metadata.{field}, '{first}', '{end}')"


def obj(uid: str = "", namespace: str = "") -> dict[str, object]:
    return {"metadata": {"uid": uid, "namespace": namespace}}


@pytest.mark.parametrize(
    ("text", "field", "asked"),
    [
        (ranged(LOW, MIDDLE), UID, [(0, 1 << 63)]),
        (ranged(LOW, END), UID, [(0, 1 << 64)]),
        (
            ranged("0x00000000000000aa", "0x00000000000000ff", "namespace"),
            NAMESPACE,
            [(0xAA, 0xFF)],
        ),
        (
            f"{ranged(LOW, MIDDLE)} || {ranged(MIDDLE, END)}",
            UID,
            [(0, 1 << 63), (1 << 63, 1 << 64)],
        ),
        (f"({ranged(LOW, MIDDLE)}) || (({ranged(MIDDLE, END)}))", UID, None),
        (f"({ranged(LOW, MIDDLE)} || {ranged(MIDDLE, END)})", UID, None),
        (f"shardRange(object.metadata.uid,'{LOW}','{MIDDLE}')", UID, [(0, 1 << 63)]),
        (f'shardRange(object.metadata.uid,"{LOW}","{MIDDLE}")', UID, [(0, 1 << 63)]),
        (f"  shardRange( object . metadata.uid ,  '{LOW}' ,\n '{MIDDLE}' )  ", UID, [(0, 1 << 63)]),
        (f"// mine\nshardRange(object.metadata.uid, '{LOW}', '{MIDDLE}') // all", UID, None),
    ],
)
def test_expressions_of_the_grammar(
    text: str, field: str, asked: list[tuple[int, int]] | None
) -> None:
    found = ShardSelector.parse(text)

    assert found.field == field
    assert asked is None or list(found.asked) == asked
    assert ShardSelector.parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (" ", "empty shard selector"),
        (ranged(LOW[2:], MIDDLE), "hexStart must have '0x' prefix"),
        (ranged(LOW, MIDDLE[2:]), "hexEnd must have '0x' prefix"),
        (ranged("0x", MIDDLE), "16-digit"),
        (ranged("0x0", MIDDLE), 'did you mean "0x0000000000000000"'),
        (ranged(LOW, "0xff"), 'did you mean "0x00000000000000ff"'),
        (ranged(LOW, "0x00000000000000000"), "16-digit"),
        (ranged(LOW, "0x20000000000000000"), "16-digit"),
        (ranged("0x000000000000000g", MIDDLE), "16-digit"),
        (ranged("0x000000000000000A", MIDDLE), "16-digit"),
        (ranged(MIDDLE, MIDDLE), "must be less than"),
        (ranged("0xffffffffffffffff", LOW), "must be less than"),
        (ranged(LOW, MIDDLE, "name"), 'unsupported field path "object.metadata.name"'),
        (f"shardRange(metadata.uid, '{LOW}', '{END}')", "unsupported field path"),
        (f"other(object.metadata.uid, '{LOW}', '{END}')", 'unsupported function "other"'),
        (f"{ranged(LOW, MIDDLE)} && {ranged(MIDDLE, END)}", 'unexpected "&"'),
        (f"!{ranged(LOW, MIDDLE)}", 'unexpected "!"'),
        (f"object.metadata.uid > '{LOW}'", "unsupported function"),
        ("shardRange(object.metadata.uid, 0, 8)", "unexpected"),
        (f"shardRange(object.metadata.uid, '{LOW}')", "unexpected"),
        (f"shardRange(object.metadata.uid, hex(0), '{END}')", "unexpected"),
        (f"{ranged(LOW, END)} ||", "unexpected the end"),
        (f"({ranged(LOW, END)}", "unexpected the end"),
        (f"{ranged(LOW, END)})", 'unexpected ")"'),
        (f"{ranged(LOW, END)} {ranged(LOW, END)}", "unexpected"),
        (f"shardRange(object.metadata.uid, '{LOW}, '{END}')", "16-digit"),
        (f"{ranged(LOW, MIDDLE)} || {ranged(MIDDLE, END, 'namespace')}", "same field"),
    ],
)
def test_everything_else_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidSelector) as raised:
        ShardSelector.parse(text)

    assert why in str(raised.value)


def test_the_hash_is_fnv_1a_of_64_bits() -> None:
    assert shard_hash("") == shard_hash(None) == 0xCBF29CE484222325
    assert shard_hash("a") == 0xAF63DC4C8601EC8C
    assert shard_hash("foobar") == 0x85944171F73967E8


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 255])
def test_shards_of_one_count_are_disjoint_and_complete(count: int) -> None:
    """SHARD2, with the bounds of the ranges as the sharpest cases."""
    shards = [ShardSelector.of(index, count) for index in range(count)]

    for number in range(500):
        found = [shard for shard in shards if shard.has(f"uid-{number}")]
        assert len(found) == 1
    edges = [edge for shard in shards for edge in shard.asked[0]]
    assert edges[0] == 0
    assert edges[-1] == 1 << 64
    assert edges[1:-1:2] == edges[2::2]


def test_ranges_are_one_set_however_they_are_cut() -> None:
    luck = random.Random(SEED)
    for _ in range(200):
        edges = sorted(luck.randrange(1 << 62) + (n << 62) for n in range(4))
        first, second = (edges[0], edges[2]), (edges[1], edges[3])
        joined = ShardSelector(UID, (first, second))
        assert joined == ShardSelector(UID, ((edges[0], edges[3]),))
        assert joined.is_within(ShardSelector.of(0, 1))
        assert not ShardSelector.of(0, 1).is_within(joined)


def test_objects_match_by_uid_or_by_namespace() -> None:
    halves = ShardSelector.of(0, 2), ShardSelector.of(1, 2)
    by_namespace = ShardSelector.of(0, 2, NAMESPACE), ShardSelector.of(1, 2, NAMESPACE)

    for number in range(50):
        one = obj(uid=f"u{number}", namespace="prod")
        assert [half.matches(one) for half in halves].count(True) == 1
    matching = [half.matches(obj(uid=f"u{n}", namespace="prod")) for n in range(9)
                for half in by_namespace]  # fmt: skip
    assert matching in ([True, False] * 9, [False, True] * 9)
    assert [half.matches({"metadata": None}) for half in halves].count(True) == 1


def test_a_share_is_a_fraction_or_the_whole_expression() -> None:
    assert parse_share("1/4") == ShardSelector.of(1, 4)
    assert parse_share(str(ShardSelector.of(1, 4))) == ShardSelector.of(1, 4)
    for wrong in ("4/4", "0/0", "1/", "/4", "-1/4", "a/4", "1.5/4"):
        with pytest.raises(InvalidSelector):
            parse_share(wrong)


def test_a_long_selector_is_read_in_the_time_of_its_length() -> None:
    """Neither parentheses nor long chains recurse."""
    deep = "(" * 4000 + ranged(LOW, END) + ")" * 4000
    chain = " || ".join([ranged(LOW, END)] * 2000)

    assert ShardSelector.parse(deep) == ShardSelector.parse(chain)


def test_an_invalid_selector_of_a_request_is_a_bad_request() -> None:
    asked = validation.parse_options({"shardSelector": "shardRange(object.metadata.name, '', '')"})

    with pytest.raises(failures.Failure) as raised:
        validation.shard_of(asked)

    assert raised.value.code == 400
