"""Invariants tested: MEMBER1 to MEMBER4: members, users, certificates and a full disk of etcd.

The campaign (tests/campaigns/etcd_campaign.py) does the same for longer, at random.
"""

from __future__ import annotations

import time
from pathlib import Path

import etcd_campaign
import pytest
import trustme
from etcds import PROGRESS, WIDGETS, Following, Users, equals, needs_etcd, until, widget

from shmcache.errors import SourceError
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.source.etcd import messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.connection import EtcdConnection
from shmcache.testing.etcd import EtcdServer, program


@pytest.fixture(autouse=True)
def _etcd() -> None:
    needs_etcd()


def test_a_leader_that_dies_costs_no_list_and_readers_go_on(name: str) -> None:
    with EtcdServer(3, options=[PROGRESS]) as etcd:
        etcd.put(f"{WIDGETS}ns/a", widget("a"))
        with Following(name, etcd, {"widgets": WIDGETS}) as following:
            revision = 0
            for turn in range(2):
                leader = until(etcd.leader, "a leader")
                leader.kill()
                assert following.content("widgets")
                etcd.ready()
                revision = etcd.put(f"{WIDGETS}ns/a", widget("a", turn=turn))
                following.reaches("widgets", revision)
                leader.start()
            assert following.lists() == 0
            assert following.take()[1:] == [
                ("widgets", "MODIFIED", "ns/a", following.take()[1][3]),
                ("widgets", "MODIFIED", "ns/a", str(revision)),
            ]


def test_a_short_campaign_keeps_every_guarantee(name: str) -> None:
    world = etcd_campaign.World(name, 11, 3, program())
    try:
        assert world.run(4.0) == []
        assert world.changes
        assert world.samples
    finally:
        world.close()


def test_no_space_stops_writes_and_not_the_cache(name: str) -> None:
    with EtcdServer(options=[PROGRESS, "--quota-backend-bytes", str(2 << 20)]) as etcd:
        etcd.put(f"{WIDGETS}ns/a", widget("a"))
        with Following(name, etcd, {"widgets": WIDGETS}) as following:
            with pytest.raises(SourceFailed, match="database space exceeded"):
                for n in range(100):
                    etcd.put(f"{WIDGETS}ns/{n}", widget(str(n), text="x" * 100_000))
            until(lambda: equals(etcd, following, "widgets", WIDGETS), "equality")
            assert following.cache["widgets"].status.state == "synced"
            assert following.lists() == 0


PASSWORD = "open sesame"  # noqa: S105 - of the tests' own etcd


def test_users_and_tokens_that_become_invalid(name: str, tmp_path: Path) -> None:
    with EtcdServer(options=[PROGRESS]) as etcd:
        etcd.put(f"{WIDGETS}ns/a", widget("a"))
        users = Users(etcd, PASSWORD)
        users.call("RoleAdd", "RoleAddRequest", name="reader")
        permission = users.classes["Permission"](
            permType=0, key=WIDGETS.encode(), range_end=WIDGETS[:-1].encode() + b"0"
        )
        users.call("RoleGrantPermission", "RolePermissionRequest", name="reader", perm=permission)
        users.add("cache", "reader")
        users.enable()
        anonymous = etcd.connection
        etcd.authenticate("root", PASSWORD)
        with pytest.raises(SourceFailed, match="closed"):
            anonymous.member()
        (tmp_path / "password").write_text(f"{PASSWORD}\n")

        plan = {"widgets": WIDGETS}
        password = {"etcd_user": "cache", "etcd_password_file": str(tmp_path / "password")}
        with Following(name, etcd, plan, **password) as following:
            for turn in range(3):  # each new user makes all tokens of before invalid
                Users(etcd, PASSWORD).add(f"user{turn}", "reader")
                following.reaches("widgets", etcd.put(f"{WIDGETS}ns/a", widget("a", n=turn)))
                following.engine.stop()
                following.restart()
            until(lambda: equals(etcd, following, "widgets", WIDGETS), "equality")

        connection = EtcdConnection(EtcdAccess.of(etcd.endpoints, user="cache", password=PASSWORD))
        for wrong, code in (("/other", 403), (WIDGETS, 0)):
            request = messages.RangeRequest(key=wrong.encode(), keys_only=True)
            try:
                connection.call(messages.RANGE, request, "read", timeout=5.0)
            except SourceFailed as failed:
                assert failed.failure.code == code
            else:
                assert code == 0
        connection.close()
        wrong_password = EtcdConnection(
            EtcdAccess.of(etcd.endpoints, user="cache", password=PASSWORD[:-1])
        )
        with pytest.raises(SourceFailed, match="authentication failed") as refused:
            request = messages.RangeRequest(key=WIDGETS.encode())
            wrong_password.call(messages.RANGE, request, "read", timeout=5.0)
        assert refused.value.failure.code == 401
        wrong_password.close()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    return {part: str(tmp_path / f"{part}.pem") for part in ("ca", "cert", "key")}


