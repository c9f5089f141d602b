"""Invariant tested: one call for a continuing registration (Delivered.follow) finds the same as the
steps of Known.take(), or None; a registration in an unusual state takes those steps.

The model shows that histories stay legal whichever way is taken (model/test_feeds.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import shmcache
from shmcache import _hot
from shmcache.handlers.delivered import KnownResources
from shmcache.handlers.feed import ADD, DELETE, UPDATE, Feed
from shmcache.monitor.observing import observe

MANY = 1_000_000


def pod(name: str, version: int, uid: str | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "prod", "uid": uid or f"uid-of-{name}"}
    return {"metadata": metadata | {"resourceVersion": str(version)}}


def received(feed: Feed) -> list[tuple[int, str]]:
    found = [(kind, str(keyed.key)) for kind, keyed, *_ in feed.drain()]
    feed.rest()
    return found


@pytest.fixture
def feed(writer: shmcache.Writer, cache: shmcache.Cache) -> Iterator[Feed]:
    """A feed that received the whole state: prod/a."""
    writer.replace("pods", [pod("a", 1)])
    known, bit = KnownResources(cache).find("pods", by_content=False)
    feed = Feed(known, bit)
    assert received(feed) == [(ADD, "prod/a")]
    assert feed.synced
    yield feed
    feed.close()


def follow(feed: Feed, most: int = MANY, ended: int = MANY) -> Any:
    assert feed.reader is not None
    return feed.known.map.follow(feed.reader, feed.position, id(feed), most, ended)


def test_a_continuing_feed_needs_one_call(
    writer: shmcache.Writer, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(*_: object) -> None:
        raise AssertionError("there was nothing unusual")

    monkeypatch.setattr(type(feed.known), "take", take)
    writer.apply("pods", [pod("b", 2)])
    writer.apply("nodes", [pod("n", 3)])
    writer.apply("pods", [pod("a", 4)])
    writer.delete("pods", "prod/b", unknown=True)
    assert received(feed) == [(ADD, "prod/b"), (UPDATE, "prod/a"), (DELETE, "prod/b")]
    assert received(feed) == []
    assert len(feed.known.map) == 1


def test_it_gives_the_root_the_deltas_and_where_they_end(
    writer: shmcache.Writer, cache: shmcache.Cache, feed: Feed
) -> None:
    roots = cache.reader.roots
    writer.apply("pods", [pod("a", 2)])
    writer.apply("pods", [pod("b", 3)])
    found = follow(feed, most=1)
    assert found is not None
    root, deltas, offset, end = found
    assert root.generation == cache.latest
    assert [delta.key for delta in deltas] == ["prod/a"]
    assert (offset, end) == (feed.known.map.offset, feed.position + 1)
    assert feed.known.map.position == root.head + offset
    del found, root, deltas
    assert cache.reader.roots == roots
    assert received(feed) == [(UPDATE, "prod/a"), (ADD, "prod/b")]  # follow() did not deliver them


def test_the_seat_shows_the_position(
    writer: shmcache.Writer, cache: shmcache.Cache, feed: Feed
) -> None:
    def shown() -> tuple[int | None, int]:
        [worker] = [worker for worker in observe(cache).workers if worker.own]
        return worker.lag, worker.busy

    writer.apply("pods", [pod("a", 2), pod("b", 3)])
    stream = feed.drain()
    next(stream)
    assert shown() == (2, 1)
    assert [(ADD, "prod/b")] == [(kind, keyed.key) for kind, keyed, *_ in stream]
    assert shown() == (0, 0)


def test_registrations_at_other_positions_receive_their_own_events(
    writer: shmcache.Writer, feed: Feed
) -> None:
    other = Feed(feed.known)
    assert received(other) == [(ADD, "prod/a")]
    writer.apply("pods", [pod("a", 2)])
    assert received(feed) == [(UPDATE, "prod/a")]
    writer.apply("pods", [pod("b", 3)])
    assert received(other) == [(UPDATE, "prod/a"), (ADD, "prod/b")]
    assert received(feed) == [(ADD, "prod/b")]
    other.close()


def test_a_delta_returns_its_event(writer: shmcache.Writer, feed: Feed) -> None:
    writer.apply("pods", [pod("b", 2)])
    writer.apply("pods", [pod("b", 3)])
    writer.delete("pods", "prod/b")
    writer.delete("pods", "prod/a", unknown=True)
    _, deltas, _, _ = follow(feed)
    for delta in deltas:
        assert delta.told(True)[1:4] == (delta, delta.old, delta.new)
    assert [delta.told(True)[0] for delta in deltas] == [ADD, UPDATE, DELETE, DELETE]
    assert [delta.told(True)[4] for delta in deltas] == [False, False, False, True]
    assert [delta.told(False)[4] for delta in deltas] == [True, False, False, True]


# ---- cases left to take() ------------------------------------------------------------------------


def test_a_ring_that_does_not_lead_on_is_not_followed(writer: shmcache.Writer, feed: Feed) -> None:
    writer.apply("pods", [pod("b", 2)])
    writer.drop_window()
    assert follow(feed) is None
    assert received(feed) == [(ADD, "prod/b")]
    assert feed.lapses == 1
    many = [pod(f"{number:04}", number) for number in range(2000)]
    writer.replace("pods", many)  # more than the ring has: a RELIST delta
    assert follow(feed) is None
    assert len(received(feed)) == 2 + 2000
    assert feed.lapses == 2


def test_a_list_ends_before_another_object_under_its_key(
    writer: shmcache.Writer, feed: Feed
) -> None:
    writer.apply("pods", [pod("b", 2)])
    writer.apply("nodes", [pod("n", 3)])
    writer.apply("pods", [pod("a", 4, "another")])
    writer.delete("pods", "prod/b")
    root, deltas, offset, end = follow(feed)
    assert [delta.key for delta in deltas] == ["prod/b"]
    assert end == root.head + offset - 2
    assert feed.reader is not None
    assert feed.known.map.follow(feed.reader, end, id(feed), MANY, MANY) is None
    del root, deltas
    assert received(feed) == [
        (ADD, "prod/b"),
        (DELETE, "prod/a"),
        (ADD, "prod/a"),
        (DELETE, "prod/b"),
    ]


def test_too_many_ended_lives_are_not_followed(writer: shmcache.Writer, feed: Feed) -> None:
    """Otherwise they would never be forgotten."""
    for number in range(500):
        writer.apply("pods", [pod("b", number)])
        writer.delete("pods", "prod/b")
        assert received(feed) == [(ADD, "prod/b"), (DELETE, "prod/b")]
    assert feed.known.map.ended < 200
    writer.apply("pods", [pod("b", 1000)])
    writer.delete("pods", "prod/b")
    assert follow(feed, ended=feed.known.map.ended) is not None
    assert follow(feed, ended=feed.known.map.ended - 1) is None


def test_shards_are_not_followed(writer: shmcache.Writer, feed: Feed) -> None:
    halves = [Feed(feed.known, shard=(number, 2)) for number in range(2)]
    assert sorted(received(halves[0]) + received(halves[1])) == [(ADD, "prod/a")]
    writer.apply("pods", [pod(name, 2, f"{name} is its uid") for name in "bcdefgh"])
    shares = [received(half) for half in halves]
    assert all(shares)
    assert sorted(shares[0] + shares[1]) == [(ADD, f"prod/{name}") for name in "bcdefgh"]
    for half in halves:
        assert half.known.follow(half) is None
        half.close()


def test_a_reader_that_is_spent_or_closed_is_not_followed(name: str) -> None:
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.replace("pods", [pod("a", 1)])
        cache = shmcache.attach(name)
        known, bit = KnownResources(cache).find("pods", by_content=False)
        feed = Feed(known, bit)
        assert received(feed) == [(ADD, "prod/a")]
        assert follow(feed) is not None
    assert follow(feed) is None
    with shmcache.Writer(name, ["nodes", "pods"]) as writer:
        writer.replace("pods", [pod("b", 2)])
        assert follow(feed) is None
        assert received(feed) == [(DELETE, "prod/a"), (ADD, "prod/b")]
        assert follow(feed) is not None
        reader = feed.reader
        assert reader is not None
        cache.close()
        assert known.map.follow(reader, feed.position, id(feed), MANY, MANY) is None
        with pytest.raises(shmcache.ClosedError):
            received(feed)


def test_a_map_of_nothing_or_of_another_instance_is_not_followed(
    cache: shmcache.Cache, feed: Feed
) -> None:
    fresh = _hot.Delivered()
    assert fresh.follow(cache.reader, 0, 0, MANY, MANY) is None
    assert feed.known.map.follow(cache.reader, 0, 0, MANY, MANY) is None  # before its offset


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        ((None, 0, 0, 1, 0), TypeError),
        (("reader", "0", 0, 1, 0), TypeError),
        (("reader", 0, 0, 0, 0), ValueError),
        (("reader", -1, 0, 1, 0), (ValueError, OverflowError)),
    ],
)
def test_arguments_are_looked_at(
    cache: shmcache.Cache, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    given: list[Any] = [cache.reader if one == "reader" else one for one in arguments]
    with pytest.raises(error):
        _hot.Delivered().follow(*given)
