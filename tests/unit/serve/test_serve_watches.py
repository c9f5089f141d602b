"""A watch shows each change once and in order, or reports that it cannot.

CHANNEL1..CHANNEL4, HISTORY1..HISTORY4, WATCHER1..WATCHER3; the guarantees G25, G26 and G27."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from watching import World, pod

import shmcache
from shmcache.cli.output.report import workers
from shmcache.monitor.metering import Meter
from shmcache.monitor.observing import observe
from shmcache.protocol import accept
from shmcache.reader import asking
from shmcache.serve.read.consistency import Currency
from shmcache.serve.watch import history as watch_history
from shmcache.serve.watch.change import WatchChange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from watching import Client, Json

SLOTS = 256
WINDOW = SLOTS // 2


@pytest.fixture
def writer(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, ["pods", "nodes"], ring_slots=SLOTS) as made:
        yield made
        made.check()


@pytest.fixture
def cache(writer: shmcache.Writer) -> Iterator[shmcache.Cache]:
    with shmcache.attach(writer.name) as attached:
        yield attached


def listed(writer: shmcache.Writer, objects: list[Json], version: int) -> None:
    writer.replace("pods", objects, str(version))


def happens(writer: shmcache.Writer, *objects: Json) -> None:
    """As the reflector stores what a watch has brought: one generation, one version."""
    with writer.batch():
        writer.apply("pods", list(objects))
        writer.set_version("pods", objects[-1]["metadata"]["resourceVersion"])


def goes(writer: shmcache.Writer, name: str, version: int) -> None:
    with writer.batch():
        assert writer.delete("pods", f"a/{name}", str(version))
        writer.set_version("pods", str(version))


# ---- beginnings -------------------------------------------------------------------------------


def test_a_watch_from_a_version_shows_only_later_changes(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("p", 4)], 10)
    world = World(cache)
    for version in range(11, 15):
        happens(writer, pod(f"p-{version}", version))
    world.turn()
    client = world.watch("resourceVersion=12")
    happens(writer, pod("p-13", 20))
    world.turn()

    assert client.received() == [
        ("ADDED", "p-13", "13"),
        ("ADDED", "p-14", "14"),
        ("MODIFIED", "p-13", "20"),
    ]


@pytest.mark.parametrize("shape", [accept.FULL, accept.PARTIAL, accept.TABLE])
def test_watches_with_and_without_managed_fields_stand_side_by_side(
    writer: shmcache.Writer, cache: shmcache.Cache, shape: accept.Shape
) -> None:
    """ACCEPT3: of a deletion, too, whose object is made here; else they see the same."""

    def managed(name: str, version: int) -> Json:
        found = pod(name, version)
        found["metadata"]["managedFields"] = [{"manager": "kubectl"}]
        return found

    listed(writer, [managed("p-1", 4), managed("p-2", 5)], 10)
    world = World(cache)
    full, lean = (world.watch("", shape=shape._replace(lean=lean)) for lean in (False, True))
    happens(writer, managed("p-1", 20))
    goes(writer, "p-2", 21)
    world.turn()

    for one, other in zip(told := full.take(), lean.take(), strict=True):
        obj = one["object"]
        shown = obj["rows"][0]["object"] if shape == accept.TABLE else obj
        assert shown["metadata"].pop("managedFields") == [{"manager": "kubectl"}]
        assert one == other
    assert [event["type"] for event in told] == ["ADDED", "ADDED", "MODIFIED", "DELETED"]


@pytest.mark.parametrize("query", ["", "resourceVersion=0"])
def test_a_watch_without_a_version_shows_the_state_and_later_changes(
    writer: shmcache.Writer, cache: shmcache.Cache, query: str
) -> None:
    objects = [pod(f"p-{number:03}", number + 1) for number in range(150)]
    listed(writer, objects, 200)
    world = World(cache)
    client = world.watch(query)
    goes(writer, "p-007", 201)
    world.turn()

    told = client.received()
    assert told[:-1] == [("ADDED", f"p-{number:03}", str(number + 1)) for number in range(150)]
    assert told[-1] == ("DELETED", "p-007", "201")


def test_a_watch_list_ends_its_objects_with_a_bookmark(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("p", 4)], 10)
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

    assert World(cache).watch(query).received() == [("ADDED", "p", "4"), ("BOOKMARK", "end", "10")]


def test_changes_during_the_initial_objects_follow_them(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod(f"p-{number:03}", number + 1) for number in range(100)], 200)
    world = World(cache)
    client = world.watch()
    client.take()
    slow = world.watch()
    slow.data.clear()
    slow.watcher = None
    late = world.watch("resourceVersion=0")
    late.reads = False
    happens(writer, pod("p-000", 201))
    world.turn()
    late.read_on()
    world.turn()

    assert client.received() == [("MODIFIED", "p-000", "201")]
    assert late.received()[-1] == ("MODIFIED", "p-000", "201")


def test_a_client_that_reads_slowly_from_the_start_misses_nothing(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod(f"p-{number:03}", number + 1) for number in range(200)], 300)
    world = World(cache)
    client = world.watch("resourceVersion=300")
    client.reads = False
    slow = world.watch("resourceVersion=300")
    world.limit = 0
    begun = _begin_slowly(world)
    happens(writer, pod("p-000", 301), pod("p-199", 302))
    goes(writer, "p-100", 303)
    for _ in range(20):
        begun.read_on()
        world.turn()

    names = begun.received()
    assert [name for kind, name, _ in names if kind == "ADDED"] == [
        f"p-{number:03}" for number in range(200)
    ]
    assert names[200:] == [
        ("MODIFIED", "p-000", "301"),
        ("MODIFIED", "p-199", "302"),
        ("DELETED", "p-100", "303"),
    ]
    assert slow.received() == names[200:]


def _begin_slowly(world: World) -> Client:
    """A watch whose client takes a page at a time."""
    import watching as fake

    original = fake.Client.__init__

    def shut(self: Client) -> None:
        original(self)
        self.reads = False

    fake.Client.__init__ = shut  # type: ignore[method-assign]
    try:
        return world.watch()
    finally:
        fake.Client.__init__ = original  # type: ignore[method-assign]


# ---- the window -------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "oldest"), [(9, 10), (10, None), (11, None)])
def test_the_window_begins_where_it_was_listed(
    writer: shmcache.Writer, cache: shmcache.Cache, version: int, oldest: int | None
) -> None:
    listed(writer, [pod("p", 4)], 10)
    world = World(cache)
    happens(writer, pod("p", 12))
    world.turn()
    told = world.watch(f"resourceVersion={version}").received()

    if oldest is None:
        assert told == [("MODIFIED", "p", "12")]
    else:
        assert told == [("ERROR", "410", f"too old resource version: {version} ({oldest})")]


def test_nothing_follows_an_error(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    listed(writer, [pod("p", 4)], 10)
    world = World(cache)
    client = world.watch("resourceVersion=2")
    happens(writer, pod("p", 12))
    world.turn()

    assert client.finished
    assert len(client.take()) == 1


def test_every_version_of_the_window_can_be_resumed_at_and_no_older_one(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [], 10)
    world = World(cache)
    last = 10 + 2 * WINDOW
    for version in range(11, last + 1):
        happens(writer, pod(f"p-{version % 7}", version))
        if version % 3 == 0:
            world.turn()
    world.turn()
    accepted = 0
    for version in range(5, last + 1):
        told = world.watch(f"resourceVersion={version}").received()
        if told and told[0][0] == "ERROR":
            assert accepted == 0, "an older version was taken, and a later one is too old"
            continue
        accepted += 1
        assert [int(each[2]) for each in told] == list(range(version + 1, last + 1))

    assert WINDOW - 2 * watch_history.STEP < accepted <= WINDOW + 1


def test_a_new_process_can_resume_within_the_window(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("p", 4)], 10)
    for version in range(20, 25):
        happens(writer, pod("p", version))
    world = World(cache)

    assert world.watch("resourceVersion=9").received()[0][0] == "ERROR"
    for version in range(10, 25):
        told = world.watch(f"resourceVersion={version}").received()
        assert [int(each[2]) for each in told] == list(range(max(version + 1, 20), 25))


def test_a_watch_from_before_the_first_version_of_a_watched_resource(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """HISTORY1: what was delivered before a program stated any version is in the history, too."""
    world = World(cache)
    others = world.watch("")
    happens(writer, pod("p-1", 41), pod("p-2", 42), pod("p-3", 43))
    world.turn()

    assert [each[2] for each in others.received()] == ["41", "42", "43"]
    assert world.watch("resourceVersion=5").received()[0][:2] == ("ERROR", "410")
    assert [each[2] for each in world.watch("resourceVersion=41").received()] == ["42", "43"]


def test_a_new_process_knows_where_the_window_begins_when_the_list_has_left_it(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("p", 4)], 10)
    last = 20 + 4 * WINDOW
    for version in range(20, last + 1, 2):
        happens(writer, pod("p", version))
    root = cache.reader.root()
    first = int(root.take(root.tail, 1)[0][0].version or "")
    world = World(cache)

    assert root.tail > 1
    assert world.watch(f"resourceVersion={first - 2}").received()[0][0] == "ERROR"
    for version in (first - 1, first, last - 1):
        told = world.watch(f"resourceVersion={version}").received()
        expected = [each for each in range(20, last + 1, 2) if each > version]
        assert [int(each[2]) for each in told] == expected


def test_a_new_process_resumes_nothing_from_before_the_last_list(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("p", 4)], 10)
    happens(writer, pod("p", 20))
    listed(writer, [pod("p", 20)], 30)
    world = World(cache)

    assert world.watch("resourceVersion=20").received()[0][0] == "ERROR"
    assert world.watch("resourceVersion=29").received()[0][0] == "ERROR"
    assert world.watch("resourceVersion=30").received() == []


def test_a_watch_from_a_future_version_shows_only_later_changes(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("p", 4)], 10)
    world = World(cache)
    client = world.watch("resourceVersion=12")
    for version in (11, 12, 13, 14):
        happens(writer, pod("p", version))
        world.turn()

    assert client.received() == [("MODIFIED", "p", "13"), ("MODIFIED", "p", "14")]
    assert client.watcher is not None
    assert client.watcher.live


def test_versions_may_be_longer_than_64_bits(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    base = 10**25
    listed(writer, [], base)
    world = World(cache)
    client = world.watch("resourceVersion=0")
    happens(writer, pod("p", base + 1))
    happens(writer, pod("p", base + 2))
    world.turn()

    assert [each[2] for each in client.received()] == [str(base + 1), str(base + 2)]


# ---- lists during a watch ---------------------------------------------------------------------


def test_changes_found_by_a_list_come_in_the_order_of_versions(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod(name, 4 + place) for place, name in enumerate("abcd")], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    listed(writer, [pod("a", 31), pod("c", 22), pod("d", 7), pod("e", 40)], 40)
    world.turn()

    assert client.received() == [
        ("DELETED", "b", "11"),
        ("MODIFIED", "c", "22"),
        ("MODIFIED", "a", "31"),
        ("ADDED", "e", "40"),
    ]


def test_a_deletion_found_by_the_very_next_version_is_at_that_version(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("a", 4), pod("b", 5)], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    listed(writer, [pod("a", 4)], 11)
    world.turn()

    assert client.received() == [("DELETED", "b", "11")]


def test_a_watch_cut_among_those_changes_misses_no_deletion_in_another_process(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """Another process, or relay, may know the version: its history goes on where ours begins."""
    listed(writer, [pod("a", 4), pod("b", 5)], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    listed(writer, [pod("a", 4)], 30)
    happens(writer, pod("c", 31))
    happens(writer, pod("d", 32))
    world.turn()
    told = client.received()
    resumed = 0
    for count in range(1, len(told) + 1):
        others = World(cache).watch(f"resourceVersion={told[count - 1][2]}").received()
        if [each[0] for each in others] == ["ERROR"]:
            continue
        resumed += 1
        assert {"b"} == {name for kind, name, _ in told[:count] + others if kind == "DELETED"}

    assert len(told) == 3
    assert resumed == 2


@pytest.mark.parametrize(
    ("objects", "version"),
    [
        ([], 11),  # two deletions at 11
        ([pod("a", 4), pod("b", 5), pod("c", 7)], 40),  # an event that was lost before 10
        ([pod("a", 4), pod("b", 8)], 40),
    ],
)
def test_no_change_of_a_list_is_at_a_version_that_a_watch_has_received(
    writer: shmcache.Writer, cache: shmcache.Cache, objects: list[Json], version: int
) -> None:
    """A client that goes on from 10 takes what is not later for a repetition, and skips it."""
    listed(writer, [pod("a", 4), pod("b", 5)], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    listed(writer, objects, version)
    world.turn()

    assert [each[:2] for each in client.received()] == [("ERROR", "410")]


def test_a_watch_cut_among_those_changes_cannot_resume_inside_the_gap(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod(name, 4 + place) for place, name in enumerate("abcd")], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    listed(writer, [pod("a", 31), pod("c", 22), pod("e", 39)], 40)
    world.turn()
    told = client.received()

    assert len(told) == 5
    for _, _, version in told:
        (error,) = world.watch(f"resourceVersion={version}").received()
        assert error[:2] == ("ERROR", "410")
    assert world.watch("resourceVersion=40").received() == []


def test_several_lists_and_changes_between_two_looks_come_as_a_difference(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("a", 4)], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    happens(writer, pod("a", 12))
    listed(writer, [pod("b", 14)], 20)
    happens(writer, pod("b", 21))
    listed(writer, [pod("b", 21), pod("c", 25)], 30)
    happens(writer, pod("c", 31))
    world.turn()

    assert client.received() == [("DELETED", "a", "11"), ("ADDED", "b", "21"), ("ADDED", "c", "31")]


def test_a_list_without_changes_sends_no_events(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("a", 4)], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    listed(writer, [pod("a", 4)], 50)
    world.turn()
    happens(writer, pod("a", 51))
    world.turn()

    assert client.received() == [("MODIFIED", "a", "51")]
    assert world.watch("resourceVersion=49").received()[0][0] == "ERROR"


def test_more_changes_than_the_window_holds_come_as_a_difference(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    happens(writer, *[pod(f"p-{version:03}", version) for version in range(11, 11 + SLOTS)])
    world.turn()

    told = client.received()
    assert [int(version) for _, _, version in told] == list(range(11, 11 + SLOTS))
    assert not client.finished


def test_a_process_stopped_too_long_delivers_the_difference(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("a", 4), pod("b", 5)], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    goes(writer, "b", 11)
    for version in range(12, 12 + 3 * WINDOW):
        happens(writer, pod("a", version))
    world.turn()

    assert client.received() == [
        ("DELETED", "b", "11"),
        ("MODIFIED", "a", str(11 + 3 * WINDOW)),
    ]


@pytest.mark.parametrize("version", ["", "10"])
def test_removing_a_resource_does_not_delete_its_objects(name: str, version: str) -> None:
    """Even where versions mean nothing, and the resource has no declaration."""
    with shmcache.Writer(name, ["pods", "nodes"]) as before:
        before.replace("pods", [pod("a", 4)], version or None)
        with shmcache.attach(name) as cache:
            world = World(cache)
            client = world.watch("")
            client.take()
            before.leave()
            with shmcache.Writer(name, ["nodes"]):
                world.turn()

    assert [(kind, code) for kind, code, _ in client.received()] == [("ERROR", "410")]
    assert client.finished


def test_changes_out_of_order_are_sorted_and_no_watch_resumes_among_them(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    with writer.batch():
        writer.apply("pods", [pod("p", 20), pod("q", 15)])
        writer.set_version("pods", "20")
    world.turn()

    assert client.received() == [("ADDED", "q", "15"), ("ADDED", "p", "20")]
    assert world.watch("resourceVersion=15").received()[0][0] == "ERROR"
    assert world.watch("resourceVersion=20").received() == []


def test_changes_without_distinct_versions_are_not_delivered(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """Two objects at the very version of the list: a client cut between them would miss one."""
    listed(writer, [], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    listed(writer, [pod("p", 40), pod("q", 40)], 40)
    world.turn()

    assert [each[:2] for each in client.received()] == [("ERROR", "410")]


def test_the_first_versions_of_all_are_versions(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("a", 0)], 0)
    world = World(cache)
    client = world.watch("")
    listed(writer, [], 2)
    world.turn()

    assert client.received() == [("ADDED", "a", "0"), ("DELETED", "a", "1")]


def test_a_server_that_went_back_ends_all_watches(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("a", 4)], 100)
    world = World(cache)
    client = world.watch("resourceVersion=100")
    listed(writer, [pod("a", 3)], 50)
    world.turn()

    assert [each[:2] for each in client.received()] == [("ERROR", "410")]
    assert client.finished


def test_an_object_recreated_unseen_is_deleted_and_added(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("a", 4)], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    again = pod("a", 15)
    again["metadata"]["uid"] = "another"
    listed(writer, [again], 20)
    world.turn()

    assert client.received() == [("DELETED", "a", "14"), ("ADDED", "a", "15")]


# ---- slow clients -----------------------------------------------------------------------------


def test_a_slow_client_costs_its_limit_and_gets_everything_later(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [], 10)
    world = World(cache, limit=1000)
    quick, slow = world.watch("resourceVersion=10"), world.watch("resourceVersion=10")
    slow.reads = False
    for version in range(11, 11 + WINDOW // 2):
        happens(writer, pod("p", version))
        world.turn()
    waits = slow.backlog
    slow.read_on()
    world.turn()

    assert waits < 1000 + 2 * 250
    assert slow.received() == quick.received()
    assert slow.watcher is not None
    assert slow.watcher.live


def test_a_client_that_is_overtaken_by_the_ring_ends_cleanly(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [], 10)
    world = World(cache, limit=0)
    quick, slow = world.watch("resourceVersion=10"), world.watch("resourceVersion=10")
    slow.reads = False
    for version in range(11, 11 + 4 * WINDOW):
        happens(writer, pod("p", version))
        world.turn()
    slow.read_on()
    world.turn()

    assert slow.finished
    assert [each[2] for each in slow.received()] == ["11"]
    assert len(quick.received()) == 4 * WINDOW
    at = observe(cache)
    assert [one.cut for one in at.workers] == [1]
    assert "CUT" in workers(at)
    assert "shmcache_worker_clients_cut_total{" in Meter(cache).text()
    assert world.watch("resourceVersion=11").received()[0][0] == "ERROR"


@pytest.mark.parametrize("strict", [True, False])
def test_first_objects_are_of_a_state_that_shows_what_was_confirmed(
    writer: shmcache.Writer, cache: shmcache.Cache, *, strict: bool
) -> None:
    """SERVE5: after the question of a watch without a version, the cache moves to a past state.

    It was confirmed for as long as nothing changes before version 12: that of 11 is a moment
    between two changes, none of which was the present when the question came.
    """
    listed(writer, [pod("a", 5)], 10)
    world = World(cache)
    root = world.channel.root
    unchanged = root.record(world.channel.number)["generation"]
    found = asking.Confirmed(
        root.instance, root.generation, "10", "list", until="12", unchanged=unchanged
    )
    current = Currency(found, asking.Question("pods"), strict=strict)
    assert [("ADDED", "a", "5")] == world.watch(current=current).received()

    happens(writer, pod("b", 11))
    early = world.watch(current=current).received()
    assert [one[:2] for one in early] == (
        [("ERROR", "503")] if strict else [("ADDED", "a"), ("ADDED", "b")]
    )
    happens(writer, pod("a", 12))
    late = world.watch(current=current).received()
    assert [("ADDED", "a", "12"), ("ADDED", "b", "11")] == late


def test_a_lagging_watch_never_passes_the_others(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """The ring leads past the delivered changes: one turn delivers a slice of it."""
    listed(writer, [], 10)
    world = World(cache, limit=0)
    quick, slow = world.watch("resourceVersion=10"), world.watch("resourceVersion=10")
    slow.reads = False
    for version in (11, 12):
        happens(writer, pod("p", version))
        world.turn()
    for version in range(13, 13 + WINDOW - 10):
        happens(writer, pod("p", version))
    assert world.channel.drain()
    slow.read_on()
    while world.soon:
        world.soon.popleft()()
    world.turn()

    assert slow.received() == quick.received()


def test_no_difference_from_a_partly_delivered_state(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("p", 4)], 10)
    world = World(cache)
    client = world.watch("resourceVersion=10")
    for version in range(11, 11 + WINDOW - 10):
        happens(writer, pod("p", version))
    assert world.channel.drain()
    told = client.received()
    for version in range(11 + WINDOW, 11 + 5 * WINDOW):
        happens(writer, pod("p", version))
    world.turn()

    assert [each[2] for each in told] == [str(version) for version in range(11, 11 + len(told))]
    assert [each[:2] for each in client.received()] == [("ERROR", "410")]


def test_a_list_ends_those_that_lag(writer: shmcache.Writer, cache: shmcache.Cache) -> None:
    listed(writer, [], 10)
    world = World(cache, limit=0)
    slow = world.watch("resourceVersion=10")
    slow.reads = False
    happens(writer, pod("p", 11))
    world.turn()
    happens(writer, pod("p", 12))
    listed(writer, [pod("q", 14)], 20)
    world.turn()

    assert slow.finished
    assert [each[2] for each in slow.received()] == ["11"]


def test_one_line_is_made_for_all_watches(
    writer: shmcache.Writer, cache: shmcache.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(writer, [], 10)
    world = World(cache)
    made: list[str] = []
    original = WatchChange._line

    def counted(self: WatchChange, event: str, *args: object, **more: object) -> bytes:
        made.append(event)
        return original(self, event, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(WatchChange, "_line", counted)
    clients = [world.watch("resourceVersion=10") for _ in range(50)]
    happens(writer, pod("p", 11), pod("q", 12))
    world.turn()
    sent = {id(client.data[0]) for client in clients}

    assert len(made) == 2
    assert len(sent) == 1, "the same bytes object went to all of them"


# ---- namespaces with versions of their own ----------------------------------------------------


def test_each_namespace_resumes_by_its_own_versions(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """Two feeds: one at 100, one at 50. The resource reports 50."""
    listed(writer, [], 10)
    writer.set_marks("pods", '{"a": "12", "b": "10"}')
    world = World(cache, separate=True)
    (early,) = world.watch("resourceVersion=11", namespace="a").received()
    a = world.watch("resourceVersion=12", namespace="a")
    b = world.watch("resourceVersion=10", namespace="b")
    with writer.batch():
        writer.apply("pods", [pod("p", 98, "a"), pod("q", 49, "b"), pod("p", 100, "a")])
        writer.set_version("pods", "49")
        writer.set_marks("pods", '{"a": "100", "b": "49"}')
    world.turn()
    with writer.batch():
        writer.apply("pods", [pod("q", 60, "b"), pod("p", 140, "a")])
        writer.set_version("pods", "60")
        writer.set_marks("pods", '{"a": "150", "b": "60"}')
    world.turn()

    assert early[:2] == ("ERROR", "410"), "changes of namespace a until 12 were not seen"
    assert a.watcher is not None
    a.watcher.bookmark()
    assert [each[2] for each in a.received()] == ["98", "100", "140", "150"]
    assert [each[2] for each in b.received()] == ["49", "60"]
    for version, left in ((97, 3), (98, 2), (100, 1), (139, 1), (140, 0), (150, 0)):
        told = world.watch(f"resourceVersion={version}", namespace="a").received()
        assert len(told) == left, version
    assert [each[2] for each in world.watch("resourceVersion=49", namespace="b").received()] == [
        "60"
    ]
    another = World(cache, separate=True)
    assert another.watch("resourceVersion=149", namespace="a").received()[0][0] == "ERROR"
    assert another.watch("resourceVersion=150", namespace="a").received() == []


def test_a_list_of_one_namespace_takes_no_other_back_behind_its_bookmark(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """The resource goes from 20 to 40, its namespace from 100 to 110."""
    listed(writer, [pod("p", 5, "a"), pod("q", 6, "b")], 10)
    with writer.batch():
        writer.set_version("pods", "20")
        writer.set_marks("pods", '{"a": "100", "b": "20"}')
    world = World(cache, separate=True)
    client = world.watch("resourceVersion=100", namespace="a")
    with writer.begin_replace("pods", prefix="a/") as staged:
        staged.version = "40"
        staged.marks = '{"a": "110", "b": "40"}'
    world.turn()

    assert [each[:2] for each in client.received()] == [("ERROR", "410")]


# ---- bookmarks --------------------------------------------------------------------------------


def test_a_bookmark_never_covers_undelivered_changes(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    listed(writer, [pod("p", 4)], 10)
    world = World(cache, limit=0)
    live, slow, future = (world.watch(f"resourceVersion={each}") for each in (10, 10, 99))
    slow.reads = False
    happens(writer, pod("p", 11))
    world.turn()
    happens(writer, pod("p", 12))
    writer.set_version("pods", "30")
    world.turn()
    for client in (live, slow, future):
        assert client.watcher is not None
        client.watcher.bookmark()
    slow.backlog = 0  # its bytes are taken; what follows them comes in the next turn
    assert slow.watcher is not None
    slow.watcher.bookmark()

    assert live.received() == [
        ("MODIFIED", "p", "11"),
        ("MODIFIED", "p", "12"),
        ("BOOKMARK", "", "30"),
    ]
    assert [each[2] for each in slow.received()] == ["11"]
    assert future.received() == []
