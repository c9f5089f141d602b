"""Invariants tested: MEMBER5 to MEMBER7, STORE5: which member is asked, and which history.

Its clusters have different ids, as those of a restored snapshot.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from etcds import PROGRESS, WIDGETS, Following, equals, needs_etcd, until, widget

from shmcache.etcd import Store, WriteUnknown
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.etcd import messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.connection import EtcdConnection
from shmcache.testing.etcd import EtcdServer

Join = Callable[..., EtcdConnection]


@pytest.fixture(scope="module")
def ours() -> Iterator[EtcdServer]:
    needs_etcd()
    with EtcdServer(options=[PROGRESS]) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def other() -> Iterator[EtcdServer]:
    needs_etcd()
    with EtcdServer(3, options=[PROGRESS]) as etcd:
        yield etcd


@pytest.fixture
def join() -> Iterator[Join]:
    made: list[EtcdConnection] = []

    def connect(*endpoints: str, cluster: int = 0) -> EtcdConnection:
        made.append(EtcdConnection(EtcdAccess(endpoints=endpoints)))
        made[-1].expect(cluster)
        return made[-1]

    yield connect
    for each in made:
        each.close()


def cluster_of(etcd: EtcdServer) -> int:
    return int(EtcdConnection(etcd.access()).status().header.cluster_id)


def endpoints(etcd: EtcdServer) -> list[str]:
    return [member.endpoint for member in etcd.members]


def read(connection: EtcdConnection, timeout: float = 5.0) -> int:
    request = messages.RangeRequest(key=b"a", keys_only=True)
    answer = connection.call(messages.RANGE, request, "read", timeout=timeout)
    return int(answer.header.cluster_id)


def refusal(connection: EtcdConnection) -> str:
    try:
        read(connection, 0.3)
    except SourceFailed as failed:
        return str(failed)
    return ""


def test_a_member_of_another_cluster_is_not_asked(
    ours: EtcdServer, other: EtcdServer, join: Join
) -> None:
    mine = cluster_of(ours)
    connection = join(endpoints(other)[0], ours.endpoints, cluster=mine)
    assert {read(connection) for _ in range(5)} == {mine}
    ours.members[0].kill()
    try:
        with pytest.raises(SourceFailed, match=r"belongs to cluster .* and not to ours") as failed:
            read(connection)
        assert failed.value.failure.kind is FailureKind.REFUSED
    finally:
        ours.start()
    assert read(connection) == mine


def test_the_cluster_of_most_endpoints_is_ours(
    ours: EtcdServer, other: EtcdServer, join: Join
) -> None:
    """Also later, as after a restored snapshot; two that differ are refused."""
    theirs = cluster_of(other)
    assert read(join(ours.endpoints, *endpoints(other)[:2])) == theirs
    assert read(join(*endpoints(other), cluster=cluster_of(ours))) == theirs
    with pytest.raises(SourceFailed, match="belong to different clusters"):
        read(join(ours.endpoints, endpoints(other)[0]), 1.0)


def test_a_call_waits_for_a_leader(other: EtcdServer, join: Join) -> None:
    connection = join(*endpoints(other))
    killed = other.members[:2]
    for member in killed:
        member.kill()
    try:
        until(lambda: "knows no leader" in refusal(connection), "a refusal")
    finally:
        killed[0].start()
        assert until(lambda: read(connection, 20.0), "an answer") == cluster_of(other)
        other.start()


def test_a_content_is_kept_while_only_a_foreign_member_answers(
    ours: EtcdServer, other: EtcdServer, name: str
) -> None:
    """The foreign cluster has other objects, which never come into the cache."""
    ours.clear()
    ours.put(f"{WIDGETS}ns/a", widget("a"))
    for n in range(9):
        other.put(f"{WIDGETS}ns/foreign{n}", widget(f"foreign{n}"))
    twice = ours.endpoints.replace("127.0.0.1", "localhost")
    most = f"{ours.endpoints},{twice},{endpoints(other)[0]}"
    mine = cluster_of(ours)
    with Following(name, ours, {"widgets": WIDGETS}, endpoints=most) as following:
        ours.members[0].kill()
        try:
            until(
                lambda: f"not to ours, {mine:x}" in following.cache["widgets"].status.reason,
                "the reason is shown",
            )
            assert list(following.content("widgets")) == ["ns/a"]
        finally:
            ours.start()
        following.reaches("widgets", ours.put(f"{WIDGETS}ns/b", widget("b")))
        assert equals(ours, following, "widgets", WIDGETS)
        assert following.lists() == 0


def renewed(etcd: EtcdServer, token: str) -> None:
    """The same endpoints, and another cluster behind them."""
    member = etcd.members[0]
    member.kill()
    shutil.rmtree(member.folder)
    member.command[member.command.index("--initial-cluster-token") + 1] = token
    etcd.start()


def test_an_update_is_not_decided_upon_another_history(name: str) -> None:
    """The key has the same revision in both histories, and other content."""
    plan = {"widgets": {"keys": WIDGETS, "keep_managed_fields": True}}

    def bump(obj: Any) -> Any:
        return obj | {"spec": {"x": obj["spec"]["x"] + 1}}

    with EtcdServer(options=[PROGRESS]) as etcd:
        old = etcd.put(f"{WIDGETS}ns/a", widget("a", x=0))
        with (
            Following(name, etcd, plan) as following,
            Store(etcd.endpoints, WIDGETS, following.cache["widgets"]) as store,
        ):
            assert store.count() == 1  # the store knows its cluster
            following.engine.stop()
            renewed(etcd, "restored")
            assert etcd.put(f"{WIDGETS}ns/a", widget("a", x=10)) == old

            with pytest.raises(WriteUnknown, match="another cluster answered"):
                until(lambda: store.guaranteed_update("ns/a", bump), "an answer")
            made = store.guaranteed_update("ns/a", bump)

            assert made is not None
            assert made["spec"]["x"] in {2, 11, 12}  # upon what is there, not upon the cache
            assert made == store.get("ns/a")


def test_an_update_that_was_applied_at_an_earlier_term_is_unknown(
    name: str,
) -> None:
    plan = {"widgets": {"keys": WIDGETS, "keep_managed_fields": True}}
    with EtcdServer(options=[PROGRESS]) as etcd:
        etcd.put(f"{WIDGETS}ns/a", widget("a", x=0))
        member = etcd.members[0]
        member.kill()
        shutil.copytree(member.folder, f"{member.folder}.backup")
        etcd.start()
        member.kill()
        etcd.start()  # a term more than the backup's next one
        with (
            Following(name, etcd, plan) as following,
            Store(etcd.endpoints, WIDGETS, following.cache["widgets"]) as store,
        ):
            assert store.count() == 1
            following.engine.stop()
            member.kill()
            shutil.rmtree(member.folder)
            shutil.copytree(f"{member.folder}.backup", member.folder)
            etcd.start()

            def update(x: int) -> Any:
                return store.guaranteed_update(
                    "ns/a", lambda obj: {**(obj or {}), "spec": {"x": x}}
                )

            with pytest.raises(WriteUnknown, match="another history"):
                until(lambda: update(1), "an answer")
            assert store._from_cache("ns/a") is None  # its term is beyond that of the cluster
            assert update(2)["spec"] == {"x": 2}


@pytest.mark.parametrize("how", ["ended", "frozen"])
def test_a_cluster_that_does_not_answer_shows_a_log(how: str) -> None:
    needs_etcd()
    with EtcdServer(2, options=[PROGRESS]) as etcd:
        first, second = etcd.members
        assert first.process is not None
        assert second.process is not None
        second.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, second.process.pid, os.WSTOPPED)  # until then its log grows
        if how == "ended":
            first.process.kill()
            first.process.wait()
        with pytest.raises(RuntimeError, match="etcd does not start") as found:
            etcd.ready(0.0)
        logs, theirs, its = str(found.value), first.log, second.log
        second.process.send_signal(signal.SIGCONT)
    assert (theirs in logs) or how == "frozen", "a log that still grows may be longer now"
    assert (its in logs) == (how == "frozen")
