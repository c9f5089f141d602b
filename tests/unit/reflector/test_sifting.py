"""Sifting in one go comes to the same as looking at each item by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmcache.protocol.items import GARBAGE, Item
from shmcache.reflector.filtering import Position, Sieve, Sifted

STATUS = b'{"kind":"Status","code":410,"reason":"Expired"}'

versions = st.one_of(
    st.integers(1, 130).map(str),
    st.sampled_from([None, "", "0", "07", "x9", "٣", "99", "100", "101", "102"]),
)
items = st.builds(
    Item,
    type=st.sampled_from(
        ["MODIFIED"] * 6 + ["ADDED", "DELETED", "BOOKMARK", "ERROR", GARBAGE, "?"]
    ),
    key=st.sampled_from(["a/b", "a/b", "a/b", ""]),
    version=versions,
    uid=st.none(),
    kind=st.sampled_from(["Pod", "Pod", "Pod", None, "Table", "Node"]),
    api_version=st.sampled_from(["v1", "v1", "v1", None, "meta.k8s.io/v1"]),
    raw=st.just(STATUS),
)
rising = st.lists(st.integers(0, 3), max_size=12).map(
    lambda steps: [_modified(str(97 + sum(steps[: n + 1]))) for n in range(len(steps))]
)
batches = st.lists(st.one_of(rising, st.lists(items, max_size=8)), max_size=6)


def _modified(version: str | None, kind: str = "Pod") -> Item:
    return Item("MODIFIED", "a/b", version, None, kind, "v1", b"{}")


class OneByOne(Sieve):
    """Looks at each item by itself."""

    def _plain(self, _items: list[Item]) -> int:
        return 0


def _outcome(sieve: Sieve, given_batches: list[list[Item]]) -> list[Any]:
    out: list[Any] = []
    for batch in given_batches:
        found = sieve.live(batch)
        position = sieve.position
        out.append((found, position.version, position._fresh, position._synthetic))
        if found.failure:
            break
    return out


@given(batches, st.sampled_from(["", "0", "5", "97", "99"]), st.sampled_from([None, "Pod"]))
def test_a_batch_is_sifted_as_its_items_one_by_one(
    given_batches: list[list[Item]], start: str, kind: str | None
) -> None:
    sieves = []
    for made in (Sieve, OneByOne):
        position = Position()
        position.reset(start)
        position.open()
        sieves.append(made(position, kind, None))
    assert _outcome(sieves[0], given_batches) == _outcome(sieves[1], given_batches)


@pytest.fixture
def sieve() -> Sieve:
    position = Position()
    position.reset("100")
    position.open()
    found = Sieve(position, None, None)
    found.live([_modified("101")])
    return found


def test_events_in_order_are_taken_without_a_look_at_each(sieve: Sieve) -> None:
    assert sieve._plain([_modified("102"), _modified("105")]) == 2
    assert sieve.position.version == "105"


@pytest.mark.parametrize(
    "other",
    [
        _modified("101"),
        _modified("102"),
        _modified("099"),
        _modified("1000"),
        _modified("10x"),
        _modified(None),
        _modified("103", kind="Table"),
        _modified("103")._replace(type="BOOKMARK"),
        _modified("103")._replace(key=""),
        _modified("103")._replace(api_version="v2"),
    ],
)
def test_other_events_are_checked_one_by_one(sieve: Sieve, other: Item) -> None:
    assert sieve._plain([_modified("102"), other, _modified("104")]) == 1
    assert sieve.position.version == "102"


def test_objects_that_were_there_before_the_watch_move_nothing() -> None:
    position = Position()
    position.reset("0")
    position.open()
    found = Sieve(position, None, None)
    found.live([_modified("1")._replace(type="ADDED")])
    found.live([_modified("2")._replace(type="ADDED")])
    assert position.version == "0"


def test_a_repeated_version_is_a_replay_only_until_something_new_has_come() -> None:
    """Later, several objects may have changed at one version, as in a transaction of etcd."""
    position = Position()
    position.reset("100")
    position.open()
    found = Sieve(position, None, None)

    assert Sifted(skipped=1) == found.live([_modified("100")])
    assert 1 == len(found.live([_modified("101")]).changes)
    assert 2 == len(found.live([_modified("101")._replace(key="a/c"), _modified("102")]).changes)
