"""Invariants tested: ETCDSRC1 to ETCDSRC3, JOINT1 to JOINT3: a cache of etcd is etcd's, in order.

By behaviour, those of Kubernetes' etcd3 watcher and store tests that apply; docs/etcd.md has the
table.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator

import pytest
from etcds import GADGETS, WIDGETS, Following, equals, needs_etcd, server, until, widget

from shmcache.source.etcd import members
from shmcache.source.etcd.source import progress_is_ordered
from shmcache.testing.etcd import EtcdServer

BOTH = {"widgets": WIDGETS, "gadgets": GADGETS}


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServer]:
    yield from server()


@pytest.fixture(autouse=True)
def emptied(request: pytest.FixtureRequest) -> None:
    if "etcd" in request.fixturenames:
        found: EtcdServer = request.getfixturevalue("etcd")
        found.clear()


def test_created_modified_and_deleted_in_order(etcd: EtcdServer, name: str) -> None:
    first = etcd.put(f"{WIDGETS}ns/a", widget("a", x=1))
    with Following(name, etcd, {"widgets": WIDGETS}) as following:
        assert following.versions("widgets") == {"ns/a": first}
        revisions = [
            etcd.put(f"{WIDGETS}ns/a", widget("a", x=2)),
            etcd.put(f"{WIDGETS}ns/b", widget("b")),
            etcd.delete(f"{WIDGETS}ns/a"),
            etcd.put(f"{WIDGETS}ns/a", widget("a", x=3)),
        ]
        following.reaches("widgets", revisions[-1])

        assert following.take() == [
            ("widgets", "ADDED", "ns/a", str(first)),
            ("widgets", "MODIFIED", "ns/a", str(revisions[0])),
            ("widgets", "ADDED", "ns/b", str(revisions[1])),
            ("widgets", "DELETED", "ns/a", str(revisions[2])),
            ("widgets", "ADDED", "ns/a", str(revisions[3])),
        ]
        found = following.content("widgets")["ns/a"]
        assert found == json.loads(widget("a", x=3)) | {
            "metadata": {
                **json.loads(widget("a"))["metadata"],
                "resourceVersion": str(revisions[3]),
            }
        }


def test_a_transaction_is_one_generation_over_all_resources(etcd: EtcdServer, name: str) -> None:
    etcd.put(f"{WIDGETS}ns/a", widget("a"))
    with Following(name, etcd, BOTH) as following:
        for turn in range(20):
            here, there = (WIDGETS, GADGETS) if turn % 2 == 0 else (GADGETS, WIDGETS)
            before = following.cache.latest
            revision = etcd.txn({f"{here}ns/a": None, f"{there}ns/a": widget("a", turn=turn)})
            following.cache.wait(before, 5.0)
            seen = following.cache.snapshot()
            assert len(seen["widgets"]) + len(seen["gadgets"]) == 1
            following.reaches("gadgets" if turn % 2 == 0 else "widgets", revision)


def test_a_list_of_several_prefixes_is_of_one_revision(etcd: EtcdServer, name: str) -> None:
    etcd.txn({f"{WIDGETS}ns/{n}": widget(str(n)) for n in range(100)})
    revision = etcd.txn({f"{GADGETS}ns/{n}": widget(str(n)) for n in range(100)})

    with Following(name, etcd, BOTH) as following:
        assert {following.cache[each].version for each in BOTH} == {str(revision)}
        assert all(equals(etcd, following, each, prefix) for each, prefix in BOTH.items())


def test_many_pages_and_large_values(etcd: EtcdServer, name: str) -> None:
    for start in range(0, 3000, 100):
        etcd.txn({f"{WIDGETS}ns/{n:05}": widget(f"{n:05}") for n in range(start, start + 100)})
    for n in range(8):
        etcd.put(f"{WIDGETS}z/{n}", widget(str(n), text="x" * 1_200_000))

    with Following(name, etcd, {"widgets": WIDGETS}) as following:
        assert equals(etcd, following, "widgets", WIDGETS)
        assert len(following.cache["widgets"]) == 3008


def test_pages_that_are_larger_than_a_message_are_cut(
    etcd: EtcdServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ("grpc.max_receive_message_length", 2 << 20)
    monkeypatch.setattr(members, "OPTIONS", [*members.OPTIONS, small])
    for n in range(6):
        etcd.put(f"{WIDGETS}ns/{n}", widget(str(n), text="x" * 900_000))

    with Following(name, etcd, {"widgets": WIDGETS}) as following:
        assert len(following.cache["widgets"]) == 6


def test_a_large_transaction_in_fragments_is_one_generation(etcd: EtcdServer, name: str) -> None:
    with Following(name, etcd, {"widgets": WIDGETS}) as following:
        generation = following.cache.latest
        parts = {f"{WIDGETS}ns/{n}": widget(str(n), text="x" * 14_000) for n in range(100)}
        revision = etcd.txn(parts)
        following.cache.wait(generation, 5.0)

        assert len(following.cache.snapshot()["widgets"]) == 100
        assert following.versions("widgets") == {f"ns/{n}": revision for n in range(100)}


def test_compaction_while_away_leads_to_a_difference_without_a_ghost(
    etcd: EtcdServer, name: str
) -> None:
    etcd.txn({f"{WIDGETS}ns/{n}": widget(str(n)) for n in range(10)})
    following = Following(name, etcd, {"widgets": WIDGETS}).start()
    following.stop(keep=True)
    etcd.delete(f"{WIDGETS}ns/3")
    revision = etcd.put(f"{WIDGETS}ns/4", widget("4", x=1))
    etcd.compact(revision)

    following = Following(name, etcd, {"widgets": WIDGETS}).start()
    until(lambda: equals(etcd, following, "widgets", WIDGETS), "the state after compaction")
    assert sorted(kind for _, kind, _, _ in following.take()) == ["DELETED", "MODIFIED"]
    until(lambda: following.lists() == 1, "one list")
    following.stop()


def test_compaction_under_an_open_watch_changes_nothing(etcd: EtcdServer, name: str) -> None:
    with Following(name, etcd, {"widgets": WIDGETS}) as following:
        for n in range(20):
            etcd.compact(etcd.put(f"{WIDGETS}ns/a", widget("a", n=n)))
        until(lambda: equals(etcd, following, "widgets", WIDGETS), "equality")

        assert len(following.take()) == 20
        assert following.lists() == 0


def test_a_restart_goes_on_without_a_list(etcd: EtcdServer, name: str) -> None:
    etcd.put(f"{WIDGETS}ns/a", widget("a"))
    following = Following(name, etcd, BOTH).start()
    following.stop(keep=True)
    revision = etcd.txn({f"{WIDGETS}ns/a": None, f"{GADGETS}ns/a": widget("a")})

    following = Following(name, etcd, BOTH).start()
    following.reaches("gadgets", revision)
    assert following.lists() == 0
    assert [(each, kind) for each, kind, _, _ in following.take()] == [
        ("widgets", "DELETED"),
        ("gadgets", "ADDED"),
    ]
    assert [following.cache[each].status.counters["lists"] for each in BOTH] == [2, 2]
    following.stop()


def test_an_interrupted_watch_goes_on_without_a_list(etcd: EtcdServer, name: str) -> None:
    """As evidence against the content interrupts it; a source that does not watch takes no harm."""
    with Following(name, etcd, {"widgets": WIDGETS}) as following:

        def watches() -> int:
            return int(following.cache["widgets"].status.counters["watches"])

        [source] = {feed.parts.source for kept in following.engine._kept for feed in kept.feeds}
        until(lambda: watches() == 1, "a watch")
        source.interrupt()
        until(lambda: watches() == 2, "another watch")
        following.reaches("widgets", etcd.put(f"{WIDGETS}ns/a", widget("a")))
        assert following.lists() == 0
    source.interrupt()


def test_progress_moves_the_version_of_a_quiet_prefix(etcd: EtcdServer, name: str) -> None:
    with Following(name, etcd, {"widgets": WIDGETS}) as following:
        revision = etcd.put("/elsewhere", b"1")

        following.reaches("widgets", revision)
        assert following.take() == []


def test_progress_is_requested_where_a_member_sends_none_by_itself(name: str) -> None:
    """It does so each ten minutes, unless its options say otherwise; a watch is not silent."""
    needs_etcd()
    with (
        EtcdServer() as quiet,
        Following(name, quiet, {"widgets": WIDGETS}, silence="2s") as following,
    ):
        ages = [0.0]

        def heard_again() -> bool:
            ages.append(following.cache["widgets"].status.age or 0.0)
            return sum(one > other for one, other in itertools.pairwise(ages)) >= 6

        until(heard_again, "six contacts")
        counters = following.cache["widgets"].status.counters
        assert (1, 0) == (counters["watches"], counters["errors"]), "the watch has gone on"


def test_a_value_that_is_not_json_is_refused_alone(
    etcd: EtcdServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    etcd.put(f"{WIDGETS}ns/a", widget("a"))
    etcd.put(f"{WIDGETS}ns/listed", b"k8s\0protobuf")
    with Following(name, etcd, {"widgets": WIDGETS}) as following:
        etcd.put(f"{WIDGETS}ns/b", b"k8s:enc:aescbc:v1:x")
        before = following.versions("widgets")
        revision = etcd.put(f"{WIDGETS}ns/c", widget("c"))
        following.reaches("widgets", revision)

        assert following.versions("widgets") == before | {"ns/c": revision}
        until(lambda: _refused(following) == 2, "two refusals counted")
    assert "--storage-media-type=application/json" in caplog.text


def _refused(following: Following) -> int:
    return following.cache["widgets"].status.counters["refused"]


def test_an_object_that_ceases_to_match_leaves(etcd: EtcdServer, name: str) -> None:
    def labelled(color: str) -> bytes:
        obj = json.loads(widget("a"))
        obj["metadata"]["labels"] = {"color": color}
        return json.dumps(obj).encode()

    etcd.put(f"{WIDGETS}ns/a", labelled("red"))
    plan = {"widgets": {"keys": WIDGETS, "labels": "color=blue"}}
    with Following(name, etcd, plan) as following:
        revisions = [etcd.put(f"{WIDGETS}ns/a", labelled(c)) for c in ("blue", "blue", "red")]
        following.reaches("widgets", revisions[-1])

        assert [kind for _, kind, _, _ in following.take()] == ["ADDED", "MODIFIED", "DELETED"]


def test_text_under_a_prefix(etcd: EtcdServer, name: str) -> None:
    revision = etcd.put("/conf/app/db/url", b"postgres://")
    with Following(name, etcd, {"conf": {"keys": "/conf/", "value": "text"}}) as following:
        found = following.cache["conf"]["app/db/url"].to_dict()

        assert found["value"] == "postgres://"
        assert found["metadata"]["createRevision"] == str(revision)


def test_a_key_that_was_deleted_and_created_unseen_is_another_object(
    etcd: EtcdServer, name: str
) -> None:
    etcd.put("/conf/a", b"1")
    plan = {"conf": {"keys": "/conf/", "value": "text"}}
    Following(name, etcd, plan).start().stop(keep=True)
    etcd.delete("/conf/a")
    etcd.compact(etcd.put("/conf/a", b"1"))

    following = Following(name, etcd, plan).start()
    until(lambda: following.lists() == 1, "the list after compaction")
    before, after = following.cursor.take()[-1].old, following.cursor.take()
    assert after == []
    assert before is not None
    assert before["metadata"]["uid"] != following.content("conf")["a"]["metadata"]["uid"]
    following.stop()


def test_another_cluster_under_the_same_endpoints_is_listed_again(name: str) -> None:
    """As after `etcdutl snapshot restore`: another cluster id, revisions from the snapshot."""
    needs_etcd()
    etcd = EtcdServer()
    with etcd:
        for n in range(5):
            etcd.put(f"{WIDGETS}ns/{n}", widget(str(n)))
        following = Following(name, etcd, {"widgets": WIDGETS}).start()
        member = etcd.members[0]
        member.kill()
        shutil.rmtree(member.folder)
        index = member.command.index("--initial-cluster-token") + 1
        member.command[index] = "restored"
        etcd.start()
        for n in range(9):  # its revision overtakes ours at once
            etcd.put(f"{WIDGETS}ns/new{n}", widget(f"new{n}"))
        until(lambda: equals(etcd, following, "widgets", WIDGETS), "the other history", 40)
        until(lambda: following.lists() == 1, "one list")
        following.stop()


@pytest.mark.parametrize(("overtakes", "away"), [(False, False), (True, False), (True, True)])
def test_a_backup_that_was_put_back_is_listed_again(name: str, overtakes: bool, away: bool) -> None:
    """The same cluster id: the revision goes back, and may have passed ours when we see it."""
    needs_etcd()
    etcd = EtcdServer()
    with etcd:
        member = etcd.members[0]
        etcd.put(f"{WIDGETS}ns/a", widget("a"))
        member.kill()
        shutil.copytree(member.folder, f"{member.folder}.backup")
        etcd.start()
        for n in range(5):
            etcd.put(f"{WIDGETS}ns/{n}", widget(str(n)))
        following = Following(name, etcd, {"widgets": WIDGETS}).start()
        if away:
            following.stop(keep=True)
        member.kill()
        shutil.rmtree(member.folder)
        shutil.copytree(f"{member.folder}.backup", member.folder)
        etcd.start()
        for n in range(10 * overtakes):
            etcd.put(f"{WIDGETS}ns/new{n}", widget(f"new{n}"))
        if away:
            following = Following(name, etcd, {"widgets": WIDGETS}).start()
        until(lambda: equals(etcd, following, "widgets", WIDGETS), "the backup's state", 40)
        assert len(following.versions("widgets")) == 1 + 10 * overtakes
        following.stop()


def test_a_cache_that_is_full_keeps_every_resource_as_it_was(etcd: EtcdServer, name: str) -> None:
    etcd.put(f"{WIDGETS}ns/a", widget("a"))
    limited = {"widgets": {"keys": WIDGETS, "max_bytes": 2000}, "gadgets": GADGETS}
    with Following(name, etcd, limited) as following:
        etcd.txn({f"{GADGETS}ns/g": widget("g"), f"{WIDGETS}ns/b": widget("b", x="x" * 3000)})
        until(
            lambda: {following.cache[each].status.state for each in BOTH} == {"exceeded"},
            "both are exceeded",
        )
        assert list(following.versions("widgets")) == ["ns/a"]
        assert following.versions("gadgets") == {}
        etcd.delete(f"{WIDGETS}ns/b")
        until(lambda: list(following.versions("gadgets")) == ["ns/g"], "it fits again", 60)


@pytest.mark.parametrize(
    ("version", "ordered"),
    [
        ("3.4.23", False), ("3.4.25", True), ("3.5.1", False), ("3.5.8", True), ("3.6.0", True),
        ("3.6.0-rc.1", True), ("unknown", False),
    ],
)  # fmt: skip
def test_where_progress_is_in_order(version: str, ordered: bool) -> None:
    assert progress_is_ordered(version) is ordered