def issue(authority: trustme.CA, files: dict[str, str]) -> None:
    authority.cert_pem.write_to_path(files["ca"])
    made = authority.issue_cert("127.0.0.1", "localhost")
    made.private_key_pem.write_to_path(files["key"])
    made.cert_chain_pems[0].write_to_path(files["cert"])


def test_certificates_that_are_rotated_count_from_the_next_connection(
    name: str, files: dict[str, str]
) -> None:
    issue(trustme.CA(), files)
    etcd = EtcdServer(tls=files, options=[PROGRESS])
    with etcd:
        etcd.put(f"{WIDGETS}ns/a", widget("a"))
        keys = {"etcd_ca": files["ca"], "etcd_cert": files["cert"], "etcd_key": files["key"]}
        with Following(name, etcd, {"widgets": WIDGETS}, **keys) as following:
            following.reaches("widgets", etcd.put(f"{WIDGETS}ns/a", widget("a", n=1)))
            etcd.members[0].kill()
            issue(trustme.CA(), files)  # another authority: the old certificates are worthless
            etcd.start()
            revision = etcd.put(f"{WIDGETS}ns/b", widget("b"))
            following.reaches("widgets", revision)
            assert following.lists() == 0


def test_a_frozen_member_is_left_for_the_next(name: str) -> None:
    with EtcdServer(3) as etcd:
        etcd.put(f"{WIDGETS}ns/a", widget("a"))
        first = EtcdConnection(etcd.access())
        request = messages.RangeRequest(key=WIDGETS.encode(), keys_only=True)
        first.call(messages.RANGE, request, "read", timeout=5.0)
        member = next(m for m in etcd.members if m.endpoint == first.member().endpoint)
        member.stop()
        began = time.monotonic()
        first.call(messages.RANGE, request, "read", timeout=20.0)
        assert first.member().endpoint != member.endpoint
        assert time.monotonic() - began < 20.0
        member.thaw()
        first.close()
    assert name


def test_nobody_listens_is_refused_and_names_the_endpoint() -> None:
    connection = EtcdConnection(EtcdAccess.of("http://127.0.0.1:1"))
    with pytest.raises(SourceFailed, match=r"127\.0\.0\.1:1") as refused:
        connection.call(messages.RANGE, messages.RangeRequest(key=b"a"), "read", timeout=5.0)

    assert refused.value.failure.kind is FailureKind.REFUSED
    connection.close()


@pytest.mark.parametrize(
    ("endpoints", "more", "why"),
    [
        ("", {}, "not endpoints"),
        ("a:2379", {}, "not endpoints"),
        ("http://[", {}, "not endpoints"),
        ("http://a:2379,https://b:2379", {}, "all be http"),
        ("https://a:2379", {"cert_file": "x"}, "both files"),
        ("http://a:2379", {"ca_file": "x"}, "need https"),
        ("http://a:2379", {"password": "x"}, "needs a user"),
    ],
)
def test_an_access_that_cannot_work_is_refused(
    endpoints: str, more: dict[str, str], why: str
) -> None:
    with pytest.raises(SourceError, match=why):
        EtcdAccess.of(endpoints, **more)
